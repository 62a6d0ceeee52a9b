#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_failover.py postgres|mysql: a replica takes over while processes take locks of every kind.

With synchronous replication nothing is lost: two owners never hold a lock at once, and holders keep their
locks. Without it, grants that had not reached the replica are lost: their holders are notified, and other
owners may have got the locks meanwhile, with larger tokens. The replica is cut off before the server dies,
so that some grants are lost.

layout=advisory, layout=session: no lock survives its server, with any replication. Holders are notified
when the connection ends, and tokens rise, because a promotion of PostgreSQL begins a new timeline, and
tokens of MariaDB follow the clock.
"""
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal  # noqa: E402
from random_load import Worker, check_alive, check_exclusion, check_tokens, codes, overlaps  # noqa: E402
from sql_pairs import PAIRS  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402

WORKERS = 3
MORE = 4  # claims of each name before and after each step
CAPACITY = {'m': 9, 'rw': 9, 's': 3}
SYNCHRONOUS, ASYNCHRONOUS = {'synchronous': True}, {'synchronous': False}
LAYOUTS = {'postgres': 'advisory', 'mysql': 'session'}
TIMES = {'watchdog': 2500, 'timeout': 1000}


class Sessions(Worker):
    OBJECTS = ('m', 'f', 'r', 'w')


class Exclusive(Worker):
    OBJECTS = ('m', 'f', 'w')


KINDS = {'advisory': Sessions, 'session': Exclusive}


class Load:
    def __init__(self, make, url):
        self.over = threading.Event()
        self.workers = [make(n, url, self.over) for n in range(WORKERS)]
        self.names = [n for n in CAPACITY if n != 's' or 's' in make.OBJECTS]
        for w in self.workers:
            w.start()
        self.progress(MORE)

    def claims(self, name):
        return [c for w in self.workers for c in list(w.claims) if c.name == name]

    def progress(self, n):
        """Wait until each name was held n times more."""
        before = {name: len(self.claims(name)) for name in self.names}

        def enough():
            failed = next((w.failure for w in self.workers if w.failure), None)
            if failed:
                raise failed
            return all(len(self.claims(name)) >= before[name] + n for name in self.names)
        until(enough, f'for more claims than {before}')

    def finish(self, alone):
        """Stop the workers. Check that no two held a lock at once, if `alone`, and that tokens rise."""
        self.over.set()
        for w in self.workers:
            w.join()
            if w.failure:
                raise w.failure
        for name in self.names:
            mine = self.claims(name)
            found = [p for p in overlaps(mine) if 9 in (p[0].share, p[1].share)]
            print(f'# {name}: {len(mine)} claims, {len(found)} overlaps')
            if alone:
                check_exclusion(mine, name, CAPACITY[name])
            check_tokens(mine, name)
        check_alive(self.workers)
        print(f'# {codes(self.workers)}')


def holder(pair, name, **params):
    """An actor that holds a lock before the take-over, with a long lease."""
    a = Actor(pair.url(watchdog=60000, timeout=1500, **params))
    a.lock('l', name)
    return a, a.ask('take', 'l', 20000).ok().token


def next_token(pair, name, **params):
    b = Actor(pair.url(timeout=10000, **params))
    b.lock('l', name)
    return b.ask('take', 'l', 20000).ok().token


def stop(a):
    a.send('stopself', 'l')
    os.waitid(os.P_PID, a.pid, os.WSTOPPED | os.WNOWAIT)


def wake(a):
    """Resume a holder. Its lease has not ended, so it may believe to hold the lock; but not for long."""
    a.resume()
    first = a.answer('stopself', 'l')
    after = (a.lost('l').ns - first.ns) / 1e6
    print(f'# one that was stopped meanwhile: held={first.held}, told {after:.1f} ms later')


def widowed(pair):
    """An actor that waits for a holder that has died."""
    a, _ = holder(pair, 'widow')
    b = Actor(pair.url(**TIMES))
    b.lock('l', 'widow')
    b.send('acquire', 'l', -1)
    until(lambda: pair.first.waiters('widow') == 1, 'for a place in the queue')
    a.ask('renew', 'l', 6000).ok()
    a.kill()
    return b


def in_time(pair, b):
    """The waiter has the lock within 5 s of the end of the lease or of its new connection, plus 1 s between
    two attempts to connect; a busy machine gets more time."""
    ends = pair.second.number(f"SELECT expires FROM {pair.second.prefix} WHERE name = 'widow'")
    begun = max(ends / 1000, time.time())
    b.answer('acquire', 'l').ok()
    took = time.time() - begun
    print(f'# a waiter of a dead holder: {took:.2f} s after the lease, or the new server')
    assert took < 12
    b.ask('drop', 'l').ok()


@case('synchronous replication: nothing is lost, and nobody holds together with another',
      own=SYNCHRONOUS)
def _(pair, _name):
    load = Load(Worker, pair.url(**TIMES))
    a, token = holder(pair, 'kept')
    orphan = widowed(pair)
    pair.fail_over()
    in_time(pair, orphan)
    load.progress(MORE)
    until(lambda: a.ask('stats').reconnects, 'for the holder to come back')
    a.ask('renew', 'l', 60000, patience=20).ok()
    told = a.ask('stats')
    assert (told.lost, told.held) == (0, 1), told
    load.finish(alone=True)
    a.ask('drop', 'l').ok()
    assert next_token(pair, 'kept') > token


@case('asynchronous replication: who lost something is told, and tokens rise', own=ASYNCHRONOUS)
def _(pair, _name):
    load = Load(Worker, pair.url(**TIMES))
    before, old = holder(pair, 'kept')
    pair.cut_off()
    a, token = holder(pair, 'gone')
    sleeper, its_token = holder(pair, 'asleep')
    stop(sleeper)
    load.progress(MORE)
    orphan = widowed(pair)  # the replica knows neither holder nor waiter
    pair.fail_over()
    in_time(pair, orphan)
    a.lost('l')
    assert next_token(pair, 'gone') > token
    assert next_token(pair, 'asleep') > its_token
    wake(sleeper)
    load.progress(MORE)
    assert before.ask('held', 'l').held
    before.ask('drop', 'l').ok()
    assert next_token(pair, 'kept') > old
    load.finish(alone=False)


@case('several hosts in the URL: a replica is passed over, and used once it serves',
      own=SYNCHRONOUS)
def _(pair, _name):
    a, b = Actor(pair.hosts(watchdog=60000, timeout=1500)), Actor(pair.hosts(timeout=10000))
    for x in (a, b):
        x.lock('l', 'kept')
    token = a.ask('take', 'l', 20000).ok().token
    b.send('acquire', 'l', -1)
    until(lambda: pair.first.waiters('kept') == 1, 'for a place in the queue')
    sessions = Actor(pair.hosts(layout=LAYOUTS[pair.first.scheme]))
    sessions.lock('l', 'x')
    its_token = sessions.ask('take', 'l', 20000).ok().token
    pair.fail_over()
    until(lambda: all(x.ask('stats').failovers for x in (a, b)), 'for both to follow')
    equal((a.ask('renew', 'l', 60000).code, a.ask('stats').lost), ('PAWL_OK', 0))
    a.ask('drop', 'l').ok()
    assert b.answer('acquire', 'l').ok().token > token
    sessions.lost('l')
    sessions.ask('drop', 'l').be('PAWL_ELOST')
    assert sessions.ask('take', 'l', 20000).ok().token > its_token


@case('locks of sessions: holders are told, tokens rise, and a standby is refused',
      own=ASYNCHRONOUS)
def _(pair, _name):
    layout = LAYOUTS[pair.first.scheme]
    load = Load(KINDS[layout], pair.url(layout=layout, **TIMES))
    pair.cut_off()
    a, token = holder(pair, 'gone', layout=layout)
    sleeper, its_token = holder(pair, 'asleep', layout=layout)
    stop(sleeper)
    load.progress(MORE)
    standby = Actor(pair.second.url(layout=layout, timeout=1000))
    standby.lock('l', 'x')
    refused = standby.ask('take', 'l', 1500)
    assert 'read only' in refused.be('PAWL_ECONN', 'PAWL_ETIMEDOUT').words, refused
    pair.fail_over()
    a.lost('l')
    assert next_token(pair, 'gone', layout=layout) > token
    assert next_token(pair, 'asleep', layout=layout) > its_token
    wake(sleeper)
    load.progress(MORE)
    load.finish(alone=False)


if __name__ == '__main__':
    sys.exit(run(PAIRS))
