# SPDX-License-Identifier: Apache-2.0
"""A private master with replicas and sentinels, on the loopback.

    w = Watched()                     1 master, 2 replicas, 3 sentinels; all know each other
    w.url(replicas=1)                 redis+sentinel://...
    w.master()                        the server that all sentinels name; a Live
    old, new = w.kill_master()        kill the master, and wait for the next one
    w.failover()                      SENTINEL FAILOVER, and wait for the next master
    w.synced()                        wait until all running servers follow the master, with all data

The sentinels' periods are a fraction of the usual ones, so that a fail-over takes about 2 s.
"""
import concurrent.futures
import os
import threading
import time

from actor import Actor, boot_ns, query
from redis_live import Live
from redis_server import VERSION, Connection, Error
from wait import until

NAME = 'shop'
FAILOVER_MS = 3000
DOWN_AFTER_MS = 1000  # a busy machine must not look dead
# In a fail-over the INFO of a replica, which a sentinel requests once a second, must not be older than
# five pings. Sentinels that don't lead the fail-over leave the new master alone for only four publish
# periods.
PERIODS = {'info-period': 200, 'ping-period': 300, 'ask-period': 200, 'publish-period': 600,
           'tilt-trigger': 20000, 'min-link-reconnect-period': 300, 'election-timeout': FAILOVER_MS}


def together(function, *lists):
    """Call the function on each element, in parallel. Returns the results in order."""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return list(pool.map(function, *lists))


def role(server):
    """The server's role, with the address of its master. None: the server does not answer."""
    try:
        answer = server.call('ROLE')
    except (OSError, Error):
        return None
    return (answer[0], answer[2]) if answer[0] == 'slave' else (answer[0], None)


def in_sync(master, replica):
    """Whether the replica follows this master and has all data."""
    info = dict(line.split(':', 1) for line in replica.call('INFO', 'replication').splitlines()
                if ':' in line)
    if info['role'] != 'slave' or int(info['master_port']) != master.port:
        return False
    return (info['master_link_status'] == 'up' and info['master_sync_in_progress'] == '0'
            and int(info['slave_repl_offset']) >= int(master.call('ROLE')[1])
            and any(int(r[1]) == replica.port for r in master.call('ROLE')[2]))


class Node(Live):
    """A server whose connections may be dropped by others: sentinels tell it to do so."""

    def call(self, *words):
        try:
            return super().call(*words)
        except (ConnectionError, ValueError):
            self.admin = self.connect()
            return super().call(*words)


