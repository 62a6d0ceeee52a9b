#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The keys that the engine writes to etcd, the view of other programs, and the end of the keys."""
import os
import signal
import sys
import tempfile
from urllib.parse import unquote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, run  # noqa: E402
from certs import Certs  # noqa: E402
from etcd_server import Cluster, Etcd  # noqa: E402
from ports import free_port  # noqa: E402
from proxy import Proxy  # noqa: E402
import rights  # noqa: E402
from wait import until  # noqa: E402


def on_etcd(sentence, *options, **more):
    """A case with a separate server."""
    def add(function):
        @case(sentence, server=False, **more)
        def _():
            server = Etcd(*options)
            try:
                function(server)
            finally:
                server.stop()
    return add


# ---- the layout ----

@on_etcd('a lock is one key under its name, with its lease, and its value says who has it')
def _(s):
    a = s.actor('till 7')
    a.lock('l', 'orders')
    token = a.ask('take', 'l', 0).ok().token
    (key, (value, created, modified, lease)), = s.values().items()
    assert key == f'pawl/orders/{lease:x}-1', key
    assert f'pid={a.pid} ' in value and 'label=till%207' in value, value
    assert token == created == modified, (token, created, modified)
    a.ask('drop', 'l').ok()
    assert s.keys() == []


@on_etcd('no name lies among the keys of another')
def _(s):
    a, names = s.actor(), ('a', 'a/b', 'a%2Fb', 'a/', 'ä ö', '~read-', 'a0')
    for i, name in enumerate(names):
        a.lock(i, name)
        a.ask('take', i, 0).ok()
    found = {k.rsplit('/', 1)[0] for k in s.ctl('get', 'pawl/', '--prefix',
                                                '--keys-only').split('\n') if k}
    assert found == {'pawl/' + n.replace('%', '%25').replace('/', '%2F') for n in names}, found
    assert sorted(unquote(r.id) for r in a.rows('ls')) == sorted(names)


@on_etcd('the prefix may be anything, or nothing')
def _(s):
    for prefix in ('', 'x', 'deep/er/', '%'):
        a = s.actor(prefix=prefix, timeout=30000)
        a.lock('l', 'one')
        a.ask('take', 'l', 0).ok()
        assert [k.rsplit('/', 1)[0] for k in s.keys('')] == [prefix + 'one'], s.keys('')
        assert [r.id for r in a.rows('ls')] == ['one']
        a.close().ok()
        assert s.keys('') == []


@on_etcd('etcdctl lock and Pawl exclude each other, in order, and wake each other')
def _(s):
    a, b = s.actor(), s.actor()
    a.lock('l', 'orders')
    b.lock('l', 'orders')
    first = a.ask('take', 'l', 0).ok().token
    peer = s.peer('lock', 'pawl/orders', '--', 'sh', '-c', 'echo $ETCD_LOCK_REV; exec sleep 60')
    until(lambda: len(s.keys()) == 2)
    b.send('acquire', 'l', -1)
    until(lambda: len(s.keys()) == 3)
    rows = a.rows('show', 'orders')
    assert [r.role for r in rows[1:]] == ['holder', 'waiter', 'waiter'], rows
    assert (rows[2].pid, rows[3].pid) == (0, b.pid), rows
    assert b.have('acquire', 'l') is None
    a.ask('drop', 'l').ok()
    second = int(peer.stdout.readline())
    assert second > first, (first, second)
    holder = a.rows('show', 'orders')[1]
    key, = [k for k in s.keys() if '-' not in k]
    assert key == f'pawl/orders/{holder.owner}' and holder.token == 0, holder
    assert a.ask('try', 'l').code == 'PAWL_EBUSY'
    assert b.have('acquire', 'l') is None
    peer.kill()  # its lease of 10 s is left behind ...
    s.ctl('lease', 'revoke', '%x' % s.values()[key][3])  # ... and ended here
    assert b.answer('acquire', 'l').ok().token > second


@on_etcd('one client may have a name several times: readers, permits, waiters')
def _(s):
    a = s.actor()
    for i in range(3):
        a.lock(f'r{i}', 'book', kind='read')
        a.ask('take', f'r{i}', 0).ok()
        a.sem(f's{i}', 'pool', permits=3)
        a.ask('take', f's{i}', 0).ok()
    assert len([k for k in s.keys() if k.startswith('pawl/book/~read-')]) == 3
    assert len([k for k in s.keys() if k.startswith('pawl/pool/~permit-')]) == 3
    assert a.ask('available', 's0').ok().n == 0
    assert len({v[3] for v in s.values().values()}) == 1, 'one lease is enough'


