# SPDX-License-Identifier: Apache-2.0
"""A free run: the programs of several processes, a plan of faults (faults.py), and the judge's
verdict."""
import os
import random
import subprocess
import threading
import time

from faults import NETWORK, Disturber, Metronome, Watcher, asked, draw_distance, draw_plan
from judge import Facts, judge, read_log
from program import Free, Program, weave
from shapes import PREFERRED
from shrink import candidates

SHRINK_SECONDS = 120
PATIENT = (None, 9000, 9000, 9000)
CLOSING = (None, 0, 0, 9000)  # a closing round, and how long threads may go on before that


def sanitizer_reports(path):
    """What a sanitizer wrote, also one that lets the process go on, or of a process that was killed."""
    with open(path, encoding='utf-8', errors='replace') as f:
        lines = [line.strip() for line in f]
    found = [i for i, line in enumerate(lines) if 'Sanitizer' in line or 'runtime error:' in line]
    return [f'sanitizer: {" | ".join(lines[i:i + 12])}' for i in found[:1]]


def last_words(path):
    with open(path, encoding='utf-8', errors='replace') as f:
        text = ' | '.join(f.read().split('\n')[-20:])
    return [f'end: {text}'] if text else []


class NotCarriedOut(Exception):
    """A fault went wrong: nothing can be said about the program."""


class Result:
    def __init__(self):
        self.violations = []
        self.holds = self.calls = 0
        self.faults = []


