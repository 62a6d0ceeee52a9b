#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py KIND PROGRAM [ARGUMENT ...]: run a program on a private server, or servers.

KIND is tcp, redisson (its layout), unix, tls, sentinel, cluster, redisson-cluster or quorum (of
five). In an argument, @URL@ is replaced by the URL (for TLS with the certificate of the authority), and
@PORT@ by the plain port of the only or first server. The users of tcp, redisson, sentinel and cluster
have only the rights that docs/security.md lists, also on the sentinels.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from certs import Certs  # noqa: E402
from with_server import run  # noqa: E402
from redis_cluster import Calm  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_sentinel import Watched  # noqa: E402
from rights import redis_rules  # noqa: E402

TIMEOUT = 10000  # ms; long enough for a crowded machine
KINDS = ('tcp', 'redisson', 'unix', 'tls', 'sentinel', 'cluster', 'redisson-cluster', 'quorum')


def least(servers, url, *marks):
    """Create a user with the rights of these blocks. Returns the URL with this user."""
    for s in servers:
        s.call('ACL', 'SETUSER', 'least', 'reset', *(r for m in marks for r in redis_rules(m)))
    return url.replace('//', '//least:pw@')


def start_several(kind, servers):
    servers.append(Watched().calm() if kind == 'sentinel' else Calm())
    several = servers[0]
    if kind == 'redisson-cluster':
        return several.url(timeout=TIMEOUT, layout='redisson')
    if kind == 'cluster':
        return least(several.nodes, several.url(timeout=TIMEOUT), 'redis cluster',
                     'redis cluster, recommended')
    least(several.sentinels, '', 'redis sentinel')
    return least(several.servers, several.url(timeout=TIMEOUT, sentinel_user='least',
                                              sentinel_password='pw'), 'redis')


def start(kind, folder, servers):
    """Start servers, and add them to `servers`. Returns their URL."""
    if kind in ('sentinel', 'cluster', 'redisson-cluster'):
        return start_several(kind, servers)
    certs = Certs(folder) if kind == 'tls' else None
    for _ in range(5 if kind == 'quorum' else 1):
        servers.append(Live(*certs.options()) if certs else Live())
    if kind == 'quorum':  # new servers: no grant can have been forgotten
        return '|'.join(['quorum:settle=1', *(s.url(timeout=TIMEOUT) for s in servers)])
    if kind == 'tls':
        rest = f'cafile={certs.pem("ca")}&timeout={TIMEOUT}'
        return f'rediss://localhost:{servers[0].extra_port}/?{rest}'
    server = servers[0]
    if kind == 'redisson':
        return least(servers, server.url(layout='redisson', prefix='shop:', timeout=TIMEOUT),
                     'redisson')
    if kind == 'tcp':
        return least(servers, server.url(timeout=TIMEOUT), 'redis')
    return server.unix_url(timeout=TIMEOUT)


if __name__ == '__main__':
    sys.exit(run(__doc__, KINDS, start))
