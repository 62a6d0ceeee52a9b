# SPDX-License-Identifier: Apache-2.0
"""What must hold besides between peers that speak Redisson's layout: its other kinds of locks."""
import json
import random
import subprocess
import threading
import time

from pair import SHORT, WATCHDOG, check
from peers import built
from properties import PATIENCE, granted, refused, stays_out
from redisdb import parse_monitor
from watching import watched

PROPERTIES = []


def prop(words, both=True):
    def add(function):
        PROPERTIES.append((function.__name__, words, both, function))
        return function
    return add


@prop("fair, read, write and spin locks: {x} can't release {y}'s lock")
def strangers(pair, x, y):
    for kind in ('fair', 'read', 'write', 'spin'):
        refused(pair, x, y, kind)
    return 'shown'


# ---- Order ---------------------------------------------------------------------------------------

def queued(pair, handle, place, wait=-1):
    """Start to wait for a fair lock; returns when it stands at that place of the queue."""
    answer = handle.start('acquire', wait)
    queue = 'redisson_lock_queue:{%s}' % handle.name
    end = time.monotonic() + PATIENCE
    while pair.server.call('LLEN', queue) < place:
        check(time.monotonic() < end, '%s is not in the queue', handle.side.title)
        time.sleep(0.01)
    return answer


@prop('fair lock: {x}, {y}, {x}, {y} get the lock in order of arrival')
def fair_order(pair, x, y):
    name = pair.name()
    first = y.handle(name, kind='fair')
    first.acquire()
    line = [(h, queued(pair, h, i + 1)) for i, h in enumerate(
        side.handle(name, kind='fair') for side in (x, y, x, y))]
    previous = first
    for i, (handle, answer) in enumerate(line):
        early = [h.side.title for h, a in line[i:] if a.done.is_set()]
        check(not early, '%s got in before its turn', early)
        begin = time.monotonic()
        previous.release()
        granted(answer, begin)
        previous = handle
    previous.release()
    return 'shown'


@prop('fair lock: {y}, {x}, {y} with limits of their own get the lock in order of arrival')
def fair_limits(pair, x, y):
    """A waiter's deadline counts from the one before it and shrinks when that one is served."""
    name = pair.name()
    first = y.handle(name, 10000, kind='fair')
    first.acquire()
    line = [(h, queued(pair, h, i + 1, wait)) for i, (h, wait) in enumerate(
        (side.handle(name, kind='fair'), wait) for side, wait in
        ((y, 20000), (x, 12000), (y, 15000)))]
    previous = first
    for i, (handle, answer) in enumerate(line):
        begin = time.monotonic()
        previous.release()
        granted(answer, begin)
        late = [h.side.title for h, a in line[i + 1:] if a.done.is_set()]
        check(not late, '%s got in before its turn', late)
        previous = handle
    previous.release()
    return 'shown'


@prop('fair lock: {x} killed in front of the queue, {y} gets the lock next')
def fair_killed(pair, x, y):
    name = pair.name()
    victim = x.spawn()
    holder, behind = y.handle(name, renew=True, kind='fair'), y.handle(name, kind='fair')
    holder.acquire()  # and renewed: a young process may take long to join the queue
    queued(pair, victim.handle(name, kind='fair'), 1, wait=4000)
    answer = queued(pair, behind, 2)
    victim.driver.kill()
    mark, begin = pair.mark(), time.monotonic()
    holder.release()
    took = granted(answer, begin)
    asked = sum(source != 'lua' and name.encode() in words for source, words in
                (parse_monitor(line) for _, line in pair.monitor.since(mark)))
    check(y.title != 'Pawl' or asked < 200, 'asked %d times meanwhile', asked)
    behind.release()
    return '%.1f s, asked %s' % (took, '%d times' % asked if asked < 200
                                 else 'without a pause')


# ---- Readers and writers -------------------------------------------------------------------------

