#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py [--durable] [--least=MARK] postgres|mysql PROGRAM [ARGUMENT ...]: a program on a
private server.

--durable: one that writes to the disk at each COMMIT, as in earnest; else it only says so. --least:
the user has just the rights of this block of docs/security.md. @URL@ in an argument is the server's
URL, with a time-out for busy machines; @SERVER@ the same without any parameter, for the server's own
library.
"""
import sys

from server import SERVERS
from guest import run

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
