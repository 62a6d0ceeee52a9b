# SPDX-License-Identifier: Apache-2.0
"""Scenes: lists of steps, made from a seed, that start and disturb some `pawl run`s.

A step is a dictionary with `at` (ms from the beginning) and `do`:

    start    start `pawl run` number `run` on the lock `name`; `shape` is the way to start it (world.py),
             `options` are the options of pawl run, `ms` and `witness` the arguments of the command
             (witness.c), `quit` is when the pager exits (0: at the end)
    signal   `sig` to the process `target` of `run`: pawl, guardian, command, kid, shell, reader,
             group (the process group of pawl)
    key      a key on the terminal of `run`: ^C, ^Z, fg, bg, hangup
    break    `pawl break` of `name`
    latch    `pawl latch` with `words`, number `run`
    service  the action `what` on the service: cut, stall, flow, refuse, accept, pause, resume, restart

A step whose run does not exist any more does nothing, so any subset of the steps is a scene, too.
Shrinking relies on this.
"""
import random

LOCKS = ('a', 'b')
PAWL_SIGNALS = ('KILL', 'KILL', 'KILL', 'STOP', 'STOP', 'TERM', 'INT', 'HUP', 'QUIT', 'USR1', 'USR2',
                'TSTP', 'CONT')
COMMAND_SIGNALS = ('KILL', 'STOP', 'TERM', 'INT', 'USR1', 'TSTP', 'CONT')
TARGETS = {'plain': ('pawl', 'pawl', 'pawl', 'guardian', 'guardian', 'command', 'kid'),
           'shell': ('pawl', 'guardian', 'command', 'kid', 'shell', 'shell', 'group'),
           'pipe': ('pawl', 'guardian', 'command', 'shell', 'reader', 'reader', 'group'),
           'pty': ('pawl', 'guardian', 'command', 'shell', 'group'),
           'pager': ('pawl', 'guardian', 'command', 'shell', 'reader', 'group'),
           'bare': ('pawl', 'guardian', 'command')}


def witness(chance):
    words = {'exit': chance.choice((0, 0, 0, 3, 17))}
    words['term'] = chance.choice(('die', 'die', 'exit', 'ignore'))
    if chance.random() < 0.3:
        words['kids'] = chance.choice((1, 2))
        words['kidterm'] = chance.choice(('die', 'ignore'))
        words['stay'] = chance.choice((0, 0, 200))
    if chance.random() < 0.08:
        words['daemon'] = 500
    return words


def start(chance, at, run, kinds):
    name = chance.choice(LOCKS)
    options = ['-l', chance.choice(('1s', '1500ms', '2s', '3s'))]
    if chance.random() < 0.3:
        options += ['--kill-after', chance.choice(('0.1', '0.3', '0.4'))]
    if chance.random() < 0.1 and kinds[name] != 'permits':
        options += ['--at-least', chance.choice(('0.3', '1'))]
    if chance.random() < 0.15:
        options += ['-n', '-E', '99']
    elif chance.random() < 0.2:
        options += ['-w', chance.choice(('0.2', '1', '4')), '-E', '99']
    if kinds[name] == 'shared' and chance.random() < 0.6:
        options += ['-s']
    if kinds[name] == 'permits':
        options += ['-p', '2']
    shape = chance.choice(('plain',) * 6 + ('shell', 'shell', 'pipe', 'pty', 'pty', 'pager', 'pager', 'bare'))
    words = witness(chance)
    if shape in ('pipe', 'pager'):
        words['out'] = 1
    return {'at': at, 'do': 'start', 'run': run, 'name': name, 'shape': shape, 'options': options,
            'quit': chance.choice((0, 0, 0, 400, 1500)), 'ms': chance.choice((0, 20, 150, 600, 1500, 1500, 3500, 3500)), 'witness': words}


