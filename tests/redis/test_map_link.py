#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes of a cluster that a client is not told about: nodes that are removed or cut off, slots that move
while the client is stopped, channels that the client may not use. The bounds are those of
docs/redis-servers.md: a lock that is free while a client waits is granted within BOUND seconds of the
instant from which the cluster serves the lock (again).
"""
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import LONG, Actor, boot_ns  # noqa: E402
from cases import case, equal, run  # noqa: E402
from fake import Fake, bulk  # noqa: E402
from redis_cluster import Calm, Cluster, ClusterNode, Severable, lock_slot  # noqa: E402
from redis_live import Live  # noqa: E402
from rights import PARTS, missing, play, redis_rules  # noqa: E402
from steps import holder, waiters  # noqa: E402
from wait import until  # noqa: E402

BOUND = 5
SLACK = 3  # for a crowded machine; without the tested mechanism a grant takes 17 s, or for ever
LAYOUTS = ('pawl', 'redisson')


class Plain(Cluster):
    """Three masters without replicas, none of which dies."""

    def __init__(self):
        super().__init__(masters=3, replicas=0)


def in_time(since, answer, what):
    s = (answer.ok().ns - since) / 1e9
    print(f'# {what}: {s:.2f} s')
    assert s < BOUND + SLACK, f'{what}: {s:.1f} s'
    return answer


def slot_tag(node, c):
    """A hash tag; names with this tag are in a slot of this node."""
    return next(f'{{t{i}}}' for i in range(100000) if c.master_of(lock_slot(f'{{t{i}}}')) is node)


# ---- nodes that leave ----------------------------------------------------------------------------

def delete(c, node):
    """Remove a node as redis-cli --cluster del-node does."""
    for other in c.nodes:
        other.call('CLUSTER', 'FORGET', node.id)
    node.call('CLUSTER', 'RESET', 'SOFT')
    until(lambda: node.call('CLUSTER', 'SLOTS') == [], 'for it to be alone')


@case('the node that gives the map is removed: locks are kept, taken and handed over', server=Plain)
def _(c):
    extra = ClusterNode()
    extra.meet(c.nodes[0])
    until(lambda: len(extra.call('CLUSTER', 'SLOTS')) == 3, 'for it to know the cluster')
    until(lambda: all(len(n.rows()) == 4 and n.info()['cluster_state'] == 'ok'
                      for n in (*c.nodes, extra)), 'for all to know it')
    seeds = [extra, c.nodes[0]]
    a = {w: c.actor(nodes=seeds, layout=w, watchdog=3000) for w in LAYOUTS}
    b = {w: c.actor(nodes=seeds, layout=w) for w in LAYOUTS}
    for w in LAYOUTS:
        a[w].lock('l', 'n' + w)
        a[w].ask('take', 'l', 30000).ok()
        b[w].lock('l', 'n' + w)
        b[w].send('acquire', 'l', -1)
        a[w].lock('k', 'k' + w)
    time.sleep(0.5)  # so that they wait; the test is right even if they don't wait yet
    delete(c, extra)
    time.sleep(6)  # two leases; each client has asked for the slot map since
    for w in LAYOUTS:
        equal(a[w].ask('held', 'l').held, 1, w)
        a[w].ask('take', 'k', 5000).ok()
        a[w].ask('drop', 'k').ok()
        since = boot_ns()
        a[w].ask('drop', 'l').ok()
        in_time(since, b[w].answer('acquire', 'l'), f'{w}: handed over')
        d = c.actor(nodes=seeds, layout=w)
        d.lock('l', 'd' + w)
        since = boot_ns()
        in_time(since, d.ask('take', 'l', 20000), f'{w}: a new client that begins there')
        if w == 'pawl':
            equal(sorted(r.id for r in d.rows('ls')), ['dpawl', 'npawl'])
        equal(a[w].ask('stats').lost, 0, w)


@case('a master that is cut off from the others is left for its replica', server=Severable)
def _(c):
    old = c.master_of(lock_slot('n'))
    other = next(m for m in c.masters() if m is not old)
    seeds = [old, other]
    tag = slot_tag(old, c)
    a, _ = holder(c, nodes=seeds, watchdog=LONG)
    b, = waiters(c, 'n', 1, nodes=seeds)
    j = c.actor(nodes=seeds, layout='redisson', watchdog=LONG)
    k = c.actor(nodes=seeds, layout='redisson')
    j.lock('l', tag + 'j')
    j.ask('take', 'l', 30000).ok()
    k.lock('l', tag + 'j')
    k.send('acquire', 'l', -1)
    c.synced()
    c.sever(old)
    new = until(lambda: next((n for n in c.nodes if n is not old and n is c._serving_beside(
        lock_slot('n'), old)), None), 'for its replica')
    until(lambda: old.info()['cluster_state'] == 'fail', 'for it to notice')
    until(lambda: all(n.info()['cluster_state'] == 'ok' for n in c.nodes if n is not old),
          'for the others')
    since = boot_ns()
    d = c.actor(nodes=seeds)
    d.lock('l', tag + 'd')
    in_time(since, d.ask('take', 'l', 30000), 'a new client whose first host is cut off')
    until(lambda: a.ask('renew', 'l', LONG).code == 'PAWL_OK', 'for the holder to follow', 10)
    in_time(since, a.ask('drop', 'l'), 'released')
    in_time(since, b.answer('acquire', 'l'), 'handed over')
    until(lambda: j.ask('renew', 'l', LONG).code == 'PAWL_OK', 'for the holder to follow', 10)
    since = boot_ns()
    j.ask('drop', 'l').ok()
    in_time(since, k.answer('acquire', 'l'), 'redisson: handed over')
    assert new is not old


@case('a master is killed: what its replica has is handed over at once', server=Cluster)
def _(c):
    old = c.master_of(lock_slot('n'))
    tag = slot_tag(old, c)
    pairs = []
    for w in LAYOUTS:
        for kind in ('mutex', 'fair', 'write'):
            a, b = (c.actor(layout=w, watchdog=LONG) for _ in range(2))
            for x in (a, b):
                x.lock('l', tag + w + kind, kind=kind)
            a.ask('take', 'l', 30000).ok()
            b.send('acquire', 'l', -1)
            pairs.append((f'{w} {kind}', a, b))
    time.sleep(0.5)
    c.synced()
    c.kill(old)
    for what, a, b in pairs:
        since = boot_ns()
        until(lambda: a.ask('renew', 'l', LONG).code == 'PAWL_OK', 'for the holder to follow', 20)
        a.ask('drop', 'l').ok()
        in_time(since, b.answer('acquire', 'l'), what)


@case('a master that stops is left for its replica in time', server=Cluster)
def _(c):
    old = c.master_of(lock_slot('n'))
    tag = slot_tag(old, c)
    pairs = []
    for w in LAYOUTS:
        a, b = (c.actor(layout=w, watchdog=LONG) for _ in range(2))
        for x in (a, b):
            x.lock('l', tag + w)
        a.ask('take', 'l', 30000).ok()
        b.send('acquire', 'l', -1)
        pairs.append((w, a, b))
    time.sleep(0.5)
    c.synced()
    c.note(old)
    old.pause()
    c.promoted(old)
    since = boot_ns()
    for w, a, b in pairs:
        until(lambda: a.ask('renew', 'l', LONG).code == 'PAWL_OK', 'for the holder to follow', 20)
        a.ask('drop', 'l').ok()
        in_time(since, b.answer('acquire', 'l'), w)


@case('connections are lost in the moment of a release', server=Calm)
def _(c):
    node = c.master_of(lock_slot('n'))
    tag = slot_tag(node, c)
    for w in LAYOUTS:
        for kind in ('mutex', 'fair', 'read', 'write', 'sem'):
            a, b = wait_for(c, w, kind, tag + w + kind)
            time.sleep(0.3)
            since = boot_ns()
            a.send('drop' if kind == 'sem' else 'release', 'l2' if kind == 'read' else 'l')
            for r in node.connections():
                if 'P' in r['flags']:  # a connection with subscriptions
                    node.call('CLIENT', 'KILL', 'ID', r['id'])
            in_time(since, b.answer('take' if kind == 'sem' else 'acquire', 'l'), f'{w} {kind}')
            a.kill()
            b.kill()


# ---- slots that move -----------------------------------------------------------------------------

def wait_for(c, w, kind, name):
    """Two actors: one holds the lock, the other waits. Returns (holder, waiter)."""
    a, b = (c.actor(layout=w, watchdog=LONG) for _ in range(2))
    for x in (a, b):
        if kind == 'sem':
            x.sem('l', name, permits=1)
        else:
            x.lock('l', name, kind=kind)
    if kind == 'read':
        a.lock('l2', name, kind='write')
        a.ask('take', 'l2', 30000).ok()
    else:
        a.ask('take', 'l', 30000).ok()
    b.send(*(('take', 'l', 60000) if kind == 'sem' else ('acquire', 'l', -1)))
    return a, b


def there_and_back(c, w):
    slot = lock_slot('{t}')
    here = c.master_of(slot)
    there = next(m for m in c.masters() if m is not here)
    pairs = {kind: wait_for(c, w, kind, '{t}' + w + kind)
             for kind in ('mutex', 'fair', 'read', 'write', 'sem')}
    until(lambda: len(here.call('PUBSUB', 'SHARDCHANNELS')) >= 5, 'for the waiters to listen')
    for _, b in pairs.values():
        b.stop()
    c.migrate(slot, there)
    c.migrate(slot, here)
    for _, b in pairs.values():
        b.resume()
    time.sleep(2)  # the clients have read all pending messages, and have asked
    for kind, (a, b) in pairs.items():
        since = boot_ns()
        a.ask('drop', 'l2' if kind == 'read' else 'l').ok()
        in_time(since, b.answer('take' if kind == 'sem' else 'acquire', 'l'), f'{w} {kind}')


@case('a slot moves away and back while the waiters are stopped', server=Calm)
def _(c):
    there_and_back(c, 'pawl')


@case('layout redisson: a slot moves away and back while the waiters are stopped', server=Calm)
def _(c):
    there_and_back(c, 'redisson')


# ---- Redis 6.2 -----------------------------------------------------------------------------------

class Old(Fake):
    """A proxy in front of a node. It makes the node look like version 6.2, and the other nodes as if they
    were at the proxies' addresses."""

    def pretend(self, c, fakes):
        hello = {'server': 'redis', 'version': '6.2.14', 'proto': 3, 'id': 1, 'mode': 'cluster',
                 'role': 'master', 'modules': ''}
        words = [w for pair in hello.items() for w in pair]
        self.spoil('HELLO', b'%' + b'%d' % len(hello) + bulk(*words)[3:], carry_out=True)
        rows = []
        for row in c.nodes[0].call('CLUSTER', 'SLOTS'):
            at = next(i for i, n in enumerate(c.nodes) if n.port == row[2][1])
            rows.append(b'*3\r\n:%d\r\n:%d\r\n' % (row[0], row[1]) +
                        bulk('127.0.0.1', fakes[at].port, c.nodes[at].id))
        state = 'cluster_state:ok\r\ncluster_current_epoch:9\r\n'
        self.spoil('CLUSTER', lambda r: bulk(state)[4:] if r.words[1] == 'INFO' else
                   b'*%d\r\n' % len(rows) + b''.join(rows))


