#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connections that end, servers that stop, and processes that are stopped."""
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor, boot_ns, query  # noqa: E402
from cases import case, run  # noqa: E402
from random_load import Worker, check_alive, check_all  # noqa: E402
from etcd_server import Etcd  # noqa: E402
from proxy import Proxy  # noqa: E402
from wait import until  # noqa: E402

SEED = int(os.environ.get('CHAOS_SEED', random.randrange(10 ** 6)))


LONG = 30000  # ms: a limit that a call reaches only if it waits for an answer that does not come
HICCUP = 3000  # ms: a lease that is renewed in time even on a busy machine


def through(p, **params):
    return Actor(f'etcd://127.0.0.1:{p.port}/{query(params)}')


def on_etcd(sentence, **more):
    """A case with a server and a proxy in front of it."""
    def add(function):
        @case(sentence, server=False, **more)
        def _():
            server = Etcd()
            proxy = Proxy(server.port)
            try:
                function(server, proxy)
            finally:
                server.stop()
    return add


def ready(p, name='one', **params):
    """An actor with a session: its next acquire is one request."""
    a = through(p, **params)
    a.lock('l', name)
    a.ask('take', 'l', LONG).ok()
    drop(a)
    return a


def drop(a):
    """Release. With a short timeout the answer may be too late; the key is deleted all the same."""
    a.ask('drop', 'l').be('PAWL_OK', 'PAWL_EUNKNOWN')


@on_etcd('an acquire whose answer is lost is found again, at whichever byte that was')
def _(s, p):
    a, last = ready(p, timeout=LONG), 0
    for n in list(range(0, 40, 5)) + list(range(40, 200, 20)):
        p.cut_after(n, 'down')
        got = a.ask('take', 'l', LONG).ok()
        assert got.token > last
        last = got.token
        assert len(s.keys('pawl/one/')) == 1
        p.cut_after(10 ** 9, 'down')
        a.ask('drop', 'l').ok()
        assert s.keys('pawl/one/') == []
    assert a.ask('stats').reconnects > 5


@on_etcd('a request that was broken off is carried out once or not at all')
def _(s, p):
    a, last = ready(p, timeout=LONG), 0
    for n in range(0, 300, 12):
        p.cut_after(n, 'up')
        got = a.ask('take', 'l', LONG).ok()
        assert got.token > last
        last = got.token
        p.cut_after(10 ** 9, 'up')
        a.ask('drop', 'l').ok()
        assert s.keys('pawl/one/') == []


@on_etcd('a release whose answer is lost has happened when it is said to have')
def _(s, p):
    a = ready(p, timeout=LONG)
    for n in range(0, 120, 12):
        a.ask('take', 'l', LONG).ok()
        p.cut_after(n, 'down')
        a.ask('drop', 'l').ok()
        assert s.keys('pawl/one/') == []
        p.cut_after(10 ** 9, 'down')


@on_etcd('what is given up leaves no key, also when the answer never comes')
def _(s, p):
    a = ready(p, timeout=300)
    for way in ('down', 'up', 'both'):
        p.stall(way)
        a.ask('take', 'l', 200).be('PAWL_EUNKNOWN', 'PAWL_ETIMEDOUT', 'PAWL_ECONN')
        p.flow()
        until(lambda: not s.keys('pawl/one/'))
        a.ask('take', 'l', LONG).ok()
        drop(a)


@on_etcd('a request from an old connection can do nothing once there is a new one')
def _(s, p):
    a = ready(p, timeout=400)
    old = Proxy(p.port)  # a second proxy, which holds back requests of b and delivers them later
    b = ready(old, 'two', timeout=400)
    old.stall('up')
    b.send('acquire', 'l', 300)
    b.answer('acquire', 'l').be('PAWL_EUNKNOWN', 'PAWL_ETIMEDOUT', 'PAWL_ECONN')
    until(lambda: b.ask('stats').ok())
    old.flow()
    b.ask('take', 'l', LONG).ok()
    drop(b)
    until(lambda: not s.keys('pawl/two/'))
    time.sleep(0.3)
    assert s.keys('pawl/two/') == []
    a.close()


@on_etcd('waiters survive their connections, in their order')
def _(s, p):
    holder, *others = (ready(p, timeout=LONG) for _ in range(4))
    holder.ask('take', 'l', LONG).ok()
    for i, w in enumerate(others):
        w.send('acquire', 'l', -1)
        until(lambda: len(s.keys('pawl/one/')) == i + 2)
    for _ in range(5):
        p.cut()
        time.sleep(0.05)
    holder.ask('drop', 'l').ok()
    for w in others:
        w.answer('acquire', 'l').ok()
        w.ask('drop', 'l').ok()


@on_etcd('who is cut off has lost the lock before anybody else gets it')
def _(s, p):
    a, b = ready(p, watchdog=HICCUP, timeout=300), ready(Proxy(s.port), watchdog=HICCUP)
    a.ask('take', 'l', LONG).ok()
    b.send('acquire', 'l', -1)
    until(lambda: len(s.keys('pawl/one/')) == 2)
    p.freeze()
    p.refuse()
    good_until = max(boot_ns() + a.ask('valid', 'l').valid * 10 ** 6 for _ in range(20))
    got, lost = b.answer('acquire', 'l').ok(), a.lost('l')
    print(f'# good until {(got.ns - good_until) / 1e6:.0f} ms before, told '
          f'{(got.ns - lost.ns) / 1e6:.0f} ms before')
    assert good_until < got.ns
    p.accept()
    a.ask('drop', 'l').be('PAWL_ELOST')
    drop(b)
    a.ask('take', 'l', LONG).ok()


