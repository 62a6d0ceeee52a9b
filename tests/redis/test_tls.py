#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TLS: the client verifies the server before it sends anything, and has a certificate if the server asks."""
import os
import re
import shutil
import sys
import tempfile
from urllib.parse import quote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from certs import Certs  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis_cluster import Cluster  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_sentinel import Watched  # noqa: E402
from steps import kill_connections, warm_up  # noqa: E402
from wait import until  # noqa: E402

REFUSED = ('PAWL_EAUTH',)


class World:
    """A server with TLS beside its plain port."""

    def __init__(self, name='server', clients='no'):
        self.certs = Certs(tempfile.mkdtemp())
        self.server = Live(*self.certs.options(name, clients))
        self.port = self.server.extra_port

    def url(self, host='localhost', port=None, **params):
        text = '&'.join(f'{k}={quote(v, safe="/")}' for k, v in params.items())
        return f'rediss://{host}:{port or self.port}/?{text}'

    def trusted(self, host='localhost', **params):
        return self.url(host, cafile=self.certs.pem('ca'), **params)

    def works(self, url):
        a = Actor(url)
        a.lock('l', 'n')
        a.ask('take', 'l', 20000).ok()
        equal(len(self.server.subscribers()), 1)
        a.ask('drop', 'l').ok()
        a.close().ok()
        until(lambda: not self.server.subscribers())

    def fails(self, url, pattern, codes=REFUSED):
        """Opening or acquiring fails, and nothing is sent to the server."""
        m = self.server.monitor()
        a = Actor(url, opens=False)
        failure = a.opened
        if failure.code == 'PAWL_OK':
            a.lock('l', 'n')
            failure = a.ask('take', 'l', 3000)
        failure.be(*codes)
        assert re.search(pattern, failure.words, re.I), failure.words
        a.kill()
        equal([e for e in m.all() if e.source != 'lua' and 'unix' not in e.source], [])


@case('the right authority and the right name', server=False)
def _():
    w = World()
    w.works(w.trusted())
    w.works(w.trusted('127.0.0.1'))
    w.works(w.trusted(verify='full'))
    w.works(w.trusted(verify='chain'))
    w.works(w.url(verify='none'))
    w.works(w.trusted().replace('rediss:', 'valkeys:'))


@case('another authority is refused, with words about the certificate', server=False)
def _():
    w = World()
    w.fails(w.url(cafile=w.certs.pem('other')), 'certificate|verif')
    w.fails(w.url(), 'certificate|verif')  # the system's authorities
    w.fails(w.url().replace('rediss:', 'valkeys:'), 'certificate|verif')
    w.fails(w.url(cafile=w.certs.pem('other'), verify='chain'), 'certificate|verif')


@case('a certificate for another name is refused, unless only the chain is to be checked',
      server=False)
def _():
    w = World('elsewhere')
    w.fails(w.trusted(), 'name|mismatch')
    w.fails(w.trusted('127.0.0.1'), 'address|name|mismatch')
    w.works(w.trusted(verify='chain'))
    w.works(w.trusted(verify='none'))


@case('a certificate whose time is over is refused', server=False)
def _():
    w = World('expired')
    w.fails(w.trusted(), 'expired')


@case('a server that asks for a certificate gets it; without one, or with a stranger\'s, no',
      server=False)
def _():
    w = World(clients='yes')
    c = w.certs
    w.works(w.trusted(cert=c.pem('client'), key=c.key('client')))
    late = ('PAWL_EAUTH', 'PAWL_ECONN')  # with TLS 1.3 the refusal comes after the handshake, and the server hangs up
    w.fails(w.trusted(), 'certificate|alert|closed|reset', late)
    w.fails(w.trusted(cert=c.pem('stranger'), key=c.key('stranger')),
            'certificate|alert|unknown ca|closed|reset', late)


@case('files that can\'t be read, or don\'t fit, are named when the client is opened', server=False)
def _():
    w = World()
    c = w.certs
    for params in ({'cafile': '/no/such/file'}, {'cafile': c.key('ca')},
                   {'cert': '/no/such/cert', 'key': c.key('client')},
                   {'cert': c.pem('client'), 'key': '/no/such/key'},
                   {'cert': c.pem('client'), 'key': c.key('stranger')},
                   {'cert': c.pem('client')}, {'verify': 'perhaps'}):
        a = Actor(w.url(**dict({'cafile': c.pem('ca')}, **params)), opens=False)
        a.opened.be('PAWL_EINVAL', 'PAWL_EAUTH')
        assert a.opened.words


def rotate(to, new, names, parts=('pem', 'key')):
    """Certificates are replaced by others of the same name, each in one step."""
    for name in names:
        for part in parts:
            fresh = os.path.join(to.folder, f'{name}.fresh')
            shutil.copy(os.path.join(new.folder, f'{name}.{part}'), fresh)
            os.rename(fresh, os.path.join(to.folder, f'{name}.{part}'))


