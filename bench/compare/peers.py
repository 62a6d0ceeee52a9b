# SPDX-License-Identifier: Apache-2.0
"""The services of the comparison, and which lock libraries are measured on each.

Pawl is the first peer of each service, and all ratios are to Pawl.
"""
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.normpath(os.path.join(HERE, '..', '..'))
INTEROP = os.path.join(TOP, 'build', 'interop')
BUILT = os.path.join(TOP, 'build', 'compare')
sys.path.insert(0, os.path.join(TOP, 'tests', 'lib'))


use_peers = True  # False: leave out all that make bench-peers fetches
EVERY = ('own', 'shared', 'same', 'eights')
PROCESSES = ('handover', 'stopped', 'killed')  # workers with a process for each contender


class Peer:
    def __init__(self, title, command, needs=None, folder=None, most=512, modes=EVERY, flying=0,
                 helper=False):
        """needs: a file without which the peer can't run. modes: what the peer can do, or {mode:
        what its worker calls that}. most: contenders that the peer can have. flying: locks that it
        can have in flight with `async`, which is `shared` to workers in languages whose threads
        cost little. helper: no library of locks, and not mentioned where it has no part."""
        self.title, self.command, self.folder, self.most = title, command, folder, most
        self.modes = dict(modes) if isinstance(modes, dict) else {m: m for m in modes}
        self.flying, self.helper = flying, helper
        if flying:
            self.modes.setdefault('async', 'shared')
        self.missing = needs if needs and not (use_peers and os.path.exists(needs)) else None

    def why_not(self, mode, contenders):
        """Why there are no figures, or None."""
        if self.missing and not use_peers:
            return 'not measured: peers are left out of this run'
        if self.missing:
            return f'not here: {os.path.relpath(self.missing, TOP)} is missing (make bench-peers)'
        if mode not in self.modes and mode in PROCESSES:
            return ('not measured: this takes a worker with a process for each contender, and a '
                    'lock that survives the death of its holder')
        if mode not in self.modes:
            return 'not measured: this library has no such lock or calls'
        limit = self.flying if mode == 'async' else self.most
        return f'not measured: too slow with more than {limit}' if contenders > limit else None


def java(title, library, address, jars, most):
    classes = os.path.join(BUILT, 'java')
    command = ['java', '-cp', f'{classes}:{INTEROP}/{jars}/lib/*', 'Worker', library, address]
    return Peer(title, command, os.path.join(classes, 'Worker.class'), most=most,
                modes=(*EVERY, 'permits', 'reading'))


def go(title, library, address, **more):
    worker = os.path.join(BUILT, 'go-worker')
    return Peer(title, [worker, library, address], worker, **more)


def python(title, library, address):
    interpreter = os.path.join(INTEROP, 'python', 'bin', 'python')
    return Peer(title, [interpreter, os.path.join(HERE, 'python', 'worker.py'), library, address],
                interpreter, modes=('own', 'same'), most=64)


def node(title, library, address, modes=EVERY):
    folder = os.path.join(INTEROP, 'node')
    return Peer(title, ['node', os.path.join(HERE, 'node', 'worker.js'), library, address],
                os.path.join(folder, 'node_modules'), folder, modes=modes, flying=10000)


