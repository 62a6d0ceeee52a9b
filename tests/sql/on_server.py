#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py [--durable] postgres|mysql PROGRAM [ARGUMENT ...]: a program on a private server.

--durable: one that writes to the disk at each COMMIT, as in earnest; else it only says so. @URL@ in
an argument is the server's URL, with a time-out for busy machines. The status is the program's. The
server and the program end with this process.
"""
import signal
import subprocess
import sys

from server import SERVERS


def ended(number, frame):
    sys.exit(128 + number)


def main():
    durable = sys.argv[1:2] == ['--durable']
    if durable:
        del sys.argv[1]
    if len(sys.argv) < 3 or sys.argv[1] not in SERVERS:
        print(__doc__.strip(), file=sys.stderr)
        return 64
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, ended)
    server = program = None
    try:
        server = SERVERS[sys.argv[1]](durable=durable)
        url = server.url(timeout=10000)
        program = subprocess.Popen([w.replace('@URL@', url) for w in sys.argv[2:]])
        status = program.wait()
        return status if status >= 0 else 128 - status
    finally:
        if program and program.poll() is None:
            program.kill()
            program.wait()
        if server:
            server.stop()


if __name__ == '__main__':
    sys.exit(main())
