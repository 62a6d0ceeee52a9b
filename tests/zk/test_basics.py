#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The nodes that the engine writes, their names and ACLs, and the requests that the engine refuses."""
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal  # noqa: E402
from certs import Certs  # noqa: E402
from ports import free_port  # noqa: E402
import rights  # noqa: E402
from wait import until  # noqa: E402
from world import refused, run  # noqa: E402
from zk_client import documented  # noqa: E402
from zk_server import Server  # noqa: E402

UUID = r'_c_[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
TOOL = os.environ['PAWL_TOOL']


def match(pattern, nodes):
    equal(len(nodes), 1, 'nodes:')
    assert re.fullmatch(pattern, nodes[0]), f'{nodes[0]} is not /{pattern}/'
    return nodes[0]


def names_of(rows):
    return [urllib.parse.unquote(r.id) for r in rows]


@case('a mutex is what Curator would have written, and its token the creation of its node')
def _(w):
    a = w.actor('shift 2')
    a.lock('l', 'orders')
    token = a.ask('take', 'l', 0).ok().token
    node = match(UUID + r'-lock-\d{10}', w.children('orders'))
    data, stat = w.admin.get(w.path(f'orders/{node}'))
    equal(token, stat.czxid)
    assert stat.owner
    for word in (f' pid={a.pid}', ' program=actor', ' label=shift%202', 'pawl host='):
        assert word in data.decode(), f'no "{word}" in {data}'
    equal(w.admin.get(w.path('orders'))[0], b'')
    a.ask('drop', 'l').ok()
    equal(w.children('orders'), [])
    until(lambda: not w.admin.exists(w.path('orders')), 'until the empty container is gone')


@case('readers and writers are what Curator would have written, in one sequence')
def _(w):
    a, b = w.actor(), w.actor()
    a.lock('w', 'rw', kind='write')
    b.lock('r', 'rw', kind='read')
    a.ask('take', 'w', 0).ok()
    b.send('acquire', 'r', -1)
    until(lambda: len(w.queue('rw')) == 2)
    first, second = w.queue('rw')
    assert re.fullmatch(UUID + '-__WRIT__0000000000', first), first
    assert re.fullmatch(UUID + '-__READ__0000000001', second), second
    a.ask('drop', 'w').ok()
    b.answer('acquire', 'r').ok()


@case('a semaphore is what Curator would have written: a mutex, and a node for each permit')
def _(w):
    a = w.actor()
    a.sem('s', 'pool', permits=5)
    token = a.ask('take', 's', 0, 3).ok().token
    equal(w.children('pool'), ['leases', 'locks'])
    equal(w.children('pool/locks'), [])
    leases = w.children('pool/leases')
    equal(len(leases), 3)
    for lease in leases:
        assert re.fullmatch(UUID + r'-lease-\d{10}', lease), lease
        equal(w.admin.get(w.path(f'pool/leases/{lease}'))[1].czxid, token)
    equal(w.admin.get(w.path('pool'))[0], b'pawl permits=5')
    a.ask('drop', 's', 2).ok()
    equal(len(w.children('pool/leases')), 1)
    a.ask('drop', 's', 1).ok()
    equal(w.children('pool/leases'), [])


@case('a latch is there while its count is above 0, and leaves nothing')
def _(w):
    a, b = w.actor(), w.actor()
    a.latch('c', 'start')
    b.latch('c', 'start')
    a.ask('set', 'c', 2).ok()
    equal(w.children('start'), ['count', 'latch'])
    b.send('take', 'c', 30000)
    until(lambda: len(w.children('start')) == 3)
    a.ask('down', 'c').ok()
    a.ask('down', 'c').ok()
    b.answer('take', 'c').ok()
    until(lambda: not w.children('start'))


@case('a latch counts each of many once, whoever was overtaken')
def _(w):
    actors = [w.actor() for _ in range(4)]
    for a in actors:
        a.latch('c', 'many')
    actors[0].ask('set', 'c', 100).ok()
    for _ in range(20):
        for a in actors:
            a.send('down', 'c')
        for a in actors:
            a.answer('down', 'c').ok()
    equal(actors[0].ask('count', 'c').ok().n, 20)
    data = w.admin.get(w.path('many/count'))[0]
    assert len(data) < 1200, 'receipts are not kept for ever'


