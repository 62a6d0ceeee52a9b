#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""zk.py BUILD [SECONDS]: acquire and release on a private ZooKeeper server: Pawl, Curator, kazoo.

Each figure is the median of three rounds in which the libraries take turns. "Alone" is one client
with one lock, "own" is eight clients with a lock each, and "N behind each other" is N clients that
wait for one lock; the figure is then hand-overs per second. interop/setup builds the peers;
without them Pawl runs alone.
"""
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path += [os.path.join(HERE, '..', 'interop', 'lib'), os.path.join(HERE, '..', 'tests', 'zk')]
from driver import Driver  # noqa: E402
from server import Server  # noqa: E402
import zookeeper  # noqa: E402

ROUNDS = 3
CASES = (('alone', 1, 'own'), ('8 clients, a lock each', 8, 'own'),
         ('2 behind each other', 2, 'same'), ('16 behind each other', 16, 'same'),
         ('64 behind each other', 64, 'same'))


def pawl(build, server, seconds, clients, which):
    done = subprocess.run([os.path.join(build, 'bench', 'bench_zk'), server.url('/bench'),
                           str(seconds), str(clients), which], stdout=subprocess.PIPE, check=True)
    return [int(w) for w in done.stdout.split()]


class Peer:
    """One process with as many clients as were ever wanted."""

    def __init__(self, name, server):
        self.name, self.server = name, server
        self.driver = Driver(name, zookeeper.command(name))
        self.clients = 0

    def run(self, seconds, clients, which):
        while self.clients < clients:
            self.driver.do('open C%d %d 30000 bench-%s' % (self.clients, self.server.port,
                                                           self.name))
            self.clients += 1
        idents = ['C%d.t.%s%d' % (i, which, clients) for i in range(clients)]
        for i, ident in enumerate(idents):
            self.driver.do('lock %s mutex b%d' % (ident, i if which == 'own' else 0))
            self.driver.do('loop %s 0.05' % ident)
        answers = [self.driver.send('loop %s %g' % (ident, seconds)) for ident in idents]
        parts = [[int(w) for w in a.wait(600).words.split()] for a in answers]
        return [sum(p[0] for p in parts), statistics.median(p[1] for p in parts),
                max(p[2] for p in parts)]


def main():
    build, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 2
    there = [p for p, part in (('curator', 'classes'), ('kazoo', '../python/bin/python'))
             if os.path.exists(zookeeper.built('curator', part))]
    for sync in (False, True):
        server = Server(tick=2000, least=4000, sync=sync).start()
        peers = [Peer(name, server) for name in there]
        try:
            print('## ZooKeeper 3.8, %s' % ('every write forced to the disk' if sync else
                                            'writes not forced to the disk'))
            print('| pairs/s (p50, p99 in us) | Pawl | ' + ' | '.join(
                '%s | Pawl to it' % zookeeper.TITLES[p.name] for p in peers) + ' |')
            print('|---' * (2 + 2 * len(peers)) + '|', flush=True)
            for words, clients, which in CASES:
                if sync and clients == 64:
                    continue
                rounds = [[pawl(build, server, seconds, clients, which)] +
                          [p.run(seconds, clients, which) for p in peers] for _ in range(ROUNDS)]
                best = [[statistics.median(r[i][k] for r in rounds) for k in range(3)]
                        for i in range(1 + len(peers))]
                cells = ['%.0f (%d, %d)' % (n / seconds, p50, p99) for n, p50, p99 in best]
                for i in range(len(peers), 0, -1):
                    cells.insert(i + 1, '%.1f' % (best[0][0] / best[i][0]))
                print('| ' + ' | '.join([words] + cells) + ' |', flush=True)
        finally:
            for p in peers:
                p.driver.stop()
            server.stop()


main()
