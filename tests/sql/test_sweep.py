#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_sweep.py postgres|mysql [PART]: clients remove old rows from the tables, and no others."""
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402

NAMES = 24


def add_old_names(s):
    """3000 names that nobody has used for a day, each with a receipt of a latch."""
    postgres = s.scheme == 'postgres'
    ago = ('(SELECT 1000 * (' + ('extract(epoch FROM now())' if postgres else 'UNIX_TIMESTAMP()') +
           ' - 90000))')
    blob = "convert_to('old' || i, 'UTF8')" if postgres else "CONCAT('old', seq)"
    rows = 'generate_series(1, 3000) i' if postgres else 'seq_1_to_3000'
    s.sql(f"INSERT INTO {s.prefix} (name, type, token, expires, created) SELECT {blob}, 1, "
          f"{ago} * 1000, {ago}, '2020-01-01' FROM {rows}")
    s.sql(f"INSERT INTO {s.prefix}_member (name, owner, role, mode, push, permits, tokens, first, "
          f"since, lease, expires) SELECT {blob}, 'x', 'r', 'l', "
          f"{'false' if postgres else 0}, 0, 0, 0, 0, 0, {ago} FROM {rows}")


def await_no_old_names(s):
    until(lambda: not s.number(f"SELECT count(*) FROM {s.prefix} WHERE name >= 'old' AND name < "
                               "'olf'"), 'for the sweep')
    equal(s.number(f"SELECT count(*) FROM {s.prefix}_member WHERE role = 'r' AND owner = 'x'"), 0)


@case('what nobody has used for a day is swept out; what is held, waited for or set stays', own={})
def _(s, name):
    s.schema()
    a, b = s.actor(), s.actor()
    for x, kind in (('x', 'mutex'), ('r', 'read')):
        a.lock(x, f'{name}/{x}', kind=kind)
        a.ask('take', x, 0).ok()
    b.lock('x', f'{name}/x')
    b.send('acquire', 'x', -1)
    a.latch('d', f'{name}/d')
    a.ask('set', 'd', 1).ok()
    until(lambda: s.waiters(f'{name}/x') == 1)
    add_old_names(s)
    s.sql(f"UPDATE {s.prefix} SET created = '2020-01-01'")
    s.actor()
    await_no_old_names(s)
    equal(s.number(f"SELECT count(*) FROM {s.prefix}"), 3, 'names left:')
    a.ask('drop', 'x').ok()
    b.answer('acquire', 'x').ok()
    b.ask('drop', 'x').ok()
    a.ask('drop', 'r').ok()


class Sweeper(threading.Thread):
    """Makes rows look as if they had not been used for a day, and sweeps, again and again until
    stop(). Then only its holder, its waiters or its latch keep a name. A row is left alone for 10 ms
    after a grant: a token is the server's time, in ms here, or the last token + 1."""

    def __init__(self, s):
        super().__init__()
        self.ending, self.sweeps, self.error = False, 0, ''
        postgres = s.scheme == 'postgres'
        now = '1000 * extract(epoch FROM now())' if postgres else '1000 * UNIX_TIMESTAMP(NOW(3))'
        setting = [] if postgres else ['SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED']
        self.ageing = s.transaction('COMMIT', *setting)
        self.sweeping = s.transaction('COMMIT', *setting, *(
            [] if postgres else ['SET innodb_lock_wait_timeout = 0']))
        self.age = (
            f"UPDATE {s.prefix} SET created = '2020-01-01', token = 1, expires = CASE WHEN "
            f"owner IS NULL OR expires < {now} THEN 1 ELSE expires END "
            f"WHERE token < 1000 * ({now} - 10)",
            f"UPDATE {s.prefix}_client SET expires = 0 WHERE client = 'sweep'")
        self.sweep = (f'SELECT {s.prefix}_sweep(86400000, 1000)' if postgres else
                      f'CALL {s.prefix}_sweep(86400000, 1000, @more)')

    def run(self):
        while not (self.ending or self.error):
            said = self.ageing.say(*self.age) + self.sweeping.say(self.sweep)
            self.error = said if 'ERROR' in said else ''
            self.sweeps += 1

    def stop(self):
        self.ending = True
        self.join()
        self.ageing.kill()
        self.sweeping.kill()
        assert not self.error, self.error


def use(a, names, grants, end):
    """Acquire and release locks of these names; note the grants of the exclusive ones."""
    while time.monotonic() < end:
        name = random.choice(names)
        id_, kind = random.choice(((name, 'x'), (f'{name}r', 'r')))
        got = a.ask('take', id_, 40000).ok()
        if kind == 'x':
            grants.append((name, got.ns, got.token))
        a.ask('drop', id_).ok()


@case('the sweep under load: nothing that is held, waited for or set is ever removed', own={})
def _(s, name):
    s.schema()
    holder, *waiters = s.actor(), s.actor(), s.actor()
    kept = {x: f'{name}/kept {x}' for x in ('x', 'r', 'p', 'd')}
    holder.lock('x', kept['x'])
    holder.lock('r', kept['r'], kind='read')
    holder.sem('p', kept['p'], permits=2)
    for x in ('x', 'r', 'p'):
        holder.ask('take', x, 0).ok()
    holder.latch('d', kept['d'])
    holder.ask('set', 'd', 2).ok()
    s.queue_up(kept['x'], waiters)
    queue = (f"SELECT owner, id FROM {s.prefix}_member WHERE name = '{kept['x']}' AND role = 'w' "
             'ORDER BY id')
    before = s.sql(queue)
    users = [s.actor() for _ in range(3)]
    for a in users:
        for i in range(NAMES):
            a.lock(i, f'{name}/{i}')
            a.lock(f'{i}r', f'{name}/{i}', kind='read')
    add_old_names(s)
    sweeper, grants, end = Sweeper(s), [], time.monotonic() + 6
    sweeper.start()
    try:
        with ThreadPoolExecutor(len(users)) as pool:
            for done in [pool.submit(use, a, range(NAMES), grants, end) for a in users]:
                done.result()
    finally:
        sweeper.stop()
    print(f'# {len(grants)} grants, {sweeper.sweeps} sweeps')
    await_no_old_names(s)
    equal(s.sql(queue), before, 'the queue:')
    listed = ', '.join(f"'{x}'" for x in kept.values())
    equal(s.number(f'SELECT count(*) FROM {s.prefix} WHERE name IN ({listed})'), 4, 'names:')
    for i in range(NAMES):
        tokens = [token for n, _, token in sorted(grants, key=lambda g: g[1]) if n == i]
        equal(tokens, sorted(set(tokens)), 'tokens:')
    for a in (holder, *users):
        equal(a.ask('stats').lost, 0)
    holder.ask('down', 'd').ok()
    equal(holder.ask('count', 'd').n, 1)
    for x in ('x', 'r', 'p'):
        holder.ask('drop', x).ok()
    for w in waiters:
        w.answer('acquire', 'l').ok()
        w.ask('drop', 'l').ok()


if __name__ == '__main__':
    sys.exit(run())
