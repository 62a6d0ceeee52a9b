#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""replicas=N: a grant or renewal that fewer than N replicas have does not count, and the error says how many
have it.

The tests stop a replica (SIGSTOP) that must not get a write: the replica then acknowledges nothing, and the
master does not notice.
"""
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal, run  # noqa: E402
from redis_cluster import Calm, lock_slot  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_sentinel import Watched  # noqa: E402
from wait import until  # noqa: E402

BUSY_MS = 1000  # WAIT waits for half of this time


def refused(answer, have, want):
    answer.be('PAWL_EBACKEND')
    assert re.search(rf'\b{have} of {want}\b', answer.words), answer.words


def given_back(service, name):
    """Another client gets the lock, long before the end of the lease."""
    b = service.actor()
    b.lock('l', name)
    b.ask('take', 'l', 10000).ok()
    b.ask('drop', 'l').ok()
    b.close()


def stopped(w, n):
    """Stop n replicas, and the sentinels, which must not interfere."""
    replicas = w.replicas()[:n]
    for s in w.sentinels:
        s.pause()
    for r in replicas:
        r.pause()
    return replicas


@case('with all replicas well: grants, hand-overs, renewals, every kind', server=Watched)
def _(w):
    a, b = w.actor(replicas=2, watchdog=1500), w.actor(replicas=2, watchdog=1500)
    for x in (a, b):
        x.lock('l', 'n')
        x.lock('r', 'r', kind='read')
        x.sem('s', 's', permits=2)
    token = a.ask('take', 'l', 0).ok().token
    b.send('acquire', 'l', -1)
    until(lambda: w.servers[0].queue('n'))
    a.ask('drop', 'l').ok()
    assert b.answer('acquire', 'l').ok().token > token
    for x in (a, b):
        x.ask('take', 'r', 0).ok()
        x.ask('take', 's', 0).ok()
    until(lambda: a.ask('stats').renewed > 3 and b.ask('stats').renewed > 3, 'for renewals')
    equal([a.ask('stats').lost, b.ask('stats').lost], [0, 0])


@case('too few replicas: refused with the count, and given back', server=Watched)
def _(w):
    a = w.actor(replicas=2, timeout=BUSY_MS)
    a.lock('l', 'n')
    a.lock('r', 'r', kind='read')
    a.sem('s', 's', permits=2)
    a.ask('take', 'l', 30000).ok()
    a.ask('drop', 'l').ok()
    for n in (1, 2):
        replicas = stopped(w, n)
        for what, wait in (('l', 0), ('r', 20000), ('s', 20000)):
            refused(a.ask('take', what, wait), 2 - n, 2)
            equal(a.ask('valid', what).valid, 0)
        a.send('acquire', 'l', -1)
        a.answer('acquire', 'l').be('PAWL_EBACKEND')
        for s in replicas + w.sentinels:
            s.resume()
        for name in ('n', 'r'):
            given_back(w, name)
        w.synced()
    for what in ('l', 'r', 's'):
        a.ask('take', what, 30000).ok()
    equal(a.ask('stats').lost, 0)


@case('one server without replicas: 0 of 1')
def _(s):
    a = s.actor(replicas=1, timeout=BUSY_MS)
    a.lock('l', 'n')
    for wait in (20000, 0):
        refused(a.ask('take', 'l', wait), 0, 1)
    given_back(s, 'n')


@case('a grant that comes by message counts only when the replicas have it', server=Watched)
def _(w):
    a, b, c = w.actor(), w.actor(replicas=2, timeout=BUSY_MS), w.actor()
    for x in (a, b, c):
        x.lock('l', 'n')
    token = a.ask('take', 'l', 30000).ok().token
    for x in (b, c):
        x.send('acquire', 'l', -1)
        until(lambda: len(w.servers[0].queue('n')) == (1 if x is b else 2))
    stopped(w, 2)
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').be('PAWL_EBACKEND')
    assert c.answer('acquire', 'l').ok().token > token
    equal(b.ask('held', 'l').held, 0)


@case('a renewal that replicas do not get is none: the holder is told when its lease ends',
      server=Watched)
def _(w):
    a = w.actor(replicas=1, watchdog=3000, timeout=BUSY_MS)
    a.lock('l', 'n')
    a.ask('take', 'l', 30000).ok()
    w.synced()
    until(lambda: a.ask('stats').renewed >= 1)
    replicas = stopped(w, 2)
    a.lost('l')
    equal(a.ask('valid', 'l').valid, 0)
    a.ask('drop', 'l').be('PAWL_ELOST')
    for r in replicas:
        r.resume()
    a.ask('take', 'l', 30000).ok()


@case('a shorter renewal on a new connection does not count without the replicas either',
      server=Watched)
def _(w):
    a = w.actor(replicas=2, timeout=BUSY_MS, watchdog=60000)
    a.lock('l', 'n', lease=60000)
    a.ask('take', 'l', 30000).ok()
    a.ask('renew', 'l', 90000).ok()
    stopped(w, 2)
    w.servers[0].call('CLIENT', 'KILL', 'TYPE', 'pubsub')
    answer = a.ask('renew', 'l', 1000)
    assert answer.code not in ('PAWL_OK', 'PAWL_ELOST'), answer


@case('a replica that is gone: requests one after the other are refused, the connection stays',
      server=Watched)
def _(w):
    a = w.actor(replicas=2, timeout=BUSY_MS)
    names = [f'l{i}' for i in range(12)]
    for name in names:
        a.lock(name, name)
    a.ask('take', 'l0', 30000).ok()
    a.ask('drop', 'l0').ok()
    stopped(w, 2)
    before = a.ask('stats').reconnects
    for name in names:  # each acquire is sent separately, followed by a WAIT
        a.send('acquire', name, 20000)
        time.sleep(0.02)
    for name in names:
        a.answer('acquire', name).be('PAWL_EBACKEND')
    equal(a.ask('stats').reconnects, before)


@case('Cluster: a replica that is stopped concerns its own slots only', server=Calm)
def _(c):
    here = c.master_of(lock_slot('n'))
    far = next(f'far{i}' for i in range(1000) if c.master_of(lock_slot(f'far{i}')) is not here)
    a = c.actor(replicas=1, timeout=BUSY_MS)
    a.lock('l', 'n')
    a.lock('far', far)
    for what in ('l', 'far'):
        a.ask('take', what, 30000).ok()
        a.ask('drop', what).ok()
    replica, = c.replicas_of(here)
    replica.pause()
    refused(a.ask('take', 'l', 0), 0, 1)
    a.ask('take', 'far', 30000).ok()
    given_back(c, 'n')
    replica.resume()
    until(lambda: a.ask('take', 'l', 10000).code == 'PAWL_OK')


if __name__ == '__main__':
    sys.exit(run(Live))
