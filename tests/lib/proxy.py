# SPDX-License-Identifier: Apache-2.0
"""A proxy between a client and a server, with switches for faults of a network.

    p = Proxy(server.port)
    p.cut()                   cut both sides of every connection now: by a reset, or with
    p.gently = True           by an ordinary close
    p.cut_after(7)            cut after seven more bytes of the server's answers
    p.cut_after(7, 'up')      cut after seven more bytes of the client's requests
    p.stall('down')           nothing more passes that way; 'up', 'both'; p.flow() ends it
    p.freeze()                nothing more passes on the present connections, ever
    p.lose_after(7)           on each connection seven more pieces of the server's answers pass; later
                              answers are lost
    p.delay = 0.2             each piece arrives 0.2 s later
    p.jitter = 0.2            each piece arrives up to 0.2 s later, in both directions
    p.trickle = True          one byte at a time
    p.refuse() / p.accept()   the port is closed, is open again
    p.cut_every = True        every new connection is cut at once
    p.request = f             f(connection, data) returns the bytes that are sent on instead of each piece
                              of a request

Directions are 'down' (server to client) and 'up'. Counters: p.accepted, p.cuts. One thread runs the proxy.
"""
import collections
import random
import selectors
import socket
import struct
import threading
import time

from actor import query
from ports import free_port

OTHER = {'up': 'down', 'down': 'up'}


class _Link:
    """One connection: the sockets by direction, and the data under way."""

    def __init__(self, client, server):
        self.source = {'up': client, 'down': server}
        self.sink = {'up': server, 'down': client}
        self.waiting = {'up': collections.deque(), 'down': collections.deque()}
        self.left = {'up': None, 'down': None}
        self.pieces = None  # of answers that still pass; None: all
        self.ended = set()
        self.frozen = False
        self.open = True


class Proxy:
    def __init__(self, port, host='127.0.0.1'):
        self.target = (host, port)
        self.mutex = threading.RLock()
        self.links = []
        self.stalled = set()
        self.delay = self.jitter = 0
        self.trickle = self.cut_every = self.gently = False
        self.request = None
        self.accepted = self.cuts = 0
        self.ending = False
        self.listener = None
        self.port = free_port()
        self.next_cut = None  # for the next connection, if there is none yet
        self.wake_out, self.wake_in = socket.socketpair()
        self.wake_in.setblocking(False)
        self.accept()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    # ---- switches ----

    def url(self, **params):
        return f'redis://127.0.0.1:{self.port}/{query(params)}'

    def accept(self):
        with self.mutex:
            if not self.listener:
                s = socket.socket()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(('127.0.0.1', self.port))
                s.listen(64)
                s.setblocking(False)
                self.listener = s
        self._wake()

    def refuse(self):
        with self.mutex:
            if self.listener:
                self.listener.close()
                self.listener = None
        self._wake()

    def cut(self):
        with self.mutex:
            for link in list(self.links):
                self._cut(link)
        self._wake()

    def cut_after(self, n, direction='down'):
        """Applies to the present connections; if there are none, to the next one."""
        with self.mutex:
            for link in self.links:
                link.left[direction] = n
            if not self.links:
                self.next_cut = (n, direction)
        self._wake()

    def lose_after(self, n):
        """Applies to the present connections."""
        with self.mutex:
            for link in self.links:
                link.pieces = n

    def stall(self, direction='both'):
        with self.mutex:
            self.stalled = {'up', 'down'} if direction == 'both' else {direction}
        self._wake()

    def freeze(self):
        with self.mutex:
            for link in self.links:
                link.frozen = True
        self._wake()

    def flow(self):
        with self.mutex:
            self.stalled = set()
        self._wake()

    def close(self):
        self.ending = True
        self._wake()
        self.thread.join()
        self.refuse()
        self.cut()
        self.wake_out.close()
        self.wake_in.close()

    # ---- the thread ----

    def _wake(self):
        try:
            self.wake_out.send(b'x')
        except OSError:
            pass

    def _cut(self, link):
        if not link.open:
            return
        link.open = False
        self.cuts += 1
        if link in self.links:
            self.links.remove(link)
        for s in link.source.values():
            if not self.gently:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            s.close()

    def _new_link(self):
        try:
            client, _ = self.listener.accept()
        except OSError:
            return
        self.accepted += 1
        server = socket.socket()
        try:
            server.connect(self.target)
        except OSError:
            client.close()
            server.close()
            return
        for s in (client, server):
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            s.setblocking(False)
        link = _Link(client, server)
        if self.cut_every:
            self._cut(link)
            return
        if self.next_cut:
            link.left[self.next_cut[1]] = self.next_cut[0]
            self.next_cut = None
        self.links.append(link)

    def _read(self, link, direction):
        try:
            data = link.source[direction].recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b''
        if not data:
            link.ended.add(direction)
        elif direction == 'down' and link.pieces is not None:
            if not link.pieces:
                return
            link.pieces -= 1
        if self.request and data and direction == 'up':
            data = self.request(link, data)
        at = time.monotonic() + self.delay + random.random() * self.jitter
        pieces = [data[i:i + 1] for i in range(len(data))] if self.trickle and data else [data]
        link.waiting[direction].extend((at, piece) for piece in pieces)

    def _write(self, link, direction):
        """Deliver the pieces that are due. An empty piece is the end of the stream."""
        queue = link.waiting[direction]
        budget = 1 if self.trickle else 1000
        while link.open and queue and budget and queue[0][0] <= time.monotonic():
            budget -= 1
            at, data = queue.popleft()
            left = link.left[direction]
            if not data:
                self._cut(link)
                return
            if left is not None:
                data = data[:left]
                link.left[direction] = left - len(data)
            try:
                sent = link.sink[direction].send(data) if data else 0
            except BlockingIOError:
                sent = 0
            except OSError:
                self._cut(link)
                return
            if link.left[direction] == 0:
                self._cut(link)
            elif sent < len(data):
                queue.appendleft((at, data[sent:]))
                return

    def _ready(self):
        """Wait for input, a wake-up or the next due piece."""
        selector = selectors.DefaultSelector()
        selector.register(self.wake_in, selectors.EVENT_READ, None)
        timeout = None
        with self.mutex:
            if self.listener:
                selector.register(self.listener, selectors.EVENT_READ, 'listener')
            for link in self.links:
                for d in ('up', 'down'):
                    if d in self.stalled or link.frozen:
                        continue
                    if d not in link.ended:
                        selector.register(link.source[d], selectors.EVENT_READ, (link, d))
                    if link.waiting[d]:
                        due = max(link.waiting[d][0][0] - time.monotonic(), 0.0002)
                        timeout = due if timeout is None else min(timeout, due)
        try:
            return [key for key, _ in selector.select(timeout)]
        except OSError:
            return []
        finally:
            selector.close()

    def _run(self):
        while not self.ending:
            keys = self._ready()
            with self.mutex:
                for key in keys:
                    if key.data is None:
                        try:
                            self.wake_in.recv(4096)
                        except BlockingIOError:
                            pass
                    elif key.data == 'listener':
                        if self.listener:
                            self._new_link()
                    elif key.data[0].open:
                        self._read(*key.data)
                for link in list(self.links):
                    for d in ('up', 'down'):
                        if link.open and not link.frozen and d not in self.stalled:
                            self._write(link, d)
