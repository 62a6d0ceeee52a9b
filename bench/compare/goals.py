#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The goals for Pawl's speed, judged by the results of a run: for each goal the measured figure
with its spread, the limit, and whether the goal is met. A goal whose measurement is missing is said
so.

    goals.py RESULTS.JSON     prints the table

A figure is a median of the rounds, with the quartiles in brackets. A ratio is made of two slices of
the same round. A goal about every peer (or every number of contenders) shows the worst one.
"""
import json
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from turns import middle  # noqa: E402

PLAIN, SCRIPTS = 'SET NX PX and a script, in C', "Pawl's scripts, plain client in C"
PIPELINED = 'the same, pipelined on 50 connections'
# Rows that are no library of others: Pawl, and programs that show what a part of the work costs.
OWN = (SCRIPTS, PLAIN, PIPELINED, 'Pawl', "Pawl, Redisson's layout", 'Pawl, `local:`',
       'Pawl, tables', 'Pawl, `layout=advisory`', 'Pawl, `layout=session`',
       'one PING after a sleep')


class Missing(Exception):
    """There are no figures; the text says which."""


class Absent(Missing):
    """The whole service was not part of the run."""


class Results:
    def __init__(self, results):
        self.services = {**dict.fromkeys(results.get('failed', {}), {'results': {}}),
                         **results['services']}

    def service(self, name):
        if name not in self.services:
            raise Absent(f'{name}: not measured')
        return self.services[name]['results']

    def workloads(self, service, mode):
        """Keys of a mode, as 'same 16', in their order."""
        found = [k for k in self.service(service) if k.split()[0] == mode]
        if not found:
            raise Missing(f'{service}, {mode}: not in this run')
        return found

    def row(self, service, workload, title):
        found = self.service(service).get(workload, {}).get(title)
        if not isinstance(found, dict):
            raise Missing(f'{service}, {workload}, {title}: {found or "not in this run"}')
        return found

    def others(self, service, workload):
        """Titles of the other libraries that were measured there."""
        found = self.service(service).get(workload, {})
        titles = [t for t, r in found.items() if isinstance(r, dict) and t not in OWN]
        if not titles:
            raise Missing(f'{service}, {workload}: no peer was measured')
        return titles

    def figure(self, service, workload, title, key):
        """(lower quartile, median, upper quartile)"""
        slices = self.row(service, workload, title)['slices']
        if not all(key in s for s in slices):
            raise Missing(f'{service}, {workload}, {title}: no figure {key}')
        return middle([s[key] for s in slices])

    def ratio(self, service, a, b, key):
        """a, b: (workload, title). The figure of a divided by that of b in the same round."""
        left, right = (self.row(service, *side)['slices'] for side in (a, b))
        values = [x[key] / y[key] for x, y in zip(left, right)
                  if key in x and y.get(key, 0) > 0]
        if not values:
            raise Missing(f'{service}, {a[0]}: no figure {key} of {a[1]} and {b[1]}')
        return middle(values)


class Goal:
    """limit: at most (sign '<=') or at least ('>=') so much."""

    def __init__(self, number, words, sign, limit, measure, unit=''):
        self.number, self.words, self.sign, self.limit = number, words, sign, limit
        self.measure, self.unit = measure, unit

    def judge(self, results):
        """(goal, words, limit, figure, verdict), or None if the run left the whole service out."""
        limit = f'{"at most" if self.sign == "<=" else "at least"} {self.limit:.3g}{self.unit}'
        try:
            (low, value, high), where = self.measure(results)
        except Absent:
            return None
        except Missing as e:
            return self.number, self.words, limit, str(e), 'not measured'
        met = value <= self.limit if self.sign == '<=' else value >= self.limit
        figure = f'{value:.3g}{self.unit} ({low:.3g} to {high:.3g})'
        return (self.number, self.words, limit, figure + (f', {where}' if where else ''),
                'met' if met else 'missed')


# ---- how figures are made ------------------------------------------------------------------------

def worst(candidates, most):
    """Of (figure, where): the one with the largest or the smallest median."""
    found = list(candidates)
    if not found:
        raise Missing('no figures to compare')
    return (max if most else min)(found, key=lambda c: c[0][1])


def plain_figure(service, workload, title, key):
    return lambda r: (r.figure(service, workload, title, key), '')


def plain_ratio(service, a, b, key):
    return lambda r: (r.ratio(service, a, b, key), '')


def first_of(r, service, mode):
    """The workload of that mode with the most contenders."""
    return r.workloads(service, mode)[-1]


def against_all(service, modes, pawl, key, faster):
    """The worst ratio to any peer in any workload of these modes: Pawl's figure divided by the
    peer's if more is better (faster), else the peer's divided by Pawl's."""
    def measure(r):
        def candidates():
            for mode in modes:
                for w in r.workloads(service, mode):
                    r.row(service, w, pawl)  # without Pawl's figures the goal can't be judged
                    for title in r.others(service, w):
                        sides = ((w, pawl), (w, title)) if faster else ((w, title), (w, pawl))
                        try:
                            yield r.ratio(service, *sides, key), f'{w}, {title}'
                        except Missing:
                            pass  # nobody ever waited, or no hand-over in any slice
        return worst(candidates(), most=False)
    return measure


