# SPDX-License-Identifier: Apache-2.0
"""Cases for the layouts whose lock is a lock of a server's session: layout=advisory of PostgreSQL
(test_advisory.py) and layout=session of MariaDB and MySQL (test_session.py). The statements of a server
are in a SessionLayout; the cases are the same.
"""
import os
import signal
import time

from actor import Actor, boot_ns
from cases import equal
import cases
from proxy import Proxy
from wait import until

# On top of each bound of docs/sql.md, for a busy machine, in seconds.
BUSY = 5


class SessionLayout:
    """name: of the layout in the URL. sessions, waiting: statements that count the sessions of Pawl, and
    the sessions of anybody that wait for such a lock. end(server, which, statement): an administrator
    ends the sessions, or only their statements, of Pawl's sessions that wait ('waits') or don't
    ('others'); returns how many. notices: after how many seconds the server notices that the client of
    a waiting session is dead. late: by how many seconds the server ends a silent session after its
    lease."""

    def __init__(self, name, sessions, waiting, end, notices, late):
        self.name = name
        self.count, self.queue = sessions, waiting
        self.end = end
        self.notices, self.late = notices, late

    @staticmethod
    def within(bound, begun, ended):
        """Two instants of the boot-time clock in ns: the second came in time."""
        took = (ended - begun) / 1e9
        print(f'# after {took:.2f} s, at most {bound} s')
        assert took <= bound + BUSY, f'{took:.2f} s, and the bound is {bound} s'

    def actor(self, s, label='', user=None, timeout=10000, **params):
        return Actor(s.url(user, layout=self.name, timeout=timeout, **params), label)

    @staticmethod
    def number(s, text):
        """On a session that stays, because this is asked often."""
        if not getattr(s, 'monitor', None) or s.monitored != s.process.pid:
            s.monitor, s.monitored = s.transaction('COMMIT'), s.process.pid
        return int(s.monitor.say(text))

    def sessions(self, s):
        return self.number(s, self.count)

    def waiting(self, s):
        return self.number(s, self.queue)

    def waits(self, s, a, lock='l'):
        """Ask, and wait until the statement waits in the server."""
        before = self.waiting(s)
        a.send('acquire', lock, -1)
        until(lambda: self.waiting(s) == before + 1, 'for the server\'s queue')

    def pair(self, s, name, first=None):
        """Two clients with a lock of that name."""
        both = self.actor(s, **(first or {})), self.actor(s)
        for x in both:
            x.lock('l', name)
        return both

    def case(self, sentence, **options):
        """A case that begins without the sessions of the case before."""
        def add(function):
            def alone(s, name):
                until(lambda: not self.sessions(s), 'for the sessions of the case before')
                function(s, name)
            return cases.case(sentence, **options)(alone)
        return add

    def add_cases(self):
        """The cases of this module, in this layout."""
        for sentence, options, function in _shared:
            def of_layout(s, name, function=function):
                function(self, s, name)
            self.case(sentence, **options)(of_layout)


_shared = []


def shared(sentence, **options):
    def add(function):
        _shared.append((sentence, options, function))
        return function
    return add


@shared('waiters of one client get the lock in the order of their calls')
def _(layout, s, name):
    a, b = layout.pair(s, name)
    a.ask('take', 'l', 0).ok()
    for i in range(6):
        b.lock(f'l{i}', name)
        b.send('acquire', f'l{i}', -1)
    until(lambda: layout.waiting(s) == 6, 'for the server\'s queue')
    a.ask('drop', 'l').ok()
    for i in range(6):
        b.answer('acquire', f'l{i}').ok()
        assert not any(b.have('acquire', f'l{j}') for j in range(i + 1, 6))
        b.send('release', f'l{i}')
        b.answer('release', f'l{i}').ok()


@shared('a lock that is broken: its holder is notified at once, the next waiter has a larger token')
def _(layout, s, name):
    a, b = layout.pair(s, name, {'watchdog': 600000})
    token = a.ask('take', 'l', 0).ok().token
    layout.waits(s, b)
    b.lock('m', name)
    b.ask('break', 'm').ok()
    a.lost('l')
    assert b.answer('acquire', 'l').ok().token > token
    a.ask('drop', 'l').be('PAWL_ELOST')


@shared('a holder that is killed frees the lock at once, long before its lease ends')
def _(layout, s, name):
    a, b = layout.pair(s, name, {'watchdog': 600000})
    token = a.ask('take', 'l', 0).ok().token
    layout.waits(s, b)
    begun = boot_ns()
    a.kill()
    got = b.answer('acquire', 'l').ok()
    assert got.token > token
    layout.within(0, begun, got.ns)


@shared('a holder and the waiter at the front are killed together: the next one has the lock at once')
def _(layout, s, name):
    a, b = layout.pair(s, name, {'watchdog': 600000})
    c = layout.actor(s)
    c.lock('l', name)
    a.ask('take', 'l', 0).ok()
    layout.waits(s, b)
    layout.waits(s, c)
    begun = boot_ns()
    a.kill()
    b.kill()
    layout.within(0, begun, c.answer('acquire', 'l').ok().ns)


