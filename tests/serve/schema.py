# SPDX-License-Identifier: Apache-2.0
"""Compares the answers of `pawl serve` with the tables of docs/serve.md: an answer has exactly the
members of its table, and each member has the documented type.
"""
import os
import re
import urllib.parse

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs', 'serve.md')
TYPES = {'string': (str,), 'boolean': (bool,), 'number': (int,), 'array': (list,),
         'number or null': (int, type(None)), 'string or null': (str, type(None))}


def table(title):
    """The rows of the table whose first column has this title, after the given text."""
    after, first = title
    with open(PAGE, encoding='utf-8') as f:
        text = f.read().split(after, 1)[1]
    rows = re.search(rf'^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)', text, re.M)[1]
    return [[cell.strip() for cell in row.strip('|').split('|')] for row in rows.splitlines()]


def words(cell):
    """The names in a cell: `a`, `b`."""
    return re.findall(r'`(\w+)`', cell)


def members(after):
    """{member: (types, where it appears)}"""
    return {name: (TYPES[row[1]], row[2].strip('`')) for row in table((after, 'member'))
            for name in words(row[0])}


STATE = members('Every response about data')
LOCK = members('A *lock*.')
PERSON = members('A *person*,')
FURTHER = {row[0].strip('`').split('[')[0].split('?name=')[0] +
           ('?name=' if '?name=' in row[0] and '[' not in row[0] else ''): words(row[1])
           for row in table(('allow_break', 'request'))}


def compare(what, got, wanted):
    assert set(got) == set(wanted), f'{what}: only there: {set(got) - set(wanted)}, only in the ' \
        f'page: {set(wanted) - set(got)}'
    for member, (types, _) in wanted.items():
        # A boolean of Python is an int, too.
        assert type(got[member]) in types, f'{what}: {member} is {got[member]!r}'


def part(table_of, *places):
    return {name: entry for name, entry in table_of.items() if entry[1] in places}


def is_lock(lock, *more):
    kinds = {'semaphore': 'semaphores', 'latch': 'latches'}
    compare(lock['name'], lock, part(LOCK, 'every *lock*', kinds.get(lock['type']), *more))


def is_person(lock, person, role):
    places = ['every *person*', role] + ['semaphores'] * (lock['type'] == 'semaphore')
    compare(f"{lock['name']}: {role}", person, part(PERSON, *places))


def request(site, path, answer, *also, state=True):
    """The members of an answer that are not those of the state."""
    wanted = set(FURTHER[path]) | set(also)
    got = set(answer)
    if state:
        compare(path, {k: v for k, v in answer.items() if k in STATE}, STATE)
        got -= set(STATE)
    assert got == wanted, f'{path}: {got} and not {wanted}'


def one(site, name, refused):
    answer = site.json('/api/v1/lock?name=' + urllib.parse.quote(name, safe=''))
    request(site, 'GET /api/v1/lock?name=', answer)
    lock = answer['lock']
    assert ('error' in lock) == refused, lock
    with_error = {**lock, 'error': ''}  # the only member that is not always there
    is_lock(with_error, '/lock')
    for person in lock['holders']:
        is_person(lock, person, 'holders')
    for person in lock['waiters']:
        is_person(lock, person, 'waiters')
    return lock


def check(site, *names, refused=False):
    request(site, 'GET /api/v1/status', site.json('/api/v1/status'))
    answer = site.json('/api/v1/locks')
    request(site, 'GET /api/v1/locks', answer)
    for lock in answer['locks']:
        is_lock(lock)
    for name in names:
        one(site, name, refused)
    for query in ('', '?name=' + urllib.parse.quote(names[0])):
        history = site.json('/api/v1/history' + query)
        request(site, 'GET /api/v1/history', history, state=False)
        assert all(len(history[k]) == 360 for k in history if k != 'slot_ms'), history
    request(site, 'GET /healthz', site.json('/healthz'), state=False)
    events(site, names[0])
    nobody = site.ask('POST', '/api/v1/break?name=nobody&holder_token=1').json
    request(site, 'POST /api/v1/break?name=', nobody, state=False)


def events(site, name):
    path = 'GET /api/v1/events'
    stream = site.watch()
    first, second = stream.event(), stream.event()
    assert first['full'] is True, first
    seen = set(first) | set(second)
    assert seen - set(STATE) == set(FURTHER[path]), seen
    compare(path, {k: v for k, v in second.items() if k in STATE}, STATE)
    for lock in second['changed']:
        is_lock(lock)
    stream.close()
    stream = site.watch('/api/v1/events?name=' + urllib.parse.quote(name, safe=''))
    request(site, path + '?name=', stream.event())
    stream.close()
