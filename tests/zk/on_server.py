#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py one|three PROGRAM [ARGUMENT ...]: run a program on private ZooKeeper servers.

@URL@ in an argument is their URL. The status is the program's. Servers and program end with this
process. No session is shorter than 2 s: a crowded machine keeps it alive.
"""
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from server import Ensemble, Server  # noqa: E402


def ended(number, frame):
    sys.exit(128 + number)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ('one', 'three'):
        print(__doc__.strip(), file=sys.stderr)
        return 64
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, ended)
    servers = Server(least=2000) if sys.argv[1] == 'one' else Ensemble(least=2000)
    program = None
    try:
        url = servers.start().url('/conformance')
        program = subprocess.Popen([w.replace('@URL@', url) for w in sys.argv[2:]])
        status = program.wait()
        return status if status >= 0 else 128 - status
    finally:
        if program and program.poll() is None:
            program.kill()
            program.wait()
        servers.stop()


if __name__ == '__main__':
    sys.exit(main())
