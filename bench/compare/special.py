# SPDX-License-Identifier: Apache-2.0
"""Measurements that are not contenders in a loop: starting programs, system calls, many held locks,
many waiters, fail-over, delays of the network, and a quorum. Each yields (key, heading, results).
"""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from peers import HERE, INTEROP, TOP, SERVICES, Peer
from turns import FAILURES, quantile, take_turns

PATIENCE = 600


def output(*words, folder=None):
    """What a program prints. RuntimeError with its last words if the program fails."""
    done = subprocess.run([str(w) for w in words], cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f'exit status {done.returncode}'])[-1]
        raise RuntimeError(last)
    return done.stdout


class Special:
    title = None

    def __init__(self, options):
        self.options, self.quick, self.rounds = options, options.quick, options.rounds

    def built(self, *path):
        return os.path.join(self.options.build, *path)

    def bench(self, name):
        return self.built('bench', name)

    def turns(self, sides, rounds=None):
        return take_turns(rounds or self.rounds, sides)

    def together(self, titles, rows):
        """The same of measurements that have all sides at once: rows of slices, by title."""
        columns = [iter(column) for column in zip(*rows)]
        return self.turns([(t, lambda c=c: next(c)) for t, c in zip(titles, columns)], len(rows))

    def rows(self, titles, one_row, rounds):
        """As together; one_row returns the slices of all sides, or fails for all of them."""
        try:
            return self.together(titles, [one_row() for _ in range(rounds)])
        except FAILURES as e:
            return {titles[0]: f'failed: {e}'[:200],
                    **{t: 'not measured: the run failed' for t in titles[1:]}}


def peer_commands(peers):
    """(title, command to acquire one lock in a new process, folder), or (title, reason, None)."""
    for p in peers:
        if p.missing:
            yield p.title, p.why_not('own', 1), None
        elif 'own' in p.modes:
            worker, *more = p.command
            small = worker.replace('bench_worker', 'bench_first')
            yield p.title, [small, *more, *(['first'] if small == worker else [])], p.folder


class Start(Special):
    """bench_start runs all commands in turns, so that a round is one call of bench_start."""
    title = 'Starting a program'

    def launches(self, commands):
        """{title: summary or reason} of (title, command or reason, folder)."""
        good, results = {}, {}
        for title, command, folder in commands:
            results[title] = command if isinstance(command, str) else None
            if isinstance(command, str):
                continue
            good[title] = ['env', '-C', folder, *command] if folder else command
            try:
                output(self.bench('bench_start'), 1, *good[title])
            except RuntimeError as e:
                results[title] = f'failed: {e}'[:200]
                good.pop(title)
        measured = self.rows(list(good), lambda: self.launch_round(good.values()), self.rounds)
        return {title: why or measured[title] for title, why in results.items()}

    def launch_round(self, commands):
        words = []
        for c in commands:
            words += [*(['--'] if words else []), *c]
        lines = output(self.bench('bench_start'), 2 if self.quick else 40, *words).splitlines()
        took = [sorted(int(w) for w in line.split()) for line in lines]
        return [{'p50': statistics.median(t), 'p99': quantile(t, 0.99)} for t in took]

    def measure(self):
        folder = tempfile.mkdtemp(prefix='pawl-start-', dir='/dev/shm')
        try:
            pawl = [self.built('tools', 'pawl'), '-u', f'local:{folder}']
            flock = ['flock', '-n', os.path.join(folder, 'file'), 'true']
            yield 'run', '`pawl run true` beside `flock true`', self.launches([
                ('Pawl, `pawl run -n NAME true`', [*pawl, 'run', '-n', 'bench', 'true'], None),
                ('flock(1), `flock -n FILE true`', flock, None),
                ('`true` alone', ['true'], None)])
        finally:
            shutil.rmtree(folder)
        for name in ('local', 'redis'):
            service = SERVICES[name](self.options.build, self.quick)
            try:
                yield (f'first {name}', f'a new process takes and releases one lock and ends: '
                       f'{service.title}', self.launches(peer_commands(service.peers())))
            finally:
                service.stop()


class Calls(Special):
    """perf counts the system calls of a run with few and of a run with many pairs; the difference
    is the cost of the pairs without start and end of the program."""
    title = 'System calls'

    def count(self, command, pairs):
        words = ['perf', 'stat', '-x', ',', '-e', 'raw_syscalls:sys_enter', '--', *command,
                 str(pairs)]
        done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
        found = re.search(r'^(\d+),.*raw_syscalls:sys_enter', done.stderr, re.M)
        if done.returncode or not found:
            raise RuntimeError('perf: ' + (done.stderr.strip().splitlines() or ['failed'])[-1])
        return int(found[1])

    def slice(self, command):
        few, many = 500, 2500
        calls = self.count(command, many) - self.count(command, few)
        return {'calls': calls / (many - few) / 2}

    def measure(self):
        for name in ('local', 'redis'):
            service = SERVICES[name](self.options.build, self.quick)
            try:
                sides = [(p.title, lambda c=p.command: self.slice([self.bench('bench_first'),
                                                                   *c[1:]]))
                         for p in service.peers()
                         if 'own' in p.modes and 'bench_worker' in p.command[0]]
                yield (f'calls {name}', f'system calls of the client for each acquire or release: '
                       f'{service.title}', self.turns(sides))
            finally:
                service.stop()


