# SPDX-License-Identifier: Apache-2.0
"""The judge of a scene: decides from the witnesses' records and the world's log whether the promises of
pawl(1) were kept. The judge shares no code with Pawl and does not ask Pawl.

Why an overlap is a proof: a witness that made records at t1 and at t2 was alive from t1 to t2. Two
commands with overlapping spans ran at the same time, whatever any clock or lease said. The judge measures
how late the machine wakes processes and allows for this delay: a guardian that the kernel wakes late
kills late.

Only these are excused:
  - a command whose pawl and guardian were both killed or stopped (world.unguarded_since);
  - a short overlap after `pawl break`: the manual says that the old holder may still be working;
  - children that the command left behind when it ended by itself; daemons.
"""
import json

from world import (FOREVER, JOBS, SECOND, TERMINALS, TIMEOUT_MS, is_stop, number, out_of_action,
                   unguarded_since)

CRASHES = {4, 5, 6, 7, 8, 11, 24, 25, 31}  # ILL TRAP ABRT BUS FPE SEGV XCPU XFSZ SYS
BREAK_NS = 4 * SECOND  # "within a second or so"
FREE_NS = 9 * SECOND   # longest time that a lock is free while a command waits; the docs state 4.5 s
SILENT_NS = 5 * SECOND  # pawl must report by then that no server answers: a timeout, and some more
LEASES = {'1s': 1000, '1500ms': 1500, '2s': 2000, '3s': 3000}


def duration(words, key, none=0):
    if key not in words:
        return none
    text = words[words.index(key) + 1]
    return int(LEASES[text] if text in LEASES else float(text) * 1000) * 10**6


class Command:
    """One run according to the records: its begin, when it was last alive, its children."""

    def __init__(self, run):
        self.run = run
        self.start = self.last = self.token = self.exit = self.exit_at = self.pid = None
        self.kid_last = None
        self.signals = []

    def add(self, at, pid, kind, value):
        if kind == 'S':
            self.start, self.token, self.pid = at, value, pid
        elif kind == 'X':
            self.exit, self.exit_at = value, at
        elif kind == 'T':
            self.signals.append(value)
        if kind in 'SBXT':
            self.last = at
        else:
            self.kid_last = max(at, self.kid_last or 0)

    def span(self):
        """The time in which the command had to be the only one. It includes the children's time if the
        command did not end by itself."""
        end = self.last
        killed_first = any(t == 'pawl' and s == 'KILL' and at < self.last
                           for at, t, s, _ in self.run.done)
        if self.kid_last and (self.run.status == 75 or killed_first) and not self.left_by_itself():
            end = max(end, self.kid_last)
        excuse = unguarded_since(self.run)
        return self.start, end if excuse is None else min(end, max(excuse, self.start))

    def left_by_itself(self):
        return self.exit is not None and self.exit != 40


def read_log(world):
    commands = {}
    try:
        with open(world.log, encoding='ascii') as f:
            lines = f.read().split('\n')[:-1]
    except FileNotFoundError:
        lines = []
    for line in lines:
        at, pid, run, kind, value = line.split(' ')
        command = commands.setdefault(int(run), Command(world.runs[int(run)]))
        command.add(int(at), int(pid), kind, int(value))
    return {r: c for r, c in commands.items() if c.start}


# ---- exclusion -----------------------------------------------------------------------------------

def share_of(run):
    words = run.step['options']
    return 1 if '-p' in words or '-s' in words else 2


def excused(world, name, a, b, begin, end):
    """Whether a break of the lock excuses the overlap."""
    for broken, at, until, _, _ in world.breaks:
        late = max(duration(r.step['options'], '--kill-after', SECOND) for r in (a.run, b.run))
        if broken == name and at <= end and begin <= until + BREAK_NS + late:
            return True
    return False


def overlaps(world, commands):
    found = []
    for a in commands:
        for b in commands:
            if a.run.id >= b.run.id or a.run.name != b.run.name:
                continue
            if share_of(a.run) + share_of(b.run) <= 2:
                continue
            (a0, a1), (b0, b1) = a.span(), b.span()
            begin, end = max(a0, b0), min(a1, b1)
            late = 2 * world.lateness.worst(begin - 3 * SECOND, end)
            if end - begin > late and not excused(world, a.run.name, a, b, begin, end):
                found.append(f'runs {a.run.id} and {b.run.id} both had {a.run.name!r} for '
                             f'{(end - begin) / 1e6:.1f} ms')
    return found


