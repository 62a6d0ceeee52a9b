#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connections that are cut, stall or lose answers; sessions that end; processes that stop; nodes
that somebody else deletes: nobody holds a lock beside another, every loser is told, and nothing is
left behind."""
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
import random_load  # noqa: E402
from proxy import Proxy  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402
from zk_server import Server  # noqa: E402

SESSION = 1500
SEED = int(os.environ.get('CHAOS_SEED', random.randrange(10 ** 6)))


def proxy_of(w):
    made = Proxy(w.servers.port)
    w.at_end(made.close)
    return made


def held_by(w, name='x', **params):
    """A proxy, and an actor behind it that holds the lock 'l'."""
    p = proxy_of(w)
    a = w.actor(port=p.port, **{'session': SESSION, 'timeout': 400, **params})
    a.lock('l', name)
    return p, a, a.ask('take', 'l', 5000).ok().token


def next_in_line(w, name='x'):
    b = w.actor()
    w.queue_up(name, [b])
    return b


@case('who is cut off is told that the lock is lost before another one gets it')
def _(w):
    p, a, token = held_by(w)
    b = next_in_line(w)
    p.stall()
    lost = a.lost('l')
    got = b.answer('acquire', 'l').ok()
    print(f'# lost {(got.ns - lost.ns) / 1e6:.0f} ms before the next one had it')
    assert lost.ns < got.ns, 'told too late'
    assert got.token > token
    p.flow()
    a.ask('drop', 'l').be('PAWL_ELOST')
    a.send('acquire', 'l', -1)
    until(lambda: len(w.queue('x')) == 2, 'until it is back in the queue')
    b.ask('drop', 'l').ok()
    a.answer('acquire', 'l').ok()


@case('a short interruption costs nothing: same session, same lock, same node')
def _(w):
    p, a, token = held_by(w)
    node = w.queue('x')
    b = next_in_line(w)
    for n, gently in enumerate((False, True, False), 1):
        p.gently = gently
        p.cut()
        until(lambda: a.ask('stats').reconnects == n, 'until it has looked')
    equal(a.ask('valid', 'l').held, 1)
    equal(a.ask('token', 'l').token, token)
    equal(w.queue('x')[:1], node)
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()


@case('a waiter whose connection is cut keeps its place and is woken')
def _(w):
    a = w.actor()
    w.queue_up('x', [a])
    a.answer('acquire', 'l').ok()
    p = proxy_of(w)
    b = w.actor(port=p.port, session=10000, timeout=400)
    w.queue_up('x', [b])
    c = next_in_line(w)
    p.cut()
    p.refuse()
    a.ask('drop', 'l').ok()
    p.accept()
    b.answer('acquire', 'l').ok()
    equal(c.have('acquire', 'l'), None)
    b.ask('drop', 'l').ok()
    c.answer('acquire', 'l').ok()


@case('an answer that is lost, at whatever byte, never makes two nodes')
def _(w):
    p = proxy_of(w)
    a = w.actor(port=p.port, session=10000, timeout=3000)
    a.lock('l', 'x')
    a.sem('s', 'pool', permits=4)
    a.ask('take', 'l', 5000).ok()
    a.ask('drop', 'l').ok()
    for way in ('down', 'up'):
        for n in (1, 5, 17, 30, 60, 90, 130, 160, 200, 260, 340):
            p.cut_after(n, way)
            a.ask('take', 'l', 20000).ok()
            equal(len(w.queue('x')), 1, f'after {n} bytes {way}:')
            a.ask('drop', 'l').ok()
            equal(w.queue('x'), [])
            p.cut_after(n * 3, way)
            a.ask('take', 's', 20000, 2).ok()
            equal(len(w.children('pool/leases')), 2, f'leases after {3 * n} bytes {way}:')
            a.ask('drop', 's', 2).ok()
            equal(w.children('pool/leases'), [])
            until(lambda: not w.children('pool/locks'), 'until its mutex is free')
    print(f'# {p.cuts} connections cut')


@case('count-downs whose answers are lost are counted once')
def _(w):
    p = proxy_of(w)
    a, b = w.actor(port=p.port, session=10000, timeout=3000), w.actor()
    a.latch('c', 'n')
    b.latch('c', 'n')
    a.ask('set', 'c', 1000).ok()
    for i, way in enumerate(('down', 'up') * 12):
        p.cut_after(10 + 13 * i, way)
        a.send('down', 'c')
        b.ask('down', 'c').ok()
        a.answer('down', 'c').be('PAWL_OK')
        equal(b.ask('count', 'c').ok().n, 1000 - 2 * (i + 1))
    for n in range(10, 400, 40):  # and the last one, and setting it
        b.latch(f'd{n}', f'm{n}')
        a.latch(f'd{n}', f'm{n}')
        p.cut_after(n)
        a.ask('set', f'd{n}', 1).ok()
        equal(b.ask('count', f'd{n}').ok().n, 1)
        p.cut_after(n)
        a.ask('down', f'd{n}').ok()
        equal(b.ask('count', f'd{n}').ok().n, 0)


@case('a session that has ended takes the locks, and those who wait come again in the next one')
def _(w):
    p, a, _ = held_by(w)
    a.lock('w', 'busy')
    b = w.actor()
    b.lock('l', 'busy')
    b.ask('take', 'l', 5000).ok()
    a.send('acquire', 'w', -1)
    until(lambda: len(w.queue('busy')) == 2)
    p.stall()
    until(lambda: len(w.queue('busy')) == 1, 'until the session has ended')
    a.lost('l')
    p.flow()
    until(lambda: len(w.queue('busy')) == 2, 'until it is back')
    b.ask('drop', 'l').ok()
    a.answer('acquire', 'w').ok()
    a.ask('drop', 'l').be('PAWL_ELOST')
    a.ask('take', 'l', 5000).ok()


@case('a holder whose node is deleted is told at once')
def _(w):
    a, b = w.actor(), w.actor()
    w.queue_up('x', [a, b])
    a.answer('acquire', 'l').ok()
    w.admin.delete(w.path('x/' + w.queue('x')[0]))
    a.lost('l')
    b.answer('acquire', 'l').ok()
    a.ask('drop', 'l').be('PAWL_ELOST')
    a.sem('s', 'pool', permits=2)
    a.ask('take', 's', 0).ok()
    w.admin.delete(w.path('pool/leases/' + w.children('pool/leases')[0]))
    a.lost('s')


@case('a waiter whose node is deleted queues again, and those behind it go on')
def _(w):
    actors = [w.actor() for _ in range(3)]
    w.queue_up('x', actors)
    actors[0].answer('acquire', 'l').ok()
    w.admin.delete(w.path('x/' + w.queue('x')[1]))
    until(lambda: len(w.queue('x')) == 3, 'until it is back')
    actors[0].ask('drop', 'l').ok()
    actors[2].answer('acquire', 'l').ok()
    equal(actors[1].have('acquire', 'l'), None)
    actors[2].ask('drop', 'l').ok()
    actors[1].answer('acquire', 'l').ok()


@case('a wait that is given up while nobody answers is deleted as soon as somebody does')
def _(w):
    a = w.actor()
    w.queue_up('x', [a])
    a.answer('acquire', 'l').ok()
    p = proxy_of(w)
    b = w.actor(port=p.port, session=20000, timeout=400)
    w.queue_up('x', [b])
    p.stall()
    b.ask('cancel', 'l').ok()
    b.answer('acquire', 'l').be('PAWL_ECANCELED', 'PAWL_EUNKNOWN')
    equal(len(w.queue('x')), 2)
    p.flow()
    until(lambda: len(w.queue('x')) == 1, 'until it is deleted')
    p.stall()
    b.send('acquire', 'l', 100)
    b.answer('acquire', 'l').be('PAWL_ETIMEDOUT', 'PAWL_EUNKNOWN', 'PAWL_ECONN')
    p.flow()
    b.ask('sync')
    a.ask('drop', 'l').ok()
    until(lambda: not w.queue('x'), 'until nothing is left')


@case('a release that nobody answers is carried out as soon as somebody does')
def _(w):
    p, a, _ = held_by(w, timeout=300)
    b = next_in_line(w)
    p.stall('down')
    a.send('release', 'l')
    a.answer('release', 'l').be('PAWL_EUNKNOWN', 'PAWL_OK')
    p.flow()
    b.answer('acquire', 'l').ok()
    equal(len(w.queue('x')), 1)


@case('a fixed lease lasts as long as it was asked for, longer than the session or shorter')
def _(w):
    a, b = w.actor(session=600), w.actor()
    for lease in (300, 2000):
        a.lock(f'l{lease}', 'x', lease=lease)
        b.lock(f'l{lease}', 'x')
        got = a.ask('take', f'l{lease}', 0).ok()
        b.ask('take', f'l{lease}', 20000).ok()
        lost = a.lost(f'l{lease}')
        assert lost.ns - got.ns >= lease * 0.9e6, f'{lease}: lost after {lost.ns - got.ns} ns'
        a.ask('drop', f'l{lease}').be('PAWL_ELOST')
        b.ask('drop', f'l{lease}').ok()


@case('a holder and waiters that are stopped past their session: one holder at a time, all told')
def _(w):
    actors = [w.actor(session=SESSION) for _ in range(4)]
    w.queue_up('x', actors)
    first = actors[0].answer('acquire', 'l').ok()
    for a in actors[:3]:
        a.stop()
    last = actors[3].answer('acquire', 'l').ok()
    assert last.token > first.token
    for a in actors[:3]:
        a.resume()
    actors[0].lost('l')
    until(lambda: len(w.queue('x')) == 3, 'until the two waiters are back')
    equal(actors[3].ask('held', 'l').held, 1)
    for a in actors[1:3]:
        equal(a.have('acquire', 'l'), None)
    actors[3].ask('drop', 'l').ok()
    tokens = [last.token]
    for _ in range(2):
        got = until(lambda: [a for a in actors[1:3] if a.have('acquire', 'l')])[0]
        tokens.append(got.ask('token', 'l').token)
        got.ask('drop', 'l').ok()
    equal(tokens, sorted(set(tokens)), 'tokens:')
    for a in actors:
        a.close()
    equal(w.queue('x'), [])


@case('a server that stands still for less than the session costs nothing')
def _(w):
    a, b = w.actor(session=20000, timeout=300), w.actor(session=20000, timeout=300)
    w.queue_up('x', [a, b])
    token = a.answer('acquire', 'l').ok().token
    w.servers.pause()
    time.sleep(1.0)
    w.servers.resume()
    equal(a.ask('token', 'l').token, token)
    a.ask('drop', 'l').be('PAWL_OK', 'PAWL_EUNKNOWN')
    b.answer('acquire', 'l').ok()


@case('claims exclude each other and tokens rise, whatever happens to connections and server')
def _(w):
    print(f'# CHAOS_SEED={SEED}')
    dice, over, done = random.Random(SEED), threading.Event(), {}
    proxies = [proxy_of(w) for _ in range(3)]
    workers = [random_load.Worker(SEED * 100 + i, w.url(proxies[i % 3].port, session=1000, timeout=300),
                             over) for i in range(6)]
    for worker in workers:
        worker.start()
    end = time.monotonic() + 10
    while time.monotonic() < end:
        p, n = dice.choice(proxies), dice.randrange(600)
        what = dice.choice(('cut', 'cut in the middle', 'cut in the middle', 'freeze', 'stall',
                            'long stall', 'pause'))
        done[what] = done.get(what, 0) + 1
        if what == 'cut':
            p.cut()
        elif what == 'cut in the middle':
            p.cut_after(n, dice.choice(('up', 'down')))
        elif what == 'freeze':
            p.freeze()
        elif what.endswith('stall'):
            p.stall(dice.choice(('up', 'down', 'both')))
            time.sleep(dice.random() * (0.4 if what == 'stall' else 2))
            p.flow()
        elif what == 'pause':
            w.servers.pause()
            time.sleep(dice.random() * 0.4)
            w.servers.resume()
        time.sleep(dice.random() * 0.08)
    over.set()
    for worker in workers:
        worker.join()
    made = random_load.check(workers)
    random_load.check_alive(workers)
    for worker in workers:
        worker.actor.close().ok()
    w.nothing_left()
    print(f'# {len(made)} claims; {random_load.codes(workers)}; {done}')


if __name__ == '__main__':
    sys.exit(run(lambda: Server(tick=100, least=300).start()))
