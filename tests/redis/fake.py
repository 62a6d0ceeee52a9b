# SPDX-License-Identifier: Apache-2.0
"""A fake server that passes requests on to a real server, and gives wrong answers to some of them.

    f = Fake(server)
    f.spoil('acquire', b'*1\\r\\n$-5\\r\\n')         the answer to this script, on every connection
    f.spoil('HELLO', lambda r: b'+OK\\r\\n')         or command; made from the request
    f.spoil('acquire', reply, carry_out=True)     the real server runs it, and its answer is dropped
    f.push(b'>1\\r\\n+x\\r\\n')                       to every client, now
    f.behave()                                    no wrong answers from now on

A reply is bytes, or an iterator that yields bytes until the client hangs up, or None: no answer.
"""
import collections
import hashlib
import socket
import threading

from actor import query


class Request:
    def __init__(self, raw, words, names):
        self.raw, self.words = raw, words
        self.command = words[0].upper()
        self.name, self.keys, self.args = self.command, [], []
        if self.command in ('EVALSHA', 'EVAL'):
            sha = words[1]
            if self.command == 'EVAL':
                sha = hashlib.sha1(sha.encode()).hexdigest()
            n = int(words[2])
            self.name = names.get(sha, 'other')
            self.keys, self.args = words[3:3 + n], words[3 + n:]

    @property
    def owner(self):
        return self.args[0]


def bulk(*words):
    """An array of texts and integers, in the form of a script's answer."""
    out = [b'*%d\r\n' % len(words)]
    for w in words:
        if isinstance(w, int):
            out.append(b':%d\r\n' % w)
        else:
            w = w.encode()
            out.append(b'$%d\r\n%s\r\n' % (len(w), w))
    return b''.join(out)


def message(channel, text):
    return b'>3\r\n' + bulk('message', channel, text)[4:]


def _take(file):
    """Read the next value as (kind, bytes). Raises ConnectionError at the end."""
    line = file.readline()
    if not line.endswith(b'\r\n'):
        raise ConnectionError
    kind = line[:1]
    if kind in b'$=!' and int(line[1:-2]) >= 0:
        line += file.read(int(line[1:-2]) + 2)
    elif kind in b'*~>':
        line += b''.join(_take(file)[1] for _ in range(int(line[1:-2])))
    elif kind in b'%|':
        line += b''.join(_take(file)[1] for _ in range(2 * int(line[1:-2])))
    return kind, line


def _words(raw):
    words, at = [], raw.index(b'\r\n') + 2
    while at < len(raw):
        end = raw.index(b'\r\n', at)
        n = int(raw[at + 1:end])
        words.append(raw[end + 2:end + 2 + n].decode(errors='replace'))
        at = end + 4 + n
    return words


class _Side:
    """A connection of one client, with its own connection to the real server."""

    def __init__(self, fake, client):
        self.fake, self.client = fake, client
        self.server = socket.socket(socket.AF_UNIX)
        self.server.connect(fake.path)
        self.mutex = threading.Lock()
        self.answered = threading.Semaphore(0)
        self.drop = 0
        self.channel = None
        self.open = True
        for function in (self._requests, self._replies):
            threading.Thread(target=self._guard, args=(function,), daemon=True).start()

    def _guard(self, function):
        try:
            function()
        except (OSError, ValueError, IndexError):
            pass
        self.open = False
        for s in (self.client, self.server):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self.answered.release()

    def send(self, data):
        with self.mutex:
            self.client.sendall(data)

    def _requests(self):
        file = self.client.makefile('rb')
        while self.open:
            raw = _take(file)[1]
            request = Request(raw, _words(raw), self.fake.names)
            if request.command == 'SUBSCRIBE':
                self.channel = request.words[1]
            self.fake.seen.append(request)
            lie = self.fake.lies.get(request.name)
            if lie is None:
                self.server.sendall(raw)
                self.answered.acquire()
                continue
            reply, carry_out = lie
            if carry_out:
                self.drop += 1
                self.server.sendall(raw)
                self.answered.acquire()
            self._lie(reply(request) if callable(reply) else reply)

    def _lie(self, reply):
        if reply is None:
            return
        if isinstance(reply, bytes):
            reply = [reply]
        for piece in reply:
            self.send(piece)

    def _replies(self):
        file = self.server.makefile('rb')
        while True:
            kind, raw = _take(file)
            confirmed = kind == b'>' and b'subscribe\r\n' in raw[:30]
            if kind != b'>' and self.drop:
                self.drop -= 1
            else:
                self.send(raw)
            if kind != b'>' or confirmed:
                self.answered.release()


class Fake:
    def __init__(self, server):
        self.path = server.path
        self.names = {sha: name for name, sha in server.shas.items()}
        self.lies = {}
        self.sides = []
        self.seen = collections.deque(maxlen=1000)
        self.listener = socket.socket()
        self.listener.bind(('127.0.0.1', 0))
        self.listener.listen(16)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                self.sides.append(_Side(self, client))
            except OSError:  # the real server is gone
                client.close()

    def url(self, **params):
        return f'redis://127.0.0.1:{self.port}/{query(params)}'

    def spoil(self, name, reply, carry_out=False):
        self.lies[name] = (reply, carry_out)

    def behave(self):
        self.lies = {}

    def open_sides(self):
        return [s for s in self.sides if s.open and s.channel]

    def push(self, data):
        """Send bytes, or the result of a function of the client's channel, to every client."""
        for side in self.open_sides():
            try:
                side.send(data(side.channel) if callable(data) else data)
            except OSError:
                pass