def alone_against_all(r):
    w = 'own 1'
    return worst(((r.ratio('redis', (w, 'Pawl'), (w, t), 'rate'), t)
                  for t in r.others('redis', w)), most=False)


def pipelined(workload):
    def measure(r):
        best = max((t for t in (PLAIN, PIPELINED)), key=lambda t: r.figure(
            'redis', workload, t, 'rate')[1])
        return r.ratio('redis', (workload, 'Pawl'), (workload, best), 'rate'), f'beside {best}'
    return measure


def flat(r):
    """In each round: the largest rate divided by the smallest, over the numbers of contenders."""
    rows = [r.row('redis', w, 'Pawl')['slices'] for w in r.workloads('redis', 'same')]
    spread = [max(s['rate'] for s in at) / max(min(s['rate'] for s in at), 1e-9)
              for at in zip(*rows)]
    return middle(spread), f'{len(rows)} numbers of contenders'


def handover_in_pings(r):
    w = first_of(r, 'redis', 'handover')
    gaps, pings = r.row('redis', w, 'Pawl')['slices'], r.row('redis', w,
                                                           'one PING after a sleep')['slices']
    if not all('gap50' in s for s in gaps):
        raise Missing('redis, handover: nobody waited')
    return middle([g['gap50'] / p['p50'] for g, p in zip(gaps, pings)]), ''


def last_figure(service, mode, title, key):
    return lambda r: (r.figure(service, first_of(r, service, mode), title, key),
                      first_of(r, service, mode))


def last_ratio(service, mode, pawl, title, key):
    def measure(r):
        w = first_of(r, service, mode)
        return r.ratio(service, (w, pawl), (w, title), key), w
    return measure


def rows_of(service, pawl, peer):
    """Every workload with hand-overs or pairs: the worst rate beside the peer."""
    def measure(r):
        return worst(((r.ratio(service, (w, pawl), (w, peer), 'rate'), w)
                      for mode in ('own', 'same') for w in r.workloads(service, mode)), most=False)
    return measure


def worst_delay(kind, key):
    """The largest number of round trips over all delays; `kind` is one or quorum."""
    def measure(r):
        def candidates():
            for w in r.workloads('delay', 'delay'):
                words = w.split()
                if words[2] == kind and (len(words) == 4) == (key == 'handover_trips'):
                    yield r.figure('delay', w, 'Pawl', key), f'{words[1]} ms'
        return worst(candidates(), most=True)
    return measure


POLL = 'INSERT, and again after 5 ms'
RUN, FLOCK = 'Pawl, `pawl run -n NAME true`', 'flock(1), `flock -n FILE true`'


def run_beside_flock(r):
    return r.ratio('start', ('run', RUN), ('run', FLOCK), 'p50'), ''


def inverse(service, pawl, peer):
    """Time of a pair beside the peer's: its rate divided by Pawl's."""
    return plain_ratio(service, ('own 1', peer), ('own 1', pawl), 'rate')


