#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py BUILD [--quick] [--no-peers] [--rounds N] [--ms N] [--out FOLDER] [SERVICE ...]

Pawl beside its peers. docs/benchmarks.md says what each workload measures and how ratios are made.
Every service gets a private server. For each workload all libraries take turns, in slices of --ms,
for --rounds rounds (turns.py). The results are in FOLDER (default build/compare): results.json,
report.md and report.html, with a table of the goals (goals.py). --quick runs everything in small,
which shows that the harness works and says nothing about speed.
"""
import argparse
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import peers  # noqa: E402
from peers import SERVICES  # noqa: E402
from special import SPECIAL  # noqa: E402
from turns import take_turns  # noqa: E402
from workers import Worker, one_slice  # noqa: E402


def say(words):
    print(f'# {words}', file=sys.stderr, flush=True)


def shown(results):
    """The first side in a few words, and the others that have no figures because they failed."""
    units = {'rate': '/s', 'p50': ' us', 'ms': ' ms', 'kept': ' of the rate before',
             'calls': ' system calls', 'client_bytes': ' bytes in the client',
             'server_bytes': ' bytes in the server',
             'acquire_trips': ' round trips to acquire', 'release_trips': ' round trips to release',
             'handover_trips': ' round trips to the next owner'}
    first = next(iter(results.values()))
    words = first if isinstance(first, str) else ', '.join(
        f'{first[k]:.4g}{unit}' for k, unit in units.items() if k in first)
    failed = [f'; {t}: {r}' for t, r in list(results.items())[1:] if str(r).startswith('failed')]
    return words + ''.join(failed)


class Crew:
    """The workers of one service, started when they are first needed."""

    def __init__(self, service):
        self.service, self.workers = service, {}

    def side(self, peer, mode, contenders, ms):
        why = peer.why_not(mode, contenders)
        return peer.title, why or (lambda: self.slice(peer, mode, contenders, ms))

    def slice(self, peer, mode, contenders, ms):
        if peer.title not in self.workers:
            self.workers[peer.title] = Worker(peer)
        try:
            return one_slice(self.service, self.workers[peer.title], mode, contenders, ms)
        except Exception:
            self.workers.pop(peer.title).stop()
            raise

    def stop(self):
        for w in self.workers.values():
            w.stop()


def measure_service(name, options):
    service = SERVICES[name](options.build, options.quick)
    crew, results = Crew(service), {}
    try:
        for mode, n in service.workloads():
            sides = [crew.side(p, mode, n, options.ms) for p in service.peers()
                     if mode in p.modes or not p.helper]
            results[f'{mode} {n}'] = take_turns(options.rounds, sides)
            say(f'  {mode} {n}: {shown(results[f"{mode} {n}"])}')
    finally:
        crew.stop()
        service.stop()
    return {'title': service.title, 'results': results}


def measure_special(name, options):
    special = SPECIAL[name](options)
    results, headings = {}, {}
    for key, heading, found in special.measure():
        results[key], headings[key] = found, heading
        say(f'  {key}: {shown(found)}')
    return {'title': special.title, 'headings': headings, 'results': results}


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('build')
    parser.add_argument('services', nargs='*', metavar='SERVICE',
                        help=', '.join([*SERVICES, *SPECIAL]))
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--no-peers', action='store_true',
                        help='leave out what make bench-peers fetches')
    parser.add_argument('--rounds', type=int)
    parser.add_argument('--ms', type=int)
    parser.add_argument('--out', default=os.path.join(HERE, '..', '..', 'build', 'compare'))
    parser.add_argument('--publish', help='a folder for benchmark-results.md and images/')
    parser.add_argument('--one', action='store_true', help='print the results of one service')
    options = parser.parse_intermixed_args()
    peers.use_peers = not options.no_peers
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.ms = options.ms or (100 if options.quick else 700)
    options.services = options.services or [*SERVICES, *SPECIAL]
    options.build = os.path.abspath(options.build)
    unknown = [s for s in options.services if s not in SERVICES and s not in SPECIAL]
    if unknown:
        parser.error(f'there is no service {unknown[0]}; there are {", ".join(SERVICES)} and '
                     f'{", ".join(SPECIAL)}')
    return options


def one_service(name, options):
    """In a process of its own: the helpers that start servers have the same names."""
    words = [sys.executable, __file__, options.build, name, '--one', '--rounds',
             str(options.rounds), '--ms', str(options.ms), *(['--quick'] if options.quick else []),
             *(['--no-peers'] if options.no_peers else [])]
    done = subprocess.run(words, stdout=subprocess.PIPE)
    if done.returncode:
        return f'failed: exit status {done.returncode}, see the messages of the run'
    return json.loads(done.stdout)


def main():
    options = arguments()
    if options.one:
        name = options.services[0]
        found = (measure_service if name in SERVICES else measure_special)(name, options)
        json.dump(found, sys.stdout)
        return 0
    results = {'machine': machine(), 'rounds': options.rounds, 'ms': options.ms,
               'quick': options.quick, 'services': {}, 'failed': {}}
    for name in options.services:
        say(name)
        found = one_service(name, options)
        results['failed' if isinstance(found, str) else 'services'][name] = found
    from report import publish, write
    os.makedirs(options.out, exist_ok=True)
    write(results, options.out)
    say(f'{os.path.relpath(options.out)}/report.md, report.html')
    if options.publish:
        publish(results, options.publish)
    for name, why in results['failed'].items():
        say(f'{name} {why}')
    return 1 if results['failed'] else 0


def machine():
    with open('/proc/loadavg', encoding='utf-8') as f:
        load = f.read().split()[0]
    with open('/proc/cpuinfo', encoding='utf-8') as f:
        model = next((line.split(':', 1)[1].strip() for line in f if line.startswith('model name')),
                     'unknown')
    return (f'{os.cpu_count()} CPUs ({model}), Linux {os.uname().release}, load {load} before the '
            'run')


if __name__ == '__main__':
    sys.exit(main())