def trouble(chance, at, starts, service):
    """The steps of one fault, with its end if it ends."""
    dice = chance.random()
    if service and dice < 0.2:
        what, back = chance.choice((('cut', None), ('stall', 'flow'), ('refuse', 'accept'),
                                    ('pause', 'resume'), ('restart', None)))
        steps = [{'at': at, 'do': 'service', 'what': what}]
        if back:
            steps.append({'at': at + chance.choice((50, 500, 1500, 3500, 6500)), 'do': 'service',
                          'what': back})
        return steps
    if dice < 0.3:
        return [{'at': at, 'do': 'break', 'name': chance.choice(LOCKS)}]
    victim = chance.choice(starts)
    if victim['shape'] in ('pty', 'pager', 'bare') and chance.random() < 0.5:
        key = chance.choice(('^C', '^Z', '^Z', '^Z', 'hangup'))
        steps = [{'at': at, 'do': 'key', 'run': victim['run'], 'key': key}]
        if key == '^Z' and victim['shape'] in ('pty', 'pager'):
            steps.append({'at': at + chance.choice((50, 300, 2500)), 'do': 'key',
                          'run': victim['run'], 'key': chance.choice(('fg', 'fg', 'bg'))})
        return steps
    target = chance.choice(TARGETS[victim['shape']])
    sig = {'guardian': ('KILL', 'KILL', 'STOP', 'TERM'), 'reader': ('KILL',), 'kid': ('KILL', 'STOP'),
           'shell': ('KILL', 'TERM', 'HUP', 'STOP'),
           'group': ('TERM', 'INT', 'HUP', 'STOP', 'TSTP', 'KILL')}
    sig = chance.choice(sig.get(target, COMMAND_SIGNALS if target == 'command' else PAWL_SIGNALS))
    steps = [{'at': at, 'do': 'signal', 'run': victim['run'], 'target': target, 'sig': sig}]
    if sig in ('STOP', 'TSTP') and chance.random() < 0.8:
        steps.append({'at': at + chance.choice((20, 300, 1500, 4000)), 'do': 'signal',
                      'run': victim['run'], 'target': target, 'sig': 'CONT'})
    return steps


def latches(chance, length):
    """A latch that is set, counted down and waited for, with faults in these processes."""
    count = chance.randrange(1, 4)
    steps = [{'at': 0, 'do': 'latch', 'run': 100, 'words': ['set', 'l', str(count)]}]
    for i in range(chance.randrange(1, 4)):
        wait = chance.choice(([], ['-w', '2'], ['-n']))
        steps.append({'at': 300 + chance.randrange(length), 'do': 'latch', 'run': 110 + i,
                      'words': ['wait', *wait, 'l']})
    for i in range(count + chance.choice((0, 0, 1, -1))):
        steps.append({'at': 300 + chance.randrange(length), 'do': 'latch', 'run': 120 + i,
                      'words': ['down', 'l']})
    for _ in range(chance.randrange(0, 3)):
        victim = chance.choice(steps)
        if victim['do'] == 'latch':
            steps.append({'at': victim['at'] + chance.choice((0, 3, 10, 100, 1000)),
                          'do': 'signal', 'run': victim['run'], 'target': 'pawl',
                          'sig': chance.choice(('KILL', 'TERM', 'INT', 'STOP', 'USR1'))})
    return steps


def scene(seed, service):
    """The scene of a seed. `service`: there is a server, which can be disturbed."""
    chance = random.Random(seed)
    length = chance.choice((600, 1500, 3000))
    kinds = {n: chance.choice(('mutex', 'mutex', 'shared', 'permits')) for n in LOCKS}
    starts = [start(chance, chance.randrange(length), run, kinds)
              for run in range(chance.randrange(2, 7))]
    steps = list(starts)
    for _ in range(chance.randrange(2, 10)):
        victim = chance.choice(starts)
        at = victim['at'] + chance.choice((0, 2, 5, 10, 20, 40, 100, 300, 800, 1500, 2500))
        steps += trouble(chance, at, starts if chance.random() < 0.3 else [victim], service)
    if chance.random() < 0.25:
        steps += latches(chance, length)
    return sorted(steps, key=lambda s: s['at'])
