#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A quorum of five Redis servers, of which some are killed, restarted empty, and slow.

A claim is the time from the answer "granted" to the moment the release was sent, or to the message that
the lock was lost. Claims that exclude each other never overlap; an acquire that began after a token had
been granted gets a larger token; and a client that lost its lock was told, by the message or by the result
of its release. All times are of the machine's boot-time clock.

    test_servers.py [FILTER]
"""
import os
import random
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import LONG, Actor, boot_ns, query  # noqa: E402
from cases import case, equal, run  # noqa: E402
from control import Control  # noqa: E402
from proxy import Proxy  # noqa: E402
from redis_live import Live  # noqa: E402
from wait import until  # noqa: E402

TOOL = os.environ['PAWL_TOOL']
SECONDS = int(os.environ.get('QUORUM_SECONDS', 25))
ACTORS = 6
LEASE_MS = 1500
LATE_NS = 200000000  # the message of a loss may be this late on a busy machine
SEED = int(os.environ.get('QUORUM_SEED', random.randrange(10 ** 6)))


class Five:
    """Five servers; the last one can be behind a proxy."""

    def __init__(self, delay=None):
        self.servers = [Live() for _ in range(5)]
        self.proxy = Proxy(self.servers[4].port) if delay is not None else None
        if self.proxy:
            self.proxy.delay = delay

    def ports(self):
        ports = [s.port for s in self.servers]
        if self.proxy:
            ports[4] = self.proxy.port
        return ports

    def url(self, settle=1, **params):
        """settle: short, because the servers are new and no grant can have been lost."""
        return '|'.join([f'quorum:settle={settle}',
                         *(f'redis://127.0.0.1:{p}/{query(params)}' for p in self.ports())])

    def actor(self, settle=1, **params):
        return Actor(self.url(settle, **params))

    def restart(self, *which):
        for i in which:
            self.servers[i].kill()
        for i in which:
            self.servers[i].start()

    def holders(self, name):
        """The number of running servers at which the lock is held."""
        return sum(s.process.poll() is None and s.holder(name) is not None for s in self.servers)

    def stop(self):
        for s in self.servers:
            s.stop()


def on_five(sentence, delay=None, limit=90):
    def add(function):
        @case(sentence, server=False, limit=limit)
        def inside():
            five = Five(delay)
            try:
                function(five)
            finally:
                five.stop()
        return function
    return add


# ---- one at a time -------------------------------------------------------------------------------

@on_five('two of five may be dead, three may not, and the error says what each node said')
def _(five):
    five.servers[1].kill()
    five.servers[3].kill()
    a = five.actor(timeout=1000)
    a.lock('l', 'a')
    first = a.ask('take', 'l', 0).ok().token
    a.ask('drop', 'l').ok()
    five.servers[4].kill()
    told = a.ask('take', 'l', 0).be('PAWL_EQUORUM')
    assert '2 of 5: node 1 ok' in told.words and 'onnection refused' in told.words, told
    began = time.monotonic()
    a.ask('take', 'l', 1500).be('PAWL_EQUORUM')
    assert 1.4 < time.monotonic() - began < 30
    five.servers[4].start()
    assert a.ask('take', 'l', 30000).ok().token > first
    a.close().ok()


@on_five('a majority that is lost while somebody waits is no time-out', limit=120)
def _(five):
    holder = five.actor(watchdog=60000)
    holder.lock('l', 'a')
    holder.ask('take', 'l', 0).ok()
    until(lambda: five.holders('a') == 5, 'for all five')
    for end in ('pause', 'kill'):
        waiter = five.actor(timeout=1600)
        waiter.lock('l', 'a')
        waiter.send('take', 'l', 6000)
        until(lambda: len(five.servers[0].queue('a')) == 1, 'for the waiter')
        for s in five.servers[2:]:
            getattr(s, end)()
        told = waiter.answer('take', 'l').be('PAWL_EQUORUM')
        assert told.words.startswith("'a': 0 of 5: node 1 busy, 2 busy, 3 "), told
        if end == 'pause':
            for s in five.servers[2:]:
                s.resume()
        waiter.send('close')
    for limit in (('-n',), ('-w', '1')):
        told = subprocess.run([TOOL, 'run', *limit, '-u', five.url(), 'a', '--', 'true'],
                              capture_output=True, text=True, timeout=60)
        equal(told.returncode, 69)
        # The wait is asynchronous: the tool has the code, and the text of the library's last warning.
        assert ' of 5: node 1 busy, 2 busy, 3 ' in told.stderr or \
            'Connection refused' in told.stderr, told.stderr


@on_five('a client that closes while one node is late leaves nothing there', delay=0)
def _(five):
    urls = five.url().split('|')
    for order in (urls, urls[:1] + urls[:0:-1]):  # the late node is the last, then the first
        for released in (True, False):
            a = Actor('|'.join(order))
            a.lock('l', 'a')
            a.ask('take', 'l', 0).ok()
            until(lambda: five.holders('a') == 5, 'for all five')
            a.ask('drop', 'l').ok()
            until(lambda: five.holders('a') == 0, 'for the release')
            five.proxy.delay = 0.15
            a.ask('take', 'l', 0).ok()
            if released:
                a.ask('drop', 'l').ok()
            a.close().ok()
            five.proxy.cut()  # messages under way are lost
            time.sleep(0.5)
            equal(five.holders('a'), 0)
            five.proxy.delay = 0


@on_five('a node that restarts empty is healed by renewals')
def _(five):
    a = five.actor(watchdog=5000, timeout=500)
    a.lock('l', 'a')
    a.ask('take', 'l', 0).ok()
    until(lambda: five.holders('a') == 5, 'for all five')
    for pair in ((0, 1), (2, 3)):  # one pair after the other: each time three nodes know the grant
        five.restart(*pair)
        until(lambda: five.holders('a') == 5, 'for the healing')
    equal(a.have('lost', 'l'), None)
    a.ask('drop', 'l').ok()
    until(lambda: five.holders('a') == 0, 'for the release')
    a.close().ok()


@on_five('a majority that restarts empty loses the lock, and the holder is told')
def _(five):
    a = five.actor(watchdog=LEASE_MS)
    a.lock('l', 'a')
    a.ask('take', 'l', 0).ok()
    until(lambda: five.holders('a') == 5, 'for all five')  # else the other nodes are asked after the restart
    five.restart(0, 2, 4)
    a.lost('l')
    a.ask('drop', 'l').be('PAWL_ELOST')
    a.close().ok()


@on_five('who sleeps on a majority that forgot is safe until its lease is over: the young do not vote')
def _(five):
    lease = 6000
    sleeper, next_ = five.actor(), five.actor(settle=lease)
    for a in (sleeper, next_):
        a.lock('l', 'a', lease=lease)
    began = boot_ns()
    first = sleeper.ask('take', 'l', 0).ok()
    until(lambda: five.holders('a') == 5, 'for all five')
    sleeper.stop()
    five.restart(0, 2, 4)
    told = next_.ask('take', 'l', 0).be('PAWL_EQUORUM')
    assert 'too young (' in told.words and ' of 6 s)' in told.words, told
    got = next_.ask('take', 'l', 60000).ok()
    assert got.ns > began + first.valid * 1000000, 'two had it'
    assert got.token > first.token
    sleeper.resume()
    sleeper.lost('l')
    sleeper.ask('drop', 'l').be('PAWL_ELOST')
    sleeper.close().ok()
    next_.close().ok()


@case('a user who may not ask for INFO can use a quorum when it has been connected for a while')
def _(server):
    server.call('ACL', 'SETUSER', 'shop', 'on', '>secret', '~*', '&*', '+@all', '-info')
    url = '|'.join(['quorum:settle=1500',
                    *(f'redis://shop:secret@127.0.0.1:{server.port}/{db}' for db in range(3))])
    a = Actor(url)
    a.lock('l', 'a')
    told = a.ask('take', 'l', 0).be('PAWL_EQUORUM')
    assert 'too young' in told.words, told
    a.ask('take', 'l', 30000).ok()
    a.ask('drop', 'l').ok()
    a.close().ok()


@case('databases of one server are kept apart')
def _(server):
    url = 'quorum:settle=1|' + '|'.join(server.url().rstrip('/') + f'/{db}' for db in (0, 3, 12))
    actors = [Actor(url) for _ in range(4)]
    for a in actors:
        a.lock('l', 'a')
    until(lambda: len(server.call('PUBSUB', 'CHANNELS', '*')) == 12, 'for all connections')
    names = server.call('PUBSUB', 'CHANNELS', '*')
    equal({n.partition('/')[2] for n in names}, {'', '3', '12'})
    last = 0
    for _ in range(10):
        for a in actors:
            a.send('acquire', 'l', 60000)
        waiting = list(actors)
        while waiting:
            a, got = until(lambda: next(((a, m) for a in waiting
                                         for m in [a.have('acquire', 'l')] if m), None), 'for one')
            assert got.ok().token > last
            last = got.token
            waiting.remove(a)
            a.ask('drop', 'l').ok()
    for a in actors:
        a.close().ok()


@on_five('the server where waiters queue is killed: they get the lock all the same, one by one')
def _(five):
    holder, waiters = five.actor(), [five.actor() for _ in range(4)]
    holder.lock('l', 'a')
    last = holder.ask('take', 'l', 0).ok().token
    for w in waiters:
        w.lock('l', 'a')
        w.send('acquire', 'l', 60000)
    until(lambda: len(five.servers[0].queue('a')) == 4, 'for the waiters')
    five.servers[0].kill()
    holder.ask('drop', 'l').ok()
    waiting = list(waiters)
    while waiting:
        got = until(lambda: next(((w, m) for w in waiting for m in [w.have('acquire', 'l')] if m),
                                 None), 'for the next one')
        assert got[1].ok().token > last
        last = got[1].token
        waiting.remove(got[0])
        got[0].ask('drop', 'l').ok()
    for a in waiters + [holder]:
        a.close().ok()


@on_five('one slow node does not slow anybody down', delay=0.3)
def _(five):
    a = five.actor()
    a.lock('l', 'a')
    for _ in range(3):
        a.ask('take', 'l', 0).ok()
        a.ask('drop', 'l').ok()
    began = time.monotonic()
    for _ in range(20):
        a.ask('take', 'l', 0).ok()
        a.ask('drop', 'l').ok()
    spent = time.monotonic() - began
    assert spent < 20 * 0.3, f'20 pairs took {spent:.2f} s'
    a.close().ok()
    until(lambda: five.holders('a') == 0, 'for the slow one')


@on_five('show and ls tell of a lock as one', delay=0)
def _(five):
    a, b = five.actor(), five.actor()
    a.lock('l', 'a')
    b.lock('l', 'a')
    token = a.ask('take', 'l', 0).ok().token
    b.send('acquire', 'l', 60000)
    until(lambda: len(five.servers[0].queue('a')) == 1, 'for the waiter')
    rows = a.rows('show', 'a')
    equal([(r.role, r.holders, r.waiters) for r in rows][0], ('summary', 1, 1))
    equal([r.role for r in rows[1:]], ['holder', 'waiter'])
    equal(rows[1].token, token)
    equal(len(a.rows('ls')), 1)
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()
    b.ask('break', 'l').ok()
    b.lost('l')
    a.close().ok()
    b.close().ok()


# ---- how long a lock may stand free --------------------------------------------------------------

# Which clients die or stop, and the longest time (in addition to LEASE_MS if a lease must end first) after
# which the last of three waiters has the lock: the bounds of one Redis server, in docs/promises.md.
BOUNDS = {
    'the holder is killed': (lambda h, *_: h.kill(), LEASE_MS + 100),
    'the holder is stopped': (lambda h, *_: h.stop(), LEASE_MS + 100),
    'the first waiter is killed': (lambda _, first, *__: first.kill(), 2000),
    'the first waiter is stopped': (lambda _, first, *__: first.stop(), 2000),
    'holder and first waiter are killed': (lambda h, first, *_: (h.kill(), first.kill()),
                                           LEASE_MS + 4500),
}


@on_five('whoever dies or stops, the next waiter has the lock as soon as at one server', limit=240)
def _(five):
    control = Control()
    for number, (what, (end, bound)) in enumerate(BOUNDS.items()):
        name = f'n{number}'
        crew = [five.actor(watchdog=LEASE_MS) for _ in range(3)]
        crew[0].lock('l', name)
        crew[0].ask('take', 'l', 30000).ok()
        five.servers[0].queue_up(name, crew[1:])
        end(*crew)
        began = time.monotonic()
        if 'holder' not in what:
            crew[0].ask('drop', 'l').ok()
        elif 'first' not in what:
            crew[1].answer('acquire', 'l').ok()
            control.prompt((time.monotonic() - began) * 1000, bound, what)
            crew[1].ask('drop', 'l').ok()
        crew[2].answer('acquire', 'l').ok()
        if 'first' in what:
            control.prompt((time.monotonic() - began) * 1000, bound, what)
        for a in crew:
            a.kill()


# A grant that a client which is gone has left at the first server: docs/promises.md, "Faults of the service".
NEW_MS, WAITER_MS = 250, 4500


def stale_value(five):
    """The first server's value of an exclusive lock whose holder was killed."""
    gone = five.servers[0].actor(watchdog=LONG)
    gone.lock('l', 'gone')
    gone.ask('take', 'l', 0).ok()
    gone.kill()
    return five.servers[0].value('gone')


