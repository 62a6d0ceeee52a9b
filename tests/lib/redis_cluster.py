# SPDX-License-Identifier: Apache-2.0
"""A private Redis Cluster on the loopback: three masters, a replica of each.

    c = Cluster()
    c.url()                           redis+cluster://...
    c.master_of(slot_of('pawl:n'))    the node that serves the slot; a Live
    old, new = c.kill(node)           kill a master, and wait until its replica has taken over
    c.failover(node)                  CLUSTER FAILOVER of the node's replica; nothing is lost
    m = c.migration(slot, node)       m.move(n), m.finish(): move a slot in several steps
    c.synced()                        wait until the running nodes agree and replicas have all data
"""
import re
import socket
import threading
import time

from actor import Actor, query
from redis_sentinel import Node, in_sync, role, together
from redis_server import VERSION, Error, crc16, helper_base, keys
from wait import until

NODE_TIMEOUT_MS = 1500  # a busy machine must not look dead
PATIENT = 20000  # ms: a timeout that is longer than pauses of the servers or of the machine
SLOTS = 16384
BUS = 10000  # an old server has its cluster bus at its port plus this number


def slot_of(key):
    return crc16(helper_base(key).split('}')[0][1:].encode()) % SLOTS


def lock_slot(name, prefix='pawl:'):
    return slot_of(prefix + name)


class ClusterNode(Node):
    def __init__(self, *options):
        bus = ['--cluster-port', '@PORT@'] if VERSION >= 7 else []
        super().__init__('--cluster-enabled', 'yes', *bus,
                         '--cluster-node-timeout', NODE_TIMEOUT_MS,
                         '--cluster-allow-replica-migration', 'no',
                         '--repl-diskless-sync-delay', 0, '--repl-ping-replica-period', 1, *options)
        self.id = self.call('CLUSTER', 'MYID')

    def meet(self, other):
        bus = other.extra_port if VERSION >= 7 else other.port + BUS
        self.call('CLUSTER', 'MEET', '127.0.0.1', other.port, bus)

    def info(self):
        return dict(line.split(':', 1) for line in self.call('CLUSTER', 'INFO').splitlines())

    def rows(self):
        """CLUSTER NODES: id, address, flags, master's id, ..., as lists of words."""
        return [line.split(' ') for line in self.call('CLUSTER', 'NODES').splitlines()]

    def errors(self):
        """How often the node answered MOVED, ASK, TRYAGAIN, ..."""
        found = re.findall(r'^errorstat_(\w+):count=(\d+)', self.call('INFO', 'errorstats'), re.M)
        return {word: int(n) for word, n in found}


