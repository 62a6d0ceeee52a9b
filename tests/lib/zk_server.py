# SPDX-License-Identifier: Apache-2.0
"""Private ZooKeeper servers: one alone, or an ensemble.

Each server has a folder and free loopback ports of its own, has ticks that are ten times shorter than
usual, and is stopped by its process id. The jars are from Debian's libzookeeper-java, or from the folder
that PAWL_ZK_JARS names.
"""
import glob
import os
import shutil
import socket
import subprocess
import tempfile
import time

from ports import free_ports
from server_process import ServerProcess
from wait import PATIENCE
from zk_client import Client

JARS = '/usr/share/java'
NEEDED = ('zookeeper', 'zookeeper-jute', 'slf4j-api', 'slf4j-nop', 'metrics-core', 'snappy-java',
          'netty-all', 'netty-buffer', 'netty-codec', 'netty-common', 'netty-handler',
          'netty-resolver', 'netty-transport', 'netty-transport-native-unix-common',
          'netty-transport-native-epoll')
WARM_UP = 200  # pairs of writes until the code of the server is compiled


def class_path():
    if 'PAWL_ZK_JARS' in os.environ:
        return os.path.join(os.environ['PAWL_ZK_JARS'], '*')
    return ':'.join(os.path.join(JARS, jar + '.jar') for jar in NEEDED)


class Server(ServerProcess):
    def __init__(self, port=None, lines=(), number=1, options=(), tick=200, sync=False,
                 least=400):
        self.folder = tempfile.mkdtemp(prefix='pawl-zk-')
        self.port = port or free_ports(1)[0]
        self.number = number
        self.options = options
        self.sync = sync
        self.process = None
        os.mkdir(os.path.join(self.folder, 'data'))
        with open(os.path.join(self.folder, 'data', 'myid'), 'w', encoding='ascii') as file:
            file.write(f'{number}\n')
        self.config = os.path.join(self.folder, 'zoo.cfg')
        with open(self.config, 'w', encoding='ascii') as file:
            file.write('\n'.join([
                f'tickTime={tick}', f'minSessionTimeout={least}', 'maxSessionTimeout=700000',
                f'dataDir={self.folder}/data', 'clientPortAddress=127.0.0.1',
                f'clientPort={self.port}', 'admin.enableServer=false',
                '4lw.commands.whitelist=*', 'maxClientCnxns=0', 'preAllocSize=1024',
                'extendedTypesEnabled=true', *lines, '']))

    def launch(self):
        log = open(os.path.join(self.folder, 'log'), 'ab')
        with log:
            self.process = subprocess.Popen(
                ['java', '-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-Xshare:auto', '-Xmx192m',
                 f'-Dzookeeper.forceSync={"yes" if self.sync else "no"}',
                 '-Dznode.container.checkIntervalMs=500', '-Dzookeeper.skipACL=no',
                 *self.options, '-cp', class_path(),
                 'org.apache.zookeeper.server.quorum.QuorumPeerMain', self.config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self):
        self.launch()
        self.await_ready()
        self.warm_up()
        return self

    def ask(self, word):
        """Send a four-letter command. Returns the answer, or '' if the server does not answer."""
        try:
            with socket.create_connection(('127.0.0.1', self.port), 2) as s:
                s.sendall(word.encode())
                parts = []
                while part := s.recv(65536):
                    parts.append(part)
                return b''.join(parts).decode(errors='replace')
        except OSError:
            return ''

    def mode(self):
        """'standalone', 'leader', 'follower', or ''."""
        for line in self.ask('srvr').splitlines():
            if line.startswith('Mode: '):
                return line[6:]
        return ''

    def await_ready(self):
        end = time.monotonic() + PATIENCE
        while not self.mode():
            assert self.process.poll() is None, 'the server ended'
            assert time.monotonic() < end, 'the server does not come up'
            time.sleep(0.02)

    def warm_up(self):
        """A new Java process needs seconds for its first answers, and a new ensemble may elect a
        second leader in that time. So send requests until the server is fast."""
        end, rounds = time.monotonic() + PATIENCE, 0
        while rounds < WARM_UP:
            try:
                admin = Client(self.port)
                while rounds < WARM_UP:
                    path = admin.create('/warm-', flags=3)
                    admin.children('/')
                    admin.delete(path)
                    rounds += 1
                admin.close()
            except OSError:
                assert time.monotonic() < end, 'the server does not serve'
                time.sleep(0.05)

    def url(self, rest=''):
        return f'zk://127.0.0.1:{self.port}{rest}'


class Ensemble:
    def __init__(self, n=3, tick=200, least=400, sync_limit=5):
        ports = free_ports(3 * n)
        lines = ['initLimit=25', f'syncLimit={sync_limit}'] + [
            f'server.{i + 1}=127.0.0.1:{ports[3 * i + 1]}:{ports[3 * i + 2]}' for i in range(n)]
        self.servers = [Server(ports[3 * i], lines, i + 1, tick=tick, least=least)
                        for i in range(n)]

    def start(self):
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.await_ready()
        for server in self.servers:
            server.warm_up()
        return self

    def leader(self):
        end = time.monotonic() + PATIENCE
        while True:
            for server in self.servers:
                if server.process.poll() is None and server.mode() == 'leader':
                    return server
            assert time.monotonic() < end, 'no leader'
            time.sleep(0.02)

    def followers(self):
        leader = self.leader()
        return [s for s in self.servers if s is not leader]

    def url(self, rest=''):
        return 'zk://' + ','.join(f'127.0.0.1:{s.port}' for s in self.servers) + rest

    @property
    def port(self):
        return self.servers[0].port

    def stop(self):
        for server in self.servers:
            server.stop()


def installed():
    return bool(shutil.which('java')) and all(glob.glob(os.path.join(JARS, j + '.jar'))
                                              for j in NEEDED)
