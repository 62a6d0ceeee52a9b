#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that die, stop and hand over their data while many processes take a few locks.

If each grant waits for every replica (`replicas`), two owners never hold a lock at once. Otherwise a
fail-over may cause two holders: then the tokens differ, one of the two is notified (on_lost, or by the
result of its release), and neither believes to hold the lock for longer than its lease. While slots move,
nothing is lost.

The replicas of a server are cut off for a while before the server dies: grants of this time are lost.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal, run  # noqa: E402
from load import BUSY, LINGER, SLEEPER, Load  # noqa: E402
from redis_cluster import Calm, Cluster, lock_slot  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_sentinel import Watched, cut_off, role  # noqa: E402
from wait import until  # noqa: E402

WORKERS = 3  # with replicas, and as many without
LEASE_MS = 3000
LONG_MS = 15000  # lease of the sleeper
TIMEOUT_MS = 400
PLAIN, SAFE, ASLEEP = ['plain1', 'plain2'], ['safe1', 'safe2'], ['asleep']


def begin(service, replicas, lease=LEASE_MS, timeout=TIMEOUT_MS):
    load = Load()
    times = {'watchdog': lease, 'timeout': timeout}
    load.add(WORKERS, service.url(**times), PLAIN, LINGER)
    load.add(WORKERS, service.url(replicas=replicas, **times), SAFE, LINGER, may_refuse=True)
    load.add(1, service.url(**times), ASLEEP, BUSY)
    load.add(1, service.url(watchdog=LONG_MS, timeout=TIMEOUT_MS), ASLEEP, SLEEPER)
    load.start()
    load.progress(PLAIN + SAFE + ASLEEP, 20)
    return load


def all_moved(load):
    """Wait until every client has noticed the fail-over."""
    until(lambda: all(w.actor.ask('stats').failovers
                      for w in load.workers if w.habit != SLEEPER),
          'for the clients to follow')


def end(load, alone=False):
    load.finish()
    load.report()
    load.check(PLAIN, LEASE_MS, alone)
    load.check(ASLEEP, LONG_MS, alone)
    load.check(SAFE, LEASE_MS, alone=True)


@case('Sentinel: the master is killed', server=Watched)
def _(w):
    load = begin(w, replicas=2)
    old, replicas = w.master(), w.replicas()
    cut_off(old, replicas)
    load.progress(PLAIN, 3)
    load.linger_on(PLAIN + ASLEEP)
    old.kill()
    for r in replicas:
        r.resume()
    w.switched(old)
    all_moved(load)
    load.linger.clear()
    load.progress(ASLEEP, 1)
    load.wake()
    load.progress(PLAIN + ASLEEP, 20)
    old.start()
    load.progress(SAFE, 20)
    end(load)


@case('Sentinel: the master stops, and goes on when there is another one', server=Watched)
def _(w):
    load = begin(w, replicas=2)
    old = w.master()
    load.linger_on(PLAIN + ASLEEP)
    old.pause()
    new = w.switched(old)
    all_moved(load)
    load.linger.clear()
    old.resume()
    load.wake()
    load.progress(PLAIN, 20)
    until(lambda: role(old) == ('slave', new.port), 'for the old master to be a replica')
    load.progress(PLAIN + SAFE, 20)
    end(load)


@case('Cluster: a master is killed', server=Cluster)
def _(c):
    old = c.master_of(lock_slot(PLAIN[0]))
    for names in (PLAIN, SAFE, ASLEEP):  # the first name of each list is on the node that fails
        names[0] = on_node(c, old, names[0])
    load = begin(c, replicas=1)
    replicas = c.replicas_of(old)
    cut_off(old, replicas)
    load.progress(PLAIN, 3)
    load.linger_on(PLAIN + ASLEEP)
    c.note(old)
    old.kill()
    for r in replicas:
        r.resume()
    c.promoted(old)
    load.linger.clear()
    load.progress(ASLEEP, 1)
    load.wake()
    load.progress(PLAIN + ASLEEP, 20)
    old.start()
    load.progress(SAFE, 20)
    end(load)


def on_node(c, node, word):
    """A name that begins with `word` and is on this node."""
    return next(name for name in (f'{word}-{i}' for i in range(1000))
                if c.master_of(lock_slot(name)) is node)


@case('Cluster: slots move back and forth', server=Calm)
def _(c):
    load = begin(c, replicas=1, lease=20000, timeout=5000)
    for turn in range(8):
        for name in PLAIN + SAFE:
            slot = lock_slot(name)
            masters = [m for m in c.masters() if m is not c.master_of(slot)]
            m = c.migration(slot, masters[turn % 2])
            while m.move(n=1):
                pass
            m.finish()
        load.progress(PLAIN + SAFE, 5)
    end(load, alone=True)
    print('# ' + ', '.join(f'{c.errors(w)} {w}' for w in ('MOVED', 'ASK', 'TRYAGAIN')))
    equal(sum(w.actor.ask('stats').lost for w in load.workers), 0, 'lost:')


if __name__ == '__main__':
    sys.exit(run(Live))
