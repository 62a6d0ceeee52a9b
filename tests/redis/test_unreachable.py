#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that don't exist, don't answer, or speak another protocol: every call ends within the caller's
time limit, with the documented code and a text that gives the reason.
"""
import os
import re
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from redis_live import Live  # noqa: E402
from steps import fails, talker  # noqa: E402

TOOL = os.environ['PAWL_TOOL']
PATIENT = 'timeout=40000'  # so long that a call ends by the caller's time limit


def bounded(url, codes, pattern):
    """Every kind of call ends within its own time limit, not after that of an exchange."""
    a, failure = fails(url + ('&' if '?' in url else '?') + PATIENT, codes, pattern, 300)
    if a.opened.code == 'PAWL_OK':
        a.ask('take', 'l', 300, patience=20).be(*codes)
        a.sem('s', 's', permits=1)
        a.ask('take', 's', 300, patience=20).be(*codes)
        a.latch('d', 'd')
        a.ask('take', 'd', 300, patience=20).be(*codes)
        a.send('acquire', 'l', 300)
        a.answer('acquire', 'l', patience=20).be(*codes)
        a.send('acquire', 'l', -1)
        a.ask('cancel', 'l')
        a.answer('acquire', 'l', patience=20).be('PAWL_ECANCELED')


@case('who waits without end and without a terminal is told once of silence, and of its end',
      limit=60)
def _(s):
    a = s.actor(watchdog=600000)
    a.lock('l', 'x')
    a.ask('take', 'l', 0).ok()
    s.pause()
    tool = subprocess.Popen([TOOL, 'run', '-u', s.url(timeout=500), 'x', '--', 'true'],
                            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    first = tool.stderr.readline().decode()
    assert re.match("pawl: waiting for 'x' after .*; retrying \\(-w limits the wait\\)$", first), first
    time.sleep(2.5)  # several timeouts more
    s.resume()
    equal(tool.stderr.readline().decode(), "pawl: the service of 'x' answers again\n")
    a.ask('drop', 'l').ok()
    equal(tool.stderr.read().decode(), '')
    equal(tool.wait(), 0)


# ---- no server -----------------------------------------------------------------------------------

NOT_THERE = ('PAWL_ECONN',)


@case('a port where nobody listens: PAWL_ECONN in the caller\'s time', server=False)
def _():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        bounded(f'redis://127.0.0.1:{s.getsockname()[1]}', NOT_THERE, 'refused')


@case('a socket file that is not there: PAWL_ECONN in the caller\'s time', server=False)
def _():
    bounded('redis+unix:///nowhere/at/all.sock', NOT_THERE, 'no such file')


@case('a name that nobody knows: PAWL_ECONN in the caller\'s time', server=False)
def _():
    bounded('redis://no-such-host.invalid', NOT_THERE, 'no-such-host.invalid.*resol')


if 'PAWL_SLOW_NAMES' in os.environ:  # a preloaded library, which sanitizers do not allow before theirs
    @case('a name that takes very long to resolve: bounded by the caller\'s time', server=False)
    def _():
        a = Actor(f'redis://a.slow.test/?{PATIENT}',
                  environ={'LD_PRELOAD': os.environ['PAWL_SLOW_NAMES']})
        a.lock('l', 'n')
        a.ask('take', 'l', 300, patience=20).be('PAWL_ECONN', 'PAWL_ETIMEDOUT')
        a.send('acquire', 'l', 200)
        a.answer('acquire', 'l', patience=20).be('PAWL_ECONN', 'PAWL_ETIMEDOUT')
        a.ask('close', patience=20)


def backlogged():
    """A port whose backlog is full, so that connecting hangs."""
    listener = socket.socket()
    listener.bind(('127.0.0.1', 0))
    listener.listen(0)
    crowd = []
    for _ in range(4):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex(listener.getsockname())
        crowd.append(s)
    return listener, crowd


@case('a connection that is never made: bounded by the caller\'s time', server=False)
def _():
    listener, crowd = backlogged()
    bounded(f'redis://127.0.0.1:{listener.getsockname()[1]}', ('PAWL_ECONN', 'PAWL_ETIMEDOUT'), '')


@case('a server that accepts and says nothing: bounded by the caller\'s time', server=False)
def _():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        s.listen(16)
        bounded(f'redis://127.0.0.1:{s.getsockname()[1]}', ('PAWL_ECONN', 'PAWL_ETIMEDOUT'), '')


@case('a server that is not Redis: PAWL_EPROTO, and it says so', server=False)
def _():
    for text in (b'HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n',
                 b'SSH-2.0-OpenSSH_9.2\r\n', b'\x15\x03\x01\x00\x02\x02\x46',
                 b'\x4a\x00\x00\x00\x0a8.0.36\x00'):
        for closes in (True, False):
            port = talker(text, closes)
            a, _ = fails(f'redis://127.0.0.1:{port}/?timeout=1000',
                         ('PAWL_EPROTO',), '.')
            a.kill()


@case('a server that is too old: PAWL_ENOTSUP, and which version is needed', server=False)
def _():
    unknown = b"-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n"
    old = (b'%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n6.0.9\r\n'
           b'$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:4\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n'
           b'$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n')
    for text in (unknown, old, b'-NOPROTO unsupported protocol version\r\n'):
        fails(f'redis://127.0.0.1:{talker(text, False)}/', ('PAWL_ENOTSUP',), r'6\.2|NOPROTO')


if __name__ == '__main__':
    sys.exit(run(Live))