@case('nodes without sharded channels: messages take the plain way', server=Plain)
def _(c):
    fakes = [Old(n) for n in c.nodes]
    for f in fakes:
        f.pretend(c, fakes)
    hosts = ','.join(f'127.0.0.1:{f.port}' for f in fakes)
    for w in LAYOUTS:
        hand_over(f'redis+cluster://{hosts}?layout={w}', w)
    equal(c.stat('ssubscribe', 'spublish'), 0)
    assert c.stat('publish') >= 8


# ---- rights --------------------------------------------------------------------------------------

MUST = {'pawl': ('redis cluster',), 'redisson': ('redisson', 'redisson cluster')}
PARAMS = {'pawl': {}, 'redisson': {'layout': 'redisson', 'prefix': 'shop:'}}


def documented(layout):
    """The ACL rules that docs/security.md gives a user of this layout, and the recommended rules."""
    must = [r for mark in MUST[layout] for r in redis_rules(mark)]
    return must, redis_rules(MUST[layout][-1] + ', recommended')


def with_rights(c, rules, **params):
    for n in c.nodes:
        n.call('ACL', 'SETUSER', 'u', 'reset', *rules)
        n.call('ACL', 'LOG', 'RESET')
    hosts = ','.join(f'127.0.0.1:{n.port}' for n in c.nodes[:3])
    words = '&'.join(f'{k}={v}' for k, v in params.items())
    return f'redis+cluster://u:pw@{hosts}?{words}'