@on_etcd('a lock asks for a lease of its own length, and a longer one can be asked for')
def _(s):
    a = s.actor()
    a.lock('l', 'short', lease=4200)
    a.ask('take', 'l', 0).ok()
    lease, = {v[3] for v in s.values().values()}
    assert 'granted with TTL(5s)' in s.ctl('lease', 'timetolive', '%x' % lease)
    a.ask('renew', 'l', 90000).ok()
    lease, = {v[3] for v in s.values().values()}
    assert 'granted with TTL(90s)' in s.ctl('lease', 'timetolive', '%x' % lease)


@on_etcd('with session= all locks share one lease, and a longer fixed one lasts all the same')
def _(s):
    a = s.actor(session=3000)
    a.lock('f', 'fixed', lease=5000)
    a.lock('w', 'watchdog')
    a.ask('take', 'f', 0).ok()
    a.ask('take', 'w', 0).ok()
    assert a.ask('valid', 'w').valid <= 3000
    a.ask('renew', 'f', 6000).ok()
    assert a.ask('valid', 'f').valid <= 3000, 'no longer than the session'
    lost = a.lost('f')  # after 6 s
    assert lost.ns and a.ask('held', 'w').held == 1
    until(lambda: not s.keys('pawl/fixed'))
    a.ask('drop', 'w').ok()


@on_etcd('closing gives the leases back')
def _(s):
    a = s.actor(timeout=30000)
    a.lock('l', 'orders')
    a.latch('c', 'gate')
    a.ask('take', 'l', 0).ok()
    a.ask('set', 'c', 1).ok()
    a.ask('down', 'c').ok()
    a.close().ok()
    assert s.keys('') == [] and s.leases() == [], (s.keys(''), s.leases())


@on_etcd('a latch counts what etcd counts, and leaves nothing')
def _(s):
    a, b = s.actor(), s.actor()
    a.latch('c', 'gate')
    b.latch('c', 'gate')
    a.ask('set', 'c', 40).ok()
    assert a.ask('set', 'c', 2).code == 'PAWL_ESTATE'
    for i in range(39):
        (a, b)[i % 2].ask('down', 'c').ok()
    assert b.ask('count', 'c').ok().n == 1
    b.ask('down', 'c').ok()
    until(lambda: not [k for k in s.keys('') if '/done/' not in k and '/fence/' not in k])
    assert len(s.keys('pawl//done/')) <= 2 * 32, 'receipts are bounded'
    a.ask('down', 'c').ok()
    assert a.ask('count', 'c').ok().n == 0


# ---- taken away ----

@on_etcd('whose key is deleted is told at once, and so is whose lease is revoked')
def _(s):
    a, b = s.actor(), s.actor()
    a.lock('l', 'one')
    a.lock('m', 'two', lease=60000)
    a.ask('take', 'l', 0).ok()
    a.ask('take', 'm', 0).ok()
    b.lock('l', 'one')
    b.send('acquire', 'l', -1)
    until(lambda: len(s.keys('pawl/one/')) == 2)
    mine, = [k for k, v in s.values('pawl/one/').items() if f'pid={a.pid} ' in v[0]]
    s.ctl('del', mine)
    a.lost('l')
    b.answer('acquire', 'l').ok()
    s.ctl('lease', 'revoke', '%x' % s.values('pawl/two/').popitem()[1][3])
    a.lost('m')
    assert a.ask('drop', 'l').code == a.ask('drop', 'm').code == 'PAWL_ELOST'
    a.ask('take', 'm', 0).ok()


@on_etcd('a waiter whose key or lease is taken away stands in line again')
def _(s):
    a, b = s.actor(), s.actor()
    a.lock('l', 'one')
    b.lock('l', 'one')
    a.ask('take', 'l', 0).ok()
    b.send('acquire', 'l', -1)
    until(lambda: len(s.keys('pawl/one/')) == 2)
    key, = [k for k, v in s.values('pawl/one/').items() if f'pid={b.pid} ' in v[0]]
    s.ctl('lease', 'revoke', '%x' % s.values('pawl/one/')[key][3])
    until(lambda: len(s.keys('pawl/one/')) == 2 and key not in s.keys('pawl/one/'))
    key, = [k for k, v in s.values('pawl/one/').items() if f'pid={b.pid} ' in v[0]]
    s.ctl('del', key)
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()
    b.ask('drop', 'l').ok()


