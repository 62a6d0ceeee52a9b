#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layout redisson: how long a lock may stand free while a client waits for the lock. docs/redisson.md
states the bounds.

A case measures from the end of the lease or the release, by the server's clock, until the next
grant. At most BOUND_MS may pass, and CLAIM_MS more for each waiter in a fair lock's queue that is
dead, stopped, or stale: an acquire that has ended, which the queue contains again because the
server went back to older data. The limit is extended by the delay that control.Control measures.
"""
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from control import Control  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_sentinel import Watched, cut_off  # noqa: E402
from wait import until  # noqa: E402

BOUND_MS = 5000
CLAIM_MS = 2000
LEASE_MS = 3000
LONG_MS = 600000  # a lease that no case waits for
QUEUE = 'redisson_lock_queue:{n}'


def server_ms(s):
    seconds, micros = s.call('TIME')
    return int(seconds) * 1000 + int(micros) / 1000


def lease_end(s):
    return server_ms(s) + max(s.call('PTTL', 'n'), 0)


def in_time(control, s, waiters, ends, claims, what):
    """Wait until one of the waiters has the lock, which must be in time. Returns that waiter."""
    got, who = until(lambda: next(((a, w) for w in waiters for verb in ('acquire', 'take')
                                   if (a := w.have(verb, 'l'))), None), what, patience=90)
    got.ok()
    ms, late = server_ms(s) - ends, control.late_ms()
    print(f'# {what}: {ms:.0f} ms; the control: {late:.0f} ms late')
    assert ms <= BOUND_MS + claims * CLAIM_MS + 3 * late, f'{what}: {ms:.0f} ms'
    return who


def fair(service, n, **params):
    """A holder of a fair lock, and other actors that want the lock."""
    crew = [service.actor(layout='redisson', timeout=1000, **params) for _ in range(n)]
    for a in crew:
        a.lock('l', 'n', kind='fair')
    crew[0].ask('take', 'l', 10000).ok()
    return crew


def line_up(s, waiters):
    for a in waiters:
        before = s.call('LLEN', QUEUE)
        a.send('acquire', 'l', -1)
        until(lambda: s.call('LLEN', QUEUE) == before + 1, 'for a place in the queue')


@case('fair: waiters that were killed cost their claims', limit=120)
def _(s):
    control = Control()
    h, dead, deader, b = fair(s, 4)
    line_up(s, (dead, deader, b))
    dead.kill()
    deader.kill()
    h.ask('drop', 'l').ok()
    in_time(control, s, [b], server_ms(s), 2, 'behind two killed waiters')
    equal(s.call('EXISTS', QUEUE, 'redisson_lock_timeout:{n}', 'redisson_lock_waiting:{n}'), 0)


@case('fair: a waiter that was killed is not shown when its time is over, if nobody else asks')
def _(s):
    h, dead, b = fair(s, 3)
    line_up(s, (dead, b))
    equal(len([r for r in h.rows('show', 'n') if r.role == 'waiter']), 2)
    dead.kill()
    first = s.call('LINDEX', QUEUE, 0)
    s.call('ZADD', 'redisson_lock_waiting:{n}', 1, first)  # as ten seconds later
    summary, *rows = h.rows('show', 'n')
    equal([summary.waiters, len([r for r in rows if r.role == 'waiter'])], [1, 1])


@case('fair: a stopped waiter costs its claim, and queues again', limit=120)
def _(s):
    control = Control()
    h, sleeper, b = fair(s, 3)
    line_up(s, (sleeper, b))
    sleeper.stop()
    h.ask('drop', 'l').ok()
    in_time(control, s, [b], server_ms(s), 1, 'behind a stopped waiter')
    sleeper.resume()
    b.ask('drop', 'l').ok()
    sleeper.answer('acquire', 'l').ok()


@case('fair: the holder and the front die together', limit=120)
def _(s):
    control = Control()
    h, front, b = fair(s, 3, watchdog=LEASE_MS)
    line_up(s, (front, b))
    h.kill()
    front.kill()
    in_time(control, s, [b], lease_end(s), 1, 'after the lease')


@case('fair: the front is told of its turn by whoever finds the lock free')
def _(s):
    h, front, b = fair(s, 3)
    line_up(s, (front, b))
    s.call('DEL', 'n')  # no client is notified
    c = s.actor(layout='redisson')
    c.lock('l', 'n', kind='fair')
    began = time.monotonic()
    c.ask('take', 'l', 0).be('PAWL_EBUSY')
    front.answer('acquire', 'l').ok()
    took = time.monotonic() - began
    assert took < 3, f'{took:.1f} s: it found out by itself'
    equal(b.have('acquire', 'l'), None)
    h.kill()


def set_free(s, kind, words):
    """Make a lock with a long lease and a waiter, and free the lock without a notification. Returns the
    waiter, and the time at which the lock became free."""
    h, w = s.actor(layout='redisson'), s.actor(layout='redisson')
    for a, how in ((h, 'write'), (w, kind)):
        if kind == 'permits':
            a.sem('l', 'n', permits=1, lease=LONG_MS)
        else:
            a.lock('l', 'n', kind=how, lease=LONG_MS)
    h.ask('take', 'l', 0).ok()
    w.send('take' if kind == 'permits' else 'acquire', 'l', -1)
    until(lambda: [c for c in s.call('PUBSUB', 'CHANNELS') if not c.startswith('redisson_pawl:')],
          'for the waiter to listen')
    time.sleep(0.5)  # the waiter asks once more after that
    s.call(*words)
    return w, server_ms(s)


@case('a message is lost, or the key, or everything: whatever kind waits', limit=120)
def _(s):
    control = Control()
    free = 'redis.call("DEL", "{n}:timeout") redis.call("SET", "n", 1)'
    for kind, words in (('mutex', ('DEL', 'n')), ('fair', ('FLUSHALL',)), ('read', ('DEL', 'n')),
                        ('write', ('FLUSHALL',)), ('permits', ('EVAL', free, 0))):
        w, began = set_free(s, kind, words)
        in_time(control, s, [w], began, 0, f'{kind}, without a message')
        w.ask('drop', 'l').ok()
        w.kill()


@case('not fair: the holder is killed and another waiter is stopped, which costs the lease')
def _(s):
    control = Control()
    for kind in ('mutex', 'read', 'write', 'permits'):
        crew = [s.actor(layout='redisson', watchdog=LEASE_MS) for _ in range(3)]
        for a, how in zip(crew, ('write', 'write', kind)):
            if kind == 'permits':
                a.sem('l', 's', permits=1)
            else:
                a.lock('l', 'n', kind=how)
        h, sleeper, w = crew
        h.ask('take', 'l', 0).ok()
        for a in (sleeper, w):
            a.send('take' if kind == 'permits' else 'acquire', 'l', -1)
        until(lambda: s.call('PUBSUB', 'CHANNELS', 'redisson_*{?}*'), 'for the waiters')
        time.sleep(0.3)
        sleeper.stop()
        h.kill()
        ends = server_ms(s) + LEASE_MS if kind == 'permits' else lease_end(s)
        in_time(control, s, [w], ends, 0, f'{kind}, after the lease')
        w.ask('drop', 'l').ok()
        sleeper.kill()
        w.kill()


@case('a latch is deleted, and nobody is told')
def _(s):
    control = Control()
    a = s.actor(layout='redisson')
    a.latch('l', 'n')
    a.ask('set', 'l', 1).ok()
    a.send('take', 'l', 60000)
    until(lambda: s.call('PUBSUB', 'CHANNELS', 'redisson_*{n}*'), 'for the waiter')
    time.sleep(0.5)
    s.call('DEL', 'n')
    in_time(control, s, [a], server_ms(s), 0, 'the latch')


@case('the connection of a waiter is lost in the moment of the release')
def _(s):
    control = Control()
    p = Proxy(s.port)
    for kind in ('mutex', 'fair', 'write'):
        h, w = s.actor(layout='redisson'), Actor(p.url(layout='redisson'))
        for a in (h, w):
            a.lock('l', 'n', kind=kind, lease=LONG_MS)
        h.ask('take', 'l', 0).ok()
        w.send('acquire', 'l', -1)
        until(lambda: s.call('PUBSUB', 'CHANNELS', 'redisson_*{n}*'), 'for the waiter')
        p.freeze()  # messages to this client are lost from now on
        h.ask('drop', 'l').ok()
        p.cut()
        in_time(control, s, [w], server_ms(s), 0, f'{kind}, a new connection')
        w.ask('drop', 'l').ok()
        w.kill()


# ---- older data ----------------------------------------------------------------------------------

def contended(service, s):
    """A holder, three waiters whose entries will be stale, and two that go on waiting."""
    h, *crew = fair(service, 6, watchdog=LEASE_MS)
    line_up(s, crew)
    return h, crew[:3], crew[3:]


def give_up(s, stale):
    for g in stale:
        g.ask('cancel', 'l')
        g.answer('acquire', 'l').be('PAWL_ECANCELED')
    equal(s.call('LLEN', QUEUE), 2)


@case('fair: a restart from an older snapshot, with stale entries in the queue', limit=150)
def _(s):
    control = Control()
    h, stale, waiters = contended(s, s)
    s.call('SAVE')
    saved = os.path.join(s.folder, 'dump.rdb')
    shutil.copy(saved, saved + '.old')
    give_up(s, stale)
    h.kill()
    s.kill()
    shutil.copy(saved + '.old', saved)
    s.start()
    equal(s.call('LLEN', QUEUE), 5)
    who = in_time(control, s, waiters, lease_end(s), 3, 'behind 3 stale entries, after the lease')
    who.ask('drop', 'l').ok()
    next(w for w in waiters if w is not who).answer('acquire', 'l').ok()


@case('fair: a fail-over to a replica that was behind', server=Watched, limit=150)
def _(w):
    control = Control()
    old, replicas = w.master(), w.replicas()
    h, stale, waiters = contended(w, old)
    until(lambda: all(r.call('LLEN', QUEUE) == 5 for r in replicas), 'for the replicas')
    cut_off(old, replicas)
    give_up(old, stale)
    h.kill()
    old.kill()
    for r in replicas:
        r.resume()
    new = w.switched(old)
    in_time(control, new, waiters, lease_end(new), 3, 'behind 3 stale entries, after the lease')


@case('a restart from an older snapshot: a mutex, and a semaphore', limit=120)
def _(s):
    control = Control()
    for kind in ('mutex', 'permits'):
        h, w = (s.actor(layout='redisson', watchdog=LEASE_MS, timeout=1000) for _ in range(2))
        for a in (h, w):
            if kind == 'permits':
                a.sem('l', 'm', permits=1)
            else:
                a.lock('l', 'n')
        h.ask('take', 'l', 0).ok()
        s.call('SAVE')
        w.send('take' if kind == 'permits' else 'acquire', 'l', -1)
        until(lambda: s.call('PUBSUB', 'CHANNELS', 'redisson_*{?}*'), 'for the waiter')
        h.kill()
        s.kill()
        s.start()
        ends = server_ms(s) + LEASE_MS if kind == 'permits' else lease_end(s)
        in_time(control, s, [w], ends, 0, f'{kind}, after the lease')
        w.ask('drop', 'l').ok()
        w.kill()


if __name__ == '__main__':
    sys.exit(run(Live))
