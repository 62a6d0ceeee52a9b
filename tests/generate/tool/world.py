# SPDX-License-Identifier: Apache-2.0
"""Plays a scene with real processes, and logs each action with its target and time.

Shapes of a run:

    plain   pawl in a session of its own, no terminal
    shell   bash -c 'pawl run ...; echo $? > STATUS': bash, pawl in one group, no terminal
    pipe    bash -c 'head | pawl run ... | cat', likewise
    pty     an interactive bash with job control on a terminal runs pawl in the foreground
    pager   the same bash runs `pawl run ... | pager`: the pager (witness.c) looks for keys
    bare    pawl itself leads the session of a terminal, no shell around it

Every process of a scene, including the guardian, has PAWL_SCENE in its environment, and a process of a
run has PAWL_RUN. The world finds processes by these variables, because process ids are not passed on.
Processes of the world are ended by process id. A world's clock is CLOCK_BOOTTIME in ns, as in witness.c.
"""
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'lib'))

TOOL = os.environ.get('PAWL_TOOL') or sys.exit('set PAWL_TOOL to the path of the pawl command')
WITNESS = os.environ.get('PAWL_WITNESS') or sys.exit('set PAWL_WITNESS to the path of witness')
if os.access('/dev/shm', os.W_OK):
    tempfile.tempdir = '/dev/shm'  # a server that writes each change to a disk waits for the disk
SECOND = 10**9
TICKS = os.sysconf('SC_CLK_TCK')
TIMEOUT_MS = 1000  # of the server's clients
FOREVER = 10**30
JOBS = ('pty', 'pager')        # of an interactive shell
TERMINALS = (*JOBS, 'bare')
SHELL = '"$@"; echo $? > "$PAWL_STATUS"'
FOREGROUND = b'fg; echo "@@"$?"@@"\n'
BACKGROUND = b'bg; wait %%; echo "@@"$?"@@"\n'
PIPE = 'head -c 100000 /dev/zero | "$@" | cat > /dev/null; echo ${PIPESTATUS[1]} > "$PAWL_STATUS"'


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def is_stop(told):
    """Whether this status of bash means that the job was stopped. With pipefail, bash also adds 128 to the
    status of a part of the job that has ended."""
    return told in (b'147', b'148', b'149', b'150') or int(told) > 128 + 64


def number(name):
    return getattr(signal, 'SIG' + name)


class Lateness(threading.Thread):
    """Measures how late this machine wakes a sleeping thread. Time limits are extended by this delay."""

    def __init__(self):
        super().__init__(daemon=True)
        self.seen = []
        self.start()

    def run(self):
        while True:
            before = now()
            time.sleep(0.01)
            late = now() - before - 10000000
            if late > 5000000:
                self.seen.append((before, late))

    def worst(self, begin, end):
        return max((late for at, late in self.seen if begin - late <= at <= end), default=0)


class Process:
    """A process according to /proc: pid, name of the command, parent, state, group."""

    def __init__(self, pid):
        with open(f'/proc/{pid}/stat', errors='replace', encoding='utf-8') as f:
            head, _, tail = f.read().rpartition(')')
        words = tail.split()
        self.pid, self.comm = pid, head.partition('(')[2]
        self.state, self.parent, self.group = words[0], int(words[1]), int(words[2])
        self.session, self.started = int(words[3]), int(words[19])


class Strangers:
    """Processes that are known not to belong to a scene, so that not every search reads all environments.
    A new process may still become one of ours by its exec, and process ids are reused. Therefore only
    processes that are at least a second old are remembered, and for a few seconds only."""

    def __init__(self):
        self.known, self.since = set(), 0

    def look(self):
        """The processes that may be ours."""
        if time.monotonic() - self.since > 5:
            self.known, self.since = set(), time.monotonic()
        return [int(e) for e in os.listdir('/proc') if e.isdigit() and int(e) not in self.known]

    def add(self, pid):
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - Process(pid).started / TICKS
        if age > 1:
            self.known.add(pid)


STRANGERS = Strangers()


