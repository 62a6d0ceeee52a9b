#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a lock may stand free while a client waits for the lock: the bounds of docs/redis.md.

In each case a lease or a claim of a known length blocks the lock. From the end of that lease or claim, by
the server's clock, the next grant must come within BOUND_MS. The bound is extended by the delay that
control.Control measures on a busy machine.

A stale entry (docs/redis.md) is a queue entry of an acquire that has ended, of a client that lives. The
queue contains the entry again because the server went back to older data.
"""
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import LONG, Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from control import Control  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_sentinel import Watched, cut_off  # noqa: E402
from steps import warm_up  # noqa: E402
from wait import until  # noqa: E402

BOUND_MS = 5000
LEASE_MS = 3000


def ends_at(s, name='n'):
    """The end of the lease or claim that blocks the lock, by the server's clock, in ms."""
    seconds, micros = s.call('TIME')
    return int(seconds) * 1000 + int(micros) // 1000 + max(s.call('PTTL', 'pawl:' + name), 0)


def since(s, at):
    seconds, micros = s.call('TIME')
    return int(seconds) * 1000 + int(micros) / 1000 - at


def in_time(control, s, waiters, ends, what, lock='l'):
    """Wait until one of the waiters has the lock, which must be soon after `ends`. Returns that waiter. (A
    waiter that has not reconnected when the lock is passed on loses its turn.)"""
    got, who = until(lambda: next(((a, w) for w in waiters for verb in ('acquire', 'take')
                                   if (a := w.have(verb, lock))), None), what, patience=90)
    got.ok()
    ms, late = since(s, ends), control.late_ms()
    print(f'# {what}: {ms:.0f} ms after the lease or claim; the control: {late:.0f} ms late')
    assert ms <= BOUND_MS + 3 * late, f'{what}: {ms:.0f} ms'
    return who


def both(control, s, waiters, ends, what):
    who = in_time(control, s, waiters, ends, what)
    who.ask('drop', 'l').ok()
    next(w for w in waiters if w is not who).answer('acquire', 'l').ok()


# ---- stale entries -------------------------------------------------------------------------------

def contended(service, s, stale, params=None):
    """Make a holder and a queue: first the clients whose entries will be stale, then the real waiters.
    Returns (holder, stale clients, waiters)."""
    made = [service.actor(watchdog=LEASE_MS, timeout=1000, **(params or {}))
            for _ in range(stale + 3)]
    made[0].lock('l', 'n')
    made[0].ask('take', 'l', 30000).ok()
    s.queue_up('n', made[1:])
    return made[0], made[1:-2], made[-2:]


def ended(s, holder, stale, left):
    """The holder has released, and all but the waiters have given up."""
    for g in stale:
        g.ask('cancel', 'l')
        g.answer('acquire', 'l').be('PAWL_ECANCELED')
    equal(len(s.queue('n')), left)


@case('a restart from an older snapshot: a queue of stale entries is passed within 5 s of the lease',
      limit=150)
def _(s, stale=6):
    control = Control()
    warm_up(s)
    h, gone, (w, last) = contended(s, s, stale)
    s.call('SAVE')
    saved = os.path.join(s.folder, 'dump.rdb')
    shutil.copy(saved, saved + '.old')
    ended(s, h, gone, 2)
    h.ask('drop', 'l').ok()
    token = w.answer('acquire', 'l').ok().token
    w.ask('drop', 'l').ok()
    token = max(token, last.answer('acquire', 'l').ok().token)
    last.ask('drop', 'l').ok()
    w.send('acquire', 'l', -1)
    w.answer('acquire', 'l').ok()
    w.ask('drop', 'l').ok()
    s.kill()
    shutil.copy(saved + '.old', saved)
    w.lock('k', 'n')
    last.lock('k', 'n')
    s.start()
    ends = ends_at(s)
    last.send('take', 'k', 120000)
    got = last.answer('take', 'k', patience=90).ok()
    ms, late = since(s, ends), control.late_ms()
    print(f'# {stale} stale entries: {ms:.0f} ms after the lease; the control: {late:.0f} ms late')
    assert got.token > token
    assert ms <= BOUND_MS + 3 * late, ms
    last.ask('drop', 'k').ok()
    until(lambda: not s.queue('n'), 'for the stale entries to go')