@case('names are one component of a path each, and listed as they were given')
def _(w):
    a = w.actor()
    names = {'a': 'a', 'a/b': 'a%2Fb', 'a%2Fb': 'a%252Fb', '.': '%2E', '..': '%2E%2E',
             '...': '...', 'zookeeper': 'zookeeper', 'gr\u00fcn': 'gr\u00fcn',
             '\u65e5\u672c': '\u65e5\u672c', '\U0001f512': '%F0%9F%94%92', 'x y': 'x y',
             'locks': 'locks', 'latch': 'latch', 'a-lock-0000000000': 'a-lock-0000000000',
             'q?*': 'q?*', 'n' * 255: 'n' * 255}
    for i, name in enumerate(names):
        a.lock(f'l{i}', name)
        a.ask('take', f'l{i}', 0).ok()
    a.ask('lock', 'bytes', '%80%ff').ok()
    a.ask('take', 'bytes', 0).ok()
    equal(w.admin.children(w.chroot), sorted([*names.values(), '%80%FF']))
    listed = names_of(a.rows('ls'))
    equal(len(listed), len(names) + 1)
    equal(sorted(n for n in listed if '\ufffd' not in n), sorted(names))


@case('at the root, a lock "zookeeper" is not ZooKeeper\'s own node')
def _(w):
    a = Actor(w.servers.url())
    a.lock('l', 'zookeeper')
    a.ask('take', 'l', 0).ok()
    equal(len(w.admin.children('/%7Aookeeper')), 1)
    equal([n for n in names_of(a.rows('ls')) if 'zoo' in n], ['zookeeper'])
    a.close().ok()


@case('chroot and prefix make the path; they are created when needed')
def _(w):
    w.chroot += '/deep/er'
    a, b = w.actor(prefix='jobs%2Fnightly-'), w.actor()
    a.lock('l', 'backup')
    b.lock('l', 'jobs')
    a.ask('take', 'l', 0).ok()
    equal(w.admin.children(w.chroot), ['jobs'])
    equal(w.admin.children(w.chroot + '/jobs'), ['nightly-backup'])
    equal(names_of(a.rows('ls')), ['backup'])
    equal(b.rows('ls'), [])


@case('with a user and a password others have no right to touch the nodes')
def _(w):
    secret = {'PAWL_USER': 'till', 'PAWL_PASSWORD': 'sesame'}
    a = w.actor(environ=secret)
    a.lock('l', 'safe')
    a.ask('take', 'l', 0).ok()
    node = w.path('safe/' + w.admin_of('till:sesame').children(w.path('safe'))[0])
    refused(lambda: w.admin.delete(node), -102)
    refused(lambda: w.admin.get(node), -102)
    b, c = w.actor(), w.actor(environ=secret)
    b.lock('l', 'safe')
    failed = b.ask('take', 'l', 0).be('PAWL_EAUTH')
    assert 'the right to' in failed.words, failed
    c.lock('l', 'safe')
    c.ask('take', 'l', 0).be('PAWL_EBUSY')
    d = w.actor(environ=dict(secret, PAWL_PASSWORD='guess'))
    d.lock('l', 'safe')
    d.ask('take', 'l', 0).be('PAWL_EAUTH')
    e = Actor(w.servers.url(w.chroot).replace('//', '//till:sesame@') + '?acl=open')
    e.lock('l', 'shared')
    failed = e.ask('take', 'l', 0)  # below a node of the user's own it may
    failed.ok()
    shared = w.admin_of('till:sesame').children(w.path('shared'))[0]
    w.admin.get(w.path(f'shared/{shared}'))


@case('flavor=kazoo names nodes as kazoo does')
def _(w):
    a, b = w.actor(flavor='kazoo'), w.actor(flavor='kazoo')
    a.lock('l', 'k')
    a.lock('r', 'rk', kind='read')
    b.lock('l', 'k')
    a.ask('take', 'l', 0).ok()
    a.ask('take', 'r', 0).ok()
    match(r'[0-9a-f]{32}__lock__\d{10}', w.children('k'))
    match(r'[0-9a-f]{32}__rlock__\d{10}', w.children('rk'))
    b.ask('take', 'l', 0).be('PAWL_EBUSY')
    b.send('acquire', 'l', -1)
    until(lambda: len(w.children('k')) == 2)
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()
    for part in (w.chroot, w.path('k')):
        equal(w.admin.get(part)[1].owner, 0, 'a folder that stays, no container:')


