# SPDX-License-Identifier: Apache-2.0
"""Runs test cases with real processes and servers, and prints TAP. A case is a sentence and a function.

Each case runs in a process, process group and temporary folder of its own; several cases can run at the
same time. Processes that a case has left running end with its process group. A case that takes longer than
its limit fails.

    program [-j JOBS] [-t] [FILTER]     -t: print the duration of each case; FILTER: a part of the sentence
"""
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback

from redis_live import Live

LIMIT = 90
TIMES = '-t' in sys.argv
_cases = []


def case(sentence, *options, server=Live, limit=LIMIT):
    """The function gets a server of this class with these options; server=False: no server."""
    def add(function):
        _cases.append((sentence, options, server, limit, function))
        return function
    return add


def _inside(server, options, function):
    """Run the case in its own process. Returns the exit status, 0 or 1."""
    made = None
    try:
        if server:
            made = server(*options)
            function(made)
        else:
            function()
        return 0
    except BaseException:
        print('\n'.join('# ' + line for line in traceback.format_exc().splitlines()))
        return 1
    finally:
        if made:
            made.stop()
        sys.stdout.flush()


class _Run:
    """A running case."""

    def __init__(self, number, entry):
        self.number, (self.sentence, options, server, limit, function) = number, entry
        self.folder = tempfile.mkdtemp(prefix='pawl-case-')
        self.output = os.path.join(self.folder, 'output')
        self.began = time.monotonic()
        self.ends = self.began + limit
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.setpgid(0, 0)
            tempfile.tempdir = self.folder
            os.dup2(os.open(self.output, os.O_WRONLY | os.O_CREAT, 0o600), 1)
            status = _inside(server, options, function)
            os._exit(status)
        try:
            os.setpgid(self.pid, self.pid)
        except (ProcessLookupError, PermissionError):
            pass  # the child has done so itself

    def end(self):
        """End all processes that the case has started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def over(self):
        """None while the case runs, else the lines with its result."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        late = not pid and time.monotonic() > self.ends
        if not pid and not late:
            return None
        self.end()
        if late:
            os.waitpid(self.pid, 0)
        with open(self.output, encoding='utf-8', errors='replace') as f:
            notes = f.read()
        shutil.rmtree(self.folder, ignore_errors=True)
        if late:
            notes += '# it took too long\n'
        if TIMES:
            notes += f'# {time.monotonic() - self.began:.1f} s\n'
        word = 'ok' if pid and status == 0 else 'not ok'
        return word, f'{word} {self.number} - {self.sentence}\n{notes}'


def run():
    jobs = int(os.environ.get('CHECK_JOBS', 4))
    args = [a for a in sys.argv[1:] if a != '-t']
    if args[:1] == ['-j']:
        jobs, args = int(args[1]), args[2:]
    entries = [c for c in _cases if not args or args[0] in c[0]]
    todo = list(enumerate(entries, 1))
    print(f'1..{len(todo)}')
    running, told, failed = [], {}, 0
    printed = 0

    def stop(number, frame):
        for r in running:
            r.end()
            shutil.rmtree(r.folder, ignore_errors=True)
        os._exit(128 + number)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    while todo or running:
        while todo and len(running) < jobs:
            running.append(_Run(*todo.pop(0)))
        time.sleep(0.01)
        for r in list(running):
            outcome = r.over()
            if outcome:
                running.remove(r)
                failed += outcome[0] != 'ok'
                told[r.number] = outcome[1]
        while printed + 1 in told:
            printed += 1
            sys.stdout.write(told[printed])
            sys.stdout.flush()
    return 1 if failed or not entries else 0
