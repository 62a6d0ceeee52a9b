# SPDX-License-Identifier: Apache-2.0
"""A process with a Pawl client, driven by lines of text, which actor.c documents.

    a = Actor('redis://127.0.0.1:6379')
    a.lock('l', 'stock:42', lease=5000)
    a.ask('take', 'l', 1000).ok().token
    a.send('acquire', 'k', -1)          # answered later
    a.answer('acquire', 'k')            # waits for that

Answers are kept until a test asks for them, in any order. Waiting for an answer has a time limit only so
that a test can't hang.
"""
import collections
import os
import signal
import subprocess
import threading
import time
import urllib.parse
import weakref

PATIENCE = 60
LONG = 600000  # ms: a lease that is not renewed during a test; a loss is noticed by other means
PROGRAM = os.environ.get('PAWL_ACTOR', 'actor')


def boot_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def query(params):
    """The parameters as the end of a URL."""
    return '?' + urllib.parse.urlencode(params) if params else ''


class Answer:
    def __init__(self, line):
        head, _, self.words = line.partition(' : ')
        words = head.split(' ')
        self.line = line
        self.verb, self.id, self.code, self.ns = words[0], words[1], words[2], int(words[3])
        self.fields = dict(w.split('=', 1) for w in words[4:] if '=' in w)

    def __getattr__(self, key):
        try:
            text = self.fields[key]
        except KeyError:
            raise AttributeError(f'{key} is not in "{self.line}"') from None
        try:
            return int(text)
        except ValueError:
            return urllib.parse.unquote(text)

    def ok(self):
        return self.be('PAWL_OK')

    def be(self, *codes):
        """Returns this answer, which must have one of these codes."""
        assert self.code in codes, f'"{self.line}", wanted {" or ".join(codes)}'
        return self

    def __repr__(self):
        return self.line


class Actor:
    started = weakref.WeakSet()

    def __init__(self, url, label='', environ=None, opens=True, prefix=()):
        """opens=False: opening may fail, and the caller checks .opened. prefix: the words of a command
        that runs the actor, such as `unshare -m`."""
        self.process = subprocess.Popen([*prefix, PROGRAM, url, label], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE,
                                        env=dict(os.environ, **(environ or {})))
        self.pid = self.process.pid
        self.started.add(self)
        self.lines = collections.deque()
        self.changed = threading.Condition()
        self.ended = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.opened = self.answer('open')
        if opens:
            self.opened.ok()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(Answer(line.decode(errors='replace').rstrip('\n')))
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    # ---- telling and asking ----

    def send(self, *words):
        line = ' '.join(str(w) for w in words) + '\n'
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()

    def have(self, verb, name='-'):
        """The next answer of this verb and name if it has arrived, else None."""
        with self.changed:
            for line in self.lines:
                if line.verb == verb and line.id == str(name):
                    self.lines.remove(line)
                    return line
        return None

    def answer(self, verb, name='-', patience=PATIENCE):
        """Wait for the next answer of this verb and name."""
        end = time.monotonic() + patience
        with self.changed:
            while True:
                for line in self.lines:
                    if line.verb == verb and line.id == str(name):
                        self.lines.remove(line)
                        return line
                left = end - time.monotonic()
                assert not self.ended, f'the actor ended instead of answering {verb} {name}'
                assert left > 0, f'no answer to {verb} {name}'
                self.changed.wait(left)

    def ask(self, verb, *words, patience=PATIENCE):
        self.send(verb, *words)
        return self.answer(verb, words[0] if words else '-', patience)

    def lost(self, name):
        """Wait for the message that the lock was lost."""
        return self.answer('lost', name).be('PAWL_ELOST')

    # ---- objects ----

    def _make(self, verb, name, what, options):
        words = [f'{k}={v}' for k, v in options.items()]
        return self.ask(verb, name, urllib.parse.quote(what, safe=':/{}#'), *words).ok()

    def lock(self, name, what, **options):
        return self._make('lock', name, what, options)

    def sem(self, name, what, **options):
        return self._make('sem', name, what, options)

    def latch(self, name, what):
        return self._make('latch', name, what, {})

    def rows(self, verb, *words):
        """The rows that `show` or `ls` prints."""
        self.ask(verb, *words).ok()
        with self.changed:
            rows = [line for line in self.lines if line.verb == 'row']
            for row in rows:
                self.lines.remove(row)
        return rows

    # ---- its end ----

    def signal(self, number):
        self.process.send_signal(number)

    def stop(self):
        """Send SIGSTOP; returns when the actor has stopped."""
        self.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    @classmethod
    def kill_all(cls):
        """End all actors that still run."""
        for actor in list(cls.started):
            if actor.process.poll() is None:
                actor.kill()
        cls.started.clear()

    def close(self):
        answer = self.ask('close')
        status = self.process.wait(PATIENCE)
        assert status == 0, f'the actor ended with {status}'
        return answer
