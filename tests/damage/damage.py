#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""damage.py PROGRAM URL PORT CONNECTIONS [SEED]: a program (damaged.c) behind a proxy that damages
the server's answers, until CONNECTIONS connections were damaged. Prints TAP.

Each connection gets one kind of damage, at a random place of the server's data: a flipped bit, a
random byte, bytes that are left out, repeated, inserted or replaced by 0xff or by a huge number, a
cut, a stall, or noise from there on. The place is drawn so that greetings and later answers are
both hit. The seed is printed; PAWL_DAMAGE_SEED repeats a run as far as the threads' timing allows.
PAWL_DAMAGE_CONNECTIONS is another number of connections, for a longer run.

The program must end by itself with status 0: no crash, no sanitizer report, no call that hangs, and
no more than MEMORY kilobytes.
"""
import os
import random
import socket
import struct
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from ports import free_port  # noqa: E402

MEMORY = 400 * 1024 * int(os.environ.get('PAWL_MEMORY_FACTOR', '1'))
FIRST = int(os.environ.get('PAWL_DAMAGE_FIRST', '0'))  # answers before this offset stay sound
KINDS = ('bit', 'byte', 'omit', 'repeat', 'insert', 'ff', 'huge', 'cut', 'stall', 'noise', 'none')
HUGE = (b'9223372036854775807', b'4294967296', b'-1', b'99999999999999999999999',
        b'\x7f\xff\xff\xff', b'\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01', b'\r\n', b'\0\0\0\0')


class Damage:
    """The damage of one connection."""

    def __init__(self, chance):
        self.chance = chance
        self.kind = chance.choice(KINDS)
        self.at = FIRST + int(2 ** chance.uniform(0, 12))  # small offsets are likelier
        self.seen = 0
        self.over = False

    def apply(self, data):
        """The bytes that the client gets; None: cut the connection; b'' with over: stalled."""
        start, self.seen = self.seen, self.seen + len(data)
        if self.over:
            return self._later(data)
        if self.kind == 'none' or self.seen <= self.at:
            return data
        self.over = True
        return self._at(data, self.at - start)

    def _later(self, data):
        if self.kind == 'stall':
            return b''
        return self.chance.randbytes(len(data)) if self.kind == 'noise' else data

    def _at(self, data, i):
        n = self.chance.randint(1, 16)
        head, tail = data[:i], data[i:]
        if self.kind == 'bit':
            return head + bytes([tail[0] ^ 1 << self.chance.randrange(8)]) + tail[1:]
        if self.kind == 'byte':
            return head + self.chance.randbytes(1) + tail[1:]
        if self.kind == 'omit':
            return head + tail[n:]
        if self.kind == 'repeat':
            return head + tail[:n] + tail
        if self.kind == 'insert':
            return head + self.chance.randbytes(n) + tail
        if self.kind == 'ff':
            return head + b'\xff' * min(n, len(tail)) + tail[n:]
        if self.kind == 'huge':
            number = self.chance.choice(HUGE)
            return head + number + tail[self.chance.choice((0, 1, len(number))):]
        if self.kind == 'cut':
            return None
        return head if self.kind == 'stall' else head + self.chance.randbytes(len(tail))


class Proxy:
    """A thread per direction and connection; they end with their sockets."""

    def __init__(self, target, seed):
        self.target = target
        self.chance = random.Random(seed)
        self.connections = 0
        self.damaged = dict.fromkeys(KINDS, 0)
        self.mutex = threading.Lock()
        self.port = free_port()
        self.listener = socket.create_server(('127.0.0.1', self.port), backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            with self.mutex:
                self.connections += 1
                damage = Damage(random.Random(self.chance.getrandbits(64)))
            try:
                server = socket.create_connection(('127.0.0.1', self.target), 10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            threading.Thread(target=self._pump, args=(client, server, None), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, damage), daemon=True).start()

    def _pump(self, source, sink, damage):
        try:
            while data := source.recv(65536):
                if damage:
                    data = damage.apply(data)
                    if data is None:
                        source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                          struct.pack('ii', 1, 0))
                        break
                if data:
                    sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()
        if damage and damage.over:
            with self.mutex:
                self.damaged[damage.kind] += 1


def main():
    program, url, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    wanted = int(os.environ.get('PAWL_DAMAGE_CONNECTIONS') or sys.argv[4])
    seed = int(os.environ.get('PAWL_DAMAGE_SEED', '0')) or random.randrange(1, 1 << 30)
    proxy = Proxy(port, seed)
    url = url.replace(f':{port}', f':{proxy.port}')
    assert f':{proxy.port}' in url, f'{url} does not name port {port}'
    print(f'# seed {seed}')
    bad = []
    run = 0
    while proxy.connections < wanted and not bad:
        run += 1
        done = subprocess.run([program, url, '20', str(seed + run)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        words = done.stdout.decode().split()
        facts = dict(w.split('=') for w in words if '=' in w)
        print('#', ' '.join(words))
        if done.returncode:
            bad.append(f'run {run} ended with {done.returncode}: {done.stderr.decode()[-3000:]}')
        elif int(facts['rss_kb']) > MEMORY:
            bad.append(f'run {run} used {facts["rss_kb"]} kB')
    for line in '\n'.join(bad).splitlines():
        print('#', line)
    print(f'# {proxy.connections} connections; damaged: '
          + ', '.join(f'{n} {k}' for k, n in proxy.damaged.items() if n))
    print('not ok' if bad else 'ok', '1 - damaged answers: no crash, no hang, bounded memory')
    enough = sum(proxy.damaged.values()) * 3 >= proxy.connections
    print('ok' if enough else 'not ok', '2 - at least a third of the connections were damaged')
    print('1..2', flush=True)
    return 1 if bad or not enough else 0


if __name__ == '__main__':
    sys.exit(main())
