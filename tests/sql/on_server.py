#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py [--durable] [--least=MARK] postgres|mysql PROGRAM [ARGUMENT ...]: run a program on a
private server.

--durable: the server writes to the disk at each COMMIT, as in production; without this option it does
not. --least: the user has only the rights of this block of docs/security.md. In an argument, @URL@ is
replaced by the server's URL, with a timeout for busy machines, and @SERVER@ by the URL without
parameters, for the server's own library.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from with_server import run  # noqa: E402
from sql_server import SERVERS  # noqa: E402

OPTIONS = [w for w in sys.argv[1:3] if w.startswith('--')]
LEAST = [w.partition('=')[2] for w in OPTIONS if w.startswith('--least=')]


def start(kind, folder, servers):
    server = SERVERS[kind](durable='--durable' in OPTIONS)
    servers.append(server)
    for mark in LEAST:
        server.schema()
        server.bare_user('least')
        server.grant('least', mark)
    return server.url('least' if LEAST else None, timeout=10000)


if __name__ == '__main__':
    del sys.argv[1:1 + len(OPTIONS)]
    sys.exit(run(__doc__, SERVERS, start))
