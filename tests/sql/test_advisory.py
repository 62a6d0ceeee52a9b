#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_advisory.py postgres [PART]: layout=advisory beside programs that call pg_advisory_lock(),
and the effect of each fault of docs/sql.md, section 9."""
import os
import signal
import sys
from urllib.parse import unquote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor, boot_ns  # noqa: E402
from bouncer import Bouncer  # noqa: E402
from cases import equal  # noqa: E402
from failures import fails  # noqa: E402
from session_locks import SessionLayout  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402

KEY = "('x' || encode(substr(sha256(convert_to('%s', 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint"


def end(s, which, statement=False):
    how = 'pg_cancel_backend' if statement else 'pg_terminate_backend'
    return s.number(f"SELECT count({how}(pid)) FROM pg_stat_activity WHERE application_name LIKE 'pawl%' "
                    f"AND wait_event_type {'=' if which == 'waits' else '<>'} 'Lock'")


layout = SessionLayout(
    'advisory', "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pawl%'",
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", end, notices=2, late=0)
actor, number, sessions, waiting = layout.actor, layout.number, layout.sessions, layout.waiting
waits, case = layout.waits, layout.case


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


@case('a waiter that is killed leaves the queue when the server next looks for it')
def _(s, name):
    a, b, c = actor(s), actor(s), actor(s)
    for x in (a, b):
        x.lock('l', name, kind='write')
    c.lock('l', name, kind='read')
    a.lock('r', name, kind='read')
    a.ask('take', 'r', 0).ok()
    waits(s, b)
    begun = boot_ns()
    b.kill()
    got = c.ask('take', 'l', 20000).ok()  # it would not get past a writer that waits
    layout.within(layout.notices, begun, got.ns)
    equal(waiting(s), 0)


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


@case('a connection that can\'t be given back is closed, and who gets its place is served')
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


layout.add_cases()

if __name__ == '__main__':
    sys.exit(run())
