# SPDX-License-Identifier: Apache-2.0
"""A fake server that passes messages on to a real server, and spoils some of its answers.

    f = Fake(port)
    f.spoil('create2', lambda body: body[:5])    the bytes after the header of this answer
    f.spoil('connect', lambda body: b'')         the answer to the session's request
    f.spoil('create2', lambda header, body: ..., whole=True)     the whole message
    f.send(b'...')                               to every client, now
    f.behave()                                   spoil no answers from now on

A spoiler may return None: no answer at all. f.lies counts the spoilt answers. Lists of children that a
client asks for before any delete on the same connection are called 'early children'.
"""
import contextlib
import socket
import struct
import threading

OPCODES = {1: 'create', 2: 'delete', 3: 'exists', 4: 'get', 5: 'set', 9: 'sync', 12: 'children',
           14: 'multi', 15: 'create2', 19: 'container', 100: 'auth', -11: 'close'}


def _exactly(s, n):
    data = b''
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


def frame(data):
    return struct.pack('>i', len(data)) + data


class _Side:
    def __init__(self, fake, client):
        self.fake, self.client = fake, client
        self.server = socket.create_connection(('127.0.0.1', fake.target))
        self.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.names = {}
        for function in (self._up, self._down):
            threading.Thread(target=self._guard, args=(function,), daemon=True).start()

    def _guard(self, function):
        with contextlib.suppress(OSError, struct.error):
            function()
        for s in (self.client, self.server):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def _message(self, s):
        return _exactly(s, struct.unpack('>i', _exactly(s, 4))[0])

    def _up(self):
        first, early = True, 'early '
        while True:
            data = self._message(self.client)
            if not first:
                xid, opcode = struct.unpack_from('>ii', data)
                name = OPCODES.get(opcode, str(opcode))
                early = '' if name == 'delete' else early
                self.names[xid] = early + name if name == 'children' else name
            first = False
            self.server.sendall(frame(data))

    def _down(self):
        name, header, body = 'connect', b'', self._message(self.server)
        while True:
            lie = self.fake.lies_of.get(name)
            if lie:
                self.fake.lies += 1
                spoiler, whole = lie
                data = spoiler(header, body) if whole else spoiler(body)
                if data is not None:
                    self.client.sendall(data if whole else frame(header + data))
            else:
                self.client.sendall(frame(header + body))
            data = self._message(self.server)
            header, body = data[:16], data[16:]
            name = self.names.pop(struct.unpack_from('>i', header)[0], 'event')


class Fake:
    def __init__(self, target):
        self.target, self.lies_of, self.lies, self.sides = target, {}, 0, []
        self.listener = socket.socket()
        self.listener.bind(('127.0.0.1', 0))
        self.listener.listen(16)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError):
                self.sides.append(_Side(self, client))

    def spoil(self, name, spoiler, whole=False):
        self.lies = 0
        self.lies_of = {name: (spoiler, whole)}

    def behave(self):
        self.lies_of = {}

    def send(self, data):
        for side in self.sides:
            with contextlib.suppress(OSError):
                side.client.sendall(data)
