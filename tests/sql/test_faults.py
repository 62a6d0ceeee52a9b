#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_faults.py postgres|mysql [PART]: what comes of each fault of docs/sql.md. Nothing is lost
that the page does not say is lost."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from failures import fails  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402


@case('a server that is killed and restarted: the holder holds on, waiters keep their order',
      own={})
def _(s, name):
    a, waiters = s.actor(watchdog=20000), [s.actor() for _ in range(3)]
    a.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up(name, waiters)
    s.restart()
    for x in (a, *waiters):  # one that is not there when its turn comes is passed
        until(lambda x=x: s.connections_of(x), 'for the connections')
    equal(a.ask('held', 'l').held, 1)
    assert a.ask('renew', 'l', 20000, patience=20).ok()
    a.ask('drop', 'l').ok()
    for w in waiters:
        got = w.answer('acquire', 'l').ok().token
        assert got > token
        token = got
        w.ask('drop', 'l').ok()


@case('a server that is gone longer than a lease: the holder is told when that ends', own={})
def _(s, name):
    a = s.actor(watchdog=1500)
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    s.kill()
    a.lost('l')
    s.start()
    b = s.actor()
    b.lock('l', name)
    b.ask('take', 'l', 20000).ok()
    a.ask('drop', 'l').be('PAWL_ELOST')


@case('a wait that ended while the server was away leaves no place in the queue', own={})
def _(s, name):
    a, b = s.actor(watchdog=60000), s.actor(watchdog=1000, timeout=1000)
    for x in (a, b):
        x.lock('l', name)
    a.ask('take', 'l', 0).ok()
    b.send('acquire', 'l', 2500)
    until(lambda: s.waiters(name) == 1, 'for the place in the queue')
    s.kill()
    b.answer('acquire', 'l').be('PAWL_EUNKNOWN', 'PAWL_ECONN')
    time.sleep(2.5)  # longer than the lease that the acquire asked for
    s.start()
    until(lambda: s.connections_of(b), 'for the connection')
    until(lambda: s.waiters(name) == 0, 'for the place to be given up')


@case('connections that an administrator ends, again and again: nothing is lost')
def _(s, name):
    a, b = s.actor(watchdog=20000), s.actor(watchdog=20000)
    tokens = []
    for x in (a, b):
        x.lock('l', name)
    for round_ in range(12):
        holder, waiter = (a, b) if round_ % 2 == 0 else (b, a)
        if not tokens:
            tokens.append(holder.ask('take', 'l', 20000).ok().token)
        waiter.send('acquire', 'l', -1)
        s.kill_connections()
        release = holder.ask('drop', 'l')
        release.be('PAWL_OK', 'PAWL_EUNKNOWN')
        if release.code != 'PAWL_OK':  # then the lease ends by itself; break it to go on
            waiter.ask('sync')
        tokens.append(waiter.answer('acquire', 'l').ok().token)
    equal(tokens, sorted(set(tokens)), 'tokens:')
    equal(a.ask('stats').lost + b.ask('stats').lost, 0, 'lost:')


@case('a holder that is killed: the next one gets it when the lease ends')
def _(s, name):
    a, b = s.actor(watchdog=2000), s.actor()
    a.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up(name, [b])
    a.kill()
    begun = time.monotonic()
    assert b.answer('acquire', 'l').ok().token > token
    print(f'# after {time.monotonic() - begun:.2f} s')


@case('a waiter that is killed is passed, at no cost')
def _(s, name):
    a, b, c = s.actor(), s.actor(), s.actor()
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    s.queue_up(name, [b, c])
    b.kill()
    until(lambda: s.connections_of(b) == 0, 'for the server to notice')
    a.ask('drop', 'l').ok()
    c.answer('acquire', 'l').ok()
    equal(s.waiters(name), 0)


@case('a waiter that is stopped gets a claim, and is passed when that is over')
def _(s, name):
    a, b, c = s.actor(), s.actor(), s.actor()
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    s.queue_up(name, [b, c])
    b.stop()
    begun = time.monotonic()
    a.ask('drop', 'l').ok()
    c.answer('acquire', 'l').ok()
    waited = time.monotonic() - begun
    print(f'# after {waited:.2f} s')
    assert 1.5 < waited < 12, waited  # 2, 5, and a busy machine
    c.ask('drop', 'l').ok()
    b.resume()
    b.answer('acquire', 'l').ok()


