#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py KIND PROGRAM [ARGUMENT ...]: run a program on a private server, or servers.

KIND is tcp, redisson (its layout), unix, tls, sentinel, cluster, redisson-cluster or quorum (of
five). @URL@ in an argument is the URL, with the certificate of its authority for TLS; @PORT@ the
plain port of a single server, or of the first.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from certs import Certs  # noqa: E402
from cluster import Calm  # noqa: E402
from live import Live  # noqa: E402
from sentinel import Watched  # noqa: E402
from guest import run  # noqa: E402

TIMEOUT = 10000  # ms, which a crowded machine keeps
KINDS = ('tcp', 'redisson', 'unix', 'tls', 'sentinel', 'cluster', 'redisson-cluster', 'quorum')


def start(kind, folder, servers):
    """Adds to the servers; their URL."""
    layout = {'layout': 'redisson'} if kind.startswith('redisson') else {}
    if kind in ('sentinel', 'cluster', 'redisson-cluster'):
        servers.append(Watched().calm() if kind == 'sentinel' else Calm())
        return servers[0].url(timeout=TIMEOUT, **layout)
    certs = Certs(folder) if kind == 'tls' else None
    for _ in range(5 if kind == 'quorum' else 1):
        servers.append(Live(*certs.options()) if certs else Live())
    if kind == 'quorum':  # nobody relies on what they knew before they were started
        return '|'.join(['quorum:settle=1', *(s.url(timeout=TIMEOUT) for s in servers)])
    if kind == 'tls':
        rest = f'cafile={certs.pem("ca")}&timeout={TIMEOUT}'
        return f'rediss://localhost:{servers[0].extra_port}/?{rest}'
    server = servers[0]
    if kind == 'unix':
        return server.unix_url(timeout=TIMEOUT)
    return server.url(timeout=TIMEOUT, **layout)


if __name__ == '__main__':
    sys.exit(run(__doc__, KINDS, start))
