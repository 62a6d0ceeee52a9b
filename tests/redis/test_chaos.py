#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many processes on a few names of every kind, while connections are cut, frozen, slowed and
killed, and the server stops and loses its scripts. Afterwards the test checks the claims of the processes
(random_load.py). When the faults end, every process can acquire every name again, and soon nothing is left.

    test_chaos.py [SEED]
"""
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, run  # noqa: E402
from random_load import Worker, check_alive, check_all  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis_live import Live  # noqa: E402
from wait import until  # noqa: E402

SECONDS = 12
ACTORS = 6
SEED = int(os.environ.get('CHAOS_SEED', random.randrange(10 ** 6)))


class Chaos(threading.Thread):
    def __init__(self, server, proxies, over):
        super().__init__(daemon=True)
        self.random = random.Random(SEED)
        self.server, self.proxies, self.over, self.done = server, proxies, over, {}
        self.connection = server.connect()

    def kill_one(self):
        ids = [line.split(' ')[0][3:] for line in
               self.connection.call('CLIENT', 'LIST').splitlines() if ' sub=1 ' in line]
        if ids:
            self.connection.call('CLIENT', 'KILL', 'ID', self.random.choice(ids))

    def stall(self):
        p = self.random.choice(self.proxies)
        p.stall(self.random.choice(('up', 'down', 'both')))
        time.sleep(self.random.random() * 0.5)
        p.flow()

    def pause_server(self):
        self.server.pause()
        time.sleep(self.random.random() * 0.4)
        self.server.resume()

    def one(self):
        p = self.random.choice(self.proxies)
        n, way = self.random.randrange(300), self.random.choice(('up', 'down'))
        what, act = self.random.choice((
            ('cut', p.cut), ('cut in the middle', lambda: p.cut_after(n, way)),
            ('cut in the middle', lambda: p.cut_after(n, way)), ('freeze', p.freeze),
            ('stall', self.stall), ('kill', self.kill_one), ('kill', self.kill_one),
            ('slow', lambda: setattr(p, 'delay', self.random.choice((0, 0, 0.03)))),
            ('pause', self.pause_server),
            ('script flush', lambda: self.connection.call('SCRIPT', 'FLUSH'))))
        act()
        self.done[what] = self.done.get(what, 0) + 1

    def run(self):
        while not self.over.is_set():
            self.one()
            time.sleep(self.random.random() * 0.08)
        for p in self.proxies:
            p.delay = 0
            p.flow()


@case('claims exclude each other and tokens rise, whatever happens to the connections', limit=180)
def _(s):
    print(f'# CHAOS_SEED={SEED}')
    over = threading.Event()
    proxies = [Proxy(s.port) for _ in range(3)]
    workers = [Worker(SEED * 100 + i, proxies[i % 3].url(watchdog=1500, timeout=300), over)
               for i in range(ACTORS)]
    chaos = Chaos(s, proxies, over)
    for t in workers + [chaos]:
        t.start()
    time.sleep(SECONDS)
    over.set()
    for t in workers + [chaos]:
        t.join()
    claims, codes = check_all(workers)
    check_alive(workers)
    for w in workers:
        w.actor.close().ok()
    print(f'# {claims} claims; {codes}; {chaos.done}')

    def left():
        return {k for k in s.call('KEYS', '*') if not k.endswith((':fence', ':client'))}
    # a grant to a late duplicate of a request ends with its lease, and its records soon afterwards
    until(lambda: not left(), 'until nothing is left', 30)


if __name__ == '__main__':
    if sys.argv[1:2] and sys.argv[1].isdigit():
        SEED = int(sys.argv.pop(1))
    sys.exit(run(Live))
