#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py BUILD [--rounds N] [--ms N] [--out FOLDER] [SERVICE ...]: Pawl beside its peers.

Every service gets a private server. For each workload all libraries take turns, in slices of --ms,
for --rounds rounds, so that noise of the machine meets all of them. A ratio is that of two slices
of the same round; the median of the rounds counts, and the quartiles are its spread. The results
are in FOLDER (default build/compare): results.json, report.md and report.html (report.py).

A worker measures one library in one language. The worker reads lines and writes lines:

    run MODE CONTENDERS MS    contenders open their clients and take their lock a few times, then
    ready                     says the worker;
    go                        now all contenders acquire and release as fast as they can, for MS
    ran COUNT CHANGES CPU NS NS ...
                              how often they had a lock, how often another contender had it before,
                              the CPU time of the worker (us), and a sample of the times of rounds

MODE is `own` (a client and a lock for each contender), `shared` (a lock each, one client) or `same`
(a client each, one lock). The time of a round is that of acquire and release; with `same`, that of
the acquire alone, from the call to the grant, and the rate counts hand-overs only: a library
whose holder takes the lock again at once, past the waiters, gains nothing by that.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
from peers import SERVICES  # noqa: E402

PATIENCE = 180
SHARED = (8, 64)


class Worker:
    def __init__(self, peer):
        self.peer = peer
        self.process = subprocess.Popen(peer.command, stdin=subprocess.PIPE, cwd=peer.folder,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.words = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stderr:
            self.words = [*self.words[-4:], line.strip()]

    def _line(self):
        """The next line with a meaning; libraries print notes of their own."""
        timer = threading.Timer(PATIENCE, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith(('ready', 'ran ')):
                    return line
            raise RuntimeError('; '.join(self.words) or f'no answer within {PATIENCE} s')
        finally:
            timer.cancel()

    def _say(self, words):
        self.process.stdin.write(words + '\n')
        self.process.stdin.flush()

    def ready(self, mode, contenders, ms):
        self._say(f'run {mode} {contenders} {ms}')
        self._line()

    def go(self):
        """(rounds, hand-overs, CPU in us, sorted sample in ns)"""
        self._say('go')
        count, changes, cpu, *sample = map(int, self._line().split()[1:])
        return count, changes, cpu, sorted(sample)

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def server_cpu_us(pids):
    """CPU time that these processes have used so far."""
    ticks = 0
    for pid in pids:
        with open(f'/proc/{pid}/stat', encoding='utf-8') as f:
            fields = f.read().rsplit(')', 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks * 1000000 // os.sysconf('SC_CLK_TCK')


def quantile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0


def one_slice(service, worker, mode, contenders, ms):
    worker.ready(mode, contenders, ms)
    cost, cpu = service.cost(), server_cpu_us(service.pids)
    count, changes, used, sample = worker.go()
    if mode == 'same':
        count = changes
    after, n = service.cost(), max(count, 1)
    result = {'rate': count * 1000 / ms, 'cpu_us': used / n, 'p50': quantile(sample, 0.5) / 1000,
              'p99': quantile(sample, 0.99) / 1000, 'p999': quantile(sample, 0.999) / 1000,
              'quantiles': [quantile(sample, i / 100) / 1000 for i in range(101)]}
    if service.pids:
        result['server_us'] = (server_cpu_us(service.pids) - cpu) / n
    if cost:
        result['commands'], result['bytes'] = ((b - a) / n for a, b in zip(cost, after))
    return result


def summary(slices, first):
    """The median slice of a library, and its rate beside that of Pawl in the same rounds."""
    if not slices:
        return None
    found = {k: statistics.median(s[k] for s in slices) for k in slices[0] if k != 'quantiles'}
    found['quantiles'] = [statistics.median(c) for c in zip(*(s['quantiles'] for s in slices))]
    ratios = sorted(a['rate'] / b['rate'] for a, b in zip(first, slices) if b['rate'])
    if ratios:
        found['ratio'] = [quantile(ratios, 0.25), statistics.median(ratios),
                          quantile(ratios, 0.75)]
    return found


def workloads(service):
    yield 'own', 1
    yield 'own', 8
    for n in SHARED:
        yield 'shared', n
    for n in service.contenders:
        yield 'same', n


def measure(service, rounds, ms):
    """{workload: {title: summary or the reason why there is none}}"""
    peers, results, workers = service.peers(), {}, {}
    reasons = {p.title: f'not here: {os.path.basename(p.missing)} is missing'
               for p in peers if p.missing}
    for mode, n in workloads(service):
        slices = {p.title: [] for p in peers}
        why = dict(reasons)
        for number in range(rounds):
            for p in peers[number % len(peers):] + peers[:number % len(peers)]:
                if p.missing or p.title in why or mode not in p.modes or n > p.most:
                    continue
                try:
                    worker = workers.get(p.title) or workers.setdefault(p.title, Worker(p))
                    slices[p.title].append(one_slice(service, worker, mode, n, ms))
                except (RuntimeError, OSError, ValueError) as e:
                    why[p.title] = f'failed: {e}'[:200]
                    workers.pop(p.title).stop()
        first = slices[peers[0].title]
        results[f'{mode} {n}'] = {p.title: summary(slices[p.title], first) or
                                  why.get(p.title, 'not measured: too many, or not its way')
                                  for p in peers}
        rate = results[f'{mode} {n}'][peers[0].title]
        print(f'#   {mode} {n}: {rate["rate"]:.0f}/s' if isinstance(rate, dict) else f'#   {rate}',
              file=sys.stderr, flush=True)
    for w in workers.values():
        w.stop()
    return results


def one_service(name, options):
    service = SERVICES[name](options.build)
    try:
        return {'title': service.title, 'results': measure(service, options.rounds, options.ms)}
    finally:
        service.stop()


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('build')
    parser.add_argument('services', nargs='*', default=list(SERVICES))
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--ms', type=int, default=700)
    parser.add_argument('--out', default=os.path.join(HERE, '..', '..', 'build', 'compare'))
    parser.add_argument('--one', action='store_true', help='print the results of one service')
    options = parser.parse_args()
    if options.one:
        json.dump(one_service(options.services[0], options), sys.stdout)
        return 0
    all_results = {'machine': machine(), 'rounds': options.rounds, 'ms': options.ms, 'services': {}}
    for name in options.services:
        print(f'# {name}', file=sys.stderr, flush=True)
        # A process for each: the helpers that start servers have the same names.
        done = subprocess.run([sys.executable, __file__, options.build, name, '--one', '--rounds',
                               str(options.rounds), '--ms', str(options.ms)],
                              stdout=subprocess.PIPE, check=True)
        all_results['services'][name] = json.loads(done.stdout)
    from report import write
    os.makedirs(options.out, exist_ok=True)
    write(all_results, options.out)
    print(f'# {os.path.relpath(options.out)}/report.md, report.html', file=sys.stderr)
    return 0


def machine():
    with open('/proc/loadavg', encoding='utf-8') as f:
        load = f.read().split()[0]
    return f'{os.cpu_count()} CPUs, Linux {os.uname().release}, load {load} before the run'


if __name__ == '__main__':
    sys.exit(main())