@case('a holder that is stopped past its lease knows it when it goes on')
def _(s, name):
    a, b = s.actor(watchdog=1500), s.actor()
    a.lock('l', name)
    b.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    a.send('stopself', 'l')
    os.waitid(os.P_PID, a.pid, os.WSTOPPED | os.WNOWAIT)
    assert b.ask('take', 'l', 20000).ok().token > token
    a.signal(signal.SIGCONT)
    told = a.answer('stopself', 'l')
    equal((told.valid, told.held), (0, 0))
    a.lost('l')
    a.ask('drop', 'l').be('PAWL_ELOST')


@case('a server that is read only: refused with that reason, and served once it is not', own={})
def _(s, name):
    user = None
    if s.scheme == 'mysql':
        user = 'shop'
        s.user(user)
        s.schema()
        s.grant(user)
    a = s.actor(user=user)
    a.lock('l', name)
    a.ask('take', 'l', 20000).ok()
    s.read_only(True)
    s.kill_connections()
    fails(s.url(user), ['PAWL_ECONN', 'PAWL_ETIMEDOUT'], 'read.only')
    s.read_only(False)
    a.ask('drop', 'l', patience=20)
    b = s.actor(user=user)
    b.lock('l', name)
    b.ask('take', 'l', 40000).ok()


@case('tables that are dropped meanwhile are made again; the holder is told, tokens rise', own={})
def _(s, name):
    a, b = s.actor(watchdog=3000), s.actor()
    a.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up(name, [b])
    s.drop_tables()
    a.lost('l')
    assert b.answer('acquire', 'l').ok().token > token
    a.ask('drop', 'l').be('PAWL_ELOST')


@case('somebody\'s open transaction on one row delays that name, and no other')
def _(s, name):
    a = s.actor(watchdog=8000)
    for i in (1, 2):
        a.lock(f'l{i}', f'{name}/{i}')
        a.ask('take', f'l{i}', 0).ok()
        a.ask('drop', f'l{i}').ok()
    t = s.transaction(f"SELECT token FROM {s.prefix} WHERE name = '{name}/1' FOR UPDATE")
    try:
        failure = a.ask('take', 'l1', 1000)
        failure.be('PAWL_ECONN', 'PAWL_EUNKNOWN', 'PAWL_ETIMEDOUT')
        assert a.ask('take', 'l2', 20000).ok()
        a.ask('drop', 'l2').ok()
    finally:
        t.kill()
    a.ask('take', 'l1', 20000).ok()


@case('a close waits until cancelled waits have left the queue, although their row is locked')
def _(s, name):
    a, cancelled, waiting = s.actor(), s.actor(), s.actor()
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    s.queue_up(name, [cancelled, waiting])
    t = s.transaction(f"SELECT token FROM {s.prefix} WHERE name = '{name}' FOR UPDATE")
    try:
        cancelled.ask('cancel', 'l')
        cancelled.answer('acquire', 'l').be('PAWL_ECANCELED')
        cancelled.send('close')
        waiting.send('close')
        time.sleep(1)  # a close that does not wait is over by now
    finally:
        t.kill()
    cancelled.answer('close').ok()
    waiting.answer('close').ok()
    equal(s.waiters(name), 0, 'places in the queue:')


@case('rows that somebody has locked for long: every other lock of the clients lives on')
def _(s, name):
    clients = [s.actor(watchdog=3000, timeout=2000) for _ in range(3)]
    for n, a in enumerate(clients):
        a.lock('mine', f'{name}/mine {n}')
        a.ask('take', 'mine', 0).ok()
        a.lock('r', f'{name}/shared', kind='read')
        a.ask('take', 'r', 0).ok()
        for i in range(7):
            a.lock(f'l{i}', f'{name}/{i}')
    for i in range(7):  # InnoDB locks the row behind the range as well
        clients[0].ask('take', f'l{i}', 0).ok()
        clients[0].ask('drop', f'l{i}').ok()
    t = s.transaction(f"SELECT token FROM {s.prefix} WHERE name >= '{name}/0' AND name < "
                      f"'{name}/6' FOR UPDATE")
    try:
        for a in clients:
            for i in range(6):
                a.send('acquire', f'l{i}', 4000)
        until_renewed(clients, 5)
        b = clients[1]
        begun = time.monotonic()
        b.lock('other', f'{name}/x')
        for _ in range(5):
            b.ask('take', 'other', 5000).ok()
            b.ask('drop', 'other').ok()
        print(f'# five pairs of another name: {time.monotonic() - begun:.2f} s')
        for a in clients:
            for i in range(6):
                a.answer('acquire', f'l{i}').be('PAWL_ECONN', 'PAWL_EUNKNOWN', 'PAWL_ETIMEDOUT')
            stats = a.ask('stats')
            equal((stats.lost, stats.reconnects), (0, 0), 'lost and reconnects:')
    finally:
        t.kill()
    for i in range(6):
        b.ask('take', f'l{i}', 20000).ok()