@on_etcd('a holder that was stopped past its lease learns it first of all')
def _(s, p):
    a, b = ready(p, watchdog=HICCUP), ready(p, watchdog=HICCUP)
    token = a.ask('take', 'l', LONG).ok().token
    b.send('acquire', 'l', -1)
    until(lambda: len(s.keys('pawl/one/')) == 2)
    a.stop()
    assert b.answer('acquire', 'l').ok().token > token
    a.resume()
    assert a.ask('valid', 'l').valid == 0
    a.lost('l')
    drop(b)
    a.ask('drop', 'l').be('PAWL_ELOST')


@on_etcd('a waiter that was stopped past its lease stands in line again')
def _(s, p):
    a, b, c = (ready(p, watchdog=HICCUP) for _ in range(3))
    a.ask('take', 'l', LONG).ok()
    for n, w in ((2, b), (3, c)):
        w.send('acquire', 'l', -1)
        until(lambda: len(s.keys('pawl/one/')) == n)
    b.stop()
    until(lambda: len(s.keys('pawl/one/')) == 2)
    b.resume()
    until(lambda: len(s.keys('pawl/one/')) == 3)
    drop(a)
    c.answer('acquire', 'l').ok()
    assert b.have('acquire', 'l') is None
    drop(c)
    b.answer('acquire', 'l').ok()


@on_etcd('a server that stops for a while costs nothing but time')
def _(s, p):
    a, b = ready(p, timeout=300), ready(p, timeout=300)
    a.ask('take', 'l', LONG).ok()
    b.send('acquire', 'l', -1)
    until(lambda: len(s.keys('pawl/one/')) == 2)
    s.member.pause()
    time.sleep(1)
    s.member.resume()
    drop(a)
    b.answer('acquire', 'l').ok()
    assert a.have('lost', 'l') is None


@on_etcd('a server that is killed and comes back has forgotten nothing')
def _(s, p):
    a, b = ready(p, timeout=500), ready(p, timeout=500)
    token = a.ask('take', 'l', LONG).ok().token
    b.send('acquire', 'l', -1)
    until(lambda: len(s.keys('pawl/one/')) == 2)
    s.member.kill()
    s.member.start()
    s.wait()
    assert len(s.keys('pawl/one/')) == 2
    assert a.ask('held', 'l').held == 1
    drop(a)
    assert b.answer('acquire', 'l').ok().token > token


@on_etcd('closing waits for the last answer, also when nothing had happened for long')
def _(s, p):
    a = ready(p, timeout=LONG)
    time.sleep(0.5)
    assert s.leases()
    p.delay, began = 0.2, time.monotonic()
    a.close().ok()
    assert time.monotonic() - began >= 2 * p.delay
    assert s.keys('') == s.leases() == [], (s.keys(''), s.leases())


@on_etcd('claims exclude each other and tokens rise, whatever happens to the connections',
         limit=180)
def _(s, p):
    print(f'# CHAOS_SEED={SEED}')
    chance, over, done = random.Random(SEED), threading.Event(), {}
    proxies = [p, Proxy(s.port), Proxy(s.port)]
    workers = [Worker(SEED * 100 + i, f'etcd://127.0.0.1:{proxies[i % 3].port}?watchdog=2000'
                      '&timeout=400', over) for i in range(6)]
    for w in workers:
        w.start()
    began = time.monotonic()
    while time.monotonic() - began < 10:
        q, n, way = chance.choice(proxies), chance.randrange(900), chance.choice(('up', 'down'))
        what = chance.choice(('cut', 'cut in the middle', 'freeze', 'stall', 'slow', 'pause',
                              'compact'))
        done[what] = done.get(what, 0) + 1
        if what == 'cut':
            q.cut()
        elif what == 'cut in the middle':
            q.cut_after(n, way)
        elif what == 'freeze':
            q.freeze()
        elif what == 'slow':
            q.delay = chance.choice((0, 0, 0.02))
        elif what == 'stall':
            q.stall(way)
            time.sleep(chance.random() * 0.4)
            q.flow()
        elif what == 'pause':
            s.member.pause()
            time.sleep(chance.random() * 0.3)
            s.member.resume()
        else:
            s.compact()
        time.sleep(chance.random() * 0.15)
    over.set()
    for q in proxies:
        q.delay = 0
        q.flow()
    for w in workers:
        w.join()
    claims, codes = check_all(workers)
    check_alive(workers)
    for w in workers:
        w.actor.close().ok()
    print(f'# {claims} claims; {codes}; {done}')
    until(lambda: s.keys('') == [])  # a client whose connection was cut at the end leaves its lease


if __name__ == '__main__':
    assert boot_ns
    if sys.argv[1:2] and sys.argv[1].isdigit():
        SEED = int(sys.argv.pop(1))
    sys.exit(run())