def hand_over(url, what, kinds=('mutex', 'fair', 'read', 'write'), a=None, b=None):
    a, b = a or Actor(url), b or Actor(url)
    for kind in kinds:
        for x in (a, b):
            x.lock(kind, 'n' + kind, kind=kind)
            x.lock(kind + 'w', 'n' + kind, kind='write' if kind == 'read' else kind)
        a.ask('take', kind + 'w', 30000).ok()
        b.send('acquire', kind, -1)
        time.sleep(0.5)
        since = boot_ns()
        a.ask('drop', kind + 'w').ok()
        in_time(since, b.answer('acquire', kind), f'{what} {kind}')
        b.ask('drop', kind).ok()
    return a, b


def has_everything(c, url, w):
    """No call is refused, even while a slot moves."""
    for part in PARTS[:-1]:
        equal(play(url, part, seen=w == 'pawl'), None, part)
    a, b = hand_over(url, w)
    migrate_under(c, a, w)
    a.close()
    b.close()
    for n in c.nodes:
        equal(n.call('ACL', 'LOG'), [], w)


def migrate_under(c, a, w):
    """Use a lock whose slot is being moved (ASK). The lock is acquired when the slot has been moved."""
    slot = lock_slot('nfair', 'shop:' if w == 'redisson' else 'pawl:')
    c.migrate(slot, next(m for m in c.masters() if m is not c.master_of(slot)))
    a.ask('take', 'fair', 20000).ok()


