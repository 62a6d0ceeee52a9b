# SPDX-License-Identifier: Apache-2.0
"""Two peers on one private server, and what a property needs of them.

A Side is a driver process with one client; a Handle is one lock as one owner of it sees it. A Side
that a property kills or stops is its own, made with spawn(); the pair's two live as long as the
pair.
"""
import itertools
import time

from redisdb import Server, parse_monitor

WATCHDOG = 3000  # ms: the lease of holders that renew
LONG = 600000    # ms: a lease that no property outlives; its end must not pass for a message
SHORT = 2000     # ms: one that does


class Wrong(Exception):
    """The property does not hold."""


def check(condition, words, *args):
    if not condition:
        raise Wrong(words % args)


class Handle:
    def __init__(self, side, ident, name):
        self.side = side
        self.driver = side.driver
        self.ident = ident
        self.owner = '.'.join(ident.split('.')[:2])
        self.name = name

    def ask(self, verb, *args, seconds=60):
        return self.driver.ask(' '.join(map(str, (verb, self.ident) + args)), seconds)

    def do(self, verb, *args):
        return self.driver.do(' '.join(map(str, (verb, self.ident) + args)))

    def start(self, verb, *args):
        return self.driver.send(' '.join(map(str, (verb, self.ident) + args)))

    def acquire(self, wait=-1):
        self.do('acquire', wait)

    def tries(self):
        """One try: true if it got the lock."""
        answer = self.ask('try')
        check(answer.status in ('ok', 'busy'), '%s could not try: %s', self.side.title,
              answer.words)
        return answer.ok

    def release(self):
        self.do('release')

    def wait(self, wait=-1):
        """Start to wait, and return when the server has seen it ask for the lock."""
        mark = self.side.pair.mark()
        answer = self.start('acquire', wait)
        self.side.pair.seen(self.name, mark, 2 if self.side.peer.layout == 'redisson' else 1)
        check(not answer.done.is_set(), '%s did not have to wait: %r', self.side.title, answer)
        return answer


class Side:
    def __init__(self, pair, peer, other, driver=None):
        self.pair = pair
        self.peer = peer
        self.other = other
        self.title = peer.title
        self.driver = driver or peer.start(other)
        self.numbers = itertools.count(1)
        self.driver.do('open A %d %d' % (pair.server.port, WATCHDOG), 180)  # a JVM starts
        if peer.title == 'Pawl' and other.layout == 'redisson':
            self.driver.do('open P %d %d semaphore=plain' % (pair.server.port, WATCHDOG))

    def handle(self, name, lease=LONG, renew=False, kind='mutex', owner=None):
        plain = kind == 'semaphore' and self.title == 'Pawl'
        ident = '%s.h%d' % (owner or '%s.t%d' % ('P' if plain else 'A', next(self.numbers)),
                            next(self.numbers))
        words = ['lock', ident, kind, name, str(WATCHDOG if renew else lease)]
        self.driver.do(' '.join(words + (['renew'] if renew else [])))
        return Handle(self, ident, name)

    def spawn(self):
        """Another process of the same kind."""
        side = Side(self.pair, self.peer, self.other)
        self.pair.spawned.append(side)
        return side


class Pair:
    def __init__(self, one, two):
        self.server = Server(cluster=one.cluster or two.cluster)
        self.spawned = []
        self.names = ('n%d' % i for i in itertools.count(1))
        self.marks = itertools.count(1)
        self.sides = []
        try:
            self.monitor = self.server.monitor()
            self.prefix = two.prefix or one.prefix
            for peer, other in ((one, two), (two, one)):
                self.sides.append(Side(self, peer, other))
        except BaseException:
            self.close()
            raise

    def name(self):
        return next(self.names)

    def key(self, name):
        return self.prefix + name

    def mark(self):
        """A mark behind everything that the server has done until now."""
        word = 'mark %d' % next(self.marks)
        self.server.call('ECHO', word)
        return self.monitor.wait(lambda line: word.encode() in line)

    def seen(self, name, mark, times=1):
        """Wait until clients' commands have named the lock's key so many times since the mark."""
        key = self.key(name).encode()
        for _ in range(times):
            mark = self.monitor.wait(lambda line: self._names(line, key), mark)

    @staticmethod
    def _names(line, key):
        source, words = parse_monitor(line)
        return source != 'lua' and key in words

    def holder(self, name):
        """What the lock's key says: a string's value, or the fields of a hash."""
        key = self.key(name)
        kind = self.server.call('TYPE', key)
        if kind == b'none':
            return None
        if kind == b'string':
            return self.server.call('GET', key)
        return sorted(self.server.call('HGETALL', key))

    def until_free(self, name, seconds=30):
        """Wait until the key is gone by itself."""
        end = time.monotonic() + seconds
        while self.holder(name) is not None:
            check(time.monotonic() < end, 'the lease did not end within %g s', seconds)
            time.sleep(0.02)

    def story(self, most=60):
        """What clients have sent in this property, the last of it; when, in s before now."""
        now, sent = time.monotonic(), []
        ours = '127.0.0.1:%d' % self.server.admin.socket.getsockname()[1]
        for at, line in self.monitor.since(0):
            source, words = parse_monitor(line)
            if source not in ('lua', ours):
                text = ' '.join(w.decode('latin-1')[:60] for w in words)
                sent.append('%8.3f %s %s' % (at - now, source, text))
        return '\n'.join(sent[-most:])

    def tidy(self):
        """After a property: its own processes end."""
        while self.spawned:
            self.spawned.pop().driver.stop()
        if hasattr(self, 'monitor'):
            self.monitor.forget()

    def close(self):
        self.tidy()
        for side in self.sides:
            side.driver.stop()
        if hasattr(self, 'monitor'):
            self.monitor.close()
        self.server.stop()