class Servers(Special):
    def live(self, n):
        from redis_live import Live
        return [Live() for _ in range(n)]

    def figures(self, server, part, count, seconds=0):
        text = output(self.bench('bench_redis'), '-f', '-n', count, *(['-s', seconds] if seconds
                                                                     else []),
                      server.path, server.port, part)
        return {k: float(v) for k, v in (line.split() for line in text.splitlines())}


class Held(Servers):
    """The plain client runs in the same process as Pawl, after Pawl."""
    title = 'Many held locks, Redis'

    def measure(self):
        for count in (2000,) if self.quick else (100000, 1000000):
            server, = self.live(1)
            try:
                yield (f'held {count}', f'{count:,} locks held by one process: bytes of each lock, '
                       'and percent of a core while they are renewed',
                       self.rows(['Pawl', 'one key with a time to live, in C'],
                                 lambda: self.row(server, count), min(self.rounds, 3)))
            finally:
                server.stop()

    def row(self, server, count):
        f = self.figures(server, 'held', count, 3 if self.quick else 60)
        if f['lost'] or f['held'] != count:
            raise RuntimeError(f'{f["held"]:.0f} of {count} locks held, {f["lost"]:.0f} lost')
        return [{k: f[k] for k in ('client_bytes', 'server_bytes', 'client_percent',
                                   'server_percent', 'renewed', 'held', 'lost')},
                {'server_bytes': f['plain_server_bytes']}]


class Waiters(Servers):
    title = 'Many waiters, Redis'

    def measure(self):
        count = 200 if self.quick else 10000
        server, = self.live(1)
        try:
            yield (f'waiters {count}', f'{count:,} waiters of one lock, served in their order',
                   self.rows(['Pawl', "Pawl's scripts, plain client in C"],
                             lambda: self.row(server, count), self.rounds))
        finally:
            server.stop()

    def row(self, server, count):
        f = self.figures(server, 'waiters', count)
        return [{'rate': f['rate']}, {'rate': f['plain_rate']}]


class Failover(Special):
    title = 'Fail-over, Redis'
    WORDS = {'grant': 'Pawl: a waiter has the lock on the new master',
             'lost': 'Pawl: the last of 8 holders was told of the loss',
             'first': 'the first sentinel or node names the new master',
             'last': 'all sentinels or nodes name the new master'}

    def measure(self):
        text = output(sys.executable, os.path.join(HERE, '..', 'failover.py'), '--json',
                      *(['--quick'] if self.quick else []), self.built('tests', 'lib', 'actor'),
                      self.rounds)
        for line in text.splitlines():
            found = json.loads(line)
            rows = [[{'ms': row[k]} for k in self.WORDS] for row in found['rows']]
            yield (f'failover {found["what"]}', found['heading'],
                   self.together(list(self.WORDS.values()), rows))


