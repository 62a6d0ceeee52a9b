#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py one|three|least PROGRAM [ARGUMENT ...]: run a program on private ZooKeeper servers.

@URL@ in an argument is their URL; with `least`, the user has only the rights that docs/security.md lists.
Sessions last at least 2 s, timeouts are at least 10 s, and a leader drops a follower only after 10 s:
even a crowded machine meets these limits.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from with_server import run  # noqa: E402
from zk_client import Client, documented  # noqa: E402
from zk_server import Ensemble, Server  # noqa: E402


def start(kind, folder, servers):
    servers.append(Ensemble(least=2000, sync_limit=50) if kind == 'three' else Server(least=2000))
    url = servers[0].start().url('/conformance?timeout=10000')
    if kind != 'least':
        return url
    admin = Client(servers[0].port)
    admin.create('/conformance')
    admin.set_acl('/conformance', documented())
    admin.set_acl('/', (1, 'world', 'anyone'))
    admin.close()
    return url.replace('//', '//app:sesame@')


if __name__ == '__main__':
    sys.exit(run(__doc__, ('one', 'three', 'least'), start))