@on_five('a stale grant at the first server costs a new acquire 0.25 s, whatever its kind', limit=120)
def _(five):
    control = Control()
    stale = stale_value(five)
    for number, kinds in enumerate((('mutex',), ('fair',), ('write',), ('read', 'read', 'read'))):
        five.servers[0].call('SET', f'pawl:n{number}', stale, 'PX', LONG)
        for kind in kinds:  # the readers hold together
            a = five.actor()
            a.lock('l', f'n{number}', kind=kind)
            a.lock('other', f'other{number}')
            for _ in range(5):  # the client is connected, and knows how fast the servers are
                a.ask('take', 'other', 30000).ok()
                a.ask('drop', 'other').ok()
            began = time.monotonic()
            a.ask('take', 'l', 30000).ok()
            control.prompt((time.monotonic() - began) * 1000, NEW_MS, f'a new acquire, {kind}')


@on_five('a grant that becomes stale at the first server costs a waiter 4.5 s, whatever its kind',
         limit=180)
def _(five):
    control = Control()
    stale = stale_value(five)
    for number, kind in enumerate(('mutex', 'fair', 'write', 'read')):
        name = f'n{number}'
        h, w = five.actor(watchdog=LONG), five.actor()
        h.lock('l', name)
        h.ask('take', 'l', 30000).ok()
        w.lock('l', name, kind=kind)
        w.send('acquire', 'l', -1)
        until(lambda n=name: five.servers[0].queue(n), 'for the waiter')
        five.servers[0].call('SET', f'pawl:{name}', stale, 'PX', LONG)
        h.ask('drop', 'l').ok()
        began = time.monotonic()
        w.answer('acquire', 'l').ok()
        control.prompt((time.monotonic() - began) * 1000, WAITER_MS, f'a waiter, {kind}')


