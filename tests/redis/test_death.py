#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holders and waiters that die, stop, or leave: the delay for the others, by the server's clock.

The times are from MONITOR, and are compared with the ends of the leases that clients sent to the server.
A control process runs beside the processes under test; it only wakes up every 5 ms and notes how late it
was. Where something must happen within 100 ms, the limit is extended by the delay of the control.
"""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal, run  # noqa: E402
from control import Control  # noqa: E402
from redis_live import Live  # noqa: E402
from steps import warm_up  # noqa: E402
from wait import until  # noqa: E402

CLAIM_MS = 2000


def lease_end(events, key='pawl:n'):
    """The end of the key's time to live, as set before the script with which the events end."""
    last = max(i for i, e in enumerate(events) if e.source != 'lua')
    for e in reversed(events[:last]):
        if e.command == 'pexpireat' and e.words[1] == key:
            return int(e.words[2])
        if e.command == 'set' and e.words[1] == key:
            return int(e.words[4]) + (int(e.ms) if e.words[3].upper() == 'PX' else 0)
    raise AssertionError('the key has no lease')


def same_script(events, start, end):
    """Whether all events after `start`, up to `end`, are inside the script that begins at `start`."""
    return all(e.source == 'lua' for e in events[start + 1:end + 1])


# ---- a holder that dies --------------------------------------------------------------------------

def killed_holder(s, make, name, take):
    """The delay for the front after a kill -9 of the holder: from the end of the lease to the acquire."""
    control = Control()
    warm_up(s)
    for _ in range(2):
        m = s.monitor()
        a, b, c = (s.actor(watchdog=1500) for _ in range(3))
        make(a)
        a.ask('take', 'l', *take).ok()
        for n, w in enumerate((b, c), 1):
            w.lock('l', 'n')
            w.send('acquire', 'l', -1)
            until(lambda: len(s.queue(name)) == n)
        front = s.queue(name)[0]
        at = m.now()
        for _ in range(4):  # longer than the lease: the first end that the front learned of is too early
            at = m.script('renew', at)[0] + 1
        a.kill()
        at, grant = m.grant(owner=front)
        end = lease_end(m.all()[:at])
        asked = [e for e in m.all()[:at] if e.script == 'acquire' and e.owner == front]
        assert grant.ms >= end, 'the lease was not over'
        equal(b.answer('acquire', 'l').code, 'PAWL_OK')
        control.prompt(grant.ms - end, 0, 'from the end of the lease to the next grant')
        assert len(asked) <= 6, f'it asked {len(asked)} times'
        b.kill()
        c.kill()
        m.close()
        s.call('FLUSHALL')


@case('a holder is killed: the front has the lock within 100 ms of the end of its lease')
def _(s):
    killed_holder(s, lambda a: a.lock('l', 'n'), 'n', (0,))


@case('a reader is killed: the writer at the front has the lock within 100 ms of the end')
def _(s):
    killed_holder(s, lambda a: a.lock('l', 'n', kind='read'), 'n', (0,))


def handed_over(s, crew):
    """All actors queue up, and the lock is passed on until the last one is the watcher."""
    crew[0].lock('l', 'n')
    crew[0].ask('take', 'l', 0).ok()
    s.queue_up('n', crew[1:])
    last = s.queue('n')[-1]
    for x, then in zip(crew, crew[1:3]):
        x.ask('drop', 'l').ok()
        then.answer('acquire', 'l').ok()
    equal(s.call('HGET', '{pawl:n}:rec', 'watch').split(' ')[1], last, 'who watches:')


@case('a holder is killed, and who watches is not the front: the front has it within 100 ms')
def _(s):
    control = Control()
    warm_up(s)
    m = s.monitor()
    crew = [s.actor(watchdog=1500) for _ in range(6)]
    handed_over(s, crew)
    front, at = s.queue('n')[0], m.now()
    for _ in range(3):
        at = m.script('renew', at)[0] + 1
    crew[2].kill()
    at, grant = m.grant(owner=front)
    crew[3].answer('acquire', 'l').ok()
    end = lease_end(m.all()[:at])
    assert grant.ms >= end, 'the lease was not over'
    control.prompt(grant.ms - end, 0, 'from the end of the lease to the next grant')


@case('who watches is killed: at the next hand-over somebody else is told to')
def _(s):
    warm_up(s)
    m = s.monitor()
    crew = [s.actor(watchdog=1500) for _ in range(6)]
    handed_over(s, crew)
    gone = s.queue('n')[-1]
    crew[5].kill()
    at = m.now()
    for _ in range(4):  # longer than the watcher would have waited before its check
        at = m.script('renew', at)[0] + 1
    crew[2].ask('drop', 'l').ok()
    crew[3].answer('acquire', 'l').ok()
    watch = s.call('HGET', '{pawl:n}:rec', 'watch').split(' ')[1]
    assert watch != gone and watch in s.queue('n'), watch
    crew[3].kill()
    crew[4].answer('acquire', 'l').ok()
    crew[4].ask('drop', 'l').ok()
    until(lambda: not s.queue('n'))


