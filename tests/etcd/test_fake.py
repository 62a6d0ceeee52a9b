#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that break the rules: every byte of theirs leads to an error that says so, in time."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor, query  # noqa: E402
from cases import case, run  # noqa: E402
from etcd_server import Etcd  # noqa: E402
from fake_etcd import (DATA, GOAWAY, RST_STREAM, Fake, begin, end, frame, head,  # noqa: E402
                       message)


def strange(sentence, say, codes=('PAWL_EPROTO', 'PAWL_ECONN', 'PAWL_ETIMEDOUT', 'PAWL_EUNKNOWN'),
            greeting=None):
    """Nothing is granted, nothing is shown, and nobody waits for longer than he wanted to."""
    @case(sentence, server=False)
    def _():
        fake = Fake(say, greeting)
        a = Actor(f'etcd://127.0.0.1:{fake.port}/{query({"timeout": 200})}')
        a.lock('l', 'one')
        took = a.ask('take', 'l', 400)
        took.be(*codes)
        shown = a.ask('show', 'one')
        shown.be(*codes)
        print(f'# {took.code} {took.words}; {shown.code} {shown.words}')
        assert fake.connections >= 1
        a.ask('close')


HEADER = b'\n\x04\x18\x2a\x20\x02'  # revision 42
GRANT = HEADER + b'\x10\x05\x18\x1e'  # lease 5, 30 s


def whole(stream, body):
    return begin(stream) + message(stream, body) + end(stream)


def granted_then(say):
    """The lease is granted; the following answers are wrong."""
    return lambda stream, n: whole(stream, GRANT) if n == 1 else say(stream)


strange('a server of another protocol', lambda s, n: None, greeting=b'HTTP/1.1 400 Bad\r\n\r\n')
strange('a server that says nothing', lambda s, n: b'', greeting=b'')
strange('a greeting of garbage', lambda s, n: b'', greeting=os.urandom(4096))
strange('a server that hangs up at every request', lambda s, n: None)
strange('an answer that never ends', lambda s, n: begin(s) + message(s, GRANT))
strange('an answer without a status', lambda s, n: begin(s) + frame(DATA, 1, s))
strange('an answer without a message', lambda s, n: begin(s) + end(s))
strange('another HTTP status', lambda s, n: head(s, (':status', '404'), end=True))
strange('a message cut off in its middle',
        lambda s, n: begin(s) + frame(DATA, 0, s, b'\0\0\0\0\x20' + b'x' * 7) + end(s))
strange('a message that says it is 4 GB long',
        lambda s, n: begin(s) + frame(DATA, 0, s, b'\0\xff\xff\xff\xff' + b'x') + end(s))
strange('a compressed message', lambda s, n: begin(s) + message(s, GRANT, 1) + end(s))
strange('two messages where one was asked for',
        lambda s, n: begin(s) + message(s, GRANT) + message(s, GRANT) + end(s))
strange('bytes that are no protobuf', lambda s, n: whole(s, b'\xff' * 40))
strange('a lease without a number', lambda s, n: whole(s, HEADER))
strange('garbage after the lease was granted', granted_then(lambda s: whole(s, b'\x0a\x7fabc')))
strange('a transaction without its parts', granted_then(lambda s: whole(s, HEADER + b'\x10\x01')))
strange('a transaction with too many parts',
        granted_then(lambda s: whole(s, HEADER + b'\x10\x01' + b'\x1a\x02\x12\x00' * 20)))
strange('a stream that is reset', lambda s, n: frame(RST_STREAM, 0, s, b'\0\0\0\x02'))
strange('a stream that is refused', lambda s, n: frame(RST_STREAM, 0, s, b'\0\0\0\x07'))
strange('a good-bye instead of an answer',
        lambda s, n: frame(GOAWAY, 0, 0, b'\0\0\0\0' + b'\0\0\0\x0b' + b'too_many_pings'))
strange('a frame larger than allowed', lambda s, n: frame(DATA, 0, s, b'x' * 100000))
strange('frames on a stream that is not there', lambda s, n: frame(DATA, 0, 99, b'x'))
strange('a server without a leader', lambda s, n: head(
    s, (':status', '200'), ('grpc-status', '14'), ('grpc-message', 'etcdserver: no leader'),
    end=True))
strange('a server that is full', lambda s, n: head(
    s, (':status', '200'), ('grpc-status', '8'),
    ('grpc-message', 'etcdserver: mvcc: database space exceeded'), end=True), ('PAWL_EBACKEND',))
strange('a user without the right', lambda s, n: head(
    s, (':status', '200'), ('grpc-status', '7'),
    ('grpc-message', 'etcdserver: permission denied'), end=True), ('PAWL_EAUTH',))


@case('among strange servers the good one is found', server=False)
def _():
    s = Etcd()
    try:
        bad = [Fake(lambda s, n: None), Fake(lambda s, n: whole(s, b'\xff')),
               Fake(lambda s, n: b'', os.urandom(100))]
        hosts = ','.join(f'127.0.0.1:{f.port}' for f in bad)
        for _ in range(4):
            a = Actor(f'etcd://{hosts},127.0.0.1:{s.port}/?timeout=300')
            a.lock('l', 'one')
            a.ask('take', 'l', 10000).ok()
            a.close().ok()
    finally:
        s.stop()


if __name__ == '__main__':
    sys.exit(run())