@on_five('a reader that waits passes a stale grant at the first server while another reader holds',
         limit=120)
def _(five):
    control = Control()
    stale = stale_value(five)
    reader, writer, waiter = five.actor(watchdog=LONG), five.actor(), five.actor()
    for a, kind in ((reader, 'read'), (writer, 'write'), (waiter, 'read')):
        a.lock('l', 'n', kind=kind)
    reader.ask('take', 'l', 30000).ok()
    queue = five.servers[0].queue
    for n, a in enumerate((writer, waiter), 1):
        a.send('acquire', 'l', -1)
        until(lambda: len(queue('n')) == n, 'for the waiters')
    time.sleep(1)  # the second reader has looked at the other servers, and waits for the writer
    five.servers[0].call('SET', 'pawl:n', stale, 'PX', LONG)
    writer.ask('cancel', 'l')
    began = time.monotonic()
    writer.answer('acquire', 'l').be('PAWL_ECANCELED')
    waiter.answer('acquire', 'l').ok()
    control.prompt((time.monotonic() - began) * 1000, WAITER_MS, 'a reader beside a reader')
    writer.ask('try', 'l').be('PAWL_EBUSY')
    reader.ask('drop', 'l').ok()
    writer.ask('try', 'l').be('PAWL_EBUSY')
    waiter.ask('drop', 'l').ok()
    writer.ask('take', 'l', 30000).ok()


