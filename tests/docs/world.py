# SPDX-License-Identifier: Apache-2.0
"""The machine on which the documented commands run: a network of its own with the hosts that the
documentation names, each service on its usual port, and Pawl installed.

enter() starts the program again in new network, mount and process namespaces, so that all
servers and commands end with the program. Everything that commands write
below /etc, /usr/local, /var/lib and /run is kept in memory there and ends with the process; the
system outside does not change. Needs root, or a system that allows user namespaces.

    cache1           Redis: 6379, TLS on 6380, and the unix socket /run/redis/redis.sock
    s1 s2 s3         sentinels of "mymaster", which has two replicas
    n1 n2 n3         a Redis cluster
    r1 ... r5        five separate Redis servers
    etcd1 ... etcd3  names of one etcd server
    zk1 ... zk3      names of one ZooKeeper server
    db1              PostgreSQL and MariaDB: database app, user shop
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, '..', 'lib'))
from certs import Certs  # noqa: E402
from etcd_server import Member  # noqa: E402
import redis_server  # noqa: E402
from sql_server import Mysql, Postgres  # noqa: E402
from wait import until  # noqa: E402
import zk_server  # noqa: E402

HOSTS = {'cache1': 1, 's1': 41, 's2': 42, 's3': 43, 'n1': 51, 'n2': 52, 'n3': 53,
         **{f'r{i}': 60 + i for i in range(1, 6)}, **{f'etcd{i}': 1 for i in (1, 2, 3)},
         **{f'zk{i}': 1 for i in (1, 2, 3)}, 'db1': 1}
MASTER, REPLICAS = '127.0.0.44', ('127.0.0.45', '127.0.0.46')
PATIENCE = 60
OVERLAID = ('/etc', '/usr/local', '/var/lib')


class NoWorld(Exception):
    """This system does not allow namespaces; the text says why."""


def _run(*words, **options):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          **options)
    if done.returncode:
        raise RuntimeError(f'{" ".join(words)}: {done.stdout.decode(errors="replace")}')
    return done.stdout.decode()


def enter():
    """Start this program again inside the namespaces, once."""
    if os.environ.get('PAWL_DOCS_INSIDE'):
        return
    words = ['unshare', '--net', '--mount', '--pid', '--fork', '--kill-child', '--mount-proc']
    if os.getuid():
        words += ['--user', '--map-current-user', '--keep-caps']
    if subprocess.run([*words, 'true'], stderr=subprocess.DEVNULL, check=False).returncode:
        raise NoWorld('this system does not allow new namespaces (' + ' '.join(words) + ')')
    os.environ['PAWL_DOCS_INSIDE'] = '1'
    os.execvp(words[0], [*words, sys.executable, *sys.argv])


class World:
    def __init__(self, build, folder):
        self.folder, self.servers, self.missing = folder, [], {}
        _run('ip', 'link', 'set', 'lo', 'up')
        self._mounts()
        self._etc()
        _run('meson', 'install', '-C', build, '--no-rebuild', '--quiet')
        subprocess.run(['/sbin/ldconfig'], stderr=subprocess.DEVNULL, check=False)

    def _mounts(self):
        memory = os.path.join(self.folder, 'memory')
        os.mkdir(memory)
        _run('mount', '-t', 'tmpfs', 'tmpfs', memory)
        for where in OVERLAID:
            name = where.strip('/').replace('/', '-')
            upper, work = (os.path.join(memory, name + end) for end in ('', '-work'))
            os.mkdir(upper)
            os.mkdir(work)
            _run('mount', '-t', 'overlay', 'overlay', '-o',
                 f'lowerdir={where},upperdir={upper},workdir={work}', where)
        _run('mount', '-t', 'tmpfs', 'tmpfs', '/run')
        os.mkdir('/run/lock')
        os.chmod('/run/lock', 0o1777)
        os.mkdir('/run/redis')

    @staticmethod
    def _etc():
        with open('/etc/hosts', 'w', encoding='ascii') as f:
            f.write('127.0.0.1 localhost\n' +
                    ''.join(f'127.0.0.{n} {name}\n' for name, n in HOSTS.items()))
        with open('/etc/nsswitch.conf', 'w', encoding='ascii') as f:
            f.write('passwd: files\ngroup: files\nhosts: files\n')
        with open('/etc/group', 'a', encoding='ascii') as f:
            f.write('shop:x:4711:\n')

    # ---- servers ----

    def start(self, text):
        """Every service whose hosts occur in the text, side by side."""
        named = {name for name in HOSTS if re.search(rf'(//|,|@|=|-h |\|){name}\b', text)}
        wanted = {'redis'}
        for name, word in (('s1', 'sentinel'), ('n1', 'cluster'), ('r1', 'five'),
                           ('etcd1', 'etcd'), ('zk1', 'zk')):
            if name in named:
                wanted.add(word)
        if 'db1' in named:
            wanted |= {word for word in ('postgres', 'mysql') if word + '://' in text}
        if 'five' in wanted:  # a quorum does not count servers that are younger than 30 s
            wanted.remove('five')
            self.missing['five'] = self._start_one('five')
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            for word, why in zip(wanted, pool.map(self._start_one, wanted)):
                self.missing[word] = why

    PROGRAMS = {'redis': 'redis-server', 'sentinel': 'redis-server', 'cluster': 'redis-server',
                'five': 'redis-server', 'etcd': 'etcd', 'zk': 'java', 'mysql': 'mariadbd'}

    def _start_one(self, word):
        program = self.PROGRAMS.get(word)
        if program and not shutil.which(program, path=os.environ['PATH'] + ':/usr/sbin'):
            return f'{program} is not installed'
        getattr(self, '_' + word)()
        return None

    def _redis_server(self, ip, *options):
        class Plain(redis_server.Server):
            def load(self):
                pass
        server = Plain('--bind', ip, '--port', 6379, *options)
        self.servers.append(server)
        return server

    def _redis(self):
        certs = Certs(self.folder)
        certs._signed('cache1', 'ca', 'subjectAltName=DNS:cache1,DNS:localhost,IP:127.0.0.1')
        options = [o.replace('@PORT@', '6380') for o in certs.options('cache1')]
        shutil.copy(certs.pem('ca'), '/etc/ssl/redis-ca.pem')
        server = self._redis_server('127.0.0.1', *options, '--maxmemory-policy', 'noeviction')
        server.admin.call('ACL', 'SETUSER', 'shop', 'on', '>secret', '~*', '&*', '+@all')
        os.symlink(server.path, '/run/redis/redis.sock')

    def _sentinel(self):
        master = self._redis_server(MASTER, '--repl-diskless-sync-delay', 0)
        for ip in REPLICAS:
            self._redis_server(ip, '--replicaof', MASTER, '6379', '--replica-announce-ip', ip)
        end = time.monotonic() + PATIENCE
        while len(master.admin.call('ROLE')[2]) < len(REPLICAS):
            assert time.monotonic() < end, 'the replicas do not come'
            time.sleep(0.02)
        for name in ('s1', 's2', 's3'):
            self.servers.append(Sentinel(f'127.0.0.{HOSTS[name]}'))

    def _cluster(self):
        ips = [f'127.0.0.{HOSTS[n]}' for n in ('n1', 'n2', 'n3')]
        for ip in ips:
            self._redis_server(ip, '--cluster-enabled', 'yes', '--cluster-announce-ip', ip)
        _run('redis-cli', '--cluster', 'create', *(ip + ':6379' for ip in ips), '--cluster-yes')

    def _five(self):
        for i in range(1, 6):
            self._redis_server(f'127.0.0.{HOSTS[f"r{i}"]}')

    def _etcd(self):
        member = Member('n1', 2379, 2380, 100, ['--initial-cluster', 'n1=http://127.0.0.1:2380'])
        self.servers.append(member)
        member.start()
        until(member.is_healthy)

    def _zk(self):
        server = zk_server.Server(port=2181)
        self.servers.append(server)
        server.start()

    def _postgres(self):
        class Here(Postgres):
            port = 5432
        server = Here()
        self.servers.append(server)
        server.sql('CREATE ROLE shop LOGIN')
        server.sql('CREATE DATABASE app OWNER shop')

    def _mysql(self):
        class Here(Mysql):
            port = 3306
        server = Here()
        self.servers.append(server)
        server.sql('CREATE DATABASE app')
        server.sql("CREATE USER shop@'%'")
        server.sql("GRANT ALL ON app.* TO shop@'%'")

    def stop(self):
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            list(pool.map(lambda s: s.stop(), self.servers))


class Sentinel:
    def __init__(self, ip):
        self.folder = os.path.join('/run', 'sentinel-' + ip)
        os.mkdir(self.folder)
        conf = os.path.join(self.folder, 'conf')
        with open(conf, 'w', encoding='ascii') as f:
            f.write(f'bind {ip}\nport 26379\nprotected-mode no\nsentinel announce-ip {ip}\n'
                    f'sentinel monitor mymaster {MASTER} 6379 2\n')
        self.process = subprocess.Popen(['redis-server', conf, '--sentinel'],
                                        stdout=subprocess.DEVNULL)
        end = time.monotonic() + PATIENCE
        while subprocess.run(['redis-cli', '-h', ip, '-p', '26379', 'PING'], check=False,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            assert time.monotonic() < end, 'the sentinel does not start'
            time.sleep(0.02)

    def stop(self):
        self.process.kill()
        self.process.wait()

