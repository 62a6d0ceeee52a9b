#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The keys that a client writes and leaves behind: keys of every kind of name, databases, prefixes, the
client's entry. At the end only the counters of tokens stay.
"""
import os
import sys
from urllib.parse import quote, unquote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_server import keys  # noqa: E402
from steps import kill_connections  # noqa: E402
from wait import until  # noqa: E402


def all_keys(s):
    return {k for k in s.call('KEYS', '*') if not k.endswith(':client')}


NAMES = ('n', 'a b', 'stock:42', 'u{tag}v', '{tag}', '{}', 'a}b', '{a', '}{', '{{x}}', 'täg/ü',
         "quo'te\"d", 'back\\slash', '*?[a]', 'x' * 255, '%20', 'a{b}c{d}', '-1', '{}x{y}')


@case('the keys of every name are where docs/redis.md says')
def _(s):
    a, b = s.actor(), s.actor()
    for i, name in enumerate(NAMES):
        a.lock(i, name)
        b.lock(i, name, kind='read')
        token = a.ask('take', i, 0).ok().token
        b.send('acquire', i, -1)
        wanted = keys(name)
        until(lambda: s.call('ZCARD', wanted[2]) == 1, f'in vain for {name!r}')
        assert all_keys(s) <= set(wanted), f'{name!r}: {all_keys(s)}'
        equal(s.call('GET', wanted[1]), str(token))
        equal([unquote(r.id) for r in a.rows('ls')], [name])
        equal([r.role for r in a.rows('show', quote(name))], ['summary', 'holder', 'waiter'])
        a.ask('drop', i).ok()
        b.answer('acquire', i).ok()
        b.ask('drop', i).ok()
        equal(all_keys(s), {wanted[1]})
        s.call('FLUSHALL')


@case('every key has an end but a latch; when all is over only counters are left')
def _(s):
    a, b = s.actor(), s.actor()
    for x in (a, b):
        x.lock('x', 'x')
        x.lock('r', 'r', kind='read')
        x.lock('w', 'r', kind='write')
        x.sem('s', 's', permits=2)
        x.latch('d', 'd')
        x.lock('z', 'z', at_least=300)
    a.ask('take', 'x', 0).ok()
    b.send('acquire', 'x', -1)
    a.ask('take', 'r', 0).ok()
    b.send('acquire', 'w', -1)
    a.ask('take', 's', 0, 2).ok()
    a.ask('take', 'z', 0).ok()
    a.ask('drop', 'z').ok()
    a.ask('set', 'd', 1).ok()
    until(lambda: s.queue('x') and s.queue('r'))
    for key in s.call('KEYS', '*'):
        equal(s.call('PTTL', key) == -1, key == 'pawl:d', key)
    a.ask('down', 'd').ok()
    for name in ('x', 'r', 's'):
        a.ask('drop', name, 2).ok()
    for name in ('x', 'w'):
        b.answer('acquire', name).ok()
        b.ask('drop', name).ok()
    a.close().ok()
    b.close().ok()
    until(lambda: s.call('EXISTS', 'pawl:z') == 0, 'for what lingers')
    left = {k for k in s.call('KEYS', '*') if not k.endswith((':fence', ':done'))}
    equal(left, set())
    for key in s.call('KEYS', '*:fence'):
        assert 86400 * 1000 < s.call('PTTL', key) <= 96400 * 1000, key


@case('close gives back what is held and leaves the queue; kill leaves only what ends by itself')
def _(s):
    a, b, c = s.actor(), s.actor(), s.actor()
    for x in (a, b, c):
        x.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    b.send('acquire', 'l', -1)
    until(lambda: s.queue('n'))
    c.send('acquire', 'l', -1)
    until(lambda: len(s.queue('n')) == 2)
    b.close().ok()
    a.close().ok()
    c.answer('acquire', 'l').ok()
    c.kill()
    for key in s.call('KEYS', '*'):
        assert key.endswith(':fence') or s.call('PTTL', key) > 0, key


@case('databases are apart, also after a reconnect; one that is not there is an error')
def _(s):
    at = f'redis://127.0.0.1:{s.port}'
    a, b, c = Actor(at + '/3'), Actor(at + '/4'), Actor(f'redis+unix://{s.path}?db=3')
    for x in (a, b, c):
        x.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    b.ask('take', 'l', 0).ok()
    c.ask('try', 'l').be('PAWL_EBUSY')
    kill_connections(s)
    c.ask('take', 'l', 0).be('PAWL_EBUSY')
    c.send('acquire', 'l', -1)
    s.call('SELECT', 3)
    until(lambda: s.queue('n'))
    a.ask('drop', 'l').ok()
    c.answer('acquire', 'l').ok()
    equal([r.id for r in c.rows('ls')], ['n'])
    s.call('SELECT', 0)
    equal(s.call('DBSIZE'), 0)
    d = Actor(at + '/99', opens=False)
    failure = d.opened
    if failure.code == 'PAWL_OK':
        d.lock('l', 'n')
        failure = d.ask('take', 'l', 3000)
    failure.be('PAWL_EINVAL')
    assert 'DB' in failure.words or 'database' in failure.words, failure.words


@case('valkey:// is another name of redis://')
def _(s):
    a, b = s.actor(), Actor(s.url().replace('redis:', 'valkey:'))
    for actor in (a, b):
        actor.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    b.ask('take', 'l', 0).be('PAWL_EBUSY')
    a.ask('drop', 'l').ok()
    b.ask('take', 'l', 0).ok()


@case('prefixes are apart, and may be empty')
def _(s):
    actors = {p: s.actor(prefix=p) for p in ('pawl:', 'shop:', '')}
    for prefix, a in actors.items():
        a.lock('l', 'n')
        a.ask('take', 'l', 0).ok()
        assert s.value('n', prefix).startswith('pawl x ')
        equal([r.id for r in a.rows('ls')], ['n'] if prefix else ['n', 'pawl:n', 'shop:n'])
    for a in actors.values():
        a.ask('drop', 'l').ok()


@case('who holds and who waits is told with host, process, program and label, in order')
def _(s):
    a, b, c = s.actor('the cashier'), s.actor('second'), s.actor('third')
    for x in (a, b, c):
        x.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    for n, x in enumerate((b, c), 1):
        x.send('acquire', 'l', -1)
        until(lambda: len(s.queue('n')) == n)
    summary, holder, *waiters = s.actor().rows('show', 'n')
    equal([summary.holders, summary.waiters, summary.token, summary.type], [1, 2, token, 'lock'])
    equal([holder.pid, holder.label, holder.program, holder.token],
          [a.pid, 'the cashier', 'actor', token])
    equal([(w.pid, w.label) for w in waiters], [(b.pid, 'second'), (c.pid, 'third')])
    assert holder.host and 0 < holder.lease <= 30000 and holder.since >= 0
    entries = [k for k in s.call('KEYS', '*') if k.endswith(':client')]
    equal(len(entries), 4)
    b.close()
    equal(len([k for k in s.call('KEYS', '*') if k.endswith(':client')]), 3)


@case('a stranger that sets the key is waited for, and Pawl excludes it')
def _(s):
    a = s.actor()
    a.lock('l', 'n')
    a.ask('take', 'l', 0).ok()
    equal(s.call('SET', 'pawl:n', 'me', 'NX', 'PX', 1000), None)
    a.ask('drop', 'l').ok()
    equal(s.call('SET', 'pawl:n', 'me', 'NX', 'PX', 1200), 'OK')
    a.ask('try', 'l').be('PAWL_EBUSY')
    before = s.stat('evalsha', 'eval')
    a.ask('take', 'l', 30000).ok()
    assert s.stat('evalsha', 'eval') - before < 60, 'it polls without end'
    a.ask('drop', 'l').ok()


@case('URLs that make no sense are refused, without a word of the password', server=False)
def _():
    for url in ('redis://h:0', 'redis://h:65536', 'redis://h:x', 'redis://[::1', 'redis://h/x',
                'redis://h/-1', 'redis://u:secret@h:port', 'redis://:secret@h?verify=full',
                'redis://h?unknown=1', 'redis+unix://relative/path', 'redis+unix://',
                'redis://:sec%zzret@h', 'rediss://h?verify=perhaps', 'redis://h?db=x',
                'redis://h?prefix=' + 'x' * 300, 'redis://h?timeout=0',
                'redis+unix:///' + 'x' * 200, 'redis://' + 'h' * 300):
        a = Actor(url, opens=False)
        assert a.opened.code == 'PAWL_EINVAL', f'{url}: {a.opened}'
        assert a.opened.words and 'secret' not in a.opened.words, a.opened.words


if __name__ == '__main__':
    sys.exit(run(Live))