class Sentinel(Live):
    """One sentinel. Sentinels write their configuration files themselves."""

    def __init__(self, master_port, quorum, *options):
        self.monitors = (master_port, quorum)
        super().__init__('--sentinel', *options)

    def start(self):
        conf = os.path.join(self.folder, 'sentinel.conf')
        if not os.path.exists(conf):
            self.command.insert(1, conf)
            with open(conf, 'w', encoding='ascii') as f:
                f.write(f'port {self.port}\n'
                        'sentinel monitor %s 127.0.0.1 %d %d\n'
                        'sentinel down-after-milliseconds %s %d\n'
                        'sentinel failover-timeout %s %d\n'
                        'sentinel parallel-syncs %s 1\n'
                        % (NAME, *self.monitors, NAME, DOWN_AFTER_MS, NAME, FAILOVER_MS, NAME))
        super().start()
        self.periods(PERIODS)

    def periods(self, some):
        if VERSION >= 7:  # an older sentinel keeps its periods, and takes seconds for the rest
            self.call('SENTINEL', 'DEBUG', *(w for pair in some.items() for w in pair))

    def names(self):
        """The port of the master according to this sentinel."""
        return int(self.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', NAME)[1])

    def knows(self, replicas, sentinels):
        """Whether the sentinel knows this many replicas and sentinels, and all of them are up."""
        rows = (self.call('SENTINEL', 'REPLICAS', NAME), self.call('SENTINEL', 'SENTINELS', NAME))
        good = [sum('down' not in r['flags'] and 'disconnected' not in r['flags'] for r in found)
                for found in rows]
        return good[0] >= replicas and good[1] >= sentinels - 1


class Announcements(threading.Thread):
    """Listens for a sentinel's +switch-master messages: (time, port) in .heard."""

    def __init__(self, sentinel):
        super().__init__(daemon=True)
        self.heard = []
        self.connection = Connection(sentinel.path)
        self.connection.socket.settimeout(None)
        self.connection.send('SUBSCRIBE', '+switch-master')
        self.connection.push()
        self.start()

    def run(self):
        try:
            while True:
                words = self.connection.push()[2].split(' ')
                self.heard.append((boot_ns(), int(words[4])))
        except (OSError, ValueError):
            pass


class Watched:
    def __init__(self, *everywhere, replicas=2, sentinels=3):
        """everywhere: options for every server and sentinel."""
        options = ('--repl-diskless-sync-delay', 0, '--repl-ping-replica-period', 1, *everywhere)
        master = Node(*options)
        self.servers = [master] + together(
            lambda _: Node('--replicaof', '127.0.0.1', master.port, *options), range(replicas))
        quorum = sentinels // 2 + 1
        self.sentinels = together(lambda _: Sentinel(master.port, quorum, *everywhere),
                                  range(sentinels))
        for s in self.sentinels:
            s.periods({'publish-period': 100})  # so that they meet soon
        self.synced()
        for s in self.sentinels:
            s.periods(PERIODS)

    # ---- for the client ----

    def url(self, name=NAME, sentinels=None, db=None, **params):
        hosts = ','.join(f'127.0.0.1:{s.port}' for s in sentinels or self.sentinels)
        return f'redis+sentinel://{hosts}/{name}{"" if db is None else f"/{db}"}{query(params)}'

    def actor(self, label='', **params):
        return Actor(self.url(**params), label)

    # ---- roles of the servers ----

    def running(self, servers=None):
        """The servers that are neither dead nor stopped."""
        return [s for s in servers or self.servers + self.sentinels if s.runs()]

    def named(self):
        """The server that all sentinels name as the master, or None."""
        ports = {s.names() for s in self.running(self.sentinels)}
        return next((s for s in self.servers if {s.port} == ports), None)

    def master(self):
        return until(lambda: (s := self.named()) and s.runs() and role(s) == ('master', None) and s,
                     'for the sentinels to agree on a master')

    def replicas(self):
        """The running servers except the master."""
        master = self.master()
        return [s for s in self.running(self.servers) if s is not master]

    def queue(self, name):
        """Owners that wait for this lock, in order."""
        return self.master().queue(name)

    queue_up = Live.queue_up

    def synced(self):
        """Wait until all running servers know each other and have all data. Returns the master."""
        def settled():
            master = self.master()
            replicas = [s for s in self.running(self.servers) if s is not master]
            sentinels = self.running(self.sentinels)
            return (all(in_sync(master, r) for r in replicas)
                    and all(s.knows(len(replicas), len(sentinels)) for s in sentinels) and master)
        return until(settled, 'for replicas and sentinels')

    # ---- faults and fail-overs ----

    def switched(self, old):
        """Wait until all sentinels name another master. Returns the new one."""
        return until(lambda: (s := self.named()) and s is not old and s, 'for a new master')

    def kill_master(self):
        """Kill the master with SIGKILL, and wait for the next one: (old, new)."""
        old = self.master()
        old.kill()
        return old, self.switched(old)

    def failover(self):
        """Fail over by command, without a fault: (old, new)."""
        old = self.master()
        asked = 0

        def done():  # a sentinel gives up when it takes too long: ask again then
            nonlocal asked
            new = self.named()
            if new and new is not old:
                return new
            if time.monotonic() > asked + FAILOVER_MS / 1000:
                asked = time.monotonic()
                order_failover(self.running(self.sentinels)[0])
            return None
        return old, until(done, 'for SENTINEL FAILOVER')

    def calm(self):
        """For tests in which no server dies: sentinels don't take a slow server for dead."""
        for s in self.sentinels:
            s.call('SENTINEL', 'SET', NAME, 'down-after-milliseconds', 60000)
        return self

    def stop(self):
        for s in self.sentinels + self.servers:
            s.stop()


def order_failover(sentinel):
    """Ask for a fail-over. False: the sentinel knows of no good replica, or a fail-over is under way."""
    try:
        return sentinel.call('SENTINEL', 'FAILOVER', NAME) == 'OK'
    except Error as e:
        assert 'NOGOODSLAVE' in str(e) or 'INPROG' in str(e), e
        return False


def forget(replica, *keys):
    """Delete keys on a replica only, as if the writes had not reached the replica. Other servers may still
    have the keys, even if this replica becomes their master."""
    replica.call('CONFIG', 'SET', 'replica-read-only', 'no')
    replica.call('DEL', *keys)
    replica.call('CONFIG', 'SET', 'replica-read-only', 'yes')


def cut_off(master, replicas):
    """Stop replication until the replicas are resumed: the replicas are stopped, and the master closes
    their connections, so that no data is under way to them either."""
    for r in replicas:
        r.pause()
    master.call('CLIENT', 'KILL', 'TYPE', 'replica')
