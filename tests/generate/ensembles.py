# SPDX-License-Identifier: Apache-2.0
"""Services of several servers. Servers die, fail over, join, leave, and are cut off.

docs/testing.md lists the excuses of each fault, with reasons. Faults are carried out one after the other,
so that only a minority of an ensemble is affected, except by the fault `majority`.
"""
import random
import time

from engines import Service, silently
from program import Profile


def until(predicate, what, patience=60):
    end = time.monotonic() + patience
    while not predicate():
        if time.monotonic() > end:
            raise TimeoutError(f'waited in vain {what}')
        time.sleep(0.01)


class Fronts:
    """A proxy in front of each server, so that clients can be cut off from one server."""

    def __init__(self, ports):
        from proxy import Proxy
        self.proxies = [Proxy(port) for port in ports]
        self.ports = [p.port for p in self.proxies]

    def cut_off(self, which, ms):
        for i in which:
            self.proxies[i].refuse()
            self.proxies[i].cut()
        span = silently(ms)
        for i in which:
            self.proxies[i].accept()
        return span

    def close(self):
        for p in self.proxies:
            p.close()


class Sentinel(Service):
    """A master, two replicas, three sentinels. Replication is asynchronous: a fail-over may lose the last
    writes (docs/promises.md), unless each grant waits for both replicas. Changes of a latch's count wait
    for no replica."""

    def __init__(self, replicas=0):
        from redis_sentinel import Watched
        self.servers = Watched()
        params = {'replicas': replicas} if replicas else {}
        words = 'stale counts' if replicas else 'data stale'
        self.own = {'failover': words, 'master': words, 'freeze': words}
        if replicas:
            self.own.update(replica='left connected', severed='left')
        super().__init__(self.servers.url(**params),
                         Profile(brief=400, watchdogs=(900, 2000, 5000)))

    def do_failover(self, ms, which, names):
        """A fail-over by command. The old master goes on until the sentinels turn it into a replica."""
        from redis_sentinel import role
        old, _ = self.servers.failover()
        until(lambda: (role(old) or ' ')[0] == 'slave', 'for the old master to follow')
        self.servers.synced()

    def do_master(self, ms, which, names):
        """The master is killed, and comes back without data, as a replica."""
        old, _ = self.servers.kill_master()
        time.sleep(ms / 1000)
        old.start()
        self.servers.synced()

    def do_freeze(self, ms, which, names):
        """The master is stopped; sometimes long enough for the sentinels to promote a replica."""
        old = self.servers.master()
        old.pause()
        time.sleep(2 * ms / 1000)
        old.resume()
        self.servers.synced()

    def do_replica(self, ms, which, names):
        """One replica, or both, acknowledge nothing for a while; clients can talk to the master."""
        self.without(which, [3 * ms])

    def do_severed(self, ms, which, names):
        """As do_replica, and clients are cut off from the master meanwhile, several times."""
        c = random.Random(which * 10007 + ms)
        self.without(which, [c.randint(50, 900) for _ in range(1 + ms // 200)])

    def without(self, which, naps):
        """Stop some replicas; between the naps the connections to the master are cut."""
        stopped, master = self.servers.replicas()[:1 + which % 2], self.servers.master()
        for r in stopped:
            r.pause()
        for i, ms in enumerate(naps):
            if i:
                master.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
                master.call('CLIENT', 'KILL', 'TYPE', 'pubsub', 'SKIPME', 'yes')
            time.sleep(ms / 1000)
        for r in stopped:
            r.resume()
        self.servers.synced()

    def stop(self):
        self.servers.stop()


class Cluster(Service):
    """Three masters with a replica each. The node timeout is long, so that no slow node is taken for dead,
    except during faults that need this. CLUSTER FAILOVER and moving slots lose no data; the death or
    isolation of a master does."""
    own = {'failover': '', 'slots': '', 'node': '', 'leave': '', 'master': 'data stale',
           'cutoff': 'data stale'}
    USERS = {  # name: denied commands (docs/redis-servers.md: messages then use plain channels)
        'all': (), 'nosharded': ('-ssubscribe', '-spublish'), 'nospublish': ('-spublish',),
        'nossubscribe': ('-ssubscribe',)}

    def __init__(self, layout='pawl'):
        import redis_cluster as cluster
        self.lib = cluster
        self.servers = cluster.Severable()
        self.patience(cluster.PATIENT)
        self.layout = layout
        self.left_node, self.given = None, []
        for n in self.servers.nodes:
            self.make_users(n)
        foreign = layout == 'redisson'
        super().__init__(self.servers.url(layout=layout),
                         Profile(ordered=not foreign, brief=400, foreign=foreign))

    def make_users(self, node):
        for name, less in self.USERS.items():
            node.call('ACL', 'SETUSER', name, 'reset', 'on', '>pw', '~*', '&*', '+@all', *less)

    def url_for(self, c):
        """A URL with random nodes to connect to first, and a random user."""
        self.given = nodes = c.sample(self.servers.running(), 2)
        user = c.choice(('', '', 'all', *self.USERS))
        url = self.servers.url(nodes=nodes, layout=self.layout)
        return url.replace('://', f'://{user}:pw@') if user else url

    def patience(self, ms):
        for n in self.servers.running():
            n.call('CONFIG', 'SET', 'cluster-node-timeout', ms)

    def one(self, which, names):
        """The slot of one of the names, and its master."""
        slot = self.slot(names[which % len(names)])
        return slot, self.servers.master_of(slot)

    def slot(self, name):
        return self.lib.lock_slot(name, 'pawl:' if self.layout == 'pawl' else '')

    def do_failover(self, ms, which, names):
        """CLUSTER FAILOVER of one shard. Masters vote for a shard only once in two node timeouts."""
        self.mend()
        self.patience(4000)
        self.servers.failover(self.one(which, names)[1])
        self.servers.synced()
        self.patience(self.lib.PATIENT)

    def do_master(self, ms, which, names):
        self.mend()
        self.patience(self.lib.NODE_TIMEOUT_MS)
        old, _ = self.servers.kill(self.one(which, names)[1])
        time.sleep(ms / 1000)
        old.start()
        self.servers.synced()
        self.patience(self.lib.PATIENT)

    def do_cutoff(self, ms, which, names):
        """A master is cut off from the other nodes, not from the clients."""
        self.mend()
        slot, old = self.one(which, names)
        self.patience(self.lib.NODE_TIMEOUT_MS)
        self.servers.sever(old)
        until(lambda: self.servers._serving_beside(slot, old), 'for a promotion')
        time.sleep(ms / 1000)
        for n in self.servers.nodes:
            n.bus.cut.clear()
        self.servers.synced()
        self.patience(self.lib.PATIENT)

    def move(self, slot, to, ms):
        """Move a slot in several steps, so that the keys of one name are on two nodes for a while."""
        m = self.servers.migration(slot, to)
        if m.source is not to:
            m.move(n=1)
            time.sleep(ms / 1000)
            m.finish()

    def do_slots(self, ms, which, names):
        """A slot is moved to another master and back."""
        for slot in {self.slot(n) for n in names}:
            home = self.servers.master_of(slot)
            others = [m for m in self.servers.masters() if m is not home]
            self.move(slot, others[which % len(others)], min(ms, 300))
            time.sleep(ms / 1000)
            self.move(slot, home, 20)

    def do_node(self, ms, which, names):
        """A node joins, gets a slot, gives the slot back, and is removed."""
        nodes = self.servers.nodes
        new = self.servers.kind()
        try:
            new.call('CONFIG', 'SET', 'cluster-node-timeout', self.lib.PATIENT)
            self.make_users(new)
            new.meet(nodes[0])
            until(lambda: all(len(n.rows()) == len(nodes) + 1 for n in (*nodes, new)) and
                  new.info()['cluster_state'] == 'ok', 'for all to know the new node')
            nodes.append(new)
            slot, home = self.one(which, names)
            self.move(slot, new, min(ms, 300))
            time.sleep(ms / 1000)
            self.move(slot, home, 20)
        finally:
            if new in nodes:
                nodes.remove(new)
            for n in nodes:
                n.call('CLUSTER', 'FORGET', new.id)
            new.stop()

    def do_leave(self, ms, which, names):
        """A replica, if possible one that is in the clients' URL, is removed (redis-cli --cluster
        del-node). Until the end of the program it answers as a separate cluster without slots."""
        if self.left_node:
            return
        time.sleep(ms / 1000)
        found = [(r, m) for m in self.servers.masters() for r in self.servers.replicas_of(m)]
        found = [f for f in found if f[0] in self.given] or found
        gone, master = found[which % len(found)]
        self.servers.nodes.remove(gone)
        self.left_node = gone, master
        for n in self.servers.nodes:
            n.call('CLUSTER', 'FORGET', gone.id)
        gone.call('CLUSTER', 'RESET', 'SOFT')
        self.name_nodes()

    def name_nodes(self):
        """The judge's own client names nodes that are there; in the end every first node has left."""
        self.url = self.servers.url(layout=self.layout)

    def mend(self):
        """The node that was removed joins again as before."""
        if not self.left_node:
            return
        gone, master = self.left_node
        self.left_node = None
        new = self.servers.kind()
        new.call('CONFIG', 'SET', 'cluster-node-timeout', self.lib.PATIENT)
        self.make_users(new)
        gone.stop()
        new.meet(self.servers.nodes[0])
        nodes = [*self.servers.nodes, new]
        until(lambda: all(len(n.rows()) == len(nodes) for n in nodes), 'for all to know the new replica')
        new.call('CLUSTER', 'REPLICATE', master.id)
        self.servers.nodes.append(new)
        self.servers.synced()
        self.name_nodes()

    def stop(self):
        if self.left_node:
            self.left_node[0].stop()
        self.servers.stop()


class Quorum(Service):
    """Three nodes that lose all data when they restart. Nothing excuses two holders, or a token that does
    not rise, because a restarted node does not vote before all grants that it lost have ended."""
    own = {'restart': 'stale', 'freeze': 'left', 'cutoff': 'left', 'apart': 'left', 'majority': 'stale'}
    SETTLE = 5000  # ms; longer than the longest lease of a program, twice the longest watchdog

    def __init__(self):
        from redis_live import Live
        self.servers = [Live() for _ in range(3)]
        self.started = time.monotonic()
        self.fronts = Fronts([s.port for s in self.servers])
        super().__init__('|'.join(['quorum:settle=1', *(s.url() for s in self.servers)]),
                         Profile(locks_only=True, ordered=False, brief=1200))

    def prepare(self, mode):
        if mode == 'faults':
            time.sleep(max(self.started + self.SETTLE / 1000 + 2 - time.monotonic(), 0))
            self.url = '|'.join([f'quorum:settle={self.SETTLE}',
                                 *(f'redis://127.0.0.1:{p}/' for p in self.fronts.ports)])

    def main_server(self):
        return self.servers[int(time.monotonic()) % 3]

    def do_restart(self, ms, which, names):
        server = self.servers[which % 3]
        server.kill()
        time.sleep(ms / 1000)
        server.start()

    def do_majority(self, ms, which, names):
        two = [self.servers[which % 3], self.servers[(which + 1) % 3]]
        for s in two:
            s.kill()
        span = silently(ms)
        for s in two:
            s.start()
        return span

    def do_cutoff(self, ms, which, names):
        self.fronts.cut_off([which % 3], ms)

    def do_apart(self, ms, which, names):
        """Two nodes are cut off: the third one is no majority."""
        return self.fronts.cut_off([which % 3, (which + 1) % 3], ms)

    def stop(self):
        self.fronts.close()
        for s in self.servers:
            s.stop()


class Etcd(Service):
    """Three servers. Nothing excuses two holders. The leader is never stopped and resumed: before 3.4.31
    and 3.5.13 such a leader may revoke the leases of others (docs/etcd.md)."""
    own = {'leader': 'anew', 'member': 'anew', 'majority': 'anew', 'freeze': '', 'cutoff': ''}

    def __init__(self):
        from etcd_server import Cluster as Servers
        self.servers = Servers(3, 1000)
        self.fronts = Fronts([m.port for m in self.servers.members])
        super().__init__('etcd://' + ','.join(f'127.0.0.1:{p}' for p in self.fronts.ports) + '/',
                         Profile(ordered=False, brief=1200, short=2500, watchdogs=(2500, 4000)))

    def leader(self):
        found = []
        until(lambda: (m := self.servers.leader()) and found.append(m) is None, 'for a leader')
        return found[0]

    def main_server(self):
        """The server that do_freeze stops: a follower."""
        leader = self.leader()
        return next(m for m in self.servers.members if m is not leader)

    def revive(self, members, ms):
        for m in members:
            m.kill()
        time.sleep(ms / 1000)
        for m in members:
            m.start()
        self.servers.wait()

    def do_leader(self, ms, which, names):
        self.revive([self.leader()], ms)

    def do_member(self, ms, which, names):
        self.revive([self.servers.members[which % 3]], ms)

    def do_majority(self, ms, which, names):
        self.revive([self.servers.members[(which + i) % 3] for i in range(2)], ms)

    def do_cutoff(self, ms, which, names):
        self.fronts.cut_off([which % 3], ms)

    def stop(self):
        self.fronts.close()
        self.servers.stop()


class Zk(Service):
    """An ensemble of three. Nothing excuses two holders."""
    own = {'leader': 'anew', 'member': 'anew', 'majority': 'anew', 'freeze': 'anew', 'cutoff': ''}

    def __init__(self):
        from zk_server import Ensemble
        self.servers = Ensemble(tick=400, least=2000).start()
        self.fronts = Fronts([s.port for s in self.servers.servers])
        super().__init__('zk://' + ','.join(f'127.0.0.1:{p}' for p in self.fronts.ports) +
                         '/generate',
                         Profile(ordered=False, brief=1200, short=1000, way=' writer',
                                 watchdogs=(2500, 4000)))

    def main_server(self):
        return self.servers.leader()

    def revive(self, servers, ms):
        for s in servers:
            s.kill()
        time.sleep(ms / 1000)
        for s in servers:
            s.launch()
        for s in self.servers.servers:
            s.await_ready()

    def do_leader(self, ms, which, names):
        self.revive([self.servers.leader()], ms)

    def do_member(self, ms, which, names):
        self.revive([self.servers.servers[which % 3]], ms)

    def do_majority(self, ms, which, names):
        self.revive([self.servers.servers[(which + i) % 3] for i in range(2)], ms)

    def do_freeze(self, ms, which, names):
        super().do_freeze(ms, which, names)
        for s in self.servers.servers:
            s.await_ready()

    def do_cutoff(self, ms, which, names):
        self.fronts.cut_off([which % 3], ms)

    def stop(self):
        self.fronts.close()
        self.servers.stop()


class Pair(Service):
    """A SQL server with a synchronous replica, so that a promotion loses no data. After the promotion a
    new pair is set up, because the promoted server has no replica."""
    own = {'promote': ''}

    def __init__(self, kind):
        self.kind = kind
        self.promoted = False
        self.make()
        super().__init__(self.pair.url(), Profile(brief=1500, watchdogs=(900, 2000, 5000)))

    def make(self):
        from sql_pairs import PAIRS
        self.pair = PAIRS[self.kind](True)

    def do_promote(self, ms, which, names):
        if not self.promoted:
            self.promoted = True
            self.pair.fail_over()

    def mend(self):
        if self.promoted:
            self.pair.stop()
            self.promoted = False
            self.make()
            self.url = self.pair.url()

    def stop(self):
        self.pair.stop()
