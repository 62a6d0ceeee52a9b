# SPDX-License-Identifier: Apache-2.0
"""Shapes of free programs: what the processes of one program have in common (program.py, class Free).

A usual program does a little of everything, so whatever needs many steps of one sort, or somebody
who waits to the end, hardly comes up. Each shape is about one sort, and draws all else:

    usual      everything
    one_owner  threads that have one name in several ways at once, for longer than a lease
    patient    waits without a limit on one name, often of all kinds: whoever is not served shows
    ends       fixed leases that are held to their end and beyond, while others wait for that
    parts      permits, taken at once and given back in parts, for longer than a lease is renewed
    brief      clients that close soon after a release, with locks that stay for a while
    crowd      many names, which one client asks for at the same time
    siege      somebody holds a name for more than a minute, others wait for it and are killed: their
               places must not stay. Only in runs of five minutes or more of an engine and mode
    long       leases much longer than the program, each given back at once: whatever is not given
               back everywhere shows, because somebody waits for the name
    limits     threads of one client ask for a name with limits shorter than most holds and faults
    downgrade  a thread that writes a name reads the name, too, and then ends the writing; others
               break the name if they can't get it
    move       a hold with a short lease is renewed to a longer lease, which the client also has
    steady     holds of seconds, with long pauses and long leases: whoever is not notified of a
               release waits in vain, and nobody else comes who would help

`plan` says which faults suit a shape (faults.py), and `least` how many processes there must be.
The last four shapes are for programs with faults only.
"""
import random

MUTEX, FAIR, READ, WRITE, SPIN = range(5)
ALL_KINDS = [MUTEX, FAIR, READ, WRITE]

WEIGHTS = {'usual': 9, 'one_owner': 6, 'patient': 4, 'ends': 2, 'parts': 2, 'long': 1, 'brief': 3,
           'crowd': 1}
SIEGE_MS = 82000
FAULTY = {'usual': 6, 'one_owner': 3, 'patient': 6, 'ends': 4, 'parts': 1, 'long': 2, 'brief': 2,
          'crowd': 3}
APART = {'limits': 2, 'downgrade': 1, 'move': 1, 'steady': 1}
APART_SHARE = 0.2
SHAPES = (*WEIGHTS, 'siege', *APART)
PREFERRED = {'move': 'renew', 'downgrade': 'acquire', 'limits': 'acquire'}  # which calls meet faults
LONG_LEASE = 12000  # ms
CROWD = 60          # names


