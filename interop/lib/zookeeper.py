# SPDX-License-Identifier: Apache-2.0
"""Pawl beside Curator and kazoo, on a private ZooKeeper server.

Pawl is played by the actor of its own tests. Whoever holds a lock is seen from outside: a claim is
from the arrival of the answer "granted" to the sending of the release, so it lies within the time
that the lock was really held, and claims that overlap are an error of somebody's.
"""
import itertools
import os
import random
import re
import statistics
import sys
import threading
import time

from driver import Driver, Refused
from pair import check
from peers import INTEROP, built, manifest
from watching import watched

sys.path.append(os.path.join(INTEROP, '..', 'tests', 'lib'))
os.environ.setdefault('PAWL_ACTOR', built('actor'))

SESSION = 3000  # ms
CAPACITY = 3
TITLES = {'curator': 'Curator', 'kazoo': 'kazoo'}


def version(peer):
    if peer == 'curator':
        return re.search(r'curator-recipes</artifactId>\s*<version>([^<]+)',
                         manifest('zookeeper', 'pom.xml')).group(1)
    return re.search(r'^kazoo==(\S+)', manifest('python', 'requirements.txt'), re.M).group(1)


def command(peer):
    if peer == 'curator':
        jars = built('curator', 'lib', '*')
        return ['java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xmx128m', '-cp',
                built('curator', 'classes') + ':' + jars, 'Driver']
    return [built('python', 'bin', 'python'),
            os.path.join(INTEROP, 'zookeeper', 'kazoo_driver.py')]


class Theirs:
    """A process of the peer's with one client."""

    def __init__(self, pair):
        self.title, self.root = TITLES[pair.peer], pair.root
        self.driver = Driver(self.title, command(pair.peer))
        self.driver.do('open A %d %d %s' % (pair.server.port, SESSION, pair.root))
        self.numbers = itertools.count(1)

    def lock(self, kind, name):
        ident = 'A.t%d.h%d' % (next(self.numbers), next(self.numbers))
        self.driver.do('lock %s %s %s %d' % (ident, kind, name, CAPACITY))
        return ident

    def start(self, ident, wait=-1, permits=1):
        """Returns a function that waits for the outcome: true, granted."""
        answer = self.driver.send('acquire %s %d %d' % (ident, wait, permits))

        def outcome(seconds=60):
            answer.wait(seconds)
            if answer.status == 'error':
                raise Refused('%s: %r' % (self.title, answer))
            return answer.ok
        return outcome

    def release(self, ident, permits=1):
        self.driver.do('release %s %d' % (ident, permits))

    def kill(self):
        self.driver.kill()

    def stop(self):
        self.driver.stop()


class Ours:
    """A process of Pawl's with one client."""
    title = 'Pawl'

    def __init__(self, pair):
        from actor import Actor
        flavor = '&flavor=kazoo' if pair.peer == 'kazoo' else ''
        self.actor = Actor('zk://127.0.0.1:%d/%s?session=%d%s' % (pair.server.port, pair.root,
                                                                  SESSION, flavor))
        self.numbers = itertools.count(1)
        self.semaphores = set()

    def lock(self, kind, name):
        ident = 'h%d' % next(self.numbers)
        if kind == 'semaphore':
            self.actor.sem(ident, name, permits=CAPACITY)
            self.semaphores.add(ident)
        else:
            self.actor.lock(ident, name, kind=kind)
        return ident

    def start(self, ident, wait=-1, permits=1):
        if ident in self.semaphores:
            verb = 'take'
            self.actor.send('take', ident, wait, permits)
        else:
            verb = 'acquire'
            self.actor.send('acquire', ident, wait)

        def outcome(seconds=60):
            answer = self.actor.answer(verb, ident, seconds)
            answer.be('PAWL_OK', 'PAWL_EBUSY', 'PAWL_ETIMEDOUT')
            return answer.code == 'PAWL_OK'
        return outcome

    def release(self, ident, permits=1):
        if ident in self.semaphores:
            self.actor.ask('drop', ident, permits).ok()
        else:
            self.actor.send('release', ident)
            self.actor.answer('release', ident).ok()

    def kill(self):
        self.actor.kill()

    stop = kill


