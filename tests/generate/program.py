# SPDX-License-Identifier: Apache-2.0
"""Random programs over pawl.h: made from a seed, written as text, shrunk.

A program has clients, objects (locks, multi-locks, semaphores, latches; several on each name, of
different kinds, owners and leases) and steps. parse.c says how the text looks; c_test.py prints a
program as a C test. Everything about a program follows from its seed and its profile, so a seed is
enough to repeat it.
"""
import random

from shapes import CROWD, Shapes

MUTEX, FAIR, READ, WRITE, SPIN = range(5)
KINDS = ('PAWL_MUTEX', 'PAWL_FAIR', 'PAWL_READ', 'PAWL_WRITE', 'PAWL_SPIN')
ACTS = ('none', 'release', 'free', 'cancel', 'again', 'ask', 'block')
FREE, CANCEL, AGAIN, ASK = (ACTS.index(a) for a in ('free', 'cancel', 'again', 'ask'))
MOST_PERMITS = 4  # of a semaphore
EARLY = 16  # steps of a thread
LONG = 60000  # a wait that nothing but its grant, a cancel, a free or a close ends


class Profile:
    """What an engine can do, and how long things take.

    locks_only: neither semaphores nor latches. exclusive: no read locks. ordered: waiters of all
    kinds are served in order. short: a fixed lease that ends during a step. watchdogs: leases of free programs. exchange: the
    clients' limit of one exchange, ms. brief: a wait in which a service surely answers. foreign: a
    layout of others, which shows less of semaphores and latches. way: see sequence.c.
    """

    def __init__(self, locks_only=False, exclusive=False, ordered=True, short=400,
                 watchdogs=(400, 900, 2000), exchange=1500, brief=30, foreign=False, way=''):
        self.locks_only = locks_only
        self.exclusive = exclusive
        self.ordered = ordered
        self.short = short
        self.watchdogs = watchdogs
        self.exchange = exchange
        self.brief = brief
        self.foreign = foreign
        self.way = ('ordered' if ordered else 'unordered') + way + (' less' if foreign else '')


class Program:
    def __init__(self, seed):
        self.seed = seed
        self.process = 0
        self.run_ms = 0    # how long the threads of a free program may take; 0: as free.c says
        self.after = None  # ms; a closing round, and how long threads may go on after the last fault
        self.clients = {}  # number: fields
        self.objects = {}  # number: (type, fields)
        self.steps = []    # (thread, verb, object, a, b)

    def text(self):
        lines = [f'program {self.seed}', f'process {self.process}', f'run {self.run_ms}']
        if self.after is not None:
            lines.append(f'after {self.after}')
        for n, fields in self.clients.items():
            lines.append(f'client {n} ' + words(fields))
        for n, (kind, fields) in self.objects.items():
            lines.append(f'{kind} {n} ' + words(fields))
        lines += ['step ' + ' '.join(map(str, s)) for s in self.steps]
        return '\n'.join(lines + ['end', ''])

    def copy(self):
        new = Program(self.seed)
        new.process, new.run_ms = self.process, self.run_ms
        new.after = self.after
        new.clients = {n: dict(f) for n, f in self.clients.items()}
        new.objects = {n: (k, dict(f)) for n, (k, f) in self.objects.items()}
        new.steps = list(self.steps)
        return new

    def size(self):
        numbers = [v for f in self.clients.values() for v in f.values()]
        numbers += [v for _, f in self.objects.values() for v in f.values() if isinstance(v, int)]
        return (len(self.steps), len(self.objects), len(self.clients),
                len({s[0] for s in self.steps}), sum(1 for v in numbers if v))


def words(fields):
    return ' '.join(f'{k}={v}' for k, v in fields.items())


def parse(text):
    """The opposite of text()."""
    p = Program(0)
    for line in text.splitlines():
        w = line.split()
        if not w or w[0] in ('end', '#'):
            continue
        fields = {}
        for item in w[2:]:
            if '=' in item:
                k, v = item.split('=')
                fields[k] = v if k == 'members' else int(v)
        if w[0] == 'program':
            p.seed = int(w[1])
        elif w[0] == 'process':
            p.process = int(w[1])
        elif w[0] == 'run':
            p.run_ms = int(w[1])
        elif w[0] == 'after':
            p.after = int(w[1])
        elif w[0] == 'client':
            p.clients[int(w[1])] = fields
        elif w[0] == 'step':
            numbers = list(map(int, w[3:])) + [0] * (6 - len(w))
            p.steps.append((int(w[1]), w[2], *numbers[:3]))
        else:
            p.objects[int(w[1])] = (w[0], fields)
    return p


