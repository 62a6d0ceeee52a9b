# SPDX-License-Identifier: Apache-2.0
"""The plan of faults of a program: a list of (ms, kind, argument ...), drawn from its seed.

    stop P MS       SIGSTOP of process P, SIGCONT after so long
    kill P          SIGKILL
    cut             all connections, now
    cut_after N     after N more bytes of answers: in the middle of one
    lose MS         answers are lost: nothing comes back for so long, then all connections are cut
    drop N MS       each connection has N more pieces of answers, whenever they come; the ones after
                    these are lost, and MS later all connections are cut
    late MS         each piece of an answer is late by so much, for a while
    stall MS        nothing passes in either direction, then everything
    far MS          from now to the end each piece takes up to MS, in either direction: a network, no
                    fault, which excuses nothing
    KIND MS N       what happens to the servers: `own` of the service (engines.py, ensembles.py)
"""
import signal
import threading
import time

from engines import silently

NETWORK = ('cut', 'cut_after', 'lose', 'drop', 'late', 'stall', 'far')
DISTURBS = NETWORK[:-1]


MS = 1000000


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def kinds_of(c, service, shape):
    """Which kinds of faults suit a program of this shape (shapes.py). Leases of the shape `long` outlast
    the time after which a service that forgot something may grant again, and the program itself."""
    processes = ['stop', 'kill'] if shape != 'long' else ['stop']
    own = [k for k in service.own if shape != 'long' or k not in service.forgets]
    if service.port and shape == 'ends':  # what is lost, or carried out late, matters at the end of a lease
        return list(DISTURBS)
    if service.port and c.random() < 0.5:
        return processes + ['stop'] * (shape == 'usual') + list(DISTURBS) * 2
    if shape == 'patient' and c.random() < 0.3:
        return ['kill']
    return processes + (own * 2 or processes)


def draw_plan(c, service, processes, shape='usual'):
    """Some kinds of faults only, several times each. Of a patient program one process is never killed,
    and after a few faults nothing more happens, so that there is time to see who waits in vain."""
    if shape == 'siege':
        return sorted((c.randint(2000, 5000), 'kill', p) for p in range(2, processes))
    kinds = kinds_of(c, service, shape)
    chosen = c.sample(kinds, min(len(kinds), 3))
    most, gaps = {'patient': (3, (200, 700, 2000)), 'ends': (10, (60, 150, 400)),
                  'long': (4, (20, 100, 400, 1000))}.get(shape, (6, (20, 100, 400, 1000)))
    plan, at = [], c.randint(0, 200)
    for _ in range(c.randint(1, most)):
        plan.append((at, *draw_fault(c, c.choice(chosen), processes, shape == 'patient')))
        at += c.choice(gaps)
    return plan


def draw_distance(c, service, shape):
    """Without faults: the service is far away, at times."""
    if not service.port or c.random() > (0.8 if shape == 'parts' else 0.1):
        return []
    return [(0, 'far', c.choice((2, 10, 30)))]


def draw_fault(c, kind, processes, spare=False):
    if kind == 'stop':
        return kind, c.randrange(processes), c.choice((50, 300, 800, 2500))
    if kind == 'kill':
        return kind, c.randrange(int(spare), processes)
    if kind == 'cut':
        return (kind,)
    if kind == 'drop':
        return kind, c.randrange(12), c.choice((20, 100, 300, 700))
    if kind == 'cut_after':
        return kind, c.choice((1, 3, 7, 20, 100))
    if kind in ('lose', 'stall'):
        return kind, c.choice((20, 200, 700, 2000))
    if kind == 'late':
        return kind, c.choice((5, 50, 300))
    if kind in ('apart', 'majority', 'replica', 'severed'):  # what takes the service away is to last
        return kind, c.choice((200, 700, 2000)), c.randrange(60)
    return kind, c.choice((20, 200, 700, 2000)), c.randrange(60)


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
    """What a proxy does, as do_KIND of a service (engines.py)."""

    @staticmethod
    def cut(proxy):
        proxy.cut()

    @staticmethod
    def cut_after(proxy, n):
        proxy.cut_after(n)

    @staticmethod
    def lose(proxy, ms):
        proxy.stall('down')
        span = silently(ms)
        proxy.cut()
        proxy.flow()
        return span

    @staticmethod
    def drop(proxy, n, ms):
        proxy.lose_after(n)
        time.sleep(ms / 1000)
        proxy.cut()

    @staticmethod
    def far(proxy, ms):
        proxy.jitter = ms / 1000

    @staticmethod
    def late(proxy, ms):
        proxy.delay = ms / 1000
        time.sleep(3 * ms / 1000)
        proxy.delay = 0

    @staticmethod
    def stall(proxy, ms):
        proxy.stall('both')
        span = silently(ms)
        proxy.flow()
        return span


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
            silence = getattr(Network, kind)(self.proxy, *args)
        else:
            silence = getattr(self.service, 'do_' + kind)(*args, self.names)
        if kind == 'far':
            self.facts.far = args[0] * MS
            return
        self.facts.fault(excuses, at, now_ns(), self.lease)
        if silence:
            self.facts.silent.append(silence)

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
