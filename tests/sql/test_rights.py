#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_rights.py postgres|mysql [WORDS]: least rights on a SQL server. Without any one of the rights
of docs/security.md a call fails, and the error names the right.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal  # noqa: E402
import rights  # noqa: E402
from wait import until  # noqa: E402
from world import run  # noqa: E402

PARTS = [p for p in rights.PARTS if p != 'odd']
ADVISORY = [p for p in PARTS if p not in ('permits', 'latches')]


def words_of(right, thing):
    """The text that the error must contain: the right and the table, function or database."""
    name = thing.rpartition(' ')[2].rpartition('.')[2]
    return rf'(?i)({right}.*\b{name}\b|\b{name}\b.*{right})'


def take_away(s, mark, parts, **params):
    s.bare_user('shop')
    url = s.url('shop', timeout=10000, **params)
    s.grant('shop', mark)
    rights.everything(url, parts=parts if mark == 'advisory' else parts[:1])  # see conformance
    database = {'postgres': 'postgres', 'mysql': 'pawl'}[s.scheme]
    for statement in rights.statements(mark, app=database):
        for right, thing in rights.single_grants(statement):
            s.sql(f'REVOKE {right} ON {thing} FROM shop')
            if mark != 'advisory':
                s.sql(';'.join(f'DELETE FROM {s.prefix}{table}' for table in s.tables))
            # All rights are checked when a client connects.
            rights.missing(f'{right} ON {thing}', words_of(right, thing), url, parts=parts[:1])
            s.sql(statement)
    rights.everything(url, parts=PARTS[:1])


def logging(s, layout):
    return Actor(s.url('shop', timeout=10000, layout=layout), environ={'ACTOR_LOG': '1'})


def logged(actor, words):
    with actor.changed:
        return any(line.verb == 'log' and words in line.words for line in actor.lines)


@case('each right on tables and functions that is missing is named', own={})
def _(s, name):
    s.schema()
    take_away(s, s.scheme, PARTS)


@case('layout=advisory needs the right to connect, and no other', only='postgres', own={})
def _(s, name):
    take_away(s, 'advisory', ADVISORY, layout='advisory')


@case('layout=session: each right on its table that is missing is named', only='mysql', own={})
def _(s, name):
    s.schema()
    take_away(s, 'session', PARTS, layout='session')


@case('layout=session: to break locks of others, and to see their waiters, needs the rights for that',
      only='mysql', own={})
def _(s, name):
    s.schema()
    for user in ('shop', 'other'):
        s.user(user)
        s.grant(user, 'session')
    a = logging(s, 'session')
    b, c = (s.actor(user='other', layout='session') for _ in range(2))
    for x in (a, b, c):
        x.lock('l', name)
    b.ask('take', 'l', 20000).ok()
    c.send('acquire', 'l', -1)
    quoted = name.replace(' ', '%20')
    until(lambda: len(b.rows('show', quoted)) == 3, 'for the wait')
    assert 'CONNECTION ADMIN' in a.ask('break', 'l').be('PAWL_EAUTH').words
    equal(len(a.rows('show', quoted)), 2)  # the summary and the holder
    until(lambda: logged(a, 'GRANT PROCESS'), 'for the name of the right')
    s.grant('shop', 'session, others')
    a.close()
    a = logging(s, 'session')  # rights count from the next connection on
    a.lock('l', name)
    equal(len(a.rows('show', quoted)), 3)
    a.rows('ls')
    assert not logged(a, 'GRANT')
    a.ask('break', 'l').ok()
    b.lost('l')
    c.answer('acquire', 'l').ok()


@case('layout=advisory: to break locks of others, and to see them, needs the rights for that',
      only='postgres', own={})
def _(s, name):
    for user in ('shop', 'other'):
        s.user(user)
    a, b = logging(s, 'advisory'), s.actor(user='other', layout='advisory')
    for x in (a, b):
        x.lock('l', name)
    b.ask('take', 'l', 20000).ok()
    assert 'pg_signal_backend' in a.ask('break', 'l').be('PAWL_EAUTH').words
    equal([r.id for r in a.rows('ls') if r.id == name.replace(' ', '%20')], [])
    until(lambda: logged(a, 'GRANT pg_read_all_stats'), 'for the name of the right')
    s.grant('shop', 'advisory, others')
    equal(len([r.id for r in a.rows('ls') if r.id == name.replace(' ', '%20')]), 1)
    a.ask('break', 'l').ok()
    b.lost('l')


if __name__ == '__main__':
    sys.exit(run())
