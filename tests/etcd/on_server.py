#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py one|cluster|tls PROGRAM [ARGUMENT ...]: run a program on private etcd servers.

@URL@ in an argument is their URL, with the certificate of the authority for TLS. The status is the
program's. The servers and the program end with this process.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from etcds import Cluster, Etcd  # noqa: E402
from certs import Certs  # noqa: E402


def start(kind, folder):
    """The servers and their URL."""
    if kind == 'one':
        server = Etcd()
        return server, server.url()
    if kind == 'cluster':
        server = Cluster()
        return server, server.url()
    certs = Certs(folder)
    server = Etcd('--cert-file', certs.pem('server'), '--key-file', certs.key('server'),
                  scheme='https')
    return server, server.url(cafile=certs.pem('ca'))


def ended(number, frame):
    sys.exit(128 + number)


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ('one', 'cluster', 'tls'):
        print(__doc__.strip(), file=sys.stderr)
        return 64
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, ended)
    folder = tempfile.mkdtemp(prefix='pawl-tls-')
    server = program = None
    try:
        server, url = start(sys.argv[1], folder)
        program = subprocess.Popen([w.replace('@URL@', url) for w in sys.argv[2:]])
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