@on_etcd('whoever waits is not told that it has the lock when its own key is gone')
def _(s):
    a, b = s.actor(), s.actor()
    a.lock('l', 'one')
    b.lock('l', 'one')
    a.ask('take', 'l', 0).ok()
    b.send('acquire', 'l', -1)
    until(lambda: len(s.keys('pawl/one/')) == 2)
    key, = [k for k, v in s.values('pawl/one/').items() if f'pid={b.pid} ' in v[0]]
    b.stop()
    s.ctl('del', key)
    a.ask('drop', 'l').ok()
    a.ask('take', 'l', 0).ok()
    b.resume()
    until(lambda: len(s.keys('pawl/one/')) == 2)
    assert b.have('acquire', 'l') is None
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()


@on_etcd('compaction wakes nobody and loses nobody')
def _(s):
    a, b = s.actor(), s.actor()
    a.lock('l', 'one')
    b.lock('l', 'one')
    a.ask('take', 'l', 0).ok()
    b.send('acquire', 'l', -1)
    until(lambda: len(s.keys('pawl/one/')) == 2)
    a.stop()  # the watch of a stopped client falls behind
    b.stop()
    for i in range(20):
        s.ctl('put', 'else', i)
    s.compact()
    b.resume()
    a.resume()
    assert a.ask('held', 'l').held == 1
    mine, = [k for k, v in s.values('pawl/one/').items() if f'pid={a.pid} ' in v[0]]
    s.ctl('del', mine)
    a.lost('l')
    b.answer('acquire', 'l').ok()


@on_etcd('a killed holder costs its lease, a killed waiter nothing more')
def _(s):
    a, b, c = s.actor(watchdog=3000), s.actor(watchdog=3000), s.actor()
    for x in (a, b, c):
        x.lock('l', 'one')
    a.ask('take', 'l', 0).ok()
    for n, x in ((2, b), (3, c)):
        x.send('acquire', 'l', -1)
        until(lambda: len(s.keys('pawl/one/')) == n)
    b.kill()
    a.kill()
    c.answer('acquire', 'l').ok()


# ---- users, TLS, endpoints ----

def in_memory(pid, word):
    """How often the word occurs in the memory that the process allocated."""
    found = 0
    with open(f'/proc/{pid}/maps', encoding='ascii') as maps, open(f'/proc/{pid}/mem', 'rb') as mem:
        for line in maps:
            words = line.split()
            if words[1].startswith('rw') and (len(words) < 6 or words[5] == '[heap]'):
                begin, end = (int(n, 16) for n in words[0].split('-'))
                if end - begin < 1 << 28:  # larger areas belong to a sanitizer
                    mem.seek(begin)
                    found += mem.read(end - begin).count(word)
    return found


@on_etcd('a password is in memory only where it is kept, however often it was sent',
         '--bcrypt-cost', '4')
def _(s):
    secret = 'xyzzy-9-plugh-' + os.urandom(6).hex()
    s.give_rights(secret)
    p = Proxy(s.port)
    a = Actor(f'etcd://app@127.0.0.1:{p.port}/?timeout=20000', environ={'PAWL_PASSWORD': secret})
    a.lock('l', 'one')
    for n in range(1, 4):
        a.ask('take', 'l', 20000).ok()
        a.ask('drop', 'l').ok()
        p.cut()
        until(lambda: a.ask('stats').reconnects >= n)
    a.ask('take', 'l', 20000).ok()
    n = in_memory(a.pid, secret.encode()) - in_memory(a.pid, f'PAWL_PASSWORD={secret}'.encode())
    assert n == 2, f'{n} times'  # the client's copy, and the engine's


@on_etcd('a user logs in, and one without the right or the password is told', '--bcrypt-cost', '4')
def _(s):
    for words in (('user', 'add', 'root:secret'), ('user', 'add', 'shop:p@ss'),
                  ('role', 'add', 'locks'),
                  ('role', 'grant-permission', 'locks', '--prefix=true', 'readwrite', 'pawl/'),
                  ('user', 'grant-role', 'shop', 'locks'), ('user', 'grant-role', 'root', 'root'),
                  ('auth', 'enable')):
        s.ctl(*words)
    s.environ = {'ETCDCTL_USER': 'root:secret'}
    good = s.url().replace('//', '//shop:p%40ss@')
    a, b = Actor(good), Actor(good)
    a.lock('l', 'one')
    b.lock('l', 'one')
    a.ask('take', 'l', 20000).ok()
    b.send('acquire', 'l', -1)
    until(lambda: len(s.keys('pawl/one/')) == 2)
    s.ctl('user', 'add', 'more:x')  # the rights have changed: etcd refuses earlier tokens
    a.ask('drop', 'l').be('PAWL_OK')
    b.answer('acquire', 'l').ok()
    for url in (s.url(), s.url().replace('//', '//shop:wrong@'), good + '?prefix=other/'):
        c = Actor(url)
        c.lock('l', 'two')
        c.ask('take', 'l', 20000).be('PAWL_EAUTH')
    assert 'wrong' not in Actor(s.url().replace('//', '//shop:wrong@')).ask('show', 'x').words


