# SPDX-License-Identifier: Apache-2.0
"""A private redis-server, and clients that speak RESP3 and call the scripts.

The server listens on a unix socket in a folder of its own and is stopped by its process id. A Client acts
like the engine: one connection for requests and pushes, which subscribes to the client's channel before the
first request.
"""
import hashlib
import functools
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = os.path.join(HERE, '..', '..', 'engines', 'redis', 'scripts')
_spec = importlib.util.spec_from_file_location('embed', os.path.join(SCRIPTS, 'embed.py'))
_embed = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_embed)
TEXTS = {n: _embed.text(os.path.join(SCRIPTS, n + '.lua')) for n in
         ('acquire', 'release', 'cancel', 'renew', 'entry', 'break', 'inspect', 'latch')}


class Error(Exception):
    """The server answered with an error."""


class Connection:
    def __init__(self, address):
        """address: a path, or a host and a port."""
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(60)
        self.socket.connect(address)
        self.file = self.socket.makefile('rb')
        self.pushes = []
        self.call('HELLO', 3)

    def close(self):
        self.file.close()
        self.socket.close()

    @staticmethod
    def pack(args):
        out = [b'*%d\r\n' % len(args)]
        for a in args:
            a = a if isinstance(a, bytes) else str(a).encode()
            out.append(b'$%d\r\n%s\r\n' % (len(a), a))
        return b''.join(out)

    def send(self, *args):
        self.socket.sendall(self.pack(args))

    def call(self, *args):
        self.send(*args)
        return self.reply()

    def _line(self):
        line = self.file.readline()
        if not line.endswith(b'\r\n'):
            raise ConnectionError('the server hung up')
        return line[:1], line[1:-2]

    def _value(self):
        kind, rest = self._line()
        if kind in b'$=':
            n = int(rest)
            text = None if n < 0 else self.file.read(n + 2)[:-2].decode()
            return text[4:] if kind == b'=' else text
        if kind in b'*~>':
            values = [self._value() for _ in range(int(rest))]
            if kind == b'>':
                self.pushes.append(values)
                return _Push
            return values
        if kind == b'%':
            return {self._value(): self._value() for _ in range(int(rest))}
        if kind == b':':
            return int(rest)
        if kind == b'_':
            return None
        if kind == b'-':
            return Error(rest.decode())
        return rest.decode()

    def reply(self):
        while True:
            value = self._value()
            if value is _Push:
                continue
            if isinstance(value, Error):
                raise value
            return value

    def push(self):
        """Wait for the next push."""
        while not self.pushes:
            assert self._value() is _Push
        return self.pushes.pop(0)


class _Push:
    pass


def keys(name, prefix='pawl:'):
    """The keys of a lock: K, fence, queue, rec, hold, done."""
    k = prefix + name
    base = helper_base(k)
    return [k] + [base + s for s in (':fence', ':queue', ':rec', ':hold', ':done')]


def crc16(data):
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ 0x1021 if crc & 0x8000 else crc << 1
        crc &= 0xffff
    return crc


@functools.lru_cache(None)
def helper_base(k):
    """The prefix of the helper keys of k, which puts them into the slot of k (docs/redis.md)."""
    start = k.find('{')
    end = k.find('}', start + 1) if start >= 0 else -1
    if end > start + 1:
        return '{' + k[start + 1:end] + '}:' + k
    if '}' not in k:
        return '{' + k + '}'
    slot = crc16(k.encode()) % 16384
    n = 0
    while crc16(str(n).encode()) % 16384 != slot:
        n += 1
    return '{%d}:%s' % (n, k)


def secret(seq):
    """The secret of an acquire, which messages about the acquire repeat."""
    return '%x' % (0x5ec2e7 + seq)