@case('a restart from an older snapshot: who waits on does so behind stale entries for no longer',
      limit=150)
def _(s):
    control = Control()
    h, gone, (w, last) = contended(s, s, 5)
    s.call('SAVE')
    saved = os.path.join(s.folder, 'dump.rdb')
    shutil.copy(saved, saved + '.old')
    ended(s, h, gone, 2)
    s.call('CLIENT', 'PAUSE', 60000, 'WRITE')  # the release is not carried out any more
    h.send('release', 'l')
    s.kill()
    shutil.copy(saved + '.old', saved)
    s.start()
    ends = ends_at(s)
    both(control, s, (w, last), ends, 'behind 5 stale entries')


@case('a fail-over to a replica that was behind: the same', server=Watched, limit=150)
def _(w):
    control = Control()
    old, replicas = w.master(), w.replicas()
    h, gone, (first, last) = contended(w, w, 5)
    until(lambda: all(len(r.queue('n')) == 7 for r in replicas), 'for the replicas')
    cut_off(old, replicas)
    ended(old, h, gone, 2)
    old.kill()
    for r in replicas:
        r.resume()
    new = w.switched(old)
    assert len(new.queue('n')) >= 3, 'no stale entries'
    h.send('release', 'l')
    ends = ends_at(new)
    both(control, new, (first, last), ends, 'behind 5 stale entries')


@case('a client with a stale entry is told to watch, and says that it does not wait')
def _(s):
    a, b = s.actor(), s.actor()
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    s.queue_up('n', [b])
    owner = s.queue('n')[0]
    record = s.call('HGET', '{pawl:n}:rec', owner)
    b.ask('cancel', 'l')
    b.answer('acquire', 'l').be('PAWL_ECANCELED')
    s.call('ZADD', '{pawl:n}:queue', 1, owner)
    s.call('HSET', '{pawl:n}:rec', owner, record, 'watch', f'{ends_at(s)} {owner}')
    for message in ('f %s 1000 0 %d', 'g %s 1 1 1999 %d'):
        assert s.queue('n') == [owner]
        s.call('PUBLISH', 'pawl:@' + owner.split(':')[0],
               message % (owner, ends_at(s)) + ' 0 pawl:n')
        until(lambda: not s.queue('n'), 'for the stale entry to go')
        s.call('ZADD', '{pawl:n}:queue', 1, owner)
        s.call('HSET', '{pawl:n}:rec', owner, record)
    equal(a.ask('held', 'l').held, 1)
    a.ask('renew', 'l', 0).ok()


# Kinds of the holder, of the stale entries, and of the waiter behind them, by the name.
MIXED = {'m': ('mutex', 'mutex', 'mutex'), 'f': ('fair', 'fair', 'fair'),
         'r': ('write', 'read', 'write'), 'w': ('write', 'write', 'read')}
STALE_MS = 5000  # an actor can't cancel a semaphore: its stale waiters give up after this time
LAST_MS = 12000  # the holders' lease: longer than the stale waiters wait


def line_up(service, a, name, verb='acquire', *words):
    n = len(service.queue(name))
    a.send(verb, name, *words)
    until(lambda: len(service.queue(name)) == n + 1, 'for a place in the queue')


def contended_all(service, stale):
    """A holder, stale entries and a waiter of several names, each client of all names; and the same of a semaphore.
    Returns both crews."""
    crews = [[service.actor(watchdog=LAST_MS, timeout=1000) for _ in range(stale + 2)]
             for _ in range(2)]
    for name, (held, gone, wanted) in MIXED.items():
        for i, a in enumerate(crews[0]):
            a.lock(name, name, kind=held if i == 0 else gone if i <= stale else wanted)
        crews[0][0].ask('take', name, 30000).ok()
        for a in crews[0][1:]:
            line_up(service, a, name, 'acquire', -1)
    for i, a in enumerate(crews[1]):
        a.sem('s', 's', permits=3)
        if i == 0:
            a.ask('take', 's', 30000, 3).ok()
        else:
            line_up(service, a, 's', 'take', STALE_MS if i <= stale else -1, 1 + i % 3)
    return crews


