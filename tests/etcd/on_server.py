#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""on_server.py one|cluster|tls|least PROGRAM [ARGUMENT ...]: run a program on private etcd servers.

@URL@ in an argument is their URL, for TLS with the certificate of the authority, and with `least` with a
user that has only the rights that docs/security.md lists.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from certs import Certs  # noqa: E402
from etcd_server import Cluster, Etcd  # noqa: E402
from with_server import run  # noqa: E402


def start(kind, folder, servers):
    if kind == 'tls':
        certs = Certs(folder)
        servers.append(Etcd('--cert-file', certs.pem('server'), '--key-file', certs.key('server'),
                            scheme='https'))
        return servers[0].url(timeout=10000, cafile=certs.pem('ca'))
    servers.append(Cluster() if kind == 'cluster' else Etcd('--bcrypt-cost=4'))
    if kind == 'least':
        servers[0].give_rights('sesame')
        return servers[0].url(timeout=10000).replace('//', '//app:sesame@')
    return servers[0].url(timeout=10000)


if __name__ == '__main__':
    sys.exit(run(__doc__, ('one', 'cluster', 'tls', 'least'), start))
