#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connections that are cut, stalled or slow, and the effect on holders and waiters.

Real processes (actors) use a real server, some of them through a proxy. A holder that lost its lock is
notified; a holder that was not affected notices nothing; the queue keeps its order; and the client finds
out the outcome of a request whose answer was lost.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from control import Control  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis_live import Live  # noqa: E402
from steps import counter, free_again, kill_connections  # noqa: E402
from wait import until  # noqa: E402

# ---- connections killed by the server ------------------------------------------------------------

@case('a holder whose connection is killed keeps its lock, its token, and verifies it at once')
def _(s):
    a = s.actor()
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    m = s.monitor()
    kill_connections(s)
    m.script('renew')  # the next renewal would be in ten seconds
    until(lambda: a.ask('stats').reconnects == 1)
    equal(a.ask('token', 'l').token, token)
    assert a.ask('valid', 'l').valid > 0
    a.ask('drop', 'l').ok()
    assert free_again(s, 'n') > token
    equal(a.have('lost', 'l'), None)


@case('waiters whose connections are killed keep their places and their order')
def _(s):
    h, *waiters = [s.actor() for _ in range(4)]
    h.lock('l', 'n')
    tokens = [h.ask('take', 'l', 0).ok().token]
    s.queue_up('n', waiters)
    places = s.queue('n')
    for _ in range(3):
        kill_connections(s)
    equal(s.queue('n'), places)
    for before, a in zip([h] + waiters, waiters):
        equal([w.have('acquire', 'l') for w in waiters], [None] * 3)
        before.ask('drop', 'l').ok()
        tokens.append(a.answer('acquire', 'l').ok().token)
    equal(tokens, sorted(set(tokens)))
    equal(s.queue('n'), [])


@case('a client whose connection is killed again and again gets its answers')
def _(s):
    a = s.actor()
    last = 0
    for i in range(60):
        a.lock(i, 'n')
        a.send('acquire', i, 30000)
        for r in s.subscribers():
            s.call('CLIENT', 'KILL', 'ID', r['id'])
        token = a.answer('acquire', i).ok().token
        assert token > last
        last = token
        a.send('release', i)
        for r in s.subscribers():
            s.call('CLIENT', 'KILL', 'ID', r['id'])
        a.answer('release', i).ok()
    equal(s.value('n'), None)


# ---- answers and requests cut in the middle ------------------------------------------------------

def cut_everywhere(s, direction, places):
    p = Proxy(s.port)
    a = Actor(p.url())
    for number, n in enumerate(places):
        p.gently = number % 2 == 1
        name = f'n{n}'
        a.lock(name, name)
        a.ask('valid', name)
        until(lambda: p.links and s.subscribers(), 'for a connection')
        p.cut_after(n, direction)
        token = a.ask('take', name, 30000).ok().token
        equal(int(s.value(name).split(' ')[3]), token)
        equal(counter(s, name), token + int(s.value(name).split(' ')[4]) - 1, 'granted once:')
        equal(a.ask('held', name).held, 1)
        a.ask('sync')
        until(lambda: p.links and s.subscribers(), 'for a connection')
        p.cut_after(n, direction)
        a.ask('drop', name).ok()
        equal(s.value(name), None)
    assert p.cuts >= len(places)
    equal(a.ask('stats').held, 0)
    a.close()


@case('an answer cut at any byte is found out: granted once, released once')
def _(s):
    cut_everywhere(s, 'down', [0, 1, 2, 3, 5, 9, 14, 23, 31, 37, 42, 47, 53, 58, 66, 71, 80])


@case('a request cut at any byte is carried out once')
def _(s):
    cut_everywhere(s, 'up', [0, 1, 2, 4, 9, 20, 35, 50, 80, 120, 160, 200, 250])


