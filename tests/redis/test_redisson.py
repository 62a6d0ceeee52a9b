#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layout redisson: notifications between kinds of a name, keys of dead and closed clients, lost
answers, and plain semaphores. The conformance suite tests the rest.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis_live import Live  # noqa: E402
from wait import until  # noqa: E402

KINDS = ('mutex', 'fair', 'read', 'write', 'spin')
PROMPT = 5  # s, of a lease of 30


def listening(s, n):
    """Whether at least n channels, besides the clients' own channels, have a listener."""
    return len([c for c in s.call('PUBSUB', 'CHANNELS') if not c.startswith('redisson_pawl:')]) >= n


def pair(s, held, wanted, name, **options):
    """Two actors: one holds the name as one kind of lock, the other waits for the name as another kind."""
    a, b = s.actor(layout='redisson'), s.actor(layout='redisson')
    a.lock('l', name, kind=held, **options)
    b.lock('l', name, kind=wanted)
    a.ask('take', 'l', 0).ok()
    b.send('acquire', 'l', 25000)
    if wanted != 'spin':
        until(lambda: listening(s, 1), 'for the waiter to listen')
        time.sleep(0.05)  # the waiter asks once more after subscribing; an earlier release does no harm
    return a, b


def prompt(b, began):
    b.answer('acquire', 'l').ok()
    took = time.monotonic() - began
    assert took < PROMPT, f'got it after {took:.1f} s'


for held in KINDS:
    @case(f'a released {held} lock goes at once to a waiter of each other kind')
    def _(s, held=held):
        for wanted in KINDS:
            if (held, wanted) == ('read', 'read'):
                continue
            a, b = pair(s, held, wanted, f'n-{wanted}')
            began = time.monotonic()
            a.ask('drop', 'l').ok()
            prompt(b, began)
            a.ask('close').ok()
            b.ask('close').ok()


def break_it(s, name):
    c = s.actor(layout='redisson')
    c.lock('l', name)
    c.ask('break', 'l').ok()


@case('break tells the holder, of whatever kind, and wakes waiters of each')
def _(s):
    for held, wanted in zip(KINDS, ('fair', 'read', 'mutex', 'mutex', 'write')):
        a, b = pair(s, held, wanted, f'n-{held}')
        began = time.monotonic()
        break_it(s, f'n-{held}')
        a.lost('l')
        assert time.monotonic() - began < PROMPT, f'the {held} holder heard it late'
        prompt(b, began)
        a.ask('close')
        b.ask('close')
    a = s.actor(layout='redisson')
    a.sem('s', 'sem', permits=3)
    a.ask('take', 's', 0).ok()
    began = time.monotonic()
    break_it(s, 'sem')
    until(lambda: a.ask('held', 's').held == 0, 'for the permit to be lost')
    assert time.monotonic() - began < PROMPT, 'the semaphore was lost late'


@case('a latch that is deleted, as Java does it, lets its waiters go')
def _(s):
    a = s.actor(layout='redisson')
    a.latch('l', 'n')
    a.ask('set', 'l', 1).ok()
    a.send('take', 'l', 20000)
    until(lambda: listening(s, 1), 'for the waiter to listen')
    time.sleep(0.05)
    began = time.monotonic()
    s.call('DEL', 'n')
    s.call('PUBLISH', 'redisson_countdownlatch__channel__{n}', 1)
    a.answer('take', 'l').ok()
    assert time.monotonic() - began < PROMPT


@case('a client that closes leaves a lock that lingers no longer than it should')
def _(s):
    for kind in ('mutex', 'fair', 'read', 'write'):
        a = s.actor(layout='redisson')
        a.lock('l', f'n-{kind}', kind=kind, at_least=3000)
        a.ask('take', 'l', 0).ok()
        a.ask('drop', 'l').ok()
        a.ask('close').ok()
        left = s.call('PTTL', f'n-{kind}')
        assert 0 < left <= 3000, f'{kind}: {left} ms'


