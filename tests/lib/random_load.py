# SPDX-License-Identifier: Apache-2.0
"""Actors that acquire and release a few names of every kind at random, and log their claims. Tests use
these actors while they disturb the service.

A claim is the time for which an actor had a lock: from the answer "granted" to the moment the release was
sent, or to the message that the lock was lost. Claims that exclude each other must never overlap, and an
acquire that began after a token had been granted must get a larger token. All times are of the machine's
boot-time clock.
"""
import itertools
import random
import threading
import time

from actor import Actor, boot_ns

ALL = 9  # the share of an exclusive claim
CAPACITY = 3
LATE_NS = 200000000  # the message of a loss may be this late on a busy machine


class Claim:
    def __init__(self, name, share, asked, grant, token):
        self.name, self.share, self.asked, self.start = name, share, asked, grant
        self.token, self.end = token, None


class Worker(threading.Thread):
    """One actor with these objects, as far as the service has them: a mutex, a fair mutex, a read lock, a
    write lock and a semaphore."""

    OBJECTS = ('m', 'f', 'r', 'w', 's')

    def __init__(self, seed, url, over):
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        self.over, self.claims, self.failure, self.codes = over, [], None, {}
        self.actor = Actor(url)
        self.actor.lock('m', 'm')
        self.actor.lock('f', 'm', kind='fair')
        if 'r' in self.OBJECTS:
            self.actor.lock('r', 'rw', kind='read')
        self.actor.lock('w', 'rw', kind='write')
        if 's' in self.OBJECTS:
            self.actor.sem('s', 's', permits=CAPACITY)

    def run(self):
        try:
            while not self.over.is_set():
                self.one_round(self.random.choice(self.OBJECTS))
        except BaseException as e:
            self.failure = e

    def one_round(self, which):
        permits = self.random.randint(1, CAPACITY) if which == 's' else 1
        wait = self.random.choice((0, 50, 400, 3000))
        asked = boot_ns()
        if which == 's':
            got = self.actor.ask('take', 's', wait, permits)
        else:
            self.actor.send('acquire', which, wait)
            got = self.actor.answer('acquire', which)
        self.count(got.code)
        if got.code != 'PAWL_OK':
            got.be('PAWL_EBUSY', 'PAWL_ETIMEDOUT', 'PAWL_ECONN', 'PAWL_EUNKNOWN')
            return
        name, share = {'m': ('m', 9), 'f': ('m', 9), 'r': ('rw', 1), 'w': ('rw', 9),
                       's': ('s', permits)}[which]
        claim = Claim(name, share, asked, got.ns, got.token)
        self.claims.append(claim)
        time.sleep(self.random.choice((0, 0, 0.001, 0.02)))
        claim.end = boot_ns()
        self.give_back(which, permits)
        lost = self.actor.have('lost', which)
        if lost:
            claim.end = min(claim.end, max(lost.ns - LATE_NS, claim.start))

    def give_back(self, which, permits):
        if which == 's':
            code = self.actor.ask('drop', 's', permits).code
        else:
            self.actor.send('release', which)
            code = self.actor.answer('release', which).code
        self.count('release ' + code)
        assert code in ('PAWL_OK', 'PAWL_ELOST', 'PAWL_EUNKNOWN', 'PAWL_ECONN'), code

    def count(self, what):
        self.codes[what] = self.codes.get(what, 0) + 1


def check_exclusion(claims, name, capacity):
    """Go through begins and ends in order of time: the sum of the shares never exceeds the capacity."""
    edges = []
    for c in claims:
        share = capacity if c.share == ALL else c.share
        edges += [(c.start, 1, share, c), (c.end, 0, -share, c)]
    inside = 0
    for at, _, share, c in sorted(edges, key=lambda e: e[:2]):
        inside += share
        assert inside <= capacity, f'{name}: too many hold it at {at}, token {c.token}'


def check_tokens(claims, name):
    """An acquire that began after a token had been granted has a larger token; no token comes twice."""
    assert len({c.token for c in claims}) == len(claims), f'{name}: a token was given twice'
    granted = sorted(claims, key=lambda c: c.start)
    largest, i = 0, 0
    for c in sorted(claims, key=lambda c: c.asked):
        while i < len(granted) and granted[i].start < c.asked:
            largest = max(largest, granted[i].token)
            i += 1
        assert c.token > largest, f'{name}: token {c.token} after {largest}'


def overlaps(claims):
    """Pairs of claims of one name that overlap although they exclude each other."""
    found = []
    for name, mine in itertools.groupby(sorted(claims, key=lambda c: (c.name, c.start)),
                                        key=lambda c: c.name):
        inside = []
        for c in mine:
            inside = [d for d in inside if d.end > c.start]
            found += [(d, c) for d in inside if c.end > c.start]
            inside.append(c)
    return found


def codes(workers):
    """How often each code was returned."""
    told = {}
    for w in workers:
        for code, n in w.codes.items():
            told[code] = told.get(code, 0) + n
    return told


def check(workers, least=5):
    """Check that the claims of all workers are consistent. Returns the claims."""
    for w in workers:
        if w.failure:
            raise w.failure
    claims = [c for w in workers for c in w.claims]
    for name, capacity in (('m', 9), ('rw', 9), ('s', CAPACITY)):
        mine = [c for c in claims if c.name == name]
        assert len(mine) > least, f'only {len(mine)} claims of {name}'
        check_exclusion(mine, name, capacity)
        check_tokens(mine, name)
    return claims


def check_all(workers, least=5):
    """As check(); returns the number of claims, and how often each code was returned."""
    return len(check(workers, least)), codes(workers)


def check_alive(workers):
    """After the faults are over, every worker must be able to acquire every object."""
    for w in workers:
        for which in w.OBJECTS:
            w.actor.ask('take', which, 30000).ok()
            w.actor.ask('drop', which).be('PAWL_OK', 'PAWL_EUNKNOWN')  # EUNKNOWN: slower than the timeout