class Client:
    """One Pawl client: an id, a channel, and the scripts."""

    def __init__(self, server, number):
        self.server = server
        self.id = '%016x' % number
        self.channel = 'pawl:@' + self.id
        self.connect()

    def connect(self):
        self.conn = Connection(self.server.path)
        self.conn.send('SUBSCRIBE', self.channel)
        assert self.conn.push()[0] == 'subscribe'

    def close(self):
        self.conn.close()
        self.server.forget(self)

    def owner(self, seq):
        return '%s:%x' % (self.id, seq)

    def script(self, which, script_keys, *args):
        return self.conn.call('EVALSHA', self.server.shas[which], len(script_keys), *script_keys,
                              *args)

    def acquire_args(self, name, seq, mode='x', lease=30000, wait=0, tokens=1, permits=0,
                     capacity=0, with_owner='', floor=0, seen=''):
        return ['EVALSHA', self.server.shas['acquire'], 5, *keys(name)[:5], self.owner(seq), mode,
                lease, wait, tokens, 'p' + self.channel, permits, capacity, with_owner, floor, seen,
                secret(seq)]

    def acquire(self, name, seq, **options):
        return self.conn.call(*self.acquire_args(name, seq, **options))

    def release(self, name, seq, keep=0, linger=0):
        return self.script('release', keys(name)[:5], self.owner(seq), keep, linger)

    def cancel(self, name, seq, *told):
        """told: the token and the time of a grant that the client does not know."""
        return self.script('cancel', keys(name)[:5], self.owner(seq), *told)

    def renew(self, items, step=3):
        """items: (name, seq, lease)."""
        names = [k for name, _, _ in items for k in
                 ([keys(name)[0]] if step == 1 else [keys(name)[i] for i in (0, 3, 4)])]
        args = [a for _, seq, lease in items for a in (self.owner(seq), lease)]
        return self.script('renew', names, step, *args)[1:]

    def break_(self, name):
        return self.script('break', keys(name)[:5])[0]

    def inspect(self, name, most=100000):
        return self.script('inspect', keys(name)[:5], most)

    def latch(self, name, what, seq, count=0, remember=60000):
        k = keys(name)
        return self.script('latch', [k[0], k[5], k[2], k[3]], what, self.owner(seq), count,
                           remember)

    def messages(self):
        """The messages that have been pushed to this client so far."""
        self.conn.call('PING')
        got = [p[2].split(' ') for p in self.conn.pushes if p[0] == 'message']
        self.conn.pushes.clear()
        return got

    def message(self):
        return self.conn.push()[2].split(' ')


def server_version():
    """The major version of redis-server; 0: none is installed."""
    if not shutil.which('redis-server'):
        return 0
    text = subprocess.run(['redis-server', '--version'], capture_output=True, text=True,
                          check=True).stdout
    return int(re.search(r'v=(\d+)', text)[1])


VERSION = server_version()


class Server:
    def __init__(self, *options, claim_ms=2000):
        if VERSION < 7 and '--enable-debug-command' in options:  # always so
            at = options.index('--enable-debug-command')
            options = options[:at] + options[at + 2:]
        self.folder = tempfile.mkdtemp(prefix='pawl-redis-')
        self.path = os.path.join(self.folder, 'socket')
        self.clients = []
        self.texts = {n: t.replace("'2000', '1999'", "'%d', '%d'" % (claim_ms, claim_ms - 1))
                      for n, t in TEXTS.items()}
        self.shas = {n: hashlib.sha1(t.encode()).hexdigest() for n, t in self.texts.items()}
        self.command = ['redis-server', '--port', '0', '--unixsocket', self.path, '--save', '',
                        '--appendonly', 'no', '--dir', self.folder, *map(str, options)]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while True:
            try:
                self.admin = Connection(self.path)
                break
            except (FileNotFoundError, ConnectionError, Error):
                if time.monotonic() > end or self.process.poll() is not None:
                    self.stop()
                    raise
                time.sleep(0.01)
        self.load()

    def load(self):
        for name, text in self.texts.items():
            assert self.admin.call('SCRIPT', 'LOAD', text) == self.shas[name]

    def client(self, number=None):
        made = Client(self, number if number is not None else len(self.clients) + 1)
        self.clients.append(made)
        return made

    def forget(self, client):
        """Wait until the server has noticed that the client is gone."""
        while self.admin.call('PUBSUB', 'NUMSUB', client.channel)[1]:
            time.sleep(0.001)

    def scripts_run(self):
        info = self.admin.call('INFO', 'commandstats')
        return sum(int(line.split('calls=')[1].split(',')[0]) for line in info.splitlines()
                   if line.startswith('cmdstat_evalsha:'))

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
