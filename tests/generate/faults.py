# SPDX-License-Identifier: Apache-2.0
"""The plan of faults of a program: a list of (ms, kind, argument ...), drawn from its seed.

    stop P MS       SIGSTOP of process P, SIGCONT after so long
    kill P          SIGKILL
    cut             all connections, now
    cut_after N     after N more bytes of answers: in the middle of one
    lose MS         answers are lost: nothing comes back for so long, then all connections are cut
    late MS         each piece of an answer is late by so much, for a while
    stall MS        nothing passes in either direction, then everything
    KIND MS N       what happens to the servers: `own` of the service (engines.py, ensembles.py)
"""
import signal
import time

NETWORK = ('cut', 'cut_after', 'lose', 'late', 'stall')


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def draw_plan(c, service, processes):
    """Some kinds of faults only, several times each."""
    kinds = ['stop', 'stop', 'kill']
    if service.port and c.random() < 0.5:
        kinds += NETWORK * 2
    elif service.own:
        kinds = ['stop', 'kill'] + list(service.own) * 2
    chosen = c.sample(kinds, min(len(kinds), 3))
    plan, at = [], c.randint(0, 200)
    for _ in range(c.randint(1, 6)):
        plan.append((at, *draw_fault(c, c.choice(chosen), processes)))
        at += c.choice((20, 100, 400, 1000))
    return plan


def draw_fault(c, kind, processes):
    if kind == 'stop':
        return kind, c.randrange(processes), c.choice((50, 300, 800, 2500))
    if kind == 'kill':
        return kind, c.randrange(processes)
    if kind == 'cut':
        return (kind,)
    if kind == 'cut_after':
        return kind, c.choice((1, 3, 7, 20, 100))
    if kind in ('lose', 'stall'):
        return kind, c.choice((20, 200, 700, 2000))
    if kind == 'late':
        return kind, c.choice((5, 50, 300))
    return kind, c.choice((20, 200, 700, 2000)), c.randrange(60)


class Network:
    """What a proxy does."""

    @staticmethod
    def cut(proxy):
        proxy.cut()

    @staticmethod
    def cut_after(proxy, n):
        proxy.cut_after(n)

    @staticmethod
    def lose(proxy, ms):
        proxy.stall('down')
        time.sleep(ms / 1000)
        proxy.cut()
        proxy.flow()

    @staticmethod
    def late(proxy, ms):
        proxy.delay = ms / 1000
        time.sleep(3 * ms / 1000)
        proxy.delay = 0

    @staticmethod
    def stall(proxy, ms):
        proxy.stall('both')
        time.sleep(ms / 1000)
        proxy.flow()


class Disturber:
    """Carries a plan out while the processes run, and notes in `facts` what happened when."""

    def __init__(self, plan, processes, proxy, service, facts, names, lease):
        self.plan = plan
        self.processes = processes
        self.proxy = proxy
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

    def carry_out(self):
        begin = time.monotonic()
        for ms, kind, *args in self.plan:
            time.sleep(max(begin + ms / 1000 - time.monotonic(), 0))
            if all(p.poll() is not None for p in self.processes):
                return
            self.done.append(kind)
            if kind in ('stop', 'kill'):
                self.signal(self.processes[args[0]], kind, args)
            else:
                self.one(kind, args)

    def one(self, kind, args):
        at, excuses = now_ns(), self.service.own.get(kind, '').split()
        if kind in NETWORK:
            getattr(Network, kind)(self.proxy, *args)
        else:
            getattr(self.service, 'do_' + kind)(*args, self.names)
        self.facts.fault(excuses, at, now_ns(), self.lease)

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
