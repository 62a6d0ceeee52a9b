#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many processes on a few names of every kind, while connections are cut, frozen, slowed and
killed, the server stops and forgets its scripts: what they say they had is checked afterwards.

A claim is the time from the answer "granted" to the moment the release was sent, or to the message
that it was lost. At no time do claims overlap that exclude each other; and whoever asked after
somebody had got a token got a larger one. When the faults end, everybody gets everything again,
and when all is over nothing is left. All clocks are the machine's boot-time clock.

    test_chaos.py [SEED]
"""
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import equal  # noqa: E402
from claims import Claim, check_exclusion, check_tokens  # noqa: E402
from forked import case, run  # noqa: E402
from live import Actor, boot_ns  # noqa: E402
from proxy import Proxy  # noqa: E402

SECONDS = 12
ACTORS = 6
CAPACITY = 3
LATE_NS = 200000000  # a message of loss may be so late on a busy machine
SEED = int(os.environ.get('CHAOS_SEED', random.randrange(10 ** 6)))


class Worker(threading.Thread):
    """One actor. Objects: a mutex, a fair one, both sides of a read-write lock, a semaphore."""

    OBJECTS = ('m', 'f', 'r', 'w', 's')

    def __init__(self, number, url, over):
        super().__init__(daemon=True)
        self.random = random.Random(SEED * 100 + number)
        self.over, self.claims, self.failure, self.codes = over, [], None, {}
        self.actor = Actor(url)
        self.actor.lock('m', 'm')
        self.actor.lock('f', 'm', kind='fair')
        self.actor.lock('r', 'rw', kind='read')
        self.actor.lock('w', 'rw', kind='write')
        self.actor.sem('s', 's', permits=CAPACITY)

    def run(self):
        try:
            while not self.over.is_set():
                self.one_round(self.random.choice(self.OBJECTS))
        except BaseException as e:
            self.failure = e

    def one_round(self, which):
        permits = self.random.randint(1, CAPACITY) if which == 's' else 1
        wait = self.random.choice((0, 50, 400, 3000))
        asked = boot_ns()
        if which == 's':
            got = self.actor.ask('take', 's', wait, permits)
        else:
            self.actor.send('acquire', which, wait)
            got = self.actor.answer('acquire', which)
        self.count(got.code)
        if got.code != 'PAWL_OK':
            got.be('PAWL_EBUSY', 'PAWL_ETIMEDOUT', 'PAWL_ECONN', 'PAWL_EUNKNOWN')
            return
        name, share = {'m': ('m', 9), 'f': ('m', 9), 'r': ('rw', 1), 'w': ('rw', 9),
                       's': ('s', permits)}[which]
        claim = Claim(name, share, asked, got.ns, got.token)
        self.claims.append(claim)
        time.sleep(self.random.choice((0, 0, 0.001, 0.02)))
        claim.end = boot_ns()
        self.give_back(which, permits)
        lost = self.actor.have('lost', which)
        if lost:
            claim.end = min(claim.end, max(lost.ns - LATE_NS, claim.start))

    def give_back(self, which, permits):
        if which == 's':
            code = self.actor.ask('drop', 's', permits).code
        else:
            self.actor.send('release', which)
            code = self.actor.answer('release', which).code
        self.count('release ' + code)
        assert code in ('PAWL_OK', 'PAWL_ELOST', 'PAWL_EUNKNOWN', 'PAWL_ECONN'), code

    def count(self, what):
        self.codes[what] = self.codes.get(what, 0) + 1


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
    workers = [Worker(i, proxies[i % 3].url(watchdog=1500, timeout=300), over)
               for i in range(ACTORS)]
    chaos = Chaos(s, proxies, over)
    for t in workers + [chaos]:
        t.start()
    time.sleep(SECONDS)
    over.set()
    for t in workers + [chaos]:
        t.join()
    for w in workers:
        if w.failure:
            raise w.failure
    claims = [c for w in workers for c in w.claims]
    for name, capacity in (('m', 9), ('rw', 9), ('s', CAPACITY)):
        mine = [c for c in claims if c.name == name]
        assert len(mine) > 5, f'only {len(mine)} claims of {name}'
        check_exclusion(mine, name, capacity)
        check_tokens(mine, name)
    for w in workers:  # the faults are over: everybody gets everything
        for which in Worker.OBJECTS:
            w.actor.ask('take', which, 30000).ok()
            w.actor.ask('drop', which).ok()
    codes = {}
    for w in workers:
        for code, n in w.codes.items():
            codes[code] = codes.get(code, 0) + n
    for w in workers:
        w.actor.close().ok()
    left = {k for k in s.call('KEYS', '*') if not k.endswith((':fence', ':client'))}
    print(f'# {len(claims)} claims; {codes}; {chaos.done}')
    equal(left, set())


if __name__ == '__main__':
    if sys.argv[1:2] and sys.argv[1].isdigit():
        SEED = int(sys.argv.pop(1))
    sys.exit(run())
