# SPDX-License-Identifier: Apache-2.0
"""A false server on the loopback, which asks for the password in clear, or lets everybody in and answers
with too much, and records every byte that it receives. script(connection) handles one connection."""
import socket
import ssl
import struct
import threading
import time


class Rogue:
    def __init__(self, script):
        self.script = script
        self.heard = b''
        self.calls = 0  # connections
        self.asked = 0  # connections on which the password was asked for
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.calls += 1
            threading.Thread(target=self._play, args=[connection], daemon=True).start()

    def _play(self, connection):
        connection.settimeout(2)
        try:
            self.script(self, connection)
            self.asked += 1
            while self.hear(connection):
                pass
        except OSError:
            pass
        connection.close()

    def hear(self, connection):
        data = connection.recv(4096)
        self.heard += data
        return data

    def close(self):
        self.listener.close()


CLEAR = b'R' + struct.pack('>ii', 8, 3)
SASL = b'R' + struct.pack('>ii', 8 + 15, 10) + b'SCRAM-SHA-256\0\0'


def postgres(first=b'', second=CLEAR, early=b'', pause=0):
    """first: sent after the startup packet; early: sent directly after the answer to SSLRequest."""
    def script(rogue, c):
        if rogue.hear(c)[4:8] == b'\x04\xd2\x16\x2f':
            c.sendall(b'N' + early)
            rogue.hear(c)
        if first:
            c.sendall(first)
            time.sleep(pause)
        c.sendall(second)
    return script


def postgres_endless(rogue, c):
    """Everybody may log in; the answer to the first query has rows without end."""
    if rogue.hear(c)[4:8] == b'\x04\xd2\x16\x2f':
        c.sendall(b'N')
        rogue.hear(c)
    version = b'server_version\00015.0\0'
    c.sendall(b'R' + struct.pack('>ii', 8, 0) + b'S' + struct.pack('>i', 4 + len(version)) + version +
              b'K' + struct.pack('>iii', 12, 1, 1) + b'Z' + struct.pack('>i', 5) + b'I')
    rogue.hear(c)
    column = b'c\0' + struct.pack('>ihihih', 0, 0, 25, -1, -1, 0)
    c.sendall(b'T' + struct.pack('>ih', 6 + len(column), 1) + column)
    row = b'D' + struct.pack('>ihi', 10 + 50000, 1, 50000) + bytes(50000)
    while True:
        c.sendall(20 * row)


def packet(number, payload):
    return struct.pack('<I', len(payload))[:3] + bytes([number % 256]) + payload


CLEAR_TEXT = packet(2, b'\xfemysql_clear_password\0')


def mysql_greeting(*capabilities):
    bits = 0x1 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x80000 | sum(capabilities)
    return packet(0, b'\x0a5.5.5-10.6.0-MariaDB\0' + struct.pack('<I', 1) + b'12345678\0' +
                  struct.pack('<HBHHB', bits & 0xffff, 33, 2, bits >> 16, 21) + bytes(10) +
                  b'123456789012\0mysql_native_password\0')


def mysql(rogue, c):
    """A greeting without TLS, then a switch to mysql_clear_password."""
    c.sendall(mysql_greeting())
    rogue.hear(c)
    c.sendall(CLEAR_TEXT)


def mysql_tls(pem, key):
    """The same inside TLS, with this certificate."""
    def script(rogue, c):
        c.sendall(mysql_greeting(0x800))
        rogue.hear(c)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem, key)
        inside = context.wrap_socket(c, server_side=True)
        rogue.hear(inside)
        inside.sendall(b'\3'.join(CLEAR_TEXT.split(b'\2', 1)))
        while rogue.hear(inside):
            pass
    return script


def mysql_lets_in(answer):
    """Everybody may log in; answer(connection) handles each request."""
    def script(rogue, c):
        c.sendall(mysql_greeting())
        rogue.hear(c)
        c.sendall(packet(2, b'\0\0\0\2\0\0\0'))
        while rogue.hear(c):
            answer(c)
    return script


def mysql_endless(c):
    column = b'\3def\0\0\0\1c\0\x0c' + struct.pack('<HIBHB', 33, 100000, 0xfd, 0, 0) + bytes(2)
    c.sendall(packet(1, b'\1') + packet(2, column) + packet(3, b'\xfe\0\0\2\0'))
    number = 4
    while True:
        c.sendall(b''.join(packet(number + i, b'\xfd' + struct.pack('<I', 50000)[:3] + bytes(50000))
                           for i in range(20)))
        number += 20