@shared('a client that closes frees all its locks')
def _(layout, s, name):
    a, b = layout.actor(s, watchdog=600000), layout.actor(s)
    for i in range(4):
        for x in (a, b):
            x.lock(f'l{i}', f'{name}/{i}')
        a.ask('take', f'l{i}', 0).ok()
    a.close()
    for i in range(4):
        b.ask('take', f'l{i}', 20000).ok()


@shared('a holder that is stopped past its lease loses it by the server\'s clock, and knows it then')
def _(layout, s, name):
    a, b = layout.pair(s, name, {'watchdog': 1500})
    token = a.ask('take', 'l', 0).ok().token
    time.sleep(1)  # the lease was renewed since
    begun = boot_ns()
    a.send('stopself', 'l')
    os.waitid(os.P_PID, a.pid, os.WSTOPPED | os.WNOWAIT)
    got = b.ask('take', 'l', 20000).ok()
    assert got.token > token
    layout.within(1.5 + layout.late, begun, got.ns)
    a.signal(signal.SIGCONT)
    told = a.answer('stopself', 'l')
    equal((told.valid, told.held), (0, 0))
    a.lost('l')
    a.ask('drop', 'l').be('PAWL_ELOST')


@shared('a network that is cut: a reset is noticed at once, silence when the lease ends; the lock is '
      'free then, and not before')
def _(layout, s, name):
    p = Proxy(s.port)
    try:
        a = Actor(s.url(port=p.port, layout=layout.name, timeout=1000, watchdog=2000))
        b = layout.actor(s)
        for x in (a, b):
            x.lock('l', name)
        a.ask('take', 'l', 0).ok()
        p.cut()
        a.lost('l')
        a.ask('drop', 'l').be('PAWL_ELOST')
        a.ask('take', 'l', 20000).ok()
        begun = boot_ns()
        p.freeze()
        b.send('acquire', 'l', 20000)
        layout.within(2 + layout.late, begun, b.answer('acquire', 'l').ok().ns)
        equal(a.ask('valid', 'l').valid, 0)
        a.lost('l')
        a.ask('drop', 'l').be('PAWL_ELOST')
        a.ask('take', 'l', 0).be('PAWL_EBUSY')
    finally:
        p.close()


@shared('a waiter whose connection dies silently asks again over a new connection')
def _(layout, s, name):
    p = Proxy(s.port)
    try:
        a = layout.actor(s)
        b = Actor(s.url(port=p.port, layout=layout.name, timeout=1000, watchdog=2000))
        for x in (a, b):
            x.lock('l', name)
        a.ask('take', 'l', 0).ok()
        layout.waits(s, b)
        begun = boot_ns()
        p.freeze()
        a.ask('drop', 'l').ok()
        layout.within(15 + 2 * 1, begun, b.answer('acquire', 'l').ok().ns)
        equal(b.ask('held', 'l').held, 1)
        a.ask('take', 'l', 0).be('PAWL_EBUSY')
    finally:
        p.close()


@shared('a lock that is granted over a connection that died silently is free when that lease ends')
def _(layout, s, name):
    p = Proxy(s.port)
    try:
        a, c = layout.pair(s, name)
        b = Actor(s.url(port=p.port, layout=layout.name, timeout=1000, watchdog=3000))
        b.lock('l', name)
        a.ask('take', 'l', 0).ok()
        layout.waits(s, b)
        layout.waits(s, c)
        p.freeze()
        begun = boot_ns()
        a.ask('drop', 'l').ok()
        got = c.answer('acquire', 'l').ok()
        assert got.ns - begun > 2.9e9, 'the waiter in front was passed'
        layout.within(3 + layout.late, begun, got.ns)
    finally:
        p.close()


@shared('a waiter that is stopped gets the lock, and loses it when its lease ends')
def _(layout, s, name):
    a, b, c = layout.actor(s), layout.actor(s, watchdog=1500), layout.actor(s)
    for x in (a, b, c):
        x.lock('l', name)
    a.ask('take', 'l', 0).ok()
    layout.waits(s, b)
    layout.waits(s, c)
    b.stop()
    begun = boot_ns()
    a.ask('drop', 'l').ok()
    got = c.answer('acquire', 'l').ok()
    assert got.ns - begun > 1.4e9
    layout.within(1.5 + layout.late, begun, got.ns)
    c.ask('drop', 'l').ok()
    b.resume()
    got = b.answer('acquire', 'l').ok()  # the old grant, which is over, or a new one
    if got.valid:
        b.send('release', 'l')
        b.answer('release', 'l').be('PAWL_OK', 'PAWL_ELOST')
    a.ask('take', 'l', 20000).ok()


