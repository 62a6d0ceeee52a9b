# SPDX-License-Identifier: Apache-2.0
"""Private etcd servers: one, or a cluster of three, on free ports of the loopback, each in a folder
of its own and stopped by its process id. etcdctl is the other client.
"""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request

from actor import Actor, query
from ports import free_ports
import rights
from server_process import ServerProcess
from wait import PATIENCE, until


class Member(ServerProcess):
    """One server. Its data are kept when the server is killed."""

    def __init__(self, name, port, peer, election_ms, options=(), scheme='http'):
        self.name, self.port, self.peer, self.scheme = name, port, peer, scheme
        self.folder = tempfile.mkdtemp(prefix='pawl-etcd-')
        client = f'{scheme}://127.0.0.1:{port}'
        self.command = ['etcd', '--name', name, '--data-dir', os.path.join(self.folder, 'data'),
                        '--listen-client-urls', client, '--advertise-client-urls', client,
                        '--listen-peer-urls', f'http://127.0.0.1:{peer}',
                        '--initial-advertise-peer-urls', f'http://127.0.0.1:{peer}',
                        '--log-level=error', '--unsafe-no-fsync',
                        f'--heartbeat-interval={election_ms // 10}',
                        f'--election-timeout={election_ms}', *options]
        self.process = None

    def start(self):
        log = open(os.path.join(self.folder, 'log'), 'ab')
        self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        log.close()

    def is_healthy(self):
        try:
            with urllib.request.urlopen(f'http://127.0.0.1:{self.port}/health', timeout=2) as f:
                return json.load(f)['health'] == 'true'
        except (OSError, ValueError):
            return False

    def answers(self):
        try:
            socket.create_connection(('127.0.0.1', self.port), 1).close()
            return True
        except OSError:
            return False


class Cluster:
    """`n` servers that know each other."""

    def __init__(self, n=3, election_ms=300, options=(), scheme='http'):
        names = [f'n{i + 1}' for i in range(n)]
        ports = free_ports(2 * n)
        peers = ports[n:]
        known = ','.join(f'{name}=http://127.0.0.1:{peer}' for name, peer in zip(names, peers))
        self.members = [Member(name, port, peer, election_ms,
                               ['--initial-cluster', known, *options], scheme)
                        for name, port, peer in zip(names, ports, peers)]
        self.environ, self.compacted = {}, 0
        try:
            for m in self.members:
                m.start()
            self.wait()
        except BaseException:
            self.stop()
            raise

    def wait(self):
        for m in self.members:
            until(m.is_healthy if m.scheme == 'http' else m.answers)

    def stop(self):
        for m in self.members:
            m.stop()

    def url(self, **params):
        hosts = ','.join(f'127.0.0.1:{m.port}' for m in self.members)
        return f'etcd://{hosts}/{query(params)}'

    def actor(self, label='', **params):
        return Actor(self.url(**params), label)

    # ---- the other client ----

    def ctl_words(self, *words):
        hosts = ','.join(f'{m.scheme}://127.0.0.1:{m.port}' for m in self.members)
        return ['etcdctl', f'--dial-timeout={PATIENCE}s', f'--command-timeout={PATIENCE}s',
                '--endpoints', hosts, *map(str, words)]

    def ctl(self, *words):
        done = subprocess.run(self.ctl_words(*words), stdout=subprocess.PIPE, check=False,
                              stderr=subprocess.PIPE, timeout=PATIENCE,
                              env=dict(os.environ, ETCDCTL_API='3', **self.environ))
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def peer(self, *words):
        """Start etcdctl and leave it running."""
        return subprocess.Popen(self.ctl_words(*words), stdout=subprocess.PIPE, text=True,
                                env=dict(os.environ, ETCDCTL_API='3', **self.environ))

    def keys(self, prefix='pawl/'):
        return self.ctl('get', prefix, '--prefix', '--keys-only').split()

    def values(self, prefix='pawl/'):
        """All keys: {key: (value, creation revision, modification revision, lease)}."""
        found = json.loads(self.ctl('get', prefix, '--prefix', '-w', 'json')).get('kvs', [])
        from base64 import b64decode
        return {b64decode(k['key']).decode():
                (b64decode(k.get('value', '')).decode(), k['create_revision'], k['mod_revision'],
                 k.get('lease', 0)) for k in found}

    def version(self, key):
        """How often the key was written since it was created."""
        return json.loads(self.ctl('get', key, '-w', 'json'))['kvs'][0]['version']

    def revision(self):
        return json.loads(self.ctl('get', 'nothing', '-w', 'json'))['header']['revision']

    def compact(self):
        """Compact all old revisions. A server refuses this if nothing has changed since the last time."""
        revision = self.revision()
        if revision > self.compacted:
            self.ctl('compact', revision)
        self.compacted = revision

    def give_rights(self, password):
        """Give the user `app` the rights of docs/security.md, and enable authentication."""
        for words in (('user', 'add', 'root:root'), ('user', 'grant-role', 'root', 'root'),
                      *([w.replace('PASSWORD', password) for w in words[1:]]
                        for words in rights.commands('etcd')), ('auth', 'enable')):
            self.ctl(*words)
        self.environ = {'ETCDCTL_USER': 'root:root'}

    def leases(self):
        return self.ctl('lease', 'list').split('\n')[1:-1]

    def leader(self):
        status = json.loads(self.ctl('endpoint', 'status', '-w', 'json'))
        for s in status:
            if s['Status']['header']['member_id'] == s['Status']['leader']:
                port = int(s['Endpoint'].rsplit(':', 1)[1])
                return next(m for m in self.members if m.port == port)
        return None


class Etcd(Cluster):
    """A cluster of one."""

    def __init__(self, *options, scheme='http'):
        super().__init__(1, 100, options, scheme)
        self.member = self.members[0]
        self.port = self.member.port

    def keep_state(self):
        """Restart the server, and keep a copy of its data for go_back()."""
        self.member.kill()
        data = os.path.join(self.member.folder, 'data')
        shutil.copytree(data, data + '-old')
        self.member.start()
        self.wait()

    def go_back(self):
        self.member.kill()
        data = os.path.join(self.member.folder, 'data')
        shutil.rmtree(data)
        os.rename(data + '-old', data)
        self.member.start()
        self.wait()
