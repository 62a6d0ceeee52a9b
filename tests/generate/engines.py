# SPDX-License-Identifier: Apache-2.0
"""The engines and layouts that programs run on, each with its private servers.

service = start('redis') has url, profile, and port. The port is that of the only server, in front of
which a proxy can be put; 0 if there are several servers. left() returns the keys that the service still
has for a name, asked by the service's own client. stop() ends all servers. ensembles.py has the services
of several servers.

`own` lists the faults of the servers: the kind of fault, and its excuses (Facts.fault in judge.py).
service.do_KIND(ms, which, names) carries out a fault and returns when the servers work again: `ms` is the
duration of the fault, `which` a number that chooses a server, `names` are the names of the program. The
function returns the time in which the service could not answer any client (silently), if there was one.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from program import MOST_PERMITS, Profile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
ENOUGH = 120  # connections
LONG_STOP = 4.5  # s


def silently(ms):
    """Wait while the service can't answer any client. Returns [from, to] on the log's clock."""
    begin = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    time.sleep(ms / 1000)
    return begin, time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Service:
    """local: or memory:, and the methods that all services share."""
    processes = True
    sessions = False  # a lock ends with its connection
    port = 0
    own = {}
    forgets = ('restart', 'older', 'majority')  # faults by which the service may lose a grant

    def __init__(self, url, profile):
        self.url = url
        self.profile = profile

    def prepare(self, mode):
        """Called before the first program of a mode."""

    def url_for(self, c):
        """The URL for a program in free or faults mode; `c` chooses if there are several URLs."""
        return self.url

    def url_apart(self, folder):
        """The URL for a steered program, which has a clock of its own. The folder is the program's."""
        return self.url

    def is_few(self, url):
        """Whether a client with this URL has fewer connections than a program may need at a time."""
        return False

    def writes(self):
        """The number of writes that the service has counted. None: the service does not count writes."""
        return None

    def mend(self):
        """Called after each program with faults."""

    def do_freeze(self, ms, which, names):
        """The main server is stopped (SIGSTOP) and resumed."""
        server = self.main_server()
        server.pause()
        span = silently(ms)
        server.resume()
        return span if self.port else None

    def left(self, prefix):
        return []

    def places(self, name):
        """How many queue entries of waiters the servers have for a name. None: this can't be asked."""
        return None

    def stop(self):
        pass


class Memory(Service):
    processes = False

    def __init__(self):
        super().__init__('memory:', Profile())


