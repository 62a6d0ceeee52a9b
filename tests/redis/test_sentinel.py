#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients find and follow the master that the sentinels name: replicated grants stay valid, and a holder
that lost its lock with the old master is notified at once.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import LONG, Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from ports import free_port  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_sentinel import Watched, forget, role  # noqa: E402
from redis_server import keys  # noqa: E402
from steps import fails, holder, moved, talker, turns, waiters  # noqa: E402
from wait import until  # noqa: E402


def listening(server):
    """The channels of the clients that are connected to this server."""
    return server.call('PUBSUB', 'CHANNELS', 'pawl:@*')


# ---- finding it ----------------------------------------------------------------------------------

@case('sentinels that are down, deaf or something else are passed over', server=Watched)
def _(w):
    garbage = [talker(b'HTTP/1.1 400 Bad Request\r\n\r\n'), talker(b'-ERR no\r\n', False),
               talker(b'*2\r\n+x\r\n', False), free_port(), w.servers[0].port]
    good = w.sentinels[0].port
    for ports in ([*garbage, good], [good, *garbage], [free_port(), good]):
        hosts = ','.join(f'127.0.0.1:{p}' for p in ports)
        a = Actor(f'redis+sentinel://{hosts}/shop?timeout=500')
        a.lock('l', 'n')
        a.ask('take', 'l', 30000).ok()
        a.ask('drop', 'l').ok()
        a.close().ok()
    w.sentinels[0].pause()
    a, _ = holder(w, timeout=500)
    a.close().ok()


@case('no sentinel at all: PAWL_ECONN in the caller\'s time, and which one was tried', server=False)
def _():
    ports = [free_port(), free_port()]
    hosts = ','.join(f'127.0.0.1:{p}' for p in ports)
    fails(f'redis+sentinel://{hosts}/shop', ('PAWL_ECONN',),
          'sentinel.*127.0.0.1:(%d|%d).*refused' % tuple(ports))
    fails('redis+sentinel://no-such-host.invalid/shop', ('PAWL_ECONN', 'PAWL_ETIMEDOUT'),
          'no-such-host.invalid|within')


@case('a master that no sentinel knows: an error that names it', server=Watched)
def _(w):
    fails(w.url(name='no%20such'), ('PAWL_EBACKEND', 'PAWL_EINVAL'), "no such")
    hosts = [w.sentinels[0].port, w.sentinels[1].port]
    w.sentinels[0].call('SENTINEL', 'REMOVE', 'shop')  # only this sentinel forgets the master
    a = Actor('redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/shop' % tuple(hosts))
    a.lock('l', 'n')
    a.ask('take', 'l', 30000).ok()


@case('URLs that make no sense are refused, without a word of the password', server=False)
def _():
    for url in ('redis+sentinel://h', 'redis+sentinel://h/', 'redis+sentinel:///m',
                'redis+sentinel://h,/m', 'redis+sentinel://,h/m', 'redis+sentinel://h,,h/m',
                'redis+sentinel://h:0/m', 'redis+sentinel://h:x,h/m', 'redis+sentinel://h/m/x',
                'redis+sentinel://h/m/0/1', 'redis+sentinel://h/m?tls=yes',
                'redis+sentinel://h/m?replicas=-1', 'redis+sentinel://h/m?replicas=x',
                'redis+sentinel://h/m?replicas=101', 'redis+sentinel://:secret@h,h:y/m',
                'redis+sentinel://h/m?sentinel_user=u', 'redis+sentinel://h/' + 'm' * 2000,
                'redis+sentinel://h/m?cafile=x&sentinel_password=secret', 'redis+sentinel:h/m',
                'redis+sentinel://' + 'h' * 300 + '/m'):
        a = Actor(url, opens=False)
        assert a.opened.code == 'PAWL_EINVAL', f'{url}: {a.opened}'
        assert a.opened.words and 'secret' not in a.opened.words, a.opened.words


@case('a user of the servers, another of the sentinels, and a database', server=Watched)
def _(w):
    for s in w.servers:
        s.call('ACL', 'SETUSER', 'shop', 'on', '>secret', '~*', '&*', '+@all')
        s.call('CONFIG', 'SET', 'masteruser', 'default')
    for s in w.sentinels:
        s.call('ACL', 'SETUSER', 'eye', 'on', '>word', '~*', '&*', '+@all')
        s.call('ACL', 'SETUSER', 'default', '-@all', '+hello', '+ping')
    url = w.url(db=3, sentinel_user='eye', sentinel_password='word').replace('//', '//shop:secret@')
    a = Actor(url)
    a.lock('l', 'n')
    a.ask('take', 'l', 30000).ok()
    m = w.servers[0]
    m.call('SELECT', 3)
    assert m.holder('n'), 'it is not in database 3'
    fails(url.replace('=word', '=wrong'), ('PAWL_EAUTH',), 'WRONGPASS|password')
    fails(url.replace(':secret', ':wrong'), ('PAWL_EAUTH',), 'WRONGPASS|password')
    fails(w.url(), ('PAWL_EAUTH',), 'permission|NOPERM')