@case('a grant that is cut off with the connection is found by asking again')
def _(s):
    h, p = s.actor(), Proxy(s.port)
    w, behind = Actor(p.url()), s.actor()
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    s.queue_up('n', [w, behind])
    m = s.monitor()
    owner = s.queue('n')[0]
    p.stall('down')
    h.ask('drop', 'l').ok()
    m.grant(owner=owner)
    token = int(s.value('n').split(' ')[3])
    p.cut()
    p.flow()
    equal(w.answer('acquire', 'l').ok().token, token)
    equal(behind.have('acquire', 'l'), None)
    w.ask('drop', 'l').ok()
    assert behind.answer('acquire', 'l').ok().token > token


@case('a wait that is given up while its grant is cut off passes the grant on')
def _(s):
    h, p = s.actor(), Proxy(s.port)
    w, behind = Actor(p.url(timeout=300)), s.actor()
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    s.queue_up('n', [w, behind])
    m = s.monitor()
    p.stall('down')
    h.ask('drop', 'l').ok()
    m.grant()
    w.ask('cancel', 'l')
    p.cut()
    p.flow()
    code = w.answer('acquire', 'l').be('PAWL_ECANCELED', 'PAWL_EUNKNOWN', 'PAWL_OK').code
    if code == 'PAWL_OK':
        w.ask('drop', 'l')
    behind.answer('acquire', 'l').ok()


@case('a latch is set once and counted down once, wherever its answer is cut')
def _(s):
    p = Proxy(s.port)
    a = Actor(p.url())
    for n in (0, 1, 5, 12, 25, 38):
        name = f'd{n}'
        a.latch(name, name)
        p.cut_after(n)
        a.ask('set', name, 3).ok()
        p.cut_after(n)
        a.ask('down', name).ok()
        equal(a.ask('count', name).ok().n, 2)
        p.cut_after(n)
        equal(a.ask('count', name).ok().n, 2)


@case('permits are taken and given back once, wherever the answer is cut')
def _(s):
    p = Proxy(s.port)
    a = Actor(p.url())
    for n in (0, 1, 7, 19, 33, 50):
        name = f's{n}'
        a.sem(name, name, permits=5)
        p.cut_after(n)
        a.ask('take', name, 30000, 3).ok()
        equal(a.ask('available', name).ok().n, 2)
        p.cut_after(n)
        a.ask('drop', name, 1).ok()
        equal(a.ask('available', name).ok().n, 3)
        p.cut_after(n)
        a.ask('drop', name, 2).ok()
        equal(a.ask('available', name).ok().n, 5)


@case('inspect and list are asked again, break never is')
def _(s):
    p = Proxy(s.port)
    a, b = Actor(p.url()), s.actor()
    b.lock('l', 'n')
    b.ask('break', 'l').be('PAWL_ENOTHELD')  # the break script is loaded
    a.lock('l', 'n')
    for n in (0, 3, 40):
        b.ask('take', 'l', 10000).ok()
        p.cut_after(n)
        equal([r.role for r in a.rows('show', 'n')], ['summary', 'holder'])
        p.cut_after(n)
        equal([r.id for r in a.rows('ls')], ['n'])
        until(lambda: p.links and len(s.subscribers()) == 2)
        p.cut_after(0)
        a.ask('break', 'l').be('PAWL_EUNKNOWN')
        b.lost('l')
        b.ask('drop', 'l').be('PAWL_ELOST')
        b.ask('take', 'l', 10000).ok()
        a.ask('sync')
        until(lambda: len(s.subscribers()) == 2)
        equal(b.ask('held', 'l').held, 1)
        b.ask('drop', 'l').ok()


@case('a server that hangs up at once is asked again at growing intervals')
def _(s):
    p = Proxy(s.port)
    p.cut_after(0)
    a = Actor(p.url())
    a.lock('l', 'n')
    a.ask('take', 'l', 30000).ok()
    p.cut_every = True
    p.cut()
    before = p.accepted
    a.lock('k', 'k')
    a.ask('take', 'k', 3000).be('PAWL_ECONN', 'PAWL_EUNKNOWN')
    assert 2 <= p.accepted - before <= 60, f'{p.accepted - before} connections in 3 s'
    p.cut_every = False
    a.ask('take', 'k', 30000).ok()


