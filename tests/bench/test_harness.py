#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The harness of bench/compare: its counts, and its reports about failing workers and about goals.

Wrong figures look like right ones, so the counts are checked against the lock's own count.
"""
import json
import os
import re
import sys
import tempfile

sys.dont_write_bytecode = True
BUILD = sys.argv.pop(1)
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
sys.path.insert(0, os.path.join(TOP, 'bench', 'compare'))
import peers  # noqa: E402 (also finds tests/lib)
import cases  # noqa: E402
from compare import Crew  # noqa: E402
from goals import GOALS, judge  # noqa: E402
from report import publish, write  # noqa: E402
from turns import take_turns  # noqa: E402
from workers import Worker, one_slice  # noqa: E402

WORKER = os.path.join(BUILD, 'bench', 'bench_worker')
LATE, WARM_UP = 1, 3  # rounds of a contender that don't count


def case(function):
    return cases.case(function.__name__.replace('_', ' '))(function)


class Nothing:
    """A service without a server."""
    pids = ()
    halved_ms = 200

    def cost(self):
        return {}


def worker_in(script):
    """A worker that is a line of shell."""
    return peers.Peer('shell', ['sh', '-c', script])


@case
def the_count_is_that_of_the_lock():
    """The lock increments a number in its file at each acquire."""
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        worker = Worker(peers.Peer('x', [WORKER, 'flock-token', folder]))
        got = one_slice(Nothing(), worker, 'own', 1, 100)
        worker.stop()
        name, = (f for f in os.listdir(folder))
        with open(os.path.join(folder, name), 'rb') as f:
            token = int.from_bytes(f.read(8), 'little')
    assert token == got['operations'] + LATE + WARM_UP, (token, got['operations'])


@case
def contenders_of_one_lock_are_all_counted():
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        worker = Worker(peers.Peer('x', [WORKER, 'flock-token', folder]))
        worker.ready('same', 4, 200)
        ran, _, _ = worker.go()
        worker.stop()
        name, = (f for f in os.listdir(folder))
        with open(os.path.join(folder, name), 'rb') as f:
            token = int.from_bytes(f.read(8), 'little')
    counted = token - 4 * WARM_UP
    assert ran['rounds'] <= counted <= ran['rounds'] + 4 * LATE, (counted, ran)
    assert ran['handovers'] <= ran['rounds'] and ran['elapsed_us'] >= 200000, ran


@case
def stopped_and_killed_waiters_are_survived():
    with tempfile.TemporaryDirectory(dir='/dev/shm') as folder:
        worker = Worker(peers.Peer('x', [WORKER, 'flock', folder], modes=('stopped', 'killed')))
        for mode in ('stopped', 'killed'):
            got = one_slice(Nothing(), worker, mode, 4, 200)
            assert got['kept'] >= 0 and got['operations'] > 0, got
        worker.stop()


@case
def a_worker_that_fails_has_no_figures():
    ready = 'read a; echo ready; read b; '
    scripts = {
        'at once': 'echo no server >&2; exit 1',
        'in the measurement': ready + 'echo lost the lock >&2; exit 1',
        'without a word': 'exit 0',
        'nonsense': ready + 'echo ran fast times gaps; read c',
    }
    for what, script in scripts.items():
        crew = Crew(Nothing())
        found = take_turns(2, [crew.side(worker_in(script), 'own', 1, 50)])
        crew.stop()
        assert found['shell'].startswith('failed: '), (what, found)
    crew = Crew(Nothing())
    found = take_turns(1, [crew.side(worker_in(scripts['in the measurement']), 'own', 1, 50)])
    assert 'lost the lock' in found['shell'], found


@case
def a_failure_in_a_later_round_is_not_hidden():
    figures = iter([{'rate': 100.0}, {'rate': 100.0}])

    def fails_later():
        try:
            return next(figures)
        except StopIteration:
            raise RuntimeError('the lock was lost') from None
    found = take_turns(3, [('good', lambda: {'rate': 50.0}), ('bad', fails_later)])
    assert found['bad'] == 'failed: the lock was lost' and found['good']['rate'] == 50, found


@case
def a_missing_peer_is_said_so():
    missing = peers.Peer('x', ['x'], needs='/nowhere/x')
    assert 'make bench-peers' in missing.why_not('own', 1)
    assert 'no such lock' in peers.Peer('x', ['x']).why_not('permits', 1)
    assert 'more than 512' in peers.Peer('x', ['x']).why_not('same', 1000)


@case
def ratios_are_of_the_same_round():
    mine, theirs = iter([100.0, 10.0, 1000.0]), iter([50.0, 5.0, 500.0])
    found = take_turns(3, [('a', lambda: {'rate': next(mine)}),
                           ('b', lambda: {'rate': next(theirs)})])
    assert found['b']['ratio'] == [2, 2, 2], found


def row(**figures):
    return take_turns(3, [('x', lambda: dict(figures))])['x']


def run_of(services, failed=None):
    return {'machine': 'a test', 'rounds': 3, 'ms': 1, 'quick': True, 'failed': failed or {},
            'services': {n: {'title': n, 'results': r} for n, r in services.items()}}


def verdicts(results, words):
    return [r for r in judge(results) if words in r[1]]


@case
def goals_are_met_missed_or_not_measured():
    title = 'Pawl, `pawl run -n NAME true`'
    flock = 'flock(1), `flock -n FILE true`'
    for us, verdict in ((1400, 'met'), (1600, 'missed')):
        run = run_of({'start': {'run': {title: row(p50=us), flock: row(p50=1000)}}})
        (_, _, _, figure, said), = verdicts(run, 'pawl run')
        assert said == verdict and figure.startswith(f'{us / 1000:.3g} '), (figure, said)
    run = run_of({'start': {'run': {title: 'failed: x', flock: row(p50=1000)}}})
    (_, _, _, figure, said), = verdicts(run, 'pawl run')
    assert said == 'not measured' and 'failed: x' in figure, figure
    assert not judge(run_of({})), 'goals of services that were not in the run'
    said = {r[4] for r in judge(run_of({}, {'zk': 'failed: no server'}))}
    assert said == {'not measured'}, said


@case
def a_point_without_pawl_is_not_left_out_of_a_goal():
    good = {'Pawl': row(rate=200, gap50=1, gap99=1), 'x': row(rate=100, gap50=2, gap99=2)}
    run = run_of({'redis': {'same 2': good, 'same 256': {**good, 'Pawl': 'failed: x'}}})
    for r in verdicts(run, 'hot lock'):
        assert r[4] == 'not measured', r
    run = run_of({'redis': {'same 2': good, 'same 256': good}})
    assert [r[4] for r in verdicts(run, 'hot lock: rate beside')] == ['met']


@case
def every_goal_can_be_judged():
    assert len(judge(run_of({}, dict.fromkeys(
        ('local', 'redis', 'zk', 'etcd', 'postgres', 'mysql', 'start', 'calls', 'held', 'delay'),
        'failed: x')))) == len(GOALS)


@case
def a_published_report_has_its_plots():
    run = run_of({'redis': {'own 1': {'Pawl': row(rate=1, p50=1, p99=2)}}})
    with tempfile.TemporaryDirectory() as folder:
        publish(run, folder)
        with open(os.path.join(folder, 'benchmark-results.md'), encoding='utf-8') as f:
            links = re.findall(r'\]\((images/[^)]*)\)', f.read())
        assert links and all(os.path.exists(os.path.join(folder, name)) for name in links), links


@case
def the_report_names_all_peers_and_is_written():
    run = run_of({'redis': {'own 1': {'Pawl': row(rate=1, p50=1, p99=2), 'x & y': 'not here'}}})
    with tempfile.TemporaryDirectory() as folder:
        write(run, folder)
        for name in ('report.md', 'report.html'):
            with open(os.path.join(folder, name), encoding='utf-8') as f:
                text = f.read()
            assert 'not here' in text and 'quick run' in text, name
        with open(os.path.join(folder, 'results.json'), encoding='utf-8') as f:
            assert json.load(f)['services']


if __name__ == '__main__':
    sys.exit(cases.run_in_turn())
