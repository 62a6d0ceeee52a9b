#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pawl doctor on etcd."""
import os
import sys

from doctor import ask, expect, the
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'etcd'))
from harness import case, equal, main  # noqa: E402
from etcds import Cluster, Etcd, Member, free_ports, until  # noqa: E402
from fake import Fake, begin, end, message  # noqa: E402


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


@case('a learner, which is no voting member')
def _(box):
    etcd = Etcd()
    port, peer = free_ports(2)
    learner = Member('learner', port, peer, 100, [
        '--initial-cluster-state', 'existing', '--initial-cluster',
        f'n1=http://127.0.0.1:{etcd.member.peer},learner=http://127.0.0.1:{peer}'])
    try:
        etcd.ctl('member', 'add', 'learner', '--learner', f'--peer-urls=http://127.0.0.1:{peer}')
        learner.start()
        until(learner.answers)
        expect(etcd.url(timeout=20000))
        said = ask(f'etcd://127.0.0.1:{port}/?timeout=3000')
        equal(sorted(f['id'] for f in said['findings']), ['etcd-learner', 'use'])
        assert 'learner' in the(said, 'use')['what'], said
    finally:
        learner.stop()
        etcd.stop()


@case('members that are left without a leader')
def _(box):
    cluster = Cluster()
    try:
        for m in cluster.members[1:]:
            m.kill()
        url = cluster.url(timeout=3000)
        until(lambda: 'etcd-leader' in [f['id'] for f in ask(url)['findings']])
        said = ask(url)
        equal(sorted(f['id'] for f in said['findings']),
              ['etcd-down', 'etcd-down', 'etcd-leader', 'use'])
        equal(the(said, 'etcd-leader')['level'], 'danger')
    finally:
        cluster.stop()


def number(field, value):
    """A number of protobuf."""
    out = bytes([field << 3])
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


@case('a version that loses data, and a database near its limit')
def _(box):
    """No package has these versions, so a fake server reports such a version in its status."""
    def says(version, size, quota):
        status = b'\x12' + bytes([len(version)]) + version.encode() + number(3, size) + \
            number(4, 7) + number(12, quota)
        fake = Fake(lambda stream, n: begin(stream) + message(stream, status) + end(stream))
        return [f['id'] for f in ask(f'etcd://127.0.0.1:{fake.port}/?timeout=1000')['findings']]
    assert 'etcd-version' in says('3.5.2', 1, 100 << 20), '3.5.2'
    assert 'etcd-version' not in says('3.5.3', 90 << 20, 100 << 20), '3.5.3'
    assert 'etcd-quota' in says('3.6.0', 90 << 20, 100 << 20), 'a limit'
    assert 'etcd-quota' not in says('3.5.2', 70 << 20, 100 << 20), 'no limit'


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