@prop('{x} reads, {y} also reads and does not write; then {y} writes')
def reader(pair, x, y):
    name = pair.name()
    one, two = x.handle(name, kind='read'), y.handle(name, kind='read')
    writer = y.handle(name, kind='write')
    one.acquire()
    check(two.tries(), '%s can not read with %s', y.title, x.title)
    check(not writer.tries(), '%s writes while %s reads', y.title, x.title)
    two.release()
    check(not writer.tries(), '%s writes while %s still reads', y.title, x.title)
    answer = writer.wait()
    begin = time.monotonic()
    one.release()
    took = granted(answer, begin)
    writer.release()
    return '%.1f ms' % (took * 1000)


@prop("{x} writes, {y} neither reads nor writes; then all of {y}'s readers do")
def writer(pair, x, y):
    name = pair.name()
    one, other = x.handle(name, kind='write'), y.handle(name, kind='write')
    readers = [y.handle(name, kind='read') for _ in range(2)]
    one.acquire()
    check(not other.tries() and not readers[0].tries(), '%s got in', y.title)
    answers = []
    for handle in readers:
        mark = pair.mark()
        answers.append(handle.start('acquire', -1))
        pair.seen(name, mark)
    time.sleep(0.2)
    begin = time.monotonic()
    one.release()
    took = max(granted(answer, begin) for answer in answers)
    for handle in readers:
        handle.release()
    return '%.1f ms' % (took * 1000)


@prop('{x} writes, reads and gives up writing: {y} reads, but does not write until {x} is done')
def downgrade(pair, x, y):
    name = pair.name()
    write = x.handle(name, kind='write')
    read = x.handle(name, kind='read', owner=write.owner)
    other, late = y.handle(name, kind='read'), y.handle(name, kind='write')
    write.acquire()
    read.acquire()
    check(not other.tries(), '%s reads while %s writes', y.title, x.title)
    write.release()
    check(other.tries(), '%s can not read after the downgrade', y.title)
    check(not late.tries(), '%s writes while %s reads', y.title, x.title)
    other.release()
    check(not late.tries(), '%s writes while %s reads', y.title, x.title)
    read.release()
    check(late.tries(), '%s can not write when nobody reads', y.title)
    late.release()
    return 'shown'


@prop("{x} killed while both {x} and {y} read: {y}'s writer gets the lock")
def reader_killed(pair, x, y):
    name = pair.name()
    victim = x.spawn()
    dead, alive = victim.handle(name, renew=True, kind='read'), y.handle(name, kind='read')
    writer_ = y.handle(name, kind='write')
    dead.acquire()
    alive.acquire()
    victim.driver.kill()
    time.sleep(WATCHDOG / 1000 + 0.2)  # the dead reader's lease
    check(not writer_.tries(), '%s writes while it reads', y.title)
    answer, begin = writer_.start('acquire', -1), time.monotonic()
    alive.release()
    granted(answer, begin)
    writer_.release()
    return 'shown'


@prop('{x} renews its read lease while {y} does not write')
def reader_renews(pair, x, y):
    name = pair.name()
    one, other = x.handle(name, renew=True, kind='read'), y.handle(name, kind='write')
    one.acquire()
    stays_out(other, 2.2 * WATCHDOG / 1000, '%s wrote while %s renewed' % (y.title, x.title))
    one.release()
    check(other.tries(), 'the reader is gone, and %s can not write', y.title)
    other.release()
    return 'shown'


