# SPDX-License-Identifier: Apache-2.0
"""A driver process: one line in, one line out (interop/README.md).

An answer belongs to the oldest unanswered command of its ID, so commands of different IDs may be
under way at once. Whoever waits for an answer of a process that has ended gets a Gone.
"""
import collections
import os
import signal
import subprocess
import threading
import time


class Gone(Exception):
    """The driver process ended before it answered."""


class Refused(Exception):
    """The driver answered with an error."""


class Answer:
    def __init__(self, line):
        self.line = line
        self.sent = time.monotonic()
        self.done = threading.Event()
        self.status = None
        self.words = ''
        self.at = None

    def wait(self, seconds=60):
        if not self.done.wait(seconds):
            raise TimeoutError('no answer to "%s" within %g s' % (self.line, seconds))
        if self.status == 'gone':
            raise Gone(self.line)
        return self

    @property
    def ok(self):
        return self.status == 'ok'

    def __repr__(self):
        return '"%s": %s %s' % (self.line, self.status, self.words)


class Driver:
    def __init__(self, name, command, cwd=None):
        self.name = name
        self.pending = collections.defaultdict(collections.deque)
        self.events = []
        self.mutex = threading.Lock()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, bufsize=1, cwd=cwd)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self._take(line.rstrip('\n'))
        with self.mutex:
            waiting = [a for queue in self.pending.values() for a in queue]
            self.pending.clear()
        for answer in waiting:
            answer.status = 'gone'
            answer.done.set()

    def _take(self, line):
        ident, status, at, words = (line.split(' ', 3) + [''])[:4]
        if status == 'event':
            with self.mutex:
                self.events.append((int(at) / 1e6, ident, words))
            return
        with self.mutex:
            answer = self.pending[ident].popleft()
        answer.status, answer.at, answer.words = status, int(at) / 1e6, words
        answer.done.set()

    def send(self, line):
        """Send a command and return its Answer, which comes later."""
        answer = Answer(line)
        with self.mutex:
            if self.process.poll() is not None:
                raise Gone('%s has ended' % self.name)
            self.pending[line.split()[1]].append(answer)
        try:
            self.process.stdin.write(line + '\n')
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise Gone('%s has ended' % self.name) from error
        return answer

    def ask(self, line, seconds=60):
        """Send a command and wait for its answer, whatever it is."""
        return self.send(line).wait(seconds)

    def do(self, line, seconds=60):
        """Send a command that must succeed; the words of the answer."""
        answer = self.ask(line, seconds)
        if not answer.ok:
            raise Refused('%s: %r' % (self.name, answer))
        return answer.words

    def another(self, ident):
        """Whether a scenario's client is played by somebody else than it was recorded with."""
        return False

    def lost(self, ident):
        """When the driver said that it lost the lock of this ID, or None."""
        with self.mutex:
            return next((at for at, i, words in self.events if i == ident), None)

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """kill -9; returns when the process is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join(10)

    def stop(self):
        """As kill(), also of a stopped process; the pipes are closed."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
        self.kill()
        self.process.stdout.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
