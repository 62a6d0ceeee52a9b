# SPDX-License-Identifier: Apache-2.0
"""A private redis-server on a free loopback port, plain connections to it, and its watchers.

Everything is bytes: some layouts keep raw ids in their keys. The server is stopped by its process
id and leaves nothing behind.
"""
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time


class ServerError(Exception):
    """The server answered with an error."""


def pack(args):
    out = [b'*%d\r\n' % len(args)]
    for a in args:
        a = a if isinstance(a, bytes) else str(a).encode()
        out.append(b'$%d\r\n%s\r\n' % (len(a), a))
    return b''.join(out)


class Connection:
    """RESP2, one request at a time."""

    def __init__(self, port):
        self.socket = socket.create_connection(('127.0.0.1', port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile('rb')
        self.mutex = threading.Lock()

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.file.close()
        self.socket.close()

    def send(self, *args):
        self.socket.sendall(pack(args))

    def call(self, *args):
        with self.mutex:
            self.send(*args)
            value = self.value()
        if isinstance(value, ServerError):
            raise value
        return value

    def value(self):
        line = self.file.readline()
        if not line.endswith(b'\r\n'):
            raise ConnectionError('the server hung up')
        kind, rest = line[:1], line[1:-2]
        if kind == b'$':
            n = int(rest)
            return None if n < 0 else self.file.read(n + 2)[:-2]
        if kind == b'*':
            return None if int(rest) < 0 else [self.value() for _ in range(int(rest))]
        if kind == b':':
            return int(rest)
        if kind == b'-':
            return ServerError(rest.decode())
        return rest


class Watcher:
    """Collects what a connection that only listens receives, each with its time of arrival."""

    def __init__(self, port, *request):
        self.connection = Connection(port)
        self.connection.socket.settimeout(None)
        self.lines = []
        self.changed = threading.Condition()
        self.connection.send(*request)
        self.connection.value()
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self):
        try:
            while True:
                value = self.connection.value()
                with self.changed:
                    self.lines.append((time.monotonic(), value))
                    self.changed.notify_all()
        except (OSError, ValueError):
            pass

    def mark(self):
        with self.changed:
            return len(self.lines)

    def since(self, mark):
        with self.changed:
            return self.lines[mark:]

    def wait(self, found, mark=0, seconds=30):
        """Wait until a line from `mark` on makes found(value) true; the mark behind it."""
        end = time.monotonic() + seconds
        with self.changed:
            while True:
                for line in self.lines[mark:]:
                    mark += 1
                    if found(line[1]):
                        return mark
                if not self.changed.wait(max(0, end - time.monotonic())):
                    raise TimeoutError('nothing of that kind within %g s' % seconds)

    def forget(self):
        with self.changed:
            self.lines.clear()

    def close(self):
        self.connection.close()
        self.thread.join(5)


def _unquote(text):
    """One word as MONITOR prints it, as bytes."""
    plain = {'n': '\n', 'r': '\r', 't': '\t', 'a': '\a', 'b': '\b'}

    def undo(found):
        word = found.group(1)
        return chr(int(word[1:], 16)) if word[0] == 'x' else plain.get(word, word)
    return re.sub(r'\\(x[0-9a-f]{2}|.)', undo, text, flags=re.S).encode('latin-1')


def parse_monitor(line):
    """What MONITOR says of one command: where it came from ('lua' or an address), its words."""
    found = re.match(r'[\d.]+ \[\d+ ([^\]]+)\] ', line.decode('latin-1'))
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', line.decode('latin-1')[found.end():], re.S)
    return found.group(1), [_unquote(w) for w in words]


class Server:
    """One server; with `cluster` it is a cluster of one node, which has all slots."""

    def __init__(self, *options, cluster=False):
        if cluster:
            options += ('--cluster-enabled', 'yes', '--cluster-announce-ip', '127.0.0.1')
        self.folder = tempfile.mkdtemp(prefix='pawl-interop-')
        self.process = None
        for _ in range(20):
            if self._start(options):
                if cluster:
                    self._take_slots()
                return
        self.stop()
        raise RuntimeError('redis-server does not start')

    def _start(self, options):
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            ['redis-server', '--port', str(self.port), '--bind', '127.0.0.1', '--save', '',
             '--appendonly', 'no', '--dir', self.folder, *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while time.monotonic() < end and self.process.poll() is None:
            try:
                self.admin = Connection(self.port)
                info = self.admin.call('INFO', 'server')
            except ConnectionError:  # not yet; or it ends, as a port of its own is taken
                time.sleep(0.01)
                continue
            if b'process_id:%d\r' % self.process.pid in info:
                self.version = re.search(rb'redis_version:(\S+)', info).group(1).decode()
                return True
            self.admin.close()
            break
        self._end()
        return False

    def _take_slots(self):
        self.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16383)
        end = time.monotonic() + 30
        while b'cluster_state:ok' not in self.call('CLUSTER', 'INFO'):
            if time.monotonic() > end:
                raise RuntimeError('the cluster does not come up')
            time.sleep(0.02)

    def call(self, *args):
        return self.admin.call(*args)

    def monitor(self):
        return Watcher(self.port, 'MONITOR')

    def listener(self):
        return Watcher(self.port, 'PSUBSCRIBE', '*')

    def _end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def stop(self):
        self._end()
        shutil.rmtree(self.folder, ignore_errors=True)
        if os.path.exists(self.folder):
            raise RuntimeError('%s is still there' % self.folder)
