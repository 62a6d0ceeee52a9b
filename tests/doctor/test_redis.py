#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pawl doctor on Redis: each defect is planted on a real server and found; a sound server has no
findings.
"""
import json
import mmap
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading

from doctor import PATIENCE, TOOL, ask, expect, found, run, the
from cases import case, equal
from certs import Certs
from ports import free_port
from redis_cluster import Cluster
from redis_live import Live
from redis_sentinel import Watched
import rights
from tool import main, wait_for

SAFE = ('--appendonly', 'yes', '--appendfsync', 'always')


class Sound(Live):
    """A server about which pawl doctor has no findings."""

    def __init__(self, *options):
        super().__init__(*SAFE, *options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def set(self, *words):
        self.call('CONFIG', 'SET', *words)

    def url(self, **params):
        return super().url(**{'timeout': 20000, **params})

    def unix_url(self, **params):
        return super().unix_url(**{'timeout': 20000, **params})


@case('a sound server has no findings, and nothing but token counters is left there')
def _(box):
    with Sound() as s:
        said = expect(s.url())
        equal(said['skipped'], [])
        facts = {f['id']: f for f in said['facts']}
        assert re.match(r'(Redis|Valkey) \d', facts['server']['what']), facts
        assert abs(facts['clock']['value']) < 1000, facts
        assert said['round_trip']['count'] > 0 and said['lease_ms'] == 30000, said
        expect(s.url())
        left = sorted(s.call('KEYS', '*'))
        assert all(re.fullmatch(r'\{pawl:pawl-doctor-[a-z]+\}:(fence|done)', k) for k in left), left
        assert len(left) <= 8, left
        status, out, err = run(s.url())
        equal((status, err), (0, ''))
        assert out.endswith('no findings\n') and 'round trip: ' in out, out
        expect(s.unix_url())
        expect('trace:' + s.url())
        expect(s.url(layout='redisson', prefix='shop:'))


@case('eviction, with and without a limit; memory that is nearly full')
def _(box):
    with Sound() as s:
        s.set('maxmemory-policy', 'allkeys-lru')
        equal(the(expect(s.url(), 'redis-eviction'), 'redis-eviction')['level'], 'warning')
        s.set('maxmemory', '100mb')
        f = the(expect(s.url(), 'redis-eviction'), 'redis-eviction')
        equal((f['level'], f['where']), ('danger', f'127.0.0.1:{s.port}'))
        assert 'allkeys-lru' in f['what'] and 'noeviction' in f['remedy'], f
        s.set('maxmemory-policy', 'volatile-ttl')
        equal(found(s.url()), ['redis-eviction'])
        s.set('maxmemory-policy', 'noeviction')
        expect(s.url())
        for i in range(300):
            s.call('SET', f'fill {i}', 'x' * 100000)
        used = int(re.search(r'\bused_memory:(\d+)', s.call('INFO', 'memory'))[1])
        s.set('maxmemory', str(used * 105 // 100))
        expect(s.url(), 'redis-memory')


@case('persistence: none, snapshots only, and a file that is not synced')
def _(box):
    with Sound() as s:
        s.set('appendfsync', 'everysec')
        equal(the(expect(s.url(), 'redis-fsync'), 'redis-fsync')['level'], 'warning')
        s.set('appendonly', 'no')
        f = the(expect(s.url(), 'redis-persistence'), 'redis-persistence')
        assert f['level'] == 'danger' and 'nothing' in f['what'], f
        s.set('save', '60 1')
        f = the(expect(s.url(), 'redis-persistence'), 'redis-persistence')
        assert 'append-only' in f['what'], f
        status, out, _ = run(s.url())
        equal(status, 1)
        assert re.search(r'^DANGER  redis-persistence  \(127', out, re.M) and '1 finding\n' in out, out
        assert all(len(line) < 80 for line in out.splitlines()), out


@case('a disk that can not be written')
def _(box):
    with Sound('--save', '3600 1') as s:
        shutil.rmtree(s.folder)
        s.call('BGSAVE')
        wait_for('the failure', lambda: 'rdb_last_bgsave_status:err' in s.call('INFO', 'persistence'))
        f = the(expect(s.url(), 'use'), 'use')  # all writes are refused
        assert 'MISCONF' in f['what'], f
        s.set('stop-writes-on-bgsave-error', 'no')
        expect(s.url(), 'redis-disk')


@case('replicas that nobody waits for, that lag, or that are taken for a master')
def _(box):
    with Sound() as s, Sound('--replicaof', f'127.0.0.1 {s.port}') as replica:
        wait_for('the replica', lambda: 'state=online' in s.call('INFO', 'replication'))
        f = the(expect(s.url(), 'redis-replicas'), 'redis-replicas')
        assert 'replicas=1' in f['remedy'], f
        expect(s.url(replicas=1))
        s.set('min-replicas-to-write', '1')
        expect(s.url())
        assert 'redis-role' in found(replica.url()), 'a replica'
        replica.process.send_signal(signal.SIGSTOP)
        wait_for('the lag', lambda: re.search(r'slave0:.*lag=([4-9]|\d\d)',
                                              s.call('INFO', 'replication')))
        ids = found(s.url())
        replica.process.send_signal(signal.SIGCONT)
        assert 'redis-lag' in ids, ids


@case('each missing right is named, and the line that is printed grants it')
def _(box):
    with Sound() as s:
        for mark, params in (('redis', {}), ('redisson', {'layout': 'redisson', 'prefix': 'shop:'})):
            rules = rights.redis_rules(mark)
            query = ''.join(f'&{k}={v}' for k, v in params.items())
            url = f'redis://u:pw@127.0.0.1:{s.port}/?timeout=20000{query}'
            s.call('ACL', 'SETUSER', 'u', 'reset', *rules)
            said = expect(url)
            equal([f['id'] for f in said['skipped']], ['redis-info'])
            needed = ('+ping', '+subscribe', '+unsubscribe', '+eval', '+evalsha')
            beside = ('+rpush', '+incr', '+decr')  # see examine.c
            gone = [r for r in rules if r[0] == '+' and r not in needed + beside]
            s.call('ACL', 'SETUSER', 'u', 'reset', *(r for r in rules if r not in gone))
            f = the(ask(url), 'rights')
            missing = set(re.findall(r'\+[a-z]+', f['remedy']))
            equal(missing, set(gone), mark)
            words = f['remedy'].split()
            equal(words[:3], ['ACL', 'SETUSER', 'u'])
            s.call(*words)
            expect(url)


@case('keys and channels that the user may not use')
def _(box):
    with Sound() as s:
        url = f'redis://u:pw@127.0.0.1:{s.port}/?timeout=20000'
        rules = rights.redis_rules('redis')
        for pattern in ('~pawl:*', '~{pawl:*', '&pawl:@*'):
            s.call('ACL', 'SETUSER', 'u', 'reset', *(r for r in rules if r != pattern))
            f = the(expect(url, 'rights'), 'rights')
            assert pattern in f['what'] + f['remedy'], (pattern, f)
        s.call('ACL', 'SETUSER', 'u', 'reset', *rules, '+info', '+config|get')
        equal(expect(url)['skipped'], [])
        expect(url.replace('pw', 'wrong'), 'rights')


class Clock:
    """A wall clock for a server, which a test can step."""

    def __init__(self, box):
        path = box.path('clock')
        with open(path, 'wb') as f:
            f.write(bytes(4096))
        with open(path, 'r+b') as f:
            self.map = mmap.mmap(f.fileno(), 4096)
        os.environ.update(CLKSHIM=path, LD_PRELOAD=os.environ['PAWL_CLOCK_SHIM'])
        try:
            self.server = Sound()
        finally:
            del os.environ['LD_PRELOAD']

    def set(self, seconds):
        self.map[:8] = struct.pack('q', int(seconds * 1e9))


@case('clocks that are off, and clocks that are stepped')
def _(box):
    clock = Clock(box)
    stop = threading.Event()

    def step():
        n = 0
        while not stop.wait(0.05):
            n += 1
            clock.set(n * 5)
    with clock.server as s:
        expect(s.url())
        clock.set(-10)
        f = the(expect(s.url(), 'clock-offset'), 'clock-offset')
        assert '10 s behind' in f['what'] or '9 s behind' in f['what'], f
        thread = threading.Thread(target=step)
        thread.start()
        try:
            ids = found(s.url())
        finally:
            stop.set()
            thread.join()
        assert 'clock-step' in ids, ids


@case('round trips that are long against the lease')
def _(box):
    with Sound() as s:
        slow = f'fault:delay=150,only=inspect;{s.url()}'
        expect(slow, words=('-l', '60s'))
        f = the(expect(slow, 'round-trip', words=('-l', '1s')), 'round-trip')
        equal(f['level'], 'warning')


@case('TLS that verifies nothing')
def _(box):
    folder = tempfile.mkdtemp(prefix='pawl-doctor-')
    certs = Certs(folder)
    with Sound('--tls-port', '@PORT@', *certs.options()) as s:
        url = f'rediss://127.0.0.1:{s.extra_port}/?timeout=20000'
        expect(f'{url}&cafile={certs.pem("ca")}')
        expect(f'{url}&verify=none', 'tls-unverified')
        expect(f'{url}&verify=chain&cafile={certs.pem("ca")}', 'tls-unverified')
    shutil.rmtree(folder)


@case('no TLS on a network')
def _(box):
    """Runs in a network namespace with an address that is not a loopback address."""
    script = ('ip link set lo up && ip addr add 10.99.0.1/24 dev lo && '
              'redis-server --bind 10.99.0.1 --port 6399 --protected-mode no --save "" --dir "$2" '
              f'{" ".join(SAFE)} >/dev/null & server=$!; '
              'for i in $(seq 600); do redis-cli -h 10.99.0.1 -p 6399 ping >/dev/null 2>&1 && break; '
              'sleep 0.1; done; "$1" doctor --json -u "redis://10.99.0.1:6399/?timeout=20000"; status=$?; '
              'kill $server; wait $server; exit $status')
    done = subprocess.run(['unshare', *(['-n'] if os.getuid() == 0 else ['-rn']), 'sh', '-c', script,
                           'sh', TOOL, box.dir], stdout=subprocess.PIPE, check=False)
    equal(done.returncode, 1)
    assert b'"id":"tls-off"' in done.stdout and done.stdout.count(b'"level":"warning"') == 1, \
        done.stdout


@case('a quorum on one machine: by loopback addresses, or by sockets; one node twice, one that is down')
def _(box):
    machine = 'quorum-machine'
    with Sound('--bind', '127.0.0.1 127.0.0.2') as a, Sound('--bind', '127.0.0.2 127.0.0.1') as b, \
            Sound('--bind', '127.0.0.3 127.0.0.1') as c:
        c.set('appendonly', 'no')  # a node of a quorum needs no persistence

        def quorum(*hosts):
            return 'quorum:settle=1|' + '|'.join(
                f'redis://{host}:{s.port}/?timeout=20000' for s, host in hosts)

        def machines(url, *others):
            return the(expect(url, machine, *others), machine)['what']
        three = quorum((a, '127.0.0.1'), (b, '127.0.0.2'), (c, '127.0.0.3'))
        equal(machines(three), 'nodes 1, 2 and 3 are on the same machine')
        equal(machines('quorum:settle=1|' + '|'.join(s.unix_url() for s in (a, b, c))),
              'nodes 1, 2 and 3 are on the same machine')
        twice = quorum((a, '127.0.0.1'), (a, '127.0.0.2'), (c, '127.0.0.3'))
        f = the(expect(twice, 'quorum-same', machine), 'quorum-same')
        equal((f['level'], f['what']), ('danger', 'nodes 1 and 2 are the same server'))
        equal(machines(twice, 'quorum-same'), 'nodes 1 and 3 are on the same machine')
        b.set('maxmemory-policy', 'allkeys-lru')
        f = the(expect(three, 'redis-eviction', machine), 'redis-eviction')
        assert f['where'].startswith('node 2: 127.0.0.2'), f
        b.set('maxmemory-policy', 'noeviction')
        b.process.kill()
        b.process.wait()
        equal(machines(three, 'quorum-node'), 'nodes 1 and 3 are on the same machine')


@case('a quorum on several machines, and with two nodes on one of them')
def _(box):
    """Each machine is a network namespace."""
    def node(at):
        return f'redis://{at}/?timeout=20000'

    def quorum(*at):
        return 'quorum:settle=1|' + '|'.join(map(node, at))
    urls = [quorum('10.99.2.2:6399', '10.99.3.2:6399', '10.99.4.2:6399'),
            quorum('10.99.2.2:6399', '10.99.3.2:6399', '10.99.2.2:6398'),
            quorum('10.99.2.2:6399', '10.99.3.1:6399', '10.99.4.1:6398'),
            quorum('127.0.0.1:6399', '10.99.3.2:6399', '10.99.4.1:6398')]
    answers = on_machines(box, urls)
    network = ['tls-off']
    equal([sorted(f['id'] for f in said['findings']) for said in answers],
          [network * 3, ['quorum-machine'] + network * 3, ['quorum-machine'] + network * 3,
           ['quorum-machine'] + network * 2])
    equal([the(said, 'quorum-machine')['what'] for said in answers[1:]],
          ['nodes 1 and 3 are on the same machine', 'nodes 2 and 3 are on the same machine',
           'nodes 1 and 3 are on the same machine'])


# Every process of the script ends with the script, which is process 1 of a namespace of its own.
MACHINES = r'''
tool=$1; folder=$2; shift 2
answers() {
    for try in $(seq 600); do
        redis-cli -h "$1" -p "$2" ping >/dev/null 2>&1 && return
        sleep 0.1
    done
}
ip link set lo up
redis-server "$folder/1-6399" >/dev/null &
redis-server "$folder/1-6398" >/dev/null &
for n in 2 3 4; do
    mkfifo "$folder/go-$n"
    unshare -n sh -c '
        read go < "$1/go-$2"
        ip link set lo up; ip addr add "10.99.$2.2/24" dev eth0; ip link set eth0 up
        redis-server "$1/$2-6398" >/dev/null &
        exec redis-server "$1/$2-6399" >/dev/null' sh "$folder" $n & other=$!
    ip link add v$n type veth peer name eth0
    # Until the namespace is there, the command finds the name eth0 taken.
    while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.02; done
    ip link set eth0 netns $other
    ip addr add 10.99.$n.1/24 dev v$n; ip link set v$n up
    echo go > "$folder/go-$n"
    answers 10.99.$n.2 6399; answers 10.99.$n.2 6398
done
answers 127.0.0.1 6399; answers 127.0.0.1 6398
for url in "$@"; do
    "$tool" doctor --json -u "$url"
done
'''


def on_machines(box, urls):
    """Run pawl doctor for each URL. Besides this machine there are the machines 10.99.N.2, with N = 2, 3 and
    4, at which this machine is 10.99.N.1. On each machine two servers listen at all addresses."""
    for machine in (1, 2, 3, 4):
        for port in (6399, 6398):
            data = box.path(f'data-{machine}-{port}')
            os.mkdir(data)
            with open(box.path(f'{machine}-{port}'), 'w', encoding='ascii') as f:
                f.write(f'port {port}\nbind 0.0.0.0\nprotected-mode no\ndir {data}\nsave ""\n'
                        'appendonly yes\nappendfsync always\n')
    namespaces = ['unshare', '-n', '--pid', '--fork', '--kill-child', '--mount-proc']
    done = subprocess.run([*namespaces, *([] if os.getuid() == 0 else ['-r']), 'sh', '-c', MACHINES, 'sh',
                           TOOL, box.dir, *urls], stdout=subprocess.PIPE, check=False, timeout=PATIENCE)
    answers = [json.loads(line) for line in done.stdout.decode().splitlines() if line]
    equal(len(answers), len(urls), done.stdout)
    return answers


@case('a cluster: sound if each master has a replica that grants wait for; every master is examined')
def _(box):
    cluster = Cluster(*SAFE, masters=3, replicas=3)
    try:
        said = expect(cluster.url(replicas=1, timeout=20000))
        equal(len([f for f in said['facts'] if f['id'] == 'server']), 3)
        equal(said['skipped'], [])
        said = expect(cluster.url(timeout=20000), *['redis-replicas'] * 3)
        masters = {f"127.0.0.1:{m.port}" for m in cluster.masters()}
        equal({f['where'] for f in said['findings']}, masters)
        one, *_ = cluster.masters()
        replica, = cluster.replicas_of(one)
        replica.process.kill()
        replica.process.wait()
        wait_for('the loss', lambda: 'connected_slaves:0' in one.call('INFO', 'replication'))
        f = the(ask(cluster.url(replicas=1, timeout=3000)), 'redis-no-replica')
        equal(f['where'], f'127.0.0.1:{one.port}')
    finally:
        cluster.stop()


@case('a cluster without replicas')
def _(box):
    cluster = Cluster(*SAFE, masters=3, replicas=0)
    try:
        said = expect(cluster.url(timeout=20000), *['redis-no-replica'] * 3)
        equal(len({f['where'] for f in said['findings']}), 3)
        cluster.nodes[1].call('CONFIG', 'SET', 'maxmemory-policy', 'allkeys-lru')
        said = expect(cluster.url(timeout=20000), 'redis-eviction', *['redis-no-replica'] * 3)
        assert str(cluster.nodes[1].port) in the(said, 'redis-eviction')['where'], said
    finally:
        cluster.stop()


@case('sentinels: all of them are named, or one')
def _(box):
    watched = Watched(*SAFE, replicas=1)
    try:
        watched.synced()
        expect(watched.url(replicas=1, timeout=20000))
        expect(watched.url(sentinels=watched.sentinels[:1], timeout=20000), 'redis-replicas', 'redis-sentinels')
    finally:
        watched.stop()


@case('a server that is too old')
def _(box):
    """No package has such a server, so a fake server reports this version in its greeting."""
    old = (b'%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n6.0.9\r\n')

    def serve():
        while True:
            try:
                c = listener.accept()[0]
            except OSError:
                return
            with c:
                c.recv(4096)
                c.sendall(old)
                c.recv(4096)
    with socket.create_server(('127.0.0.1', 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        url = f'redis://127.0.0.1:{listener.getsockname()[1]}/?timeout=20000'
        f = the(expect(url, 'unsuitable'), 'unsuitable')
        assert 'server too old' in f['what'] and '6.2' in f['what'], f


@case('pawl bench leaves nothing but token counters')
def _(box):
    with Sound() as s:
        done = subprocess.run([TOOL, 'bench', '--json', '-n', '40', '-t', '1m', '-u', s.url()],
                              stdout=subprocess.PIPE, check=True)
        said = json.loads(done.stdout)
        equal(said['pair']['count'], 40)
        assert said['hand_over']['count'] >= 20 and said['hand_over']['p50_us'] > 0, said
        left = s.call('KEYS', '*')
        assert left and all(re.fullmatch(r'\{pawl:pawl-bench[a-z0-9-]*\}:fence', k) for k in left), left


@case('a service that does not answer is no finding, and usage errors are none')
def _(box):
    status, out, err = run(f'redis://127.0.0.1:{free_port()}/?timeout=500')
    equal((status, out), (69, ''))
    assert 'refused' in err, err
    equal(run('redis://127.0.0.1:1', 'more')[0], 64)
    equal(run('redis://127.0.0.1:1', '-l', 'soon')[0], 64)
    equal(run('nonsense://x')[0] in (1, 64), True)


main()
