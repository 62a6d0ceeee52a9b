#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pawl doctor on etcd."""
import re
import shlex
import subprocess

from doctor import ask, expect, the
from cases import case, equal
from etcd_server import Cluster, Etcd, Member
from fake_etcd import Fake, begin, end, message
from ports import free_ports
from tool import main
from wait import until


def version():
    out = subprocess.run(['etcd', '--version'], stdout=subprocess.PIPE, check=True).stdout.decode()
    return tuple(map(int, re.search(r'etcd Version: (\d+)\.(\d+)\.(\d+)', out).groups()))


def is_old(found):
    """Whether this version has the defect of docs/etcd.md."""
    return found < (3, 4, 31) or (3, 5, 0) <= found < (3, 5, 13)


# The one finding about a sound cluster: the installed version.
OLD = ['etcd-version'] if is_old(version()) else []


@case('a cluster of three, and one server alone, have no findings but an old version')
def _(box):
    cluster = Cluster()
    try:
        said = expect(cluster.url(timeout=20000), *OLD)
        assert said['facts'][0]['what'] == 'etcd ' + '.'.join(map(str, version())), said
        for f in said['findings']:
            equal(f['level'], 'warning')
            assert '15247' in f['what'] and '3.5.13' in f['remedy'], f
        one = f'etcd://127.0.0.1:{cluster.members[0].port}/?timeout=20000'
        expect(one, 'etcd-endpoints', *OLD)
        cluster.give_rights('pw')
        url = cluster.url(timeout=20000).replace('//', '//app:pw@')
        expect(url, *OLD)
        leader = cluster.leader()
        down = next(m for m in cluster.members if m is not leader)
        down.kill()
        f = the(expect(url, 'etcd-down', *OLD), 'etcd-down')
        assert str(down.port) in f['where'] and 'refused' in f['what'], f
    finally:
        cluster.stop()


def carry_out(etcd, remedy):
    """Run the commands of the remedy as an administrator, as a shell splits them."""
    for line in remedy.split('; '):
        words = shlex.split(line)
        equal(words[0], 'etcdctl')
        try:
            etcd.ctl(*words[1:])
        except AssertionError as error:
            assert words[1:3] == ['role', 'add'] and 'already exists' in str(error), error


@case('rights that are missing are named, and the line that is printed grants them')
def _(box):
    etcd = Etcd()
    try:
        etcd.give_rights('pw')
        url = etcd.url(timeout=20000).replace('//', '//app:pw@')
        etcd.ctl('put', 'pawl/somebody/1', 'holds it')
        expect(url, *OLD)
        equal(etcd.ctl('get', 'pawl/somebody/1').split('\n')[1], 'holds it', 'nothing is deleted')
        etcd.ctl('user', 'revoke-role', 'app', 'pawl')
        for right, may_not in ((None, 'read and write'), ('read', 'write'), ('write', 'read')):
            if right:
                role = right + 'er'
                for words in (('role', 'add', role), ('user', 'grant-role', 'app', role),
                              ('role', 'grant-permission', role, '--prefix=true', right, 'pawl/')):
                    etcd.ctl(*words)
            f = the(expect(url, 'rights', *OLD), 'rights')
            equal((f['level'], f['where']), ('danger', f'127.0.0.1:{etcd.port}'))
            assert f"'app'" not in f['what'] and f'the user app may not {may_not} ' in f['what'], f
            line = 'etcdctl role grant-permission pawl --prefix=true readwrite pawl/'
            assert line in f['remedy'].split('; '), f
            carry_out(etcd, f['remedy'])
            expect(url, *OLD)
            etcd.ctl('user', 'revoke-role', 'app', 'pawl')
            if right:
                etcd.ctl('role', 'delete', role)
        odd = etcd.url(timeout=20000, prefix="it's $HOME/").replace('//', '//app:pw@')
        f = the(expect(odd, 'rights', *OLD), 'rights')
        carry_out(etcd, f['remedy'])
        expect(odd, *OLD)
        wrong = the(expect(url.replace(':pw@', ':no@'), 'rights'), 'rights')
        assert 'password' in wrong['what'] and 'password' in wrong['remedy'], wrong
        assert 'etcdctl' not in wrong['remedy'], wrong
        equal(etcd.ctl('get', '--prefix', '').count('doctor'), 0, 'nothing is left')
    finally:
        etcd.stop()


@case('a cluster of two')
def _(box):
    cluster = Cluster(2)
    try:
        expect(cluster.url(timeout=20000), 'etcd-members', *OLD)
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
        expect(etcd.url(timeout=20000), *OLD)
        said = ask(f'etcd://127.0.0.1:{port}/?timeout=3000')
        equal(sorted(f['id'] for f in said['findings']), ['etcd-learner', *OLD, 'use'])
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


@case('versions that lose data or leases, and a database near its limit')
def _(box):
    """No package has these versions, so a fake server reports such a version in its status."""
    def says(version, size, quota):
        status = b'\x12' + bytes([len(version)]) + version.encode() + number(3, size) + \
            number(4, 7) + number(12, quota)
        fake = Fake(lambda stream, n: begin(stream) + message(stream, status) + end(stream))
        findings = ask(f'etcd://127.0.0.1:{fake.port}/?timeout=1000')['findings']
        return {f['id']: f['level'] for f in findings}
    for version, level in (('3.4.30', 'warning'), ('3.4.31', None), ('3.5.0', 'danger'),
                           ('3.5.2', 'danger'), ('3.5.3', 'warning'), ('3.5.12', 'warning'),
                           ('3.5.13', None), ('3.5.100', None), ('3.6.0', None), ('3.10.1', None),
                           ('3.3.27', 'warning'), ('4.0.0', None), ('3.5.0-rc.1', 'danger'),
                           ('', None)):
        equal(says(version, 90 << 20, 100 << 20).get('etcd-version'), level, version)
    assert 'etcd-quota' in says('3.6.0', 90 << 20, 100 << 20), 'a limit'
    assert 'etcd-quota' not in says('3.5.2', 70 << 20, 100 << 20), 'no limit'


@case('a database that is full')
def _(box):
    etcd = Etcd('--quota-backend-bytes=4000000')
    try:
        expect(etcd.url(timeout=20000), *OLD)
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