class Delayed:
    """bench_delay in front of servers: the network, with a round trip."""

    def __init__(self, program, round_trip_us, ports):
        self.process = subprocess.Popen([program, str(round_trip_us), *(str(p) for p in ports)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ports = [int(w) for w in self.process.stdout.readline().split()]

    def stop(self):
        self.process.stdin.close()
        self.process.wait(20)


PATIENT = '/?timeout=30000'  # a busy machine won't reach this time-out


class Quorums(Servers):
    """What Delay and Quorum share: acquire and release of Pawl, redsync and node-redlock."""

    def pair(self, *words, folder=None):
        a50, a99, r50, r99 = (float(w) for w in output(*words, folder=folder).split())
        return {'acquire': a50, 'acquire99': a99, 'release': r50, 'release99': r99,
                'p50': a50 + r50}

    def url(self, ports):
        """The time-out decides how long a quorum waits for a node, so it stays the usual one."""
        more = PATIENT if self.quick or len(ports) == 1 else ''
        urls = [f'redis://127.0.0.1:{p}{more}' for p in ports]
        return '|'.join(['quorum:settle=1', *urls]) if len(ports) > 1 else urls[0]

    def seconds(self):
        return 0.2 if self.quick else 1

    def sides(self, ports):
        """Pawl, and the others on the same servers; (title, function or reason)."""
        pawl = [self.bench('bench_quorum'), 'pair', self.seconds(), self.url(ports)]
        yield 'Pawl', lambda: self.pair(*pawl)
        redsync, node = os.path.join(INTEROP, 'redsync'), os.path.join(INTEROP, 'node')
        script = os.path.join(TOP, 'interop', 'node', 'bench.js')
        list_of = ','.join(str(p) for p in ports)
        whole = max(1, int(self.seconds()))
        for title, words, needs, folder in (
                ('redsync (Go)', [redsync, 'bench', whole, list_of], redsync, None),
                ('redsync (Go), WithFailFast', [redsync, 'bench', whole, list_of, 'fast'], redsync,
                 None),
                ('redlock 5 (Node)', ['node', script, whole, list_of],
                 os.path.join(node, 'node_modules', 'redlock5'), node)):
            peer = Peer(title, words, needs, folder)
            yield title, peer.why_not('own', 1) or (
                lambda p=peer: self.pair(*p.command, folder=p.folder))


class Quorum(Quorums):
    title = 'Quorum of five Redis servers'

    def measure(self):
        servers = self.live(5)
        ports = [s.port for s in servers]
        slow = Delayed(self.bench('bench_delay'), 50000, [ports[0], ports[4]])
        try:
            yield 'quorum 1', 'one server, for comparison', self.turns(list(self.sides(ports[:1])))
            yield 'quorum 5', 'five servers', self.turns(list(self.sides(ports)))
            yield ('quorum slow', 'five servers, the last one 50 ms late',
                   self.turns(list(self.sides(ports[:4] + slow.ports[1:]))))
            yield ('quorum slow first', 'five servers, the first one 50 ms late',
                   self.turns(list(self.sides(slow.ports[:1] + ports[1:]))))
            yield ('quorum handover', 'from the release to the next owner', self.turns([
                ('Pawl, five servers', lambda: self.handover(self.url(ports))),
                ('Pawl, one server', lambda: self.handover(self.url(ports[:1])))]))
            servers[4].kill()
            yield ('quorum dead', 'five servers, the last one dead',
                   self.turns(list(self.sides(ports))))
        finally:
            slow.stop()
            for s in servers:
                s.stop()

    def handover(self, url):
        p50, p99 = (float(w) for w in output(self.bench('bench_quorum'), 'handover',
                                             50 if self.quick else 500, url).split())
        return {'p50': p50, 'p99': p99}


class Delay(Quorums):
    title = 'A network with a delay (a proxy in user space), Redis'

    def measure(self):
        servers = self.live(5)
        try:
            for ms in (2,) if self.quick else (1, 20):
                network = Delayed(self.bench('bench_delay'), ms * 1000, [s.port for s in servers])
                try:
                    yield from self.with_delay(ms, network.ports)
                finally:
                    network.stop()
        finally:
            for s in servers:
                s.stop()

    def with_delay(self, ms, ports):
        for name, used in (('one', ports[:1]), ('quorum', ports)):
            words = 'one server' if name == 'one' else 'quorum of five'
            sides = [(t, s if isinstance(s, str) else
                      lambda s=s: self.in_round_trips(s(), ports[0]))
                     for t, s in self.sides(used)]
            yield (f'delay {ms} {name}', f'a round trip of {ms} ms, {words}: round trips (medians '
                   'divided by the median of PING through the same proxy)', self.turns(sides))
            url = self.url(used)
            yield (f'delay {ms} {name} handover', f'a round trip of {ms} ms, {words}: round trips '
                   'from the release to the next owner',
                   self.turns([('Pawl', lambda u=url: self.handover(u, ms, ports[0]))]))

    def ping_us(self, port):
        """The median of PING with this delay."""
        words = f'run own 1 {300 if self.quick else 700}\ngo\n'
        done = subprocess.run([self.bench('bench_worker'), 'ping', f'127.0.0.1:{port}'],
                              input=words, stdout=subprocess.PIPE, text=True, check=True,
                              timeout=PATIENCE)
        sample = sorted(int(w) for w in done.stdout.split(' times')[1].split(' gaps')[0].split())
        return quantile(sample, 0.5) / 1000

    def in_round_trips(self, figures, port):
        ping = self.ping_us(port)
        return {'ping': ping, 'acquire_trips': figures['acquire'] / ping,
                'release_trips': figures['release'] / ping, **figures}

    def handover(self, url, ms, port):
        rounds = 5 if self.quick else 40
        p50, p99 = (float(w) for w in output(self.bench('bench_quorum'), 'handover', rounds, url,
                                             max(3000 * ms, 3000)).split())
        ping = self.ping_us(port)
        return {'ping': ping, 'p50': p50, 'p99': p99, 'handover_trips': p50 / ping}


SPECIAL = {'start': Start, 'calls': Calls, 'held': Held, 'waiters': Waiters, 'failover': Failover,
           'quorum': Quorum, 'delay': Delay}
