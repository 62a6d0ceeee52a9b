# SPDX-License-Identifier: Apache-2.0
"""A scenario's clients played by different peers, compared with the recording of the real thing.

Client A of a scenario may be Pawl and client B Redisson, or the other way round, or both Pawl; the
keys, values, times to live and messages must be those that Redisson alone leaves behind. What
Pawl's API has no call for and no owner matters to (adding permits, say) is done by a Redisson
client that stands beside it.
"""
import itertools
import os
import re

from driver import Refused
from peers import INTEROP
from recording import Recorder, essence, load
from redisdb import Server

BESIDE = ('locked', 'add', 'drain', 'available', 'taken', 'capacity', 'reset', 'delete')
SCENARIOS = os.path.join(INTEROP, 'scenarios')

# What is only recorded, because Pawl differs on purpose or by its API: the lease of a hold is that
# of its first acquire; tokens rise at every grant, also where a plain RLock has none; a writer that
# gave up reading goes on being renewed; break takes a lock from whoever holds it, of whatever kind;
# a permit has a lease, and only its owner gives it back.
ONLY_RECORDED = {'mutex-lease', 'fenced-plain', 'renewal-downgrade', 'readwrite-more',
                 'permits-more', 'semaphore-more'}


def compared(scenario, peer):
    """3.52.0 itself does not renew read locks that were entered twice."""
    return scenario not in ONLY_RECORDED and (scenario, peer) != ('renewal', 'redisson3')


# What Pawl writes and sends besides, on purpose (docs/redisson.md): a release or break tells waiters
# of all kinds, each on Redisson's channel of that kind, and Pawl's holders; a fair waiter shows that
# it lives; the lease of a writer that also reads has a key of its own.
ADDED_MESSAGE = re.compile(r'  msg (redisson_(lock__channel|rwlock):\S+ [01]|'
                           r'redisson_pawl:\S+ pid \d+ .*)$')
ADDED_KEY = re.compile(r'  key (redisson_lock_waiting:|\S+:write:rwlock_timeout:)')


class Mixed:
    """Looks like one driver; each client of the scenario is a client of one of several.

    The drivers may serve other scenarios at the same time, so clients get names of their own.
    """
    numbers = itertools.count(1)

    def __init__(self, cast, beside, server, params=''):
        self.cast = cast
        self.params = params
        self.beside = beside
        self.server = server
        self.kinds = {}
        self.tag = '-%d' % next(self.numbers)
        self.opened = []

    def _send(self, driver, words, client):
        name, dot, rest = words[1].partition('.')
        ident = (client or name) + self.tag + dot + (words[1] if client else rest)
        return driver.send(' '.join([words[0], ident] + words[2:]))

    def another(self, ident):
        return self.cast[ident.split('.')[0]].name == 'Pawl'

    def send(self, line):
        words = line.split()
        permits = self.kinds.get(words[1]) in ('permits', 'semaphore')
        beside = words[0] in BESIDE or words[0] == 'set' and permits
        if beside and self.another(words[1]):
            return self._send(self.beside, words, 'beside')
        return self._send(self.cast[words[1].split('.')[0]], words, None)

    def ask(self, line):
        return self.send(line).wait()

    def do(self, line):
        words = line.split()
        driver = self.cast[words[1].split('.')[0]]
        if words[0] == 'lock':
            self.kinds[words[1]] = words[2]
            self._send(self.beside, words, 'beside').wait()
        if words[0] == 'owner' and driver.name == 'Pawl':
            return self._owner(driver, words[1])
        if words[0] == 'open' and driver.name == 'Pawl' and self.params:
            words.append(self.params)
        answer = self._send(driver, words, None).wait()
        if not answer.ok:
            raise Refused('%s: %r' % (driver.name, answer))
        if words[0] == 'open':
            self.opened.append((driver, words[1] + self.tag))
        return answer.words

    def _owner(self, driver, ident):
        """Pawl does not say how its owner is called: look at a lock that it holds."""
        client, owner = ident.split('.')[:2]
        handle = client + self.tag + '.' + owner + '.who'
        driver.do('lock %s mutex who 10000' % handle)
        driver.do('acquire %s 0' % handle)
        owner = self.server.call('HKEYS', 'who')[0].decode()
        driver.do('release ' + handle)
        self.server.call('DEL', 'redisson_lock_token:{who}')
        return owner

    def open_beside(self):
        self.beside.do('open beside%s %d' % (self.tag, self.server.port))
        self.opened.append((self.beside, 'beside' + self.tag))

    def close(self):
        for driver, client in self.opened:
            driver.do('close ' + client)


def steps_of(text):
    """A recording as a list of steps, each a list of its lines."""
    steps = []
    for line in essence(text):
        if line.startswith('>'):
            steps.append([line])
        elif steps and not line.startswith('#'):
            steps[-1].append(line)
    return steps


def comparable(step, scenario):
    """The lines of a step that must agree. Left out: which error it was and what a refused call
    sent, tokens where the peer has none, Pawl's notes of who its clients are, what the look at its
    owners sent, and the word for no keys."""
    refused = any(line.startswith('  = error') for line in step)
    out = []
    for line in step:
        if not (refused and line.startswith('  msg')
                or scenario != 'fenced' and line.startswith('  key redisson_lock_token:')
                or line.startswith('  msg redisson_lock__channel:{who}')
                or ADDED_KEY.match(line)
                or line.startswith('  key {pawl@') or line == '  no keys'):
            out.append('  = error' if line.startswith('  = error') else line)
    return out


def difference(wanted, got, scenario):
    """The first place where two recordings part, in words; None if they don't. A step with ! is
    Redisson's alone; in one with + Pawl may send messages besides, so that nobody waits in vain."""
    for one, two in itertools.zip_longest(steps_of(wanted), steps_of(got), fillvalue=['nothing']):
        if one[0].startswith('> !'):
            continue
        one, two = comparable(one, scenario), comparable(two, scenario)
        two = [line for line in two if line in one or not ADDED_MESSAGE.match(line)]
        if one[0].startswith('> +'):
            two = [line for line in two if line in one or not line.startswith('  msg')]
        for a, b in itertools.zip_longest(one, two, fillvalue='nothing'):
            if a != b:
                return 'at "%s": Redisson has "%s", this has "%s"' % (one[0][2:], a.strip(),
                                                                      b.strip())
    return None


def play(scenario, cast, beside):
    """Run it; the recording as text."""
    server = Server()
    try:
        driver = Mixed(cast, beside, server, 'semaphore=plain' * (scenario == 'semaphore'))
        driver.open_beside()
        recorder = Recorder(server, driver)
        try:
            return recorder.run(load(os.path.join(SCENARIOS, scenario + '.txt')))
        finally:
            recorder.close()
            driver.close()
    finally:
        server.stop()


def arrangements(peer, name, title):
    """Who plays A and B in the scenarios with this peer: words, (A, B)."""
    made = [('%s, then %s' % (title, name), (True, False)),
            ('%s, then %s' % (name, title), (False, True))]
    return made + ([('%s, then %s' % (title, title), (True, True))] if peer == 'redisson4' else [])


def clients(scenario):
    return {step[1] for step in load(os.path.join(SCENARIOS, scenario + '.txt'))
            if step[0] == 'open'}


def recorded(peer, scenario):
    path = os.path.join(INTEROP, 'recorded', peer, scenario + '.txt')
    with open(path, encoding='utf-8') as file:
        return file.read()
