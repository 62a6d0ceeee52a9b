#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Locks on a Redis Cluster: every name is on the node of its slot, waiters keep their place while slots move
and masters die, and errors name the cause when too little of the cluster is left.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import LONG, Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from ports import free_port  # noqa: E402
from redis_cluster import PATIENT, Calm, Cluster, forget_all, lock_slot  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_sentinel import role  # noqa: E402
from redis_server import keys  # noqa: E402
from steps import fails, holder, moved, talker, turns, waiters  # noqa: E402
from wait import until  # noqa: E402

ODD_NAMES = ('{tag}a', '{tag}b', 'a}b', 'a{b', '{}x', 'x{}y', '}{', 'a{b}c{d}', 'grün', '{{x}}')


def elsewhere(c, slot):
    """A master that does not serve this slot."""
    here = c.master_of(slot)
    return next(m for m in c.masters() if m is not here)


# ---- the map -------------------------------------------------------------------------------------

@case('URLs that make no sense are refused, without a word of the password', server=False)
def _():
    for url in ('redis+cluster://', 'redis+cluster://h/1', 'redis+cluster://h?db=1',
                'redis+cluster://h,', 'redis+cluster://h:0', 'redis+cluster://h:x,h',
                'redis+cluster://h?tls=maybe', 'redis+cluster://:secret@h,h:y',
                'redis+cluster://h?replicas=x', 'redis+cluster://h?sentinel_password=secret'):
        a = Actor(url, opens=False)
        assert a.opened.code == 'PAWL_EINVAL', f'{url}: {a.opened}'
        assert a.opened.words and 'secret' not in a.opened.words, a.opened.words


@case('nobody there: PAWL_ECONN in the caller\'s time; no cluster: an error that says so')
def _(s):
    hosts = ','.join(f'127.0.0.1:{free_port()}' for _ in range(3))
    fails(f'redis+cluster://{hosts}', ('PAWL_ECONN',), '127.0.0.1.*refused', wait=2000)
    fails(s.url().replace('redis:', 'redis+cluster:'),
          ('PAWL_EBACKEND', 'PAWL_EINVAL', 'PAWL_ENOTSUP', 'PAWL_ECONN'), 'cluster', wait=30000)


@case('any node leads to all of them; those that are down or something else are passed over',
      server=Calm)
def _(c):
    odd = [free_port(), talker(b'HTTP/1.1 400 Bad Request\r\n\r\n'), talker(b'*1\r\n+x\r\n', False)]
    replica = c.replicas_of(c.masters()[0])[0]
    for ports in ([*odd, c.nodes[0].port], [replica.port]):
        hosts = ','.join(f'127.0.0.1:{p}' for p in ports)
        a = Actor(f'redis+cluster://{hosts}')
        for i in range(6):
            a.lock(i, f'name {i}')
            a.ask('take', i, 30000).ok()
        a.close().ok()


@case('every name is where its slot is: taken, waited for, handed over, listed', server=Calm)
def _(c):
    a, b = c.actor('first'), c.actor('second')
    names = [f'n{i}' for i in range(40)] + list(ODD_NAMES)
    for i, name in enumerate(names):
        a.lock(i, name)
        b.lock(i, name)
        a.ask('take', i, 30000).ok()
        b.send('acquire', i, -1)
    served = [c.master_of(lock_slot(name)) for name in names]
    equal(len(set(served)), 3)
    for name, node in zip(names, served):
        assert node.holder(name), f'{name} is not where it belongs'
        until(lambda: len(node.call('ZRANGE', keys(name)[2], 0, -1)) == 1, f'for {name}')
    rows = a.rows('ls')
    equal(sorted(r.id for r in rows), sorted(as_word(n) for n in names))
    equal({(r.holders, r.waiters, r.label) for r in rows}, {(1, 1, 'first')})
    equal(sorted(r.id for r in b.rows('ls', 'n1*')), sorted(n for n in names if n[:2] == 'n1'))
    for name in names:
        summary, holds, waits = a.rows('show', as_word(name))
        equal([summary.waiters, holds.label, waits.label], [1, 'first', 'second'], name)
    before = c.stat('publish')  # one for each connection, on a channel without listeners
    for i, name in enumerate(names):
        a.ask('drop', i).ok()
        b.answer('acquire', i).ok()
        b.ask('drop', i).ok()
    equal(c.stat('publish') - before, 0, 'messages to the whole cluster:')