@case('a burst of requests whose rows are locked holds up neither renewals nor releases')
def _(s, name):
    clients = [s.actor(watchdog=3000, timeout=2000) for _ in range(3)]
    rows = [f'{name}/{i:02}' for i in range(30)]
    own = {a: range(10 * n, 10 * n + 10) for n, a in enumerate(clients)}
    for a in clients:
        for i, row in enumerate(rows):
            a.lock(i, row, lease=600000)
        for i in own[a]:
            a.ask('take', i, 0).ok()
        for i in ('mine', 'spare'):
            a.lock(i, f'{name}/{a.pid} {i}')
            a.ask('take', i, 0).ok()
    t = s.transaction(*(f"SELECT token FROM {s.prefix} WHERE name = '{row}' FOR UPDATE"
                        for row in rows))  # InnoDB locks other rows with several, or with a range
    try:
        for a in clients:
            for i in set(range(30)) - set(own[a]):
                a.send('acquire', i, 4000)
            for i in own[a]:
                a.send('release', i)
        for a in clients:  # behind all of these
            a.ask('renew', 'mine', 3000).ok()
            a.ask('drop', 'spare').ok()
        for a in clients:
            for i in set(range(30)) - set(own[a]):
                a.answer('acquire', i).be('PAWL_ECONN', 'PAWL_EUNKNOWN', 'PAWL_ETIMEDOUT')
            for i in own[a]:
                a.answer('release', i).be('PAWL_ECONN', 'PAWL_EUNKNOWN')
            stats = a.ask('stats')
            equal((stats.lost, stats.reconnects), (0, 0), 'lost and reconnects:')
            equal(a.ask('held', 'mine').held, 1)
    finally:
        t.kill()
    for a in clients:
        a.ask('drop', 'mine').ok()