def find(**wanted):
    """Processes with these variables in their environment, without zombies."""
    marks = [f'{k}={v}'.encode() for k, v in wanted.items()]
    found = []
    for pid in STRANGERS.look():
        try:
            with open(f'/proc/{pid}/environ', 'rb') as f:
                variables = f.read().split(b'\0')
            if all(m in variables for m in marks):
                found.append(Process(pid))
                found[-1].run = next((v[9:].decode() for v in variables
                                      if v.startswith(b'PAWL_RUN=')), '')
            elif not any(v.startswith(b'PAWL_SCENE=') for v in variables):
                STRANGERS.add(pid)
        except OSError:
            continue
    return [p for p in found if p.state not in 'ZX']


class Run:
    """One `pawl run` or `pawl latch`, and the actions on it."""

    def __init__(self, world, step):
        self.world, self.step = world, step
        self.id = step['run']
        self.name, self.shape = step.get('name', ''), step.get('shape', 'plain')
        self.done = []        # (time, target, signal's name, pid)
        self.status = self.ended = None
        self.fd = self.process = None
        self.text = b''
        self.asked = self.idle = 0
        self.status_file = world.path(f'status-{self.id}')
        self.err_file = world.path(f'err-{self.id}')
        env = dict(world.env, PAWL_RUN=str(self.id), PAWL_STATUS=self.status_file)
        self.launched = now()
        if self.shape in TERMINALS:
            self.start_terminal(env)
        else:
            with open(self.err_file, 'wb') as err:
                self.process = subprocess.Popen(self.argv(), env=env, cwd=world.folder,
                                                stdin=subprocess.DEVNULL, stdout=err, stderr=err,
                                                start_new_session=True)
            threading.Thread(target=self.wait, daemon=True).start()

    def words(self):
        """The words of the pawl command."""
        s = self.step
        if s['do'] == 'latch':
            return [TOOL, 'latch', *s['words']]
        keys = [f'{k}={v}' for k, v in s['witness'].items()]
        return [TOOL, 'run', *s['options'], s['name'], '--', WITNESS, self.world.log, str(self.id),
                str(s['ms']), *keys]

    def argv(self):
        script = {'shell': SHELL, 'pipe': PIPE}.get(self.shape)
        return ['bash', '-c', script, 'bash', *self.words()] if script else self.words()

    def wait(self):
        status = self.process.wait()
        self.finish(status, self.shape in ('shell', 'pipe'))

    def finish(self, status, by_file):
        if by_file:
            try:
                with open(self.status_file, encoding='utf-8') as f:
                    status = int(f.read())
            except (OSError, ValueError):
                status = None  # the shell was killed
        self.status, self.ended = status, now()

    # ---- on a terminal ----

    def start_terminal(self, env):
        pid, self.fd = pty.fork()
        if pid == 0:
            try:
                os.chdir(self.world.folder)
                argv = self.words() if self.shape == 'bare' else ['bash', '--norc', '--noediting', '-i']
                os.execvpe(argv[0], argv, dict(env, PS1='', TERM='dumb', HISTFILE='/dev/null'))
            finally:
                os._exit(126)
        self.leader = pid
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 240, 0, 0))
        if self.shape in JOBS:
            line = ' '.join("'" + w.replace("'", "'\\''") + "'" for w in self.words())
            if self.shape == 'pager':
                line = f'set -o pipefail; {line} | {self.world.pager()} {self.step["quit"]}'
            self.type(f'{line}; echo "@@"$?"@@"\n'.encode())
        threading.Thread(target=self.watch_terminal, daemon=True).start()

    def type(self, data):
        try:
            os.write(self.fd, data)
        except (OSError, TypeError):
            pass

    def watch_terminal(self):
        """Collect the output on the terminal."""
        gone = False
        while self.fd is not None:
            try:
                if not select.select([self.fd], [], [], 0.2)[0]:
                    if gone:
                        break
                    gone = self.leader_gone()  # its last output may have come since
                    continue
                data = os.read(self.fd, 65536)
            except (OSError, ValueError, TypeError):
                break
            if not data:
                break
            self.text += data
            told = [t for t in self.told() if not is_stop(t)]
            if told and self.ended is None:
                self.finish(None if self.vague() else int(told[0]), False)
                self.type(b'exit\n')
        self.hang_up()
        self.reap_leader()

    def told(self):
        """Statuses that the shell has printed."""
        return re.findall(rb'@@(\d+)@@', self.text)

    def vague(self):
        """The status may be that of the shell's own fg or wait, or ^C has cut a typed line."""
        return any(w in self.text for w in (b'no such job', b'has terminated', b'not found')) or \
            any(key == 'bg' or target == 'reader' for _, target, key, _ in self.done)

    def leader_gone(self):
        try:
            info = os.waitid(os.P_PID, self.leader, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return info is not None

    def reap_leader(self):
        try:
            _, status = os.waitpid(self.leader, 0)
        except ChildProcessError:
            status = None
        if self.ended is None:
            if self.shape == 'bare' and status is not None:
                self.finish(os.waitstatus_to_exitcode(status), False)
            else:
                self.finish(None, False)

    def hang_up(self):
        fd, self.fd = self.fd, None
        if fd is not None:
            os.close(fd)

    def key(self, key):
        self.done.append((now(), 'key', key, 0))
        if key == 'hangup':
            self.hang_up()
        elif key in ('fg', 'bg'):
            self.type(FOREGROUND if key == 'fg' else BACKGROUND)
        else:
            self.type({'^C': b'\x03', '^Z': b'\x1a'}[key])

    # ---- its processes ----

    def processes(self):
        """The processes by their role: pawl, guardian, command, kid, shell, reader."""
        parts = {}
        found = find(PAWL_SCENE=self.world.id, PAWL_RUN=self.id)
        pawls = [p.pid for p in found if p.comm == 'pawl']
        for p in found:
            part = {'pawl': 'pawl', 'lock-guardian': 'guardian', 'bash': 'shell', 'cat': 'reader',
                    'pager': 'reader',
                    'witness': 'command' if p.parent in pawls else 'kid'}.get(p.comm)
            if p.comm == 'pawl' and p.parent in pawls:
                continue  # between fork and exec
            parts.setdefault(part, p)
        return parts

    def signal(self, target, name):
        parts = self.processes()
        victim = parts.get('pawl' if target == 'group' else target)
        if not victim:
            return
        self.done.append((now(), target, name, victim.pid))
        try:
            if target == 'group':
                if victim.group != os.getpgrp():
                    os.killpg(victim.group, number(name))
            else:
                os.kill(victim.pid, number(name))
        except ProcessLookupError:
            pass

    def err(self):
        if self.text:
            return self.text.decode(errors='replace')
        try:
            with open(self.err_file, errors='replace', encoding='utf-8') as f:
                return f.read()
        except OSError:
            return ''


class World:
    """A place for scenes, one at a time: a folder, and a server if the engine has one."""

    def __init__(self, engine, lateness):
        self.engine, self.lateness = engine, lateness
        self.server = self.proxy = None
        self.count = 0
        self.home = tempfile.mkdtemp(prefix='pawl-gen-')
        if engine == 'redis':
            from redis_live import Live
            from proxy import Proxy
            self.server = Live('--appendonly', 'yes', '--appendfsync', 'always')
            self.proxy = Proxy(self.server.port)

    def url(self):
        if self.engine == 'redis':
            return self.proxy.url(timeout=TIMEOUT_MS)
        return 'local:' + self.home + '/locks'

    def path(self, name):
        return os.path.join(self.folder, name)

    def pager(self):
        """The witness under another name."""
        path = self.path('pager')
        if not os.path.exists(path):
            os.symlink(WITNESS, path)
        return path

    def play(self, steps):
        """Returns when all processes have ended, or after a time limit: `hanging` then lists the rest."""
        self.count += 1
        self.id = f'{os.getpid()}-{id(self)}-{self.count}'
        self.folder = os.path.join(self.home, str(self.count))
        os.mkdir(self.folder, 0o700)
        self.log = self.path('log')
        self.env = {k: v for k, v in os.environ.items() if not k.startswith('PAWL_')}
        self.env.update(PAWL_URL=self.url(), PAWL_SCENE=self.id)
        self.runs, self.breaks, self.faults, self.hanging, self.left = {}, [], [], [], []
        self.threads = []
        self.begun = now()
        for step in sorted(steps, key=lambda s: s['at']):
            pause = self.begun + step['at'] * 1000000 - now()
            if pause > 0:
                time.sleep(pause / 1e9)
            self.do(step)
        self.healed = now()
        self.heal()
        for thread in self.threads:
            thread.join()
        self.wait_for_runs()
        self.over = now()
        self.look_after()

    def do(self, step):
        what = step['do']
        if what in ('start', 'latch'):
            self.runs[step['run']] = Run(self, step)
        elif what == 'break':
            thread = threading.Thread(target=self.take_away, args=[step['name']], daemon=True)
            thread.start()
            self.threads.append(thread)
        elif what == 'service' and self.server:
            self.faults.append((now(), step['what']))
            self.trouble(step['what'])
        elif what == 'signal' and step['run'] in self.runs:
            self.runs[step['run']].signal(step['target'], step['sig'])
        elif what == 'key' and step['run'] in self.runs:
            self.runs[step['run']].key(step['key'])

    def take_away(self, name):
        begin = now()
        p = self.pawl('break', name)
        self.breaks.append((name, begin, now(), p.returncode, p.stderr))

    def pawl(self, *words, url=None):
        env = dict(self.env, PAWL_RUN='world', PAWL_URL=url or self.url())
        return subprocess.run([TOOL, *words], env=env, text=True, capture_output=True, timeout=120,
                              check=False)

    def ask(self, *words):
        """Requests of the world itself, not through the proxy and with a longer limit."""
        url = self.server.url(timeout=20000) if self.server else None
        return self.pawl(*words, url=url)

    def trouble(self, what):
        if what == 'restart':
            self.server.resume()
            self.server.restart()
        elif what == 'pause':
            self.server.pause()
        elif what == 'resume':
            self.server.resume()
        elif what == 'accept':
            self.accept()
        else:
            getattr(self.proxy, what)()

    def accept(self):
        """A process that is being started has a copy of the listener until its exec."""
        for attempt in range(200):
            try:
                return self.proxy.accept()
            except OSError:
                if attempt == 199:
                    raise
                time.sleep(0.02)

    # ---- the end of a scene ----

    def heal(self):
        """End all faults: resume stopped processes and let the service answer. Jobs that a shell has
        stopped are brought to the foreground."""
        if self.server:
            self.server.resume()
            self.accept()
            self.proxy.flow()
        there = find(PAWL_SCENE=self.id)
        shells = {str(r.id) for r in self.runs.values() if r.shape in JOBS and r.fd is not None}
        for p in there:
            if p.state in 'Tt' and (p.comm != 'pawl' or p.run not in shells):
                self.cont(p.pid)
        for run in self.runs.values():
            self.foreground(run, there)

    def foreground(self, run, there):
        """Resume a job that its shell reports as stopped; end a shell that has lost its job."""
        if run.ended is not None or run.shape not in JOBS or run.fd is None:
            return
        told = run.told()
        if told and is_stop(told[-1]) and len(told) > run.asked:
            run.asked = len(told)
            run.key('fg')
        elif run.shape == 'pager' and not (told and is_stop(told[-1])):
            for p in there:  # for its shell the job runs as long as the pager runs
                if p.run == str(run.id) and p.comm == 'pawl' and p.state in 'Tt':
                    self.cont(p.pid)
        if not [p for p in there if p.run == str(run.id) and p.comm != 'bash']:
            run.idle += 1
            if run.idle % 20 == 0:
                run.type(b'exit\n')
            if run.idle > 100:  # a terminal that ^C has left in disorder
                run.hang_up()

    @staticmethod
    def cont(pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def patience(self):
        """Seconds within which all processes must end once the faults are over."""
        ms = sum(r.step.get('ms', 0) + 1500 for r in self.runs.values())
        return ms / 1000 + 5 * len(self.runs) + 30

    def wait_for_runs(self):
        end = time.monotonic() + self.patience()
        latches = time.monotonic() + 15
        while True:
            there = find(PAWL_SCENE=self.id)
            alive = {p.run for p in there if p.comm in ('pawl', 'lock-guardian')}
            open_runs = [r for r in self.runs.values()
                         if r.ended is None or str(r.id) in alive]
            if not open_runs:
                return
            for r in open_runs:
                if r.step['do'] == 'latch' and time.monotonic() > latches:
                    r.waits = True  # perhaps nobody counts the latch down: the judge allows that
                    r.signal('pawl', 'TERM')
                self.foreground(r, there)
            if time.monotonic() > end:
                self.hanging = open_runs
                return
            time.sleep(0.1)

    def look_after(self):
        """Look for processes and names that are left, after giving them some time to end."""
        self.hang_text = [self.describe(r) for r in self.hanging]
        orphans = [r for r in self.runs.values() if unguarded_since(r) is not None]
        for r in orphans + self.hanging:
            self.kill_all(r)
        if any(r.step['do'] == 'latch' for r in self.runs.values()):
            self.ask('latch', 'down', '-a', 'l')
        for run in self.runs.values():
            run.hang_up()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            self.left = [p for p in find(PAWL_SCENE=self.id) if not self.is_prop(p)]
            names = self.ask('ls', '--json')
            self.names = names.stdout.strip() if names.returncode == 0 else names.stderr
            if not self.left and self.names == '[]':
                break
            time.sleep(0.1)
        for p in self.left:
            try:
                os.kill(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    @staticmethod
    def is_prop(p):
        """Whether a process is a shell or a part of its pipeline. These are ended here and not judged."""
        if p.comm not in ('bash', 'cat', 'head', 'pager'):
            return False
        try:
            os.kill(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return True

    def kill_all(self, run):
        for p in find(PAWL_SCENE=self.id, PAWL_RUN=run.id):
            try:
                os.kill(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def describe(self, run):
        lines = []
        for p in find(PAWL_SCENE=self.id, PAWL_RUN=run.id):
            try:
                with open(f'/proc/{p.pid}/wchan', encoding='utf-8') as f:
                    lines.append(f'{p.comm} {p.pid} {p.state} in {f.read()}')
            except OSError:
                pass
        if run.name:
            lines.append(self.ask('show', run.name).stdout)
        return '; '.join(lines)

    def forget(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self):
        if self.proxy:
            self.proxy.close()
        if self.server:
            self.server.resume()
            self.server.stop()
        shutil.rmtree(self.home, ignore_errors=True)


def out_of_action(run, part):
    """[(from, to)] in which pawl or its guardian was killed or stopped; `to` has no end if killed."""
    spans = []
    parts = {'group': 'pawl', 'key': 'pawl'}
    if run.shape in TERMINALS:
        parts['command'] = 'pawl'  # on a terminal pawl stops with its command
    for at, target, sig, _ in run.done:
        if parts.get(target, target) != part or target == 'command' and sig not in ('STOP', 'TSTP'):
            continue
        if sig in ('KILL', 'STOP', 'TSTP', '^Z'):
            spans.append([at, FOREVER if sig == 'KILL' else None])
        elif sig in ('CONT', 'fg', 'bg'):
            for span in spans:
                span[1] = span[1] or at + SECOND
    return [(begin, end or run.world.healed + SECOND) for begin, end in spans]


def unguarded_since(run):
    """The instant from which the command was unguarded: pawl and its guardian were killed or stopped at
    the same time. pawl replaces a guardian that was killed or stopped within a second, and needs at most
    another second on a busy machine. A guardian ends the command even without pawl."""
    both = [max(p, g) for p, p_end in out_of_action(run, 'pawl')
            for g, _ in out_of_action(run, 'guardian') if p - 2 * SECOND < g < p_end]
    return min(both) if both else None
