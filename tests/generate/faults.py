# SPDX-License-Identifier: Apache-2.0
"""The plan of faults of a program: a list of (ms, kind, argument ...), drawn from its seed.

    stop P MS       SIGSTOP of process P, SIGCONT after so long
    kill P          SIGKILL
    cut P           all connections, now
    cut_after P N   after N more bytes of answers: in the middle of one
    lose P MS       answers are lost: nothing comes back for so long, then all connections are cut
    drop P N MS     each connection has N more pieces of answers, whenever they come; the ones after
                    these are lost, and MS later all connections are cut
    late P MS       each piece of an answer is late by so much, for a while
    stall P MS      nothing passes in either direction, then everything
    vanish P MS     answers are lost, then all connections are cut and none is accepted for so long, at
                    times for longer than a lease
    far P MS        from now to the end each piece takes up to MS, in either direction: a network, no
                    fault, which excuses nothing
    KIND MS N       what happens to the servers: `own` of the service (engines.py, ensembles.py)

P is a process, which has a proxy of its own, or ALL, or OWN: the one that asks. A fault whose instant
is ASKED begins when a process asks for it (the step `fault` of a program) and goes on with its next
step, so that a call meets the fault by design.
"""
import mmap
import os
import signal
import threading
import time

from engines import silently

NETWORK = ('cut', 'cut_after', 'lose', 'drop', 'late', 'stall', 'vanish', 'far')
DISTURBS = NETWORK[:-1]
MS = 1000000
ASKED = -1
ALL, OWN = -1, -2
MOST_ASKED = 3
ASKING_S = 6   # how long processes may ask for faults
CLOSING_S = 90
COUNT, QUESTION, WHICH, BEGUN, HEALED, THROUGH, OVER = range(7)  # the head of a log (holds.h)


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


SUITED = {  # the kinds of faults that suit a shape, each with the lengths in ms to choose from
    'limits': {'stall': (700, 2000, 5000), 'lose': (700, 2000), 'freeze': (700, 2000, 5000),
               'backend': (200, 4000, 6000), 'leave': (20, 700), 'slots': (20, 700)},
    'downgrade': {'stall': (700, 2000), 'lose': (700, 2000), 'late': (50, 300)},
    'move': {'vanish': (2000, 6000, 6000), 'lose': (700, 2000)},
    'steady': {'slots': (20, 20, 200, 700), 'failover': (20,)},
}
DELETED = ['cut', 'cut', 'wipe', 'wipe', 'stall', 'stop']  # for a crowd: reconnects, and deleted keys


def kinds_of(c, service, shape, mode):
    """Which kinds of faults suit a program of this shape (shapes.py). Leases of the shape `long` outlast
    the time after which a service that forgot something may grant again, and the program itself. In the
    mode `network` other programs use the service at the same time, so nothing happens to its servers."""
    suited = [k for k in SUITED.get(shape, ()) if
              (service.port if k in NETWORK else k in service.own and mode != 'network')]
    servers = [k for k in suited if k in service.own]
    if suited:  # a mixture has more faults of the servers
        return suited + servers * 2 * (len(servers) < len(suited))
    processes = ['stop', 'kill'] if shape != 'long' else ['stop']
    luck = 0 if mode == 'network' else c.random()
    if shape == 'crowd' and mode != 'network' and 'wipe' in service.own:
        return DELETED
    own = [k for k in service.own if shape != 'long' or k not in service.forgets]
    if service.port and shape == 'ends':  # what is lost, or carried out late, matters at the end of a lease
        return list(DISTURBS)
    if service.port and luck < (0.4 if own else 1):
        return processes + ['stop'] * (shape == 'usual') + list(DISTURBS) * 2
    if service.port and luck < 0.6:
        return processes + list(DISTURBS) + own * 2
    if shape == 'patient' and c.random() < 0.3:
        return ['kill']
    return processes + (own * 2 or processes)


def draw_plan(c, service, processes, shape='usual', mode='faults'):
    """Some kinds of faults only, several times each. Of a patient program one process is never killed,
    and after a few faults nothing more happens, so that there is time to see who waits in vain."""
    if shape == 'siege':
        return sorted((c.randint(2000, 5000), 'kill', p) for p in range(2, processes))
    kinds = kinds_of(c, service, shape, mode)
    chosen = c.sample(kinds, min(len(kinds), 3))
    most, gaps = {'patient': (3, (200, 700, 2000)), 'ends': (10, (60, 150, 400)),
                  'long': (4, (20, 100, 400, 1000)), 'limits': (4, (400, 2000)),
                  'downgrade': (3, (400, 1000, 2000)), 'move': (2, (2000, 5000)),
                  'steady': (3, (1000, 3000, 5000))}.get(shape, (6, (20, 100, 400, 1000)))
    plan, at = [], c.randint(0, 200) + 1000 * (shape == 'steady')
    for _ in range(c.randint(1, most)):
        plan.append((at, *draw_fault(c, c.choice(chosen), processes, shape)))
        at += c.choice(gaps)
    disturbs = [k for k in chosen if k in DISTURBS] if shape in SUITED else DISTURBS
    if any(k in DISTURBS for k in chosen) and c.random() < (0.9 if shape in SUITED else 0.6):
        wanted = [(ASKED, *draw_fault(c, c.choice(disturbs), processes, shape, (ALL, OWN, OWN)))
                  for _ in range(c.randint(1, MOST_ASKED))]
        if not (shape in SUITED and any(k in service.own for k in chosen)):
            plan = c.choice((plan, []))
        plan = wanted + plan
    return plan