def as_word(text):
    """As the actor writes it."""
    return ''.join('%%%02X' % ord(ch) if ch <= ' ' or ch == '%' else ch for ch in text)


@case('semaphores, read locks and latches', server=Calm)
def _(c):
    a, b = c.actor(), c.actor()
    for i in range(6):
        for x in (a, b):
            x.sem(f's{i}', f's{i}', permits=3)
            x.lock(f'r{i}', f'r{i}', kind='read')
            x.lock(f'w{i}', f'r{i}', kind='write')
            x.latch(f'd{i}', f'd{i}')
        a.ask('take', f's{i}', 30000, 2).ok()
        b.ask('take', f's{i}', 0, 2).be('PAWL_EBUSY')
        equal(b.ask('available', f's{i}').n, 1)
        a.ask('take', f'r{i}', 30000).ok()
        b.ask('take', f'r{i}', 30000).ok()
        a.ask('drop', f'r{i}').ok()
        a.send('acquire', f'w{i}', -1)
        a.ask('set', f'd{i}', 1).ok()
        b.ask('drop', f'r{i}').ok()
        a.answer('acquire', f'w{i}').ok()
        b.send('take', f'd{i}', 60000)
        a.ask('down', f'd{i}').ok()
        b.answer('take', f'd{i}').ok()


@case('layout redisson: locks of all kinds, with messages in their shard', server=Calm)
def _(c):
    a, b = c.actor(layout='redisson'), c.actor(layout='redisson')
    for i, kind in enumerate(('mutex', 'fair', 'write', 'mutex', 'fair', 'mutex')):
        for x in (a, b):
            x.lock(i, f'n{i}', kind=kind)
        a.ask('take', i, 30000).ok()
        b.ask('take', i, 0).be('PAWL_EBUSY')
        b.send('acquire', i, -1)
    node = {i: c.master_of(lock_slot(f'n{i}', '')) for i in range(6)}
    equal(len(set(node.values())), 3)
    until(lambda: sum(len(n.call('PUBSUB', 'SHARDCHANNELS')) for n in c.masters()) >= 6,
          'for the waiters to listen')
    for i in range(6):
        equal(node[i].call('TYPE', f'n{i}'), 'hash')
        a.ask('drop', i).ok()
        b.answer('acquire', i).ok()
    for x in (a, b):
        x.sem('s', 's', permits=1)
    b.ask('take', 's', 30000).ok()
    a.ask('take', 's', 0).be('PAWL_EBUSY')


# ---- slots that move -----------------------------------------------------------------------------

@case('a slot moves back and forth: holder and waiters keep what they have', server=Calm)
def _(c):
    slot = lock_slot('n')
    a, token = holder(c, watchdog=LONG)
    others = waiters(c, 'n', 3)
    places = c.queue('n')
    for turn in range(4):
        c.migrate(slot, elsewhere(c, slot))
        equal(c.queue('n'), places)
        until(lambda: len(c.master_of(slot).call('PUBSUB', 'SHARDCHANNELS')) >= 3,
              'for the waiters to listen at the new place')
    turns(a, token, others)
    equal([x.ask('stats').lost for x in [a] + others], [0] * 4)
    equal(sum(x.ask('stats').failovers for x in [a] + others), 0)


@case('a hand-over right after a slot has moved reaches the waiter', server=Calm)
def _(c):
    slot = lock_slot('n')
    a, token = holder(c)
    for turn in range(6):
        b, = waiters(c, 'n', 1)
        c.migrate(slot, elsewhere(c, slot))
        turns(a, token, [b])
        token = a.ask('take', 'l', 30000).ok().token