# ---- fail-over -----------------------------------------------------------------------------------

@case('master killed: holder and waiters go on where they were', server=Watched)
def _(w):
    a, token = holder(w, watchdog=LONG)
    others = waiters(w, 'n', 3)
    places = w.synced().queue('n')
    old, new = w.kill_master()
    moved([a] + others)
    equal(new.queue('n'), places)
    equal(a.ask('token', 'l').token, token)
    a.ask('renew', 'l', 0).ok()
    turns(a, token, others)
    for x in [a] + others:
        stats = x.ask('stats')
        equal([stats.failovers, stats.lost], [1, 0])


@case('fail-over by command: likewise, and the old master is left', server=Watched)
def _(w):
    a, token = holder(w, watchdog=LONG)
    others = waiters(w, 'n', 2)
    w.synced()
    old, new = w.failover()
    moved([a] + others)
    equal(len(listening(new)), 3)
    equal(listening(old), [])
    until(lambda: role(old) == ('slave', new.port))
    token = turns(a, token, others)
    old, new = w.failover()  # and back
    moved([a] + others, 2)
    assert a.ask('take', 'l', 30000).ok().token > token
    equal(a.ask('stats').lost, 0)


@case('a lock that did not survive: its holder is told at once, the next one gets it',
      server=Watched)
def _(w):
    a, token = holder(w, watchdog=LONG)
    b, other = holder(w, 'k', watchdog=LONG)
    w.synced()
    for r in w.replicas():
        forget(r, *keys('n'))
    w.kill_master()
    a.lost('l')
    equal(a.ask('valid', 'l').valid, 0)
    b.lock('n', 'n')
    assert b.ask('take', 'n', 30000).ok().token > token
    a.ask('drop', 'l').be('PAWL_ELOST')
    equal(b.ask('held', 'n').held, 1)
    equal([b.ask('token', 'l').token, b.have('lost', 'l')], [other, None])
    equal([a.ask('stats').lost, b.ask('stats').lost], [1, 0])


@case('places in the queue that did not survive: they are taken again', server=Watched)
def _(w):
    a, token = holder(w, watchdog=LONG)
    others = waiters(w, 'n', 2)
    w.synced()
    for r in w.replicas():
        forget(r, *keys('n')[1:])
    old, new = w.kill_master()
    until(lambda: len(new.queue('n')) == 2, 'for both to queue again')
    a.ask('drop', 'l').ok()
    for _ in range(2):  # in any order
        b, got = until(lambda: next(((b, g) for b in others if (g := b.have('acquire', 'l'))), 0))
        assert got.ok().token > token
        token = got.token
        b.ask('drop', 'l').ok()


@case('semaphores, read locks and latches outlive the master', server=Watched)
def _(w):
    a, b = w.actor(watchdog=LONG), w.actor(watchdog=LONG)
    for x in (a, b):
        x.sem('s', 's', permits=3)
        x.lock('r', 'r', kind='read')
        x.lock('w', 'r', kind='write')
        x.latch('d', 'd')
    a.ask('set', 'd', 1).ok()
    a.ask('take', 's', 0, 2).ok()
    a.ask('take', 'r', 0).ok()
    b.ask('take', 'r', 0).ok()
    b.send('take', 'd', 60000)
    w.synced()
    w.kill_master()
    moved([a])
    a.ask('down', 'd').ok()
    b.answer('take', 'd').ok()
    moved([b])
    equal(b.ask('available', 's').n, 1)
    b.ask('take', 's', 0, 2).be('PAWL_EBUSY')
    b.ask('take', 'w', 0).be('PAWL_EDEADLK', 'PAWL_EBUSY')
    for x in (a, b):
        x.ask('drop', 'r').ok()
    a.ask('drop', 's', 2).ok()
    b.ask('take', 's', 30000, 3).ok()
    b.ask('take', 'w', 30000).ok()
    equal([a.ask('stats').lost, b.ask('stats').lost], [0, 0])


@case('a holder that slept through the fail-over may believe to hold: its token is the smaller one',
      server=Watched)