def asked(plan):
    return [f for f in plan if f[0] == ASKED]


def draw_distance(c, service, shape):
    """Without faults: the service is far away, at times."""
    if not service.port or c.random() > (0.8 if shape == 'parts' else 0.1):
        return []
    return [(0, 'far', ALL, c.choice((2, 10, 30)))]


def draw_fault(c, kind, processes, shape=None, whose=None):
    if kind in SUITED.get(shape, ()):
        who = c.choice(whose or (ALL, c.randrange(processes)))
        ms = c.choice(SUITED[shape][kind])
        return (kind, who, ms) if kind in NETWORK else (kind, ms, c.randrange(60))
    if kind == 'stop':
        return kind, c.randrange(processes), c.choice((50, 300, 800, 2500))
    if kind == 'kill':
        return kind, c.randrange(int(shape == 'patient'), processes)
    if kind in ('apart', 'majority', 'replica', 'severed'):  # what takes the service away is to last
        return kind, c.choice((200, 700, 2000)), c.randrange(60)
    if kind not in NETWORK:
        return kind, c.choice((20, 200, 700, 2000)), c.randrange(60)
    who = c.choice(whose or (ALL, c.randrange(processes)))
    if kind == 'cut':
        return kind, who
    if kind == 'drop':
        return kind, who, c.randrange(12), c.choice((20, 100, 300, 700))
    if kind == 'cut_after':
        return kind, who, c.choice((1, 3, 7, 20, 100))
    if kind == 'vanish':
        return kind, who, c.choice((300, 2000, 6000))
    if kind in ('lose', 'stall'):
        return kind, who, c.choice((20, 200, 700, 2000))
    return kind, who, c.choice((5, 50, 300))


class Metronome:
    """Notes when the machine stood still: a thread that wants to run every 20 ms did not for LATE_MS. No
    clock of the clients stands still meanwhile, so whatever waited for an answer may have given up."""
    LATE_MS = 100

    def __init__(self, facts):
        self.facts = facts
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        before = now_ns()
        while not self.over.wait(0.02):
            now = now_ns()
            if now - before > self.LATE_MS * MS:
                self.facts.late.append((before, now))
            before = now

    def stop(self):
        self.over.set()
        self.thread.join()


class Watcher(threading.Thread):
    """Counts the places of waiters, at the servers themselves, once a second."""

    def __init__(self, service, facts, names):
        super().__init__(daemon=True)
        self.service, self.facts, self.names = service, facts, names
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(1):
            for name in self.names:
                begin, n = now_ns(), self.service.places(name)
                if n is not None:
                    self.facts.places.append((int(name.rsplit('-', 1)[1]), begin, now_ns(), n))

    def stop(self):
        self.over.set()
        self.join()


class Network:
    """What proxies do. Each yields when the fault has begun, and returns when nobody behind these proxies
    could get an answer, if that is known."""

    @staticmethod
    def cut(proxies):
        yield
        for p in proxies:
            p.cut()

    @staticmethod
    def cut_after(proxies, n):
        for p in proxies:
            p.cut_after(n)
        yield
        time.sleep(0.3)
        for p in proxies:  # an idle connection would be cut at any time later
            p.cut_after(None)
            p.next_cut = None

    @staticmethod
    def lose(proxies, ms):
        for p in proxies:
            p.stall('down')
        yield
        span = silently(ms)
        for p in proxies:
            p.cut()
            p.flow()
        return span

    @staticmethod
    def drop(proxies, n, ms):
        for p in proxies:
            p.lose_after(n)
        yield
        time.sleep(ms / 1000)
        for p in proxies:
            p.cut()

    @staticmethod
    def far(proxies, ms):
        for p in proxies:
            p.jitter = ms / 1000
        yield

    @staticmethod
    def late(proxies, ms):
        for p in proxies:
            p.delay = ms / 1000
        yield
        time.sleep(3 * ms / 1000)
        for p in proxies:
            p.delay = 0

    @staticmethod
    def stall(proxies, ms):
        for p in proxies:
            p.stall('both')
        yield
        span = silently(ms)
        for p in proxies:
            p.flow()
        return span

    @staticmethod
    def vanish(proxies, ms):
        for p in proxies:
            p.stall('down')
        yield
        time.sleep(0.1)
        for p in proxies:
            p.refuse()
            p.cut()
            p.flow()
        time.sleep(ms / 1000)
        for p in proxies:
            p.accept()