class Cluster:
    kind = ClusterNode

    def __init__(self, *options, masters=3, replicas=3):
        """options: for the command line of every node."""
        self.nodes = together(lambda _: self.kind(*options), range(masters + replicas))
        heads = self.nodes[:masters]
        for i, node in enumerate(self.nodes):
            node.call('CLUSTER', 'SET-CONFIG-EPOCH', i + 1)
            for other in self.nodes[:i]:
                node.meet(other)
        for i, node in enumerate(heads):
            node.call('CLUSTER', 'ADDSLOTS', *range(SLOTS * i // masters,
                                                    SLOTS * (i + 1) // masters))
        until(lambda: all(len(n.rows()) == len(self.nodes)
                          and not any('handshake' in row[2] for row in n.rows())
                          for n in self.nodes), 'for the nodes to meet')
        for i, node in enumerate(self.nodes[masters:]):
            node.call('CLUSTER', 'REPLICATE', heads[i % masters].id)
        self.synced()

    # ---- for the client ----

    def url(self, nodes=None, **params):
        hosts = ','.join(f'127.0.0.1:{n.port}' for n in nodes or self.nodes[:3])
        return f'redis+cluster://{hosts}{query(params)}'

    def actor(self, label='', **params):
        return Actor(self.url(**params), label)

    # ---- roles of the nodes ----

    def running(self):
        return [n for n in self.nodes if n.runs()]

    def by_id(self, number):
        return next(n for n in self.nodes if n.id == number)

    def masters(self):
        """The running nodes that serve slots according to their own CLUSTER NODES."""
        return [n for n in self.running()
                for row in n.rows() if 'myself,master' in row[2] and len(row) > 8]

    def replicas_of(self, master):
        return [n for n in self.running() if n is not master
                and any('myself,slave' in row[2] and row[3] == master.id for row in n.rows())]

    def master_of(self, slot):
        """Wait for a node that serves the slot according to its own CLUSTER NODES."""
        return until(lambda: self._serving(slot), f'for a master of slot {slot}')

    def _serving_beside(self, slot, old):
        """The node that serves the slot, without asking the old one."""
        return self._serving(slot, [n for n in self.running() if n is not old])

    def _serving(self, slot, nodes=None):
        for node in nodes or self.running():
            for row in node.rows():
                if 'myself,master' in row[2] and any(slot in ranged(w) for w in row[8:]):
                    return node
        return None

    def queue(self, name):
        """Owners that wait for this lock, in order."""
        return self.master_of(lock_slot(name)).call('ZRANGE', keys(name)[2], 0, -1)

    def view(self, node):
        """The slots of each master, as this node sees them."""
        return sorted((row[0], sorted(w for w in row[8:] if w[0] != '[')) for row in node.rows()
                      if 'master' in row[2] and 'fail' not in row[2] and len(row) > 8)

    def agreed(self):
        nodes = self.running()
        views = [self.view(n) for n in nodes]
        return (all(v == views[0] for v in views)
                and all(n.info()['cluster_state'] == 'ok' for n in nodes))

    def synced(self):
        """Wait until the running nodes agree, their state is ok, and the replicas have all data."""
        def settled():
            if not self.agreed():
                return False
            for n in self.running():
                row = next(r for r in n.rows() if 'myself' in r[2])
                if 'slave' in row[2] and not in_sync(self.by_id(row[3]), n):
                    return False
                if 'master' in row[2] and len(row) == 8:
                    return False  # the node has come back and does not know yet that it is a replica
            return True
        until(settled, 'for the cluster')

    # ---- faults and fail-overs ----

    def promoted(self, old):
        """Wait until a replica has taken over the slots of `old`, and all nodes agree. Returns the replica."""
        def taken():
            views = [self.view(n) for n in self.running()]
            return all(v == views[0] for v in views) and not any(i == old.id for i, _ in views[0])
        slots = self.served
        until(taken, 'for a promotion')
        return self.master_of(slots)

    def kill(self, master):
        """Kill a master with SIGKILL, and wait until its replica has taken over: (old, new)."""
        self.note(master)
        master.kill()
        return master, self.promoted(master)

    def note(self, master):
        """Remember the slots of a master, so that promoted() can wait for their new master."""
        row = next(r for r in master.rows() if 'myself' in r[2])
        self.served = ranged(row[8])[0]

    def failover(self, master):
        """Fail over by command, without data loss: (old, new)."""
        self.note(master)
        new = self.replicas_of(master)[0]
        asked = 0

        def taken():  # others don't vote for the same shard twice in a while: ask again then
            nonlocal asked
            if role(new) == ('master', None):
                return self._serving(self.served) is new
            if time.monotonic() > asked + NODE_TIMEOUT_MS / 1000:
                asked = time.monotonic()
                try:
                    new.call('CLUSTER', 'FAILOVER')
                except Error:  # the replica may have become the master just now
                    assert role(new) == ('master', None)
            return False
        until(taken, 'for CLUSTER FAILOVER')
        return master, new

    def migration(self, slot, to):
        return Migration(self, slot, to)

    def migrate(self, slot, to):
        self.migration(slot, to).finish()

    def errors(self, word):
        """How often all nodes answered with this error: MOVED, ASK, TRYAGAIN, CLUSTERDOWN."""
        return sum(n.errors().get(word, 0) for n in self.running())

    def stat(self, *commands):
        """How often these commands were called on all nodes."""
        return sum(n.stat(*commands) for n in self.running())

    def stop(self):
        for n in self.nodes:
            n.stop()


class Calm(Cluster):
    """A cluster for tests in which no node dies: neither nodes nor clients take a slow node for dead."""

    def __init__(self, *options, **counts):
        super().__init__(*options, **counts)
        for n in self.nodes:
            n.call('CONFIG', 'SET', 'cluster-node-timeout', PATIENT)

    def actor(self, label='', **params):
        return super().actor(label, **{'timeout': PATIENT, **params})


class Bus:
    """A proxy in front of a node's cluster bus, which can be cut for some nodes. A node that connects sends
    its id first."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(('127.0.0.1', 0))
        self.listener.listen(64)
        self.port = self.listener.getsockname()[1]
        self.to = None
        self.cut = set()  # ids, or 'all'
        self.sides = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            head = b''
            while len(head) < 80:
                data = client.recv(65536)
                if not data:
                    raise ConnectionError
                head += data
            caller = head[40:80].decode(errors='replace')
            if caller in self.cut or 'all' in self.cut or not self.to:
                raise ConnectionError
            server = socket.create_connection(('127.0.0.1', self.to))
            self.sides.append((caller, client, server))
            server.sendall(head)
            threading.Thread(target=self._pass, args=(server, client), daemon=True).start()
            self._pass(client, server)
        except OSError:
            client.close()

    @staticmethod
    def _pass(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
        except OSError:
            pass
        hang_up(a, b)

    def close_to(self, caller):
        """Cut the connections of this node, or of all nodes ('all'), now and in the future."""
        self.cut.add(caller)
        for who, *sockets in self.sides:
            if caller in ('all', who):
                hang_up(*sockets)


def hang_up(*sockets):
    for s in sockets:
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class BusNode(ClusterNode):
    def __init__(self, *options):
        self.bus = Bus()
        super().__init__('--cluster-announce-bus-port', self.bus.port, *options)
        self.bus.to = self.extra_port

    def meet(self, other):
        self.call('CLUSTER', 'MEET', '127.0.0.1', other.port, other.bus.port)


class Severable(Cluster):
    """A cluster whose nodes can be cut off from the other nodes, but not from clients."""
    kind = BusNode

    def sever(self, node):
        node.bus.close_to('all')
        for other in self.nodes:
            other.bus.close_to(node.id)


class Migration:
    """Moves a slot to another master: announced at once, moved in several steps."""

    def __init__(self, cluster, slot, to):
        self.cluster, self.slot, self.to = cluster, slot, to
        self.source = cluster.master_of(slot)
        if self.source is not to:
            to.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', self.source.id)
            self.source.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', to.id)

    def keys(self, n=1000):
        """The keys of the slot that are still on the old master."""
        return self.source.call('CLUSTER', 'GETKEYSINSLOT', self.slot, n)

    def move(self, *keys, n=10):
        """Move these keys, or n keys. False: no key is left."""
        keys = keys or self.keys(n)
        if keys:  # NOKEY: the keys have expired meanwhile
            self.source.call('MIGRATE', '127.0.0.1', self.to.port, '', 0, 5000, 'KEYS', *keys)
        return bool(keys)

    def finish(self):
        if self.source is self.to:
            return
        while self.move():
            pass
        others = [m for m in self.cluster.masters() if m not in (self.source, self.to)]
        for node in (self.to, self.source, *others):
            node.call('CLUSTER', 'SETSLOT', self.slot, 'NODE', self.to.id)
        # Wait before the next migration, or a late message of this one may be taken for newer.
        until(lambda: len({self._seen_by(n) for n in self.cluster.running()}) == 1,
              'for all nodes to hear of it')

    def _seen_by(self, node):
        """The epoch of the new master, and whether the node sees it as the slot's master."""
        row = next(r for r in node.rows() if r[0] == self.to.id)
        return row[6], any(self.slot in ranged(w) for w in row[8:])


def ranged(word):
    """"5" or "0-99" of CLUSTER NODES as a range; empty for a slot that is being moved."""
    if word.startswith('['):
        return range(0)
    ends = word.split('-')
    return range(int(ends[0]), int(ends[-1]) + 1)


def forget_all(replica):
    """Delete all data of a replica, as if no write had reached the replica."""
    replica.call('CONFIG', 'SET', 'replica-read-only', 'no')
    try:
        replica.call('FLUSHALL')
    finally:
        replica.call('CONFIG', 'SET', 'replica-read-only', 'yes')
