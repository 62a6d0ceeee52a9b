#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a lock may stand free while a client waits for the lock: the bounds of docs/redis.md.

In each case a lease or a claim of a known length blocks the lock. From the end of that lease or claim, by
the server's clock, the next grant must come within BOUND_MS. The bound is extended by the delay that
scenes.Control measures on a busy machine.

A ghost (a stale entry in docs/redis.md) is a queue entry of an acquire that has ended, of a client that
lives. The queue contains the entry again because the server went back to older data.
"""
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import equal  # noqa: E402
from forked import case, run  # noqa: E402
from live import Actor, until  # noqa: E402
from proxy import Proxy  # noqa: E402
from scenes import Control, queue_up, warm_up  # noqa: E402
from sentinel import Watched, cut_off  # noqa: E402

BOUND_MS = 5000
LEASE_MS = 3000


def ends_at(s, name='n'):
    """The end of the lease or claim that blocks the lock, by the server's clock, in ms."""
    seconds, micros = s.call('TIME')
    return int(seconds) * 1000 + int(micros) // 1000 + max(s.call('PTTL', 'pawl:' + name), 0)


def since(s, at):
    seconds, micros = s.call('TIME')
    return int(seconds) * 1000 + int(micros) / 1000 - at


def in_time(control, s, waiters, ends, what):
    """Wait until one of the waiters has the lock, which must be soon after `ends`. Returns that waiter. (A
    waiter that has not reconnected when the lock is passed on loses its turn.)"""
    got, who = until(lambda: next(((a, w) for w in waiters if (a := w.have('acquire', 'l'))), None),
                     what, patience=90)
    got.ok()
    ms, late = since(s, ends), control.late_ms()
    print(f'# {what}: {ms:.0f} ms after the lease or claim; the control: {late:.0f} ms late')
    assert ms <= BOUND_MS + 3 * late, f'{what}: {ms:.0f} ms'
    return who


def both(control, s, waiters, ends, what):
    who = in_time(control, s, waiters, ends, what)
    who.ask('drop', 'l').ok()
    next(w for w in waiters if w is not who).answer('acquire', 'l').ok()


# ---- ghosts --------------------------------------------------------------------------------------

def contended(service, s, ghosts, params=None):
    """Make a holder and a queue: first the clients that will be ghosts, then the real waiters. Returns
    (holder, ghosts, waiters)."""
    made = [service.actor(watchdog=LEASE_MS, timeout=1000, **(params or {}))
            for _ in range(ghosts + 3)]
    made[0].lock('l', 'n')
    made[0].ask('take', 'l', 30000).ok()
    queue_up(s, 'n', made[1:])
    return made[0], made[1:-2], made[-2:]


def ended(s, holder, ghosts, left):
    """The holder has released, and all but the waiters have given up."""
    for g in ghosts:
        g.ask('cancel', 'l')
        g.answer('acquire', 'l').be('PAWL_ECANCELED')
    equal(len(s.queue('n')), left)


@case('a restart from an older snapshot: a queue of ghosts is passed within 5 s of the lease',
      limit=150)
def _(s, ghosts=6):
    control = Control()
    warm_up(s)
    h, gone, (w, last) = contended(s, s, ghosts)
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
    print(f'# {ghosts} ghosts: {ms:.0f} ms after the lease; the control: {late:.0f} ms late')
    assert got.token > token
    assert ms <= BOUND_MS + 3 * late, ms
    last.ask('drop', 'k').ok()
    until(lambda: not s.queue('n'), 'for the ghosts to go')


@case('a restart from an older snapshot: who waits on does so behind ghosts for no longer',
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
    both(control, s, (w, last), ends, 'behind 5 ghosts')


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
    assert len(new.queue('n')) >= 3, 'no ghosts'
    h.send('release', 'l')
    ends = ends_at(new)
    both(control, new, (first, last), ends, 'behind 5 ghosts')


@case('a ghost is told to watch, and says that it does not wait')
def _(s):
    a, b = s.actor(), s.actor()
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    queue_up(s, 'n', [b])
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
        until(lambda: not s.queue('n'), 'for the ghost to leave')
        s.call('ZADD', '{pawl:n}:queue', 1, owner)
        s.call('HSET', '{pawl:n}:rec', owner, record)
    equal(a.ask('held', 'l').held, 1)
    a.ask('renew', 'l', 0).ok()


# ---- clients that die or stop together -----------------------------------------------------------

@case('a holder and all who watch die together: the last waiter has it within 5 s of the lease',
      limit=120)
def _(s):
    control = Control()
    h, *crew = [s.actor(watchdog=LEASE_MS) for _ in range(6)]
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    queue_up(s, 'n', crew)
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
    queue_up(s, 'n', crew[:3])
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
    p.replace = b'SUBSCRIBE\r\n$22\r\npawl:@', b'SUBSCRIBE\r\n$22\r\nelse:@'
    h, w = s.actor(), Actor(p.url())
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    queue_up(s, 'n', [w])
    equal(len(s.call('PUBSUB', 'CHANNELS', 'else:@*')), 1)
    time.sleep(0.5)
    h.ask('drop', 'l').ok()
    in_time(control, s, [w], ends_at(s), 'without messages')


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
        queue_up(s, 'n', [v, w])
        time.sleep(0.2)
        s.call(*words)
        ends = ends_at(s)
        in_time(control, s, (v, w), ends, ' '.join(words))
        for a in (h, v, w):
            a.kill()
        s.call('FLUSHALL')


if __name__ == '__main__':
    sys.exit(run())