def published(s):
    """How many messages the server was given."""
    rows = [r for r in s.call('INFO', 'commandstats').splitlines()
            if r.startswith(('cmdstat_publish:', 'cmdstat_spublish:'))]
    return sum(int(r.split('calls=')[1].split(',')[0]) for r in rows)


# The waiters know the lease of 30 s: only a message tells them that the lock ends sooner.
@case('a client that closes tells whoever waits when the lock that lingers will end')
def _(s):
    for held in ('mutex', 'fair', 'read', 'write'):
        for wanted in ('mutex', 'fair', 'write', 'read'):
            if (held, wanted) == ('read', 'read'):
                continue
            a, b = pair(s, held, wanted, f'n-{held}-{wanted}', at_least=1500)
            a.ask('drop', 'l').ok()
            before = published(s)
            a.ask('close').ok()
            assert published(s) > before, f'{held}, {wanted}: the waiter was not told'
            b.answer('acquire', 'l').ok()
            b.ask('close').ok()


@case('when the first waiter of a fair lock gives up, the next one learns when the lock that lingers will end')
def _(s):
    a, b = pair(s, 'fair', 'fair', 'n', at_least=2500)
    c = s.actor(layout='redisson')
    c.lock('l', 'n', kind='fair')
    c.send('acquire', 'l', 25000)
    until(lambda: s.call('LLEN', 'redisson_lock_queue:{n}') == 2, 'for both waiters')
    until(lambda: listening(s, 2), 'for the second waiter to listen')
    time.sleep(0.05)
    a.ask('drop', 'l').ok()
    a.ask('close').ok()
    before = published(s)
    b.ask('close')
    assert published(s) > before, 'the next waiter was not told'
    began = time.monotonic()
    c.answer('acquire', 'l').ok()
    assert time.monotonic() - began < 3.5, f'got it after {time.monotonic() - began:.1f} s'


@case('a write lock that was entered often stays taken for two leases at most')
def _(s):
    a = s.actor(layout='redisson')
    a.lock('l', 'n', kind='write', lease=3000, thread=1)
    for _ in range(6):
        a.ask('take', 'l', 0).ok()
    left = s.call('PTTL', 'n')
    assert 0 < left <= 6000, f'{left} ms'


def answer_lost(s, make, wait):
    """An acquire whose answer is held back for `wait` s and then lost. The actor."""
    p = Proxy(s.port)
    a = Actor(f'redis://127.0.0.1:{p.port}/?layout=redisson&timeout=10000')
    make(a)
    a.ask('take', 'l', 0).ok()  # the scripts are known
    a.ask('drop', 'l').ok()
    p.stall('down')
    a.send('take', 'l', 30000)
    until(lambda: s.call('EXISTS', 'n') == 1 and (s.call('TYPE', 'n') != 'string' or
                                                  s.call('EXISTS', '{n}:timeout') == 1),
          'for the grant')
    time.sleep(wait)
    p.cut()
    p.flow()
    return a


@case('a fixed lease whose answer was lost counts from the answer that came')
def _(s):
    for kind in ('write', 'mutex', 'read'):
        a = answer_lost(s, lambda x, k=kind: x.lock('l', 'n', kind=k, lease=6000), 2)
        valid = a.answer('take', 'l').ok().valid
        left = s.call('PTTL', 'n')
        assert left > 5000 and left > valid - 200, f'{kind}: valid {valid}, stored {left}'
        a.ask('drop', 'l').ok()


@case('permits whose answer was lost count from the answer that came')
def _(s):
    a = answer_lost(s, lambda x: x.sem('l', 'n', permits=3, lease=6000), 2)
    a.answer('take', 'l').ok()
    left = s.call('EVAL', '''local time = redis.call('TIME')
        local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
        return first[2] - time[1] * 1000 - time[2] / 1000''', 1, '{n}:timeout')
    assert left > 5000, f'{left} ms are left'
    equal(s.call('GET', 'n'), '2')


