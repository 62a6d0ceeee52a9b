# SPDX-License-Identifier: Apache-2.0
"""The command line `KIND PROGRAM [ARGUMENT ...]`: run a program on private servers of that kind.

In an argument, @URL@ is replaced by the URL of the servers, @SERVER@ by the URL without parameters, and
@PORT@ by the port of the first server that has one. The exit status is that of the program. Servers and
program end with this process.
"""
import shutil
import signal
import subprocess
import sys
import tempfile


def ended(number, frame):
    sys.exit(128 + number)


def run(usage, kinds, start):
    """start(kind, folder, servers) starts servers, adds them to `servers`, and returns their URL."""
    if len(sys.argv) < 3 or sys.argv[1] not in kinds:
        print(usage.strip(), file=sys.stderr)
        return 64
    signal.signal(signal.SIGTERM, ended)
    signal.signal(signal.SIGINT, ended)
    folder = tempfile.mkdtemp(prefix='pawl-server-')
    servers, program = [], None
    try:
        url = start(sys.argv[1], folder, servers)
        meanings = {'@URL@': url, '@SERVER@': url.split('?')[0],
                    '@PORT@': str(getattr(servers[0], 'port', 0))}
        words = sys.argv[2:]
        for mark, meaning in meanings.items():
            words = [w.replace(mark, meaning) for w in words]
        program = subprocess.Popen(words)
        status = program.wait()
        return status if status >= 0 else 128 - status
    finally:
        if program and program.poll() is None:
            program.kill()
            program.wait()
        for server in servers:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
