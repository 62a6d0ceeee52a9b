# SPDX-License-Identifier: Apache-2.0
"""Runs test cases and prints TAP. A case is a sentence and a function.

    run(server)            Each case has a process, process group, temporary folder and server of its own;
                           several cases run at the same time. Processes that a case has left running end
                           with its process group. A case that takes longer than its limit fails.
    run_in_turn(context)   The cases run one after the other in this process. The context says what a case
                           gets, and what the cases share.

    program [-j JOBS] [FILTER]     JOBS: for run(); FILTER: a part of the sentence
"""
import collections
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback

LIMIT = 90
Case = collections.namedtuple('Case', 'sentence options only settings function')
_cases = []


class Skip(Exception):
    """The case can't be run in this build; the text says why."""


def case(sentence, *options, only=None, **settings):
    """options: for the server of the case. only: the engine that the case is for, if a program runs on
    several engines. settings: see run(); with run_in_turn() they are for the context."""
    def add(function):
        _cases.append(Case(sentence, options, only, settings, function))
        return function
    return add


def equal(got, wanted, what=''):
    assert got == wanted, f'{what} got {got!r}, wanted {wanted!r}'


def _chosen(args, only=None):
    return [c for c in _cases if c.only in (None, only) and (not args or args[0] in c.sentence)]


def _exception():
    """The exception as comments of TAP."""
    return '\n'.join('# ' + line for line in traceback.format_exc().splitlines())


# ---- cases one after the other, in this process --------------------------------------------------

def run_in_turn(context=lambda number: contextlib.nullcontext(()), stop=lambda: None, only=None):
    """context(number, *options, **settings) is a context manager around a case, with the arguments of the
    case as its value; by default there are none. stop() is called at the end."""
    mine = os.getpid()

    def leave(number, frame):
        if os.getpid() != mine:  # a child that a case has forked: the cleaning up is not its task
            os._exit(128 + number)
        sys.exit(128 + number)
    signal.signal(signal.SIGTERM, leave)
    entries, failed = _chosen(sys.argv[1:], only), 0
    print(f'1..{len(entries)}', flush=True)
    try:
        for number, c in enumerate(entries, 1):
            begun = time.monotonic()
            word, why, notes = 'ok', '', ''
            try:
                with context(number, *c.options, **c.settings) as arguments:
                    c.function(*arguments)
            except Skip as reason:
                why = f' # SKIP {reason}'
            except Exception:
                word, notes, failed = 'not ok', _exception() + '\n', failed + 1
            print(f'{word} {number} - {c.sentence}{why}\n{notes}# {time.monotonic() - begun:.1f} s',
                  flush=True)
    finally:
        stop()
    return 1 if failed or not entries else 0


# ---- each case in a process of its own -----------------------------------------------------------

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
        print(_exception())
        return 1
    finally:
        if made:
            made.stop()
        sys.stdout.flush()


class _Run:
    """A running case."""

    def __init__(self, number, c, server=None, limit=LIMIT):
        self.number, self.sentence = number, c.sentence
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
            status = _inside(server, c.options, c.function)
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
        notes += f'# {time.monotonic() - self.began:.1f} s\n'
        word = 'ok' if pid and status == 0 else 'not ok'
        return word, f'{word} {self.number} - {self.sentence}\n{notes}'


def run(server=None, jobs=int(os.environ.get('CHECK_JOBS', 4))):
    """server: the class of the servers, each case gets one; None: there is no server. Settings of a case:
    server, another class (False: no server), and limit, in seconds."""
    args = sys.argv[1:]
    if args[:1] == ['-j']:
        jobs, args = int(args[1]), args[2:]
    entries = _chosen(args)
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
            number, c = todo.pop(0)
            running.append(_Run(number, c, **{'server': server, **c.settings}))
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