class Service:
    """address: as most workers want it; pids: the processes of the server, for its CPU time."""
    title = None
    pids = ()
    contenders = (2, 16, 64)
    in_flight = ()
    permits = reading = halved = 0  # contenders of these modes; 0: not measured here
    halved_ms = 5000

    def __init__(self, build, quick=False):
        self.build, self.quick = build, quick
        self.start()

    def c(self, title, library, address, modes=(*EVERY, 'handover'), **more):
        return Peer(title, [os.path.join(self.build, 'bench', 'bench_worker'), library, address],
                    modes=modes, **more)

    def cost(self):
        """What the server has counted so far: commands, bytes, or nothing."""
        return {}

    def workloads(self):
        """(mode, contenders) in their order."""
        if self.quick:
            return self.quick_workloads()
        alone = [('own', 1), ('own', 8), ('shared', 1), ('shared', 8), ('shared', 64)]
        hot = [('same', n) for n in self.contenders] + [('eights', 64), ('handover', 2)]
        return alone + [('async', n) for n in self.in_flight] + hot + self.others(1)

    def quick_workloads(self):
        self.halved_ms = 300
        return [('own', 1), ('shared', 4), *(('async', n) for n in self.in_flight[:3:2]),
                ('same', 2), ('same', 8), ('eights', 16), ('handover', 2), *self.others(8)]

    def others(self, divisor):
        counts = (('permits', self.permits), ('reading', self.reading), ('stopped', self.halved),
                  ('killed', self.halved))
        return [(mode, max(n // divisor, 8)) for mode, n in counts if n]

    def stop(self):
        pass


class Local(Service):
    title = 'One machine, no server'
    permits, reading, halved = 100, 64, 16

    def start(self):
        self.folder = tempfile.mkdtemp(prefix='pawl-compare-', dir='/dev/shm')

    def peers(self):
        f, all_modes = self.folder, (*EVERY, *PROCESSES)
        return [self.c('Pawl, `local:`', 'pawl', 'local:' + f,
                       modes=(*all_modes, 'permits', 'reading')),
                self.c('flock(2)', 'flock', f, modes=(*all_modes, 'reading')),
                self.c('flock(2) and a counter in the file', 'flock-token', f, modes=all_modes),
                # No `killed`: waiters for a robust mutex were seen to sleep for good after some of
                # them had been killed, and nobody returns the permit of a killed contender.
                self.c('robust POSIX mutex in shared memory', 'mutex', f,
                       modes=(*EVERY, 'handover', 'stopped')),
                self.c('POSIX semaphore in shared memory', 'semaphore', f,
                       modes=(*EVERY, 'handover', 'stopped', 'permits')),
                self.c('POSIX read-write lock in shared memory', 'rwlock', f, modes=('reading',),
                       helper=True)]

    def stop(self):
        shutil.rmtree(self.folder)


class Redis(Service):
    title = 'Redis, one server, TCP on the loopback'
    contenders = (2, 16, 64, 256)
    in_flight = (1, 10, 100, 1000, 10000)
    permits, reading, halved = 100, 64, 64

    def start(self):
        from redis_live import Live
        self.server = Live()
        self.pids = (self.server.process.pid,)

    def peers(self):
        a = f'127.0.0.1:{self.server.port}'
        url = f'redis://{a}/?timeout=30000'  # so that a crowded machine is slow instead of failing
        pawl = (*EVERY, *PROCESSES, 'permits', 'reading')
        return [self.c('Pawl', 'pawl', url, modes=(*pawl, 'async'), flying=10000),
                self.c("Pawl, Redisson's layout", 'pawl', url + '&layout=redisson'),
                self.c("Pawl's scripts, plain client in C", 'scripts', a, modes=('own', 'shared'),
                       helper=True),
                self.c('SET NX PX and a script, in C', 'plain', a,
                       modes=(*EVERY, *PROCESSES, 'async'), flying=10000),
                self.c('the same, pipelined on 50 connections', 'plain-many', a, modes=('async',),
                       flying=10000, helper=True),
                self.c('one PING after a sleep', 'ping', a, modes={'handover': 'own'},
                       helper=True),
                java('Redisson 4 (Java)', 'redisson', a, 'redisson4', 100),
                go('redsync (Go)', 'redsync', a, flying=1000),
                go('rueidislock (Go)', 'rueidislock', a, flying=1000),
                go('bsm/redislock (Go)', 'redislock', a, flying=1000),
                node('redlock 5 (Node)', 'redlock', a),
                node('redis-semaphore (Node)', 'redis-semaphore', a, modes=(*EVERY, 'permits')),
                python('redis-py', 'redis-py', a),
                python('python-redis-lock', 'python-redis-lock', a)]

    def cost(self):
        fields = dict(line.split(':', 1) for line in self.server.call('INFO').splitlines()
                      if ':' in line)
        return {'commands': int(fields['total_commands_processed']),
                'bytes': int(fields['total_net_input_bytes']) +
                int(fields['total_net_output_bytes']),
                'server_us': 1e6 * (float(fields['used_cpu_user']) +
                                    float(fields['used_cpu_sys']))}

    def stop(self):
        self.server.stop()


class ZooKeeper(Service):
    title = 'ZooKeeper, one server, writes not forced to the disk'
    sync = False

    def start(self):
        from zk_server import Server
        self.server = Server(tick=2000, least=4000, sync=self.sync).start()
        self.pids = (self.server.process.pid,)

    def peers(self):
        a = f'127.0.0.1:{self.server.port}'
        return [self.c('Pawl', 'pawl', self.server.url('/bench')),
                java('Curator (Java)', 'curator', a, 'curator', 64), python('kazoo', 'kazoo', a)]

    def stop(self):
        self.server.stop()


class ZooKeeperSync(ZooKeeper):
    title = 'ZooKeeper, one server, every write forced to the disk'
    sync = True
    contenders = (2, 16)


class Etcd(Service):
    title = 'etcd, one server, writes not forced to the disk'

    def start(self):
        from etcd_server import Etcd as One
        self.server = One()
        self.pids = tuple(m.process.pid for m in self.server.members)

    def peers(self):
        port = self.server.members[0].port
        return [self.c('Pawl', 'pawl', self.server.url()),
                # Contenders of one session would all own its lock: no `eights`.
                go("etcd's own client (Go)", 'etcd', f'127.0.0.1:{port}',
                   modes=('own', 'shared', 'same'))]

    def stop(self):
        self.server.stop()


class Sql(Service):
    modes = ('own', 'shared', 'same', 'handover')

    def start(self):
        from sql_server import SERVERS
        self.server = SERVERS[self.kind](durable=True)
        self.pids = (self.server.process.pid,)
        self.prepare()

    def prepare(self):
        pass

    def stop(self):
        self.server.stop()


class Postgres(Sql):
    title = 'PostgreSQL, each commit on the disk'
    kind = 'postgres'

    def prepare(self):
        self.server.sql('CREATE EXTENSION pg_stat_statements')

    def cost(self):
        return {'commands': self.server.number('SELECT sum(calls) FROM pg_stat_statements')}

    def peers(self):
        url = self.server.url()
        return [self.c('Pawl, tables', 'pawl', url),
                self.c('Pawl, `layout=advisory`', 'pawl', url + '?layout=advisory'),
                self.c('pg_advisory_lock', 'pg_advisory_lock', url, modes=self.modes),
                self.c('SELECT ... FOR UPDATE', 'pg_for_update', url, modes=self.modes),
                self.c('INSERT, and again after 5 ms', 'pg_insert_poll', url, modes=self.modes)]


class Mysql(Sql):
    title = 'MariaDB, each commit on the disk'
    kind = 'mysql'

    def cost(self):
        words = self.server.sql("SHOW GLOBAL STATUS LIKE 'Questions'").split()
        return {'commands': int(words[-1])}

    def peers(self):
        url = self.server.url()
        return [self.c('Pawl, tables', 'pawl', url),
                self.c('Pawl, `layout=session`', 'pawl', url + '?layout=session'),
                self.c('GET_LOCK', 'get_lock', url, modes=self.modes),
                self.c('SELECT ... FOR UPDATE', 'my_for_update', url, modes=self.modes),
                self.c('INSERT, and again after 5 ms', 'my_insert_poll', url, modes=self.modes)]


SERVICES = {'local': Local, 'redis': Redis, 'zk': ZooKeeper, 'zk-sync': ZooKeeperSync, 'etcd': Etcd,
            'postgres': Postgres, 'mysql': Mysql}
