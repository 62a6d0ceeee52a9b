# SPDX-License-Identifier: Apache-2.0
"""Many processes use a few locks, and log the times for which each believed to hold a lock, while a test
disturbs the servers.

A round: acquire; check that the lock is held and write to the resource, perhaps several times; release.
The resource refuses a token that is smaller than the largest one so far, as every guarded resource should.
A worker that learns that its lock is lost stops writing at once.

While the load lingers, workers with the habit LINGER keep their locks until these are lost. Then the
SLEEPER acquires a lock and is stopped (SIGSTOP); when the SLEEPER is resumed, it first checks whether it
still holds the lock, and writes.
"""
import random
import threading
import time

from actor import Actor, boot_ns
from random_load import ALL, Claim, check_tokens, overlaps
from wait import until

WAITS_MS = (0, 300, 3000)
NOT_GRANTED = ('PAWL_EBUSY', 'PAWL_ETIMEDOUT', 'PAWL_ECONN', 'PAWL_EUNKNOWN')
TOO_FEW_REPLICAS = 'PAWL_EBACKEND'
BUSY, LINGER, SLEEPER = range(3)  # habits of a worker


class Resource:
    """The guarded resource: remembers the largest token of each name."""

    def __init__(self):
        self.mutex = threading.Lock()
        self.largest, self.written, self.refused = {}, 0, 0

    def write(self, name, token):
        with self.mutex:
            if token < self.largest.get(name, 0):
                self.refused += 1
                return False
            self.largest[name] = token
            self.written += 1
            return True


class Worker(threading.Thread):
    def __init__(self, load, url, names, habit, may_refuse):
        super().__init__(daemon=True)
        self.load, self.names, self.habit = load, names, habit
        self.codes, self.claims, self.failure = {}, [], None
        self.allowed = NOT_GRANTED + ((TOO_FEW_REPLICAS,) if may_refuse else ())
        self.random = random.Random()
        self.actor = Actor(url)
        for name in names:
            self.actor.lock(name, name)

    def run(self):
        try:
            while self.habit == SLEEPER and not self.load.over.is_set():
                if self.load.linger.wait(0.1):
                    break
            while not self.load.over.is_set():
                self.one_round(self.random.choice(self.names))
        except BaseException as e:
            self.failure = e

    def one_round(self, name):
        asked = boot_ns()
        self.actor.send('acquire', name, self.random.choice(WAITS_MS))
        got = self.actor.answer('acquire', name)
        self.count(got.code)
        if got.code != 'PAWL_OK':
            got.be(*self.allowed)
            time.sleep(0.005)  # the next acquires may be refused at once, too
            return
        claim = Claim(name, ALL, asked, got.ns, got.token)
        claim.end, claim.told = claim.start, None
        self.use(claim)
        self.give_back(claim)
        self.claims.append(claim)

    def use(self, claim):
        """Write to the resource once; while the load lingers, until the lock is lost."""
        if self.habit == SLEEPER and self.load.linger.is_set():
            self.sleep(claim)
        while True:
            sure = boot_ns()  # taken before the check, so the lock was held at this instant
            if not self.actor.ask('held', claim.name).held:
                break
            claim.end = max(claim.start, sure)
            self.load.resource.write(claim.name, claim.token)
            if self.habit != LINGER or not self.load.linger.is_set():
                break
            self.load.lingering.add(claim.name)
            time.sleep(0.002)

    def sleep(self, claim):
        self.actor.ask('renew', claim.name, 0).ok()  # the grant may have come by message, with a short lease
        self.load.lingering.add(claim.name)
        self.actor.send('stopself', claim.name)
        woken = self.actor.answer('stopself', claim.name)
        if woken.held:
            claim.end = woken.ns
            self.load.resource.write(claim.name, claim.token)

    def give_back(self, claim):
        self.actor.send('release', claim.name)
        code = self.actor.answer('release', claim.name).be(
            'PAWL_OK', 'PAWL_ELOST', 'PAWL_EUNKNOWN', 'PAWL_ECONN').code
        lost = self.actor.have('lost', claim.name)
        self.count('release ' + code)
        claim.told = code != 'PAWL_OK' or lost is not None

    def count(self, what):
        self.codes[what] = self.codes.get(what, 0) + 1


