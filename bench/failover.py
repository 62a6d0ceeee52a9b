#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""failover.py [--json] [--quick] ACTOR [ROUNDS]: how long a fail-over takes for Pawl's clients,
beside the time that Sentinel and Redis Cluster take themselves. --json: for compare.py, a line for
each kind of fail-over, in ms. --quick: Sentinel and a kill only.

In each round HOLDERS processes hold one lock each, which does not survive the fail-over, and one
more process waits for the first lock. Times are measured from the cause of the fail-over to these
events: the first and the last sentinel (node) names the new master; the new master grants the lock
to the waiter; the last holder is notified (on_lost). The private servers decide faster than usual
ones: their time-outs are printed first.
"""
import itertools
import json
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OPTIONS = [w for w in sys.argv[1:] if w.startswith('--')]
WORDS = [w for w in sys.argv[1:] if not w.startswith('--')]
os.environ['PAWL_ACTOR'] = os.path.abspath(WORDS[0]) if WORDS else 'actor'
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, '..', 'tests', 'lib'))
from actor import boot_ns  # noqa: E402
from redis_cluster import NODE_TIMEOUT_MS, Cluster, forget_all, lock_slot  # noqa: E402
from redis_sentinel import (DOWN_AFTER_MS, Announcements, Watched, forget,  # noqa: E402
                            order_failover, role)
from redis_server import keys  # noqa: E402
from wait import until  # noqa: E402

HOLDERS = 8
LEASE_MS = 600000  # so long that no holder learns of the loss by a renewal
ROUND = itertools.count()  # part of the names, so that leftovers of earlier rounds don't matter
ROUNDS = int(WORDS[1]) if len(WORDS) > 1 else 5


class Clients:
    """The holders, and the one that waits for the first of them."""

    def __init__(self, servers, names):
        self.holders = [servers.actor(watchdog=LEASE_MS) for _ in names]
        for a, name in zip(self.holders, names):
            a.lock('l', name)
            a.ask('take', 'l', 30000).ok()
        self.waiter = servers.actor()
        self.waiter.lock('l', names[0])
        self.waiter.send('acquire', 'l', -1)
        until(lambda: self.waiter.ask('stats').waiting)
        servers.synced()

    def measure(self, began):
        """(grant, last on_lost), ns."""
        grant = self.waiter.answer('acquire', 'l').ok().ns - began
        lost = max(a.lost('l').ns for a in self.holders) - began
        for a in self.holders + [self.waiter]:
            a.close()
        return grant, lost


def sentinel_round(w, by_command):
    master = w.synced()
    turn = next(ROUND)
    names = [f'{turn}:{i}' for i in range(HOLDERS)]
    clients = Clients(w, names)
    for replica in w.replicas():
        forget(replica, *(k for name in names for k in keys(name)))
    heard = [Announcements(s) for s in w.sentinels]
    began = boot_ns()
    if by_command:
        until(lambda: order_failover(w.sentinels[0]))
    else:
        master.kill()
    grant, lost = clients.measure(began)
    until(lambda: all(h.heard for h in heard))
    told = [h.heard[0][0] - began for h in heard]
    if not master.runs():
        master.start()
    return min(told), max(told), grant, lost


def cluster_round(c, by_command):
    time.sleep(2 * NODE_TIMEOUT_MS / 1000)  # nobody votes for the same shard sooner
    c.synced()
    master = c.masters()[0]
    turn = next(ROUND)
    names = [name for name in (f'{turn}:{i}' for i in range(1000))
             if c.master_of(lock_slot(name)) is master][:HOLDERS]
    clients = Clients(c, names)
    c.note(master)
    replica, = c.replicas_of(master)
    forget_all(replica)
    began = boot_ns()
    if by_command:
        replica.call('CLUSTER', 'FAILOVER', 'FORCE')
    else:
        master.kill()
    until(lambda: role(replica) == ('master', None))
    first = boot_ns() - began
    c.promoted(master)
    last = boot_ns() - began
    grant, lost = clients.measure(began)
    if not master.runs():
        master.start()
    return first, last, grant, lost


def timeouts():
    return (f'sentinels: down-after {DOWN_AFTER_MS} ms, cluster-node-timeout {NODE_TIMEOUT_MS} ms; '
            f'{HOLDERS} holders are told')


def sentences(what, cause, rows):
    columns = [[ns / 1e6 for ns in column] for column in zip(*rows)]
    words = ('named first', 'last', 'grant', 'last on_lost')
    print(f'failover   {what:8} {cause:13}' + ''.join(
        f'   {word} {statistics.median(ms):6.0f} ({max(ms):.0f}) ms'
        for word, ms in zip(words, columns)), flush=True)


def as_json(what, cause, rows):
    names = ('first', 'last', 'grant', 'lost')
    print(json.dumps({'what': f'{what} {cause}',
                      'heading': f'{what}, {cause}: time since then ({timeouts()})',
                      'rows': [{k: ns / 1e6 for k, ns in zip(names, row)} for row in rows]}),
          flush=True)


def main():
    show = as_json if '--json' in OPTIONS else sentences
    quick = '--quick' in OPTIONS
    if show is sentences:
        print(f'# median (largest) of {ROUNDS}; {timeouts()}')
    for what, servers, one_round in (('sentinel', Watched, sentinel_round),
                                     ('cluster', Cluster, cluster_round))[:1 if quick else 2]:
        running = servers()
        try:
            causes = (('master killed', False), ('by command', True))
            for cause, by_command in causes[:1 if quick else 2]:
                show(what, cause, [one_round(running, by_command) for _ in range(ROUNDS)])
        finally:
            running.stop()
    return 0


if __name__ == '__main__':
    sys.exit(main())