# ---- making -------------------------------------------------------------------------------------

class Maker:
    """Common to both modes: objects, and which steps suit them."""

    def __init__(self, seed, profile):
        self.chance = random.Random(seed)
        self.profile = profile
        self.program = Program(seed)

    def pick(self, *choices):
        return self.chance.choice(choices)

    def weighted(self, table):
        return self.chance.choices(list(table), list(table.values()))[0]

    def add(self, type_, **fields):
        n = len(self.program.objects)
        if self.profile.exclusive and fields.get('kind') == READ:
            fields['kind'] = WRITE
        self.program.objects[n] = (type_, fields)
        return n

    def fields(self, n):
        return self.program.objects[n][1]

    def of(self, *types):
        return [n for n, (k, _) in self.program.objects.items() if k in types]

    def make_multi(self, locks):
        """Of distinct names, as pawl.h demands."""
        by_name = {}
        for n in self.chance.sample(locks, len(locks)):
            by_name.setdefault(self.fields(n)['name'], n)
        members = list(by_name.values())[:self.pick(2, 2, 3)]
        if len(members) > 1:
            self.add('multi', client=self.fields(members[0])['client'],
                     members=','.join(map(str, members)))


class Sequential(Maker):
    """Programs whose every outcome is known: waits are either short or without an end, leases either
    end while a step waits for that or never."""

    def make(self):
        p, c = self.program, self.chance
        own = c.random() < 0.25  # one name, which threads have in several ways at once
        for n in range(1 if own else self.pick(1, 2, 2, 3)):
            p.clients[n] = {'loop': int(c.random() < 0.15), 'cohort': self.pick(0, 0, 1, 2),
                            'watchdog': 30000, 'timeout': 10000}
        names = 1 if own else self.pick(1, 1, 2, 3)
        self.often = names > 1 and c.random() < 0.3  # a multi-lock, in every third step
        swarm = {'callbacks': c.random() < 0.4, 'handles': 0.1 if own else c.random(), 'ends': c.random() < 0.3,
                 'same': c.random() < 0.3}
        for _ in range(c.randint(2, 7)):
            self.make_lock(names, swarm)
        if names > 1 and (self.often or c.random() < 0.4):  # of leases that do not end by themselves
            self.make_multi([n for n in self.of('lock')
                             if self.fields(n)['lease'] != self.profile.short])
        if not self.profile.locks_only:
            self.make_others(names)
        threads = self.pick(1, 2) if own else self.pick(1, 2, 3, 4)
        verbs = self.draw_verbs()
        for _ in range(c.randint(4, 40)):
            p.steps += self.make_steps(c.randrange(threads), verbs)
            if self.often and self.of('multi') and threads > 1 and c.random() < 0.1:
                p.steps += self.halfway(*c.sample(range(threads), 2))
        return p

    def halfway(self, one, other):
        """A multi-lock waits for its last member, and something happens to what it has."""
        n = self.chance.choice(self.of('multi'))
        members = sorted(self.members(n), key=lambda m: self.fields(m)['name'])
        if self.polls(n):
            return []
        return [(one, 'acquire', members[-1], 0, 0), (other, 'acquire', n, LONG, 0),
                (one, self.pick('break', 'break', 'cancel', 'inspect'),
                 self.pick(members[0], n), 0, 0), (one, 'release', members[-1], 0, 0)]

    def make_lock(self, names, swarm):
        c = self.chance
        ends = swarm['ends'] and c.random() < 0.4
        kind = FAIR if swarm['same'] else c.randrange(5)
        lost = c.randrange(7) if swarm['callbacks'] else 0
        if lost == CANCEL:  # the next owner's acquire may be granted before the loss is told, or not
            lost = ASK
        self.add('lock', client=c.randrange(len(self.program.clients)), name=c.randrange(names),
                 kind=kind, owner=int(c.random() < swarm['handles']),
                 lease=self.profile.short if ends else self.pick(0, 0, LONG * 10),
                 max=self.pick(0, 0, 0, LONG * 20), atleast=0,
                 lost=ASK if ends and lost in (FREE, AGAIN) else lost,
                 done=c.randrange(7) if swarm['callbacks'] else 0)

    def make_others(self, names):
        c = self.chance
        if c.random() < 0.4:
            permits = c.randint(1, 4)
            for _ in range(c.randint(1, 3)):
                self.add('sem', client=c.randrange(len(self.program.clients)), name=names,
                         permits=permits + int(not self.profile.foreign and c.random() < 0.1),
                         lease=self.pick(0, 0, LONG * 10))
        if c.random() < 0.25:
            own = self.profile.foreign or c.random() < 0.6  # else also the semaphores' name
            for _ in range(c.randint(1, 2)):
                self.add('latch', client=c.randrange(len(self.program.clients)), name=names + own)

    def draw_verbs(self):
        """Swarm testing: each program leaves out some verbs, and so does others more often."""
        usual = {'acquire': 10, 'start': 5, 'release': 8, 'rstart': 4, 'renew': 2, 'break': 2,
                 'cancel': 2, 'free': 2, 'close': 1, 'inspect': 3, 'list': 1, 'end': 0.5,
                 'fork': 0.3}
        return {v: w for v, w in usual.items()
                if v in ('acquire', 'release') or self.chance.random() < 0.7}

    def members(self, n):
        kind, fields = self.program.objects[n]
        return [int(m) for m in fields['members'].split(',')] if kind == 'multi' else [n]

    def polls(self, n):
        """Whether a wait ends at the next poll, which may be steps after the release."""
        return any(self.fields(m).get('kind') == SPIN for m in self.members(n))

    def wait(self, n):
        if self.polls(n):
            return self.pick(0, 0, self.profile.brief)
        return self.weighted({0: 5, self.profile.brief: 2, LONG: 4, -1: 1})

    def make_steps(self, thread, verbs):
        step = self.make_step(thread, verbs)
        n = step[2]
        if step[1] in ('acquire', 'start', 'renew') and \
                self.fields(n).get('lease') == self.profile.short:
            return [(thread, 'acquire', n, 0, 0), (thread, 'expire', n, 1500, 0)]
        return [step]

    def make_step(self, thread, verbs):
        c = self.chance
        multis = self.of('multi') if self.often and c.random() < 0.3 else []
        n = c.choice(multis or list(self.program.objects))
        kind, fields = self.program.objects[n]
        if kind == 'sem':
            verb = self.pick('sacquire', 'sacquire', 'srelease', 'srelease', 'avail', 'cancel',
                             'free', 'avail' if self.profile.foreign else 'inspect')
            most = 3
            if any(self.fields(m)['name'] == fields['name'] for m in self.of('latch')):
                most = min(3, fields['permits'])  # of two mistakes at once, either may be reported
            return (thread, verb, n, c.randint(1, most), self.pick(0, 0, self.profile.brief, LONG))
        if kind == 'latch':
            verb = self.pick('set', 'down', 'down', 'count', 'wait', 'cancel',
                             'count' if self.profile.foreign else 'inspect')
            return (thread, verb, n, self.pick(0, self.profile.brief, LONG) if verb == 'wait' else c.randint(1, 2),
                    0)
        verb = self.weighted(verbs)
        if verb == 'break' and fields.get('lost') == FREE:  # pawl.h: no free beside a call
            verb = 'inspect'
        if verb == 'break' and kind == 'multi':  # members one by one: who waits meets some of them lost
            verb = 'inspect'
        if verb == 'list' and self.profile.foreign and self.of('sem', 'latch'):
            verb = 'inspect'
        if verb in ('close', 'list'):
            return (thread, verb, c.randrange(len(self.program.clients)), 0, 0)
        a = self.wait(n) if verb in ('acquire', 'start') else \
            self.pick(0, LONG, LONG * 10) if verb == 'renew' else 0
        return (thread, verb, n, a, 0)


