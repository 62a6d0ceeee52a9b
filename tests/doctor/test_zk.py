#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pawl doctor on ZooKeeper."""
import os
import sys

from doctor import expect, the
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'zk'))
from harness import case, main  # noqa: E402
from client import Client, documented  # noqa: E402
from server import Ensemble, Server  # noqa: E402

SLOW = '?timeout=20000'


@case('a server alone, its session limits, and rights')
def _(box):
    server = Server(lines=['maxSessionTimeout=35000', 'minSessionTimeout=25000']).start()
    try:
        facts = {f['id']: f['what'] for f in expect(server.url(SLOW))['facts']}
        assert facts['server'].startswith('ZooKeeper 3.'), facts
        f = the(expect(server.url(SLOW), 'zk-session', words=('-l', '60s')), 'zk-session')
        assert '60000' in f['what'] and '35000' in f['what'], f
        expect(server.url(SLOW + '&session=5000'), 'zk-session')
        admin = Client(server.port)
        admin.create('/least')
        url = server.url('/least' + SLOW).replace('//', '//app:sesame@')
        admin.set_acl('/least', documented())
        expect(url)
        admin.create('/less')
        admin.set_acl('/less', documented('c'))
        f = the(expect(url.replace('/least', '/less'), 'rights'), 'rights')
        assert 'create' in f['what'], f
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