def until_renewed(clients, seconds):
    """A lease of 3 s is confirmed for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for a in clients:
            assert a.ask('valid', 'mine').valid > 0
        time.sleep(0.2)


@case('the row of a lock that is held is locked by somebody: no other of the batch is lost')
def _(s, name):
    a = s.actor(watchdog=3000, timeout=2000)
    for i in ('a', 'b', 'c'):
        a.lock(i, f'{name}/{i}')
        a.ask('take', i, 0).ok()
    t = s.transaction(f"SELECT token FROM {s.prefix} WHERE name = '{name}/b' FOR UPDATE")
    try:
        a.lost('b')
        end = time.monotonic() + 3
        while time.monotonic() < end:
            assert a.ask('valid', 'a').valid > 0 and a.ask('valid', 'c').valid > 0
            time.sleep(0.2)
    finally:
        t.kill()
    equal(a.ask('stats').lost, 1)


@case('somebody locks the rows of a batch in the opposite order: no deadlock, nothing is lost')
def _(s, name):
    a, b = s.actor(watchdog=3000), s.actor()
    for i in 'abc':
        a.lock(i, f'{name}/{i}')
        b.lock(i, f'{name}/{i}')
        a.ask('take', i, 0).ok()
    t = s.transaction()
    try:
        end = time.monotonic() + 4  # several renewals of all three
        while time.monotonic() < end:
            for i in 'cba':
                said = t.say(f"SELECT token FROM {s.prefix} WHERE name = '{name}/{i}' FOR UPDATE")
                assert t.process.poll() is None and 'eadlock' not in said, said
                b.send('acquire', i, 0)
            t.say('COMMIT')
            for i in 'abc':
                b.answer('acquire', i).be('PAWL_EBUSY')
            t.say('BEGIN')
    finally:
        t.kill()
    equal(a.ask('stats').lost, 0)
    for i in 'abc':
        a.ask('drop', i).ok()


def end_lease(s, name):
    """A lock with a long lease becomes free, and nobody is notified."""
    s.sql(f"UPDATE {s.prefix} SET expires = 1 WHERE name = '{name}'")
    return time.monotonic()


@case('a lock becomes free and nobody is notified: the next one has it within 5 s')
def _(s, name):
    for killed in (True, False):  # holder and front die together; a message is lost
        this = f'{name}/{killed}'
        a, b, c = s.actor(), s.actor(), s.actor()
        a.lock('l', this, lease=600000)
        a.ask('take', 'l', 0).ok()
        s.queue_up(this, [b, c])
        time.sleep(1)  # until the listeners are connected
        if killed:
            a.kill()
            b.kill()
            until(lambda: s.connections_of(b) == 0, 'for the server to notice')
        begun = end_lease(s, this)
        (c if killed else b).answer('acquire', 'l').ok()
        print(f'# after {time.monotonic() - begun:.2f} s')
        assert time.monotonic() - begun < 10  # 5, and a busy machine; it was 20


def next_in_time(s, name, waiters, claims, what):
    """The server is there again. One of the waiters has the lock in time; which."""
    ends = max(s.number(f"SELECT expires FROM {s.prefix} WHERE name = '{name}'"),
               time.time() * 1000)
    got, who = until(lambda: next(((a, w) for w in waiters if (a := w.have('acquire', 'l'))), None),
                     what)
    took = time.time() - ends / 1000
    print(f'# {what}: {took:.2f} s after the lease, or the server')
    assert got.ok() and took < 10 + 2 * claims  # 5, 1 between two attempts, and a busy machine
    return who


@case('the holder dies and the server restarts: the next one has it within 5 s of the lease',
      own={})
def _(s, name):
    a = s.actor(watchdog=4000, timeout=20000)
    b, c = s.actor(timeout=1000), s.actor(timeout=1000)
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    s.queue_up(name, [b, c])
    a.kill()
    s.restart()
    who = next_in_time(s, name, (b, c), 0, 'restarted')
    who.ask('drop', 'l').ok()
    (c if who is b else b).answer('acquire', 'l').ok()


@case('a server that goes back to an older state: its queue of ended acquires costs their claims',
      own={})
def _(s, name):
    a = s.actor(watchdog=8000, timeout=20000)  # its first exchange creates the tables
    crew = [s.actor(watchdog=8000, timeout=1000) for _ in range(4)]
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    s.queue_up(name, crew)
    s.kill()
    s.run('cp', '-a', s.data, s.data + '.old')
    s.start()
    for x in crew[:2]:  # in the older state, stale entries
        x.ask('cancel', 'l')
        x.answer('acquire', 'l').be('PAWL_ECANCELED', 'PAWL_EUNKNOWN')
    until(lambda: s.waiters(name) == 2, 'for two to leave')
    a.kill()
    s.kill()
    s.run('rm', '-r', s.data)
    s.run('mv', s.data + '.old', s.data)
    s.start()
    who = next_in_time(s, name, crew[2:], 2, 'behind two stale entries')
    who.ask('drop', 'l').ok()
    crew[3 if who is crew[2] else 2].answer('acquire', 'l').ok()


@case('the server\'s clock is set forward: the lease ends sooner, tokens tell the two apart',
      own={'steps_clock': True})
def _(s, name):
    a, b = s.actor(watchdog=30000), s.actor()
    a.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    s.step_clock(120)
    b.lock('l', name)
    assert b.ask('take', 'l', 20000).ok().token > token
    a.ask('renew', 'l', 30000).be('PAWL_ELOST', 'PAWL_ENOTHELD')


@case('the server\'s clock is set back: the lease lasts longer, tokens still rise',
      own={'steps_clock': True})
def _(s, name):
    a, b = s.actor(), s.actor()
    a.lock('l', name, lease=1500)
    token = a.ask('take', 'l', 0).ok().token
    s.step_clock(-3)
    a.lost('l')
    b.lock('l', name)
    begun = time.monotonic()
    assert b.ask('take', 'l', 40000).ok().token > token
    print(f'# after {time.monotonic() - begun:.2f} s')
    b.ask('drop', 'l').ok()
    s.step_clock(-3600)
    tokens = []
    for _ in range(3):
        tokens.append(b.ask('take', 'l', 0).ok().token)
        b.ask('drop', 'l').ok()
    assert token < tokens[0] < tokens[1] < tokens[2], tokens


@case('a frozen server: no answer in time; when it thaws the release counts, or the lease ends')
def _(s, name):
    a, b = s.actor(watchdog=6000, timeout=2000), s.actor()
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    s.queue_up(name, [b])
    s.pause()
    try:
        a.ask('drop', 'l', patience=20).be('PAWL_EUNKNOWN', 'PAWL_ECONN')
    finally:
        s.resume()
    b.answer('acquire', 'l').ok()


if __name__ == '__main__':
    sys.exit(run())
