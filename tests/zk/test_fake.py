#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers that no server gives: each ends the connection with an error text, never the process, and the
requests succeed as soon as the answers make sense again."""
import os
import random
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal  # noqa: E402
from fake_zk import Fake, frame  # noqa: E402
from proxy import Proxy  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402
from zk_server import Server  # noqa: E402

HUGE = struct.pack('>i', 0x7fffffff)
NEGATIVE = struct.pack('>i', -7)


def spoilt(w, **params):
    f = Fake(w.servers.port)
    a = w.actor(port=f.port, **{'session': 20000, 'timeout': 300, **params})
    a.lock('l', 'x')
    a.ask('take', 'l', 20000).ok()
    a.ask('drop', 'l').ok()
    return f, a


@case('an answer to the session\'s request that makes no sense is refused in words')
def _(w):
    f = Fake(w.servers.port)
    for spoiler, whole in (
            (lambda b: b'', False), (lambda b: b[:3], False), (lambda b: b[:15], False),
            (lambda b: b[:16] + HUGE + b[20:], False), (lambda b: b[:16] + NEGATIVE, False),
            (lambda b: b + b'more', False), (lambda b: b[:16] + frame(b'p' * 17), False),
            (lambda h, b: HUGE, True), (lambda h, b: NEGATIVE + b, True),
            (lambda h, b: b'HTTP/1.1 400 Bad Request\r\n\r\n', True)):
        f.spoil('connect', spoiler, whole)
        a = w.actor(port=f.port, timeout=300)
        a.lock('l', 'x')
        failed = a.ask('take', 'l', 500).be('PAWL_EPROTO', 'PAWL_ECONN')
        assert failed.words, failed
        assert f.lies
        f.behave()
        a.ask('take', 'l', 20000).ok()
        a.close().ok()


@case('a server that can only be read from is left for another one')
def _(w):
    f = Fake(w.servers.port)
    f.spoil('connect', lambda b: b[:-1] + b'\1')
    a = w.actor(port=f.port, timeout=300)
    a.lock('l', 'x')
    failed = a.ask('take', 'l', 500).be('PAWL_ECONN')
    assert 'read' in failed.words, failed
    b = Actor(f'zk://127.0.0.1:{f.port},127.0.0.1:{w.servers.port}{w.chroot}')
    b.lock('l', 'x')
    b.ask('take', 'l', 20000).ok()


def spoilers(w):
    """Functions that spoil a body: cut it, make it longer, or put wrong numbers into it."""
    cuts = [(f'cut at {n}', lambda b, n=n: b[:n]) for n in (0, 1, 3, 4, 7, 11, 40)]
    return cuts + [('more', lambda b: b + b'\0' * 5), ('huge', lambda b: HUGE + b[4:]),
                   ('negative', lambda b: NEGATIVE + b[4:]),
                   ('ones', lambda b: b'\xff' * max(len(b), 9)),
                   ('noise', lambda b: random.Random(len(b)).randbytes(len(b) + 4))]


@case('an answer whose body makes no sense ends the connection, and the call works afterwards')
def _(w):
    f, a = spoilt(w)
    b = w.actor()
    a.sem('s', 'pool', permits=3)
    a.latch('c', 'n')
    b.lock('l', 'x')
    told = 0
    for name in ('create2', 'children', 'get', 'multi'):
        for what, spoiler in spoilers(w):
            f.spoil(name, spoiler)
            if name == 'multi':
                a.send('take', 's', 20000, 2)
            elif name == 'get':
                b.ask('take', 'l', 20000).ok()
                a.send('take', 'l', 20000)
            else:
                a.send('take', 'l', 20000)
            until(lambda: f.lies, f'until {name} is spoilt ({what})')
            f.behave()
            if name == 'get':
                b.ask('drop', 'l').ok()
            a.answer('take', 's' if name == 'multi' else 'l').ok()
            equal(len(w.queue('x')), name != 'multi', f'{name}, {what}:')
            a.ask('drop', *(('s', 2) if name == 'multi' else ('l',))).be('PAWL_OK')
            told += 1
    print(f'# {told} answers spoilt, {a.ask("stats").reconnects} connections given up for them')


@case('an answer to something else, unasked, or with an impossible code ends the connection')
def _(w):
    f, a = spoilt(w)
    for header in (lambda h: struct.pack('>i', 77) + h[4:], lambda h: h[:12] + b'\0\0\0\5',
                   lambda h: h[:9]):
        f.spoil('create2', lambda h, b, header=header: frame(header(h) + b), whole=True)
        a.send('take', 'l', 20000)
        until(lambda: f.lies)
        f.behave()
        a.answer('take', 'l').ok()
        a.ask('drop', 'l').ok()
    for junk in (frame(struct.pack('>iqi', 99, 1, 0)), frame(b''), frame(b'\xff' * 3), NEGATIVE,
                 HUGE, frame(struct.pack('>iqi', -1, -1, 0) + b'xx'),
                 frame(struct.pack('>iqi', -1, -1, 0) + struct.pack('>ii', 2, 3) + HUGE)):
        before = a.ask('stats').reconnects
        f.send(junk)
        a.ask('take', 'l', 20000).ok()
        until(lambda: a.ask('stats').reconnects > before, 'for another connection')
        a.ask('drop', 'l').ok()
    equal(w.queue('x'), [])


@case('events that nobody waits for, or of things unknown, do no harm')
def _(w):
    f, a = spoilt(w)
    b = w.actor()
    w.queue_up('x', [b])
    b.answer('acquire', 'l').ok()
    a.send('acquire', 'l', -1)
    until(lambda: len(w.queue('x')) == 2)
    mine, own = (w.path('x/' + n).encode() for n in w.queue('x'))
    for path in (b'', b'/nowhere', mine, own, b'/\xff\xfe' * 100):
        for happened in (0, 1, 2, 3, 4, 99, -1):
            f.send(frame(struct.pack('>iqiii', -1, -1, 0, happened, 3) + frame(path)))
    equal(a.ask('sync').code, 'PAWL_OK')
    equal(a.have('acquire', 'l'), None)
    b.ask('drop', 'l').ok()
    a.answer('acquire', 'l').ok()
    equal(a.ask('stats').reconnects, 0)


@case('errors of the server are told in words, and nothing is left behind')
def _(w):
    f, a = spoilt(w)
    for error, code in ((-102, 'PAWL_EAUTH'), (-125, 'PAWL_EBACKEND'), (-6, 'PAWL_ENOTSUP')):
        f.spoil('create2', lambda h, b, e=error: frame(h[:12] + struct.pack('>i', e)), whole=True)
        failed = a.ask('take', 'l', 2000).be(code)
        assert str(error) in failed.words, failed
        f.behave()
        equal(len(w.queue('x')), 1, 'the lie was that it failed:')
        for node in w.queue('x'):
            w.admin.delete(w.path(f'x/{node}'))
        a.ask('take', 'l', 20000).ok()
        a.ask('drop', 'l').ok()


def overlooked(w, f, a, wait):
    """The answer to an acquire is lost, and the next server shows the node only after a write."""
    f.spoil('create2', lambda h, b: time.sleep(0.6), whole=True)
    a.send('acquire', 'l', wait)
    until(lambda: f.lies, 'until an answer is lost')
    f.spoil('early children', lambda h, b: frame(h[:12] + struct.pack('>i', -101)), whole=True)
    return a.answer('acquire', 'l')


@case('what was asked for is found also if it is carried out later')
def _(w):
    f, a = spoilt(w)
    overlooked(w, f, a, -1).ok()
    equal(len(w.queue('x')), 1, 'nodes:')
    a.ask('drop', 'l').ok()
    overlooked(w, f, a, 50).be('PAWL_EUNKNOWN', 'PAWL_ETIMEDOUT', 'PAWL_ECONN')
    until(lambda: not w.queue('x'), 'until what was given up is gone')


@case('permits whose acquire is given up between two connections are returned')
def _(w):
    f, a = spoilt(w)
    a.sem('s', 'pool', permits=3)
    for wait in (400, 700, 1000, 1500):
        f.spoil('get', lambda b: b[:3] if any(b[-24:-16]) else b)  # no ephemeral node can be read
        a.send('take', 's', wait, 2)
        until(lambda: len(w.children('pool/leases')) == 2, 'until the permits are taken')
        a.answer('take', 's').be('PAWL_ECONN', 'PAWL_EUNKNOWN', 'PAWL_EPROTO', 'PAWL_ETIMEDOUT')
        f.behave()
        until(lambda: not w.children('pool/leases'), 'until the permits are returned', 15)


@case('an answer that comes byte by byte is an answer')
def _(w):
    p = Proxy(w.servers.port)
    w.at_end(p.close)
    p.trickle = True
    a = w.actor(port=p.port, timeout=20000)
    a.lock('l', 'x')
    a.ask('take', 'l', 20000).ok()
    a.ask('drop', 'l').ok()


if __name__ == '__main__':
    sys.exit(run(lambda: Server().start()))