@case('a plain semaphore is renewed, and its permits come back once')
def _(s):
    a = s.actor(layout='redisson', semaphore='plain', watchdog=900)
    a.sem('s', 'n', permits=3)
    a.ask('take', 's', 0).ok()
    time.sleep(2)
    equal(a.ask('held', 's').held, 1)
    equal(s.call('GET', 'n'), '2')
    a.ask('drop', 's').ok()
    equal(s.call('GET', 'n'), '3')


@case('more permits of a plain semaphore than its handle says there are: PAWL_EINVAL, no endless wait')
def _(s):
    a = s.actor(layout='redisson', semaphore='plain')
    a.sem('s', 'n', permits=1)
    a.ask('take', 's', 0, 2).be('PAWL_EINVAL')
    a.ask('take', 's', 20000, 2).be('PAWL_EINVAL')
    a.ask('take', 's', 0).ok()
    equal(s.call('GET', 'n'), '0')


@case('a plain semaphore that is deleted is lost, and its release makes no permits')
def _(s):
    a = s.actor(layout='redisson', semaphore='plain', watchdog=900)
    a.sem('s', 'n', permits=3)
    a.ask('take', 's', 0).ok()
    s.call('DEL', 'n')
    until(lambda: a.ask('held', 's').held == 0, 'for the loss')
    a.ask('drop', 's').be('PAWL_ELOST')
    equal(s.call('EXISTS', 'n'), 0)


@case('the permit of a plain semaphore whose fixed lease ended comes back')
def _(s):
    a = s.actor(layout='redisson', semaphore='plain')
    a.sem('s', 'n', permits=3, lease=500)
    a.ask('take', 's', 0).ok()
    until(lambda: s.call('GET', 'n') == '3', 'for the permit')


@case('the permit of a plain semaphore whose release failed comes back when its lease is over')
def _(s):
    p = Proxy(s.port)
    a = Actor(f'redis://127.0.0.1:{p.port}/?layout=redisson&semaphore=plain&timeout=500')
    a.sem('s', 'n', permits=3, lease=3000)
    a.ask('take', 's', 0).ok()
    p.stall('up')
    a.ask('drop', 's').be('PAWL_EUNKNOWN', 'PAWL_ECONN')
    p.cut()
    p.flow()
    equal(s.call('GET', 'n'), '2')
    until(lambda: s.call('GET', 'n') == '3', 'for the permit')


@case('permits of a plain semaphore that were asked for in vain are not given back')
def _(s):
    p = Proxy(s.port)
    a = Actor(f'redis://127.0.0.1:{p.port}/?layout=redisson&semaphore=plain&timeout=500')
    a.sem('s', 'n', permits=3)
    a.ask('take', 's', 0).ok()
    a.ask('drop', 's').ok()
    p.stall('up')
    a.ask('take', 's', 0, 2).be('PAWL_EUNKNOWN', 'PAWL_ECONN')
    p.freeze()
    p.flow()
    until(lambda: a.ask('stats').reconnects, 'for a new connection')
    a.ask('take', 's', 20000, 3).ok()
    time.sleep(1)  # by now the client has given back everything
    equal(s.call('GET', 'n'), '0')
    a.ask('drop', 's', 3).ok()
    equal(s.call('GET', 'n'), '3')


@case('a part of the permits of a plain semaphore whose release got no answer comes back once')
def _(s):
    p = Proxy(s.port)
    a = Actor(f'redis://127.0.0.1:{p.port}/?layout=redisson&semaphore=plain&timeout=500')
    a.sem('s', 'n', permits=3)
    a.ask('take', 's', 0).ok()
    a.ask('drop', 's').ok()  # now the server has the scripts
    a.ask('take', 's', 0, 3).ok()
    p.stall('down')
    a.ask('drop', 's', 2).be('PAWL_EUNKNOWN')
    equal(s.call('GET', 'n'), '2')
    p.cut()
    p.flow()
    until(lambda: a.ask('stats').reconnects, 'for a new connection')
    a.ask('close').ok()
    equal(s.call('GET', 'n'), '3')