def _(w):
    a, token = holder(w, watchdog=LONG)
    w.synced()
    for r in w.replicas():
        forget(r, *keys('n'))
    a.send('stopself', 'l')
    os.waitid(os.P_PID, a.pid, os.WSTOPPED | os.WNOWAIT)
    w.kill_master()
    b, newer = holder(w)
    a.resume()
    woken = a.answer('stopself', 'l')
    print(f'# held={woken.held}')  # 1, unless the background thread was first
    equal(woken.token, token)
    assert token < newer
    a.lost('l')
    a.ask('drop', 'l').be('PAWL_ELOST')
    equal(b.ask('held', 'l').held, 1)


@case('layout redisson: a hold outlives the master, and a lost one is told', server=Watched)
def _(w):
    a, _ = holder(w, layout='redisson', watchdog=LONG)
    k, _ = holder(w, 'k', layout='redisson', watchdog=LONG)
    b = w.actor(layout='redisson')
    b.lock('l', 'n')
    b.send('acquire', 'l', -1)
    until(lambda: w.servers[0].subscribers())
    w.synced()
    for r in w.replicas():
        forget(r, 'k')
    w.kill_master()
    k.lost('l')
    moved([a, b])
    equal([a.ask('held', 'l').held, b.have('acquire', 'l')], [1, None])
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()


# ---- the old master, and sentinels that go -------------------------------------------------------

@case('a master that stops is left for the new one, and not found again when it goes on',
      server=Watched)
def _(w):
    a, token = holder(w, watchdog=LONG, timeout=500)
    others = waiters(w, 'n', 2, timeout=500)
    old = w.synced()
    old.pause()
    new = w.switched(old)
    moved([a] + others)
    equal(len(listening(new)), 3)
    old.resume()
    equal(listening(old), [])
    turns(a, token, others)
    until(lambda: role(old) == ('slave', new.port), 'for the old master to be a replica')
    equal([x.ask('stats').failovers for x in [a] + others], [1, 1, 1])


@case('a master that turns into a replica is left at once; READONLY is nobody\'s answer',
      server=Watched)
def _(w):
    a, token = holder(w, watchdog=LONG)
    old = w.synced()
    other = w.replicas()[0]
    other.call('REPLICAOF', 'NO', 'ONE')
    old.call('REPLICAOF', '127.0.0.1', other.port)
    b = w.actor()
    b.lock('l', 'k')
    b.ask('take', 'l', 60000).ok()
    a.lock('k', 'k')
    a.ask('take', 'k', 0).be('PAWL_EBUSY', 'PAWL_ECONN', 'PAWL_EUNKNOWN', 'PAWL_ETIMEDOUT')
    equal(a.ask('held', 'l').held, 1)
    new = w.switched(old)
    until(lambda: new.holder('k'))
    a.ask('drop', 'l').ok()


def ports_of(pid):
    """The local TCP ports of a process."""
    with open(f'/proc/{pid}/net/tcp', encoding='ascii') as f:
        rows = [line.split() for line in f.readlines()[1:]]
    links = [os.readlink(f.path) for f in os.scandir(f'/proc/{pid}/fd')
             if os.path.islink(f.path)]
    return {int(r[1].split(':')[1], 16) for r in rows if f'socket:[{r[9]}]' in links}


def listened_to(w, a):
    """Wait until this client is connected to a sentinel. Returns the sentinel."""
    def found():
        mine = ports_of(a.pid)
        return next((s for s in w.running(w.sentinels) for r in s.subscribers()
                     if int(r['addr'].rsplit(':', 1)[1]) in mine), None)
    return until(found, 'for the client to listen to a sentinel')


@case('the sentinel that was listened to is killed: the next one tells of the fail-over',
      server=Watched)
def _(w):
    a, _ = holder(w, watchdog=LONG)
    first = listened_to(w, a)
    first.kill()
    assert listened_to(w, a) is not first
    w.failover()
    moved([a])
    a.ask('drop', 'l').ok()


@case('fail-over after fail-over: tokens rise, nobody is lost', server=Watched)
def _(w):
    a, token = holder(w)
    for n in range(1, 4):
        w.synced()
        old, new = w.kill_master() if n % 2 else w.failover()
        moved([a], n)
        equal(a.ask('token', 'l').token, token)
        a.ask('drop', 'l').ok()
        if not old.runs():
            old.start()
        newer = a.ask('take', 'l', 30000).ok().token
        assert newer > token
        token = newer
    equal(a.ask('stats').lost, 0)


if __name__ == '__main__':
    sys.exit(run(Live))