def permits(world, commands):
    """At most two commands with -p 2 run at a time."""
    found = []
    mine = [c for c in commands if '-p' in c.run.step['options']]
    for a in mine:
        at = a.start
        late = 2 * world.lateness.worst(at - 3 * SECOND, at + SECOND)
        there = [c for c in mine if c.run.name == a.run.name and c.span()[0] <= at and
                 c.span()[1] > at + late]
        broken = any(n == a.run.name and t0 <= at <= t1 + BREAK_NS + SECOND
                     for n, t0, t1, _, _ in world.breaks)
        if len(there) > 2 and not broken:
            found.append(f'{len(there)} runs had one of two permits of {a.run.name!r}')
    return found


def tokens(world, commands):
    """The command that began later has the larger token, unless both may run at the same time."""
    found = []
    for a in commands:
        for b in commands:
            if a.run.name == b.run.name and a.run.id != b.run.id:
                if a.token == b.token:
                    found.append(f'runs {a.run.id} and {b.run.id} have the same token')
                elif share_of(a.run) == 2 and share_of(b.run) == 2 and a.start < b.start and \
                        a.token > b.token and not excused(world, a.run.name, a, b, a.start, b.start):
                    found.append(f'run {b.run.id} began after {a.run.id} with a smaller token')
    return found


# ---- exit statuses -------------------------------------------------------------------------------

def sent(run, *targets, since=0):
    """The signals that were sent to these processes of a run at `since` or later."""
    numbers = set()
    for at, target, sig, _ in run.done:
        if target in targets and at >= since:
            numbers |= {2} if sig == '^C' else {1, 15} if sig == 'hangup' else \
                {number(sig)} if not sig.startswith('^') and sig not in ('fg', 'bg') else set()
    return numbers


def may_lose(world, run):
    """Whether a fault may have cost this run its lock."""
    if any(name == run.name for name, *_ in world.breaks) or world.faults:
        return True
    if out_of_action(run, 'pawl') or out_of_action(run, 'shell'):
        return True
    # The guardian begins after 0.6 leases, the renewal after a third. A renewal on a server involves four
    # sleeping threads or processes, and each of these may be woken late.
    late = world.lateness.worst(run.launched, run.ended or FOREVER) * (4 if world.server else 1)
    return late > duration(run.step['options'], '-l') / 4


def allowed(world, run, command):
    """The exit statuses that pawl(1) allows for this run. A negative number is a signal that ended pawl."""
    words, step = run.step['options'], run.step
    outside = sent(run, 'pawl', 'group', 'key', 'shell')
    ok = {-9} if 9 in outside else set()
    if may_lose(world, run):
        ok.add(75)
    if command and command.exit is not None:
        ok.add(command.exit)
        if 2 in outside:
            ok.add(-2)
        # A signal may end the command after its last record, before it has exited.
        late = 10**7 + 4 * world.lateness.worst(run.launched, run.ended or FOREVER)
        last_moment = sent(run, 'command', 'pawl', 'group', 'key', 'shell',
                           since=command.exit_at - late)
        return ok | {128 + n for n in last_moment if n not in (17, 18)}
    inside = sent(run, 'command', 'kid') | outside
    ok |= {128 + n for n in inside if n not in (17, 18)}
    if 'reader' in {t for _, t, _, _ in run.done} or step['witness'].get('out'):
        ok.add(128 + 13)
    if command is None or 2 in outside:
        ok |= {-n for n in outside}  # before pawl had blocked them; ^C on a terminal
    if 2 in inside and run.shape in TERMINALS:
        ok.add(-2)
    if command is None:
        ok |= {99} if '-n' in words or '-w' in words else set()
        ok |= {69} if world.faults or slow(world, run.launched, run.ended, 200) or \
            world.server and out_of_action(run, 'pawl') else set()
    return ok


def slow(world, begin, end, ms):
    """Whether an exchange with the server may have taken so long on this machine."""
    return world.server and 6 * world.lateness.worst(begin, end) > ms * 10**6