class Head:
    """The head of a process's log, by which the process and this one talk."""

    def __init__(self, process):
        self.process = process
        self.map = None

    def open(self):
        """The process makes its log when it starts."""
        if not self.map and os.path.exists(self.process.log) and os.path.getsize(self.process.log):
            with open(self.process.log, 'r+b') as f:
                self.map = memoryview(mmap.mmap(f.fileno(), 64)).cast('q')
        return self.map is not None

    def read(self, field):
        return self.map[field] if self.open() else 0

    def write(self, field, value):
        if self.open():
            self.map[field] = value

    def question(self):
        """The number of the fault that is asked for, or None."""
        return self.read(WHICH) if self.read(QUESTION) > self.read(BEGUN) else None

    def answer(self):
        self.write(BEGUN, self.read(QUESTION))


class Disturber:
    """Carries a plan out while the processes run, and notes in `facts` what happened when."""

    def __init__(self, plan, processes, proxies, service, facts, names, lease):
        self.plan = plan
        self.asked = asked(plan)
        self.processes = processes
        self.heads = [Head(p) for p in processes]
        self.proxies = proxies
        self.service = service
        self.facts = facts
        self.names = names
        self.lease = lease  # the longest one, ms
        self.done = []
        self.failure = None

    def run(self):
        """In a thread of its own; a fault that can't be carried out is told by `failure`."""
        try:
            self.carry_out()
        except Exception as e:
            self.failure = e
        self.close()

    def carry_out(self):
        begin = time.monotonic()
        for ms, kind, *args in self.plan:
            if ms == ASKED:
                continue
            if not self.pause(begin + ms / 1000):
                return
            self.begin(kind, args)
        if self.asked:
            self.pause(max(begin + ASKING_S, time.monotonic() + 1))

    def pause(self, until):
        """... and carry out what is asked for. False: all processes have ended."""
        while True:
            if all(p.poll() is not None for p in self.processes):
                return False
            if time.monotonic() >= until:
                return True
            for head in self.heads:
                number = head.question()
                if number is not None:
                    if number < len(self.asked):
                        self.begin(self.asked[number][1], self.asked[number][2:], head)
                    head.answer()
            left = max(until - time.monotonic(), 0)
            time.sleep(min(left, 0.0005 if self.asked else 0.05))

    def begin(self, kind, args, head=None):
        self.done.append(kind)
        if kind in ('stop', 'kill'):
            self.signal(self.processes[args[0]], kind, args)
        else:
            self.one(kind, args, head)

    def one(self, kind, args, head):
        at, excuses = now_ns(), self.service.own.get(kind, '').split()
        if kind in NETWORK:
            silence = self.network(kind, args, head)
        else:
            silence = getattr(self.service, 'do_' + kind)(*args, self.names)
        if kind == 'far':
            self.facts.far = args[1] * MS
            return
        self.facts.fault(excuses, at, now_ns(), self.lease)
        if silence:
            self.facts.silent.append(silence)

    def network(self, kind, args, head):
        """Returns when nobody could get an answer, if all processes were cut off."""
        which = self.heads.index(head) if args[0] == OWN else args[0]
        whose = self.proxies if which == ALL else [self.proxies[which]]
        fault = getattr(Network, kind)(whose, *args[1:])
        while True:
            try:
                next(fault)
            except StopIteration as end:
                return end.value if args[0] == ALL else None
            if head:
                head.answer()

    def close(self):
        """Tell the processes that the faults are over, and wait until each is through its closing
        round."""
        end = time.monotonic() + CLOSING_S
        while time.monotonic() < end:
            live = [h for h in self.heads if h.process.poll() is None]
            for h in live:
                h.write(HEALED, 1)
            if all(h.read(THROUGH) for h in live):
                break
            time.sleep(0.005)
        for h in self.heads:
            h.write(OVER, 1)

    def signal(self, process, kind, args):
        if process.poll() is not None:
            return
        at = now_ns()
        if kind == 'kill':
            self.facts.killed[process.number] = at
            process.kill()
            return
        process.send_signal(signal.SIGSTOP)
        time.sleep(args[1] / 1000)
        process.send_signal(signal.SIGCONT)
        self.facts.stopped.setdefault(process.number, []).append((at, now_ns()))
