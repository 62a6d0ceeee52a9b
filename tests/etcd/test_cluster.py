#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A cluster of three under load, while its leader is killed, a minority and then the majority
is stopped, and clients are stopped for longer than their leases. Afterwards the test checks the claims of
the clients (random_load.py).

A leader is killed here, never only stopped: a leader that is stopped, replaced meanwhile and resumed ends
leases that it no longer manages (etcd before 3.4.31 and 3.5.13), which no client can prevent.

    test_cluster.py [SEED]
"""
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, run  # noqa: E402
from random_load import Worker, check_alive, check_all  # noqa: E402
from etcd_server import Cluster  # noqa: E402
from wait import until  # noqa: E402

SEED = int(os.environ.get('CHAOS_SEED', random.randrange(10 ** 6)))


def followers(s):
    leader = s.leader()
    return [m for m in s.members if m is not leader]


def kill_leader(s, workers):
    leader = s.leader()
    leader.kill()
    time.sleep(1)
    leader.start()
    s.wait()


def stop_minority(s, workers):
    one = followers(s)[0]
    one.pause()
    time.sleep(1.5)
    one.resume()
    s.wait()


def stop_majority(s, workers):
    """Stop a majority of the servers for longer than the leases."""
    two = followers(s)
    for m in two:
        m.pause()
    time.sleep(3)
    for m in two:
        m.resume()
    s.wait()


def stop_clients(s, workers):
    """Stop holders and waiters for longer than their leases."""
    some = [w.actor for w in workers[::2]]
    for a in some:
        a.stop()
    time.sleep(3.5)
    for a in some:
        a.resume()


def load(sentence, *faults):
    @case(sentence, server=False, limit=180)
    def _():
        print(f'# CHAOS_SEED={SEED}')
        s, over = Cluster(), threading.Event()
        try:
            workers = [Worker(SEED * 100 + i, s.url(watchdog=2000, timeout=500), over)
                       for i in range(6)]
            for w in workers:
                w.start()
            time.sleep(0.5)
            for fault in faults:
                fault(s, workers)
                before = sum(len(w.claims) for w in workers)
                until(lambda: sum(len(w.claims) for w in workers) > before + 5)
            over.set()
            for w in workers:
                w.join()
            claims, codes = check_all(workers, 0)
            check_alive(workers)
            for w in workers:
                w.actor.close().ok()
            print(f'# {claims} claims; {codes}')
            until(lambda: s.keys('') == [], patience=20)
        finally:
            s.stop()


load('no claims overlap and tokens rise when the leader is killed', kill_leader, kill_leader)
load('... when a minority and then the majority stands still', stop_minority, stop_majority)
load('... when clients are stopped past their leases', stop_clients)


@case('of many waiters every one is told, and a lock that is revoked is lost at once', server=False,
      limit=120)
def _():
    s = Cluster()
    try:
        actors = [s.actor(watchdog=3000) for _ in range(8)]
        for a in actors:
            a.lock('l', 'one')
            a.send('acquire', 'l', -1)
        tokens, times = [], []
        for _ in actors:
            holder = None
            while not holder:
                for a in actors:
                    got = a.have('acquire', 'l')
                    if got:
                        holder, token = a, got.ok().token
                time.sleep(0.002)
            tokens.append(token)
            mine, = [v for v in s.values('pawl/one/').values() if f'pid={holder.pid} ' in v[0]]
            began = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            s.ctl('lease', 'revoke', '%x' % mine[3])
            times.append((holder.lost('l').ns - began) / 1e6)
        assert tokens == sorted(set(tokens)), tokens
        print(f'# told {max(times):.0f} ms after the revocation was asked for, at most')
        for a in actors:
            a.ask('drop', 'l').be('PAWL_ELOST')
            a.signal(signal.SIGTERM)
    finally:
        s.stop()


if __name__ == '__main__':
    if sys.argv[1:2] and sys.argv[1].isdigit():
        SEED = int(sys.argv.pop(1))
    sys.exit(run())
