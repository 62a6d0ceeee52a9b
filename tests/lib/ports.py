# SPDX-License-Identifier: Apache-2.0
"""Ports for servers. The ports are below the range from which the system assigns ports to connections and
to sockets bound to port 0, so no other process gets a port by chance while its server starts or is down.
Other tests don't use the port either: the process binds an abstract socket that is named after the port,
until the process ends. Otherwise two servers could use one port: the second would exit, and the first
would answer the requests for the second.
"""
import random
import socket

CHANCE = random.SystemRandom()  # forked processes must not get the same numbers
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
