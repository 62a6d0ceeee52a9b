# SPDX-License-Identifier: Apache-2.0
"""A free run: the programs of several processes, a plan of faults, and the judge's verdict.

The plan is a list of (ms, kind, argument), drawn from the seed:

    stop P MS       SIGSTOP of process P, SIGCONT after so long
    kill P          SIGKILL
    cut             all connections, now
    cut_after N     after N more bytes of answers: in the middle of one
    lose MS         answers are lost: nothing comes back for so long, then all connections are cut
    late MS         each piece of an answer is late by so much, for a while
    stall MS        nothing passes in either direction, then everything
    freeze MS       the server is stopped, and goes on
    restart         the server is killed and started again, with or without its data
"""
import os
import random
import signal
import subprocess
import sys
import threading
import time

from judge import MS, Facts, judge, read_log
from program import Program, free
from shrink import candidates

HERE = os.path.dirname(os.path.abspath(__file__))
SHRINK_SECONDS = 120


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Result:
    def __init__(self):
        self.violations = []
        self.holds = self.calls = 0
        self.faults = []


class Scenario:
    def __init__(self, seed, programs, plan):
        self.seed = seed
        self.programs = programs
        self.plan = plan

    @staticmethod
    def make(seed, service, faults):
        c = random.Random(seed ^ 0x5eed)
        processes = c.choice((1, 2, 2, 3, 4)) if service.processes else 1
        programs = free(seed, service.profile, processes)
        return Scenario(seed, programs, draw_plan(c, service, processes) if faults else [])

    def steps(self):
        return sum(len(p.steps) for p in self.programs)

    def text(self):
        return ''.join(f'fault {ms} {kind} {" ".join(map(str, args))}\n'
                       for ms, kind, *args in self.plan) + \
            '\n'.join(p.text() for p in self.programs)

    # ---- running ----

    def run(self, exe, service, folder):
        result = Result()
        facts = Facts(bound_ms=3000, exchange_ms=service.profile.exchange)
        prefix = f'g{os.getpid()}x{self.seed}x{random.randrange(1 << 30)}'
        proxy, url = self.proxy(service)
        processes = self.launch(exe, url, folder, prefix)
        faults = threading.Thread(target=self.disturb,
                                  args=(processes, proxy, service, facts, result))
        faults.start()
        self.await_all(processes, facts)
        faults.join()
        if proxy:
            proxy.close()
        self.verdict(exe, service, folder, prefix, facts, result)
        return result

    def proxy(self, service):
        if not any(f[1] in ('cut', 'cut_after', 'lose', 'late', 'stall') for f in self.plan):
            return None, service.url
        sys.path.append(os.path.join(HERE, '..', 'redis'))
        from proxy import Proxy
        proxy = Proxy(service.port)
        return proxy, service.url.replace(f':{service.port}', f':{proxy.port}')

    def launch(self, exe, url, folder, prefix):
        processes = []
        for i, program in enumerate(self.programs):
            log = os.path.join(folder, f'log{i}')
            p = subprocess.Popen([exe, 'free', url, log, prefix], stdin=subprocess.PIPE, text=True,
                                 stderr=subprocess.DEVNULL)
            p.stdin.write(program.text())
            p.stdin.close()
            p.log, p.number = log, program.process
            processes.append(p)
        return processes

    def await_all(self, processes, facts):
        until = time.monotonic() + 90
        for p in processes:
            try:
                facts.status[p.number] = p.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
                facts.status[p.number] = 'a hang'

    def verdict(self, exe, service, folder, prefix, facts, result):
        records = []
        for i in range(len(self.programs)):
            path = os.path.join(folder, f'log{i}')
            if os.path.exists(path) and os.path.getsize(path):
                records += read_log(path)
        result.violations = judge(records, facts)
        result.holds = sum(1 for r in records if r.type == 1)
        result.calls = sum(1 for r in records if r.type == 2)
        sure = not facts.killed and not facts.disturbed and all(r.code == 0 for r in records
                                        if r.type == 2 and r.word == 'close')
        if not facts.data_lost:
            self.nothing_left(exe, service, prefix, facts, result, sure)

    def nothing_left(self, exe, service, prefix, facts, result, sure):
        """After the longest lease nobody has anything. If each close said that nothing is left and
        the service was in reach (sure), nobody waits, either; else the place of a waiter may stay
        for a minute (docs/testing.md: what was found)."""
        leases = [f.get('lease', 0) for p in self.programs for _, f in p.objects.values()]
        leases += [f['watchdog'] for p in self.programs for f in p.clients.values()]
        calm = not facts.killed and not facts.disturbed and not facts.stopped
        until = time.monotonic() + (2 if calm else max(leases) / 1000 * 2 + 6)
        while True:
            out = subprocess.run([exe, 'list', service.url, prefix], capture_output=True, text=True,
                                 check=False)
            left = [x for x in out.stdout.split() if sure or ':holders=0:' not in x]
            if out.returncode == 0 and not left:
                left = service.left(prefix) if sure or not service.profile.foreign else []
            if out.returncode == 0 and not left:
                return
            if time.monotonic() > until + (30 if out.returncode else 0):
                result.violations.append(f'left: {left} {out.stderr.strip()}')
                return
            time.sleep(0.1)

    # ---- faults ----

    def disturb(self, processes, proxy, service, facts, result):
        begin = time.monotonic()
        for ms, kind, *args in self.plan:
            time.sleep(max(begin + ms / 1000 - time.monotonic(), 0))
            if all(p.poll() is not None for p in processes):
                return
            result.faults.append(kind)
            at = now_ns()
            if kind in ('stop', 'kill'):
                self.signal(processes[args[0]], kind, args, facts)
                continue
            getattr(Faults, kind)(proxy or service, *args)
            # what was lost is asked again after the exchange's limit; a new connection backs off
            facts.disturbed.append((at, now_ns() + 2 * facts.exchange))
            if kind == 'restart' and not service.keeps_data:
                facts.data_lost.append((at, now_ns() + facts.exchange))

    @staticmethod
    def signal(process, kind, args, facts):
        if process.poll() is not None:
            return
        at = now_ns()
        if kind == 'kill':
            facts.killed[process.number] = at
            process.kill()
            return
        process.send_signal(signal.SIGSTOP)
        time.sleep(args[1] / 1000)
        process.send_signal(signal.SIGCONT)
        facts.stopped.setdefault(process.number, []).append((at, now_ns()))

    # ---- shrinking ----

    def smaller(self, exe, service, result):
        """Leave out what is not needed; a race may need several runs to show again."""
        import tempfile
        until = time.monotonic() + SHRINK_SECONDS
        best, lines = self, result.violations[:10]
        checks = {v.split(':')[0] for v in result.violations}

        def fails(scenario):
            for _ in range(6):
                if time.monotonic() > until:
                    return None
                with tempfile.TemporaryDirectory(prefix='pawl-generate-') as folder:
                    r = scenario.run(exe, service, folder)
                if checks & {v.split(':')[0] for v in r.violations}:
                    return r.violations[:10]
            return None

        found = True
        while found and time.monotonic() < until:
            found = False
            for candidate in best.parts():
                if time.monotonic() > until:
                    break
                wrong = fails(candidate)
                if wrong:
                    best, lines, found = candidate, wrong, True
                    break
        return best, lines

    def parts(self):
        for i in range(len(self.plan)):
            yield Scenario(self.seed, self.programs, self.plan[:i] + self.plan[i + 1:])
        for i in range(len(self.programs)):
            if len(self.programs) > 1 and not any(
                    f[1] in ('stop', 'kill') for f in self.plan):
                yield Scenario(self.seed, self.programs[:i] + self.programs[i + 1:], self.plan)
        for i, p in enumerate(self.programs):
            for q in candidates(p):
                if isinstance(q, Program) and q.objects:
                    yield Scenario(self.seed, [*self.programs[:i], q, *self.programs[i + 1:]],
                                   self.plan)


class Faults:
    """On a proxy, or on the service itself."""

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

    @staticmethod
    def freeze(service, ms):
        service.pause()
        time.sleep(ms / 1000)
        service.resume()

    @staticmethod
    def restart(service):
        service.restart()


def draw_plan(c, service, processes):
    """Some kinds of faults only, several times each."""
    kinds = ['stop', 'stop', 'kill']
    network = service.port and c.random() < 0.7
    if network:
        kinds += ['cut', 'cut_after', 'lose', 'late', 'stall'] * 2
    elif service.pause:
        kinds += ['freeze'] * 3
    if not network and service.restart and c.random() < 0.4:
        kinds += ['restart'] * 2
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
    if kind == 'cut_after':
        return kind, c.choice((1, 3, 7, 20, 100))
    if kind in ('lose', 'stall', 'freeze'):
        return kind, c.choice((20, 200, 700, 2000))
    if kind == 'late':
        return kind, c.choice((5, 50, 300))
    return (kind,)
