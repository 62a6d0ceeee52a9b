# SPDX-License-Identifier: Apache-2.0
"""The pawl command in tests. main() gives each case a Box: a private folder, which is also the lock folder of
PAWL_URL, and helpers that run the tool there. Processes that a case leaves running are ended by their
process ids. Cases wait for events (a file, a state in the output of `pawl show`), never for a time, unless
they test time.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cases import run_in_turn

TOOL = os.environ.get('PAWL_TOOL') or sys.exit('set PAWL_TOOL to the path of the pawl command')
PATIENCE = 90  # seconds; only a process that hangs takes this long

def wait_for(what, predicate, patience=PATIENCE):
    """Wait until predicate() returns a true value, and return the value."""
    end = time.monotonic() + patience
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError('timed out waiting for ' + what)
        time.sleep(0.005)


def alive(pid):
    """Whether the process runs and is no zombie."""
    try:
        with open(f'/proc/{pid}/stat', errors='replace') as f:
            return f.read().rpartition(')')[2].split()[0] not in 'ZX'
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid):
    """(pid, command name) of the child processes."""
    found = []
    for entry in os.listdir('/proc'):
        if entry.isdigit():
            try:
                with open(f'/proc/{entry}/stat', errors='replace') as f:
                    head, _, tail = f.read().rpartition(')')
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(tail.split()[1]) == pid and tail.split()[0] not in 'ZX':
                found.append((int(entry), head.partition('(')[2]))
    return found


def wake_ups(pid):
    """How often the threads of the process have gone to sleep, all together."""
    total = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/status') as f:
            total += next(int(line.split()[1]) for line in f
                          if line.startswith('voluntary_ctxt_switches'))
    return total


def guardian_of(pid):
    """The guardian's process id, or None."""
    return next((child for child, name in children(pid) if name == 'lock-guardian'), None)


class Box:
    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix='pawl-tool-')
        self.locks = self.dir + '/locks'
        os.mkdir(self.locks, 0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('PAWL_')}
        self.env['PAWL_URL'] = 'local:' + self.locks
        self.started = []
        self.pids = []

    def path(self, name):
        return os.path.join(self.dir, name)

    def read(self, name):
        try:
            with open(self.path(name)) as f:
                return f.read()
        except FileNotFoundError:
            return ''

    def lines(self, name):
        """The complete lines of a file to which a process may still be writing."""
        return [line[:-1] for line in self.read(name).splitlines(True) if line.endswith('\n')]

    def pid_in(self, name):
        """Wait for the process id that a command writes into a file."""
        pid = int(wait_for(name, lambda: self.lines(name))[0])
        self.pids.append(pid)
        return pid

    def start(self, *args, **options):
        options.setdefault('env', self.env)
        options.setdefault('cwd', self.dir)
        options.setdefault('stdin', subprocess.DEVNULL)
        options.setdefault('stdout', subprocess.PIPE)
        options.setdefault('stderr', subprocess.PIPE)
        options.setdefault('start_new_session', True)
        process = subprocess.Popen([TOOL, *args], **options)
        self.started.append(process)
        return process

    def end(self, process):
        """(status, stdout, stderr) of a started process."""
        out, err = process.communicate(timeout=PATIENCE)
        return process.returncode, (out or b'').decode(), (err or b'').decode()

    def pawl(self, *args, **options):
        return self.end(self.start(*args, **options))

    def status(self, *args, **options):
        return self.pawl(*args, **options)[0]

    def holder(self, name, *options, script='exec sleep 1000'):
        """A `pawl run` whose command is running, and the command's process id."""
        flag = f'running-{len(self.started)}'
        process = self.start('run', *options, name, '--', 'sh', '-c',
                             f'echo $$ > {flag}; {script}')
        return process, self.pid_in(flag)

    def show(self, name):
        return json.loads(self.pawl('show', '--json', name)[1])

    def wait_waiters(self, name, n):
        wait_for(f'{n} waiters', lambda: self.show(name)['waiter_count'] == n)

    def close(self):
        for process in self.started:
            if process.poll() is None:
                guardian = guardian_of(process.pid)
                process.send_signal(signal.SIGCONT)
                process.terminate()
                try:
                    process.communicate(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                if guardian:
                    wait_for('the guardian to end', lambda g=guardian: not alive(g))
        for pid in self.pids:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)


def main():
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:  # ignored, as in a job in the background
            signal.signal(number, signal.SIG_DFL)

    @contextlib.contextmanager
    def boxed(number):
        box = Box()
        try:
            yield [box]
        finally:
            box.close()
    sys.exit(run_in_turn(boxed))