@prop('{x} and {y} read and write under a random schedule', both=False)
def read_write(pair, x, y):
    """Writers count, not atomically; readers see the same count twice."""
    name, key = pair.name(), 'counter ' + pair.name()
    pair.server.call('SET', key, 0)
    end = time.monotonic() + 5
    done, trouble = {}, []

    def work(side, kind, seed):
        chance, handle, mine = random.Random(seed), side.handle(name, kind=kind), 0
        try:
            while time.monotonic() < end:
                if handle.ask('acquire', 2000).ok:
                    before = int(pair.server.call('GET', key))
                    time.sleep(chance.uniform(0, 0.004))
                    after = int(pair.server.call('GET', key))
                    check(before == after, 'the count changed under a lock to %s', kind)
                    if kind == 'write':
                        pair.server.call('SET', key, before + 1)
                    mine += 1
                    handle.release()
                time.sleep(chance.uniform(0, 0.02))
        except Exception as error:
            trouble.append(error)
        done[side.title, kind] = mine

    threads = [threading.Thread(target=work, args=(side, kind, i)) for i, (side, kind) in
               enumerate((s, k) for s in (x, y) for k in ('read', 'write'))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if trouble:
        raise trouble[0]
    counted = int(pair.server.call('GET', key))
    writes = sum(n for (_, kind), n in done.items() if kind == 'write')
    check(counted == writes, '%d writes, but counted to %d', writes, counted)
    check(min(done.values()) > 0, 'somebody never got in: %s', done)
    return '%d grants' % sum(done.values())


# ---- Permits and latches -------------------------------------------------------------------------

@prop("permits: {x}'s release wakes {y}, and a permit of {x} whose lease ended goes to {y}")
def permits(pair, x, y):
    name = pair.name()
    one, two = x.handle(name, kind='permits'), y.handle(name, kind='permits')
    brief, three = x.handle(name, SHORT, kind='permits'), y.handle(name, kind='permits')
    for handle in (one, two, brief, three):
        handle.ask('set', 2)
    one.acquire()
    two.acquire()
    check(not three.tries(), 'a third permit of two')
    check(one.do('available') == two.do('available') == '0', 'they count differently')
    answer = three.wait()
    begin = time.monotonic()
    one.release()
    took = granted(answer, begin)
    three.release()
    brief.acquire()
    begin = time.monotonic()
    granted(three.wait(), begin)
    check(brief.ask('release').status == 'error', '%s gave back a permit it had lost', x.title)
    check(one.do('available') == '0', 'a permit too many')
    for handle in (two, three):
        handle.release()
    check(one.do('available') == two.do('available') == '2', 'a permit is missing')
    return '%.1f ms' % (took * 1000)


@prop("semaphore without leases: {x}'s release wakes {y}")
def semaphore(pair, x, y):
    name = pair.name()
    one, two, three = (s.handle(name, kind='semaphore') for s in (x, y, y))
    for handle in (one, two, three):
        handle.ask('set', 2)
    one.acquire()
    two.acquire()
    check(not three.tries(), 'a third permit of two')
    check(one.do('available') == two.do('available') == '0', 'they count differently')
    answer = three.wait()
    begin = time.monotonic()
    one.release()
    took = granted(answer, begin)
    for handle in (two, three):
        handle.release()
    check(one.do('available') == two.do('available') == '2', 'a permit is missing')
    return '%.1f ms' % (took * 1000)


@prop('latch: set by {x}, counted down by both, opens for waiters of both')
def latch(pair, x, y):
    name = pair.name()
    sides = [s.handle(name, kind='latch') for s in (x, y)]
    waiters = [s.handle(name, kind='latch') for s in (x, y)]
    sides[0].do('set', 4)
    check(sides[1].ask('set', 9).status == 'busy', '%s set it again', y.title)
    answers = [w.start('await', -1) for w in waiters]
    for left in (3, 2, 1):
        sides[left % 2].do('down')
        check([s.do('count') for s in sides] == [str(left)] * 2, 'they count differently')
    check(not any(a.done.is_set() for a in answers), 'opened early')
    begin = time.monotonic()
    sides[0].do('down')
    return '%.1f ms' % (max(granted(answer, begin) for answer in answers) * 1000)


# ---- Tokens and counts ---------------------------------------------------------------------------

@prop('fenced lock: tokens rise across {x} and {y}', both=False)
def tokens(pair, x, y):
    name = pair.name()
    handles = [x.handle(name, kind='fenced'), y.handle(name, kind='fenced')]
    chance, last = random.Random(1), 0
    for _ in range(20):
        handle = chance.choice(handles)
        token = int(handle.do('grab', -1))
        check(token > last, '%s got token %d after %d', handle.side.title, token, last)
        last = token
        handle.release()
    return 'shown'


@prop('{x} enters three times: the count in the server matches, and {y} stays out')
def holds(pair, x, y):
    name = pair.name()
    one, other = x.handle(name), y.handle(name)
    for count, verb in ((1, 'acquire'), (2, 'acquire'), (3, 'acquire'), (2, 'release'),
                        (1, 'release')):
        one.do(verb)
        fields = pair.server.call('HGETALL', name)
        check(len(fields) == 2 and int(fields[1]) == count == int(one.do('count')),
              'entered %d times, the server has %s, %s says %s', count, fields, x.title,
              one.do('count'))
        check(not other.tries(), '%s got in', y.title)
    one.release()
    check(other.tries(), '%s does not get it after the last release', y.title)
    other.release()
    return 'shown'


@prop("{y} breaks {x}'s lock: {y}'s waiter is woken, and {x} is refused")
def broken(pair, x, y):
    name = pair.name()
    holder, waiter, operator = x.handle(name, renew=True), y.handle(name), y.handle(name)
    holder.acquire()
    answer = waiter.wait()
    begin = time.monotonic()
    operator.do('force')
    took = granted(answer, begin)
    before = pair.holder(name)
    check(holder.ask('release').status == 'error', '%s gave back a broken lock', x.title)
    check(pair.holder(name) == before, 'the new holder was disturbed')
    waiter.release()
    return '%.1f ms' % (took * 1000)


@prop('spin lock: {x} releases, {y} gets the lock')
def spin(pair, x, y):
    name = pair.name()
    one, other = x.handle(name, kind='spin'), y.handle(name, kind='spin')
    one.acquire()
    answer = other.start('acquire', -1)
    pair.seen(name, pair.mark(), 3)
    begin = time.monotonic()
    one.release()
    took = granted(answer, begin)
    other.release()
    return '%.1f ms' % (took * 1000)


# ---- The tool ------------------------------------------------------------------------------------

def tool(pair, y, *words):
    """What pawl(1) says, as JSON if asked to. The URL is of y's kind: in a cluster y listens with
    SSUBSCRIBE."""
    scheme = 'redis+cluster' if y.peer.cluster else 'redis'
    done = subprocess.run(
        [built('tool'), words[0], '-u', '%s://127.0.0.1:%d' % (scheme, pair.server.port),
         '--layout', 'redisson', *words[1:]], capture_output=True, text=True, timeout=60)
    check(done.returncode == 0, 'pawl %s: %d, %s', ' '.join(words), done.returncode, done.stderr)
    return json.loads(done.stdout) if '--json' in words else done.stdout


def by_hand(pair, y, kind):
    name = pair.name()
    holder, waiter = y.handle(name, kind=kind), y.handle(name, kind=kind)
    holder.acquire()
    answer = waiter.wait()
    shown = tool(pair, y, 'show', '--json', name)
    owner = holder.do('owner') + (':write' if kind == 'write' else '')
    check(shown['held'] and [h['owner'] for h in shown['holders']] == [owner],
          'show does not name the owner %s: %s', owner, shown)
    check(kind != 'fair' or shown['waiter_count'] == 1, 'show does not see the waiter: %s', shown)
    listed = [row['name'] for row in tool(pair, y, 'ls', '--json', name)]
    check(listed == [name], 'ls says %s', listed)
    begin = time.monotonic()
    tool(pair, y, 'break', name)
    took = granted(answer, begin)
    check(holder.ask('release').status == 'error', 'the old holder gave back a broken lock')
    waiter.release()
    return took * 1000


@prop("pawl show, ls and break on {y}'s locks: {y}'s waiter is woken", both=False)
def command_line(pair, x, y):
    if x.title != 'Pawl':
        return None
    return '%.1f ms' % max(by_hand(pair, y, kind) for kind in ('mutex', 'fair', 'write'))


@prop("pawl ls, top and serve show {y}'s locks, with the waiter of a fair lock", both=False)
def watching(pair, x, y):
    if x.title != 'Pawl':
        return None
    scheme = 'redis+cluster' if y.peer.cluster else 'redis'
    url = '%s://127.0.0.1:%d' % (scheme, pair.server.port)
    for kind in ('mutex', 'fair'):
        name = pair.name()
        holder, waiter = y.handle(name, kind=kind), y.handle(name, kind=kind)
        holder.acquire()
        answer = queued(pair, waiter, 1) if kind == 'fair' else None
        watched(url, ['--layout', 'redisson'], name, 1 if answer else 0, holder.do('owner'))
        begin = time.monotonic()
        holder.release()
        if answer:
            granted(answer, begin)
            waiter.release()
    return 'shown'
