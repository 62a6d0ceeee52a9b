# SPDX-License-Identifier: Apache-2.0
"""A private Redis server for programs: on a port of the loopback, in addition to the unix socket of
redis_server.py, without preloaded scripts. The server can be stopped, restarted, and monitored.
"""
import hashlib
import os
import re
import signal
import socket
import threading
import time

from actor import Actor, query
from ports import free_port
from redis_server import Connection, Error, Server
from wait import PATIENCE, until


class Live(Server):
    def __init__(self, *options, **kind):
        """options: for redis-server; @PORT@ is replaced by a free port, @SELF@ by the server's port."""
        for attempt in range(5):
            self.port = free_port()
            self.extra_port = free_port()
            given = [str(o).replace('@PORT@', str(self.extra_port))
                     .replace('@SELF@', str(self.port)) for o in options]
            try:
                super().__init__('--bind', '127.0.0.1', '--port', self.port, *given, **kind)
                return
            except Exception:
                if attempt == 4:  # another process took the port each time?
                    raise

    def load(self):
        pass  # the tests cover NOSCRIPT, too

    def url(self, **params):
        return f'redis://127.0.0.1:{self.port}/{query(params)}'

    def unix_url(self, **params):
        return f'redis+unix://{self.path}{query(params)}'

    def actor(self, label='', **params):
        return Actor(self.url(**params), label)

    def call(self, *words):
        return self.admin.call(*words)

    def connect(self):
        return Connection(self.path)

    def is_busy(self):
        """Whether a script runs for so long that other clients are refused."""
        try:
            self.call('PING')
            return False
        except Error as e:
            return str(e).startswith('BUSY')

    # ---- its life ----

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()

    def runs(self):
        """Whether the server is neither dead nor stopped."""
        if self.process.poll() is not None:
            return False
        with open(f'/proc/{self.process.pid}/stat', encoding='utf-8') as f:
            return f.read().rsplit(')', 1)[1].split()[0] not in 'TtZ'

    # ---- looking ----

    def monitor(self):
        return Monitor(self)

    def connections(self):
        """CLIENT LIST as dictionaries, without this connection."""
        mine = str(self.call('CLIENT', 'ID'))
        rows = [dict(w.split('=', 1) for w in line.split(' '))
                for line in self.call('CLIENT', 'LIST').splitlines()]
        return [r for r in rows if r['id'] != mine and r['flags'] != 'O']

    def subscribers(self):
        return [r for r in self.connections() if int(r['sub'])]

    def stat(self, *commands):
        """How often these commands were called, by INFO commandstats."""
        info = self.call('INFO', 'commandstats')
        found = re.findall(r'^cmdstat_([^:]+):calls=(\d+)', info, re.M)
        return sum(int(n) for name, n in found if name in commands)

    def queue(self, name, prefix='pawl:'):
        """The waiting owners in order."""
        return self.call('ZRANGE', '{%s%s}:queue' % (prefix, name), 0, -1)

    def queue_up(self, name, actors):
        """Put each actor's lock 'l' into the queue, one after the other."""
        for n, a in enumerate(actors, 1):
            a.lock('l', name)
            a.send('acquire', 'l', -1)
            until(lambda: len(self.queue(name)) == n, 'for a place in the queue')

    def value(self, name, prefix='pawl:'):
        return self.call('GET', prefix + name)

    def holder(self, name):
        """The owner of the exclusive grant, or None."""
        words = (self.value(name) or '').split(' ')
        return words[2] if words[:2] == ['pawl', 'x'] else None


# ---- commands that the server carries out, by its own clock --------------------------------------

class Event:
    """A line of MONITOR: time (s), origin of the command ('lua' inside a script), command, arguments.

    Of a script: its name, its keys, its arguments."""

    ESCAPES = {'n': '\n', 'r': '\r', 't': '\t', 'a': '\a', 'b': '\b'}
    LINE = re.compile(r'^(\d+)\.(\d+) \[\d+ (.*?)\] (.*)$', re.S)
    WORD = re.compile(r'"((?:[^"\\]|\\.)*)"', re.S)

    def __init__(self, line, names):
        m = self.LINE.match(line)
        self.line = line
        self.us = int(m[1]) * 1000000 + int(m[2])
        self.source = m[3]
        self.words = [re.sub(r'\\(x..|.)', self._unescape, w) if '\\' in w else w
                      for w in self.WORD.findall(m[4])]
        self.command = self.words[0].lower()
        self.script, self.keys, self.args = None, [], []
        if self.command in ('evalsha', 'eval'):
            n = int(self.words[2])
            sha = self.words[1]
            if self.command == 'eval':
                sha = hashlib.sha1(sha.encode('latin-1')).hexdigest()
            self.script = names.get(sha, 'other')
            self.keys, self.args = self.words[3:3 + n], self.words[3 + n:]

    @classmethod
    def _unescape(cls, match):
        text = match[1]
        return chr(int(text[1:], 16)) if len(text) > 1 else cls.ESCAPES.get(text, text)

    @property
    def owner(self):
        """The owner that an acquire, release or cancel is for."""
        return self.args[0] if self.args else None

    @property
    def ms(self):
        return self.us / 1000

    def granted(self):
        """The owner for which this event writes an exclusive grant, or None."""
        if self.command == 'set' and self.words[2].startswith('pawl x '):
            return self.words[2].split(' ')[2]
        return None

    def __repr__(self):
        return self.line[:200]


class Monitor:
    def __init__(self, server):
        self.names = {sha: name for name, sha in server.shas.items()}
        self.events = []
        self.changed = threading.Condition()
        self.connection = Connection(server.path)
        self.connection.call('MONITOR')
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        try:
            while True:
                line = self.connection.reply()
                with self.changed:
                    self.events.append(Event(line, self.names))
                    self.changed.notify_all()
        except (OSError, ValueError):
            pass

    def wait(self, predicate, after=0, what=''):
        """Wait for the first event from this index on for which the predicate is true: (index, event)."""
        end = time.monotonic() + PATIENCE
        with self.changed:
            at = after
            while True:
                while at < len(self.events):
                    if predicate(self.events[at]):
                        return at, self.events[at]
                    at += 1
                left = end - time.monotonic()
                assert left > 0, f'the server has not seen {what}'
                self.changed.wait(left)

    def script(self, name, after=0, owner=None):
        return self.wait(lambda e: e.script == name and (owner is None or e.owner == owner), after,
                         f'script {name}')

    def grant(self, after=0, owner=None):
        """Wait for the event that writes an exclusive grant."""
        return self.wait(lambda e: e.granted() and owner in (None, e.granted()), after,
                         f'a grant to {owner}')

    def now(self):
        with self.changed:
            return len(self.events)

    def all(self):
        with self.changed:
            return list(self.events)

    def close(self):
        self.connection.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.connection.close()