@case('a release, an acquire and a wait in the middle of a migration go through behind it',
      server=Calm)
def _(c):
    slot = lock_slot('n')
    a, token = holder(c, watchdog=LONG)
    first, second = waiters(c, 'n', 2)
    m = c.migration(slot, elsewhere(c, slot))
    m.move(keys('n')[0])
    a.send('release', 'l')
    until(lambda: c.errors('TRYAGAIN') > 0, 'for TRYAGAIN')
    d = c.actor()
    d.lock('l', 'n')
    d.send('acquire', 'l', -1)
    until(lambda: m.move(n=1) is False)
    equal(first.have('acquire', 'l'), None)
    m.finish()
    a.answer('release', 'l').be('PAWL_OK', 'PAWL_EUNKNOWN', 'PAWL_EBACKEND', 'PAWL_ECONN').ok()
    for x in (first, second, d):
        got = x.answer('acquire', 'l').ok().token
        assert got > token
        token = got
        x.ask('drop', 'l').ok()


@case('a lease is renewed in the middle of a migration, before and after its key has gone',
      server=Calm)
def _(c):
    slot = lock_slot('n')
    a, token = holder(c, watchdog=60000)
    m = c.migration(slot, elsewhere(c, slot))
    for step in range(2):
        a.ask('renew', 'l', 120000).ok()
        before = c.errors('ASK')
        m.move(keys('n')[0])
        a.ask('renew', 'l', 120000 + 60000 * step).ok()
    assert c.errors('ASK') > before
    m.finish()
    a.ask('renew', 'l', 300000).ok()
    equal(a.ask('token', 'l').token, token)
    a.ask('drop', 'l').ok()


@case('MOVED is followed and remembered', server=Calm)
def _(c):
    slot = lock_slot('n')
    a, token = holder(c)
    a.ask('drop', 'l').ok()
    told = 0
    while told < 3:  # the client also asks for the map now and then, perhaps just now
        before, asked = c.errors('MOVED'), c.stat('cluster|slots')
        c.migrate(slot, elsewhere(c, slot))
        newer = a.ask('take', 'l', 30000).ok().token
        assert newer > token
        token = newer
        seen = c.errors('MOVED')
        assert seen > before or c.stat('cluster|slots') > asked, 'it knew before it was told?'
        told += seen > before
        for _ in range(5):
            a.ask('drop', 'l').ok()
            a.ask('take', 'l', 0).ok()
        equal(c.errors('MOVED'), seen)
        a.ask('drop', 'l').ok()


@case('a name that was never used, in a slot that is on its way', server=Calm)
def _(c):
    slot = lock_slot('n')
    a = c.actor()
    a.lock('l', 'n')
    m = c.migration(slot, elsewhere(c, slot))
    a.send('acquire', 'l', -1)
    until(lambda: c.errors('ASK') > 0 or c.errors('TRYAGAIN') > 0)
    m.finish()
    a.answer('acquire', 'l').ok()
    a.ask('drop', 'l').ok()


# ---- masters that die ----------------------------------------------------------------------------

@case('a master is killed: holder and waiters go on where they were', server=Cluster)
def _(c):
    a, token = holder(c, watchdog=LONG)
    far = next(f'far{i}' for i in range(1000)
               if c.master_of(lock_slot(f'far{i}')) is not c.master_of(lock_slot('n')))
    b, _ = holder(c, far, watchdog=LONG)
    others = waiters(c, 'n', 3)
    places = c.queue('n')
    c.synced()
    old, new = c.kill(c.master_of(lock_slot('n')))
    equal(c.queue('n'), places)
    moved([a] + others)
    a.ask('renew', 'l', 0).ok()
    turns(a, token, others)
    equal([x.ask('stats').lost for x in [a, b] + others], [0] * 5)
    equal([x.ask('stats').failovers for x in [a] + others], [1] * 4)
    b.ask('drop', 'l').ok()
    old.start()
    c.synced()
    c.failover(new)
    assert a.ask('take', 'l', 30000).ok().token > token