# ---- all at once ---------------------------------------------------------------------------------

class Claim:
    def __init__(self, name, shared, asked, start, token):
        self.name, self.shared, self.asked, self.start = name, shared, asked, start
        self.token, self.end = token, None


class Worker(threading.Thread):
    OBJECTS = ('m', 'f', 'r', 'w')

    def __init__(self, number, url, over):
        super().__init__(daemon=True)
        self.random = random.Random(SEED * 100 + number)
        self.over, self.claims, self.failure, self.codes = over, [], None, {}
        self.told = 0
        self.actor = Actor(url)
        self.actor.lock('m', 'm')
        self.actor.lock('f', 'm', kind='fair')
        self.actor.lock('r', 'rw', kind='read')
        self.actor.lock('w', 'rw', kind='write')

    def run(self):
        try:
            while not self.over.is_set():
                self.one_round(self.random.choice(self.OBJECTS))
        except BaseException as e:
            self.failure = e

    def one_round(self, which):
        asked = boot_ns()
        self.actor.send('acquire', which, self.random.choice((0, 50, 400, 3000)))
        got = self.actor.answer('acquire', which)
        self.count(got.code)
        if got.code != 'PAWL_OK':
            got.be('PAWL_EBUSY', 'PAWL_ETIMEDOUT', 'PAWL_EQUORUM')
            return
        claim = Claim('rw' if which in 'rw' else 'm', which == 'r', asked, got.ns, got.token)
        self.claims.append(claim)
        time.sleep(self.random.choice((0, 0, 0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.3, 1.2)))
        claim.end = boot_ns()
        self.actor.send('release', which)
        code = self.actor.answer('release', which).code
        self.count('release ' + code)
        assert code in ('PAWL_OK', 'PAWL_ELOST', 'PAWL_EUNKNOWN'), code
        lost = self.actor.have('lost', which)
        if lost:
            claim.end = min(claim.end, max(lost.ns - LATE_NS, claim.start))
        if lost or code == 'PAWL_ELOST':
            self.told += 1

    def count(self, what):
        self.codes[what] = self.codes.get(what, 0) + 1


