# SPDX-License-Identifier: Apache-2.0
"""The engines and layouts that programs run on, each with its private servers.

service = start('redis') has url, profile, and port (of the only server: a proxy may stand before it;
0 otherwise); pause(), resume() and restart() of the server where that makes sense; left() gives what
the service still has of a name, by the service's own client. restart() returns whether data were
kept. stop() ends everything.
"""
import os
import shutil
import sys
import tempfile

from program import MOST_PERMITS, Profile

HERE = os.path.dirname(os.path.abspath(__file__))


def path_to(folder):
    for f in ('lib', folder):
        sys.path.insert(0, os.path.join(HERE, '..', f))


class Service:
    """local: or memory:, and what the others have in common."""
    processes = True
    port = 0
    pause = resume = restart = None
    keeps_data = True

    def __init__(self, url, profile):
        self.url = url
        self.profile = profile

    def left(self, prefix):
        return []

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

    def stop(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis(Service):
    """One server; its data are gone after a restart."""
    keeps_data = False

    def __init__(self, profile=None, **params):
        path_to('redis')
        from live import Live
        self.server = Live()
        self.port = self.server.port
        self.pause, self.resume = self.server.pause, self.server.resume
        self.restart = self.server.restart
        super().__init__(self.server.url(**params), profile or Profile(brief=400))

    def left(self, prefix):
        """Keys without an end. Redisson has some: counters of tokens and of permits, and permits
        whose lease ended, until somebody asks for another."""
        admin = self.server.connect()
        found = [k for k in admin.call('KEYS', f'*{prefix}*') if admin.call('PTTL', k) == -1]
        if self.profile.foreign:
            found = [k for k in found if 'token' not in k and not k.endswith(':timeout')]
            found = [k for k in found if admin.call('TYPE', k) != 'string' or
                     int(admin.call('GET', k)) > MOST_PERMITS]
        admin.close()
        return found

    def stop(self):
        self.server.stop()


class Cluster(Service):
    def __init__(self):
        path_to('redis')
        from cluster import Calm
        self.server = Calm()
        super().__init__(self.server.url(), Profile(brief=400))

    def stop(self):
        self.server.stop()


class Quorum(Service):
    def __init__(self):
        path_to('redis')
        from live import Live
        self.servers = [Live() for _ in range(3)]
        url = '|'.join(['quorum:settle=1', *(s.url() for s in self.servers)])
        super().__init__(url, Profile(locks_only=True, ordered=False, brief=1200))

    def stop(self):
        for s in self.servers:
            s.stop()


class Etcd(Service):
    def __init__(self):
        path_to('redis')  # certificates
        path_to('etcd')
        from etcds import Etcd as Server
        self.server = Server('--bcrypt-cost=4')
        self.port = self.server.port
        self.pause, self.resume = self.server.member.pause, self.server.member.resume
        super().__init__(self.server.url(),
                         Profile(ordered=False, brief=1200, short=2500, watchdogs=(2500, 4000)))

    def restart(self):
        self.server.member.kill()
        self.server.member.start()
        self.server.wait()

    def left(self, prefix):
        return [k for k in self.server.keys() if prefix in k and 'fence' not in k]

    def stop(self):
        self.server.stop()


class Zk(Service):
    def __init__(self):
        path_to('zk')
        from server import Server
        self.server = Server(least=2000).start()
        self.port = self.server.port
        self.pause, self.resume = self.server.pause, self.server.resume
        super().__init__(self.server.url('/generate'),
                         Profile(ordered=False, brief=1200, short=1000, way=' writer',
                                 watchdogs=(2500, 4000)))

    def stop(self):
        self.server.stop()


class Sql(Service):
    def __init__(self, kind, profile=None, **params):
        path_to('sql')
        from server import SERVERS
        self.server = SERVERS[kind]()
        self.port = self.server.port
        super().__init__(self.server.url(**params), profile or Profile(brief=1500, watchdogs=(900, 2000)))

    def pause(self):
        import signal
        self.server.process.send_signal(signal.SIGSTOP)

    def resume(self):
        import signal
        self.server.process.send_signal(signal.SIGCONT)

    def restart(self):
        self.server.restart()

    def stop(self):
        self.server.stop()


ENGINES = {
    'memory': Memory,
    'local': Local,
    'redis': Redis,
    'redisson': lambda: Redis(Profile(ordered=False, brief=400, foreign=True), layout='redisson'),
    'plain': lambda: Redis(Profile(ordered=False, brief=400, foreign=True), layout='redisson', semaphore='plain'),
    'cluster': Cluster,
    'quorum': Quorum,
    'etcd': Etcd,
    'zk': Zk,
    'postgres': lambda: Sql('postgres'),
    'advisory': lambda: Sql('postgres', Profile(locks_only=True, ordered=False, brief=1500, way=' gone',
                                                watchdogs=(900, 2000)), layout='advisory',
                            connections=120),
    'mysql': lambda: Sql('mysql'),
}


def start(name):
    return ENGINES[name]()
