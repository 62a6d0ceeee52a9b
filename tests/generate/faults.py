# SPDX-License-Identifier: Apache-2.0
"""The plan of faults of a program: a list of (ms, kind, argument ...), drawn from its seed.

    stop P MS       SIGSTOP of process P, SIGCONT after so long
    kill P          SIGKILL
    cut P           all connections, now
    cut_after P N   after N more bytes of answers: in the middle of one
    lose P MS       answers are lost: nothing comes back for so long, then all connections are cut
    late P MS       each piece of an answer is late by so much, for a while
    stall P MS      nothing passes in either direction, then everything
    vanish P MS     answers are lost, then all connections are cut and none is accepted for so long, at
                    times for longer than a lease
    KIND MS N       what happens to the servers: `own` of the service (engines.py, ensembles.py)

P is a process, which has a proxy of its own, or ALL, or OWN: the one that asks. A fault whose instant is ASKED begins when a
process asks for it (the step `fault` of a program) and goes on with its next step, so that a call
meets the fault by design.
"""
import mmap
import os
import signal
import threading
import time

NETWORK = ('cut', 'cut_after', 'lose', 'late', 'stall', 'vanish')
ASKED = -1
ALL, OWN = -1, -2
MOST_ASKED = 3
ASKING_S = 6   # how long processes may ask for faults
CLOSING_S = 90
COUNT, QUESTION, WHICH, BEGUN, HEALED, THROUGH, OVER = range(7)  # the head of a log (holds.h)


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def draw_plan(c, service, processes, mode):
    """Some kinds of faults only, several times each. In the mode `network` other programs use the
    service at the same time, so nothing happens to its servers."""
    kinds = ['stop', 'stop', 'kill']
    luck = 0 if mode == 'network' else c.random()
    network = service.port and luck < 0.6
    if network:
        kinds += NETWORK * 2
    if service.own and (luck > 0.4 or not network):
        kinds = ['stop', 'kill'] + (list(NETWORK) if network else []) + list(service.own) * 2
    chosen = c.sample(kinds, min(len(kinds), 3))
    plan, at = [], c.randint(0, 200)
    for _ in range(c.randint(1, 6)):
        plan.append((at, *draw_fault(c, c.choice(chosen), processes)))
        at += c.choice((20, 100, 400, 1000))
    if network and c.random() < 0.6:
        asked = [(ASKED, *draw_fault(c, c.choice(NETWORK), processes, (ALL, OWN, OWN)))
                 for _ in range(c.randint(1, MOST_ASKED))]
        plan = asked + c.choice((plan, []))
    return plan


def asked(plan):
    return [f for f in plan if f[0] == ASKED]


def draw_fault(c, kind, processes, whose=None):
    if kind == 'stop':
        return kind, c.randrange(processes), c.choice((50, 300, 800, 2500))
    if kind == 'kill':
        return kind, c.randrange(processes)
    if kind not in NETWORK:
        return kind, c.choice((20, 200, 700, 2000)), c.randrange(60)
    who = c.choice(whose or (ALL, c.randrange(processes)))
    if kind == 'cut':
        return kind, who
    if kind == 'cut_after':
        return kind, who, c.choice((1, 3, 7, 20, 100))
    if kind == 'vanish':
        return kind, who, c.choice((300, 2000, 6000))
    if kind in ('lose', 'stall'):
        return kind, who, c.choice((20, 200, 700, 2000))
    return kind, who, c.choice((5, 50, 300))


class Network:
    """What proxies do. Each yields when the fault has begun."""

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
        time.sleep(ms / 1000)
        for p in proxies:
            p.cut()
            p.flow()

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
        time.sleep(ms / 1000)
        for p in proxies:
            p.flow()

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


class Canary(threading.Thread):
    """Notes when the machine gives this process, and so perhaps others, no time, which does not
    count as idle or late."""
    BEAT, LATE = 0.02, 0.25

    def __init__(self, facts):
        super().__init__(daemon=True)
        self.facts = facts
        self.over = False
        self.start()

    def run(self):
        while not self.over:
            at, begin = now_ns(), time.monotonic()
            time.sleep(self.BEAT)
            if time.monotonic() - begin > self.BEAT + self.LATE:
                self.facts.starved.append((at, now_ns() + self.facts.exchange))


class Disturber:
    """Carries a plan out while the processes run, and notes in `facts` what happened when."""

    def __init__(self, plan, processes, proxies, service, facts, names, lease):
        self.plan = plan
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
            if ms != ASKED and not self.pause(begin + ms / 1000):
                return
            if ms != ASKED:
                self.begin(kind, args)
        if asked(self.plan):
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
                    plan = asked(self.plan)
                    if number < len(plan):
                        self.begin(plan[number][1], plan[number][2:], head)
                    head.answer()
            left = max(until - time.monotonic(), 0)
            time.sleep(min(left, 0.0005 if asked(self.plan) else 0.05))

    def begin(self, kind, args, head=None):
        self.done.append(kind)
        if kind in ('stop', 'kill'):
            self.signal(self.processes[args[0]], kind, args)
        else:
            self.one(kind, args, head)

    def one(self, kind, args, head):
        at, excuses = now_ns(), self.service.own.get(kind, '').split()
        if kind in NETWORK:
            which = self.heads.index(head) if args[0] == OWN else args[0]
            whose = self.proxies if which == ALL else [self.proxies[which]]
            for _ in getattr(Network, kind)(whose, *args[1:]):
                if head:
                    head.answer()
        else:
            getattr(self.service, 'do_' + kind)(*args, self.names)
        self.facts.fault(excuses, at, now_ns(), self.lease)

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
