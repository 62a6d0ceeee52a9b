# SPDX-License-Identifier: Apache-2.0
"""Plays a program of the environment generator: clients (tests/lib/actor) under trouble.c, each
driven by a thread of its own, while the steps are done to them. Then all trouble ends, and everybody
must get every lock, close, and leave nothing.

What is judged, without any code of Pawl's: claims of locks (tests/lib/random_load.py) never overlap and
their tokens rise; an answer that is no grant is one that pawl.h allows for such trouble, and has
words; every call returns within a bound; no client ends by a signal that this world did not send.
"""
import json
import mmap
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'lib'))
import random_load  # noqa: E402
from actor import Actor, boot_ns  # noqa: E402
from programs import CALLS, WORKERS, watchdog  # noqa: E402

TOOL, WITNESS, TROUBLE = (os.environ.get(v) or sys.exit('set ' + v)
                          for v in ('PAWL_TOOL', 'PAWL_WITNESS', 'PAWL_TROUBLE'))
CROWD = os.path.join(os.path.dirname(TROUBLE), 'crowd')
LIBRARY = os.path.join(os.path.dirname(TOOL), '..')  # ld.so finds $ORIGIN by /proc
BOUND_S = 40        # no call takes longer: waits are 3 s, time-outs 1 s
FREE_MS = 15000     # after the trouble every lock is had within this time
IDLE_S = 5          # ... and on local: nobody waits so long for one that nobody has
PEERS_MAX = 12
SIZE = 16 << 20      # of the lock folder's file system
LATE_NS = 600000000 # a message of loss may be so late on a busy machine
FOREVER = 10**30
ROOT = os.geteuid() == 0
BUSY = {'PAWL_EBUSY', 'PAWL_ETIMEDOUT'}
ALLOWED = {'PAWL_ECONN', 'PAWL_EUNKNOWN', 'PAWL_EBACKEND', 'PAWL_ENOMEM', 'PAWL_ELOST'}
ALLOWED_DROP = ALLOWED | {'PAWL_OK', 'PAWL_ENOTHELD'}
NAME_OF = {'m': 'm', 'f': 'm', 'r': 'rw', 'w': 'rw', 's': 's'}
ROUNDS = 3
REFUSED = {'noproc', 'subset', 'bootid', 'timens'}  # by local:
UNSHARE = {
    'noproc': ['unshare', '-m', 'sh', '-c', 'umount -l /proc; exec "$@"', 'sh'],
    'subset': ['unshare', '-m', 'sh', '-c',
               'umount -l /proc; mount -t proc -o subset=pid proc /proc; exec "$@"', 'sh'],
    'bootid': ['unshare', '-m', 'sh', '-c',
               'mount --bind "$BOOT_ID" /proc/sys/kernel/random/boot_id; exec "$@"', 'sh'],
    'pidns': ['unshare', '-p', '-f', '--kill-child', '--mount-proc'],
    'timens': ['unshare', '-T', '--boottime', '100000', '--monotonic', '5000'],
    'netns': ['unshare', '-n'],
}


def covered(spans, begin, end):
    """How much of begin to end the sorted spans cover."""
    total, at = 0, begin
    for a, b in spans:
        a, b = max(a, at), min(b, end)
        if b > a:
            total, at = total + b - a, b
    return total


class Control:
    """The page that trouble.c reads."""

    def __init__(self, path):
        with open(path, 'wb') as f:
            f.write(b'\0' * 4096)
        self.fd = os.open(path, os.O_RDWR)
        self.page = mmap.mmap(self.fd, 4096)

    def clock(self, realtime=None, boottime=None):
        if realtime is not None:
            struct.pack_into('q', self.page, 0, realtime * 10**9)
        if boottime is not None:
            now, = struct.unpack_from('q', self.page, 8)
            struct.pack_into('q', self.page, 8, now + boottime * 10**9)

    def rates(self, rates):
        for i, name in enumerate(CALLS):
            struct.pack_into('I', self.page, 16 + 4 * i, rates.get(name, 0))

    def failed(self):
        return {name: struct.unpack_from('Q', self.page, 144 + 8 * i)[0]
                for i, name in enumerate(CALLS)}

    def close(self):
        self.page.close()
        os.close(self.fd)


