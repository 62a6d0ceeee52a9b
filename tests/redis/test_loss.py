#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that stop, restart or sleep, and data that goes away under a holder.

A holder whose key vanished is notified at its next renewal or reconnect at the latest, and its release
affects no other owner's lock.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis_live import Live  # noqa: E402
from steps import free_again, seen_until_now, warm_up  # noqa: E402
from wait import until  # noqa: E402

# ---- the server stops, restarts, sleeps ----------------------------------------------------------

@case('a server that restarts empty: the holder is told, its release touches nobody')
def _(s):
    a, b = s.actor(), s.actor()
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    s.restart()
    b.lock('l', 'n')
    assert b.ask('take', 'l', 30000).ok().token > token
    a.lost('l')
    equal(a.ask('valid', 'l').valid, 0)
    a.ask('drop', 'l').be('PAWL_ELOST')
    equal(b.ask('held', 'l').held, 1)
    b.ask('renew', 'l', 0).ok()
    a.ask('take', 'l', 0).be('PAWL_EBUSY')
    b.ask('drop', 'l').ok()


@case('a server that restarts with its data: holder and queue go on where they were',
      '--appendonly', 'yes', '--appendfsync', 'always')
def _(s):
    a, b, c = s.actor(), s.actor(), s.actor()
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up('n', [b, c])
    places = s.queue('n')
    s.restart()
    until(lambda: len(s.subscribers()) == 3, 'for all to come back')
    equal(s.queue('n'), places)
    equal(a.ask('token', 'l').token, token)
    equal(a.have('lost', 'l'), None)
    a.ask('drop', 'l').ok()
    second = b.answer('acquire', 'l').ok().token
    b.ask('drop', 'l').ok()
    assert c.answer('acquire', 'l').ok().token > second > token


@case('a server that restarts from an older snapshot: tokens rise all the same')
def _(s):
    a, b = s.actor(watchdog=1500), s.actor()
    for x in (a, b):
        x.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    s.call('SAVE')
    a.ask('drop', 'l').ok()
    for _ in range(50):
        token = a.ask('take', 'l', 0).ok().token
        a.ask('drop', 'l').ok()
    older = int(s.call('GET', '{pawl:n}:fence'))
    s.restart()
    assert int(s.call('GET', '{pawl:n}:fence')) < older, 'the snapshot is not older'
    assert b.ask('take', 'l', 30000).ok().token > token


@case('a renewal that is sent late, because there was no connection, does not go past max_hold')
def _(s):
    p = Proxy(s.port)
    a = Actor(p.url(watchdog=6000, timeout=20000))
    a.lock('l', 'n', max_hold=8000)
    a.ask('take', 'l', 0).ok()
    got = time.monotonic()
    p.refuse()
    p.cut()
    time.sleep(3.5)  # the renewal is due after 2 s: it asks for 6 s more, and is not sent yet
    p.accept()

    def end():
        at = time.monotonic()
        return at - got + a.ask('valid', 'l').valid / 1000

    until(lambda: end() > 6.1, 'for the renewal')
    assert end() <= 8, f'valid until {end():.1f} s after the acquire'


@case('a client that comes back to a restarted server leaves the connections of others alone')
def _(s):
    p = Proxy(s.port)
    early = [s.connect() for _ in range(5)]
    actors = [Actor(p.url()) for _ in range(4)]
    until(lambda: len(s.subscribers()) == 4)
    p.refuse()
    p.cut()
    s.restart()  # numbers of connections begin anew
    others = [s.connect() for _ in range(30)]
    p.accept()
    until(lambda: len(s.subscribers()) == 4, 'for all to come back')
    for a in actors:
        a.lock('l', 'n')
        a.ask('try', 'l').be('PAWL_OK', 'PAWL_EBUSY')
    equal([c.call('PING') for c in others], ['PONG'] * 30)
    assert early


@case('a server that is stopped for less than the lease: nobody loses anything')
def _(s):
    a, b = s.actor(timeout=300, watchdog=5000), s.actor(timeout=300)
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up('n', [b])
    places = s.queue('n')
    s.pause()
    a.send('release', 'l')
    a.answer('release', 'l').be('PAWL_EUNKNOWN', 'PAWL_ECONN')
    b.lock('k', 'other')
    b.ask('take', 'k', 300).be('PAWL_EUNKNOWN', 'PAWL_ETIMEDOUT', 'PAWL_ECONN')
    s.resume()
    equal(s.queue('n') or places, places)
    assert b.answer('acquire', 'l').ok().token > token
    free_again(s, 'other')


@case('a server that is stopped past the lease: the holder is told, then the next one has it')
def _(s):
    a, b = s.actor(watchdog=1500, timeout=300), s.actor(watchdog=1500, timeout=300)
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up('n', [b])
    s.pause()
    lost = a.lost('l')
    equal(a.ask('valid', 'l').valid, 0)
    equal(b.have('acquire', 'l'), None)
    s.resume()
    got = b.answer('acquire', 'l').ok()
    assert got.ns > lost.ns and got.token > token
    a.ask('drop', 'l').be('PAWL_ELOST')
    equal(b.ask('held', 'l').held, 1)
    b.ask('drop', 'l').ok()