GOALS = [
    Goal('1', 'Redis, pair: time beside a plain blocking client with the same scripts', '<=', 0.75,
         inverse('redis', 'Pawl', SCRIPTS)),
    Goal('1', 'Redis, pair: CPU of the client beside the same', '<=', 1.1,
         plain_ratio('redis', ('own 1', 'Pawl'), ('own 1', SCRIPTS), 'cpu_us')),
    Goal('1', 'Redis, pair: time beside SET NX PX and a script', '<=', 0.75,
         inverse('redis', 'Pawl', PLAIN)),
    Goal('1', 'Redis, pair: CPU of the client beside SET NX PX and a script', '<=', 1.1,
         plain_ratio('redis', ('own 1', 'Pawl'), ('own 1', PLAIN), 'cpu_us')),
    Goal('1', 'Redis, pair: rate beside the fastest peer', '>=', 1, alone_against_all),
    Goal('1', 'Redis: system calls of the client for each operation', '<=', 2,
         plain_figure('calls', 'calls redis', 'Pawl', 'calls')),
    Goal('2', '64 threads with a lock each: rate beside 64 plain connections', '>=', 2,
         last_ratio('redis', 'shared', 'Pawl', SCRIPTS, 'rate')),
    Goal('2', 'the same beside 64 connections with SET NX PX and a script', '>=', 2,
         last_ratio('redis', 'shared', 'Pawl', PLAIN, 'rate')),
    *(Goal('2', f'{n} in flight: rate beside the best pipelining client', '>=', 1.2,
           pipelined(f'async {n}')) for n in (1, 10, 100, 1000, 10000)),
    Goal('2', 'Redis, pair: CPU of the server beside SET NX PX and a script', '<=', 1.5,
         plain_ratio('redis', ('own 1', 'Pawl'), ('own 1', PLAIN), 'server_us')),
    Goal('3', 'hot lock: largest beside smallest rate over the numbers of contenders', '<=', 1.15,
         flat),
    Goal('3', 'hot lock: rate beside the strongest peer at any number of contenders', '>=', 1,
         against_all('redis', ('same',), 'Pawl', 'rate', True)),
    Goal('3', "hot lock: a peer's median hand-over beside Pawl's", '>=', 1,
         against_all('redis', ('same',), 'Pawl', 'gap50', False)),
    Goal('3', "hot lock: a peer's 99th percentile of hand-overs beside Pawl's", '>=', 1,
         against_all('redis', ('same',), 'Pawl', 'gap99', False)),
    Goal('3', 'hand-over between two processes: median, in PINGs', '<=', 2.5, handover_in_pings),
    Goal('3', 'hot lock: share of the rate with half of the waiters stopped', '>=', 0.25,
         last_figure('redis', 'stopped', 'Pawl', 'kept')),
    Goal('3', 'hot lock: share of the rate with half of the waiters killed', '>=', 0.25,
         last_figure('redis', 'killed', 'Pawl', 'kept')),
    Goal('4', "`local:`, hand-over between two processes: median beside flock(2)'s", '<=', 1.2,
         last_ratio('local', 'handover', 'Pawl, `local:`', 'flock(2)', 'gap50')),
    Goal('4', '`local:`, pair: time beside flock(2)', '<=', 0.3,
         inverse('local', 'Pawl, `local:`', 'flock(2)')),
    Goal('4', '`local:`, pair: time beside flock(2) with a token in the file', '<=', 0.3,
         inverse('local', 'Pawl, `local:`', 'flock(2) and a counter in the file')),
    Goal('4', '`pawl run true`: time beside `flock true`', '<=', 1.5, run_beside_flock),
    *(Goal('5', f'1,000,000 held locks: {words}', '<=', limit,
           plain_figure('held', 'held 1000000', 'Pawl', key), unit)
      for words, key, limit, unit in (
          ('bytes of each lock in the client', 'client_bytes', 400, ''),
          ('bytes of each lock in the server', 'server_bytes', 256, ''),
          ('CPU of the client', 'client_percent', 2, ' %'),
          ('CPU of the server', 'server_percent', 2, ' %'), ('lost', 'lost', 0, ''))),
    Goal('6', 'ZooKeeper: rate beside Curator, worst row', '>=', 2,
         rows_of('zk', 'Pawl', 'Curator (Java)')),
    Goal('6', "etcd: rate beside its Go client, worst row", '>=', 1.2,
         rows_of('etcd', 'Pawl', "etcd's own client (Go)")),
    *(goal for service, name in (('postgres', 'PostgreSQL'), ('mysql', 'MariaDB')) for goal in (
        Goal('6', f'{name}, rows: rate beside insert-and-poll, alone', '>=', 1,
             plain_ratio(service, ('own 1', 'Pawl, tables'), ('own 1', POLL), 'rate')),
        Goal('6', f'{name}, rows: rate beside insert-and-poll, 64 waiters', '>=', 5,
             last_ratio(service, 'same', 'Pawl, tables', POLL, 'rate')))),
    Goal('6', 'PostgreSQL, `layout=advisory`: rate beside pg_advisory_lock, 64 waiters', '>=',
         1 / 1.3, last_ratio('postgres', 'same', 'Pawl, `layout=advisory`', 'pg_advisory_lock',
                             'rate')),
    Goal('6', 'MariaDB, `layout=session`: rate beside GET_LOCK, 64 waiters', '>=', 1 / 1.3,
         last_ratio('mysql', 'same', 'Pawl, `layout=session`', 'GET_LOCK', 'rate')),
    *(Goal('7', f'with a delay, {words}: round trips {what}', '<=', limit, worst_delay(kind, key))
      for kind, words in (('one', 'one server'), ('quorum', 'quorum of five'))
      for what, key, limit in (('to acquire', 'acquire_trips', 1.1),
                               ('to release', 'release_trips', 1.1),
                               ('from a release to the next owner', 'handover_trips', 1.5))),
]
COLUMNS = ['goal', '', 'limit', 'measured', '']


def judge(results):
    """Rows for the goals whose service was part of the run."""
    return [row for row in (g.judge(Results(results)) for g in GOALS) if row]


def main():
    with open(sys.argv[1], encoding='utf-8') as f:
        rows = judge(json.load(f))
    for number, words, limit, figure, verdict in rows:
        print(f'{number}  {words}\n     {verdict}: {limit}; {figure}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
