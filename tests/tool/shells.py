# SPDX-License-Identifier: Apache-2.0
"""Shells with the completion of the command: on a terminal, and as functions that return the candidates."""
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time

from cases import equal
from tool import PATIENCE, TOOL

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.path.join(HERE, '..', '..', 'tools', 'completions')


def need(shell):
    assert shutil.which(shell), f'{shell} is missing: scripts/deps test'


class Shell:
    """A shell on a terminal. `expect` returns the output since the last call, up to a pattern."""

    def __init__(self, box, shell, *words, setup):
        need(shell)
        env = dict(box.env, PATH=os.path.dirname(TOOL) + ':' + os.environ['PATH'], TERM='dumb',
                   LC_ALL='C.UTF-8', HISTFILE='/dev/null', HOME=box.dir, PS1='READY> ')
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(box.dir)
            os.execvpe(shell, [shell, *words], env)
        self.text = ''
        self.run(setup)

    def expect(self, pattern):
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end, f'no {pattern!r} in {self.text!r}'
            if select.select([self.fd], [], [], 1)[0]:
                self.text += os.read(self.fd, 65536).decode(errors='replace')
        shown, self.text = self.text[:found.end()], self.text[found.end():]
        return shown

    def type(self, text):
        os.write(self.fd, text.encode())

    def run(self, line):
        """Run a line; returns the output up to the next prompt."""
        mark = f'end-{time.monotonic_ns()}'
        self.type(f'{line}\n')
        self.type(f'echo {mark[:4]}""{mark[4:]}\n')
        return self.expect(re.escape(mark))

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def fish(box, line):
    """The candidates, without their descriptions."""
    env = dict(box.env, PATH=os.path.dirname(TOOL) + ':' + os.environ['PATH'], HOME=box.dir,
               LC_ALL='C.UTF-8')
    done = subprocess.run(['fish', '--no-config', '-c', 'source $argv[1]; complete -C $argv[2]',
                           os.path.join(FOLDER, 'pawl.fish'), line], env=env, cwd=box.dir,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    equal(done.stderr, b'')
    return {entry.split('\t')[0] for entry in done.stdout.decode().splitlines()}


def bash(box, line):
    """The candidates that the completion function returns for a line."""
    script = ('source "$1"; COMP_LINE=$2 COMP_POINT=${#2}; _pawl pawl; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    env = dict(box.env, PATH=os.path.dirname(TOOL) + ':' + os.environ['PATH'], LC_ALL='C.UTF-8')
    done = subprocess.run(['bash', '-c', script, 'bash', os.path.join(FOLDER, 'pawl.bash'), line],
                          env=env, cwd=box.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    equal(done.stderr, b'')
    return {entry for entry in done.stdout.decode().splitlines() if entry}


def zsh(box, line):
    """The candidates for the last word, as the completion function adds them."""
    need('zsh')
    script = ('compadd() { while [[ $1 == -* ]] { [[ $1 == -- ]] && { shift; break }; shift }; '
              'print -rl -- "$@" }; words=(${(z)2}); [[ $2 == *" " ]] && words+=(""); '
              'CURRENT=$#words; source $1')
    env = dict(box.env, PATH=os.path.dirname(TOOL) + ':' + os.environ['PATH'], LC_ALL='C.UTF-8')
    done = subprocess.run(['zsh', '-f', '-c', script, 'zsh', os.path.join(FOLDER, '_pawl'), line],
                          env=env, cwd=box.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False)
    equal(done.stderr, b'')
    return {entry for entry in done.stdout.decode().splitlines() if entry}