def statuses(world, commands):
    found = []
    for run in world.runs.values():
        status = run.status
        if run.step['do'] == 'latch' or status is None or run in world.hanging:
            continue
        if status < 0 and -status in CRASHES or status - 128 in CRASHES - {6} and \
                status - 128 not in sent(run, 'command', 'pawl', 'group', 'kid'):
            found.append(f'run {run.id} crashed: {status}: {run.err()[-300:]!r}')
            continue
        if run.shape in ('shell', 'pipe', *JOBS) and status > 128:
            fits = {status, 128 - status} & allowed(world, run, commands.get(run.id))
        else:
            fits = {status} & allowed(world, run, commands.get(run.id))
        if not fits:
            found.append(f'run {run.id} ended with {status}, allowed are '
                         f'{sorted(allowed(world, run, commands.get(run.id)))}; '
                         f'stderr {run.err()[-300:]!r}')
        elif status in (64, 69, 71, 75) and 'pawl: ' not in run.err() and \
                not any(key == 'hangup' for _, _, key, _ in run.done):
            found.append(f'run {run.id} ended with {status} and said nothing')
        if 'Sanitizer' in run.err() or 'runtime error' in run.err():
            found.append(f'run {run.id}: {run.err()[-3000:]}')
    return found


def broken_ends(world, commands):
    """A break that took the lock ends the command in time, and the exit status of the run is 75."""
    found = []
    for name, begin, end, status, err in world.breaks:
        if status not in (0, 1) and not (status == 69 and (world.faults or slow(world, begin, end,
                                                                                TIMEOUT_MS))):
            found.append(f'break ended with {status}: {err!r}')
        if status != 0:
            continue
        for c in commands.values():
            r = c.run
            late = 4 * world.lateness.worst(begin, end + 10 * SECOND)
            limit = end + BREAK_NS + duration(r.step['options'], '--kill-after', SECOND) + late
            if r.name == name and c.start < begin - SECOND and c.last > limit and \
                    not out_of_action(r, 'pawl') and not world.faults:
                found.append(f'run {r.id} went on for {(c.last - end) / 1e9:.1f} s after a break')
    return found


def passed_on(commands):
    """SIGUSR1 and SIGUSR2 to pawl reach the command if the command is running and goes on for a while."""
    found = []
    for c in commands.values():
        for at, target, sig, _ in c.run.done:
            if target == 'pawl' and sig in ('USR1', 'USR2') and c.start + SECOND // 2 < at and \
                    at + 3 * SECOND < c.last and number(sig) not in c.signals:
                if not out_of_action(c.run, 'pawl') and not sent(c.run, 'command') & {19, 20}:
                    found.append(f'run {c.run.id}: {sig} did not reach the command')
    return found


def stopped(world):
    """A job that was not sent a stop signal never stops, whichever process reads the terminal."""
    return [f'run {r.id} ({r.shape}) was stopped, and nobody had done that'
            for r in world.runs.values() if r.shape in JOBS and
            any(is_stop(t) for t in r.told()) and
            not any(sig in ('STOP', 'TSTP', '^Z') for _, _, sig, _ in r.done)]


# ---- liveness ------------------------------------------------------------------------------------

def busy_until(world, command):
    """The latest instant at which the lock of this command was free again."""
    run = command.run
    lease = duration(run.step['options'], '-l')
    least = duration(run.step['options'], '--at-least')
    end = max(run.ended or command.last, command.last, command.kid_last or 0)
    if run.status is None or run.status in (75, -9, 137) or out_of_action(run, 'pawl'):
        end += lease + SECOND  # the lock was not released
    return max(end, command.start + least + SECOND)


def gaps(world, commands):
    """No command waits long for a free lock."""
    found = []
    if world.faults:
        return found
    ends = [(c.run.name, c.start, busy_until(world, c)) for c in commands.values()]
    for c in commands.values():
        run = c.run
        if out_of_action(run, 'pawl') or out_of_action(run, 'shell'):
            continue
        since = run.launched
        for name, begin, end in sorted(ends, key=lambda e: e[1]):
            if name == run.name and begin < c.start and end > since:
                since = end
        stops = sum(1 for r in world.runs.values() if r.name == run.name and
                    (out_of_action(r, 'pawl') or r.done))
        bound = FREE_NS + stops * 3 * SECOND + 10 * world.lateness.worst(run.launched, c.start)
        if c.start - since > bound:
            found.append(f'run {run.id} waited {(c.start - since) / 1e9:.1f} s for a lock that '
                         f'nobody had')
    return found


