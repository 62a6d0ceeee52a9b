# SPDX-License-Identifier: Apache-2.0
"""Programs of the environment generator: what runs out, jumps or changes while some clients take
and give back locks, as a list of steps that a seed decides. Any subset of the steps is a program.

    fail      calls of Pawl fail at random: `calls` has the kinds and how many of 65536 (trouble.c)
    nofile    client `who` may open `extra` descriptors more than it has
    disk      the file system of the lock folder is full (local: as root)
    clock     the wall clock jumps by `realtime` s, or all clients' boot clock by `boottime` s as
              after a suspend (servers only: on local: the lock table has the same clock)
    identity  client `who` becomes another user, changes its root, or forks: `what`
    guest     another client, perhaps in a container of the kind `what`, opens and goes on
    visit     clients open, take a lock and close, one after the other, for a while
    cut       the server ends all connections
    kill      client `who` is killed
    crowd     `many` processes at a time come with `each` clients, take locks and are killed at any
              instant (local:; crowd.c)
    narrow    the file system of the lock folder keeps `room` more bytes than it has, to the end of the
              program (local: as root)
    unload    a program loads the library, uses it in threads, unloads it, and the threads end
    tool      `pawl run` under the same failures

`for` is how long it lasts, in ms.
"""
import random

CALLS = ('open', 'socket', 'connect', 'read', 'write', 'file_read', 'file_write', 'map', 'lock',
         'thread', 'fork', 'watch', 'make', 'memory', 'wait')
GUESTS = ('noproc', 'subset', 'bootid', 'pidns', 'timens', 'netns')
WORKERS = 3


def failing(chance):
    """Some kinds of calls, from now and then to nearly always."""
    some = chance.sample(CALLS, chance.choice((1, 1, 2, 3, len(CALLS))))
    return {c: chance.choice((30, 300, 3000, 20000, 60000) if len(some) < 4 else (30, 300, 1500))
            for c in some}


def step(chance, at, server, root):
    what = chance.choice(('fail',) * 8 + ('nofile', 'nofile', 'clock', 'kill', 'unload') +
                         (() if server else ('crowd',) * 3) +
                         ('tool', 'visit') * 3 +
                         (('identity', 'identity', 'guest', 'guest') if root else ()) +
                         (('disk', 'disk', 'narrow', 'narrow') if root and not server else ()) +
                         (('cut', 'cut', 'cut') if server else ()))
    s = {'at': at, 'do': what, 'for': chance.choice((100, 400, 1200, 2500))}
    if what == 'fail':
        s['calls'] = failing(chance)
    elif what == 'nofile':
        s.update(who=chance.randrange(WORKERS), extra=chance.choice((-3, 0, 0, 1, 2, 3)))
    elif what == 'clock':
        if server and chance.random() < 0.5:
            s['boottime'] = chance.choice((1, 3, 100, 100000))
        else:
            s['realtime'] = chance.choice((-10**8, -3600, -5, 5, 3600, 10**8))
    elif what == 'identity':
        s.update(who=chance.randrange(WORKERS), what=chance.choice(('become', 'chroot', 'fork', 'fork')))
    elif what == 'guest':
        s['what'] = chance.choice(GUESTS)
    elif what == 'kill':
        s['who'] = chance.randrange(WORKERS)
    elif what == 'crowd':
        s.update(many=chance.choice((2, 6, 15)), each=chance.choice((1, 1, 1, 40)))
    elif what == 'narrow':
        s['room'] = chance.choice((512, 1024, 2048)) << 10
    elif what == 'tool':
        s['ms'] = chance.choice((0, 50, 800))
        s['options'] = chance.choice((['-n'], ['-w', '4'], ['-w', '4', '-l', '1s'],
                                      ['-w', '4', '-l', '1s', '--kill-after', '0.2']))
    return s


def watchdog(seed, server):
    """ms. On local: the death of a holder is seen at once, so long leases must not hold up anybody."""
    return 2000 if server or random.Random(seed ^ 0xdeaf).random() < 0.4 else 30000


def program(seed, server, root):
    """Calls fail most often while somebody opens or reconnects: half of the failures get company. So
    does a lack of room, by many who die with some of it."""
    chance = random.Random(seed)
    steps = [step(chance, chance.randrange(3000), server, root)
             for _ in range(chance.randrange(2, 9))]
    for s in [s for s in steps if s['do'] == 'fail']:
        if chance.random() < 0.7:
            other = step(chance, s['at'] + 1, server, root)
            while other['do'] not in ('visit', 'tool', 'cut'):
                other = step(chance, s['at'] + 1, server, root)
            steps.append(dict(other, **{'for': s['for']}))
    for s in [s for s in steps if s['do'] == 'narrow']:
        steps.append({'at': s['at'] + chance.choice((1, 500)), 'do': 'crowd', 'for': 2500,
                      'many': chance.choice((6, 15)), 'each': chance.choice((1, 40, 40))})
    return sorted(steps, key=lambda s: s['at'])
