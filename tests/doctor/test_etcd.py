#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pawl doctor on etcd."""
import os
import sys

from doctor import ask, expect, the
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'etcd'))
from harness import case, equal, main  # noqa: E402
from etcds import Cluster, Etcd  # noqa: E402


@case('a cluster of three, and one server alone, have no findings')
def _(box):
    cluster = Cluster()
    try:
        said = expect(cluster.url(timeout=20000))
        assert said['facts'][0]['what'].startswith('etcd 3.'), said
        one = f'etcd://127.0.0.1:{cluster.members[0].port}/?timeout=20000'
        expect(one, 'etcd-endpoints')
        cluster.give_rights('pw')
        url = cluster.url(timeout=20000).replace('//', '//app:pw@')
        expect(url)
        cluster.ctl('user', 'revoke-role', 'app', 'pawl')
        f = the(expect(url, 'rights'), 'rights')
        equal(f['level'], 'danger')
        cluster.ctl('user', 'grant-role', 'app', 'pawl')
        leader = cluster.leader()
        down = next(m for m in cluster.members if m is not leader)
        down.kill()
        f = the(expect(url, 'etcd-down'), 'etcd-down')
        assert str(down.port) in f['where'] and 'refused' in f['what'], f
    finally:
        cluster.stop()


@case('a cluster of two')
def _(box):
    cluster = Cluster(2)
    try:
        expect(cluster.url(timeout=20000), 'etcd-members')
    finally:
        cluster.stop()


@case('a database that is full')
def _(box):
    etcd = Etcd('--quota-backend-bytes=4000000')
    try:
        expect(etcd.url(timeout=20000))
        for i in range(40):
            try:
                etcd.ctl('put', f'k{i}', 'x' * 100000)
            except AssertionError as full:
                assert 'space' in str(full), full
                break
        else:
            raise AssertionError('it is never full')
        said = ask(etcd.url(timeout=20000))
        f = the(said, 'etcd-alarm')
        assert 'NOSPACE' in f['what'] and 'etcdctl' in f['remedy'], f
        assert 'use' in [f['id'] for f in said['findings']], said
    finally:
        etcd.stop()


main()
