# SPDX-License-Identifier: Apache-2.0
"""A false server on the loopback, without TLS, which asks for the password in clear and records every byte
that it receives. script(connection) handles one connection."""
import socket
import struct
import threading
import time


class Rogue:
    def __init__(self, script):
        self.script = script
        self.heard = b''
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


def mysql(rogue, c):
    """A greeting without TLS, then a switch to mysql_clear_password."""
    capabilities = 0x00 | 0x1 | 0x8 | 0x200 | 0x2000 | 0x8000 | 0x80000
    greeting = (b'\x0a5.7.0\0' + struct.pack('<I', 1) + b'12345678\0' +
                struct.pack('<HBHHB', capabilities & 0xffff, 33, 2, capabilities >> 16, 21) +
                bytes(10) + b'123456789012\0mysql_native_password\0')
    c.sendall(struct.pack('<I', len(greeting))[:3] + b'\0' + greeting)
    rogue.hear(c)
    switch = b'\xfemysql_clear_password\0'
    c.sendall(struct.pack('<I', len(switch))[:3] + b'\2' + switch)
