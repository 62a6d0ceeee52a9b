# SPDX-License-Identifier: Apache-2.0
"""A master, its replicas and the sentinels that watch them, all private and on the loopback.

    w = Watched()                     1 master, 2 replicas, 3 sentinels; all know each other
    w.url(replicas=1)                 redis+sentinel://...
    w.master()                        the server that all sentinels name; a Live
    old = w.kill_master()             and wait for another one
    w.failover()                      SENTINEL FAILOVER, and wait
    w.synced()                        until every server that runs follows, with all the data

The sentinels' periods are a fraction of the usual ones, so that a fail-over takes about 2 s.
"""
import concurrent.futures
import os
import threading
import time

from live import Actor, Live, boot_ns, query, until
from server import VERSION, Connection, Error

NAME = 'shop'
FAILOVER_MS = 3000
DOWN_AFTER_MS = 1000  # a busy machine must not look dead
# In a fail-over a replica's INFO, asked for once a second, must not be older than five pings; and
# sentinels that don't lead it leave the new master alone for four publish periods only.
PERIODS = {'info-period': 200, 'ping-period': 300, 'ask-period': 200, 'publish-period': 600,
           'tilt-trigger': 20000, 'min-link-reconnect-period': 300, 'election-timeout': FAILOVER_MS}


def together(function, *lists):
    """The function on each, side by side; the results in order."""
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        return list(pool.map(function, *lists))


def role(server):
    """What the server says it is, with where its master is; None if it does not answer."""
    try:
        answer = server.call('ROLE')
    except (OSError, Error):
        return None
    return (answer[0], answer[2]) if answer[0] == 'slave' else (answer[0], None)


def in_sync(master, replica):
    """Does it follow this master, with everything?"""
    info = dict(line.split(':', 1) for line in replica.call('INFO', 'replication').splitlines()
                if ':' in line)
    if info['role'] != 'slave' or int(info['master_port']) != master.port:
        return False
    return (info['master_link_status'] == 'up' and info['master_sync_in_progress'] == '0'
            and int(info['slave_repl_offset']) >= int(master.call('ROLE')[1])
            and any(int(r[1]) == replica.port for r in master.call('ROLE')[2]))


class Node(Live):
    """A server that others may tell to drop its connections: sentinels do so."""

    def call(self, *words):
        try:
            return super().call(*words)
        except (ConnectionError, ValueError):
            self.admin = self.connect()
            return super().call(*words)


class Sentinel(Live):
    """One sentinel. Its configuration is a file that it writes itself."""

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
        if VERSION >= 7:  # an older one keeps its own, and takes seconds for what follows
            self.call('SENTINEL', 'DEBUG', *(w for pair in some.items() for w in pair))

    def names(self):
        """The port of the master, in its opinion."""
        return int(self.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', NAME)[1])

    def knows(self, replicas, sentinels):
        """Does it know so many, and nothing bad of any?"""
        rows = (self.call('SENTINEL', 'REPLICAS', NAME), self.call('SENTINEL', 'SENTINELS', NAME))
        good = [sum('down' not in r['flags'] and 'disconnected' not in r['flags'] for r in found)
                for found in rows]
        return good[0] >= replicas and good[1] >= sentinels - 1


class Announcements(threading.Thread):
    """+switch-master, as a sentinel tells it: (when, port) in .heard."""

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
        """Options of every server and sentinel."""
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

    # ---- who is what ----

    def running(self, servers=None):
        """Those that are neither dead nor stopped."""
        return [s for s in servers or self.servers + self.sentinels if s.runs()]

    def named(self):
        """The server that all sentinels agree on, or None."""
        ports = {s.names() for s in self.running(self.sentinels)}
        return next((s for s in self.servers if {s.port} == ports), None)

    def master(self):
        return until(lambda: (s := self.named()) and s.runs() and role(s) == ('master', None) and s,
                     'for the sentinels to agree on a master')

    def replicas(self):
        """Those that run and are not the master."""
        master = self.master()
        return [s for s in self.running(self.servers) if s is not master]

    def queue(self, name):
        """Owners that wait for this lock, in order."""
        return self.master().queue(name)

    def synced(self):
        """Until all that run know each other and have everything; the master."""
        def settled():
            master = self.master()
            replicas = [s for s in self.running(self.servers) if s is not master]
            sentinels = self.running(self.sentinels)
            return (all(in_sync(master, r) for r in replicas)
                    and all(s.knows(len(replicas), len(sentinels)) for s in sentinels) and master)
        return until(settled, 'for replicas and sentinels')

    # ---- what happens to them ----

    def switched(self, old):
        """Until all sentinels name another one; which."""
        return until(lambda: (s := self.named()) and s is not old and s, 'for a new master')

    def kill_master(self):
        """SIGKILL, and wait for the next one: (old, new)."""
        old = self.master()
        old.kill()
        return old, self.switched(old)

    def failover(self):
        """By command, no fault: (old, new)."""
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
        """For tests in which nobody dies: no slow server is taken for dead."""
        for s in self.sentinels:
            s.call('SENTINEL', 'SET', NAME, 'down-after-milliseconds', 60000)
        return self

    def stop(self):
        for s in self.sentinels + self.servers:
            s.stop()


def order_failover(sentinel):
    """False: it knows of no good replica, or another fail-over is under way."""
    try:
        return sentinel.call('SENTINEL', 'FAILOVER', NAME) == 'OK'
    except Error as e:
        assert 'NOGOODSLAVE' in str(e) or 'INPROG' in str(e), e
        return False


def forget(replica, *keys):
    """These keys did not reach the replica. The others don't learn of it, even if it becomes their
    master: they may still have them."""
    replica.call('CONFIG', 'SET', 'replica-read-only', 'no')
    replica.call('DEL', *keys)
    replica.call('CONFIG', 'SET', 'replica-read-only', 'yes')


def cut_off(master, replicas):
    """No more replication, until each is resumed: they are stopped, and the master closes their
    connections, so that nothing is under way to them either."""
    for r in replicas:
        r.pause()
    master.call('CLIENT', 'KILL', 'TYPE', 'replica')