@case('one byte at a time is enough')
def _(s):
    free_again(s, 'n')  # the scripts are loaded
    p = Proxy(s.port)
    p.trickle = True
    a = Actor(p.url(timeout=60000))
    a.lock('l', 'n')
    a.ask('take', 'l', 60000).ok()
    equal(len(a.rows('show', 'n')), 2)
    a.ask('drop', 'l').ok()
    a.latch('d', 'x')
    a.ask('set', 'd', 1).ok()
    a.ask('down', 'd').ok()
    a.close()


@case('a slow network is waited for')
def _(s):
    p = Proxy(s.port)
    p.delay = 0.15
    a, b = Actor(p.url()), Actor(p.url())
    a.lock('l', 'n')
    first = a.ask('take', 'l', 30000).ok().token
    s.queue_up('n', [b])
    a.ask('drop', 'l').ok()
    assert b.answer('acquire', 'l').ok().token > first
    b.ask('drop', 'l').ok()


# ---- connections that say nothing ----------------------------------------------------------------

@case('a stalled connection: a wait ends in its time, and nothing of it is left behind')
def _(s):
    p = Proxy(s.port)
    a = Actor(p.url(timeout=400))
    a.lock('l', 'n')
    a.lock('k', 'k')
    a.ask('take', 'k', 0).ok()
    p.stall('down')
    a.ask('take', 'l', 1000).be('PAWL_EUNKNOWN', 'PAWL_ETIMEDOUT', 'PAWL_ECONN')
    equal(a.ask('held', 'l').held, 0)
    p.flow()
    free_again(s, 'n')
    equal(a.ask('held', 'k').held, 1)
    a.ask('take', 'l', 20000).ok()
    a.ask('drop', 'l').ok()
    a.ask('drop', 'k').ok()


@case('a connection that died without a word is given up after the time-out, and replaced')
def _(s):
    p = Proxy(s.port)
    a, b = Actor(p.url(timeout=400)), Actor(p.url(timeout=400))
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up('n', [b])
    p.freeze()
    a.lock('k', 'k')
    a.ask('take', 'k', 30000).ok()
    until(lambda: a.ask('stats').reconnects == 1)
    equal(a.ask('token', 'l').token, token)
    b.lock('k', 'k2')
    b.ask('take', 'k', 30000).ok()  # so that this client notices, too
    a.ask('drop', 'l').ok()
    assert b.answer('acquire', 'l').ok().token > token


@case('a holder that is cut off is told before the next one gets the lock')
def _(s):
    control = Control()
    p = Proxy(s.port)
    a, b = Actor(p.url(watchdog=1500, timeout=300)), s.actor(watchdog=1500)
    a.lock('l', 'n')
    token = a.ask('take', 'l', 0).ok().token
    s.queue_up('n', [b])
    p.stall('both')
    lost = a.lost('l')
    got = b.answer('acquire', 'l').ok()
    control.before(lost.ns, got.ns, 'told, and the next one has it')
    assert got.token > token
    equal(a.ask('valid', 'l').valid, 0)
    value = s.value('n')
    p.flow()
    a.ask('drop', 'l').be('PAWL_ELOST')
    equal(s.value('n'), value)
    equal(b.ask('held', 'l').held, 1)
    b.ask('drop', 'l').ok()


@case('connections refused for a while: the wait goes on, and the lease is still there')
def _(s):
    p = Proxy(s.port)
    a = Actor(p.url())
    a.lock('k', 'k')
    token = a.ask('take', 'k', 0).ok().token
    p.refuse()
    p.cut()
    a.lock('l', 'n')
    a.ask('take', 'l', 300).be('PAWL_ECONN', 'PAWL_EUNKNOWN', 'PAWL_ETIMEDOUT')
    a.send('acquire', 'l', -1)
    a.ask('sync')
    equal(a.ask('token', 'k').token, token)
    p.accept()
    a.answer('acquire', 'l').ok()
    a.ask('drop', 'k').ok()
    a.ask('drop', 'l').ok()
    a.close().ok()

if __name__ == '__main__':
    sys.exit(run(Live))
