# SPDX-License-Identifier: Apache-2.0
"""Workers: each measures one library in one language. A worker reads lines and writes lines:

    run MODE CONTENDERS MS [HOLD_US]
                              contenders open their clients and take their lock a few times, then
    ready                     says the worker;
    go                        now all contenders acquire and release as fast as they can, for MS
    ran KEY=NUMBER ... times NS ... gaps NS ...
                              rounds, handovers: how often a contender had a lock, how often
                              another contender had it before; cpu_us, wakeups: of the worker;
                              elapsed_us; fewest, most: rounds of one contender; a sample of the
                              times of rounds, and of the gaps from a release to the grant of
                              another contender that was waiting

MODE says who wants which lock:

    own        a client and a lock for each contender
    shared     a lock each, one client
    async      a lock each, one client, one thread, all locks in flight at once
    same       a client each, one lock
    eights     as same, but eight contenders of one process share a client
    handover   as same, with two contenders that hold the lock for HOLD_US and then pause
    permits    a client each, one semaphore of ten permits
    reading    a client each, one read-write lock; each contender writes once in 20 rounds
    stopped    as same, for MS; then every second contender is stopped while it waits, and the
               others go on for MS: before and during are the hand-overs of the two phases
    killed     likewise, but these contenders are killed

The time of a round is that of acquire and release. If contenders share a name, the time is that of
the acquire alone, and with `same` and its kind the rate counts hand-overs only: a library whose
holder takes the lock again at once, past the waiters, gains nothing by that.
"""
import os
import subprocess
import threading

from turns import quantile, times

PATIENCE = 180
HANDOVERS = ('same', 'eights', 'handover')
HALVED = ('stopped', 'killed')
HOLD_US = 300


class Worker:
    def __init__(self, peer):
        self.peer = peer
        self.process = subprocess.Popen(peer.command, stdin=subprocess.PIPE, cwd=peer.folder,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.words = []
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self):
        for line in self.process.stderr:
            self.words = [*self.words[-4:], line.strip()]

    def _line(self):
        """The next line with a meaning; libraries print notes of their own."""
        late = threading.Event()

        def end():
            late.set()
            self.process.kill()
        timer = threading.Timer(PATIENCE, end)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith(('ready', 'ran ')):
                    return line
        finally:
            timer.cancel()
        if late.is_set():
            raise RuntimeError(f'no answer within {PATIENCE} s')
        self.listener.join(5)
        raise RuntimeError('; '.join(self.words) or 'the worker ended without a word')

    def _say(self, words):
        self.process.stdin.write(words + '\n')
        self.process.stdin.flush()

    def ready(self, *words):
        self._say(' '.join(str(w) for w in ('run', *words)))
        self._line()

    def go(self):
        """(figures, sorted times in ns, sorted gaps in ns)"""
        self._say('go')
        head, rest = self._line().split(' times', 1)
        sample, gaps = rest.split(' gaps', 1)
        figures = {k: int(v) for k, v in (w.split('=') for w in head.split()[1:])}
        return figures, sorted(map(int, sample.split())), sorted(map(int, gaps.split()))

    def stop(self):
        try:
            self.process.stdin.close()
        except OSError:
            pass  # the worker has ended
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def cpu_of(pid):
    """CPU time in us of a process, its children that have ended, and its children that live."""
    with open(f'/proc/{pid}/stat', encoding='utf-8') as f:
        fields = f.read().rsplit(')', 1)[1].split()
    with open(f'/proc/{pid}/task/{pid}/children', encoding='utf-8') as f:
        children = f.read().split()
    used = sum(int(n) for n in fields[11:15]) * 1000000 // os.sysconf('SC_CLK_TCK')
    for child in children:
        try:
            used += cpu_of(child)
        except OSError:
            pass  # it has just ended
    return used


def costs(service):
    """What the server has counted so far: {'commands': ..., 'bytes': ..., 'server_us': ...}"""
    found = service.cost()
    if service.pids and 'server_us' not in found:
        found['server_us'] = sum(cpu_of(pid) for pid in service.pids)
    return found


def one_slice(service, worker, mode, contenders, ms):
    """Figures of one worker. Costs are for each operation, without the cost of asking for them."""
    word = worker.peer.modes[mode]
    hold = (HOLD_US,) if mode == 'handover' else ()
    if mode in HALVED:
        ms = max(ms, service.halved_ms)
    worker.ready(word, 1 if mode == 'handover' and word == 'own' else contenders, ms, *hold)
    before, asked = costs(service), costs(service)
    ran, sample, gaps = worker.go()
    after = costs(service)
    if mode not in HANDOVERS + HALVED:
        gaps = []  # several contenders may have the lock, so that nobody waits for one release
    done = ran['handovers'] if mode in HANDOVERS + HALVED and word != 'own' else ran['rounds']
    seconds = ran['elapsed_us'] / 1e6
    # Each contender has one more round, which ended too late for the rate, but has its cost.
    n = max(done + (contenders // 2 if mode == 'killed' else contenders), 1)
    result = {'operations': done, 'rate': (ran['during'] if mode in HALVED else done) / seconds,
              'cpu_us': ran['cpu_us'] / n, **times(sample), **times(gaps, 'gap'),
              'quantiles': [quantile(gaps or sample, i / 100) / 1000 for i in range(101)]}
    for key, value in after.items():
        result[key] = max(0, (value - asked[key]) - (asked[key] - before[key])) / n
    if 'wakeups' in ran:
        result['wakeups'] = ran['wakeups'] / n
    if contenders > 1 and mode in ('same', 'eights', 'permits', 'reading'):
        result['unfair'] = ran['most'] / max(ran['fewest'], 1)
    if word == 'own' and mode == 'handover':
        result.pop('rate')  # no hand-overs
    if mode in HALVED:
        result['kept'] = ran['during'] / max(ran['before'], 1)
    return result