class Pair:
    def __init__(self, peer):
        from zk_client import Client
        from zk_server import Server
        self.peer, self.root, self.spawned = peer, 'shared', []
        self.server = Server(tick=100).start()
        self.admin = Client(self.server.port, session_ms=600000)
        self.names = ('n%d' % i for i in itertools.count(1))

    def spawn(self, kind):
        made = kind(self)
        self.spawned.append(made)
        return made

    def contenders(self, name):
        return [c for c in self.admin.children('/%s/%s' % (self.root, name))
                if re.search(r'\d{10}$', c)]

    def queued(self, name, n):
        end = time.monotonic() + 30
        while len(self.contenders(name)) != n:
            check(time.monotonic() < end, 'not %d in the queue but %d', n,
                  len(self.contenders(name)))
            time.sleep(0.002)

    def tidy(self):
        while self.spawned:
            self.spawned.pop().stop()

    def close(self):
        self.tidy()
        self.admin.close()
        self.server.stop()


# ---- properties: (pair, X, Y), the classes of the two sides ------------------------------------

def exclude(pair, one, two, kinds=('mutex',), capacity=9, rounds=60):
    name, claims, mutex, failures = next(pair.names), [], threading.Lock(), []

    def work(kind, seed):
        side, dice = pair.spawn(kind), random.Random(seed)
        handles = {k: side.lock(k, name) for k in kinds}
        for _ in range(rounds):
            k = dice.choice(kinds)
            permits = dice.randint(1, 2) if k == 'semaphore' else 1
            if not side.start(handles[k], dice.choice((-1, -1, 300)), permits)():
                continue
            begin = time.monotonic()
            time.sleep(dice.choice((0, 0, 0.002)))
            with mutex:
                claims.append((begin, time.monotonic(), 1 if k == 'read' else permits
                               if k == 'semaphore' else capacity))
            side.release(handles[k], permits)

    def guarded(*args):
        try:
            work(*args)
        except Exception as error:
            failures.append(error)
    threads = [threading.Thread(target=guarded, args=(kind, i))
               for i, kind in enumerate((one, two, one, two))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    inside = 0
    edges = [(b, 1, s) for b, _, s in claims] + [(e, 0, -s) for _, e, s in claims]
    for _, _, share in sorted(edges):
        inside += share
        check(inside <= capacity, 'more hold it than may')
    return '%d grants' % len(claims)


def order(pair, one, two):
    name, got = next(pair.names), []
    first, second = pair.spawn(one), pair.spawn(two)
    holder = first.lock('mutex', name)
    check(first.start(holder)(), 'not granted')
    waiting = []
    for side in (second, first, second, first):
        ident = side.lock('mutex', name)
        waiting.append((side, ident, side.start(ident)))
        pair.queued(name, 1 + len(waiting))
    first.release(holder)
    for side, ident, outcome in waiting:
        check(outcome(20), 'not granted')
        got.append(side)
        check(len(pair.contenders(name)) == 1 + len(waiting) - len(got), 'out of order')
        side.release(ident)
    return 'shown'


def wake(pair, one, two):
    name, times = next(pair.names), []
    first, second = pair.spawn(one), pair.spawn(two)
    holder, waiter = first.lock('mutex', name), second.lock('mutex', name)
    for _ in range(5):
        check(first.start(holder)(), 'not granted')
        outcome = second.start(waiter)
        pair.queued(name, 2)
        begin = time.monotonic()
        first.release(holder)
        check(outcome(20), 'not woken')
        times.append((time.monotonic() - begin) * 1000)
        second.release(waiter)
    return '%.1f ms (at most %.1f)' % (statistics.median(times), max(times))


def killed(pair, one, two):
    name = next(pair.names)
    first, second = pair.spawn(one), pair.spawn(two)
    check(first.start(first.lock('mutex', name))(), 'not granted')
    outcome = second.start(second.lock('mutex', name))
    pair.queued(name, 2)
    begin = time.monotonic()
    first.kill()
    check(outcome(60), 'not granted')
    return '%.1f s' % (time.monotonic() - begin)


def killed_waiter(pair, one, two):
    name = next(pair.names)
    holder, first, second = pair.spawn(two), pair.spawn(one), pair.spawn(two)
    held = holder.lock('mutex', name)
    check(holder.start(held)(), 'not granted')
    first.start(first.lock('mutex', name))
    pair.queued(name, 2)
    outcome = second.start(second.lock('mutex', name))
    pair.queued(name, 3)
    first.kill()
    holder.release(held)
    check(outcome(60), 'not granted')
    return 'shown'


def readers(pair, one, two):
    name = next(pair.names)
    first, second = pair.spawn(one), pair.spawn(two)
    r1, r2, w = first.lock('read', name), second.lock('read', name), second.lock('write', name)
    check(first.start(r1)() and second.start(r2)(), 'readers exclude each other')
    writing = second.start(w)
    pair.queued(name, 3)
    late = first.lock('read', name)
    later = first.start(late)
    pair.queued(name, 4)
    first.release(r1)
    second.release(r2)
    check(writing(20), 'the writer was not woken')
    pair.queued(name, 2)
    second.release(w)
    check(later(20), 'the reader behind the writer was not woken')
    first.release(late)
    return 'shown'


def read_write(pair, one, two):
    return exclude(pair, one, two, ('read', 'write'), rounds=40)


def permits(pair, one, two):
    name = next(pair.names)
    first, second = pair.spawn(one), pair.spawn(two)
    a, b = first.lock('semaphore', name), second.lock('semaphore', name)
    check(first.start(a, -1, 2)() and second.start(b, -1, 1)(), 'not granted')
    check(not second.start(b, 300, 1)(), 'more than its capacity')
    outcome = second.start(b, 20000, 2)
    time.sleep(0.1)
    first.release(a, 2)
    check(outcome(20), 'a permit that came back woke nobody')
    second.release(b, 3)
    return exclude(pair, one, two, ('semaphore',), CAPACITY, rounds=25)


def watching(pair, one, two):
    """An operator sees the peer's holder and waiter; Pawl plays no other part."""
    name, theirs = next(pair.names), pair.spawn(two)
    held = theirs.lock('mutex', name)
    check(theirs.start(held)(), 'not granted')
    outcome = theirs.start(theirs.lock('mutex', name))
    pair.queued(name, 2)
    flavor = '?flavor=kazoo' if pair.peer == 'kazoo' else ''
    watched('zk://127.0.0.1:%d/%s%s' % (pair.server.port, pair.root, flavor), [], name, 1)
    theirs.release(held)
    check(outcome(20), 'the waiter was not woken')
    return 'shown'


PROPERTIES = [
    ('exclude', '{x} and {y} exclude each other under a random schedule', False, exclude),
    ('order', '{x}, {y}, {x}, {y}, {x} get the lock in order of arrival', True, order),
    ('wake', "{x}'s release lets the blocked {y} in", True, wake),
    ('killed', '{x} killed as the holder: {y} gets the lock (a session of 3 s)', True, killed),
    ('killed_waiter', '{x} killed as a waiter: {y} gets the lock', True, killed_waiter),
    ('readers', '{x} and {y} read together, {y} writes alone, in order', True, readers),
    ('read_write', '{x} and {y} read and write under a random schedule', False, read_write),
    ('watching', "pawl ls, top and serve show {y}'s holder and waiter", False, watching),
    ('permits', 'semaphore: permits of {x} and {y} count together', True, permits),
]


def chosen(peer, only):
    return [p for p in PROPERTIES if (not only or 'zk_' + p[0] in only)
            and (peer == 'curator' or p[0] != 'permits')]


def run(tap, peer, only):
    """Every property of Pawl and this peer."""
    if not chosen(peer, only):
        return
    pair = Pair(peer)
    try:
        for row, words, both, function in chosen(peer, only):
            for d, (x, y) in enumerate(((Ours, Theirs), (Theirs, Ours))[:1 + both]):
                titles = [k.title if k is Ours else TITLES[peer] for k in (x, y)]
                tap.attempt(peer, 'zk ' + row, d, words.format(x=titles[0], y=titles[1]), function,
                            pair, x, y)
                pair.tidy()
    finally:
        pair.close()


def table(results, peers, cell):
    """The page's part about ZooKeeper."""
    peers = [p for p in TITLES if p in peers]
    if not peers:
        return ''
    lines = ['\n## ZooKeeper', '',
             'With `zk://...`, and `zk://...?flavor=kazoo` for kazoo: Curator and kazoo do not see '
             'each other on one path.', '',
             '| | ' + ' | '.join('%s %s' % (TITLES[p], version(p)) for p in peers) + ' |',
             '|---' * (1 + len(peers)) + '|']
    for row, words, both, _ in PROPERTIES:
        cells = [cell(results, p, 'zk ' + row, both) if (p, 'zk ' + row, 0) in results else '-'
                 for p in peers]
        if set(cells) != {'-'}:
            lines.append('| ' + ' | '.join([words.format(x='x', y='y')] + cells) + ' |')
    return '\n'.join(lines) + '\n'
