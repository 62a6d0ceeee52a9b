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


def path_to(folder):
    for f in ('lib', folder):
        sys.path.insert(0, os.path.join(TOP, 'tests', f))


class Peer:
    def __init__(self, title, command, needs=None, folder=None, most=512, modes=None):
        """needs: a file without which it can't run. most: contenders that it can have."""
        self.title, self.command, self.folder, self.most = title, command, folder, most
        self.modes = modes or ('own', 'same', 'shared')
        self.missing = needs if needs and not os.path.exists(needs) else None


def java(title, library, address, jars, most):
    classes = os.path.join(BUILT, 'java')
    command = ['java', '-cp', f'{classes}:{INTEROP}/{jars}/lib/*', 'Worker', library, address]
    return Peer(title, command, os.path.join(classes, 'Worker.class'), most=most)


def go(title, library, address):
    worker = os.path.join(BUILT, 'go-worker')
    return Peer(title, [worker, library, address], worker)


def python(title, library, address):
    interpreter = os.path.join(INTEROP, 'python', 'bin', 'python')
    return Peer(title, [interpreter, os.path.join(HERE, 'python', 'worker.py'), library, address],
                interpreter, modes=('own', 'same'), most=64)


def node(title, library, address):
    folder = os.path.join(INTEROP, 'node')
    return Peer(title, ['node', os.path.join(HERE, 'node', 'worker.js'), library, address],
                os.path.join(folder, 'node_modules'), folder)


class Service:
    """address: as most workers want it; pids: the processes of the server, for its CPU time."""
    title = None
    pids = ()
    contenders = (2, 16, 64)

    def __init__(self, build):
        self.build = build
        self.start()

    def c(self, title, library, address, **more):
        return Peer(title, [os.path.join(self.build, 'bench', 'bench_worker'), library, address],
                    **more)

    def cost(self):
        """Commands and bytes that the server has counted so far, or None."""
        return None

    def stop(self):
        pass


class Local(Service):
    title = 'One machine, no server'

    def start(self):
        self.folder = tempfile.mkdtemp(prefix='pawl-compare-', dir='/dev/shm')

    def peers(self):
        f = self.folder
        return [self.c('Pawl, `local:`', 'pawl', 'local:' + f), self.c('flock(2)', 'flock', f),
                self.c('robust POSIX mutex in shared memory', 'mutex', f),
                self.c('POSIX semaphore in shared memory', 'semaphore', f)]

    def stop(self):
        shutil.rmtree(self.folder)


class Redis(Service):
    title = 'Redis, one server, TCP on the loopback'
    contenders = (2, 16, 64, 256)

    def start(self):
        path_to('redis')
        from live import Live
        self.server = Live()
        self.pids = (self.server.process.pid,)

    def peers(self):
        a = f'127.0.0.1:{self.server.port}'
        url = f'redis://{a}/'
        return [self.c('Pawl', 'pawl', url),
                self.c("Pawl, Redisson's layout", 'pawl', url + '?layout=redisson'),
                self.c('SET NX PX and a script, in C', 'plain', a, modes=('own', 'same')),
                java('Redisson 4 (Java)', 'redisson', a, 'redisson4', 64),
                go('redsync (Go)', 'redsync', a), go('rueidislock (Go)', 'rueidislock', a),
                go('bsm/redislock (Go)', 'redislock', a), node('redlock 5 (Node)', 'redlock', a),
                node('redis-semaphore (Node)', 'redis-semaphore', a),
                python('redis-py', 'redis-py', a),
                python('python-redis-lock', 'python-redis-lock', a)]

    def cost(self):
        fields = dict(line.split(':', 1) for line in self.server.call('INFO').splitlines()
                      if ':' in line)
        return (int(fields['total_commands_processed']),
                int(fields['total_net_input_bytes']) + int(fields['total_net_output_bytes']))

    def stop(self):
        self.server.stop()


class ZooKeeper(Service):
    title = 'ZooKeeper, one server, writes not forced to the disk'

    def start(self):
        path_to('zk')
        from server import Server
        self.server = Server(tick=2000, least=4000).start()
        self.pids = (self.server.process.pid,)

    def peers(self):
        a = f'127.0.0.1:{self.server.port}'
        return [self.c('Pawl', 'pawl', self.server.url('/bench')),
                java('Curator (Java)', 'curator', a, 'curator', 64), python('kazoo', 'kazoo', a)]

    def stop(self):
        self.server.stop()


class Etcd(Service):
    title = 'etcd, one server, writes not forced to the disk'

    def start(self):
        path_to('etcd')
        from etcds import Etcd as One
        self.server = One()
        self.pids = tuple(m.process.pid for m in self.server.members)

    def peers(self):
        port = self.server.members[0].port
        return [self.c('Pawl', 'pawl', self.server.url()),
                go("etcd's own client (Go)", 'etcd', f'127.0.0.1:{port}')]

    def stop(self):
        self.server.stop()


class Sql(Service):
    def start(self):
        path_to('redis')
        path_to('sql')
        from server import SERVERS
        self.server = SERVERS[self.kind](durable=True)
        self.pids = ()

    def stop(self):
        self.server.stop()


class Postgres(Sql):
    title = 'PostgreSQL, each commit on the disk'
    kind = 'postgres'

    def peers(self):
        url = self.server.url()
        return [self.c('Pawl, tables', 'pawl', url),
                self.c('Pawl, `layout=advisory`', 'pawl', url + '?layout=advisory'),
                self.c('pg_advisory_lock', 'pg_advisory_lock', url, modes=('own', 'same')),
                self.c('SELECT ... FOR UPDATE', 'pg_for_update', url, modes=('own', 'same')),
                self.c('INSERT, and again after 5 ms', 'pg_insert_poll', url,
                       modes=('own', 'same'))]


class Mysql(Sql):
    title = 'MariaDB, each commit on the disk'
    kind = 'mysql'

    def peers(self):
        url = self.server.url()
        return [self.c('Pawl, tables', 'pawl', url),
                self.c('GET_LOCK', 'get_lock', url, modes=('own', 'same')),
                self.c('SELECT ... FOR UPDATE', 'my_for_update', url, modes=('own', 'same')),
                self.c('INSERT, and again after 5 ms', 'my_insert_poll', url,
                       modes=('own', 'same'))]


SERVICES = {'local': Local, 'redis': Redis, 'zk': ZooKeeper, 'etcd': Etcd, 'postgres': Postgres,
            'mysql': Mysql}
