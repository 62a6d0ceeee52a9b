# SPDX-License-Identifier: Apache-2.0
"""What must hold between any two peers that share a lock.

Each property takes the pair and its two sides, the first being the one that acts (holds, renews,
dies), and runs both ways round. It returns a few words for the table, raises Wrong if it does not
hold, and returns None if the peer has no means to take part.
"""
import random
import signal
import statistics
import threading
import time

from pair import LONG, SHORT, WATCHDOG, Wrong, check

PROPERTIES = []
PATIENCE = 30  # s: until a waiter must have got what is free


def prop(words, both=True):
    """Register a property; `words` say what holds, {x} and {y} being the two sides."""
    def add(function):
        PROPERTIES.append((function.__name__, words, both, function))
        return function
    return add


def until(condition, words, *args, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, words, *args)
        time.sleep(0.02)


def granted(answer, begin):
    """Wait for a waiter's grant, which may not come before `begin`; the seconds since then."""
    answer.wait(PATIENCE)
    check(answer.ok, '%r', answer)
    check(answer.at >= begin, 'it was in %.1f ms before the lock was free',
          (begin - answer.at) * 1000)
    return answer.at - begin


# ---- Exclusion -----------------------------------------------------------------------------------

class Round:
    """Handles of both sides take turns at random and count, not atomically, inside the lock."""

    def __init__(self, pair, handles, seconds=5):
        self.pair = pair
        self.handles = handles
        self.end = time.monotonic() + seconds
        self.late = self.end + 40
        self.grants = []
        self.trouble = []
        self.mutex = threading.Lock()
        self.count = {h.side.title: 0 for h in handles}

    def enough(self):
        return time.monotonic() > self.end and min(self.count.values()) >= 5

    def work(self, handle, seed):
        chance = random.Random(seed)
        try:
            while not self.enough() and time.monotonic() < self.late:
                self.turn(handle, chance)
                time.sleep(chance.uniform(0, 0.15))
        except Exception as error:
            self.trouble.append(error)

    def turn(self, handle, chance):
        answer = handle.ask('acquire', chance.choice((0, 400, 2000)))
        if answer.status == 'busy':
            return
        check(answer.ok, '%s: %r', handle.side.title, answer)
        key = 'counter ' + handle.name
        value = int(self.pair.server.call('GET', key) or 0)
        time.sleep(chance.uniform(0, 0.004))
        self.pair.server.call('SET', key, value + 1)
        over = time.monotonic()
        handle.release()
        with self.mutex:
            self.grants.append((answer.at, over, handle.side.title))
            self.count[handle.side.title] += 1

    def run(self):
        threads = [threading.Thread(target=self.work, args=(h, i))
                   for i, h in enumerate(self.handles)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.trouble:
            raise self.trouble[0]
        grants = sorted(self.grants)
        for (_, over, one), (begin, _, two) in zip(grants, grants[1:]):
            check(begin >= over, '%s had it %.1f ms before %s gave it back', two,
                  (over - begin) * 1000, one)
        counted = int(self.pair.server.call('GET', 'counter ' + self.handles[0].name))
        check(counted == len(grants), '%d grants, but counted to %d', len(grants), counted)
        check(min(self.count.values()) >= 5, 'one side hardly got it: %s', self.count)
        return '%d grants' % len(grants)


@prop('{x} and {y} exclude each other under a random schedule', both=False)
def exclusion(pair, x, y):
    name = pair.name()
    return Round(pair, [s.handle(name) for s in (x, x, y, y)]).run()


# ---- Strangers -----------------------------------------------------------------------------------

def untouched(pair, name, before, what):
    check(pair.holder(name) == before, '%s changed the key from %s to %s', what, before,
          pair.holder(name))


def refused(pair, x, y, kind='mutex'):
    """Neither who held it before nor who never did can touch the lock."""
    name = pair.name()
    late, never = x.handle(name, SHORT, kind=kind), x.handle(name, SHORT, kind=kind)
    holder = y.handle(name, kind=kind)
    late.acquire()
    pair.until_free(name)
    holder.acquire()
    before = pair.holder(name)
    for one, verb in ((late, 'extend'), (late, 'release'), (never, 'release')):
        if verb == 'extend' and not x.peer.extends:
            continue
        answer = one.ask(verb, *([LONG * 4] if verb == 'extend' else []))
        check(not (answer.ok and x.peer.refuses), '%s let a stranger %s', x.title, verb)
        untouched(pair, name, before, "%s's %s" % (x.title, verb))
    left = pair.server.call('PTTL', pair.key(name))
    check(left <= LONG, 'the lease is now %d ms', left)
    holder.release()
    check(pair.holder(name) is None, 'the lock is still there after its owner gave it back')


@prop("{x} can neither release nor extend {y}'s lock")
def stranger(pair, x, y):
    refused(pair, x, y)
    return 'shown'


# ---- Waking --------------------------------------------------------------------------------------

def waiting_lease(side):
    """A waiter that looks again only when its own lease would have ended gets a short one."""
    return SHORT if side.peer.polls == 'its own lease' else LONG


@prop("{x}'s release lets the blocked {y} in")
def wake(pair, x, y):
    name = pair.name()
    holder, waiter = x.handle(name), y.handle(name, waiting_lease(y))
    times = []
    for _ in range(5):
        holder.acquire()
        answer = waiter.wait()
        time.sleep(random.uniform(0.3, 0.6))  # who polls has found its pace, and is met anywhere
        begin = time.monotonic()
        holder.release()
        times.append(granted(answer, begin) * 1000)
        waiter.release()
    return '%.1f ms (at most %.1f)' % (statistics.median(times), max(times))


# ---- Leases --------------------------------------------------------------------------------------

def stays_out(handle, seconds, words):
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        check(not handle.tries(), words)
        tried += 1
        time.sleep(0.15)
    return tried


@prop('{x} renews past its lease while {y} stays out')
def renew(pair, x, y):
    if not x.peer.renews:
        return None
    name = pair.name()
    holder, other = x.handle(name, renew=True), y.handle(name)
    holder.acquire()
    stays_out(other, 2.2 * WATCHDOG / 1000, '%s got in while %s renewed' % (y.title, x.title))
    holder.release()
    other.acquire(20000)
    other.release()
    return 'shown'


@prop('{x} extends its lease while {y} stays out')
def extend(pair, x, y):
    if not x.peer.extends:
        return None
    name = pair.name()
    lease = 3000
    holder, other = x.handle(name, lease), y.handle(name)
    holder.acquire()
    for _ in range(3):
        stays_out(other, 0.4 * lease / 1000, '%s got in before the lease ended' % y.title)
        holder.do('extend', lease)
    holder.release()
    other.acquire(20000)
    other.release()
    return 'shown'


# ---- Faults --------------------------------------------------------------------------------------

@prop('{x} killed as the holder: {y} gets the lock')
def killed_holding(pair, x, y):
    name = pair.name()
    victim = x.spawn()
    holder = victim.handle(name, SHORT, renew=x.peer.renews)
    waiter = y.handle(name, SHORT)
    holder.acquire()
    answer = waiter.wait()
    begin = time.monotonic()
    victim.driver.kill()
    took = granted(answer, begin)
    waiter.release()
    return '%.1f s' % took


@prop('{x} killed as a waiter: {y} gets the lock')
def killed_waiting(pair, x, y):
    name = pair.name()
    victim = x.spawn()
    holder, other = y.handle(name), y.handle(name, waiting_lease(y))
    holder.acquire()
    victim.handle(name, SHORT).wait()
    answer = other.wait()
    victim.driver.kill()
    begin = time.monotonic()
    holder.release()
    granted(answer, begin)
    other.release()
    return 'shown'


@prop('{x} stopped past its lease: {y} gets the lock, and {x} notices')
def stopped(pair, x, y):
    name = pair.name()
    victim = x.spawn()
    holder = victim.handle(name, SHORT, renew=x.peer.renews)
    other = y.handle(name, waiting_lease(y))
    holder.acquire()
    victim.driver.signal(signal.SIGSTOP)
    answer = other.start('acquire', -1).wait(PATIENCE)
    check(answer.ok, '%r', answer)
    before = pair.holder(name)
    victim.driver.signal(signal.SIGCONT)
    how = notices(holder)
    untouched(pair, name, before, '%s, late,' % x.title)
    other.release()
    return how


def notices(holder):
    """How the late holder learns of it: by itself, when asked, or when it gives the lock back."""
    driver = holder.driver
    if holder.side.title == 'Pawl':
        until(lambda: driver.lost(holder.ident), 'on_lost was not called')
        check(holder.do('held') == '0', 'Pawl says that it holds what it lost')
        answer = holder.ask('release')
        check(answer.words.startswith('PAWL_ELOST'), 'release of a lost lock: %r', answer)
        return 'told'
    if not holder.side.peer.refuses:
        until(lambda: driver.lost(holder.ident), '%s was not told', holder.side.title)
        return 'told'
    answer = holder.ask('release')
    check(answer.status == 'error', '%s gave back what it had lost: %r', holder.side.title, answer)
    return 'told' if driver.lost(holder.ident) else 'told at the release'


__all__ = ['PROPERTIES', 'PATIENCE', 'Wrong', 'granted', 'refused', 'stays_out']