@case('a part of the permits goes back beside a renewal: nothing is lost')
def _(s):
    a = s.actor(layout='redisson', watchdog=900)
    a.sem('s', 'n', permits=5)
    a.ask('take', 's', 0, 4).ok()
    # The state after a release whose answer has not arrived.
    equal(s.call('ZREMRANGEBYRANK', '{n}:timeout', -1, -1), 1)
    s.call('INCRBY', 'n', 1)
    time.sleep(2)
    equal(a.have('lost', 's'), None)
    equal(a.ask('held', 's').held, 1)
    equal(s.call('ZCARD', '{n}:timeout'), 3)


@case('a partial release of permits whose answer was lost is repeated: the rest is kept')
def _(s):
    p = Proxy(s.port)
    a = Actor(f'redis://127.0.0.1:{p.port}/?layout=redisson&timeout=10000')
    a.sem('s', 'n', permits=4)
    a.ask('take', 's', 0).ok()
    a.ask('drop', 's').ok()  # now the server has the scripts
    a.ask('take', 's', 0, 4).ok()
    p.stall('down')
    a.send('drop', 's', 1)
    until(lambda: s.call('GET', 'n') == '1', 'for the release')
    p.cut()
    p.flow()
    a.answer('drop', 's').ok()
    equal(a.have('lost', 's'), None)
    equal([s.call('GET', 'n'), s.call('ZCARD', '{n}:timeout')], ['1', 3])
    a.ask('drop', 's', 3).ok()
    equal([s.call('GET', 'n'), s.call('ZCARD', '{n}:timeout')], ['4', 0])


@case('a reader whose lease has ended is not shown beside one that holds on')
def _(s):
    a, b = s.actor(layout='redisson'), s.actor(layout='redisson')
    a.lock('l', 'n', kind='read')
    b.lock('l', 'n', kind='read', lease=400)
    a.ask('take', 'l', 0).ok()
    b.ask('take', 'l', 0).ok()
    equal(len(a.rows('show', 'n')), 3)
    until(lambda: not s.call('KEYS', '*rwlock_timeout:1') or
          len(s.call('KEYS', '*rwlock_timeout:1')) == 1, 'for the end of the lease')
    equal([r.role for r in a.rows('show', 'n')], ['summary', 'holder'])


@case('when all is over, only counters of tokens and numbers of semaphores are left')
def _(s):
    a, b = s.actor(layout='redisson'), s.actor(layout='redisson')
    for x in (a, b):
        x.lock('x', 'x')
        x.lock('f', 'f', kind='fair')
        x.lock('r', 'r', kind='read')
        x.lock('w', 'r', kind='write')
        x.sem('s', 's', permits=2)
        x.latch('d', 'd')
    for name in ('x', 'f', 'r', 's'):
        a.ask('take', name, 0).ok()
    for name in ('x', 'f', 'w'):
        b.send('acquire', name, -1)
    until(lambda: s.call('LLEN', 'redisson_lock_queue:{f}') == 1, 'for the waiter of the fair lock')
    a.ask('set', 'd', 1).ok()
    a.ask('down', 'd').ok()
    for name in ('x', 'f', 'r', 's'):
        a.ask('drop', name).ok()
    for name in ('x', 'f', 'w'):
        b.answer('acquire', name).ok()
        b.ask('drop', name).ok()
    left = {key for key in s.call('KEYS', '*') if s.call('PTTL', key) == -1}
    equal(left, {'redisson_lock_token:{%s}' % name for name in 'xfrs'} | {'s'})


if __name__ == '__main__':
    sys.exit(run(Live))