@case('a stranger\'s node is waited for, shown as what stands in it, and can be broken')
def _(w):
    a = w.actor('mine')
    a.lock('l', 'shared')
    for part in (w.chroot, w.path('shared')):
        w.admin.create(part)
    theirs = w.admin.create(
        w.path('shared/_c_250c30ea-3f62-4eac-aca9-a42da8bebb8d-lock-'), b'10.1.2.3', flags=3)
    a.ask('take', 'l', 0).be('PAWL_EBUSY')
    a.send('acquire', 'l', -1)
    until(lambda: len(w.queue('shared')) == 2)
    rows = a.rows('show', 'shared')
    equal([r.role for r in rows], ['summary', 'holder', 'waiter'])
    equal((rows[1].owner, rows[1].pid, rows[1].label), ('10.1.2.3', 0, ''))
    equal((rows[2].pid, rows[2].label), (a.pid, 'mine'))
    shown = subprocess.run([TOOL, '--url', w.url(), 'show', 'shared'], stdout=subprocess.PIPE,
                           text=True, check=False).stdout
    assert '10.1.2.3' in shown and 'mine' in shown, shown
    a.ask('break', 'l').ok()
    assert not w.admin.exists(theirs)
    a.answer('acquire', 'l').ok()


@case('each right at the chroot that is missing is named')
def _(w):
    w.admin.create(w.chroot)
    for less in ('', 'c', 'r'):
        chroot = f'{w.chroot}/without-{less}'
        w.admin.create(chroot)
        w.admin.set_acl(chroot, documented(less))
        url = w.servers.url(chroot).replace('//', '//app:sesame@') + '?timeout=10000'
        if less:
            name = {'c': 'create', 'r': 'read'}[less]
            rights.missing(name, f'right to [a-z ]*{name}[a-z ]* is missing at or below {chroot}', url)
        else:
            rights.everything(url)


@case('who holds and who waits is shown in order, writers and readers, permits and latches')
def _(w):
    actors = [w.actor(f'n{i}') for i in range(4)]
    for a, kind in zip(actors, ('read', 'read', 'write', 'read')):
        w.queue_up('order', [a], kind=kind)
    rows = actors[0].rows('show', 'order')
    equal([(r.role, r.label) for r in rows[1:]],
          [('holder', 'n0'), ('holder', 'n1'), ('waiter', 'n2'), ('waiter', 'n3')])
    equal((rows[0].holders, rows[0].waiters), (2, 2))
    for a in actors[:2]:
        a.answer('acquire', 'l').ok()
        a.sem('s', 'pool', permits=3)
        a.ask('take', 's', 0).ok()
    actors[2].sem('s', 'pool', permits=3)
    actors[2].send('take', 's', 20000, 2)
    until(lambda: w.children('pool/locks'))
    rows = actors[0].rows('show', 'pool')
    equal([(r.role, r.label, r.permits) for r in rows[1:]],
          [('holder', 'n0', 1), ('holder', 'n1', 1), ('waiter', 'n2', 2)])
    actors[0].ask('drop', 's').ok()
    actors[2].answer('take', 's').ok()


@case('closing ends the session, and leaves nothing')
def _(w):
    before = w.servers.ask('stat').count('queued')
    actors = [w.actor() for _ in range(3)]
    w.queue_up('bye', actors)
    actors[0].answer('acquire', 'l').ok()
    for a in reversed(actors):
        a.close().ok()
    equal(w.children('bye'), [])
    until(lambda: w.servers.ask('stat').count('queued') <= before)
    assert w.chroot not in w.servers.ask('dump')


def pawl_run(w, *words, **params):
    """The exit status of `pawl run`."""
    return subprocess.run([TOOL, 'run', '-u', w.url(**params), *words], timeout=60,
                          capture_output=True, check=False).returncode


@case('pawl run: sessions shorter than the usual lease, and --at-least that pawl keeps itself')
def _(w):
    for session in (300, 2000, 5000):
        equal(pawl_run(w, '-n', 'a', '--', 'true', session=session), 0, f'session={session}:')
    began = time.monotonic()
    with subprocess.Popen([TOOL, 'run', '--at-least', '2s', '-u', w.url(), 'tick', '--',
                           'true']) as first:
        until(lambda: w.queue('tick'))
        equal(pawl_run(w, '-n', 'tick', '--', 'true'), 1, 'while the first one stays:')
        equal(first.wait(60), 0)
    assert time.monotonic() - began >= 2
    equal(pawl_run(w, '-n', 'tick', '--', 'true'), 0)