class Local(Service):
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='pawl-generate-', dir='/dev/shm')
        super().__init__('local:' + self.folder, Profile())

    def url_apart(self, folder):
        """Programs that share a table end each other's leases, so their clocks must agree."""
        return f'local:{folder}/locks'

    def stop(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis(Service):
    """One server, which loses its data at a restart. In Redisson's layout the counter of tokens then
    starts again (docs/redisson.md)."""

    def __init__(self, profile=None, **params):
        from redis_live import Live
        self.server = Live()
        self.port = self.server.port
        super().__init__(self.server.url(**params), profile or Profile(brief=400))
        tokens = ' tokens' if self.profile.foreign else ''
        self.own = {'freeze': '', 'readonly': '', 'restart': 'data' + tokens,
                    'older': 'data stale' + tokens}

    def main_server(self):
        return self.server

    def do_restart(self, ms, which, names):
        self.server.kill()
        span = silently(ms)
        self.server.start()
        return span

    def do_readonly(self, ms, which, names):
        """The server refuses writes, not reads, because it has fewer replicas than it is told to need."""
        self.server.call('CONFIG', 'SET', 'min-replicas-to-write', '1')
        try:
            time.sleep(ms / 1000)
        finally:
            self.server.call('CONFIG', 'SET', 'min-replicas-to-write', '0')

    def do_older(self, ms, which, names):
        """The server takes a snapshot, and restarts later with the data of the snapshot."""
        self.server.call('SAVE')
        time.sleep(ms / 1000)
        self.server.restart()
        os.unlink(os.path.join(self.server.folder, 'dump.rdb'))

    def places(self, name):
        """Entries in Redisson's queue don't expire while no client waits for the fair lock
        (docs/redisson.md), so they are not counted."""
        return None if self.profile.foreign else self.server.call('ZCARD', '{pawl:%s}:queue' % name)

    def left(self, prefix):
        """Keys that don't expire, without latches, which never expire (docs/redis.md). In Redisson's
        layout some keys stay: counters of tokens and of permits, and permits whose lease has ended, until
        the next acquire."""
        admin = self.server.connect()
        found = [k for k in admin.call('KEYS', f'*{prefix}*') if admin.call('PTTL', k) == -1]
        found = [k for k in found if admin.call('TYPE', k) != 'string' or
                 not admin.call('GET', k).startswith('pawl l ')]  # latches don't expire (docs/redis.md)
        if self.profile.foreign:
            found = [k for k in found if 'token' not in k and not k.endswith(':timeout')]
            found = [k for k in found if admin.call('TYPE', k) != 'string' or
                     int(admin.call('GET', k)) > MOST_PERMITS]
        admin.close()
        return found

    def stop(self):
        self.server.stop()


class Etcd(Service):
    """A server that went back to an older state may grant a lock twice and repeat tokens; a server that
    starts gives every lease its whole time again (docs/etcd.md)."""
    own = {'freeze': '', 'restart': 'anew', 'older': 'data stale tokens anew', 'wipe': 'data'}

    def __init__(self):
        from etcd_server import Etcd as Server
        self.server = Server('--bcrypt-cost=4')
        self.port = self.server.port
        super().__init__(self.server.url(),
                         Profile(ordered=False, brief=1200, short=2500, watchdogs=(2500, 4000)))

    def main_server(self):
        return self.server.member

    def do_restart(self, ms, which, names):
        self.server.member.kill()
        time.sleep(ms / 1000)
        self.server.member.start()
        self.server.wait()

    def do_older(self, ms, which, names):
        self.server.keep_state()
        time.sleep(ms / 1000)
        self.server.go_back()

    def do_wipe(self, ms, which, names):
        """All keys are deleted."""
        time.sleep(ms / 1000)
        self.server.ctl('del', 'pawl/', '--prefix')

    def writes(self):
        return self.server.revision()

    def left(self, prefix):
        """Keys without a lease, except latches, which have no lease (docs/etcd.md)."""
        return [k for k, v in self.server.values().items()
                if prefix in k and not v[3] and not k.endswith('~latch')]

    def stop(self):
        self.server.stop()


class Zk(Service):
    """A server that starts gives every session its whole time again. A server that went back to an older
    state may grant a lock twice and repeat tokens (docs/zookeeper.md)."""
    own = {'freeze': '', 'restart': 'anew', 'older': 'data stale tokens anew'}

    def __init__(self):
        from zk_server import Server
        self.server = Server(least=2000).start()
        self.port = self.server.port
        super().__init__(self.server.url('/generate'),
                         Profile(ordered=False, brief=1200, short=1000, way=' writer',
                                 watchdogs=(2500, 4000)))

    def main_server(self):
        return self.server

    def do_restart(self, ms, which, names):
        self.server.kill()
        time.sleep(ms / 1000)
        self.server.launch()
        self.server.await_ready()

    def do_older(self, ms, which, names):
        """The server restarts with an older copy of its files. The last transaction in the copy may be
        incomplete, as after a crash."""
        data = os.path.join(self.server.folder, 'data', 'version-2')
        subprocess.run(['cp', '-a', data, data + '-old'], check=True)
        time.sleep(ms / 1000)
        self.server.kill()
        shutil.rmtree(data)
        os.rename(data + '-old', data)
        self.server.launch()
        self.server.await_ready()

    def stop(self):
        self.server.stop()


class Sql(Service):
    """With layout=advisory and layout=session no lock survives a restart (docs/promises.md). With
    layout=advisory, tokens are transaction numbers, which a server with an older copy of its files uses
    again (docs/sql.md); with layout=session they also follow the clock."""

    def __init__(self, kind, profile=None, **params):
        from sql_server import SERVERS
        self.server = SERVERS[kind]()
        self.port = self.server.port
        super().__init__(self.server.url(**params), profile or Profile(brief=1500, watchdogs=(900, 2000)))

        advisory = params.get('layout') == 'advisory'
        self.own = {'freeze': '', 'restart': 'data' if self.sessions else '',
                    'older': 'data stale' + ' tokens' * advisory}

        self.stopped = False
        if kind == 'postgres':
            self.own['backend'] = ''

    def mend(self):
        self.stopped = False

    def do_backend(self, ms, which, names):
        """The server's process for one connection is stopped and resumed; once in a program for longer
        than a client waits for an answer."""
        found = self.server.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' "
                                'AND pid <> pg_backend_pid() ORDER BY wait_event_type = \'Lock\', pid')
        pids = [int(p) for p in found.split()]
        if not pids:
            return
        pid = pids[which % len(pids)] if which % 2 else pids[-1]
        try:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(ms / 1000 + (0 if self.stopped else LONG_STOP))
            self.stopped = True
        except ProcessLookupError:
            return
        finally:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def do_freeze(self, ms, which, names):
        self.server.process.send_signal(signal.SIGSTOP)
        time.sleep(ms / 1000)
        self.server.process.send_signal(signal.SIGCONT)

    def do_restart(self, ms, which, names):
        self.server.kill()
        time.sleep(ms / 1000)
        self.server.start()

    def do_older(self, ms, which, names):
        """The server restarts with an older copy of its files."""
        s = self.server
        s.kill()
        subprocess.run(['cp', '-a', s.data, s.data + '-old'], check=True)
        s.start()
        time.sleep(ms / 1000)
        s.kill()
        shutil.rmtree(s.data)
        os.rename(s.data + '-old', s.data)
        s.start()

    def stop(self):
        self.server.stop()


