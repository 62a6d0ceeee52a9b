#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py [--durable] postgres|mysql PROGRAM [ARGUMENT ...]: a program on a private server.

--durable: one that writes to the disk at each COMMIT, as in earnest; else it only says so. @URL@ in
an argument is the server's URL, with a time-out for busy machines; @SERVER@ the same without any
parameter, for the server's own library.
"""
import sys

from server import SERVERS
from guest import run

DURABLE = sys.argv[1:2] == ['--durable']


def start(kind, folder, servers):
    servers.append(SERVERS[kind](durable=DURABLE))
    return servers[0].url(timeout=10000)


if __name__ == '__main__':
    if DURABLE:
        del sys.argv[1]
    sys.exit(run(__doc__, SERVERS, start))
