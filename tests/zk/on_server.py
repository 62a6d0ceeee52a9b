#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py one|three PROGRAM [ARGUMENT ...]: run a program on private ZooKeeper servers.

@URL@ in an argument is their URL. No session is shorter than 2 s, no time-out than 10 s: a crowded
machine keeps both.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib')]
from guest import run  # noqa: E402
from server import Ensemble, Server  # noqa: E402


def start(kind, folder, servers):
    servers.append(Server(least=2000) if kind == 'one' else Ensemble(least=2000))
    return servers[0].start().url('/conformance?timeout=10000')


if __name__ == '__main__':
    sys.exit(run(__doc__, ('one', 'three'), start))
