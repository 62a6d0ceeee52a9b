#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_session.py mysql [PART]: layout=session beside programs that call GET_LOCK(), and the outcome
of each fault of docs/sql.md, section 10."""
import hashlib
import os
import sys
import time
from urllib.parse import unquote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor, boot_ns  # noqa: E402
from cases import equal  # noqa: E402
from failures import fails  # noqa: E402
from session_locks import SessionLayout  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402


def end(s, which, statement=False):
    where = "state = 'User lock' AND info LIKE '/* pawl %'" if which == 'waits' else "command = 'Sleep'"
    ids = s.sql("SELECT id FROM information_schema.processlist WHERE db = 'pawl' AND host LIKE "
                f"'127.0.0.1:%' AND {where}").split()
    for each in ids:
        s.sql(f'KILL {"QUERY" if statement else ""} {each}')
    return len(ids)


layout = SessionLayout(
    'session', "SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'pawl' AND host LIKE "
    "'127.0.0.1:%'", "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'",
    end, notices=1, late=1)
actor, number, sessions, waiting = layout.actor, layout.number, layout.sessions, layout.waiting
waits, pair, case = layout.waits, layout.pair, layout.case


def digest(name):
    return 'pawl:' + hashlib.sha256(name.encode()).hexdigest()[:56]


@case('a session that calls GET_LOCK() excludes us, and ours excludes it: names that are taken as '
      'they are, and digests')
def _(s, name):
    names = {'stock:42': 'stock:42', name: name, 'it\'s "quoted" \\ %': None, 'x' * 64: 'x' * 64,
             'Orders': digest('Orders') if s.is_mysql() else 'Orders',
             'y' * 192: digest('y' * 192) if s.is_mysql() else 'y' * 192,
             'käse': digest('käse') if s.is_mysql() else 'käse',
             'z' * 193: digest('z' * 193), 'pawl:making': digest('pawl:making'),
             'pawl:0123456789abcdef': digest('pawl:0123456789abcdef')}
    a, t = actor(s), s.transaction('COMMIT')
    for i, (ours, theirs) in enumerate(names.items()):
        call = f"(x'{(theirs or ours).encode().hex()}'"
        a.lock(f'l{i}', ours)
        equal(t.say(f'SELECT GET_LOCK{call}, 0)').strip(), '1', ours)
        a.ask('take', f'l{i}', 0).be('PAWL_EBUSY')
        t.say(f'DO RELEASE_LOCK{call})')
        a.ask('take', f'l{i}', 0).ok()
        equal(t.say(f'SELECT GET_LOCK{call}, 0)').strip(), '0', ours)
        a.ask('drop', f'l{i}').ok()
        equal(t.say(f'SELECT GET_LOCK{call}, 0), RELEASE_LOCK{call})').split(), ['1', '1'], ours)
    t.kill()


@case('names that differ in case are different locks')
def _(s, name):
    a = actor(s)
    for lock, called in (('l', 'case'), ('m', 'Case'), ('n', 'CASE')):
        a.lock(lock, called)
        a.ask('take', lock, 0).ok()


@case('we wait for a session, and a session for us, in the order in which we came')
def _(s, name):
    a, b = pair(s, '78')
    t = s.transaction('COMMIT')
    a.ask('take', 'l', 0).ok()
    t.start("DO GET_LOCK('78', 60)")
    until(lambda: waiting(s) == 1)
    waits(s, b)
    a.ask('drop', 'l').ok()
    until(lambda: waiting(s) == 1)
    assert not b.have('acquire', 'l')
    t.say("DO RELEASE_LOCK('78')")
    b.answer('acquire', 'l').ok()
    t.kill()


@case('who holds and who waits: names, tokens, labels; sessions of others as far as one can tell')
def _(s, name):
    s.user('shop')
    s.grant('shop', 'session')
    a, b = actor(s, 'till 7'), actor(s, user='shop')
    a.lock('l', name)
    token = a.ask('take', 'l', 0).ok().token
    quoted = name.replace(' ', '%20')
    for x in (a, b):  # the table describes the holder to every user
        equal([(r.pid, r.token, r.label) for r in x.rows('show', quoted)],
              [(a.pid, token, 'till 7')] * 2)
    c = actor(s, 'till 8')
    c.lock('l', name)
    waits(s, c)
    assert 'till 8' in [r.label for r in a.rows('show', quoted)]
    assert name in [unquote(r.id) for r in a.rows('ls')]
    b.lock('l', name)
    assert 'CONNECTION ADMIN' in b.ask('break', 'l').be('PAWL_EAUTH').words
    c.send('cancel', 'l')
    c.answer('acquire', 'l').be('PAWL_ECANCELED')
    a.ask('drop', 'l').ok()
    t = s.transaction(f"COMMIT; DO GET_LOCK('{name}', 0)")  # the row of `a` says nothing about it
    (shown,) = [r for r in a.rows('show', quoted)][1:]
    equal((shown.program, shown.token), ('user root', 0))
    a.ask('break', 'l').ok()
    a.ask('take', 'l', 0).ok()
    t.kill()
    a.ask('drop', 'l').ok()
    a.ask('break', 'l').be('PAWL_ENOTHELD')


@case('a waiter that is killed leaves the queue when the server next looks for it')
def _(s, name):
    a, b = pair(s, name)
    a.ask('take', 'l', 0).ok()
    waits(s, b)
    begun = boot_ns()
    b.kill()
    until(lambda: not waiting(s), 'for the end of the wait')
    layout.within(layout.notices, begun, boot_ns())


@case('a wait that is cancelled, or whose time is over, leaves nothing; its connection is used again')
def _(s, name):
    a, b = pair(s, name)
    b.lock('m', name + '/free')
    a.ask('take', 'l', 0).ok()
    for n in range(10):
        if n % 2:
            b.ask('take', 'l', 300).be('PAWL_ETIMEDOUT')
        else:
            waits(s, b)
            b.send('cancel', 'l')
            b.answer('acquire', 'l').be('PAWL_ECANCELED')
        until(lambda: not waiting(s), 'for an empty queue')
        b.ask('take', 'm', 0).ok()
        b.ask('drop', 'm').ok()
    until(lambda: sessions(s) == 3, 'for one session of each, and one that cancels')
    a.ask('drop', 'l').ok()
    b.ask('take', 'l', 0).ok()


@case('the server\'s clock is set back by an hour: tokens rise', own={'steps_clock': True})
def _(s, name):
    a, b = pair(s, name)
    token = a.ask('take', 'l', 0).ok().token
    a.ask('drop', 'l').ok()
    s.step_clock(-3600)
    assert b.ask('take', 'l', 0).ok().token > token


@case('a transaction that keeps a row of the table locked delays that name alone, and leaves no lock')
def _(s, name):
    a, b = actor(s, timeout=3000), actor(s)
    for x in (a, b):
        x.lock('l', name)
        x.lock('m', name + '/free')
    a.ask('take', 'l', 0).ok()
    a.ask('drop', 'l').ok()
    t = s.transaction('SELECT * FROM distributed_lock_session WHERE '
                      f"lock_name = '{name}' FOR UPDATE")
    a.ask('take', 'l', 4000, patience=30).be('PAWL_ECONN', 'PAWL_ETIMEDOUT')
    a.ask('take', 'm', 0).ok()
    t.kill()
    b.ask('take', 'l', 20000).ok()


@case('global settings that limit the statements of other programs do not limit locks, in both '
      'layouts')
def _(s, name):
    limits = {'sql_safe_updates': 1, 'max_join_size': 1, 'wait_timeout': 1, 'interactive_timeout': 1,
              'lock_wait_timeout': 1, 'innodb_lock_wait_timeout': 1,
              'max_execution_time' if s.is_mysql() else 'max_statement_time': 1}
    for limit, value in limits.items():
        s.sql(f'SET GLOBAL {limit} = {value}')
    try:
        for layout in ('session', 'pawl'):
            a, b = (Actor(s.url(layout=layout, timeout=10000)) for _ in range(2))
            for x in (a, b):
                x.lock('l', name)
            a.ask('take', 'l', 20000).ok()
            b.send('acquire', 'l', -1)
            time.sleep(2.5)  # longer than the limits
            equal(len(a.rows('show', name.replace(' ', '%20'))), 3, layout)
            a.ask('drop', 'l').ok()
            b.answer('acquire', 'l').ok()
    finally:
        for limit in limits:
            s.sql(f'SET GLOBAL {limit} = DEFAULT')


@case('a renewal with another lease does not depend on the table, which only shows the lease')
def _(s, name):
    a = actor(s)
    a.lock('l', name, lease=4000)
    row = f"SELECT * FROM distributed_lock_session WHERE lock_name = '{name}' FOR UPDATE"
    for block, unblock in (('COMMIT', None), (row, None), ('FLUSH TABLES WITH READ LOCK', None),
                           ('RENAME TABLE distributed_lock_session TO elsewhere',
                            'RENAME TABLE elsewhere TO distributed_lock_session')):
        a.ask('take', 'l', 20000).ok()
        t = s.transaction(block)
        try:
            a.ask('renew', 'l', 60000).ok()
            assert a.ask('valid', 'l').valid > 40000
            if block == 'COMMIT':
                until(lambda: a.rows('show', name.replace(' ', '%20'))[0].lease > 40000)
            a.ask('drop', 'l').ok()
        finally:
            t.kill()
            if unblock:
                s.sql(unblock)


@case('connections that nobody needs are closed; old rows are deleted, rows of locks in use are not')
def _(s, name):
    a, b = actor(s, watchdog=2000), actor(s)
    t = s.transaction("COMMIT; DO GET_LOCK('old but held', 0)")
    for old in ('old', 'old but held'):
        s.sql('INSERT INTO distributed_lock_session VALUES '
              f"('{old}', '{old}', 1, 1, 1, 1, 1, '', '', '')")
    b.lock('l', name + '/first')
    b.ask('take', 'l', 0).ok()
    b.ask('drop', 'l').ok()
    until(lambda: number(s, "SELECT COUNT(*) FROM distributed_lock_session WHERE name = 'old'") == 0)
    equal(s.sql('SELECT name FROM distributed_lock_session WHERE since = 1').strip(), 'old but held')
    b.close()
    for i in range(3):
        a.lock(f'l{i}', f'{name}/{i}')
        a.ask('take', f'l{i}', 0).ok()
    equal(sessions(s), 3)
    for i in range(3):
        a.ask('drop', f'l{i}').ok()
    until(lambda: not sessions(s), 'for the connections to end', 20)
    t.kill()


@case('what this layout has not is refused, and the error says so')
def _(s, name):
    a = actor(s)
    for verb in ('sem', 'latch'):
        a.ask(verb, 'x', 'n', 'permits=1').be('PAWL_ENOTSUP')
    for params, words in (({'connections': '0'}, 'connections'), ({'connections': 'x'}, 'number'),
                          ({'prefix': 'X'}, 'prefix')):
        fails(s.url(layout='session', **params), ['PAWL_EINVAL'], words)
    for layout in ('advisory', 'other'):
        fails(s.url(layout=layout), ['PAWL_EINVAL'], 'pawl .* or session')
    s.read_only(True)
    try:
        fails(s.url(layout='session', timeout=500), ['PAWL_ECONN', 'PAWL_ETIMEDOUT'], 'read only')
    finally:
        s.read_only(False)


@case('the table is created if it is missing and that is allowed; else the error names the file',
      own={})
def _(s, name):
    s.user('shop')
    fails(s.url('shop', layout='session'), ['PAWL_EAUTH'], 'distributed_lock_session')
    s.sql('GRANT SELECT, INSERT, UPDATE, DELETE ON pawl.* TO shop')
    fails(s.url('shop', layout='session'), ['PAWL_EAUTH'], r'share/pawl/mysql-session\.sql')
    a = actor(s, prefix='other')
    a.lock('l', name)
    a.ask('take', 'l', 0).ok()
    equal(s.number('SELECT COUNT(*) FROM other_session'), 1)
    s.sql('CREATE VIEW distributed_lock_session AS SELECT * FROM other_session')
    fails(s.url(layout='session'), ['PAWL_EAUTH'], 'no table but a view')


layout.add_cases()

if __name__ == '__main__':
    sys.exit(run())