@case('a fixed lease ends: the front has the lock within 100 ms')
def _(s):
    control = Control()
    m = s.monitor()
    a, b = s.actor(), s.actor()
    a.lock('l', 'n', lease=1200)
    a.ask('take', 'l', 0).ok()
    s.queue_up('n', [b])
    at, grant = m.grant(owner=s.queue('n')[0])
    lost, got = a.lost('l'), b.answer('acquire', 'l').ok()
    control.before(lost.ns, got.ns, 'told, and the next one has it')
    control.prompt(grant.ms - lease_end(m.all()[:at]), 0, 'from the end of the lease to the grant')


@case('a holder of permits is killed: they come back when its lease ends')
def _(s):
    control = Control()
    m = s.monitor()
    a, b = s.actor(watchdog=1500), s.actor(watchdog=1500)
    for x in (a, b):
        x.sem('s', 's', permits=3)
    a.ask('take', 's', 0, 3).ok()
    b.send('take', 's', -1, 2)
    until(lambda: s.queue('s'))
    owner = s.queue('s')[0]
    m.script('renew')
    a.kill()
    b.answer('take', 's').ok()
    hold = '{pawl:s}:hold'
    at, grant = m.wait(lambda e: e.command == 'zadd' and e.words[1] == hold and owner in e.words)
    end = max(int(float(w)) for e in m.all()[:at] if e.command == 'zadd' and e.words[1] == hold
              for w in e.words[2:] if w.isdigit())
    assert grant.ms >= end
    control.prompt(grant.ms - end, 0, 'from the end of the lease to the next permits')


# ---- waiters that die, stop, leave ---------------------------------------------------------------

@case('a killed waiter at the front costs the next one nothing: the same script skips it')
def _(s):
    warm_up(s)
    h, w1, w2 = s.actor(), s.actor(), s.actor()
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    s.queue_up('n', [w1, w2])
    owner = s.queue('n')[1]
    w1.kill()
    until(lambda: len(s.subscribers()) == 2, 'for the server to notice')
    m = s.monitor()
    h.ask('drop', 'l').ok()
    w2.answer('acquire', 'l').ok()
    start, _ = m.script('release')
    end, _ = m.grant(start, owner)
    assert same_script(m.all(), start, end), m.all()[start:end + 1]


@case('a waiter killed in the very moment of the release costs no more than the claim')
def _(s):
    control = Control()
    warm_up(s)
    for _ in range(5):
        h, w1, w2 = s.actor(), s.actor(), s.actor()
        h.lock('l', 'n')
        h.ask('take', 'l', 0).ok()
        s.queue_up('n', [w1, w2])
        owner = s.queue('n')[1]
        m = s.monitor()
        s.pause()
        w1.kill()
        h.send('release', 'l')
        s.resume()
        h.answer('release', 'l').ok()
        w2.answer('acquire', 'l').ok()
        start, release = m.script('release')
        grant = m.grant(start, owner)[1]
        control.prompt(grant.ms - release.ms, CLAIM_MS, 'from the release to the next grant')
        for a in (h, w2):
            a.kill()
        m.close()
        s.call('FLUSHALL')


@case('a stopped waiter at the front costs the next one the claim, and no more')
def _(s):
    control = Control()
    warm_up(s)
    h, w1, w2 = s.actor(), s.actor(), s.actor()
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    s.queue_up('n', [w1, w2])
    first, second = s.queue('n')
    m = s.monitor()
    w1.stop()
    h.ask('drop', 'l').ok()
    token = w2.answer('acquire', 'l').ok().token
    start, claim = m.grant(owner=first)
    grant = m.grant(start, second)[1]
    assert grant.ms - claim.ms >= CLAIM_MS - 1
    control.prompt(grant.ms - claim.ms, CLAIM_MS, 'from the claim to the next grant')
    at = m.now()
    w1.resume()  # finds an old grant, and must not use it
    m.script('acquire', at, first)
    until(lambda: s.queue('n') == [first], 'for its place')
    w1.ask('sync')
    equal(w1.have('acquire', 'l'), None)
    equal(w1.ask('held', 'l').held, 0)
    equal(s.holder('n'), second)
    w2.ask('drop', 'l').ok()
    assert w1.answer('acquire', 'l').ok().token > token