@case('what a URL gets wrong is said')
def _(w):
    port = w.servers.port
    for rest, code, words in (
            ('zk:localhost', 'PAWL_EINVAL', 'zk://'), ('zk://', 'PAWL_EINVAL', 'hosts'),
            ('zk://h:0', 'PAWL_EINVAL', 'port'), ('zk://h:70000', 'PAWL_EINVAL', 'port'),
            ('zk://h,,i', 'PAWL_EINVAL', 'hosts'), ('zk://[::1', 'PAWL_EINVAL', ']'),
            ('zk://h/a//b', 'PAWL_EINVAL', 'path'), ('zk://h/a/../b', 'PAWL_EINVAL', 'path'),
            ('zk://h/a%zz', 'PAWL_EINVAL', 'escape'), ('zk://h/a%00', 'PAWL_EINVAL', 'escape'),
            ('zk://h?session=5', 'PAWL_EINVAL', 'session'),
            ('zk://h?session=soon', 'PAWL_EINVAL', 'session'),
            ('zk://h?flavor=vanilla', 'PAWL_EINVAL', 'curator or kazoo'),
            ('zk://h?tls=maybe', 'PAWL_EINVAL', '1 or 0'),
            ('zk://h?acl=creator', 'PAWL_EINVAL', 'user'),
            ('zk://secret@h', 'PAWL_EINVAL', 'password'),
            ('zk://h?tls=on&cert=x', 'PAWL_EINVAL', 'key'),
            ('zk://h?tls=on&cafile=/nowhere', 'PAWL_EINVAL', 'cafile'),
            ('zk://h?cafile=x', 'PAWL_EINVAL', 'cafile'),
            (f'zk://localhost:{port}?prefix=a%0Ab', 'PAWL_EINVAL', 'path')):
        a = Actor(rest, opens=False)
        equal(a.opened.code, code, rest)
        assert words in a.opened.words, f'no "{words}" in "{a.opened.words}" of {rest}'
        assert 'secret' not in a.opened.words
        a.process.wait()


@case('a server that is not there, or no ZooKeeper, is told in words and in time')
def _(w):
    a = Actor(f'zk://127.0.0.1:{free_port()}')
    a.lock('l', 'x')
    failed = a.ask('take', 'l', 300).be('PAWL_ECONN')
    assert 'refused' in failed.words, failed
    b = Actor(f'zk://no-such-host.invalid:1,127.0.0.1:{w.servers.port}{w.chroot}')
    b.lock('l', 'x')
    b.ask('take', 'l', 20000).ok()


def tls_server(folder, clients='none'):
    certs = Certs(folder)
    both = os.path.join(folder, 'server-both.pem')
    with open(both, 'w', encoding='ascii') as out:
        for part in (certs.key('server'), certs.pem('server')):
            with open(part, encoding='ascii') as file:
                out.write(file.read())
    secure = free_port()
    lines = ['serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory',
             f'secureClientPort={secure}', f'ssl.keyStore.location={both}',
             'ssl.keyStore.type=PEM', f'ssl.trustStore.location={certs.pem("ca")}',
             'ssl.trustStore.type=PEM', f'ssl.clientAuth={clients}']
    return certs, secure, Server(lines=lines).start()


@case('TLS: the server must be who the URL says, and may want a certificate')
def _(w):
    folder = tempfile.mkdtemp(prefix='pawl-tls-')
    w.at_end(lambda: subprocess.run(['rm', '-rf', folder], check=False))
    certs, port, server = tls_server(folder, 'need')
    w.at_end(server.stop)
    trust = f'tls=on&cafile={certs.pem("ca")}'
    mine = f'&cert={certs.pem("client")}&key={certs.key("client")}'
    theirs = f'&cert={certs.pem("stranger")}&key={certs.key("stranger")}'

    def take(words, wait=400):
        a = Actor(f'zk://localhost:{port}/t?{words}')
        a.lock('l', 'x')
        got = a.ask('take', 'l', wait)
        a.close()
        return got
    take(trust + mine, 20000).ok()
    failed = take('tls=on' + mine).be('PAWL_EAUTH')
    assert 'certificate' in failed.words, failed
    take(trust).be('PAWL_EAUTH', 'PAWL_ECONN')
    take(trust + theirs).be('PAWL_EAUTH', 'PAWL_ECONN')
    take('tls=on&verify=none' + mine, 20000).ok()
    take('tls=off').be('PAWL_ECONN', 'PAWL_EPROTO')


if __name__ == '__main__':
    sys.exit(run(lambda: Server().start()))