def ended_all(s, crews):
    """All but the waiters have given up."""
    for g in crews[0][1:-1]:
        for name in MIXED:
            g.ask('cancel', name)
            g.answer('acquire', name).be('PAWL_ECANCELED')
    for g in crews[1][1:-1]:
        g.answer('take', 's').be('PAWL_ETIMEDOUT')
    for name in (*MIXED, 's'):
        equal(len(s.queue(name)), 1)


def all_in_time(control, s, crews, stale):
    """Each waiter gets the name in time, although the queues have the stale entries again."""
    ends = {name: ends_at(s, name) for name in (*MIXED, 's')}
    for name in ends:
        assert len(s.queue(name)) >= 2, f'no stale entries of {name}'
    for name in ends:
        w = crews[name == 's'][-1]
        in_time(control, s, [w], ends[name], f'{name}, behind {stale} stale entries', name)
        w.ask('drop', name, *([1 + (stale + 1) % 3] if name == 's' else [])).ok()
    for name in ends:
        until(lambda n=name: not s.queue(n), 'for the stale entries to go')


@case('a restart from an older snapshot: stale entries of every kind, and of several names at once',
      limit=200)
def _(s, stale=4):
    control = Control()
    crews = contended_all(s, stale)
    s.call('SAVE')
    saved = os.path.join(s.folder, 'dump.rdb')
    shutil.copy(saved, saved + '.old')
    ended_all(s, crews)
    for crew in crews:
        crew[0].kill()
    s.kill()
    shutil.copy(saved + '.old', saved)
    s.start()
    all_in_time(control, s, crews, stale)


@case('a fail-over to a replica that was behind: stale entries of every kind, and of several names at once',
      server=Watched, limit=240)
def _(w, stale=3):
    control = Control()
    old, replicas = w.master(), w.replicas()
    crews = contended_all(w, stale)
    until(lambda: all(len(r.queue(name)) == stale + 1 for r in replicas for name in (*MIXED, 's')),
          'for the replicas')
    cut_off(old, replicas)
    ended_all(old, crews)
    for crew in crews:
        crew[0].kill()
    old.kill()
    for r in replicas:
        r.resume()
    new = w.switched(old)
    all_in_time(control, new, crews, stale)


# ---- clients that die or stop together -----------------------------------------------------------

@case('a holder and all who watch die together: the last waiter has it within 5 s of the lease',
      limit=120)
def _(s):
    control = Control()
    h, *crew = [s.actor(watchdog=LEASE_MS) for _ in range(6)]
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    s.queue_up('n', crew)
    for a in (h, *crew[:-1]):
        a.kill()
    ends = ends_at(s)
    in_time(control, s, crew[-1:], ends, 'the last of 5')


@case('the front and who watches stop, then the holder releases: the claim, and 5 s', limit=120)
def _(s):
    control = Control()
    h, *crew = [s.actor(watchdog=LEASE_MS) for _ in range(5)]
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    s.queue_up('n', crew[:3])
    h.ask('drop', 'l').ok()  # from here on the last waiter is the watcher
    crew[0].answer('acquire', 'l').ok()
    queue_up_more(s, crew[3])
    watch = s.call('HGET', '{pawl:n}:rec', 'watch').split(' ')[1]
    places = s.queue('n')
    stopped = {places[0], watch}
    for i, a in enumerate(crew[1:]):
        if places[i] in stopped:
            a.stop()
    waits = [a for i, a in enumerate(crew[1:]) if places[i] not in stopped]
    crew[0].ask('drop', 'l').ok()
    ends = ends_at(s)
    in_time(control, s, waits, ends, 'the front and the watcher stopped')


def queue_up_more(s, a):
    n = len(s.queue('n'))
    a.lock('l', 'n')
    a.send('acquire', 'l', -1)
    until(lambda: len(s.queue('n')) == n + 1)


# ---- losses without a notification ---------------------------------------------------------------