@on_etcd('each right that is missing is named', '--bcrypt-cost=4')
def _(s):
    s.give_rights('sesame')
    url = s.url(timeout=10000).replace('//', '//app:sesame@')
    grant = next(w[1:] for w in rights.commands('etcd') if 'grant-permission' in w)
    role, kind, keys = grant[2], grant[4], grant[5]
    assert (role, kind, keys) == ('pawl', 'readwrite', 'pawl/'), grant
    rights.everything(url)
    named = 'permission denied.*readwrite on the prefix "pawl/"'
    for less in ('read', 'write'):
        s.ctl('role', 'revoke-permission', '--prefix=true', role, keys)
        s.ctl(*grant[:4], less, keys)
        rights.missing({'read': 'write', 'write': 'read'}[less], named, url)
        s.ctl('role', 'revoke-permission', '--prefix=true', role, keys)
        s.ctl(*grant)
        s.ctl('del', '--prefix', keys)
    s.ctl('role', 'revoke-permission', '--prefix=true', role, keys)
    s.ctl(*grant[:4], kind, 'else/')
    rights.missing('the prefix', named, url)
    s.ctl('user', 'revoke-role', 'app', role)
    rights.missing('the role', named, url)


@case('TLS: the name and the chain are checked, on both sides', server=False)
def _():
    certs = Certs(tempfile.mkdtemp())
    s = Etcd('--cert-file', certs.pem('server'), '--key-file', certs.key('server'),
             '--trusted-ca-file', certs.pem('ca'), '--client-cert-auth', scheme='https')
    mine = {'cafile': certs.pem('ca'), 'cert': certs.pem('client'), 'key': certs.key('client')}
    try:
        a = s.actor(**mine)
        a.lock('l', 'one')
        a.ask('take', 'l', 20000).ok()
        a.close().ok()
        for wrong in ({'cafile': certs.pem('other')}, {'cert': certs.pem('stranger'),
                                                       'key': certs.key('stranger')}):
            b = s.actor(**dict(mine, **wrong))
            b.lock('l', 'one')
            b.ask('take', 'l', 20000).be('PAWL_EAUTH')
        c = s.actor()  # a URL without TLS
        c.lock('l', 'one')
        c.ask('take', 'l', 300).be('PAWL_ECONN', 'PAWL_EPROTO')
    finally:
        s.stop()


@on_etcd('hosts that do not answer are passed over')
def _(s):
    dead = ','.join(f'127.0.0.1:{free_port()}' for _ in range(3))
    for _ in range(4):
        a = Actor(f'etcd://{dead},127.0.0.1:{s.port}')
        a.lock('l', 'one')
        a.ask('take', 'l', 5000).ok()
        a.close().ok()
    b = Actor(f'etcd://{dead}?timeout=200')
    b.lock('l', 'one')
    b.ask('take', 'l', 100).be('PAWL_ECONN')


@case('what is wrong with a URL is said', server=False)
def _():
    for url in ('etcd:', 'etcd://', 'etcd://h:0', 'etcd://h:99999', 'etcd://h,,i', 'etcd://[::1',
                'etcd://h/chroot', 'etcd://h?session=10', 'etcd://h?session=x', 'etcd://h?tls=2',
                'etcd://h?tls=0&cafile=x', 'etcd://h?cert=x', 'etcd://h?verify=maybe',
                'etcd://u@h', 'etcd://h?unknown=1', 'etcd://%zz', 'etcd://h?cafile=/none',
                'etcd://h?prefix=' + 'x' * 256):
        a = Actor(url, opens=False)
        assert a.opened.code == 'PAWL_EINVAL' and a.opened.words, (url, a.opened)


# ---- a cluster ----

@case('a cluster goes on when its leader dies, and the holder keeps its lock', server=False)
def _():
    s = Cluster()
    try:
        a, b = s.actor(watchdog=5000), s.actor(watchdog=5000)
        a.lock('l', 'one')
        b.lock('l', 'one')
        first = a.ask('take', 'l', 5000).ok().token
        b.send('acquire', 'l', -1)
        until(lambda: len(s.keys('pawl/one/')) == 2)
        s.leader().process.send_signal(signal.SIGKILL)
        a.send('release', 'l')
        a.answer('release', 'l').be('PAWL_OK', 'PAWL_EUNKNOWN')
        assert b.answer('acquire', 'l').ok().token > first
        assert a.have('lost', 'l') is None
        b.ask('drop', 'l')
    finally:
        s.stop()


if __name__ == '__main__':
    sys.exit(run())