class Scenario:
    def __init__(self, seed, programs, plan, schedule=None):
        self.seed = seed
        self.programs = programs
        self.plan = plan
        self.alone = False  # no other program uses the service
        self.schedule = schedule  # the seed of the threads' scheduler; None: the system's

    @staticmethod
    def make(seed, service, mode, shape=None, seconds=60):
        """A steered program is one process: each would have a clock of its own."""
        c = random.Random(seed ^ 0x5eed)
        maker = Free(seed, service.profile, mode, shape, seconds)
        processes = max(c.choice((1, 2, 2, 3, 4)), maker.least())
        if mode == 'steered' or not service.processes:
            processes = 1
        faults = mode in ('network', 'faults')
        plan = draw_plan(c, service, processes, maker.shape, mode) if faults else \
            draw_distance(c, service, maker.shape) if mode == 'free' else []
        programs = maker.make(processes)
        if faults:
            weave(c, programs, len(asked(plan)),
                  c.choice(PATIENT if maker.shape in ('patient', 'move') else CLOSING),
                  PREFERRED.get(maker.shape))
        scenario = Scenario(seed, programs, plan, seed if mode == 'steered' else None)
        scenario.alone = mode == 'faults'
        return scenario

    def steps(self):
        return sum(len(p.steps) for p in self.programs)

    def text(self):
        head = f'# schedule {self.schedule}\n' if self.schedule is not None else ''
        return head + ''.join(f'fault {ms} {kind} {" ".join(map(str, args))}\n'
                       for ms, kind, *args in self.plan) + \
            '\n'.join(p.text() for p in self.programs)

    # ---- running ----

    def run(self, exe, service, folder):
        result = Result()
        facts = Facts(bound_ms=3000, exchange_ms=service.profile.exchange,
                      lease_ms=self.longest_lease())
        facts.tied = 'gone' in service.profile.way
        prefix = f'g{os.getpid()}x{self.seed}x{random.randrange(1 << 30)}'
        proxies, urls = self.between(service, folder)
        facts.few, facts.sessions = service.is_few(urls[0]), service.sessions
        before = service.writes() if self.alone else None  # else others write at the same time
        watchers = [Metronome(facts)]
        if self.steady():
            watchers.append(Watcher(service, facts, self.names(prefix)))
        processes = self.launch(exe, urls, folder, prefix, service.url if self.plan else '')
        disturber = Disturber(self.plan, processes, proxies, service, facts, self.names(prefix),
                              self.longest_lease())
        thread = threading.Thread(target=disturber.run)
        thread.start()
        self.await_all(processes, facts)
        thread.join()
        for w in watchers:
            w.stop()
        for proxy in proxies:
            proxy.close()
        if disturber.failure:
            raise NotCarriedOut(f'{disturber.done[-1]}: {disturber.failure!r}')
        result.faults = disturber.done
        if before is not None and 'older' not in disturber.done:
            facts.writes = service.writes() - before
        self.verdict(exe, service, folder, prefix, facts, result)
        if self.alone:
            service.mend()
        return result

    def steady(self):
        """Whether the servers can be asked all the time: whatever happens, happens to processes."""
        return bool(self.plan) and all(f[1] in ('kill', 'stop') for f in self.plan)

    def names(self, prefix):
        """What the locks are called (run_name in steps.c)."""
        return sorted({f'{prefix}-{f["name"]}' for p in self.programs
                       for _, f in p.objects.values() if 'name' in f})

    def longest_lease(self):
        leases = [f.get('lease', 0) for p in self.programs for _, f in p.objects.values()]
        leases += [s[3] for p in self.programs for s in p.steps if s[1] == 'renew']
        return max(leases + [f['watchdog'] for p in self.programs for f in p.clients.values()])

    def longest(self, field):
        return max([f.get(field, 0) for p in self.programs for _, f in p.objects.values()] + [0])

    def between(self, service, folder):
        """A proxy for each process, if there are any, and each process's URL."""
        url = service.url_for(random.Random(self.seed)) if self.schedule is None else \
            service.url_apart(folder)
        if not any(f[1] in NETWORK for f in self.plan):
            return [], [url] * len(self.programs)
        from proxy import Proxy
        proxies = [Proxy(service.port) for _ in self.programs]
        return proxies, [url.replace(f':{service.port}', f':{p.port}') for p in proxies]

    def launch(self, exe, urls, folder, prefix, direct):
        processes, environ = [], dict(os.environ)
        if direct:
            environ['GENERATE_DIRECT'] = direct
        if self.schedule is not None:
            exe, environ['PAWL_SCHEDULE_SEED'] = exe + '_steered', str(self.schedule)
        for i, program in enumerate(self.programs):
            log = os.path.join(folder, f'log{i}')
            with open(log + '.stderr', 'wb') as errors:
                p = subprocess.Popen([exe, 'free', urls[i], log, prefix], stdin=subprocess.PIPE,
                                     text=True, stderr=errors, env=environ)
            p.stdin.write(program.text())
            p.stdin.close()
            p.log, p.number = log, program.process
            processes.append(p)
        return processes

    def await_all(self, processes, facts):
        until = time.monotonic() + max([240 if self.plan else 90] +
                                       [p.run_ms / 1000 + 40 for p in self.programs])
        for p in processes:
            try:
                facts.status[p.number] = p.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
                facts.status[p.number] = 'a hang'

    def verdict(self, exe, service, folder, prefix, facts, result):
        records, reports = [], []
        for i in range(len(self.programs)):
            path = os.path.join(folder, f'log{i}')
            if os.path.exists(path) and os.path.getsize(path):
                records += read_log(path)
            reports += sanitizer_reports(path + '.stderr')
            if facts.status[self.programs[i].process] in (3, -6):  # a hang, or what the scheduler says
                reports += last_words(path + '.stderr')
        result.violations = judge(records, facts) + reports
        result.holds = sum(1 for r in records if r.type == 1)
        result.calls = sum(1 for r in records if r.type == 2)
        sure = not facts.killed and not facts.disturbed and all(r.code == 0 for r in records
                                        if r.type == 2 and r.word == 'close')
        if self.schedule is None:  # else the leases were by another clock than the machine's
            self.nothing_left(exe, service, prefix, facts, result, sure)

    def nothing_left(self, exe, service, prefix, facts, result, sure):
        """After the longest lease nobody has anything. If each close said that nothing is left and
        the service was in reach (sure), nobody waits, either; else the place of a waiter may stay
        for a minute (docs/testing.md: what was found)."""
        calm = not facts.killed and not facts.disturbed and not facts.stopped
        lease = self.longest_lease() / 1000
        until = time.monotonic() + (2 + self.longest('atleast') / 1000 if calm else lease * 2 + 6)
        if calm and service.profile.foreign:
            until += lease  # a write lock that was entered again stays for two leases
        while True:
            out = subprocess.run([exe, 'list', service.url, prefix], capture_output=True, text=True,
                                 check=False)
            left = [x for x in out.stdout.split() if not x.endswith(':latch:holders=0:waiters=0')
                    and (sure or ':holders=0:' not in x)]
            if out.returncode == 0 and not left:
                left = service.left(prefix) if sure or not service.profile.foreign else []
            if out.returncode == 0 and not left:
                return
            if time.monotonic() > until + (30 if out.returncode else 0):
                result.violations.append(f'left: {left} {out.stderr.strip()}')
                return
            time.sleep(0.1)

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
                try:
                    with tempfile.TemporaryDirectory(prefix='pawl-generate-') as folder:
                        r = scenario.run(exe, service, folder)
                except NotCarriedOut:
                    return None
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

    def like(self, programs, plan):
        new = Scenario(self.seed, programs, plan, self.schedule)
        new.alone = self.alone
        return new

    def parts(self):
        for i in range(len(self.plan)):
            yield self.like(self.programs, self.plan[:i] + self.plan[i + 1:])
        for i in range(len(self.programs)):
            if len(self.programs) > 1 and not any(
                    f[1] in ('stop', 'kill') for f in self.plan):
                yield self.like(self.programs[:i] + self.programs[i + 1:], self.plan)
        for i, p in enumerate(self.programs):
            for q in candidates(p):
                if isinstance(q, Program) and q.objects:
                    yield self.like([*self.programs[:i], q, *self.programs[i + 1:]], self.plan)