class Killer(threading.Thread):
    """Kills two servers and starts them again, empty; then waits until all servers vote again."""

    def __init__(self, five, over):
        super().__init__(daemon=True)
        self.random = random.Random(SEED)
        self.five, self.over, self.kills, self.failure = five, over, [], None

    def run(self):
        try:
            while not self.over.is_set():
                pair = self.random.sample(self.five.servers, 2)
                for s in pair:
                    self.kills.append(boot_ns())
                    s.kill()
                    time.sleep(self.random.random() * 0.2)
                time.sleep(self.random.random())
                for s in pair:
                    s.start()
                time.sleep(LEASE_MS / 1000 + 1.5)
        except BaseException as e:
            self.failure = e


def overlaps(claims):
    """The number of pairs of claims that overlap although they exclude each other."""
    found, ending = 0, []
    for c in sorted(claims, key=lambda c: c.start):
        ending = [e for e in ending if e.end > c.start]
        found += sum(not (e.shared and c.shared) for e in ending)
        ending.append(c)
    return found


def falling(claims):
    """The number of claims whose token is not larger than all tokens granted before the acquire began. (Two
    readers at the same time may have the same token.)"""
    granted = sorted(claims, key=lambda c: c.start)
    largest, i, found = 0, 0, 0
    for c in sorted(claims, key=lambda c: c.asked):
        while i < len(granted) and granted[i].start < c.asked:
            largest = max(largest, granted[i].token)
            i += 1
        found += c.token <= largest
    alone = [c.token for c in claims if not c.shared]
    return found + len(alone) - len(set(alone))


def gap_ms(claims, at):
    """The time from a kill to the next grant."""
    after = [c.start - at for c in claims if c.start > at]
    return min(after) / 1e6 if after else 0.0


@on_five('no double holder, tokens rise, losers are told, while pairs of servers die and forget',
         delay=0.05, limit=240)
def _(five):
    print(f'# QUORUM_SEED={SEED}')
    over = threading.Event()
    url = five.url(settle=LEASE_MS, watchdog=LEASE_MS, timeout=500)
    workers = [Worker(i, url, over) for i in range(ACTORS)]
    killer = Killer(five, over)
    for t in workers + [killer]:
        t.start()
    time.sleep(SECONDS)
    over.set()
    for t in workers + [killer]:
        t.join()
    for t in workers + [killer]:
        if t.failure:
            raise t.failure
    claims = [c for w in workers for c in w.claims]
    codes = {}
    for w in workers:
        for code, n in w.codes.items():
            codes[code] = codes.get(code, 0) + n
    double = falls = 0
    for name in ('m', 'rw'):
        mine = [c for c in claims if c.name == name]
        double += overlaps(mine)
        falls += falling(mine)
        assert len(mine) > 20, f'only {len(mine)} claims of {name}'
    gaps = sorted(gap_ms(claims, at) for at in killer.kills)
    told = sum(w.told for w in workers)
    print(f'# {len(claims)} grants, {double} double holders, {falls} falling tokens; '
          f'{len(killer.kills)} servers killed and restarted empty; {told} lost, all told; {codes}')
    print(f'# from a kill to the next grant: median {gaps[len(gaps) // 2]:.0f} ms, '
          f'longest {gaps[-1]:.0f} ms')
    equal(double, 0)
    equal(falls, 0)
    for w in workers:  # the faults are over: every worker can acquire every object
        for which in Worker.OBJECTS:
            w.actor.ask('take', which, 30000).ok()
            w.actor.ask('drop', which).ok()
    for w in workers:
        w.actor.close().ok()

    def left():
        return [k for s in five.servers for k in s.call('KEYS', '*')
                if not k.endswith((':fence', ':client'))]
    until(lambda: not left(), f'for the last keys: {left()}', 30)


if __name__ == '__main__':
    sys.exit(run(Live))