class Load:
    def __init__(self):
        self.over, self.linger = threading.Event(), threading.Event()
        self.resource = Resource()
        self.workers = []
        self.lingering = set()  # names

    def add(self, n, url, names, habit, may_refuse=False):
        self.workers += [Worker(self, url, names, habit, may_refuse) for _ in range(n)]

    def start(self):
        for w in self.workers:
            w.start()

    def claims(self, names=None):
        return [c for w in self.workers for c in list(w.claims)
                if names is None or c.name in names]

    def progress(self, names, n):
        """Wait until each of the names was held n times more."""
        before = len_by_name(self.claims(), names)

        def enough():
            failed = next((w.failure for w in self.workers if w.failure), None)
            if failed:
                raise failed
            now = len_by_name(self.claims(), names)
            return all(now[name] - before[name] >= n for name in names)
        until(enough, f'for {n} more grants of each of {names}: {before}')

    def linger_on(self, names):
        """Wait until each of the names has a holder that keeps the lock."""
        self.lingering.clear()
        self.linger.set()
        until(lambda: self.lingering >= set(names), 'for everything to be held')

    def wake(self):
        for w in self.workers:
            if w.habit == SLEEPER:
                w.actor.resume()

    def finish(self):
        """Stop the rounds, and check that every worker can acquire each of its names again."""
        self.linger.clear()
        self.over.set()
        for w in self.workers:
            w.join()
            if w.failure:
                raise w.failure
        for w in self.workers:
            for name in w.names:
                until(lambda: w.actor.ask('take', name, 20000).code == 'PAWL_OK')
                w.actor.ask('drop', name).ok()

    def check(self, names, lease_ms, alone):
        """Check that tokens rise. If `alone`, claims of one name never overlap. Otherwise, of two claims
        that overlap one must have been told of its loss, and the overlap is no longer than a lease. Prints
        the number of overlaps."""
        claims = self.claims(names)
        for name in names:
            check_tokens([c for c in claims if c.name == name], name)
        pairs = overlaps(claims)
        unnotified = [p for p in pairs if not (p[0].told or p[1].told)]
        pause = max(longest_pause([c for c in claims if c.name == name]) for name in names)
        longest = max([min(a.end, b.end) - b.start for a, b in pairs], default=0) / 1e6
        print(f'# {"/".join(names)}: {len(claims)} claims, {len(pairs)} overlaps (the longest '
              f'{longest:.1f} ms, {len(unnotified)} of them nobody told), '
              f'{sum(c.told for c in claims)} claims ended badly, the longest pause {pause:.0f} ms')
        assert not alone or not pairs, f'two holders at a time: {describe(pairs)}'
        assert not unnotified, f'nobody told: {describe(unnotified)}'
        assert longest <= lease_ms, f'believed for {longest} ms, the lease is {lease_ms}'

    def report(self):
        codes = {}
        for w in self.workers:
            for code, n in w.codes.items():
                codes[code] = codes.get(code, 0) + n
        print(f'# {self.resource.written} writes, {self.resource.refused} refused; {codes}')


def len_by_name(claims, names):
    counts = dict.fromkeys(names, 0)
    for c in claims:
        if c.name in counts:
            counts[c.name] += 1
    return counts


def longest_pause(claims):
    """The longest time in which no worker held the lock, in ms."""
    ends = sorted((c.start, c.end) for c in claims)
    return max((b[0] - a[1] for a, b in zip(ends, ends[1:])), default=0) / 1e6


def describe(pairs):
    return [(a.name, a.token, a.start, a.end, a.told, b.token, b.start, b.end, b.told)
            for a, b in pairs[:3]]