@shared('cancels at the moment of the grant: nobody holds what nobody has')
def _(layout, s, name):
    a, b = layout.pair(s, name)
    outcomes = {}
    for n in range(30):
        a.ask('take', 'l', 20000).ok()
        layout.waits(s, b)
        a.send('drop', 'l')
        time.sleep(n * 5e-5)
        b.send('cancel', 'l')
        a.answer('drop', 'l').ok()
        got = b.answer('acquire', 'l').be('PAWL_OK', 'PAWL_ECANCELED').code
        outcomes[got] = outcomes.get(got, 0) + 1
        if got == 'PAWL_OK':
            b.ask('drop', 'l').ok()
    print(f'# {outcomes}')
    a.ask('take', 'l', 20000).ok()


@shared('connections that an administrator ends: holders are notified at once, waiters wait on')
def _(layout, s, name):
    a, b = layout.pair(s, name, {'watchdog': 600000})
    token = a.ask('take', 'l', 0).ok().token
    layout.waits(s, b)
    equal(layout.end(s, 'waits'), 1)
    until(lambda: layout.waiting(s) == 1, 'for the waiter to come back')
    layout.end(s, 'others')
    a.lost('l')
    assert b.answer('acquire', 'l').ok().token > token
    a.ask('drop', 'l').be('PAWL_ELOST')
    a.ask('take', 'l', 0).be('PAWL_EBUSY')


@shared('an administrator ends the statement that waits: the waiter asks again')
def _(layout, s, name):
    a, b = layout.pair(s, name)
    a.ask('take', 'l', 0).ok()
    layout.waits(s, b)
    for _ in range(3):
        equal(layout.end(s, 'waits', statement=True), 1)
        until(lambda: layout.waiting(s) == 1, 'for the waiter to come back')
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()
    b.ask('drop', 'l').ok()
    a.ask('take', 'l', 0).ok()


@shared('a waiter whose statement is cancelled does not take the lock from the next in line')
def _(layout, s, name):
    b, a = layout.actor(s), layout.actor(s, connections=1)
    for x in (a, b):
        x.lock('l', name)
        x.lock('k', name + '/free')
    b.ask('take', 'l', 0).ok()
    layout.waits(s, a)
    a.send('acquire', 'k', 20000)  # waits for the only connection
    equal(layout.end(s, 'waits', statement=True), 1)
    a.answer('acquire', 'k').ok()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        b.ask('take', 'k', 0).be('PAWL_EBUSY')
    a.ask('drop', 'k').ok()
    b.ask('drop', 'l').ok()
    a.answer('acquire', 'l').ok()


@shared('a server that crashes: holders are notified at once, the next one has a larger token, each '
      'time', own={})
def _(layout, s, name):
    a, b = layout.pair(s, name, {'watchdog': 600000})
    tokens = []
    for _ in range(2):
        tokens.append(a.ask('take', 'l', 60000).ok().token)
        layout.waits(s, b)
        s.kill()
        a.lost('l')
        s.start()
        tokens.append(b.answer('acquire', 'l').ok().token)
        a.ask('drop', 'l').be('PAWL_ELOST')
        b.ask('drop', 'l').ok()
    equal(tokens, sorted(set(tokens)), 'tokens:')


@shared('a frozen server: what is held stays held for its lease; a release without an answer is '
      'unknown, and nothing is left of it')
def _(layout, s, name):
    a, b = layout.pair(s, name, {'watchdog': 5000, 'timeout': 700})
    a.ask('take', 'l', 0).ok()
    s.pause()
    try:
        time.sleep(2.5)  # a renewal was sent, and is late
        equal(a.ask('held', 'l').held, 1)
    finally:
        s.resume()
    until(lambda: a.ask('valid', 'l').valid > 4000, 'for a renewal')
    s.pause()
    try:
        a.ask('drop', 'l', patience=20).be('PAWL_EUNKNOWN')
    finally:
        s.resume()
    equal(a.ask('stats').lost, 0)
    b.ask('take', 'l', 20000).ok()


@shared('no more connections than allowed: who finds none waits in the client, who may not is told')
def _(layout, s, name):
    a = layout.actor(s, connections=2)
    for i in range(8):
        a.lock(f'l{i}', f'{name}/{i}')
    for i in range(2):
        a.ask('take', f'l{i}', 0).ok()
    for i in range(2, 7):
        a.send('acquire', f'l{i}', -1)
    b = layout.actor(s, connections=2, timeout=500)
    for i in range(3):
        b.lock(f'l{i}', f'{name}/b{i}')
    for i in range(2):
        b.ask('take', f'l{i}', 0).ok()
    failure = b.ask('take', 'l2', 0)
    failure.be('PAWL_ECONN')
    assert 'connections' in failure.words, failure.words
    assert not any(a.have('acquire', f'l{i}') for i in range(2, 7))
    equal(layout.sessions(s), 4)
    a.send('cancel', 'l3')
    a.answer('acquire', 'l3').be('PAWL_ECANCELED')
    for i, following in ((0, 2), (1, 4), (2, 5), (4, 6)):
        a.send('release', f'l{i}') if i > 1 else a.send('drop', f'l{i}')
        a.answer('release' if i > 1 else 'drop', f'l{i}').ok()
        a.answer('acquire', f'l{following}').ok()