@case('a lock that did not survive: its holder is told at once, the next one gets it',
      server=Cluster)
def _(c):
    a, token = holder(c, watchdog=LONG)
    b = c.actor()
    b.lock('l', 'n')
    c.synced()
    old = c.master_of(lock_slot('n'))
    forget_all(c.replicas_of(old)[0])
    c.kill(old)
    a.lost('l')
    assert b.ask('take', 'l', 30000).ok().token > token
    a.ask('drop', 'l').be('PAWL_ELOST')
    equal(b.ask('held', 'l').held, 1)


@case('fail-over by command: nothing is lost', server=Calm)
def _(c):
    a, token = holder(c, watchdog=LONG)
    others = waiters(c, 'n', 2)
    c.synced()
    old, new = c.failover(c.master_of(lock_slot('n')))
    until(lambda: len(new.call('PUBSUB', 'SHARDCHANNELS')) >= 2, 'for the waiters to follow')
    turns(a, token, others)
    equal([x.ask('stats').lost for x in [a] + others], [0] * 3)


@case('a master that stops is left for its replica, and not used when it goes on', server=Cluster)
def _(c):
    a, token = holder(c, watchdog=LONG)
    others = waiters(c, 'n', 2)
    c.synced()
    old = c.master_of(lock_slot('n'))
    c.note(old)
    old.pause()
    new = c.promoted(old)
    moved([a] + others)
    old.resume()
    turns(a, token, others)
    until(lambda: role(old) == ('slave', new.port), 'for the old master to be a replica')


@case('a release before the waiters have followed: one of them at a time', server=Cluster)
def _(c):
    a, token = holder(c, watchdog=LONG)
    others = waiters(c, 'n', 3, timeout=PATIENT)
    c.synced()
    old = c.master_of(lock_slot('n'))
    c.note(old)
    old.pause()
    new = c.promoted(old)
    until(lambda: a.ask('renew', 'l', 0).code == 'PAWL_OK', 'for the holder to follow')
    old.resume()  # this node still has the connections of the clients
    a.ask('drop', 'l').ok()
    left = list(others)
    while left:
        b, got = until(lambda: next(((b, g) for b in left if (g := b.have('acquire', 'l'))), 0))
        assert got.ok().token > token, f'token {got.token} after {token}'
        token = got.token
        left.remove(b)
        equal((new.value('n') or '').split(' ')[3:4], [str(token)], 'its token at the server:')
        equal([x.have('acquire', 'l') for x in left], [None] * len(left))
        b.ask('drop', 'l').ok()


@case('most masters down: an error that says so, and everything goes on when they are back',
      server=Cluster)
def _(c):
    a, token = holder(c, watchdog=LONG)
    b, = waiters(c, 'n', 1)
    here = c.master_of(lock_slot('n'))
    gone = [n for n in c.nodes if n is not here]
    for n in gone:
        n.pause()
    until(lambda: here.info()['cluster_state'] == 'fail', 'for the cluster to be down')
    d = c.actor(nodes=[here])
    d.lock('l', 'k')
    d.lock('n', 'n')
    failure = d.ask('take', 'n', 5000).be('PAWL_ECONN', 'PAWL_EBACKEND', 'PAWL_ETIMEDOUT')
    assert 'CLUSTERDOWN' in failure.words, failure
    d.send('acquire', 'l', -1)
    for n in gone:
        n.resume()
    d.answer('acquire', 'l').ok()
    equal([a.ask('held', 'l').held, b.have('acquire', 'l')], [1, None])
    until(lambda: a.ask('drop', 'l').code == 'PAWL_OK')
    assert b.answer('acquire', 'l').ok().token > token


if __name__ == '__main__':
    sys.exit(run(Live))