@case('a client that is not subscribed, as it thinks: 5 s after the release', limit=120)
def _(s):
    control = Control()
    p = Proxy(s.port)
    p.request = lambda connection, data: data.replace(b'SUBSCRIBE\r\n$22\r\npawl:@',
                                                      b'SUBSCRIBE\r\n$22\r\nelse:@')
    h, w = s.actor(), Actor(p.url())
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    s.queue_up('n', [w])
    equal(len(s.call('PUBSUB', 'CHANNELS', 'else:@*')), 1)
    time.sleep(0.5)
    h.ask('drop', 'l').ok()
    in_time(control, s, [w], ends_at(s), 'without messages')


RECONNECT_MS = 1000  # attempts to connect are at most this far apart
WAITS = ('mutex', 'fair', 'read', 'write', 'permits', 'latch')


def hold(a, kind):
    """Make the object 'l' and hold it, so that a waiter of this kind has to wait."""
    if kind == 'latch':
        a.latch('l', 'n')
        a.ask('set', 'l', 1).ok()
    elif kind == 'permits':
        a.sem('l', 'n', permits=1, lease=LONG)
        a.ask('take', 'l', 0).ok()
    else:
        a.lock('l', 'n', kind='write' if kind == 'read' else kind, lease=LONG)
        a.ask('take', 'l', 0).ok()


def wait_for(s, a, kind):
    if kind == 'latch':
        a.latch('l', 'n')
    elif kind == 'permits':
        a.sem('l', 'n', permits=1)
    else:
        a.lock('l', 'n', kind=kind)
    a.send('take', 'l', 60000)
    until(lambda: s.queue('n'), 'for a place in the queue')


def connection_lost(s, control, away):
    """The connection of a waiter is lost together with the message of its turn; or (away) before its turn,
    which comes while the client can't connect."""
    for kind in WAITS:
        p = Proxy(s.port)
        h, w = s.actor(), Actor(p.url())
        hold(h, kind)
        wait_for(s, w, kind)
        if away:
            p.refuse()
            p.cut()
            until(lambda: len(s.subscribers()) == 1, 'for the end of the connection')
        else:
            p.freeze()
        h.ask('down' if kind == 'latch' else 'drop', 'l').ok()
        began = time.monotonic()
        if away:
            p.accept()
        else:
            p.cut()
        w.answer('take', 'l').ok()
        control.prompt((time.monotonic() - began) * 1000, RECONNECT_MS, f'{kind}, a new connection')
        w.kill()
        h.kill()
        s.call('FLUSHALL')
        p.close()


@case('the connection is lost with the message of a waiter\'s turn: no time after the reconnect',
      limit=120)
def _(s):
    connection_lost(s, Control(), False)


@case('a waiter\'s turn comes while it has no connection: no time after the reconnect', limit=120)
def _(s):
    connection_lost(s, Control(), True)


@case('a latch is deleted: 5 s')
def _(s):
    control = Control()
    a = s.actor()
    a.latch('l', 'n')
    a.ask('set', 'l', 1).ok()
    a.send('take', 'l', 60000)
    until(lambda: s.queue('n'), 'for a place in the queue')
    time.sleep(0.2)
    s.call('DEL', 'pawl:n')
    began = time.monotonic()
    a.answer('take', 'l').ok()
    control.prompt((time.monotonic() - began) * 1000, BOUND_MS, 'the latch')


@case('the key is deleted, or everything: 5 s', limit=120)
def _(s):
    control = Control()
    for words in (('DEL', 'pawl:n'), ('FLUSHALL',), ('DEL', '{pawl:n}:queue', 'pawl:n'),
                  ('DEL', '{pawl:n}:rec', 'pawl:n')):
        h, v, w = s.actor(), s.actor(), s.actor()
        h.lock('l', 'n')
        h.ask('take', 'l', 10000).ok()
        s.queue_up('n', [v, w])
        time.sleep(0.2)
        s.call(*words)
        ends = ends_at(s)
        in_time(control, s, (v, w), ends, ' '.join(words))
        for a in (h, v, w):
            a.kill()
        s.call('FLUSHALL')


if __name__ == '__main__':
    sys.exit(run(Live))