@case('CLIENT PAUSE longer than the time-out of an exchange is waited out')
def _(s):
    a, b = s.actor(timeout=300), s.actor(timeout=300)
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    s.queue_up('n', [b])
    s.call('CLIENT', 'PAUSE', 1200, 'ALL')
    b.lock('k', 'k')
    b.send('acquire', 'k', -1)
    b.answer('acquire', 'k').ok()
    until(lambda: a.ask('drop', 'l').be('PAWL_OK', 'PAWL_EUNKNOWN', 'PAWL_ENOTHELD'))
    b.answer('acquire', 'l').ok()
    equal(a.ask('stats').lost, 0)


@case('a server that sleeps in a command is waited for', '--enable-debug-command', 'yes')
def _(s):
    a = s.actor(timeout=700)
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    a.ask('drop', 'l').ok()
    s.admin.send('DEBUG', 'SLEEP', 2)
    a.ask('take', 'l', 30000).ok()
    s.admin.reply()
    a.ask('drop', 'l').ok()
    equal(s.value('n'), None)


# ---- data that goes away -------------------------------------------------------------------------

@case('SCRIPT FLUSH is not noticed by anybody')
def _(s):
    a, b = s.actor(), s.actor()
    for actor in (a, b):
        actor.lock('l', 'n')
    a.latch('d', 'd')
    a.sem('s', 's', permits=2)

    def flush():
        s.call('SCRIPT', 'FLUSH')

    for words in [('take', 'l', 0), ('renew', 'l', 5000), ('take', 's', 0), ('available', 's'),
                  ('drop', 's'), ('set', 'd', 1), ('count', 'd'), ('down', 'd'), ('show', 'n')]:
        flush()
        a.ask(*words).ok()
    b.send('acquire', 'l', -1)
    until(lambda: s.queue('n'))
    flush()
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()
    flush()
    a.ask('break', 'l').ok()
    b.lost('l')
    b.ask('drop', 'l').be('PAWL_ELOST')
    flush()
    equal(b.ask('take', 'l', 5000).ok().code, 'PAWL_OK')
    a.send('acquire', 'l', -1)
    until(lambda: s.queue('n'))
    flush()
    a.ask('cancel', 'l')
    a.answer('acquire', 'l').be('PAWL_ECANCELED')
    equal(s.queue('n'), [])


def told_at_next_renewal(s, destroy):
    """The holder is notified by its next renewal, and the waiter gets the lock."""
    warm_up(s)
    m = s.monitor()
    a, b = s.actor(watchdog=3000), s.actor(watchdog=3000)
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up('n', [b])
    m.script('renew')
    at = len(seen_until_now(s, m))
    destroy()
    a.lost('l')
    equal(sum(e.script == 'renew' for e in seen_until_now(s, m)[at:]), 1, 'renewals until told:')
    a.ask('drop', 'l').be('PAWL_ELOST')
    got = b.answer('acquire', 'l').ok()
    assert got.token > token
    b.ask('drop', 'l').ok()


@case('FLUSHALL: the holder is told at its next renewal, the waiter gets the lock')
def _(s):
    told_at_next_renewal(s, lambda: s.call('FLUSHALL'))


@case('DEL of the lock key: the holder is told at its next renewal, the waiter gets the lock')
def _(s):
    told_at_next_renewal(s, lambda: s.call('DEL', 'pawl:n'))


@case('eviction of the lock key: the holder is told at its next renewal')
def _(s):
    def evict():
        s.call('CONFIG', 'SET', 'maxmemory-policy', 'volatile-ttl')
        s.call('CONFIG', 'SET', 'maxmemory', 1)
        until(lambda: s.call('EXISTS', 'pawl:n') == 0, 'for the eviction')
        s.call('CONFIG', 'SET', 'maxmemory', 0)
    told_at_next_renewal(s, evict)


@case('semaphore and read lock: FLUSHALL is told to every holder')
def _(s):
    a, b = s.actor(watchdog=1500), s.actor(watchdog=1500)
    a.sem('s', 's', permits=3)
    b.sem('s', 's', permits=3)
    a.lock('r', 'n', kind='read')
    b.lock('r', 'n', kind='read')
    for x in (a, b):
        x.ask('take', 's', 0, 1).ok()
        x.ask('take', 'r', 0).ok()
    s.call('FLUSHALL')
    for x in (a, b):
        x.lost('s')
        x.lost('r')
        x.ask('drop', 's').be('PAWL_ELOST')
        x.ask('drop', 'r').be('PAWL_ELOST')
    equal(a.ask('take', 's', 0, 3).ok().code, 'PAWL_OK')


@case('a lock that is taken by force is told at once, without any renewal')
def _(s):
    a, b, c = s.actor(), s.actor(), s.actor()
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up('n', [b])
    c.lock('l', 'n')
    c.ask('break', 'l').ok()
    a.lost('l')
    assert b.answer('acquire', 'l').ok().token > token
    a.ask('drop', 'l').be('PAWL_ELOST')
    equal(b.ask('held', 'l').held, 1)


@case('a process whose lock is gone does not renew somebody else\'s')
def _(s):
    a, b = s.actor(watchdog=1500), s.actor()
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    s.call('SET', 'pawl:n', 'a stranger', 'PX', 600000)
    a.lost('l')
    a.ask('drop', 'l').be('PAWL_ELOST')
    equal(s.value('n'), 'a stranger')
    b.lock('l', 'n')
    b.ask('take', 'l', 500).be('PAWL_ETIMEDOUT')
    s.call('DEL', 'pawl:n')
    b.ask('take', 'l', 30000).ok()


if __name__ == '__main__':
    sys.exit(run(Live))