@case('a waiter that closes costs the next one nothing, and gets nothing')
def _(s):
    warm_up(s)
    h, w1, w2 = s.actor(), s.actor(), s.actor()
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    s.queue_up('n', [w1, w2])
    first, second = s.queue('n')
    m = s.monitor()
    w1.close().ok()
    equal(s.queue('n'), [second])
    h.ask('drop', 'l').ok()
    w2.answer('acquire', 'l').ok()
    start, _ = m.script('release')
    end, grant = m.grant(start)
    equal(grant.granted(), second)
    assert same_script(m.all(), start, end)


@case('a waiter that gives up costs the next one nothing, and gets nothing')
def _(s):
    warm_up(s)
    h, w1, w2 = s.actor(), s.actor(), s.actor()
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    w1.lock('l', 'n')
    w1.send('acquire', 'l', 600)
    until(lambda: s.queue('n'))
    w2.lock('l', 'n')
    w2.send('acquire', 'l', -1)
    w1.answer('acquire', 'l').be('PAWL_ETIMEDOUT')
    until(lambda: len(s.queue('n')) == 1)
    second = s.queue('n')[0]
    m = s.monitor()
    h.ask('drop', 'l').ok()
    w2.answer('acquire', 'l').ok()
    start, _ = m.script('release')
    equal(m.grant(start)[1].granted(), second)


@case('a holder and the front die together: the next waiter settles it within 5 s', limit=120)
def _(s):
    control = Control()
    m = s.monitor()
    h, w1, w2 = s.actor(watchdog=1500), s.actor(), s.actor()
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    s.queue_up('n', [w1, w2])
    second = s.queue('n')[1]
    h.kill()
    w1.kill()
    w2.answer('acquire', 'l').ok()
    at, grant = m.grant(owner=second)
    end = lease_end(m.all()[:at])
    assert grant.ms >= end, 'the lease was not over'
    control.prompt(grant.ms - end, 4900, 'from the end of the lease to the grant')


@case('a whole queue that is killed: the last one standing gets the lock in one script')
def _(s):
    warm_up(s)
    h, *waiters = [s.actor() for _ in range(7)]
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    s.queue_up('n', waiters)
    last = s.queue('n')[-1]
    for w in waiters[:-1]:
        w.kill()
    until(lambda: len(s.subscribers()) == 2)
    m = s.monitor()
    h.ask('drop', 'l').ok()
    waiters[-1].answer('acquire', 'l').ok()
    start, _ = m.script('release')
    end, _ = m.grant(start, last)
    assert same_script(m.all(), start, end)


# ---- a holder that is stopped --------------------------------------------------------------------

@case('a holder stopped past its lease knows on resume, before any answer, and harms nobody')
def _(s):
    a, b = s.actor(watchdog=1500, timeout=30000), s.actor()
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up('n', [b])
    a.send('stopself', 'l')
    os.waitid(os.P_PID, a.pid, os.WSTOPPED | os.WNOWAIT)
    assert b.answer('acquire', 'l').ok().token > token
    value = s.value('n')
    s.pause()  # from here on no client gets an answer
    a.resume()
    woke = a.answer('stopself', 'l')
    equal([woke.valid, woke.held], [0, 0])
    lost = a.answer('lost', 'l', patience=15).be('PAWL_ELOST')
    assert lost.ns >= woke.ns
    equal(a.ask('valid', 'l').valid, 0)
    a.ask('drop', 'l', patience=15).be('PAWL_ELOST')
    s.resume()
    equal(s.value('n'), value)
    equal(b.ask('held', 'l').held, 1)
    b.ask('drop', 'l').ok()
    a.ask('take', 'l', 20000).ok()


@case('a holder stopped past its lease with nobody else there: told all the same')
def _(s):
    a = s.actor(watchdog=1200)
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    a.send('stopself', 'l')
    os.waitid(os.P_PID, a.pid, os.WSTOPPED | os.WNOWAIT)
    until(lambda: s.value('n') is None, 'for the end of the lease')
    a.signal(signal.SIGCONT)
    woke = a.answer('stopself', 'l')
    equal([woke.valid, woke.held], [0, 0])
    a.lost('l')
    a.ask('drop', 'l').be('PAWL_ELOST')
    equal(s.value('n'), None)


@case('a holder stopped for less than its lease goes on as if nothing had been')
def _(s):
    a = s.actor(watchdog=60000)
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    a.send('stopself', 'l')
    os.waitid(os.P_PID, a.pid, os.WSTOPPED | os.WNOWAIT)
    a.resume()
    woke = a.answer('stopself', 'l')
    equal([woke.held, woke.token], [1, token])
    a.ask('drop', 'l').ok()
    equal(a.have('lost', 'l'), None)


if __name__ == '__main__':
    sys.exit(run(Live))
