#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a lock may stand free while a client waits for the lock, keys that are left behind, and servers
that do not answer. docs/etcd.md states the bounds."""
import os
import shutil
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor, query  # noqa: E402
from cases import case, run  # noqa: E402
from etcd_server import Cluster, Etcd  # noqa: E402
from fake_etcd import PING, Deaf, Fake  # noqa: E402
from proxy import Proxy  # noqa: E402
from wait import until  # noqa: E402

LEASE = 3000  # ms
BEYOND = 5    # s: this long after the lease no client may still wait


def on_etcd(sentence, **more):
    def add(function):
        @case(sentence, server=False, **more)
        def _():
            server = Etcd()
            try:
                function(server, Proxy(server.port))
            finally:
                server.stop()
    return add


def through(p, **params):
    return Actor(f'etcd://127.0.0.1:{p.port}/{query(params)}')


def queue_up(s, name, actors, **options):
    for i, a in enumerate(actors):
        a.lock('l', name, **options)
        a.send('acquire', 'l', -1)
        until(lambda: len(s.keys(f'pawl/{name}/')) == i + 1)


def within(function, seconds):
    began = time.monotonic()
    got = function()
    took = time.monotonic() - began
    print(f'# {took:.1f} s of {seconds} s')
    assert took <= seconds, f'{took:.1f} s'
    return got


# ---- fences ----

@on_etcd('a fence that is deleted is written again once, however many names ask')
def _(s, p):
    a = through(p, timeout=20000)
    a.lock('l', 'one')
    a.ask('take', 'l', 20000).ok()
    p.cut()
    until(lambda: a.ask('stats').reconnects == 1)
    a.ask('drop', 'l').ok()
    until(lambda: s.keys('pawl//fence/'))
    for kind in ('mutex', 'read'):
        for i in range(100):
            a.lock(f'{kind}{i}', f'name{i}', kind=kind)
        s.ctl('del', 'pawl/', '--prefix')
        before = s.revision()
        for i in range(100):
            a.send('acquire', f'{kind}{i}', 20000)
        for i in range(100):
            a.answer('acquire', f'{kind}{i}').ok()
        writes = s.revision() - before
        print(f'# {kind}: {writes} writes')
        assert writes < 1000, f'{writes} writes for 100 names'
        for i in range(100):
            a.ask('drop', f'{kind}{i}').ok()


@on_etcd('a fence that a late request writes once more is written again once, however many names ask')
def _(s, p):
    """A request of a connection that was lost arrives after its client has written the fence anew: the
    fence then has a revision that the client does not know."""
    a = through(p, timeout=20000)
    a.lock('l', 'one')
    a.ask('take', 'l', 20000).ok()
    p.cut()
    until(lambda: a.ask('stats').reconnects == 1)
    a.ask('drop', 'l').ok()
    until(lambda: s.keys('pawl//fence/'))
    fence, (value, _, _, lease) = next(iter(s.values('pawl//fence/').items()))
    for kind in ('mutex', 'read'):
        for i in range(100):
            a.lock(f'{kind}{i}', f'{kind}{i}', kind=kind)
        p.stall('up')
        for i in range(100):
            a.send('acquire', f'{kind}{i}', 20000)
        a.ask('sync')
        before = s.version(fence)
        s.ctl('put', fence, value, f'--lease={lease:x}')
        p.flow()
        for i in range(100):
            a.answer('acquire', f'{kind}{i}').ok()
        writes = s.version(fence) - before - 1
        print(f'# {kind}: {writes} writes of the fence')
        assert writes == 1, f'{writes} writes of the fence for 100 names'
        for i in range(100):
            a.ask('drop', f'{kind}{i}').ok()


# ---- moves to other leases ----

@on_etcd('a key whose move to a longer lease was not answered is found again or deleted')
def _(s, p):
    for released in (False, True):
        a = through(p, timeout=300)
        a.lock('long', 'other', lease=60000)  # so that the longer lease exists
        a.ask('take', 'long', 20000).ok()
        a.lock('l', 'one', lease=2000)
        a.ask('take', 'l', 20000).ok()
        lease = next(iter(s.values('pawl/one/').values()))[3]
        p.stall('down')
        a.send('renew', 'l', 60000)
        until(lambda: next(iter(s.values('pawl/one/').values()))[3] != lease)
        p.freeze()
        p.refuse()
        if released:
            a.send('release', 'l')
        until(lambda: '%x' % lease not in s.leases())
        p.flow()
        p.accept()
        a.answer('renew', 'l')
        if released:
            a.answer('release', 'l')
        else:
            a.ask('drop', 'l')
        b = Actor(s.url())
        b.lock('l', 'one')
        within(lambda: b.ask('take', 'l', 20000).ok(), 2 + BEYOND)
        b.close()
        a.close()


@on_etcd('a lock with at_least lingers as long, also when its process has ended, and no longer')
def _(s, p):
    for kind, way in (('mutex', 'drop'), ('read', 'drop'), ('fair', 'release')):
        for end in ('close', 'kill', None):
            a, b = s.actor(timeout=20000), s.actor()
            a.lock('l', 'one', kind=kind, at_least=2000)
            b.lock('l', 'one', kind='write')
            began = time.monotonic()
            a.ask('take', 'l', 20000).ok()
            a.ask(way, 'l').ok()
            if end:
                getattr(a, end)()
            b.ask('try', 'l').be('PAWL_EBUSY')
            b.ask('take', 'l', 20000).ok()
            took = time.monotonic() - began
            print(f'# {kind}, {end}: {took:.1f} s')
            assert 1.9 < took < 2 + BEYOND, f'{took:.1f} s'
            b.close()
            if not end:
                a.close()
            until(lambda: not s.keys('pawl/one/'))


# ---- how long a lock may stand free ----

@on_etcd('a killed holder, killed waiters and a lost connection cost a lease')
def _(s, p):
    actors = [s.actor(watchdog=LEASE) for _ in range(4)] + [through(p, watchdog=LEASE, timeout=500)]
    queue_up(s, 'one', actors)
    actors[0].answer('acquire', 'l').ok()
    for a in actors[:-1]:
        a.kill()
    p.cut()
    within(lambda: actors[-1].answer('acquire', 'l').ok(), LEASE / 1000 + BEYOND)


@on_etcd('a waiter whose own lease has ended stands in line as soon as it has a connection')
def _(s, p):
    a, b = s.actor(), through(p, watchdog=LEASE, timeout=500)
    queue_up(s, 'one', [a, b])
    a.answer('acquire', 'l').ok()
    p.freeze()
    p.refuse()
    until(lambda: len(s.keys('pawl/one/')) == 1)
    a.ask('drop', 'l').ok()
    p.accept()
    within(lambda: b.answer('acquire', 'l').ok(), BEYOND)


@on_etcd('an event that is never sent costs the waiter a lease')
def _(s, p):
    between = Deaf(s.port)
    a, b = s.actor(), through(between, watchdog=LEASE)
    queue_up(s, 'one', [a, b])
    a.answer('acquire', 'l').ok()
    time.sleep(1)  # until the waiter watches the key before its own
    between.deaf = True
    a.ask('drop', 'l').ok()
    within(lambda: b.answer('acquire', 'l').ok(), LEASE / 1000 + BEYOND)
    assert between.eaten, 'the event was sent'
    assert b.ask('stats').reconnects == 0


@on_etcd('a server that went back to an older state costs the waiter no more than a lease')
def _(s, p):
    first, a, b = (through(p, watchdog=LEASE, timeout=500) for _ in range(3))
    queue_up(s, 'one', [first])
    first.answer('acquire', 'l').ok()
    s.keep_state()
    first.ask('drop', 'l')
    until(lambda: not s.keys('pawl/one/'))
    queue_up(s, 'one', [a, b])
    a.answer('acquire', 'l').ok()
    a.kill()
    first.kill()
    s.go_back()
    within(lambda: b.answer('acquire', 'l').ok(), LEASE / 1000 + BEYOND)


@on_etcd('a server that went back to an older state: holders are told, nothing stays for nobody')
def _(s, p):
    lease = 8000  # no lease ends while the server restarts
    a, b = (through(p, watchdog=lease, timeout=3000) for _ in range(2))
    for name in ('new', 'old'):  # the server knows the lease, and a key that is gone later
        a.lock(name, name)
    a.lock('w', 'old', kind='write')
    a.ask('take', 'old', 20000).ok()
    s.keep_state()
    a.ask('drop', 'old')
    a.ask('take', 'new', 20000).ok()
    until(lambda: len(s.keys('pawl/new/')) == 1 and not s.keys('pawl/old/'))
    s.go_back()
    assert s.keys('pawl/old/') and not s.keys('pawl/new/')
    within(lambda: a.lost('new'), BEYOND)
    a.ask('drop', 'new').be('PAWL_ELOST')
    for name in ('new', 'old'):
        b.lock(name, name)
    b.ask('take', 'new', 20000).ok()
    within(lambda: b.ask('take', 'old', 30000).ok(), lease / 1000 + BEYOND)
    # From here on the store works as usual: a new connection loses nothing.
    a.ask('take', 'w', 100).be('PAWL_ETIMEDOUT')
    p.cut()
    until(lambda: b.ask('stats').reconnects >= 2)
    b.ask('renew', 'new', 0).ok()
    for name in ('new', 'old'):
        b.ask('drop', name).ok()


@on_etcd('a server that has lost everything costs the waiter no more than a lease')
def _(s, p):
    a, b = (through(p, watchdog=LEASE, timeout=500) for _ in range(2))
    queue_up(s, 'one', [a, b])
    a.answer('acquire', 'l').ok()
    a.kill()
    s.member.kill()
    shutil.rmtree(os.path.join(s.member.folder, 'data'))
    s.member.start()
    s.wait()
    within(lambda: b.answer('acquire', 'l').ok(), LEASE / 1000 + BEYOND)


@case('a leader that dies together with the holder costs a lease', server=False)
def _():
    s = Cluster()
    try:
        a, b = s.actor(watchdog=LEASE, timeout=500), s.actor(watchdog=LEASE, timeout=500)
        queue_up(s, 'one', [a, b])
        a.answer('acquire', 'l').ok()
        a.kill()
        s.leader().kill()
        within(lambda: b.answer('acquire', 'l').ok(), LEASE / 1000 + BEYOND)
    finally:
        s.stop()


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


class Greeter(Fake):
    """A server that sends one text on each connection, and nothing else."""

    def __init__(self, greeting):
        super().__init__(None, greeting)

    def _serve(self, s):
        s.sendall(self.greeting)
        while s.recv(4096):
            pass


@case('a server that never says anything is no connection, never busy or free', server=False)
def _():
    fake = Greeter(b'')
    all_silent(Actor(f'etcd://127.0.0.1:{fake.port}/?timeout=300'))


@on_etcd('a server that falls silent is no connection, never busy or free')
def _(s, p):
    a = through(p, timeout=300)
    a.lock('x', 'x')
    a.ask('take', 'x', 20000).ok()
    p.stall('down')
    all_silent(a)


@case('a server that is none of etcd is said to be so', server=False)
def _():
    for greeting in (b'HTTP/1.1 400 Bad Request\r\n\r\n', b'-ERR unknown command\r\n',
                     b'SSH-2.0-OpenSSH_9.2p1\r\n', b'220 mail ESMTP\r\n'):
        fake = Greeter(greeting)
        a = Actor(f'etcd://127.0.0.1:{fake.port}/?timeout=1000')
        a.lock('l', 'one')
        a.ask('take', 'l', 4000).be('PAWL_EPROTO')


@case('a client that has nothing to do does not ping, since etcd hangs up on that', server=False)
def _():
    class Counting(Fake):
        pings = 0

        def _serve(self, s):
            send = s.sendall
            f = s.makefile('rb')
            send(self.greeting)
            f.read(24)
            while True:
                first = f.read(9)
                if len(first) < 9:
                    return
                f.read(int.from_bytes(first[:3], 'big'))
                self.pings += first[3] == PING
    fake = Counting(lambda stream, n: b'')
    a = Actor(f'etcd://127.0.0.1:{fake.port}/')
    time.sleep(7.5)
    assert fake.connections == 1 and fake.pings == 0, (fake.connections, fake.pings)
    a.kill()


# ---- keys of other programs ----

@on_etcd('numbers that others write are brought within bounds, and rows have a limit')
def _(s, p):
    huge = 9 * 10 ** 18
    a = s.actor()
    for name, value in (('one', f'pawl=1 since=1 pid={huge} readers={huge}'),
                        ('two', f'pawl=1 since=-{huge} pid=-5 token=-1 readers=-{huge}'),
                        ('sem', f'pawl=1 since={huge} permits={huge} of={huge}')):
        tail = '~permit-5-1' if name == 'sem' else '5-1'
        s.ctl('put', f'pawl/{name}/{tail}', value)
        rows = a.rows('show', name)
        assert len(rows) < 2000, len(rows)
    s.ctl('put', 'pawl/gate/~latch', f'pawl=1 of={huge}')
    a.latch('c', 'gate')
    a.ask('count', 'c').ok()
    assert len(a.rows('ls', '*')) == 4
    with open(f'/proc/{a.pid}/status', encoding='ascii') as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith('VmHWM'))
    assert peak < 300000, f'{peak} kB'


@on_etcd('a name in use as one type is refused as another, by every call')
def _(s, p):
    a, b = s.actor(), s.actor()
    a.lock('l', 'lock')
    a.lock('r', 'read', kind='read')
    a.sem('s', 'sem', permits=2)
    a.latch('c', 'latch')
    for words in (('take', 'l', 0), ('take', 'r', 0), ('take', 's', 0), ('set', 'c', 2)):
        a.ask(*words).ok()
    for name in ('lock', 'read', 'sem', 'latch'):
        b.lock(f'l{name}', name)
        b.lock(f'r{name}', name, kind='read')
        b.sem(f's{name}', name, permits=2)
        b.latch(f'c{name}', name)
        calls = []
        if name in ('sem', 'latch'):
            calls += [('try', f'l{name}'), ('take', f'l{name}', 1000), ('try', f'r{name}')]
        if name != 'sem':
            calls += [('try', f's{name}'), ('take', f's{name}', 1000), ('available', f's{name}')]
        if name != 'latch':
            calls += [('set', f'c{name}', 2), ('down', f'c{name}'), ('count', f'c{name}'),
                      ('try', f'c{name}'), ('take', f'c{name}', 1000)]
        for words in calls:
            got = b.ask(*words)
            assert got.code == 'PAWL_ESTATE', f'{name}: {words}: {got}'


if __name__ == '__main__':
    sys.exit(run())
