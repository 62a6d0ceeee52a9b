#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that answer with an error: every call fails with the documented code, within the caller's time
limit, and with a text that gives the reason and contains no password. When the server's problem is over,
calls succeed again.
"""
import os
import re
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from control import Control  # noqa: E402
from redis_live import Live  # noqa: E402
from steps import fails, free_again  # noqa: E402
from wait import until  # noqa: E402

# ---- rights --------------------------------------------------------------------------------------

@case('a wrong password: PAWL_EAUTH, and the password is not in the words')
def _(s):
    s.call('CONFIG', 'SET', 'requirepass', 'open-sesame')
    at = f'127.0.0.1:{s.port}'
    for url, env in ((f'redis://:hunter2@{at}/', {}), (f'redis://{at}/', {}),
                     (f'redis://bob:hunter2@{at}/', {}),
                     (f'redis://{at}/', {'PAWL_PASSWORD': 'hunter2'})):
        a, failure = fails(url, ('PAWL_EAUTH',), 'WRONGPASS|NOAUTH', 3000, env)
        assert 'hunter2' not in failure.words
    for url, env in ((f'redis://:open-sesame@{at}/', {}),
                     (f'redis://default:open-sesame@{at}/', {}),
                     (f'redis://{at}/', {'PAWL_PASSWORD': 'open-sesame'}),
                     (f'redis+unix://:open-sesame@{s.path}', {})):
        a = Actor(url, environ=env)
        a.lock('l', 'n')
        a.ask('take', 'l', 20000).ok()
        a.close().ok()


@case('a password that is changed: who is connected goes on, who comes later is refused')
def _(s):
    s.call('CONFIG', 'SET', 'requirepass', 'one')
    a = Actor(f'redis://:one@127.0.0.1:{s.port}/')
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    s.call('CONFIG', 'SET', 'requirepass', 'two')
    a.ask('renew', 'l', 0).ok()
    for r in s.subscribers():
        s.call('CLIENT', 'KILL', 'ID', r['id'])
    a.lock('k', 'k')
    a.ask('take', 'k', 3000).be('PAWL_EAUTH')
    s.call('CONFIG', 'SET', 'requirepass', 'one')
    until(lambda: a.ask('take', 'k', 5000).be('PAWL_OK', 'PAWL_EAUTH').code == 'PAWL_OK')
    a.ask('drop', 'l').ok()


def with_user(s, *rules):
    s.call('ACL', 'SETUSER', 'shop', 'reset', 'on', '>pw', *rules)
    return f'redis://shop:pw@127.0.0.1:{s.port}/'


@case('rights that are missing: PAWL_EAUTH, and which one')
def _(s):
    everything = ('~*', '&*', '+@all')
    for rules, what in ((everything + ('-evalsha', '-eval'), 'NOPERM.*eval'),
                        (everything + ('-subscribe',), 'NOPERM.*subscribe'),
                        (('~*', 'resetchannels', '+@all'), 'NOPERM.*chan'),
                        (('~other:*', '&*', '+@all'), 'NOPERM|key'),
                        (everything + ('-set', '-incrby'), 'user executing|NOPERM|permission')):
        fails(with_user(s, *rules), ('PAWL_EAUTH',), what, 3000)
    s.call('ACL', 'SETUSER', 'shop', 'off')
    fails(f'redis://shop:pw@127.0.0.1:{s.port}/', ('PAWL_EAUTH',), 'WRONGPASS|disabled', 3000)


@case('a user who is deleted while it holds is told before the lease ends, and why')
def _(s):
    control = Control()
    url = with_user(s, '~*', '&*', '+@all')
    a, b = Actor(url + '?watchdog=1500'), s.actor()
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up('n', [b])
    s.call('ACL', 'DELUSER', 'shop')
    lost, got = a.lost('l'), b.answer('acquire', 'l').ok()
    control.before(lost.ns, got.ns, 'told, and the next one has it')
    assert got.token > token
    a.ask('drop', 'l').be('PAWL_ELOST')
    assert 'WRONGPASS' in a.ask('take', 'l', 3000).be('PAWL_EAUTH').words


@case('who may publish and not read can neither grant a lock nor open a latch')
def _(s):
    a, h = s.actor(), s.actor()
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    h.latch('d', 'd')
    h.ask('set', 'd', 1).ok()
    s.queue_up('n', [a])
    a.latch('d', 'd')
    a.send('take', 'd', 3000)
    until(lambda: s.queue('d'))
    now = int(s.call('TIME')[0]) * 1000
    for owner in s.queue('n') + s.queue('d'):
        for text in (f'g {owner} {now}000 1 60000 {now}', f'g {owner} {now}000 1 1999 {now}',
                     f'o {owner} {now}', f'g {owner} {now}000 1 1999 {now} 0 pawl:n',
                     f'o {owner} {now} 0 pawl:d'):
            assert s.call('PUBLISH', 'pawl:@' + owner.split(':')[0], text) == 1
    a.answer('take', 'd').be('PAWL_ETIMEDOUT')
    equal(a.have('acquire', 'l'), None)
    equal(a.ask('held', 'l').held, 0)


# ---- servers with a passing problem -----------------------------------------------------------------

@case('a full server: acquire says so, release and renewal work and hand over')
def _(s):
    a, b, c = s.actor(watchdog=1500), s.actor(watchdog=1500), s.actor()
    a.lock('l', 'n')
    first = a.ask('take', 'l', 0).ok().token
    s.queue_up('n', [b])
    c.lock('k', 'k')
    s.call('CONFIG', 'SET', 'maxmemory', 1)
    failure = c.ask('take', 'k', 2000).be('PAWL_EBACKEND')
    assert 'OOM' in failure.words, failure.words
    c.ask('try', 'k').be('PAWL_EBACKEND')
    before = a.ask('stats').renewed
    until(lambda: a.ask('stats').renewed >= before + 3, 'for renewals')
    equal(a.have('lost', 'l'), None)
    a.ask('drop', 'l').ok()
    assert b.answer('acquire', 'l').ok().token > first
    before = b.ask('stats').renewed
    until(lambda: b.ask('stats').renewed >= before + 2, 'for renewals')
    b.ask('drop', 'l').ok()
    equal(s.value('n'), None)
    s.call('CONFIG', 'SET', 'maxmemory', 0)
    c.ask('take', 'k', 2000).ok()


@case('a replica: the wait goes on until it is a master, or ends with words')
def _(s):
    a = s.actor()
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    with socket.socket() as nobody:
        nobody.bind(('127.0.0.1', 0))
        s.call('REPLICAOF', '127.0.0.1', nobody.getsockname()[1])
        b = s.actor()
        b.lock('k', 'k')
        failure = b.ask('take', 'k', 700).be('PAWL_ECONN')
        assert re.search('READONLY|read only', failure.words), failure.words
        b.send('acquire', 'k', -1)
        a.ask('drop', 'l').be('PAWL_ECONN', 'PAWL_EUNKNOWN')
        s.call('REPLICAOF', 'NO', 'ONE')
        b.answer('acquire', 'k').ok()
        equal(a.ask('stats').lost, 0)
    assert token


@case('a script that runs away: the wait goes on until it ends, or ends with words',
      '--lua-time-limit', '20')
def _(s):
    a = s.actor()
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    a.lock('k', 'k')
    busy = s.connect()
    busy.send('EVAL', 'while true do end', 0)
    until(lambda: s.is_busy(), 'for the script to be slow')
    failure = a.ask('take', 'k', 700).be('PAWL_ECONN')
    assert 'BUSY' in failure.words, failure.words
    a.send('acquire', 'k', -1)
    a.ask('sync')
    s.call('SCRIPT', 'KILL')
    a.answer('acquire', 'k').ok()
    a.ask('drop', 'l').ok()
    a.ask('drop', 'k').ok()


@case('a server that can\'t save its data and refuses to write says so',
      '--enable-protected-configs', 'yes')
def _(s):
    folder = os.path.join(s.folder, 'data')
    os.mkdir(folder)
    s.call('CONFIG', 'SET', 'dir', folder)
    s.call('CONFIG', 'SET', 'save', '3600 1')
    os.rmdir(folder)
    a = s.actor()
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    s.call('BGSAVE')
    until(lambda: 'rdb_last_bgsave_status:err' in s.call('INFO', 'persistence'), 'for an error')
    a.lock('k', 'k')
    failure = a.ask('take', 'k', 2000).be('PAWL_EBACKEND')
    assert 'MISCONF' in failure.words, failure.words
    failure = a.ask('drop', 'l').be('PAWL_EBACKEND')
    assert 'MISCONF' in failure.words, failure.words
    s.call('CONFIG', 'SET', 'stop-writes-on-bgsave-error', 'no')
    a.ask('take', 'k', 20000).ok()
    a.ask('drop', 'k').ok()


def refuse_writes(s, refused):
    s.call('CONFIG', 'SET', 'min-replicas-to-write', 1 if refused else 0)


@case('a release that is refused, and the client closes: close says so, and the lock ends with its lease')
def _(s):
    for kind in ('mutex', 'fair', 'read', 'write', 'permits'):
        for verb in ('drop', 'release', None):  # None: close alone releases
            if kind == 'permits' and verb == 'release':
                continue  # the actor releases permits by blocking calls only
            a, b = s.actor(watchdog=3000), s.actor()
            for x in (a, b):
                if kind == 'permits':
                    x.sem('l', 'n', permits=1)
                else:
                    x.lock('l', 'n', kind=kind if x is a else 'write')
            a.ask('take', 'l', 0).ok()
            refuse_writes(s, True)
            if verb:
                failure = a.ask(verb, 'l').be('PAWL_EBACKEND')
                assert verb == 'release' or 'NOREPLICAS' in failure.words, failure.words
            a.ask('close').be('PAWL_EBACKEND')
            assert 0 < s.call('PTTL', 'pawl:n') <= 3000
            refuse_writes(s, False)
            b.ask('try', 'l').be('PAWL_EBUSY')
            b.ask('take', 'l', 20000).ok()
            b.close()


@case('a release that was refused, and close when the server writes again: close releases the lock')
def _(s):
    for kind in ('mutex', 'read', 'permits'):
        a = s.actor()
        if kind == 'permits':
            a.sem('l', 'n', permits=1)
        else:
            a.lock('l', 'n', kind=kind)
        a.ask('take', 'l', 0).ok()
        refuse_writes(s, True)
        a.ask('drop', 'l').be('PAWL_EBACKEND')
        refuse_writes(s, False)
        a.ask('close').ok()
        equal(s.call('EXISTS', 'pawl:n'), 0)


@case('a server that has no room for more clients says so, and takes us when it has')
def _(s):
    s.call('CONFIG', 'SET', 'maxclients', 1)
    a, failure = fails(s.url(), ('PAWL_ECONN',), 'max number of clients')
    s.call('CONFIG', 'SET', 'maxclients', 100)
    a.ask('take', 'l', 20000).ok()


@case('a server that loads its data is waited for, or it says so',
      '--save', '3600 1000000', '--key-load-delay', '0',
      '--loading-process-events-interval-bytes', '1024')
def _(s):
    a = s.actor()
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    s.call('EVAL', "for i = 1, 2000 do redis.call('SET', 'filler' .. i, string.rep('x', 100)) end",
           0)
    s.call('SAVE')
    s.command += ['--key-load-delay', '2000']
    s.restart()
    assert 'loading:1' in s.call('INFO', 'persistence'), 'it was too fast for this case'
    a.lock('k', 'k')
    failure = a.ask('take', 'k', 800).be('PAWL_ECONN')
    assert 'loading:1' in s.call('INFO', 'persistence'), 'it was too fast for this case'
    assert 'LOADING' in failure.words, failure.words
    a.ask('take', 'k', 60000).ok()
    equal(a.ask('held', 'l').held, 1)
    a.ask('drop', 'l').ok()


@case('what somebody else wrote under a lock\'s name is left alone')
def _(s):
    a = s.actor()
    a.lock('l', 'n')
    for words in (('HSET', 'pawl:n', 'a', 1), ('LPUSH', 'pawl:n', 'x'), ('SADD', 'pawl:n', 'm')):
        s.call(*words)
        before = s.call('TYPE', 'pawl:n')
        a.ask('take', 'l', 300).be('PAWL_ESTATE')
        a.ask('try', 'l').be('PAWL_ESTATE')
        equal(s.call('TYPE', 'pawl:n'), before)
        s.call('DEL', 'pawl:n')
    s.call('SET', '{pawl:n}:fence', 'not a number')
    failure = a.ask('take', 'l', 300).be('PAWL_EBACKEND')
    assert failure.words
    s.call('DEL', '{pawl:n}:fence')
    a.ask('take', 'l', 300).ok()
    a.ask('drop', 'l').ok()
    free_again(s, 'n')


if __name__ == '__main__':
    sys.exit(run(Live))