@case('the rights that docs/security.md names are enough', server=Calm, limit=240)
def _(c):
    for w in LAYOUTS:
        must, more = documented(w)
        has_everything(c, with_rights(c, must + more, **PARAMS[w]), w)


def asking(c, w, url, name):
    """A renewal while the slot is being moved: the client must send ASKING to the node that has the key."""
    slot = lock_slot(name, 'shop:' if w == 'redisson' else 'pawl:')
    here = c.master_of(slot)
    a = Actor(url)
    a.lock('l', name)
    a.ask('take', 'l', 20000).ok()
    moving = c.migration(slot, next(m for m in c.masters() if m is not here))
    moving.move(n=1000)
    answer = a.ask('renew', 'l', 60000)
    a.kill()
    moving.finish()
    return answer


@case('each right of the cluster that is missing is named', server=Calm, limit=240)
def _(c):
    for w in LAYOUTS:
        must, more = documented(w)
        url = with_rights(c, must + more, **PARAMS[w])
        # Redisson's renewal uses several keys, and must wait until the slot has been moved.
        asking(c, w, url, 'moves').be('PAWL_OK' if w == 'pawl' else 'PAWL_ECONN')
        url = with_rights(c, [r for r in must if r != '+asking'] + more, **PARAMS[w])
        assert "'asking'" in asking(c, w, url, 'stays').be('PAWL_EAUTH').words
        for right in ('+cluster|slots', '+cluster|myid', '+sunsubscribe'):
            if right in must:
                url = with_rights(c, [r for r in must if r != right] + more, **PARAMS[w])
                missing(right, re.escape(right[1:]), url, parts=('mutex', 'give_up'),
                        seen=w == 'pawl')


@case('each recommended right of the cluster that is missing is named in the log', server=Calm,
      limit=240)
def _(c):
    for w in LAYOUTS:
        must, more = documented(w)
        for right in more:
            url = with_rights(c, must + [r for r in more if r != right], **PARAMS[w])
            a, b = (Actor(url, environ={'ACTOR_LOG': '1'}) for _ in range(2))
            hand_over(url, f'{w} without {right}', ('mutex',), a, b)
            a.ask('sync')
            words = [x.have('log') for x in (a, b) for _ in range(20)]
            print(f'# {right}', *{x.words for x in words if x})
            name = right[1:] if right[0] == '+' else 'channel'
            assert any(x and name in x.words for x in words), f'{w}: nothing about {right}'
            a.kill()
            b.kill()


@case('without the right to sharded channels messages take the plain way', server=Calm)
def _(c):
    every = ['on', '>pw', '~*', '+@all']
    for less in (['resetchannels', '&pawl:@*', '&redisson_*', '-ssubscribe', '-spublish'],
                 ['&*', '-spublish'], ['&*', '-ssubscribe'], ['resetchannels', '&pawl:@*']):
        hand_over(with_rights(c, every + less), ' '.join(less), ('mutex', 'read'))
    url = with_rights(c, every + ['&*', '-ssubscribe', '-spublish'], layout='redisson')
    hand_over(url, 'redisson')
    url = with_rights(c, every + ['&*', '-ssubscribe'], layout='redisson')
    hand_over(url, 'redisson, no SSUBSCRIBE')


if __name__ == '__main__':
    sys.exit(run(Live))
