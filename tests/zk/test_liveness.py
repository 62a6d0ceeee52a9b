#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a lock may stand free while a client waits for the lock, nodes that are left behind, users that
are refused, and servers that do not answer. docs/zookeeper.md states the bounds."""
import os
import shutil
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from fake_zk import Fake  # noqa: E402
from proxy import Proxy  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402
from zk_client import digest, text  # noqa: E402
from zk_server import Server  # noqa: E402

SESSION = 2000  # ms
BEYOND = 5      # s: this long after the end of the session no client may still wait


def proxy_of(w):
    made = Proxy(w.servers.port)
    w.at_end(made.close)
    return made


def within(function, seconds=SESSION / 1000 + BEYOND):
    began = time.monotonic()
    got = function()
    took = time.monotonic() - began
    print(f'# {took:.1f} s of {seconds} s')
    assert took <= seconds, f'{took:.1f} s'
    return got


def restart(server, change):
    """Restart the server with other data."""
    server.kill()
    change(os.path.join(server.folder, 'data', 'version-2'))
    server.launch()
    server.await_ready()


# ---- downgrade ----

def deaf_writer(w, **params):
    """A writer whose node is deleted without a notification, and another writer that has the lock now."""
    p = proxy_of(w)
    a, b = w.actor(port=p.port, session=20000, timeout=15000, **params), w.actor(**params)
    a.lock('l', 'x', kind='write', thread=1)
    a.lock('r', 'x', kind='read', thread=1)
    a.ask('take', 'l', 5000).ok()
    time.sleep(0.3)  # by now the writer watches its node
    b.lock('l', 'x', kind='write')
    b.send('acquire', 'l', -1)
    until(lambda: len(w.queue('x')) == 2)
    p.stall('down')
    w.admin.delete(w.path('x/' + w.queue('x')[0]))
    b.answer('acquire', 'l').ok()
    return p, a, b


@case('a writer that has lost its lock unheard does not become a reader beside the next writer')
def _(w):
    for params in ({}, {'flavor': 'kazoo'}):
        p, a, b = deaf_writer(w, **params)
        a.send('acquire', 'r', -1)
        time.sleep(0.3)
        p.flow()
        until(lambda: len(w.queue('x')) == 2, 'until it stands in line')
        time.sleep(0.3)
        equal(a.have('acquire', 'r'), None, 'beside a writer:')
        equal(b.ask('held', 'l').held, 1)
        b.ask('drop', 'l').ok()
        a.answer('acquire', 'r').ok()
        a.ask('drop', 'r').ok()
        p, a, b = deaf_writer(w, **params)
        a.send('try', 'r')
        time.sleep(0.3)
        p.flow()
        a.answer('try', 'r').be('PAWL_EBUSY')
        b.ask('drop', 'l').ok()
        until(lambda: not w.queue('x'))


@case('a writer becomes a reader past those who wait, also if the answer is lost')
def _(w):
    for n in (None, 0, 20, 60, 120):
        p = proxy_of(w)
        a, b = w.actor(port=p.port, session=20000, timeout=400), w.actor()
        a.lock('l', 'x', kind='write', thread=1)
        a.lock('r', 'x', kind='read', thread=1)
        a.ask('take', 'l', 5000).ok()
        b.lock('l', 'x', kind='write')
        b.send('acquire', 'l', -1)
        until(lambda: len(w.queue('x')) == 2)
        if n is not None:
            p.cut_after(n, 'down')
        a.ask('take', 'r', 20000).ok()
        a.ask('drop', 'l').be('PAWL_OK', 'PAWL_EUNKNOWN')
        until(lambda: len(w.queue('x')) == 2)
        equal(b.have('acquire', 'l'), None)
        a.ask('drop', 'r').be('PAWL_OK', 'PAWL_EUNKNOWN')
        b.answer('acquire', 'l').ok()
        b.ask('drop', 'l').ok()
        a.close()


# ---- how long a lock may stand free ----

@case('killed holders and waiters and a cut connection cost a session')
def _(w):
    p = proxy_of(w)
    actors = [w.actor(session=SESSION) for _ in range(4)]
    actors.append(w.actor(port=p.port, session=SESSION, timeout=400))
    w.queue_up('x', actors)
    actors[0].answer('acquire', 'l').ok()
    for a in actors[:-1]:
        a.kill()
    p.cut()
    within(lambda: actors[-1].answer('acquire', 'l').ok())


@case('a waiter whose own session has ended queues again as soon as it has a connection')
def _(w):
    p = proxy_of(w)
    a, b = w.actor(), w.actor(port=p.port, session=SESSION, timeout=400)
    w.queue_up('x', [a, b])
    a.answer('acquire', 'l').ok()
    p.stall()
    until(lambda: len(w.queue('x')) == 1, 'until the session has ended')
    a.ask('drop', 'l').ok()
    p.flow()
    within(lambda: b.answer('acquire', 'l').ok(), BEYOND)


@case('an event that is never sent costs a session')
def _(w):
    fake = Fake(w.servers.port)
    a = w.actor()
    b, c = (w.actor(port=fake.port, session=SESSION) for _ in range(2))
    w.queue_up('x', [a, b])
    a.answer('acquire', 'l').ok()
    a.sem('s', 'pool', permits=2)
    a.ask('take', 's', 1000, 2).ok()
    a.latch('c', 'gate')
    a.ask('set', 'c', 1).ok()
    c.sem('s', 'pool', permits=2)
    fake.spoil('event', lambda body: None)
    a.ask('drop', 'l').ok()
    within(lambda: b.answer('acquire', 'l').ok())
    b.ask('drop', 'l').ok()
    for take, give in ((('take', 's', 30000), ('drop', 's', 2)), (('take', 'c', 30000), None)):
        if give is None:
            c.latch('c', 'gate')
        c.send(*take)
        time.sleep(0.5)
        a.ask(*(give or ('down', 'c'))).ok()
        within(lambda: c.answer(*take[:2]).ok())


@case('servers that have lost their data are used again within a session', fresh=True)
def _(w):
    a, b = (w.actor(session=SESSION, timeout=400) for _ in range(2))
    w.queue_up('x', [a, b])
    a.answer('acquire', 'l').ok()
    b.lock('m', 'y')
    b.ask('take', 'm', 5000).ok()
    a.kill()
    restart(w.servers, shutil.rmtree)
    within(lambda: b.answer('acquire', 'l').ok())
    b.lost('m')
    b.ask('drop', 'm').be('PAWL_ELOST')
    b.ask('take', 'm', 5000).ok()
    w.admin = type(w.admin)(w.servers.port)


@case('servers that went back to an older snapshot are used again within a session', fresh=True)
def _(w):
    folder = os.path.join(w.servers.folder, 'old')
    restart(w.servers, lambda data: shutil.copytree(data, folder))
    w.admin = type(w.admin)(w.servers.port)
    a, b, c = (w.actor(session=SESSION, timeout=400) for _ in range(3))
    w.queue_up('x', [a, b])
    a.answer('acquire', 'l').ok()
    c.lock('l', 'x')
    for i in range(20):  # so that its clients have seen more than the snapshot has
        c.lock(f'l{i}', f'z{i}')
        c.ask('take', f'l{i}', 20000).ok()

    def go_back(data):
        shutil.rmtree(data)
        os.rename(folder, data)
    a.kill()
    restart(w.servers, go_back)
    within(lambda: b.answer('acquire', 'l').ok())
    b.ask('drop', 'l').ok()
    within(lambda: c.ask('take', 'l', 60000).ok())
    w.admin = type(w.admin)(w.servers.port)


@case('a lock that was released stays free on servers that went back to a time before', fresh=True)
def _(w):
    session = 6000  # longer than a restart takes: the holder resumes its session
    a, b = (w.actor(session=session, timeout=400) for _ in range(2))
    for actor in (a, b):
        actor.lock('l', 'x')
        actor.sem('s', 'pool', permits=1)
    for name in ('l', 's'):
        a.ask('take', name, 5000).ok()
    data = os.path.join(w.servers.folder, 'data', 'version-2')
    shutil.copytree(data, data + '-old')
    for name in ('l', 's'):
        a.ask('drop', name).ok()

    def go_back(data):
        shutil.rmtree(data)
        os.rename(data + '-old', data)
    restart(w.servers, go_back)
    for name in ('l', 's'):
        within(lambda n=name: b.ask('take', n, 60000).ok(), session / 1000 + BEYOND)
    w.admin = type(w.admin)(w.servers.port)


# ---- silence ----

def all_silent(a, codes=('PAWL_ECONN', 'PAWL_EUNKNOWN')):
    """No call treats a missing answer as an answer."""
    a.lock('l', 'one')
    a.lock('r', 'two', kind='read')
    a.sem('s', 'pool', permits=3)
    a.latch('c', 'gate')
    for words in (('take', 'l', 100), ('take', 'r', 100), ('take', 's', 100), ('try', 'l'),
                  ('show', 'one'), ('ls', '*'), ('break', 'l'), ('count', 'c'),
                  ('available', 's'), ('set', 'c', 2), ('down', 'c'), ('take', 'c', 100)):
        got = a.ask(*words)
        assert got.code in codes, f'{words}: {got}'
        assert got.words, f'{words}: {got}'
    a.send('acquire', 'l', 100)
    a.answer('acquire', 'l').be(*codes)


@case('a server that never says anything is no connection, never busy or free')
def _(w):
    with socket.create_server(('127.0.0.1', 0)) as silent:
        all_silent(w.actor(port=silent.getsockname()[1], timeout=300))


@case('a server that falls silent is no connection, never busy or free')
def _(w):
    p = proxy_of(w)
    a = w.actor(port=p.port, session=20000, timeout=300)
    a.lock('x', 'x')
    a.ask('take', 'x', 5000).ok()
    p.stall('down')
    all_silent(a)


# ---- types ----

@case('a name in use as one type is refused as another, by every call')
def _(w):
    a, b = w.actor(), w.actor()
    a.lock('l', 'lock')
    a.lock('r', 'read', kind='read')
    a.sem('s', 'sem', permits=2)
    a.latch('c', 'latch')
    for words in (('take', 'l', 5000), ('take', 'r', 5000), ('take', 's', 5000), ('set', 'c', 2)):
        a.ask(*words).ok()
    for name in ('lock', 'read', 'sem', 'latch'):
        b.lock(f'l{name}', name)
        b.lock(f'r{name}', name, kind='read')
        b.sem(f's{name}', name, permits=2)
        b.latch(f'c{name}', name)
        calls = []
        if name in ('sem', 'latch'):
            calls += [('try', f'l{name}'), ('take', f'l{name}', 5000), ('try', f'r{name}')]
        if name != 'sem':
            calls += [('try', f's{name}'), ('take', f's{name}', 5000), ('available', f's{name}')]
        if name != 'latch':
            calls += [('set', f'c{name}', 2), ('down', f'c{name}'), ('count', f'c{name}'),
                      ('try', f'c{name}'), ('take', f'c{name}', 5000)]
        for words in calls:
            got = b.ask(*words)
            assert got.code == 'PAWL_ESTATE', f'{name}: {words}: {got}'
    a.ask('drop', 's').ok()
    equal(b.ask('count', 'csem').ok().n, 0)  # free again: an open latch, as every unused name
    b.ask('down', 'csem').ok()
    b.ask('try', 'csem').ok()


@case('a semaphore that is refused leaves no folder behind')
def _(w):
    a = w.actor()
    a.sem('s', 'pool', permits=0)
    a.ask('take', 's', 5000).be('PAWL_ESTATE')
    until(lambda: not w.children('pool'), 'until the folders are gone')


@case('a user without one of the rights is told which one it needs')
def _(w):
    secret = {'PAWL_USER': 'app', 'PAWL_PASSWORD': 'sesame'}
    admin = w.admin
    admin.create(w.chroot)
    for rights, missing in ((1, 'create'), (4, 'read'), (0, 'create')):
        admin.create(w.path(f'{rights}'))
        admin.create(w.path(f'{rights}/locks'))
        admin.set_acl(w.path(f'{rights}/locks'), (rights or 2, 'digest', digest('app', 'sesame')))
        admin.set_acl(w.path(f'{rights}'), (1, 'world', 'anyone'))
        for chroot in (f'{rights}/locks', f'{rights}/none'):
            home, w.chroot = w.chroot, w.path(chroot)
            a = w.actor(environ=secret)
            w.chroot = home
            a.lock('l', 'x')
            a.latch('c', 'gate')
            needs = missing if chroot.endswith('locks') else 'create'
            calls = (('take', 'l', 5000), ('set', 'c', 1)) if needs == 'create' else (('ls', '*'),)
            for words in calls:
                got = a.ask(*words).be('PAWL_EAUTH')
                assert f'the right to {needs}' in got.words, got
            if needs == 'read':
                a.ask('take', 'l', 5000).ok()  # only `ls` reads the folder of all names
                a.ask('drop', 'l').ok()


# ---- data and answers of other programs ----

@case('numbers that others write are brought within bounds')
def _(w):
    huge = 9 * 10 ** 18
    a = w.actor()
    a.sem('s', 'pool', permits=2)
    a.ask('take', 's', 5000).ok()
    b = w.actor()
    b.sem('s', 'pool', permits=2)
    for value in (f'pawl permits=-{huge}', f'pawl permits={huge}0', 'pawl permits=-5', 'pawl permits='):
        w.admin.set(w.path('pool'), value.encode())
        a.rows('show', 'pool')
        a.ask('available', 's').ok()
        b.ask('try', 's').be('PAWL_OK', 'PAWL_ESTATE')
        b.ask('drop', 's')
    a.latch('c', 'gate')
    a.ask('set', 'c', 2).ok()
    w.admin.set(w.path('gate/count'), f'pawl count={huge}0'.encode())
    assert a.ask('count', 'c').ok().n > 0
    a.ask('down', 'c').ok()
    w.admin.set(w.path('gate/count'), b'pawl count=-7')
    a.ask('down', 'c').be('PAWL_EBACKEND')


@case('lists of any size and with empty names are read, in time and in bounds')
def _(w):
    fake = Fake(w.servers.port)
    a = w.actor(port=fake.port, session=30000, timeout=20000)
    a.sem('s', 'pool', permits=2)
    a.ask('take', 's', 5000).ok()
    uuid = '_c_00000000-0000-0000-0000-000000000000-lease-'

    def children(names):
        return struct.pack('>i', len(names)) + b''.join(map(text, names)) + bytes(68)
    for names in (['', ''], [uuid + f'{i:010}' for i in range(3)],
                  [f'_c_{i:08}-0000-0000-0000-000000000000-lease-{i:010}' for i in range(150000)]):
        fake.spoil('children', lambda body, names=names: children(names))
        fake.lies_of['early children'] = fake.lies_of['children']
        began = time.monotonic()
        a.ask('show', 'pool').be('PAWL_OK', 'PAWL_EBACKEND')
        assert time.monotonic() - began < 10
        a.ask('available', 's')
        fake.behave()


if __name__ == '__main__':
    sys.exit(run(lambda: Server(tick=100, least=300).start()))
