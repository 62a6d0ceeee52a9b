#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""etcd.py BUILD [GO_PEER]: Pawl beside etcd's Go client (concurrency.Mutex) on one private server.

The two take turns in short slices; a ratio is that of two slices side by side, and of all ratios
the median and the quartiles are shown. Without GO_PEER: Pawl alone.
"""
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'tests', 'etcd'))
sys.dont_write_bytecode = True
from etcds import Etcd  # noqa: E402

SLICES = int(os.environ.get('BENCH_SLICES', 7))
SLICE_MS = 700
SHAPES = (('own', 1, '1 client'), ('own', 8, '8 clients, a name each'),
          ('same', 2, '2 clients on one name'), ('same', 16, '16 clients on one name'),
          ('same', 64, '64 clients on one name'))


def measure(*command):
    done = subprocess.run([str(w) for w in command], stdout=subprocess.PIPE, check=True)
    return [float(w) for w in done.stdout.split()]


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f'{middle:.2f} ({low:.2f}-{high:.2f})'


def main():
    build, peer = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    server = Etcd()
    try:
        version = subprocess.run(['etcd', '--version'], stdout=subprocess.PIPE,
                                 check=True).stdout.split(b'\n')[0].decode()
        print(f'# {version}, one server, no fsync; {SLICES} slices of {SLICE_MS} ms each')
        for kind, clients, words in SHAPES:
            mine, theirs = [], []
            for _ in range(SLICES):
                mine.append(measure(os.path.join(build, 'bench', 'bench_etcd'), server.url(), kind,
                                    clients, SLICE_MS))
                if peer:
                    theirs.append(measure(peer, f'127.0.0.1:{server.port}', kind, clients,
                                          SLICE_MS))
            line = '%s: Pawl %.0f pairs/s, median %.0f us, 99%% %.0f us' % (
                words, *(statistics.median(column) for column in zip(*mine)))
            if peer:
                line += '; Go %.0f pairs/s, %.0f us, %.0f us; ' % tuple(
                    statistics.median(column) for column in zip(*theirs))
                line += 'times Go: ' + quartiles([m[0] / max(t[0], 1) for m, t in
                                                  zip(mine, theirs)])
            print(line, flush=True)
    finally:
        server.stop()


if __name__ == '__main__':
    main()
