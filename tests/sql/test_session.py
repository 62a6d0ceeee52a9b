#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_session.py mysql [PART]: layout=session beside programs that call GET_LOCK(), and the outcome
of each fault of docs/sql.md, section 10."""
import hashlib
import os
import signal
import sys
import time
from urllib.parse import unquote

import cases
from cases import equal, run
from pairs import Proxy
from scenes import fails, freeze, thaw
from server import Actor, until

SESSIONS = ("SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'pawl' AND host LIKE "
            "'127.0.0.1:%'")
WAITS = "state = 'User lock' AND info LIKE '/* pawl %'"


def actor(s, label='', user=None, timeout=10000, **params):
    return Actor(s.url(user, layout='session', timeout=timeout, **params), label)


def number(s, text):
    """On a session that stays, because this is asked often."""
    if not getattr(s, 'monitor', None) or s.monitored != s.process.pid:
        s.monitor, s.monitored = s.transaction('COMMIT'), s.process.pid
    return int(s.monitor.say(text))


def sessions(s):
    return number(s, SESSIONS)


def waiting(s):
    return number(s, "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'")


def end_sessions(s, where, how='KILL'):
    ids = s.sql("SELECT id FROM information_schema.processlist WHERE db = 'pawl' AND host LIKE "
                f"'127.0.0.1:%' AND {where}").split()
    for each in ids:
        s.sql(f'{how} {each}')
    return len(ids)


def waits(s, a, lock='l'):
    """Ask, and wait until the statement waits in the server."""
    before = waiting(s)
    a.send('acquire', lock, -1)
    until(lambda: waiting(s) == before + 1, 'for the server\'s queue')


def pair(s, name, first=None):
    """Two clients with a lock of that name."""
    both = actor(s, **(first or {})), actor(s)
    for x in both:
        x.lock('l', name)
    return both


def case(sentence, **options):
    """A case that begins without the sessions of the case before."""
    def add(function):
        def alone(s, name):
            until(lambda: not sessions(s), 'for the sessions of the case before')
            function(s, name)
        return cases.case(sentence, **options)(alone)
    return add


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


@case('waiters of one client get the lock in the order of their calls')
def _(s, name):
    a, b = pair(s, name)
    a.ask('take', 'l', 0).ok()
    for i in range(6):
        b.lock(f'l{i}', name)
        b.send('acquire', f'l{i}', -1)
    until(lambda: waiting(s) == 6, 'for the server\'s queue')
    a.ask('drop', 'l').ok()
    for i in range(6):
        b.answer('acquire', f'l{i}').ok()
        assert not any(b.have('acquire', f'l{j}') for j in range(i + 1, 6))
        b.send('release', f'l{i}')
        b.answer('release', f'l{i}').ok()


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


@case('a lock that is broken: its holder is notified at once, the next waiter has a larger token')
def _(s, name):
    a, b = pair(s, name, {'watchdog': 600000})
    token = a.ask('take', 'l', 0).ok().token
    waits(s, b)
    b.lock('m', name)
    b.ask('break', 'm').ok()
    a.lost('l')
    assert b.answer('acquire', 'l').ok().token > token
    a.ask('drop', 'l').be('PAWL_ELOST')


@case('a holder that is killed frees the lock at once, long before its lease ends')
def _(s, name):
    a, b = pair(s, name, {'watchdog': 600000})
    token = a.ask('take', 'l', 0).ok().token
    waits(s, b)
    a.kill()
    assert b.answer('acquire', 'l').ok().token > token


@case('a client that closes frees all its locks')
def _(s, name):
    a, b = actor(s, watchdog=600000), actor(s)
    for i in range(4):
        for x in (a, b):
            x.lock(f'l{i}', f'{name}/{i}')
        a.ask('take', f'l{i}', 0).ok()
    a.close()
    for i in range(4):
        b.ask('take', f'l{i}', 20000).ok()


@case('a holder that is stopped past its lease loses it by the server\'s clock, and knows it then')
def _(s, name):
    a, b = pair(s, name, {'watchdog': 1500})
    token = a.ask('take', 'l', 0).ok().token
    time.sleep(1)  # the lease was renewed since
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


@case('a network that is cut: a reset is noticed at once, silence when the lease ends; the lock is '
      'free then, and not before')
def _(s, name):
    p = Proxy(s.port)
    try:
        a = Actor(s.url(port=p.port, layout='session', timeout=1000, watchdog=2000))
        b = actor(s)
        for x in (a, b):
            x.lock('l', name)
        a.ask('take', 'l', 0).ok()
        p.cut()
        a.lost('l')
        a.ask('drop', 'l').be('PAWL_ELOST')
        a.ask('take', 'l', 20000).ok()
        p.freeze()
        b.send('acquire', 'l', 20000)
        b.answer('acquire', 'l').ok()
        equal(a.ask('valid', 'l').valid, 0)
        a.lost('l')
        a.ask('drop', 'l').be('PAWL_ELOST')
        a.ask('take', 'l', 0).be('PAWL_EBUSY')
    finally:
        p.close()


@case('a waiter that is killed leaves the queue when the server next looks for it')
def _(s, name):
    a, b = pair(s, name)
    a.ask('take', 'l', 0).ok()
    waits(s, b)
    b.kill()
    until(lambda: not waiting(s), 'for the end of the wait', 20)


@case('a waiter whose connection dies silently asks again over a new connection')
def _(s, name):
    p = Proxy(s.port)
    try:
        a = actor(s)
        b = Actor(s.url(port=p.port, layout='session', timeout=1000, watchdog=2000))
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


@case('cancels at the moment of the grant: nobody holds what nobody has')
def _(s, name):
    a, b = pair(s, name)
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


@case('connections that an administrator ends: holders are notified at once, waiters wait on')
def _(s, name):
    a, b = pair(s, name, {'watchdog': 600000})
    token = a.ask('take', 'l', 0).ok().token
    waits(s, b)
    equal(end_sessions(s, WAITS), 1)
    until(lambda: waiting(s) == 1, 'for the waiter to come back')
    end_sessions(s, "command = 'Sleep'")
    a.lost('l')
    assert b.answer('acquire', 'l').ok().token > token
    a.ask('drop', 'l').be('PAWL_ELOST')
    a.ask('take', 'l', 0).be('PAWL_EBUSY')


@case('an administrator ends the statement that waits: the waiter asks again')
def _(s, name):
    a, b = pair(s, name)
    a.ask('take', 'l', 0).ok()
    waits(s, b)
    for _ in range(3):
        equal(end_sessions(s, WAITS, 'KILL QUERY'), 1)
        until(lambda: waiting(s) == 1, 'for the waiter to come back')
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()
    b.ask('drop', 'l').ok()
    a.ask('take', 'l', 0).ok()


@case('a server that crashes: holders are notified at once, the next one has a larger token, each '
      'time', own={})
def _(s, name):
    a, b = pair(s, name, {'watchdog': 600000})
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


@case('the server\'s clock is set back by an hour: tokens rise', own={'clock': True})
def _(s, name):
    a, b = pair(s, name)
    token = a.ask('take', 'l', 0).ok().token
    a.ask('drop', 'l').ok()
    s.step_clock(-3600)
    assert b.ask('take', 'l', 0).ok().token > token


@case('a frozen server: what is held stays held for its lease; a release without an answer is '
      'unknown, and nothing is left of it')
def _(s, name):
    a, b = pair(s, name, {'watchdog': 5000, 'timeout': 700})
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


@case('no more connections than allowed: who finds none waits in the client')
def _(s, name):
    a = actor(s, connections=2)
    for i in range(5):
        a.lock(f'l{i}', f'{name}/{i}')
    for i in range(2):
        a.ask('take', f'l{i}', 0).ok()
    for i in range(2, 5):
        a.send('acquire', f'l{i}', -1)
    b = actor(s, connections=1, timeout=500)
    for i in range(2):
        b.lock(f'l{i}', f'{name}/b{i}')
    b.ask('take', 'l0', 0).ok()
    assert 'connections' in b.ask('take', 'l1', 0).be('PAWL_ECONN').words
    assert not any(a.have('acquire', f'l{i}') for i in range(2, 5))
    equal(sessions(s), 3)
    a.send('cancel', 'l3')
    a.answer('acquire', 'l3').be('PAWL_ECANCELED')
    for i, following in ((0, 2), (1, 4)):
        a.ask('drop', f'l{i}').ok()
        a.answer('acquire', f'l{following}').ok()


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


if __name__ == '__main__':
    sys.exit(run(*sys.argv[1:]))