class Sessions(Sql):
    """Locks of the server's sessions. Clients have a connection for each thread, or fewer connections.
    With fewer, one wait may have to wait until another wait of the same client has ended (docs/sql.md)."""
    sessions = True

    def __init__(self, kind, layout):
        super().__init__(kind, Profile(locks_only=True, exclusive=layout == 'session', ordered=False,
                                       brief=1500, way=' gone', watchdogs=(900, 2000)),
                         layout=layout, connections=ENOUGH)

    def url_for(self, c):
        return self.url.replace(f'connections={ENOUGH}', f'connections={c.choice((ENOUGH, ENOUGH, 1, 2, 3))}')

    def is_few(self, url):
        return f'connections={ENOUGH}' not in url


def ensemble(name, *args):
    def make():
        import ensembles
        return getattr(ensembles, name)(*args)
    return make


ALL = ('sequence', 'free', 'faults')
ONE = ('sequence', 'free', 'network', 'faults')  # modes of a single server, which can have a proxy
ENGINES = {  # name: the class that starts the service, and the modes for this service
    'memory': (Memory, ('sequence', 'free', 'steered')),
    'local': (Local, ('sequence', 'free', 'steered', 'faults')),
    'redis': (Redis, ONE),
    'redisson': (lambda: Redis(Profile(ordered=False, brief=400, foreign=True), layout='redisson'),
                 ONE),
    'plain': (lambda: Redis(Profile(ordered=False, brief=400, foreign=True), layout='redisson',
                            semaphore='plain'), ONE),
    'cluster': (ensemble('Cluster'), ALL),
    'redisson-cluster': (ensemble('Cluster', 'redisson'), ALL),
    'sentinel': (ensemble('Sentinel'), ALL[2:]),
    'replicas': (ensemble('Sentinel', 2), ALL[2:]),
    'quorum': (ensemble('Quorum'), ALL),
    'etcd': (Etcd, ONE),
    'etcd3': (ensemble('Etcd'), ALL[2:]),
    'zk': (Zk, ONE),
    'zk3': (ensemble('Zk'), ALL[2:]),
    'postgres': (lambda: Sql('postgres'), ONE),
    'advisory': (lambda: Sessions('postgres', 'advisory'), ONE),
    'postgres2': (ensemble('Pair', 'postgres'), ALL[2:]),
    'mysql': (lambda: Sql('mysql'), ONE),
    'session': (lambda: Sessions('mysql', 'session'), ONE),
    'mysql2': (ensemble('Pair', 'mysql'), ALL[2:]),
}


def start(name):
    return ENGINES[name][0]()
