#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py tcp|unix|tls PROGRAM [ARGUMENT ...]: run a program on a private redis-server.

@URL@ in an argument is the server's URL, with the certificate of its authority for TLS; @PORT@ its
plain port. The status is the program's. The server and the program end with this process.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from certs import Certs  # noqa: E402
from live import Live  # noqa: E402


def start(kind, folder):
    """The server and its URL."""
    if kind == 'tcp':
        server = Live()
        return server, server.url()
    if kind == 'unix':
        server = Live()
        return server, server.unix_url()
    certs = Certs(folder)
    server = Live(*certs.options())
    return server, f'rediss://localhost:{server.extra_port}/?cafile={certs.pem("ca")}'


def ended(number, frame):
    sys.exit(128 + number)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ('tcp', 'unix', 'tls'):
        print(__doc__.strip(), file=sys.stderr)
        return 64
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, ended)
    folder = tempfile.mkdtemp(prefix='pawl-tls-')
    server = program = None
    try:
        server, url = start(sys.argv[1], folder)
        words = [w.replace('@URL@', url).replace('@PORT@', str(server.port))
                 for w in sys.argv[2:]]
        program = subprocess.Popen(words)
        status = program.wait()
        return status if status >= 0 else 128 - status
    finally:
        if program and program.poll() is None:
            program.kill()
            program.wait()
        if server:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    sys.exit(main())
