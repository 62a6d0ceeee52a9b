# SPDX-License-Identifier: Apache-2.0
"""A small client of ZooKeeper's protocol, with which tests read and change nodes.

The client blocks, has one session and no watches, and shares no code with the engine.
"""
import base64
import hashlib
import socket
import struct

import rights

NO_NODE, NODE_EXISTS = -101, -110


class Error(Exception):
    def __init__(self, code):
        super().__init__(f'ZooKeeper error {code}')
        self.code = code


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack('>i', len(data)) + data


PERMS = {'r': 1, 'w': 2, 'c': 4, 'd': 8, 'a': 16}


def documented(less=''):
    """The entry of an ACL that docs/security.md gives the user app:sesame, without these rights."""
    ((_, _, _, entry),) = rights.commands('zk')
    scheme, user, _, perms = entry.split(':')
    return sum(PERMS[p] for p in perms if p not in less), scheme, digest(user, 'sesame')


def digest(user, password):
    """User and password in the form of an ACL's id."""
    hashed = hashlib.sha1(f'{user}:{password}'.encode()).digest()
    return f'{user}:{base64.b64encode(hashed).decode()}'


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, pattern):
        values = struct.unpack_from('>' + pattern, self.data, self.at)
        self.at += struct.calcsize('>' + pattern)
        return values[0] if len(values) == 1 else values

    def bytes(self):
        n = max(self.take('i'), 0)
        self.at += n
        return self.data[self.at - n:self.at]


class Stat:
    def __init__(self, r):
        (self.czxid, self.mzxid, self.ctime, self.mtime, self.version, self.cversion, self.aversion,
         self.owner, self.length, self.children, self.pzxid) = r.take('qqqqiiiqiiq')


class Client:
    def __init__(self, port, session_ms=10000, auth=None):
        self.socket = socket.create_connection(('127.0.0.1', port), 20)
        self.xid = 0
        self.send(struct.pack('>iqiq', 0, 0, session_ms, 0) + text(b'\0' * 16) + b'\0')
        r = Reader(self.receive())
        _, self.timeout, self.session = r.take('iiq')
        if auth:
            self.send(struct.pack('>iii', -4, 100, 0) + text('digest') + text(auth))
            self.receive()

    def send(self, data):
        self.socket.sendall(struct.pack('>i', len(data)) + data)

    def exactly(self, n):
        data = b''
        while len(data) < n:
            part = self.socket.recv(n - len(data))
            if not part:
                raise ConnectionError('the server hung up')
            data += part
        return data

    def receive(self):
        return self.exactly(struct.unpack('>i', self.exactly(4))[0])

    def call(self, opcode, body=b''):
        self.xid += 1
        self.send(struct.pack('>ii', self.xid, opcode) + body)
        r = Reader(self.receive())
        xid, _, error = r.take('iqi')
        assert xid == self.xid, f'an answer to {xid}, not {self.xid}'
        if error:
            raise Error(error)
        return r

    # ---- nodes ----

    def create(self, path, data=b'', flags=0):
        acl = struct.pack('>ii', 1, 31) + text('world') + text('anyone')
        r = self.call(1, text(path) + text(data) + acl + struct.pack('>i', flags))
        return r.bytes().decode()

    def delete(self, path):
        self.call(2, text(path) + struct.pack('>i', -1))

    def get(self, path):
        r = self.call(4, text(path) + b'\0')
        return r.bytes(), Stat(r)

    def set(self, path, data):
        self.call(5, text(path) + text(data) + struct.pack('>i', -1))

    def acl(self, path):
        r = self.call(6, text(path))
        return [(r.take('i'), r.bytes().decode(), r.bytes().decode()) for _ in range(r.take('i'))]

    def set_acl(self, path, *entries):
        """Set entries (rights, scheme, id). Rights: read 1, write 2, create 4, delete 8, admin 16."""
        acl = b''.join(struct.pack('>i', r) + text(s) + text(i) for r, s, i in entries)
        self.call(7, text(path) + struct.pack('>i', len(entries)) + acl + struct.pack('>i', -1))

    def children(self, path):
        """The children, sorted; an empty list if the node does not exist."""
        try:
            r = self.call(8, text(path) + b'\0')
        except Error as error:
            if error.code == NO_NODE:
                return []
            raise
        return sorted(r.bytes().decode() for _ in range(r.take('i')))

    def exists(self, path):
        try:
            self.call(3, text(path) + b'\0')
            return True
        except Error as error:
            if error.code == NO_NODE:
                return False
            raise

    def sync(self):
        self.call(9, text('/'))

    def tree(self, path):
        """All paths below a node, except ZooKeeper's own."""
        found = []
        for child in self.children(path):
            below = f'{path.rstrip("/")}/{child}'
            if below != '/zookeeper':
                found += [below] + self.tree(below)
        return found

    def ephemerals(self, path='/'):
        """The nodes below a node that belong to a session."""
        self.sync()
        found = []
        for p in self.tree(path):
            try:
                if self.get(p)[1].owner not in (0, -0x8000000000000000):
                    found.append(p)
            except Error as error:
                if error.code != NO_NODE:
                    raise
        return found

    def close(self):
        try:
            self.call(-11)
        except (ConnectionError, OSError):
            pass
        self.socket.close()
