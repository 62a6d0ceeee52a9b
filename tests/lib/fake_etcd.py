# SPDX-License-Identifier: Apache-2.0
"""A fake server with just enough HTTP/2 to send given answers: each case is a function from a request's
stream to the bytes of the answer. Headers are sent without compression of any kind.
"""
import socket
import struct
import threading

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind, flags, stream, body=b''):
    return struct.pack('>I', len(body))[1:] + bytes([kind, flags]) + struct.pack('>I', stream) + body


def literal(name, value):
    name, value = name.encode(), value.encode()
    return b'\0' + bytes([len(name)]) + name + bytes([len(value)]) + value


def head(stream, *pairs, end=False):
    body = b''.join(literal(n, v) for n, v in pairs)
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, body)


def begin(stream):
    return head(stream, (':status', '200'), ('content-type', 'application/grpc'))


def end(stream, status='0', words=''):
    return head(stream, ('grpc-status', status), ('grpc-message', words), end=True)


def message(stream, body, flag=0):
    return frame(DATA, 0, stream, bytes([flag]) + struct.pack('>I', len(body)) + body)


class Fake:
    """Answers each request by say(stream, n): bytes, or None to hang up. n counts requests."""

    def __init__(self, say, greeting=None):
        self.say, self.requests, self.connections = say, 0, 0
        self.greeting = frame(SETTINGS, 0, 0) if greeting is None else greeting
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            s, _ = self.listener.accept()
            self.connections += 1
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s):
        try:
            f = s.makefile('rb')
            s.sendall(self.greeting)
            f.read(24)  # the preface
            while True:
                first = f.read(9)
                if len(first) < 9:
                    return
                length = int.from_bytes(first[:3], 'big')
                kind, flags, stream = first[3], first[4], int.from_bytes(first[5:], 'big')
                f.read(length)
                if kind == SETTINGS and not flags & ACK:
                    s.sendall(frame(SETTINGS, ACK, 0))
                if kind == DATA and (flags & END_STREAM):
                    self.requests += 1
                    answer = self.say(stream, self.requests)
                    if answer is None:
                        return
                    s.sendall(answer)
        except OSError:
            pass
        finally:
            s.close()


class Deaf:
    """A proxy between clients and a server. Once .deaf is set, nothing passes on streams of watches. A
    stream belongs to a watch if a message of the server on the stream says "created"."""

    def __init__(self, port):
        self.server, self.deaf, self.eaten = ('127.0.0.1', port), False, 0
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(self.server)
            for way in ((self._up, client, server), (self._down, server, client)):
                threading.Thread(target=way[0], args=way[1:], daemon=True).start()

    @staticmethod
    def _up(client, server):
        while data := client.recv(65536):
            server.sendall(data)
        server.close()

    def _down(self, server, client):
        f, watches = server.makefile('rb'), set()
        while len(first := f.read(9)) == 9:
            body = f.read(int.from_bytes(first[:3], 'big'))
            stream = int.from_bytes(first[5:], 'big')
            if first[3] == DATA and body.endswith(b'\x18\x01'):
                watches.add(stream)
            if self.deaf and first[3] == DATA and stream in watches:
                self.eaten += 1
            else:
                client.sendall(first + body)
        client.close()