class Shapes:
    def draw_shape(self, mode, seconds):
        """seconds: of the whole run. A short run has no program that may take much longer than others.
        The shapes APART have a draw of their own, so that they do not change the programs of the other
        seeds."""
        apart = random.Random(self.program.seed ^ 0xa9a47)
        if mode in ('faults', 'network') and seconds >= 10 and apart.random() < APART_SHARE:
            return apart.choices(list(APART), list(APART.values()))[0]
        table = dict(FAULTY if mode in ('faults', 'network') else WEIGHTS)
        for shape in ('patient', 'ends', 'long') if seconds < 10 else ():
            table[shape] = 0 if mode in ('faults', 'network') else table[shape] * (shape == 'patient')
        if mode == 'faults' and seconds >= 300:
            table['siege'] = 1
        if self.profile.locks_only:
            del table['parts']
        if mode == 'steered':  # one process, and virtual time: nobody is patient for long
            del table['long']
        return self.weighted(table)

    def least(self):
        """Processes. Somebody must be left when one is killed."""
        return {'patient': 3, 'ends': 2, 'long': 2, 'siege': 6, 'limits': 2, 'downgrade': 3,
                'move': 2, 'steady': 3}.get(self.shape, 1)

    def set_shape(self, mode):
        getattr(self, 'shape_' + self.shape)(mode)

    def shape_usual(self, mode):
        pass

    def shape_one_owner(self, mode):
        """Entered again, written and read, with different leases; others ask for the name meanwhile."""
        self.shared.update(names=1, handles=0, sems=False, nest=0.8, often=8, callbacks=False,
                           threads=self.pick(1, 1, 2), broken=self.chance.random() < 0.3,
                           kinds=self.pick([READ], [READ, WRITE], [MUTEX, READ], [READ, WRITE, FAIR]))

    def shape_patient(self, mode):
        self.shared.update(names=1, handles=0, sems=False, multi=False, callbacks=False,
                           kinds=self.pick([MUTEX], [FAIR], [READ, WRITE, WRITE], ALL_KINDS))
        if mode in ('faults', 'network'):
            self.shared.update(run=25000, threads=self.pick(1, 2, 3))
        if self.chance.random() < 0.5:  # a wake-up that is lost is not made good by the end of a lease
            self.shared.update(watchdog=10000, beat=600, fixed=False)

    def shape_brief(self, mode):
        self.shared.update(watchdog=10000, beat=600, fixed=False, keep=True, sems=False, multi=False,
                           callbacks=False, names=self.pick(1, 2))

    def shape_crowd(self, mode):
        self.shared.update(names=CROWD, sems=False, multi=False, callbacks=False, threads=1, handles=1,
                           keep=False, latch=False)

    def shape_ends(self, mode):
        self.shared.update(names=1, multi=False, callbacks=False, fixed=True, latch=False,
                           keep=False, threads=self.pick(1, 2), run=10000,
                           kinds=self.pick([MUTEX], [FAIR], [WRITE], [READ, WRITE], ALL_KINDS),
                           sems=self.chance.random() < 0.5)

    def shape_parts(self, mode):
        self.shared.update(names=1, multi=False, latch=False, sems=True, callbacks=False,
                           permits=self.chance.randint(2, 4), threads=1, often=8,
                           watchdog=min(self.profile.watchdogs))

    def shape_long(self, mode):
        self.shared.update(names=1, handles=0, sems=False, multi=False, callbacks=False, keep=False,
                           latch=False, watchdog=LONG_LEASE, fixed=self.chance.random() < 0.5,
                           kinds=self.pick([MUTEX], [FAIR], [READ, WRITE, WRITE], ALL_KINDS),
                           threads=self.pick(1, 2), run=LONG_LEASE + 4000)

    def shape_siege(self, mode):
        self.shared.update(names=1, handles=0, sems=False, multi=False, callbacks=False, keep=False,
                           latch=False, fixed=False, threads=2, watchdog=10000, run=SIEGE_MS + 4000,
                           kinds=self.pick([MUTEX], [FAIR], [READ, WRITE, WRITE], ALL_KINDS))

    def shape_limits(self, mode):
        self.shared.update(names=self.pick(1, 2, 3), handles=0, sems=False, multi=False, latch=False,
                           callbacks=False, keep=False, fixed=False, threads=self.pick(2, 3, 4),
                           run=12000, kinds=self.pick([MUTEX], [FAIR], [WRITE], ALL_KINDS))

    def shape_downgrade(self, mode):
        self.shared.update(names=1, handles=0, sems=False, multi=False, latch=False, callbacks=False,
                           keep=False, fixed=False, threads=self.pick(1, 2), run=12000, clients=1,
                           kinds=[READ, WRITE], locks=[WRITE, READ],
                           watchdog=max(self.profile.watchdogs))

    def shape_move(self, mode):
        self.shared.update(names=self.pick(1, 1, 2), handles=0, sems=False, multi=False, latch=False,
                           callbacks=False, keep=False, fixed=True, threads=self.pick(1, 2),
                           clients=1, watchdog=LONG_LEASE, short=min(self.profile.watchdogs),
                           run=LONG_LEASE + 12000, kinds=self.pick([MUTEX], [FAIR], [READ, WRITE]))

    def shape_steady(self, mode):
        self.shared.update(names=1, handles=0, sems=False, multi=False, latch=False, callbacks=False,
                           keep=False, fixed=False, threads=1, watchdog=LONG_LEASE, beat=600, run=25000,
                           kinds=self.pick([MUTEX], [FAIR], [WRITE], [READ, WRITE], ALL_KINDS))

    # ---- steps ----

    def shape_steps(self, thread, n):
        """None: as in a usual program."""
        kind = self.program.objects[n][0]
        if self.shape in APART:
            return getattr(self, self.shape + '_steps')(thread, n)
        if self.shape == 'siege':
            return self.siege(thread, n)
        if self.shape == 'crowd':
            return self.crowd_steps(thread)
        if self.shape == 'brief' and kind == 'lock' and self.chance.random() < 0.5:
            return [(thread, 'acquire', n, self.pick(300, 2500, -1), 0),
                    (thread, 'hold', n, self.pick(0, 20), 0), (thread, 'release', n, 0, 0)] + \
                [(thread, 'close', self.fields(n)['client'], 0, 0)] * (self.chance.random() < 0.3)
        if kind == 'lock' and self.shape in ('patient', 'long'):
            stay = self.weighted({0: 3, 2: 3, 20: 2, 200: 1}) if self.shape == 'long' else self.stay()
            return [(thread, 'acquire', n, -1, 0), (thread, 'hold', n, stay, 0),
                    (thread, 'release', n, 0, 0), (thread, 'sleep', n, stay, 0)]
        if kind == 'lock' and self.shape == 'ends':
            return [(thread, 'acquire', n, self.pick(-1, -1, 2500), 0),
                    (thread, 'hold', n, self.to_the_end(n), 0), (thread, 'release', n, 0, 0)]
        if kind == 'sem' and self.shape == 'ends' and n % self.shared['threads'] == thread:
            k = self.chance.randint(1, self.shared['permits'])
            return [(thread, 'sacquire', n, k, self.pick(-1, 2500)),
                    (thread, 'hold', n, self.to_the_end(n), 0), (thread, 'srelease', n, k, 0)]
        if kind == 'sem' and self.shape == 'parts' and n % self.shared['threads'] == thread:
            return self.in_parts(thread, n)
        return None

    def siege(self, thread, n):
        """The first process holds and looks; in each of the others one thread asks until it has to wait:
        several threads could share a place (cohort)."""
        if any(s[0] == thread for s in self.program.steps) or self.program.process and thread:
            return []
        if self.program.process == 0 and thread == 1:
            return [(thread, *s) for _ in range(SIEGE_MS // 1000)
                    for s in (('sleep', n, 1000, 0), ('inspect', n, self.pick(0, 1), 0))]
        if self.program.process == 0:
            return [(thread, 'acquire', n, -1, 0), (thread, 'hold', n, SIEGE_MS, 0),
                    (thread, 'release', n, 0, 0)]
        return [(thread, *s) for _ in range(20)
                for s in (('acquire', n, -1, 0), ('release', n, 0, 0), ('sleep', n, 200, 0))]

    def limits_steps(self, thread, n):
        stay = self.weighted({0: 3, 20: 2, 900: 2, 2500: 1})
        return [(thread, 'acquire', n, self.pick(20, 300, 300, 900, 900, 2500, -1), 0),
                (thread, 'hold', n, stay, 0), (thread, 'release', n, 0, 0)] + \
            [(thread, 'sleep', n, self.pick(20, 300), 0)] * (self.chance.random() < 0.5)

    def downgrade_steps(self, thread, n):
        write, read = [next(k for k in self.of('lock') if self.fields(k)['kind'] == kind)
                       for kind in (WRITE, READ)]
        if self.chance.random() < 0.4:  # not to be had: broken
            return [(thread, 'acquire', write, self.pick(20, 300), 0), (thread, 'break', write, 0, 0),
                    (thread, 'acquire', write, 2500, 0),
                    (thread, 'hold', write, self.pick(300, 900, 2000), 0),
                    (thread, 'release', write, 0, 0)]
        return [(thread, 'acquire', write, self.pick(2500, 2500, -1), 0),
                (thread, 'hold', write, self.pick(2, 20, 300), 0),
                (thread, 'acquire', read, self.pick(900, 2500), 0),
                (thread, 'hold', read, self.pick(2, 300), 0), (thread, 'release', write, 0, 0),
                (thread, 'hold', read, self.pick(2, 300), 0), (thread, 'release', read, 0, 0)]

    def move_steps(self, thread, n):
        """Waits have no limit: an acquire that ended without an answer could have got the lock, and so
        would excuse a lock that nobody has."""
        return [(thread, 'acquire', n, -1, 0),
                (thread, 'hold', n, self.pick(2, 20, 300), 0),
                (thread, 'renew', n, self.shared['watchdog'], 0),
                (thread, 'hold', n, self.pick(2, 300, self.shared['short']), 0),
                (thread, 'release', n, 0, 0)]

    def steady_steps(self, thread, n):
        return [(thread, 'acquire', n, -1, 0), (thread, 'hold', n, self.pick(20, 900, 3000), 0),
                (thread, 'release', n, 0, 0), (thread, 'sleep', n, self.pick(20, 4000, 8000), 0)]

    def to_the_end(self, n):
        lease = self.fields(n)['lease'] or self.shared['watchdog']
        return self.weighted({0: 1, lease // 2: 2, lease + 50: 4, 2 * lease: 1})

    def in_parts(self, thread, n):
        left = self.chance.randint(2, self.shared['permits'])
        steps = [(thread, 'sacquire', n, left, self.pick(300, 2500, -1))]
        while left:
            k = self.chance.randint(1, min(left, 2))
            left -= k
            steps += [(thread, 'hold', n, self.stay(), 0), (thread, 'srelease', n, k, 0)]
        return steps

    def crowd_steps(self, thread):
        """All at the same time, and then the same with what was got."""
        some = self.chance.sample(self.of('lock'), self.chance.randint(2, CROWD))
        steps = [(thread, 'start', n, self.pick(300, 2500), 0) for n in some]
        steps.append((thread, 'sleep', some[0], self.pick(20, 300, 900), 0))
        return steps + [(thread, 'rstart', n, 0, 0) for n in some]