class Client(random_load.Worker):
    """A worker of random_load.py whose answers may be errors, of the allowed ones."""

    def __init__(self, world, number, **how):
        threading.Thread.__init__(self, daemon=True)
        self.world, self.number = world, number
        self.random = __import__('random').Random(world.seed * 1000 + number)
        self.over = threading.Event()
        self.claims, self.failure, self.codes, self.waits = [], None, {}, []
        self.killed = self.changed = False
        self.actor = Actor(world.url, environ=world.environ(number), opens=False, **how)
        self.opened = self.actor.opened.code == 'PAWL_OK'
        if self.opened:
            for name, what, kind in (('m', 'm', 'mutex'), ('f', 'm', 'fair'), ('r', 'rw', 'read'),
                                     ('w', 'rw', 'write')):
                self.make('lock', name, what, kind=kind)
            self.make('sem', 's', 's', permits=random_load.CAPACITY)

    def make(self, verb, name, what, **options):
        words = [f'{k}={v}' for k, v in options.items()]
        for _ in range(2000):
            got = self.actor.ask(verb, name, what, *words)
            if got.code == 'PAWL_OK':
                return
            got.be('PAWL_ENOMEM')
        raise AssertionError('never memory for a handle')

    def run(self):
        try:
            while not self.over.is_set():
                self.one_round(self.random.choice(self.OBJECTS))
        except BaseException as e:
            if not self.killed:
                self.failure = e

    def ask(self, verb, name, *words):
        if verb in ('acquire', 'release'):
            self.actor.send(verb, name, *words)
            return self.actor.answer(verb, name, patience=BOUND_S)
        return self.actor.ask(verb, name, *words, patience=BOUND_S)

    def one_round(self, which):
        permits = self.random.randint(1, random_load.CAPACITY) if which == 's' else 1
        wait = self.random.choice((0, 50, 400, 3000))
        asked = boot_ns()
        blocking = which == 's' or self.random.random() < 0.5
        got = self.ask('take', which, wait, permits) if blocking else \
            self.ask('acquire', which, wait)
        self.count(got.code)
        if got.code == 'PAWL_ELOST':  # an earlier hold, which is to be released first
            self.give_back(which, permits)
        if got.code != 'PAWL_OK':
            self.judge_error(got, blocking)
            return
        self.hold(which, permits, asked, got)

    def judge_error(self, got, blocking):
        if got.code not in BUSY:
            assert self.world.troubled, f'an error without trouble: {got}'
            got.be(*ALLOWED)
            assert not blocking or got.words, f'no words: {got}'

    def hold(self, which, permits, asked, got):
        share = {'r': 1, 's': permits}.get(which, 9)
        claim = random_load.Claim(NAME_OF[which], share, asked, got.ns, got.token)
        claim.client = self
        self.claims.append(claim)
        time.sleep(self.random.choice((0, 0, 0.001, 0.02, 0.3)))
        claim.end = boot_ns()
        self.give_back(which, permits)
        lost = self.actor.have('lost', which)
        if lost:
            claim.end = min(claim.end, max(lost.ns - LATE_NS, claim.start))

    def give_back(self, which, permits):
        """Until it is given back: what failed may be repeated."""
        for _ in range(200):
            got = self.ask('drop', which, permits) if which == 's' else self.ask('release', which)
            self.count('release ' + got.code)
            got.be(*ALLOWED_DROP)
            if got.code in ('PAWL_OK', 'PAWL_ELOST', 'PAWL_ENOTHELD'):
                return
            assert self.world.troubled, f'a release failed without trouble: {got}'
            time.sleep(0.02)

    # ---- after the trouble ----

    def settle(self):
        """Everything works again: each object is had and given back, on local: several times."""
        rounds = self.OBJECTS if self.world.server else self.OBJECTS * ROUNDS
        for which in self.random.sample(rounds, len(rounds)):
            asked = boot_ns()
            got = self.ask('take', which, FREE_MS, 1)
            if got.code == 'PAWL_ELOST':
                self.give_back(which, 1)
                got = self.ask('take', which, FREE_MS, 1)
            got.ok()
            at = boot_ns()
            time.sleep(self.random.choice((0, 0.001, 0.02)))
            self.ask('drop', which, 1).ok()
            self.waits.append((NAME_OF[which], asked, at, boot_ns()))

    def descriptors(self):
        return len(os.listdir(f'/proc/{self.actor.pid}/fd'))

    def end(self):
        """Close; a client that ended by itself says why."""
        status = self.actor.process.poll()
        if status is None:
            self.actor.send('close')
            self.actor.answer('close', patience=BOUND_S)
            status = self.actor.process.wait(BOUND_S)
        assert status == 0 or self.killed or not self.opened, f'a client ended with {status}'

    def kill(self):
        self.killed = boot_ns()
        try:
            os.kill(self.actor.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.actor.process.wait()


class World:
    """A folder or a server for one program."""

    def __init__(self, engine, seed, server=None):
        self.engine, self.seed, self.server = engine, seed, server
        self.folder = tempfile.mkdtemp(prefix='pawl-env-')
        os.chmod(self.folder, 0o755)
        self.mounted = False
        self.locks = self.folder + '/locks'
        os.mkdir(self.locks, 0o700)
        self.url = f'local:{self.locks}?watchdog={watchdog(seed, False)}'
        if engine == 'redis':
            self.url = server.url(watchdog=2000, timeout=1000)
            server.call('FLUSHALL')
        elif ROOT:
            self.mounted = subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={SIZE},mode=700', 'tmpfs',
                                           self.locks], check=False).returncode == 0
        with open(self.folder + '/boot', 'w', encoding='ascii') as f:
            f.write('01234567-89ab-cdef-0123-456789abcdef\n')
        self.control = Control(self.folder + '/control')
        os.chmod(self.folder + '/control', 0o666)
        self.clients, self.runs, self.found, self.ended, self.threads = [], [], [], [], []
        self.crowds = []
        self.troubled = True
        self.next = WORKERS
        self.log = self.folder + '/log'

    def environ(self, number):
        return {'LD_PRELOAD': TROUBLE, 'TROUBLE': self.folder + '/control',
                'TROUBLE_SEED': str(self.seed * 1000 + number), 'BOOT_ID': self.folder + '/boot',
                'LD_LIBRARY_PATH': LIBRARY}

    # ---- a program ----

    def play(self, steps):
        for i in range(WORKERS):
            self.add(Client(self, i))
        time.sleep(0.3)
        self.fds = {c: c.descriptors() for c in self.clients}
        self.perform(steps)
        self.heal()
        self.finish()
        self.judge()
        return self.found

    def add(self, client):
        self.clients.append(client)
        client.start()

    def perform(self, steps):
        """Each step begins at its time and ends when it is over; several may be under way."""
        begun, todo = time.monotonic(), []
        for i, s in enumerate(steps):
            todo.append((s['at'], i, s, True))
            todo.append((s['at'] + s['for'], i, s, False))
        self.active = []
        for at, _, s, begins in sorted(todo, key=lambda t: t[:2]):
            pause = begun + at / 1000 - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            getattr(self, 'do_' + s['do'])(s, begins)

    def do_fail(self, s, begins):
        if begins:
            self.active.append(s)
        else:
            self.active.remove(s)
        rates = {}
        for a in self.active:
            rates.update(a['calls'])
        self.control.rates(rates)

    def do_nofile(self, s, begins):
        c = self.clients[s['who']]
        if c.actor.process.poll() is None:
            self.limit(c, max(c.descriptors() + s['extra'], 0) if begins else 1024)

    @staticmethod
    def limit(c, descriptors):
        try:
            resource.prlimit(c.actor.pid, resource.RLIMIT_NOFILE, (descriptors, 1024))
        except PermissionError:
            pass  # it is another user now

    def do_disk(self, s, begins):
        path = self.locks + '/filler'
        if not begins:
            if os.path.exists(path):
                os.unlink(path)
            return
        if not self.mounted:
            return
        try:
            with open(path, 'wb', buffering=0) as f:
                while f.write(b'x' * 4096) == 4096:
                    pass
        except OSError:
            pass

    def do_clock(self, s, begins):
        if begins:
            self.control.clock(s.get('realtime'), s.get('boottime'))
        elif 'realtime' in s:
            self.control.clock(realtime=0)

    def do_identity(self, s, begins):
        c = self.clients[s['who']]
        if not begins or not c.opened or c.killed:
            return
        self.pause(c)
        if s['what'] == 'fork':
            got = c.actor.ask('fork', 'm', patience=BOUND_S)
            if got.fields['n'] != '0':
                self.found.append(f'a forked child ended with {got}')
        else:
            self.limit(c, 1024)  # nobody can afterwards
            c.changed = True     # it can't remove its files, perhaps
            c.actor.ask(s['what'], '65534' if s['what'] == 'become' else self.folder,
                        patience=BOUND_S).be('PAWL_OK', 'PAWL_EINVAL')
        self.resume(c)

    def do_guest(self, s, begins):
        if not begins:
            return
        if self.server and s['what'] == 'netns':
            return  # it has no way to the server
        guest = Client(self, self.next, prefix=UNSHARE[s['what']])
        self.next += 1
        if guest.opened and self.engine == 'local' and s['what'] in REFUSED:
            self.found.append(f'local: was opened by a guest of the kind {s["what"]}')
        if not guest.opened and not guest.actor.opened.words:
            self.found.append(f'no words: {guest.actor.opened}')
        if guest.opened:
            self.add(guest)
        else:
            self.ended.append(guest)

    def do_kill(self, s, begins):
        if begins:
            self.clients[s['who']].kill()

    def do_crowd(self, s, begins):
        if begins:
            self.next += 1
            self.crowds.append(subprocess.Popen(
                [CROWD, f'local:{self.locks}?watchdog=30000', str(self.seed * 1000 + self.next),
                 str(s['for']), str(s['many']), str(s['each'])], stdout=subprocess.PIPE, text=True))

    def do_narrow(self, s, begins):
        """It stays so: what the dead had is there for the living."""
        if not begins or not self.mounted:
            return
        st = os.statvfs(self.locks)
        used = (st.f_blocks - st.f_bfree) * st.f_frsize
        if used + s['room'] < SIZE:
            subprocess.run(['mount', '-o', f'remount,size={used + s["room"]}', self.locks], check=True)

    def do_visit(self, s, begins):
        if begins:
            thread = threading.Thread(target=self.visit, args=[s['for'] / 1000], daemon=True)
            self.threads.append(thread)
            thread.start()

    def visit(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            number, self.next = self.next, self.next + 1
            try:
                c = Client(self, number)
            except BaseException as e:
                self.found.append(f'a visitor failed to open: {e!r}')
                return
            self.ended.append(c)
            if not c.opened:
                if not c.actor.opened.words:
                    self.found.append(f'no words: {c.actor.opened}')
                continue
            self.attempt(c, lambda c=c: c.one_round(c.random.choice(c.OBJECTS)))
            self.attempt(c, c.end)

    def do_cut(self, s, begins):
        if begins:
            for kind in ('normal', 'pubsub'):
                self.server.call('CLIENT', 'KILL', 'TYPE', kind, 'SKIPME', 'yes')

    def do_tool(self, s, begins):
        if not begins:
            return
        env = dict(os.environ, PAWL_URL=self.url, **self.environ(self.next))
        number, self.next = self.next, self.next + 1
        err = open(f'{self.folder}/err-{number}', 'wb')
        p = subprocess.Popen([TOOL, 'run', *s['options'], 'm', '--', WITNESS, self.log,
                              str(number), str(s['ms'])], env=env, stdin=subprocess.DEVNULL,
                             stdout=err, stderr=err, start_new_session=True)
        err.close()
        self.runs.append((number, p))

    def do_unload(self, s, begins):
        if not begins:
            return
        library = os.path.join(LIBRARY, 'libpawl.so')
        p = subprocess.run([sys.executable, os.path.join(HERE, 'unload.py'), library, 'memory:'],
                           capture_output=True, text=True, check=False, timeout=BOUND_S * 2)
        if p.returncode:
            self.found.append(f'a program that unloaded the library ended with {p.returncode}: '
                              f'{p.stderr[-300:]!r}')

    def pause(self, c):
        c.over.set()
        c.join(BOUND_S * 2)

    def resume(self, c):
        """A thread runs once: another one goes on with the same client."""
        if c.failure:
            return
        c.over = threading.Event()
        threading.Thread.__init__(c, daemon=True)
        c.start()

    # ---- its end ----

    def heal(self):
        self.control.rates({})
        self.control.clock(realtime=0)
        for c in self.clients:
            if c.actor.process.poll() is None:
                self.limit(c, 1024)
        filler = self.locks + '/filler'
        if os.path.exists(filler):
            os.unlink(filler)

    def finish(self):
        for c in self.clients:
            c.over.set()
        for c in self.clients:
            c.join(BOUND_S * 3)
        for thread in self.threads:
            thread.join(BOUND_S * 3)
        for p in self.crowds:
            said = p.communicate(timeout=BOUND_S * 2)[0]
            if p.returncode:
                self.found.append(f'a crowd ended with {p.returncode}: {said}')
        for number, p in self.runs:
            try:
                p.wait(BOUND_S)
            except subprocess.TimeoutExpired:
                self.found.append(f'pawl run {number} hangs')
                p.kill()
        time.sleep(2.2)  # leases of what could not be given back end
        self.troubled = False
        self.settle_all()
        if not self.server:
            self.newcomer()
        for c in self.clients:
            # one descriptor for each other client that it woke: of those in this world, and of
            # commands under a lock
            if c in self.fds and not c.failure and not c.killed and \
                    c.descriptors() > self.fds[c] + PEERS_MAX:
                self.found.append(f'a client has {c.descriptors()} descriptors, {self.fds[c]} before')
        for c in self.clients + self.ended:
            self.attempt(c, c.end)
        self.nothing_left()

    def settle_all(self):
        """On local: all at the same time, so that each must be woken by the others."""
        if self.server:
            for c in self.clients:
                self.attempt(c, c.settle)
            return
        threads = [threading.Thread(target=self.attempt, args=[c, c.settle], daemon=True)
                   for c in self.clients]
        for t in threads:
            t.start()
        for t in threads:
            t.join(BOUND_S * 3)
        for name in ('m', 'rw', 's'):
            waits = [(c, w) for c in self.clients for w in c.waits if w[0] == name]
            held = sorted((got, left) for _, (_, _, got, left) in waits)
            for c, (_, asked, got, _) in waits:
                idle = got - asked - covered(held, asked, got)
                if idle > IDLE_S * 10**9:
                    self.found.append(f'client {c.number} waited {idle / 1e9:.1f} s for {name!r}, which '
                                      'nobody had')

    def newcomer(self):
        """Who comes after the trouble gets everything, too: nobody keeps what the dead had."""
        number, self.next = self.next, self.next + 1
        c = Client(self, number)
        self.ended.append(c)
        if not c.opened:
            self.found.append(f'a client could not open when all was well again: {c.actor.opened}')
        else:
            self.attempt(c, c.settle)

    def attempt(self, client, what):
        if client.failure or client.killed:
            return
        try:
            what()
        except BaseException as e:
            client.failure = e

    def nothing_left(self):
        for _ in range(60):
            p = subprocess.run([TOOL, 'ls', '--json'], env=dict(os.environ, PAWL_URL=self.url),
                               capture_output=True, text=True, check=False, timeout=60)
            if p.returncode == 0 and json.loads(p.stdout) == []:
                break
            time.sleep(0.1)
        else:
            self.found.append(f'names are left: {p.stdout} {p.stderr}')
        if self.engine == 'local' and not self.crowds and \
                not [c for c in self.clients if c.killed or c.changed]:
            files = [f for f in os.listdir(self.locks + '/.pawl') if f != 'table']
            if files:
                self.found.append(f'files are left: {files}')

    # ---- the judgement ----

    def judge(self):
        for c in self.clients + self.ended:
            if c.failure:
                status = c.actor.process.poll()
                self.found.append(f'client {c.number}: {c.failure!r}' +
                                  (f', it ended with {status}' if status else ''))
        self.judge_runs()
        everything = [k for c in self.clients + self.ended for k in c.claims] + self.tool_claims()
        for k in everything:
            k.end = min(k.end or FOREVER, getattr(k, 'client', k).killed or FOREVER)
        for name in ('m', 'rw', 's'):
            mine = [k for k in everything if k.name == name]
            for check in (lambda: random_load.check_exclusion(mine, name, random_load.CAPACITY if name == 's'
                                                         else random_load.ALL),
                          lambda: random_load.check_tokens(mine, name)):
                try:
                    check()
                except AssertionError as e:
                    self.found.append(str(e))

    def judge_runs(self):
        for number, p in self.runs:
            with open(f'{self.folder}/err-{number}', errors='replace', encoding='utf-8') as f:
                err = f.read()
            if p.returncode not in (0, 1, 69, 71, 75, 126):
                self.found.append(f'pawl run {number} ended with {p.returncode}: {err!r}')
            elif p.returncode not in (0, 1) and 'pawl: ' not in err:
                self.found.append(f'pawl run {number} ended with {p.returncode} without words')

    def tool_claims(self):
        """From the witness's records."""
        spans = {}
        if os.path.exists(self.log):
            with open(self.log, encoding='ascii') as f:
                for line in f.read().split('\n')[:-1]:
                    at, _, run, kind, value = line.split(' ')
                    claim = spans.setdefault(run, random_load.Claim('m', random_load.ALL, int(at), int(at), 0))
                    claim.end, claim.killed = int(at), 0
                    if kind == 'S':
                        claim.token = int(value)
        return list(spans.values())

    def kill_all(self):
        for c in self.clients + self.ended:
            if c.actor.process.poll() is None:
                c.kill()
        for p in [p for _, p in self.runs] + self.crowds:
            if p.poll() is None:
                p.kill()

    def close(self):
        self.kill_all()
        self.control.close()
        if self.mounted:
            subprocess.run(['umount', '-l', self.locks], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