def latches(world):
    found = []
    runs = [r for r in world.runs.values() if r.step['do'] == 'latch']
    sets = [r for r in runs if r.step['words'][0] == 'set']
    downs = [r for r in runs if r.step['words'][0] == 'down']
    for r in runs:
        mine = sent(r, 'pawl')
        ok = {0} | {128 + n for n in mine} | {-n for n in mine}
        ok |= {1} if '-w' in r.step['words'] or '-n' in r.step['words'] else set()
        ok |= {69} if world.faults or slow(world, r.launched, r.ended, TIMEOUT_MS) or \
            world.server and out_of_action(r, 'pawl') else set()
        if r.status not in ok and r not in world.hanging:
            found.append(f'latch {r.step["words"]} ended with {r.status}: {r.err()[-300:]!r}')
    if not sets or sets[0].status != 0:
        return found
    count = int(sets[0].step['words'][2])
    counted = [d for d in downs if d.ended > sets[0].launched]
    sure = [d for d in downs if d.launched > sets[0].ended and d.status == 0]
    for r in runs:
        if r.step['words'][0] != 'wait' or r.launched < sets[0].ended:
            continue
        if r.status == 0 and len(counted) < count:
            found.append(f'a wait for the latch ended though only {len(counted)} of {count} came')
        if getattr(r, 'waits', False) and len(sure) >= count and r.status != 0:
            found.append('a wait for the latch went on though all had come')
    return found


def only_dead_waiters(world):
    """On a server the queue entry of a killed waiter stays for a minute: docs/redis.md."""
    try:
        rows = json.loads(world.names)
    except ValueError:
        return False
    killed = {r.name for r in world.runs.values() if 9 in sent(r, 'pawl', 'group', 'shell')}
    return world.server and all(not r['held'] and r['name'] in killed for r in rows)


def left_over(world):
    found = []
    for r, text in zip(world.hanging, world.hang_text):
        found.append(f'run {r.id} did not end within {world.patience():.0f} s: {text}')
    for p in world.left:
        found.append(f'process {p.pid} ({p.comm}) is left over')
    if world.names != '[]' and not only_dead_waiters(world):
        found.append(f'names are left over: {world.names}')
    return found


def silences(world):
    """[(from, to)] in which the service could not be reached."""
    spans, begun = [], {}
    backs = {'flow': 'stall', 'accept': 'refuse', 'resume': 'pause'}
    for at, what in world.faults:
        if what in backs.values():
            begun.setdefault(what, at)
        elif backs.get(what) in begun:
            spans.append((begun.pop(backs[what]), at))
    return spans


def told_of_silence(world, commands):
    """A command that waits without a limit for a service that does not answer says so once."""
    found = []
    for run in world.runs.values():
        if run.step['do'] != 'start' or run.shape not in ('plain', 'shell', 'pipe') or \
                {'-n', '-w'} & set(run.step['options']) or run.done:
            continue
        waits = (run.launched, commands[run.id].start if run.id in commands else run.ended or FOREVER)
        for a, b in silences(world):
            waited = min(b, waits[1]) - max(a, waits[0])
            if waited > SILENT_NS + 8 * world.lateness.worst(a, b) and '; retrying' not in run.err():
                found.append(f'run {run.id} waited {waited / 1e9:.1f} s for a silent service and did '
                             f'not say so: {run.err()[-300:]!r}')
    return found


def judge(world):
    """The broken promises, as sentences."""
    commands = read_log(world)
    runs = [c for c in commands.values() if c.run.step['do'] == 'start']
    return (overlaps(world, runs) + permits(world, runs) + tokens(world, runs) +
            statuses(world, commands) + stopped(world) + broken_ends(world, commands) +
            passed_on(commands) + gaps(world, commands) + latches(world) +
            told_of_silence(world, commands) + left_over(world))
