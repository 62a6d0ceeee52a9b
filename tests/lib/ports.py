# SPDX-License-Identifier: Apache-2.0
"""Ports for servers: below those that the system hands out by itself, to whoever connects or binds
to port 0. So nobody gets one by chance while its server starts, or is down for a while. Nor does
another test: each port has a name, an abstract socket, that only one process has until it ends. Two
servers on one port are worse than none: the second ends, but the first answers for it.
"""
import random
import socket

CHANCE = random.SystemRandom()  # processes that were forked must not go the same way
NAMES = []


def _end():
    with open('/proc/sys/net/ipv4/ip_local_port_range', encoding='ascii') as f:
        return max(int(f.read().split()[0]), 20000)


def _is_free(port):
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f'\0pawl-test-port-{port}')
        with socket.socket() as s:
            s.bind(('127.0.0.1', port))
    except OSError:
        name.close()
        return False
    NAMES.append(name)
    return True


def free_port():
    end = _end()
    for _ in range(1000):
        port = CHANCE.randrange(10000, end)
        if _is_free(port):
            return port
    raise OSError('no port is free')


def free_ports(n):
    return [free_port() for _ in range(n)]
