#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_faults.py postgres|mysql [PART]: what comes of each fault of docs/sql.md. Nothing is lost
that the page does not say is lost."""
import os
import signal
import sys
import time

from cases import case, equal, run
from scenes import fails, freeze, queue_up, thaw
from server import until


@case('a server that is killed and restarted: the holder holds on, waiters keep their order',
      own={})
def _(s, name):
    a, waiters = s.actor(watchdog=20000), [s.actor() for _ in range(3)]
    a.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    queue_up(s, name, waiters)
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
    queue_up(s, name, [b])
    a.kill()
    begun = time.monotonic()
    assert b.answer('acquire', 'l').ok().token > token
    print(f'# after {time.monotonic() - begun:.2f} s')


@case('a waiter that is killed is passed, at no cost')
def _(s, name):
    a, b, c = s.actor(), s.actor(), s.actor()
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    queue_up(s, name, [b, c])
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
    queue_up(s, name, [b, c])
    b.stop()
    begun = time.monotonic()
    a.ask('drop', 'l').ok()
    c.answer('acquire', 'l').ok()
    waited = time.monotonic() - begun
    print(f'# after {waited:.2f} s')
    assert waited > 1.5, waited
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
    queue_up(s, name, [b])
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


@case('a deadlock with somebody\'s transaction: one of the two goes on, nothing is lost',
      own={'postgres': ('-c', 'deadlock_timeout=100ms')})
def _(s, name):
    a = s.actor(watchdog=9000)
    for i in ('a', 'b'):
        a.lock(i, f'{name}/{i}')
        a.ask('take', i, 0).ok()
    lock = f"SELECT token FROM {s.prefix} WHERE name = '{name}/%s' FOR UPDATE"
    t = s.transaction(lock % 'b')
    try:
        # The renewal of both, in one statement, has a and waits for b.
        until(lambda: waits_for_row(s), 'for the renewal', 30)
        said = t.say(lock % 'a')
        print(f'# the transaction was told: {said.strip()[-100:]!r}')
    finally:
        t.kill()
    until(lambda: a.ask('valid', 'a').valid > 6500 and a.ask('valid', 'b').valid > 6500,
          'for a renewal that is confirmed', 20)
    equal(a.ask('stats').lost, 0)


def waits_for_row(s):
    if s.scheme == 'postgres':
        return s.number("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    return int(s.sql("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'").split()[1])


@case('the server\'s clock is set forward: the lease ends sooner, tokens tell the two apart',
      own={'clock': True})
def _(s, name):
    a, b = s.actor(watchdog=30000), s.actor()
    a.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    s.step_clock(120)
    b.lock('l', name)
    assert b.ask('take', 'l', 20000).ok().token > token
    a.ask('renew', 'l', 30000).be('PAWL_ELOST', 'PAWL_ENOTHELD')


@case('the server\'s clock is set back: the lease lasts longer, tokens still rise',
      own={'clock': True})
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
    queue_up(s, name, [b])
    freeze(s)
    try:
        a.ask('drop', 'l', patience=20).be('PAWL_EUNKNOWN', 'PAWL_ECONN')
    finally:
        thaw(s)
    b.answer('acquire', 'l').ok()


if __name__ == '__main__':
    sys.exit(run(*sys.argv[1:]))