def sequential(seed, profile):
    return Sequential(seed, profile).make()


class Free(Shapes, Maker):
    """Programs of several processes on the same names, run as fast as they go. Leases are short and
    really end; waits really time out."""

    def __init__(self, seed, profile, mode='free', shape=None, seconds=60):
        super().__init__(seed, profile)
        self.mode = mode
        self.shape = shape or self.draw_shape(mode, seconds)

    def make(self, processes):
        c = self.chance
        self.shared = {'names': self.pick(1, 1, 2, 3), 'permits': c.randint(1, MOST_PERMITS),
                       'watchdog': c.choice(self.profile.watchdogs), 'threads': self.pick(1, 2, 3, 4),
                       'handles': c.random(), 'callbacks': c.random() < 0.3,
                       'kinds': c.choice([[MUTEX], [FAIR], [READ, WRITE], [SPIN], [0, 1, 2, 3, 4],
                                          [0, 1, 2, 3, 4]]),
                       'fixed': c.random() < 0.4, 'sems': c.random() < 0.3, 'multi': c.random() < 0.3,
                       'keep': c.random() < 0.15, 'latch': c.random() < 0.25, 'nest': 0.3,
                       'often': 0, 'run': 0, 'closing': self.pick(0, 0, 0, 0.2)}
        self.set_shape(self.mode)
        self.verbs = self.draw_verbs()
        programs = []
        for process in range(processes):
            self.program = Program(self.program.seed)
            self.program.process = process
            self.program.run_ms = self.shared['run']
            self.make_process()
            programs.append(self.program)
        return programs

    def draw_verbs(self):
        """What comes between pairs of acquire and release; each program leaves some out."""
        usual = {'acquire': 6, 'start': 6, 'release': 4, 'rstart': 4, 'renew': 2, 'cancel': 2,
                 'inspect': 1, 'hold': 6, 'sleep': 3, 'free': 0.7, 'close': 0.2, 'break': 0.5,
                 'fork': 0.3}
        kept = {v: w for v, w in usual.items() if self.chance.random() < 0.6}
        if self.shared.get('broken'):
            kept['break'] = 6
        return kept or {'sleep': 1}

    def make_process(self):
        c, s = self.chance, self.shared
        for n in range(s.get('clients') or self.pick(1, 1, 2)):
            self.program.clients[n] = {'loop': int(c.random() < 0.1), 'cohort': self.pick(0, 0, 1, 2),
                                       'watchdog': s['watchdog'],
                                       'timeout': self.profile.exchange}
        for n in range(CROWD if self.shape == 'crowd' else c.randint(1, 5)):
            self.make_lock()
            if self.shape == 'crowd':
                self.fields(n)['name'] = n
        for kind in s.get('locks', ()):  # one of each in any case
            self.make_lock()
            self.fields(len(self.program.objects) - 1)['kind'] = kind
        if s['multi'] and s['names'] > 1:
            self.make_multi(self.of('lock'))
        if s['sems'] and not self.profile.locks_only:
            for _ in range(self.pick(1, 2)):
                self.add('sem', client=c.randrange(len(self.program.clients)), name=s['names'],
                         permits=s['permits'], lease=self.pick(0, 0, s['watchdog']))
        if s['latch'] and not self.profile.locks_only:
            self.add('latch', client=c.randrange(len(self.program.clients)), name=s['names'] + 1)
        for thread in range(s['threads']):
            most = len(self.program.steps) + (250 if self.shape == 'crowd' else 60)
            for _ in range(c.randint(3, 14)):
                if len(self.program.steps) < most:
                    self.program.steps += self.make_steps(thread)

    def make_lock(self):
        c, s = self.chance, self.shared
        watchdog = s['watchdog']
        self.add('lock', client=c.randrange(len(self.program.clients)), name=c.randrange(s['names']),
                 kind=c.choice(s['kinds']), owner=int(c.random() < s['handles']),
                 lease=self.lease(),
                 max=0 if self.shape == 'siege' or 'beat' in s else
                 self.pick(0, 0, 0, watchdog // 2, 2 * watchdog),
                 atleast=self.pick(0, 60, 300, 900) if s['keep'] else 0,
                 lost=c.randrange(7) if s['callbacks'] else 0,
                 done=c.randrange(7) if s['callbacks'] else 0)

    def lease(self):
        """Leases of the shape `long` are all long."""
        s = self.shared
        if not s['fixed']:
            return 0
        if self.shape == 'long':
            return self.pick(0, s['watchdog'])
        if self.shape == 'move':
            return self.pick(0, s['short'], s['short'], 2 * s['short'])
        return self.pick(0, s['watchdog'] // 2, s['watchdog'], 2 * s['watchdog'])

    def wait(self):
        return self.weighted({0: 3, 20: 2, 300: 2, self.chance.randint(1, 1500): 2, 2500: 3, 5500: 0.7,
                              -1: 0.3})

    def renewal(self):
        """The lease of a renewal: the usual one, or one that is at times longer than all before it."""
        return self.pick(0, 1, 2) * self.shared['watchdog']

    def stay(self):
        watchdog = self.shared.get('beat', self.shared['watchdog'])
        return self.weighted({0: 3, 2: 3, 20: 2, watchdog // 4: self.shared['often'],
                              watchdog // 2: 1, 2 * watchdog: 0.3})

    def make_steps(self, thread, depth=0):
        c = self.chance
        n = c.choice(list(self.program.objects))
        kind = self.program.objects[n][0]
        steps = self.shape_steps(thread, n)
        if steps is not None:
            return steps
        if kind == 'sem' and n % self.shared['threads'] == thread:
            return self.sem_steps(thread, n)
        if kind == 'sem':  # the log can't tell whose permits are the newest if two threads take some
            return [(thread, self.pick('avail', 'cancel', 'inspect'), n, 0, 0)]
        if kind == 'latch':
            return [self.latch_step(thread, n)]
        if depth == 0 and c.random() < self.shared['closing']:  # closed as it is held
            return [(thread, 'acquire', n, self.wait(), 0), (thread, 'hold', n, self.stay(), 0),
                    (thread, 'close', self.fields(n)['client'], 0, 0)]
        if kind == 'multi' and c.random() < 0.15:  # freed as it is held
            return [(thread, 'acquire', n, self.wait(), 0), (thread, 'hold', n, self.stay(), 0),
                    (thread, 'free', n, 0, 0)]
        if c.random() < 0.5:
            inner = [(thread, 'hold', n, self.stay(), 0)]
            if c.random() < 0.15:
                inner.insert(0, (thread, 'renew', n, self.renewal(), 0))
            while depth < 3 and c.random() < self.shared['nest'] and len(inner) < 12:
                inner += self.make_steps(thread, depth + 1)
                inner.append((thread, 'hold', n, self.stay(), 0))
            return [(thread, 'acquire', n, self.wait(), 0), *inner, (thread, 'release', n, 0, 0)]
        verb = self.weighted(self.verbs)
        if verb in ('close', 'list'):
            return [(thread, verb, c.randrange(len(self.program.clients)), 0, 0)]
        a = {'acquire': self.wait(), 'start': self.wait(), 'hold': self.stay(),
             'sleep': self.stay(), 'renew': self.renewal(),
             'inspect': self.pick(0, 1)}.get(verb, 0)
        return [(thread, verb, n, a, 0)]

    def latch_step(self, thread, n):
        verb = self.weighted({'set': 3, 'down': 6, 'wait': 4, 'count': 1, 'cancel': 0.5,
                              'free': 0.2, 'fork': 0.2})
        return (thread, verb, n, self.wait() if verb == 'wait' else self.chance.randint(1, 3), 0)

    def sem_steps(self, thread, n):
        c = self.chance
        k = c.randint(1, self.shared['permits'])
        if c.random() < 0.7:
            return [(thread, 'sacquire', n, k, self.wait()), (thread, 'hold', n, self.stay(), 0),
                    (thread, 'srelease', n, c.randint(1, k), 0)]
        return [(thread, self.pick('srelease', 'avail', 'cancel', 'sacquire', 'hold'), n,
                 c.randint(1, 2), self.pick(0, 20, 300))]


def is_early(program, at):
    """Whether the step is among the first of its thread: faults can be asked for only in the first
    seconds (faults.py)."""
    return sum(s[0] == program.steps[at][0] for s in program.steps[:at]) < EARLY


def weave(c, programs, count, after, preferred=None):
    """Programs with faults: the steps that ask for faults of the plan (faults.py), each before a call,
    and the closing round. Each verb gets as many as any other, however rare it is; the preferred one
    gets half of all."""
    for p in programs:
        p.after = after
    for k in range(count):
        p = c.choice(programs)
        verbs = sorted({s[1] for s in p.steps} - {'sleep', 'hold', 'fault', 'fork', 'close', 'free'})
        if not verbs:
            continue
        verb = preferred if preferred in verbs and c.random() < 0.5 else c.choice(verbs)
        found = [i for i, s in enumerate(p.steps) if s[1] == verb]
        at = c.choice([i for i in found if not preferred or is_early(p, i)] or found)
        thread = p.steps[at][0]
        for _ in range(c.choice((0, 0, 1, 2))):  # what is between the two goes on during the fault
            at -= at > 0 and p.steps[at - 1][0] == thread
        p.steps.insert(at, (p.steps[at][0], 'fault', p.steps[at][2], k, 0))
