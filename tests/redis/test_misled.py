#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sentinels and cluster nodes that name wrong addresses, or each other in circles, or answer nonsense: each
call ends within its time limit with an error, no lock is granted that no server granted, no server is
asked endlessly, and everything works again when the servers behave.
"""
import functools
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor, boot_ns  # noqa: E402
from cases import case, equal, run  # noqa: E402
from fake import Fake, bulk, message  # noqa: E402
from ports import free_port  # noqa: E402
from redis_cluster import Calm, slot_of  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_sentinel import NAME, Watched  # noqa: E402
from wait import until  # noqa: E402

FAILED = ('PAWL_ECONN', 'PAWL_EPROTO', 'PAWL_EBACKEND', 'PAWL_ETIMEDOUT', 'PAWL_EUNKNOWN')
NONSENSE = (b'+OK\r\n', b':1\r\n', b'*0\r\n', b'*-1\r\n', b'_\r\n', b'%0\r\n', b'*x\r\n', b'-\r\n',
            b'-ERR no\r\n', b'*1\r\n$-1\r\n', b'*1000000000\r\n', b'*2\r\n*0\r\n*0\r\n', None,
            b'$99999999999\r\nx', b'*2\r\n_\r\n_\r\n', b'*2\r\n:1\r\n:2\r\n', b'HTTP/1.1 200\r\n')
WAIT_MS = 150
LITTLE = functools.partial(Watched, replicas=1, sentinels=1)
ONE = functools.partial(Calm, masters=1, replicas=0)


def takes(a, f, what=''):
    """The acquire works, now that the server behaves."""
    f.behave()
    until(lambda: a.ask('take', 'l', 10000).code == 'PAWL_OK', f'for a grant after {what}')
    a.ask('drop', 'l').ok()


def fails(a, f, what, wait=WAIT_MS):
    """The acquire fails within its time limit, and the next one works."""
    failure = a.ask('take', 'l', wait, patience=30)
    assert failure.code in FAILED and failure.words, f'{what}: {failure}'
    equal(a.ask('held', 'l').held, 0, what)
    takes(a, f, what)
    return failure


def misled(f, scheme, rest='', timeout=300, **params):
    """An actor that knows only this server."""
    words = ''.join(f'&{k}={v}' for k, v in params.items())
    a = Actor(f'redis+{scheme}://127.0.0.1:{f.port}{rest}?timeout={timeout}{words}')
    a.lock('l', 'n')
    return a


# ---- sentinels -----------------------------------------------------------------------------------

def address(host, port):
    return bulk(host, str(port))


def sentinel_says(w, replies):
    f = Fake(w.sentinels[0])
    for reply in replies:
        f.spoil('SENTINEL', reply)
        a = misled(f, 'sentinel', '/' + NAME)
        fails(a, f, repr(reply)[:40])
        a.close()


@case('a sentinel that answers nonsense', server=LITTLE)
def _(w):
    sentinel_says(w, NONSENSE)


@case('a sentinel whose addresses make no sense', server=LITTLE)
def _(w):
    sentinel_says(w, [
        address('', 6379), address('127.0.0.1', 0), address('127.0.0.1', 65536),
        address('127.0.0.1', -1), address('127.0.0.1', 'x'), address('127.0.0.1', ''),
        address('127.0.0.1', '6379x'), address('h' * 300, 6379), address('h' * 100000, 6379),
        address('127.0.0.1\0', 6379), address('nowhere.invalid', 6379), bulk('127.0.0.1'),
        bulk('127.0.0.1', 6379), bulk('127.0.0.1', '9' * 30), address('\r\n', 1)])


@case('a sentinel that names a replica, itself, nobody, or somebody deaf', server=LITTLE)
def _(w):
    f = Fake(w.sentinels[0])
    replica = w.replicas()[0]
    with socket.socket() as deaf:
        deaf.bind(('127.0.0.1', 0))
        deaf.listen(64)
        for port, words in ((replica.port, 'master'), (f.port, 'master'), (free_port(), 'refused'),
                            (deaf.getsockname()[1], '')):
            f.spoil('SENTINEL', address('127.0.0.1', port))
            a = misled(f, 'sentinel', '/' + NAME)
            failure = a.ask('take', 'l', 700, patience=30)
            assert failure.code in FAILED and words in failure.words, failure
            print(f'# {failure.words}')
            takes(a, f)
            a.close()
    equal(replica.call('PUBSUB', 'CHANNELS', 'pawl:@*'), [])


@case('a sentinel that names the master only now and then', server=LITTLE)
def _(w):
    f = Fake(w.sentinels[0])
    ports = [w.replicas()[0].port, w.replicas()[0].port, w.master().port, free_port()]
    f.spoil('SENTINEL', lambda r: address('127.0.0.1', ports[len(f.seen) % 4]))
    a = misled(f, 'sentinel', '/' + NAME)
    a.ask('take', 'l', 60000).ok()
    a.ask('drop', 'l').ok()


@case('announcements that make no sense, or are false: the lock is kept', server=LITTLE)
def _(w):
    f = Fake(w.sentinels[0])
    a = misled(f, 'sentinel', '/' + NAME, watchdog=60000)
    token = a.ask('take', 'l', 30000).ok().token
    port = w.master().port
    a.lock('k', 'k')
    for text in ('', ' ', NAME, f'{NAME} ', f'{NAME} 127.0.0.1 1 127.0.0.1', 'x' * 100000,
                 f'{NAME} 127.0.0.1 {port} 127.0.0.1 0', f'{NAME} 127.0.0.1 {port} 127.0.0.1 99999',
                 f'{NAME} 127.0.0.1 {port} 127.0.0.1 {free_port()}',
                 f'{NAME} 127.0.0.1 {port} 127.0.0.1 {w.replicas()[0].port}',
                 f'{NAME}2 127.0.0.1 {port} 127.0.0.1 {free_port()}', f'{NAME} {"a " * 1000}',
                 f'{NAME} a b 127.0.0.1 {port}'):
        until(f.open_sides, 'for the client to listen')
        f.push(message('+switch-master', text))
        until(lambda: a.ask('take', 'k', 10000).code == 'PAWL_OK', repr(text[:40]))
        until(lambda: a.ask('drop', 'k').code in ('PAWL_OK', 'PAWL_ENOTHELD'))
        equal(a.ask('token', 'l').token, token, repr(text[:40]))
    a.ask('drop', 'l').ok()


# ---- cluster nodes -------------------------------------------------------------------------------

def slots(*rows):
    """An answer to CLUSTER SLOTS, from rows (first, last, host, port)."""
    out = [b'*%d\r\n' % len(rows)]
    for first, last, host, port in rows:
        node = bulk(host, port, 'a' * 40) if host is not None else (
            b'*3\r\n$-1\r\n' + bulk(port, 'a' * 40)[4:])
        out.append(b'*3\r\n' + bulk(first, last)[4:] + node)
    return b''.join(out)


def all_at(port, host='127.0.0.1'):
    return slots((0, 16383, host, port))


class Node(Fake):
    """A fake node that serves all slots according to all others, and that can name another node for
    the slots."""

    def behave(self):
        super().behave()
        self.spoil('CLUSTER', all_at(self.port))

    def send_on(self, to, word=b'MOVED'):
        """Answer all scripts with this."""
        self.spoil('acquire', lambda r: b'-%s %d %s\r\n' % (word, slot_of(r.keys[0]),
                                                            to.encode()))


def node(c):
    f = Node(c.nodes[0])
    f.behave()
    return f


def node_says(c, replies):
    f = node(c)
    for reply in replies:
        f.spoil('CLUSTER', reply)
        a = misled(f, 'cluster')
        failure = a.ask('take', 'l', WAIT_MS, patience=30)
        assert failure.code in FAILED + ('PAWL_OK',), f'{reply!r}: {failure}'
        if failure.code == 'PAWL_OK':
            a.ask('drop', 'l')
        takes(a, f, repr(reply)[:60])
        a.close()


@case('CLUSTER SLOTS that are nonsense', server=ONE)
def _(c):
    node_says(c, NONSENSE + (
        b'*1\r\n*0\r\n', b'*1\r\n*2\r\n:0\r\n:16383\r\n', b'*1\r\n' * 40,
        b'*1\r\n*3\r\n:0\r\n:16383\r\n*0\r\n', b'*1\r\n*3\r\n:0\r\n:16383\r\n_\r\n'))


@case('CLUSTER SLOTS with slots and addresses that make no sense', server=ONE)
def _(c):
    port = c.nodes[0].port
    node_says(c, [slots(row) for row in (
        (-1, 5, '127.0.0.1', port), (5, 16384, '127.0.0.1', port), (9, 5, '127.0.0.1', port),
        (0, 16383, '127.0.0.1', 0), (0, 16383, '127.0.0.1', 70000), (0, 16383, 'h' * 400, port),
        (0, 16383, '127.0.0.1', 'x'), (0, 2 ** 62, '127.0.0.1', port), (0, 16383, '\0', port),
        (0, 16383, 'nowhere.invalid', port), (0, 16383, '127.0.0.1', free_port()),
        (0, 16383, '::1', free_port()), (0, 16383, '\r\n', port))])


@case('CLUSTER SLOTS that need thought: no host, overlaps, gaps, thousands of nodes', server=ONE)
def _(c):
    f = node(c)
    mine = slot_of('pawl:n')
    for reply in (all_at(f.port, ''), all_at(f.port, None), all_at(f.port, '?'),
                  slots((0, 16383, '127.0.0.1', free_port()), (0, 16383, '127.0.0.1', f.port)),
                  slots((mine, mine, '127.0.0.1', f.port)),
                  slots(*((s, s, '127.0.0.1', f.port) for s in range(16384)))):
        f.spoil('CLUSTER', reply)
        a = misled(f, 'cluster')
        a.ask('take', 'l', 30000).ok()
        a.ask('drop', 'l').ok()
        a.close()
    f.spoil('CLUSTER', slots(*((s, s, '127.0.0.1', 1 + s % 100 if s != mine else f.port)
                               for s in range(0, 16384, 7)), (mine, mine, '127.0.0.1', f.port)))
    a = misled(f, 'cluster')
    a.ask('take', 'l', 30000).ok()
    a.ask('drop', 'l').ok()


def hosts_of(n, mine, port):
    """A map with one slot for each of n hosts, one of which is this port of ours."""
    return slots(*((s, s, f'127.0.{1 + s // 250}.{1 + s % 250}', 7000) if s != mine
                   else (s, s, '127.0.0.1', port) for s in range(n)))


@case('a map with 16,384 hosts is refused in time, a smaller one connects to nobody without need',
      server=ONE)
def _(c):
    f = node(c)
    mine = slot_of('pawl:n')
    f.spoil('CLUSTER', hosts_of(16384, mine, f.port))
    a = misled(f, 'cluster', timeout=3000)
    for _ in range(2):
        began = boot_ns()
        failure = a.ask('take', 'l', 3000, patience=30)
        s = (boot_ns() - began) / 1e9
        print(f'# {failure.code} after {s:.2f} s: {failure.words}')
        assert failure.code in FAILED and '1000 masters' in failure.words, failure
        assert s < 9, f'it took {s:.1f} s'
    equal(sockets(a) < 20, True, f'{sockets(a)} descriptors are open:')
    takes(a, f)
    held = a.ask('take', 'l', 10000).ok().token
    f.spoil('CLUSTER', hosts_of(16384, mine, f.port))
    a.lock('k', 'k')
    for _ in range(10):  # the client has a map, and keeps using it
        a.ask('take', 'k', 5000).ok()
        a.ask('drop', 'k').ok()
    equal(a.ask('token', 'l').token, held)
    began = boot_ns()
    a.close()
    assert boot_ns() - began < 5e9
    some = slots(*((16 * s, 16 * s + 15, f'127.0.{1 + s // 250}.{1 + s % 250}', 7000)
                   if s != mine // 16 else (16 * s, 16 * s + 15, '127.0.0.1', f.port)
                   for s in range(1000)))
    f.spoil('CLUSTER', some)
    b = misled(f, 'cluster', timeout=3000)
    for _ in range(5):
        b.ask('take', 'l', 10000).ok()
        b.ask('drop', 'l').ok()
    assert sockets(b) < 20, f'{sockets(b)} descriptors are open'


def sockets(a):
    return len(os.listdir(f'/proc/{a.pid}/fd'))


@case('hosts= and the default say which hosts are followed', server=ONE)
def _(c):
    f = node(c)
    for host, hosts, allowed in (
            ('127.0.0.1', None, True), ('127.0.0.2', None, True), ('169.254.169.254', None, False),
            ('224.0.0.1', None, False), ('0.0.0.0', None, False), ('::', None, False),
            ('fe80::1', None, False), ('localhost', None, True), ('fe80::1%lo', None, False),
            ('169.254.1', None, False), ('0', None, False), ('0x7f000001', '127.0.0.0/30', True),
            ('127.0.0.evil.example', '127.*', False), ('127.0.0.2', '1?7.0.*', True),
            ('127.0.0.2', '127.0.0.2', True), ('127.0.0.2', '10.0.0.0/8', False),
            ('127.0.0.2', '10.0.0.0/8,127.0.0.0/30', True), ('127.0.0.2', '127.0.0.0/31', False),
            ('127.0.0.2', '127.*', True), ('localhost', '*.example', False),
            ('localhost', '*HOST', True), ('127.0.0.1', '*.example', True)):
        f.spoil('CLUSTER', all_at(f.port, host))
        a = misled(f, 'cluster', timeout=3000, **({'hosts': hosts} if hosts else {}))
        got = a.ask('take', 'l', 3000 if allowed and host != '127.0.0.2' else 400, patience=30)
        named = host in got.words and 'hosts=' in got.words
        print(f'# {host} {hosts}: {got.code} {got.words}')
        assert named == (not allowed), f'{host} {hosts}: {got}'
        a.close()
        f.behave()
    for text in ('', ',', '10.0.0.0/33', 'x/8', '10.0.0.0/', 'a,,b', '::/129'):
        a = Actor(f'redis+cluster://127.0.0.1:{f.port}?hosts={text}', opens=False)
        assert a.opened.code == 'PAWL_EINVAL' and 'hosts=' in a.opened.words, f'{text}: {a.opened}'
    a = Actor(f'redis://127.0.0.1:{f.port}?hosts=x', opens=False)
    equal(a.opened.code, 'PAWL_EINVAL')


def moved_to(c, *to):
    f = node(c)
    a = misled(f, 'cluster', timeout=3000)
    takes(a, f)
    for host in to:
        f.send_on(f'{host}:7000')
        failure = a.ask('take', 'l', 400, patience=30)
        assert 'MOVED' in failure.be(*FAILED).words, f'{host}: {failure}'
        takes(a, f)


@case('MOVED to a host that may not be followed is an error that shows it', server=ONE)
def _(c):
    moved_to(c, '169.254.169.254', '0.0.0.0', '224.1.1.1')


def info(state, epoch):
    text = f'cluster_state:{state}\r\ncluster_current_epoch:{epoch}\r\n'.encode()
    return b'$%d\r\n%s\r\n' % (len(text), text)


@case('of two nodes with different maps the one with the higher epoch is believed', server=ONE)
def _(c):
    f, g = node(c), node(c)
    dead = free_port()

    def says(x, state, epoch, port):
        x.spoil('CLUSTER', lambda r: info(state, epoch) if r.words[1] == 'INFO' else all_at(port))
    for old in (('ok', 5, dead), ('fail', 9, dead), ('fail', 3, f.port)):
        says(f, *old)
        says(g, 'ok', 7, g.port)
        hosts = f'127.0.0.1:{g.port},127.0.0.1:{f.port}'
        a = Actor(f'redis+cluster://{hosts}?timeout=3000')
        a.lock('l', 'n')
        a.ask('take', 'l', 10000).ok()
        until(g.open_sides, 'for the client')
        for side in g.open_sides():  # the map link tries the other node
            side.client.shutdown(socket.SHUT_RDWR)
        began = boot_ns()
        while boot_ns() - began < 3e9:
            a.ask('drop', 'l').be('PAWL_OK', 'PAWL_EUNKNOWN', 'PAWL_ECONN')
            a.ask('take', 'l', 10000).ok()
        assert not any(r.name == 'acquire' for r in f.seen), old
        f.seen.clear()
        a.close()


def bounded(f, others=()):
    """The server is not asked endlessly."""
    n = sum(r.name == 'acquire' for x in (f, *others) for r in x.seen)
    print(f'# asked {n} times')
    assert n < 100, f'asked {n} times'
    for x in (f, *others):
        x.seen.clear()


@case('nodes that send each other\'s clients in circles', server=ONE)
def _(c):
    f, g = node(c), node(c)
    a = misled(f, 'cluster')
    takes(a, f)
    for word in (b'MOVED', b'ASK'):
        for there, back in ((g, f), (f, f)):
            f.seen.clear()
            f.send_on(f'127.0.0.1:{there.port}', word)
            g.send_on(f'127.0.0.1:{back.port}', word)
            failure = a.ask('take', 'l', 700, patience=30)
            assert failure.code in FAILED and failure.words, failure
            print(f'# {word.decode()}: {failure.code} {failure.words}')
            bounded(f, (g,))
            g.behave()
            takes(a, f)


@case('MOVED and ASK to nowhere, or without sense', server=ONE)
def _(c):
    f = node(c)
    a = misled(f, 'cluster')
    takes(a, f)
    dead = free_port()
    for word in (b'MOVED', b'ASK'):
        for to in (f'127.0.0.1:{dead}', f':{dead}', '', '127.0.0.1', ':', '127.0.0.1:', ':0',
                   '127.0.0.1:99999', '127.0.0.1:x', '::1:' + str(dead), 'nowhere.invalid:6379',
                   'h' * 500 + ':1', '?:' + str(dead)):
            f.send_on(to, word)
            fails(a, f, f'{word.decode()} {to[:40]}')
            bounded(f)
    for text in ('MOVED', 'MOVED ', 'MOVED x', 'MOVED 5', f'MOVED 5 127.0.0.1:{dead}',
                 f'MOVED 99999 127.0.0.1:{dead}', f'MOVED -1 127.0.0.1:{dead}', 'ASK', 'ASK 5',
                 f'ASK 99999 127.0.0.1:{dead}', 'MOVEDX 5 a:1'):
        f.spoil('acquire', b'-' + text.encode() + b'\r\n')
        fails(a, f, text)
        bounded(f)


@case('MOVED without a host is the same host', server=ONE)
def _(c):
    f, g = node(c), node(c)
    a = misled(f, 'cluster')
    takes(a, f)
    f.spoil('CLUSTER', all_at(g.port))
    f.send_on(f':{g.port}')
    a.ask('take', 'l', 30000).ok()
    assert any(r.name == 'acquire' for r in g.seen)
    a.ask('drop', 'l').ok()


@case('a map that is out of date: MOVED is believed', server=ONE)
def _(c):
    f, g = node(c), node(c)
    a = misled(f, 'cluster')
    takes(a, f)
    f.send_on(f'127.0.0.1:{g.port}')
    a.ask('take', 'l', 30000).ok()
    f.behave()
    f.spoil('CLUSTER', all_at(g.port))
    a.ask('drop', 'l').ok()


@case('TRYAGAIN and CLUSTERDOWN without end: an error in time that says so', server=ONE)
def _(c):
    f = node(c)
    a = misled(f, 'cluster')
    takes(a, f)
    for text in (b'TRYAGAIN Multiple keys request during rehashing of slot',
                 b'CLUSTERDOWN The cluster is down', b'CLUSTERDOWN Hash slot not served',
                 b'LOADING Redis is loading the dataset in memory',
                 b'MASTERDOWN Link with MASTER is down'):
        f.seen.clear()
        f.spoil('acquire', b'-' + text + b'\r\n')
        failure = a.ask('take', 'l', 700, patience=30)
        assert failure.code in FAILED and text.split()[0].decode() in failure.words, failure
        bounded(f)
        takes(a, f)


@case('messages of a shard that are nobody\'s business do no harm', server=ONE)
def _(c):
    f = node(c)
    a = misled(f, 'cluster')
    takes(a, f)
    a.lock('k', 'k')
    for data in (b'>3\r\n' + bulk('smessage', 'x', 'g x')[4:],
                 b'>3\r\n+smessage\r\n:1\r\n:2\r\n', b'>1\r\n+sunsubscribe\r\n',
                 b'>3\r\n' + bulk('sunsubscribe', 'x', 0)[4:],
                 b'>3\r\n+sunsubscribe\r\n_\r\n:0\r\n',
                 b'>3\r\n' + bulk('ssubscribe', 'x', 1)[4:]):
        token = a.ask('take', 'l', 30000).ok().token
        f.push(data)
        until(lambda: a.ask('take', 'k', 10000).code == 'PAWL_OK', repr(data))
        a.ask('drop', 'k').ok()
        equal(a.ask('token', 'l').token, token, repr(data))
        a.ask('drop', 'l').ok()


if __name__ == '__main__':
    sys.exit(run(Live))