@case('authority, certificate and key are replaced while a client runs: it goes on', server=False)
def _():
    w = World(clients='yes')
    c, new = w.certs, Certs(tempfile.mkdtemp())
    a = Actor(w.trusted(cert=c.pem('client'), key=c.key('client')))
    a.lock('l', 'n')
    a.ask('take', 'l', 20000).ok()
    a.ask('drop', 'l').ok()
    # a certificate whose key comes later: the old ones are used until then
    rotate(c, new, ['client'], ['pem'])
    kill_connections(w.server)
    a.ask('take', 'l', 20000).ok()
    a.ask('drop', 'l').ok()
    rotate(c, new, ['client'], ['key'])
    rotate(c, new, ['ca', 'server'])
    w.server.restart()
    a.ask('take', 'l', 20000).ok()
    a.ask('drop', 'l').ok()
    # in place, with the same names: written anew, not renamed
    again = Certs(tempfile.mkdtemp())
    for name in ('ca', 'server', 'client'):
        for part in ('pem', 'key'):
            shutil.copyfile(os.path.join(again.folder, f'{name}.{part}'),
                            os.path.join(c.folder, f'{name}.{part}'))
    w.server.restart()
    a.ask('take', 'l', 20000).ok()
    a.ask('drop', 'l').ok()
    a.close().ok()


@case('plain text to a TLS port, and TLS to a plain port: an error in time', server=False)
def _():
    w = World()
    for url in (f'redis://127.0.0.1:{w.port}/?timeout=1000',
                w.url(port=w.server.port, cafile=w.certs.pem('ca'), timeout='1000')):
        a = Actor(url, opens=False)
        failure = a.opened
        if failure.code == 'PAWL_OK':
            a.lock('l', 'n')
            failure = a.ask('take', 'l', 700, patience=30)
        failure.be('PAWL_ECONN', 'PAWL_EPROTO', 'PAWL_EAUTH', 'PAWL_ETIMEDOUT')
        assert failure.words
        a.kill()


@case('TLS cut, stalled and in single bytes: bounded, and it goes on afterwards', server=False)
def _():
    w = World()
    p = Proxy(w.port)
    url = w.url(port=p.port, cafile=w.certs.pem('ca'), timeout='40000')
    warm_up(w.server)
    p.trickle = True
    a = Actor(url)
    a.lock('l', 'n')
    a.ask('take', 'l', 30000).ok()
    a.ask('drop', 'l').ok()
    p.trickle = False
    for p.gently in (False, True):
        for n in (0, 1, 7, 100, 700, 1500):
            p.cut()
            p.cut_after(n)
            a.ask('take', 'l', 30000).ok()
            a.ask('drop', 'l').ok()
    p.cut()
    p.stall()
    b = Actor(url)
    b.lock('l', 'n')
    b.ask('take', 'l', 300, patience=20).be('PAWL_ECONN', 'PAWL_ETIMEDOUT')
    b.ask('close', patience=100)


@case('a password and a user over TLS', server=False)
def _():
    w = World()
    w.server.call('ACL', 'SETUSER', 'shop', 'on', '>pa ss/wo@rd', '~*', '&*', '+@all')
    url = w.trusted().replace('rediss://', 'rediss://shop:pa%20ss%2Fwo%40rd@')
    w.works(url)


# ---- more than one server ------------------------------------------------------------------------

def many(servers, certs, kill):
    """The servers are found by TLS alone, also after a master was killed; and only with the authority's
    certificate."""
    try:
        trust = {'tls': 1, 'cafile': certs.pem('ca')}
        a, b = servers.actor(**trust), servers.actor(**trust)
        for i in range(3):
            a.lock(i, f'n{i}')
            b.lock(i, f'n{i}')
            a.ask('take', i, 30000).ok()
            b.send('acquire', i, -1)
        servers.synced()
        kill()
        for i in range(3):
            until(lambda: a.ask('drop', i).code in ('PAWL_OK', 'PAWL_ENOTHELD', 'PAWL_ELOST'))
            b.answer('acquire', i).ok()
        stranger = Actor(servers.url(tls=1, cafile=certs.pem('other')))
        stranger.lock('l', 'n')
        stranger.ask('take', 'l', 3000).be('PAWL_EAUTH')
    finally:
        servers.stop()


@case('Sentinel over TLS', server=False)
def _():
    certs = Certs(tempfile.mkdtemp())
    w = Watched(*certs.only())
    many(w, certs, w.kill_master)


@case('Cluster over TLS', server=False)
def _():
    certs = Certs(tempfile.mkdtemp())
    c = Cluster(*certs.only(), '--tls-cluster', 'yes')
    many(c, certs, lambda: c.kill(c.masters()[0]))


if __name__ == '__main__':
    sys.exit(run(Live))
