#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pawl doctor on ZooKeeper."""
import re

from doctor import expect, the
from cases import case, equal
from tool import main
from zk_client import PERMS, Client, digest, documented
from zk_server import Ensemble, Server

SLOW = '?timeout=20000'
BOSS = (31, 'digest', digest('boss', 'secret'))  # the administrator's entry


def rights_missing(admin, url, folder, what):
    """The finding says this, and the printed line grants the right."""
    f = the(expect(url, 'rights'), 'rights')
    equal((f['level'], f['what']), ('danger', what))
    path, entry = re.match(r'zkCli.sh: setAcl (\S+) (\S+), ', f['remedy']).groups()
    equal(path, folder)
    scheme, _, rest = entry.partition(':')
    who, _, perms = rest.rpartition(':')
    who = who.replace('app:HASH', digest('app', 'sesame'))
    entries = [e for e in admin.acl(folder) if e[1:] != (scheme, who)]
    admin.set_acl(folder, *entries, (sum(PERMS[p] for p in perms), scheme, who))
    expect(url)


@case('a server alone, its session limits, and rights')
def _(box):
    server = Server(lines=['maxSessionTimeout=35000', 'minSessionTimeout=25000']).start()
    try:
        facts = {f['id']: f['what'] for f in expect(server.url(SLOW))['facts']}
        assert facts['server'].startswith('ZooKeeper 3.'), facts
        f = the(expect(server.url(SLOW), 'zk-session', words=('-l', '60s')), 'zk-session')
        assert '60000' in f['what'] and '35000' in f['what'], f
        expect(server.url(SLOW + '&session=5000'), 'zk-session')
        admin = Client(server.port, auth='boss:secret')
        admin.create('/least')
        url = server.url('/least' + SLOW).replace('//', '//app:sesame@')
        admin.set_acl('/least', documented())
        expect(url)
        app = Client(server.port, auth='app:sesame')
        assert not [name for name in app.children('/least') if name.startswith('_c_')]
        app.close()
        for less, words in (('c', 'create'), ('r', 'read'), ('cr', 'read and create')):
            folder = '/less-' + less
            admin.create(folder)
            admin.set_acl(folder, BOSS, documented(less))
            rights_missing(admin, url.replace('/least', folder), folder,
                           f'the user app lacks the right to {words} in {folder}')
        below = url.replace('/least', '/less-c/below/this')
        expect(below)
        admin.set_acl('/less-c', BOSS, documented('c'))
        rights_missing(admin, below.replace('below', 'other'), '/less-c',
                       'the user app lacks the right to create in /less-c')
        admin.create('/closed')
        admin.set_acl('/closed', BOSS, (1, 'world', 'anyone'))
        rights_missing(admin, server.url('/closed' + SLOW), '/closed',
                       'everybody lacks the right to create in /closed')
        admin.close()
    finally:
        server.stop()


@case('ensembles of three and of two, and a URL that names one server')
def _(box):
    for n in (3, 2):
        ensemble = Ensemble(n, sync_limit=50)
        try:
            ensemble.start()
            expect(ensemble.url(SLOW), *(['zk-servers'] if n == 2 else []))
            one = ensemble.servers[0].url(SLOW)
            expect(one, 'zk-one-server', *(['zk-servers'] if n == 2 else []))
            if n == 3:
                down = ensemble.followers()[0]
                down.kill()
                f = the(expect(ensemble.url(SLOW), 'zk-down'), 'zk-down')
                assert str(down.port) in f['where'] and 'refused' in f['what'], f
        finally:
            ensemble.stop()


main()
