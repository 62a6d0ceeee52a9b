#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_advisory.py postgres [PART]: layout=advisory beside programs that call pg_advisory_lock(),
and the effect of each fault of docs/sql.md, section 9."""
import os
import signal
import sys
import time
from urllib.parse import unquote

import cases
from bouncer import Bouncer
from cases import equal, run
from pairs import Proxy
from scenes import fails, freeze, thaw
from server import Actor, until

KEY = "('x' || encode(substr(sha256(convert_to('%s', 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint"


def actor(s, label='', user=None, timeout=10000, **params):
    return Actor(s.url(user, layout='advisory', timeout=timeout, **params), label)


def number(s, text):
    """On a session that stays, since this is asked often."""
    monitor = getattr(s, 'monitor', None)
    if not monitor or s.monitored != s.process.pid:
        s.monitor, s.monitored = s.transaction('COMMIT'), s.process.pid
    return int(s.monitor.say(text))


def sessions(s):
    return number(s, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pawl%'")


def waiting(s):
    return number(s, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")


def end_sessions(s, where='true'):
    s.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE "
          f"'pawl%' AND {where}")


def waits(s, a, name='l'):
    """It asks, and has come to wait."""
    before = waiting(s)
    a.send('acquire', name, -1)
    until(lambda: waiting(s) == before + 1, 'for the server\'s queue')


def case(sentence, **options):
    """One that begins without the sessions of the one before."""
    def add(function):
        def alone(s, name):
            until(lambda: not sessions(s), 'for the sessions of the case before')
            function(s, name)
        return cases.case(sentence, **options)(alone)
    return add


@case('a session that calls pg_advisory_lock() excludes us, and ours excludes it: numbers, pairs '
      'of numbers, and hashed names')
def _(s, name):
    names = {'4711': '4711', '-9223372036854775808': "'-9223372036854775808'::bigint",
             '7:-8': '7, -8', 'stock:42': KEY % 'stock:42', '007': KEY % '007',
             'käse': KEY % 'käse', name: KEY % name}
    a, t = actor(s), s.transaction('COMMIT')
    for i, (ours, theirs) in enumerate(names.items()):
        a.lock(f'l{i}', ours)
        equal(t.say(f'SELECT pg_try_advisory_lock({theirs})').strip(), 't')
        a.ask('take', f'l{i}', 0).be('PAWL_EBUSY')
        t.say(f'SELECT pg_advisory_unlock({theirs})')
        a.ask('take', f'l{i}', 0).ok()
        equal(t.say(f'SELECT pg_try_advisory_lock({theirs})').strip(), 'f')
        a.ask('drop', f'l{i}').ok()
        equal(t.say(f'SELECT pg_try_advisory_lock({theirs})').strip(), 't')
    t.kill()


@case('shared and exclusive: readers of both kinds read together, writers of both are alone')
def _(s, name):
    a, t = actor(s), s.transaction('COMMIT')
    a.lock('r', '77', kind='read')
    a.lock('w', '77', kind='write')
    t.say('SELECT pg_advisory_lock_shared(77)')
    a.ask('take', 'r', 0).ok()
    a.ask('drop', 'r').ok()
    a.ask('take', 'w', 0).be('PAWL_EBUSY')
    a.send('take', 'w', 20000)
    until(lambda: waiting(s) == 1)
    t.say('SELECT pg_advisory_unlock_shared(77)')
    a.answer('take', 'w').ok()
    equal(t.say('SELECT pg_try_advisory_lock_shared(77)').strip(), 'f')
    a.ask('drop', 'w').ok()
    a.ask('take', 'r', 0).ok()
    equal(t.say('SELECT pg_try_advisory_lock_shared(77)').strip(), 't')
    t.say('SELECT pg_advisory_unlock_shared(77)')
    equal(t.say('SELECT pg_try_advisory_lock(77)').strip(), 'f')
    t.kill()


@case('we wait for a session, and a session for us, in the order in which we came')
def _(s, name):
    a, b, t = actor(s), actor(s), s.transaction('COMMIT')
    for x in (a, b):
        x.lock('l', '78')
    a.ask('take', 'l', 0).ok()
    t.start('SELECT pg_advisory_lock(78)')
    until(lambda: waiting(s) == 1)
    waits(s, b)
    a.ask('drop', 'l').ok()
    until(lambda: waiting(s) == 1)
    assert not b.have('acquire', 'l')
    t.say('SELECT pg_advisory_unlock(78)')
    b.answer('acquire', 'l').ok()
    t.kill()


@case('who holds and who waits: names, tokens, labels; sessions of others as far as one can tell')
def _(s, name):
    s.user('shop')
    a, b, t = actor(s, 'till 7'), actor(s, user='shop'), s.transaction('SELECT pg_advisory_lock(5)')
    a.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    rows = a.rows('show', name.replace(' ', '%20'))
    equal([(r.pid, r.token, r.label) for r in rows], [(a.pid, token, 'till 7')] * 2)
    names = {unquote(r.id): r for r in a.rows('ls')}
    assert {name, '5'} <= set(names), names
    equal(names['5'].program, 'psql')
    for r in b.rows('show', name.replace(' ', '%20')):  # may not see statements of another user
        equal((r.pid, r.token), (a.pid, token))
    b.lock('l', name)
    b.ask('break', 'l').be('PAWL_EAUTH')
    a.lock('five', '5')
    a.ask('break', 'five').ok()
    a.ask('take', 'five', 0).ok()
    t.kill()


@case('a holder that is killed frees the lock at once, long before its lease ends')
def _(s, name):
    a, b = actor(s, watchdog=600000), actor(s)
    for x in (a, b):
        x.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    waits(s, b)
    a.kill()
    assert b.answer('acquire', 'l').ok().token > token


@case('a holder that is stopped past its lease loses it by the server\'s clock, and knows it then')
def _(s, name):
    a, b = actor(s, watchdog=1500), actor(s)
    for x in (a, b):
        x.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    time.sleep(1)  # it was renewed since
    a.send('stopself', 'l')
    os.waitid(os.P_PID, a.pid, os.WSTOPPED | os.WNOWAIT)
    begun = time.monotonic()
    assert b.ask('take', 'l', 20000).ok().token > token
    print(f'# after {time.monotonic() - begun:.2f} s')
    a.signal(signal.SIGCONT)
    told = a.answer('stopself', 'l')
    equal((told.valid, told.held), (0, 0))
    a.lost('l')
    a.ask('drop', 'l').be('PAWL_ELOST')


@case('a waiter that is killed leaves the queue when the server next looks for it')
def _(s, name):
    a, b, c = actor(s), actor(s), actor(s)
    for x in (a, b):
        x.lock('l', name, kind='write')
    c.lock('l', name, kind='read')
    a.lock('r', name, kind='read')
    a.ask('take', 'r', 0).ok()
    waits(s, b)
    b.kill()
    c.ask('take', 'l', 20000).ok()  # it would not get past a writer that waits
    equal(waiting(s), 0)


@case('a waiter whose connection dies silently asks again over a new connection')
def _(s, name):
    p = Proxy(s.port)
    try:
        a = actor(s)
        b = Actor(s.url(port=p.port, layout='advisory', timeout=1000, watchdog=2000))
        for x in (a, b):
            x.lock('l', name)
        a.ask('take', 'l', 0).ok()
        waits(s, b)
        p.freeze()
        a.ask('drop', 'l').ok()
        b.answer('acquire', 'l').ok()
        equal(b.ask('held', 'l').held, 1)
        a.ask('take', 'l', 0).be('PAWL_EBUSY')
    finally:
        p.close()


@case('a waiter that is stopped gets the lock, and loses it when its lease ends')
def _(s, name):
    a, b, c = actor(s), actor(s, watchdog=1500), actor(s)
    for x in (a, b, c):
        x.lock('l', name)
    a.ask('take', 'l', 0).ok()
    waits(s, b)
    waits(s, c)
    b.stop()
    a.ask('drop', 'l').ok()
    begun = time.monotonic()
    c.answer('acquire', 'l').ok()
    assert time.monotonic() - begun > 1.4
    c.ask('drop', 'l').ok()
    b.resume()
    got = b.answer('acquire', 'l').ok()  # the old grant, which is over, or a new one
    if got.valid:
        b.send('release', 'l')
        b.answer('release', 'l').be('PAWL_OK', 'PAWL_ELOST')
    a.ask('take', 'l', 20000).ok()


@case('a wait that is cancelled, or whose time is over, leaves nothing; its connection serves on')
def _(s, name):
    a, b = actor(s), actor(s)
    a.lock('r', name, kind='read')
    b.lock('w', name, kind='write')
    b.lock('r', name, kind='read')
    a.ask('take', 'r', 0).ok()
    for n in range(10):
        if n % 2:
            b.ask('take', 'w', 300).be('PAWL_ETIMEDOUT')
        else:
            waits(s, b, 'w')
            b.send('cancel', 'w')
            b.answer('acquire', 'w').be('PAWL_ECANCELED')
        until(lambda: not waiting(s), 'for an empty queue')
        b.ask('take', 'r', 0).ok()
        b.ask('drop', 'r').ok()
    a.ask('drop', 'r').ok()
    b.ask('take', 'w', 0).ok()
    print(f'# {sessions(s)} sessions')


@case('cancels at the moment of the grant: nobody holds what nobody has')
def _(s, name):
    a, b = actor(s), actor(s)
    for x in (a, b):
        x.lock('l', name)
    outcomes = {}
    for n in range(30):
        a.ask('take', 'l', 20000).ok()
        waits(s, b)
        a.send('drop', 'l')
        time.sleep(n * 5e-5)
        b.send('cancel', 'l')
        a.answer('drop', 'l').ok()
        got = b.answer('acquire', 'l').be('PAWL_OK', 'PAWL_ECANCELED').code
        outcomes[got] = outcomes.get(got, 0) + 1
        if got == 'PAWL_OK':
            b.ask('drop', 'l').ok()
    print(f'# {outcomes}')
    a.ask('take', 'l', 20000).ok()


@case('connections that an administrator ends: holders are told at once, waiters wait on')
def _(s, name):
    a, b = actor(s, watchdog=600000), actor(s)
    for x in (a, b):
        x.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    waits(s, b)
    end_sessions(s, "wait_event_type = 'Lock'")
    until(lambda: waiting(s) == 1, 'for the waiter to come back')
    end_sessions(s, "wait_event_type <> 'Lock'")
    a.lost('l')
    assert b.answer('acquire', 'l').ok().token > token
    a.ask('drop', 'l').be('PAWL_ELOST')
    a.ask('take', 'l', 0).be('PAWL_EBUSY')


@case('an administrator cancels the statement that waits: it is asked again')
def _(s, name):
    a, b = actor(s), actor(s)
    for x in (a, b):
        x.lock('l', name)
    a.ask('take', 'l', 0).ok()
    waits(s, b)
    for _ in range(3):
        s.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        until(lambda: waiting(s) == 1, 'for the waiter to come back')
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()
    b.ask('drop', 'l').ok()
    a.ask('take', 'l', 0).ok()


@case('a waiter whose statement is cancelled does not take the lock from the next in line')
def _(s, name):
    b, a = actor(s), actor(s, connections=1)
    for x in (a, b):
        x.lock('l', name)
        x.lock('k', name + '/free')
    b.ask('take', 'l', 0).ok()
    waits(s, a)
    a.send('acquire', 'k', 20000)  # waits for the only connection
    s.sql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    a.answer('acquire', 'k').ok()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        b.ask('take', 'k', 0).be('PAWL_EBUSY')
    a.ask('drop', 'k').ok()
    b.ask('drop', 'l').ok()
    a.answer('acquire', 'l').ok()


@case('a server that crashes: holders are told at once, the next one has a larger token, each time',
      own={})
def _(s, name):
    a, b = actor(s, watchdog=600000), actor(s)
    for x in (a, b):
        x.lock('l', name)
    tokens = []
    for _ in range(2):
        tokens.append(a.ask('take', 'l', 60000).ok().token)
        waits(s, b)
        s.kill()
        a.lost('l')
        s.start()
        tokens.append(b.answer('acquire', 'l').ok().token)
        a.ask('drop', 'l').be('PAWL_ELOST')
        b.ask('drop', 'l').ok()
    equal(tokens, sorted(set(tokens)), 'tokens:')


@case('a frozen server: what is held stays held for its lease; a release without an answer is '
      'unknown, and nothing is left of it')
def _(s, name):
    a, b = actor(s, watchdog=5000, timeout=700), actor(s)
    for x in (a, b):
        x.lock('l', name)
    a.ask('take', 'l', 0).ok()
    freeze(s)
    try:
        time.sleep(2.5)  # a renewal was sent, and is late
        equal(a.ask('held', 'l').held, 1)
    finally:
        thaw(s)
    until(lambda: a.ask('valid', 'l').valid > 4000, 'for a renewal')
    freeze(s)
    try:
        a.ask('drop', 'l', patience=20).be('PAWL_EUNKNOWN')
    finally:
        thaw(s)
    equal(a.ask('stats').lost, 0)
    b.ask('take', 'l', 20000).ok()


@case('no more connections than allowed: who finds none waits in the client, who may not is told')
def _(s, name):
    a = actor(s, connections=2)
    for i in range(8):
        a.lock(f'l{i}', f'{name}/{i}')
    for i in range(2):
        a.ask('take', f'l{i}', 0).ok()
    for i in range(2, 7):
        a.send('acquire', f'l{i}', -1)
    b = actor(s, connections=2, timeout=500)
    for i in range(3):
        b.lock(f'l{i}', f'{name}/b{i}')
    for i in range(2):
        b.ask('take', f'l{i}', 0).ok()
    failure = b.ask('take', 'l2', 0)
    failure.be('PAWL_ECONN')
    assert 'connections' in failure.words, failure.words
    assert not any(a.have('acquire', f'l{i}') for i in range(2, 7))
    equal(sessions(s), 4)
    a.send('cancel', 'l3')
    a.answer('acquire', 'l3').be('PAWL_ECANCELED')
    for i, following in ((0, 2), (1, 4), (2, 5), (4, 6)):
        a.send('release', f'l{i}') if i > 1 else a.send('drop', f'l{i}')
        a.answer('release' if i > 1 else 'drop', f'l{i}').ok()
        a.answer('acquire', f'l{following}').ok()


@case('connections that nobody needs are closed')
def _(s, name):
    a = actor(s, watchdog=2000)
    logged = os.path.getsize(s.log)
    for i in range(3):
        a.lock(f'l{i}', f'{name}/{i}')
        a.ask('take', f'l{i}', 0).ok()
    equal(sessions(s), 3)
    for i in range(3):
        a.ask('drop', f'l{i}').ok()
    until(lambda: not sessions(s), 'for the connections to end', 20)
    with open(s.log, errors='replace') as log:
        log.seek(logged)
        ended = [line for line in log if 'idle-session timeout' in line]
    print(f'# {len(ended)} of 3 by the server')


@case('what this layout has not is refused in words')
def _(s, name):
    a = actor(s)
    for verb in ('sem', 'latch'):
        a.ask(verb, 'x', 'n', 'permits=1').be('PAWL_ENOTSUP')
    for params, words in (({'pooler': 'transaction'}, 'sessions'), ({'prefix': 'x'}, 'table'),
                          ({'connections': '0'}, 'connections'), ({'connections': 'x'}, 'number')):
        fails(s.url(layout='advisory', **params), ['PAWL_EINVAL'], words)
    fails(s.url(layout='other'), ['PAWL_EINVAL'], 'layout')


@case('behind PgBouncer: noticed; session pooling works if one says so, transaction pooling does '
      'not')
def _(s, name):
    for mode in ('session', 'transaction'):
        p = Bouncer(s, mode)
        try:
            fails(p.url(layout='advisory'), ['PAWL_EINVAL'], 'pooler')
            if mode == 'session':
                a, b = (Actor(p.url(layout='advisory', pooler='session', timeout=10000))
                        for _ in range(2))
                for x in (a, b):
                    x.lock('l', name)
                a.ask('take', 'l', 0).ok()
                waits(s, b)
                a.kill()
                b.answer('acquire', 'l').ok()
                b.close()
        finally:
            p.stop()


@case('a connection that can\'t be given back is closed, and who gets its seat is served')
def _(s, name):
    b, a = s.actor(layout='advisory'), s.actor(layout='advisory', connections=1)
    b.lock('l', name)
    b.ask('take', 'l', 0).ok()
    a.lock('l', name)
    a.lock('k', name + '/free')
    a.send('acquire', 'l', 2000)
    waits = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    pid = int(until(lambda: s.sql(waits).strip(), 'for the wait'))
    os.kill(pid, signal.SIGSTOP)
    try:
        a.send('acquire', 'k', 20000)
        a.answer('acquire', 'l').be('PAWL_ETIMEDOUT')
        a.answer('acquire', 'k').ok()
    finally:
        os.kill(pid, signal.SIGCONT)


if __name__ == '__main__':
    sys.exit(run(*sys.argv[1:]))
