# SPDX-License-Identifier: Apache-2.0
"""What several of the tests with actors do."""
import re
import socket
import threading

from live import Actor, until

PROMPT_MS = 100
LONG = 600000  # a lease whose renewal no test sees: who is told, is told by other means


class Control:
    """A process that wakes up every 5 ms and notes how late it was: so late may others be."""

    def __init__(self):
        self.actor = Actor('memory:')
        self.actor.send('ticks', 5)
        self.actor.answer('ticks').ok()

    def late_ms(self):
        return self.actor.ask('late').us / 1e3

    def prompt(self, ms, limit, what):
        """At most so many ms and 100 more, or as late as the control was."""
        late = self.late_ms()
        print(f'# {what}: {ms:.1f} ms; the control was up to {late:.1f} ms late')
        assert ms <= limit + PROMPT_MS + 3 * late, f'{what}: {ms:.1f} ms, the limit is {limit}'

    def before(self, first_ns, second_ns, what):
        """In this order, by the clocks of two processes, each as late as the control."""
        late = self.late_ms()
        ms = (second_ns - first_ns) / 1e6
        print(f'# {what}: {ms:.1f} ms apart; the control was up to {late:.1f} ms late')
        assert ms > (0 if late < 10 else -3 * late), f'{what}: {ms:.1f} ms, the wrong way round'


def kill_connections(s):
    """Every connection of a Pawl client; returns when the new ones are there."""
    old = {r['id'] for r in s.subscribers()}
    for number in old:
        s.call('CLIENT', 'KILL', 'ID', number)
    until(lambda: len([r for r in s.subscribers() if r['id'] not in old]) >= len(old),
          'for new connections')


def queue_up(s, name, actors):
    """Each actor's lock 'l' in the queue, one behind the other."""
    for n, a in enumerate(actors, 1):
        a.lock('l', name)
        a.send('acquire', 'l', -1)
        until(lambda: len(s.queue(name)) == n, 'for a place in the queue')


def counter(s, name):
    return int(s.call('GET', '{pawl:%s}:fence' % name))


def free_again(s, name):
    """It can be had by somebody else, without waiting for a lease."""
    b = s.actor()
    b.lock('f', name)
    token = b.ask('take', 'f', 20000).ok().token
    b.ask('drop', 'f').ok()
    b.close()
    return token


def warm_up(s):
    """Every script is loaded: where they are counted, NOSCRIPT must not come in between."""
    a, b = s.actor(), s.actor()
    a.lock('l', 'warm')
    b.lock('l', 'warm')
    a.ask('take', 'l', 0).ok()
    a.ask('renew', 'l', 0).ok()
    b.send('acquire', 'l', -1)
    until(lambda: s.queue('warm'))
    a.ask('drop', 'l').ok()
    b.answer('acquire', 'l').ok()
    a.rows('show', 'warm')
    a.close()
    b.close()
    until(lambda: not s.subscribers())


def seen_until_now(s, m):
    """What MONITOR shows of all that the server has done."""
    mark = f'until now {m.now()}'
    s.call('ECHO', mark)
    at, _ = m.wait(lambda e: e.command == 'echo' and e.words[1] == mark, what='the echo')
    return m.all()[:at]


def first_failure(url, wait=500, environ=None):
    """The actor, and how opening or the first acquire failed."""
    a = Actor(url, environ=environ, opens=False)
    if a.opened.code != 'PAWL_OK':
        return a, a.opened
    a.lock('l', 'n')
    return a, a.ask('take', 'l', wait)


def fails(url, codes, pattern, wait=500, environ=None):
    a, failure = first_failure(url, wait, environ)
    failure.be(*codes)
    assert re.search(pattern, failure.words, re.I), f'no /{pattern}/ in "{failure.words}"'
    return a, failure


def talker(text, closes=True):
    """A server of something else, that greets everybody with this; its port."""
    listener = socket.socket()
    listener.bind(('127.0.0.1', 0))
    listener.listen(16)

    def serve():
        while True:
            s, _ = listener.accept()
            s.recv(4096)
            s.sendall(text)
            if closes:
                s.close()
    threading.Thread(target=serve, daemon=True).start()
    return listener.getsockname()[1]


# ---- more than one server: sentinel.Watched, cluster.Cluster -------------------------------------

def holder(servers, name='n', **params):
    """An actor that holds this lock as 'l', and its token."""
    a = servers.actor(**params)
    a.lock('l', name)
    return a, a.ask('take', 'l', 30000).ok().token


def waiters(servers, name, n, **params):
    """So many actors in the queue, one behind the other."""
    actors = []
    for i in range(n):
        a = servers.actor(**params)
        a.lock('l', name)
        a.send('acquire', 'l', -1)
        until(lambda: len(servers.queue(name)) == i + 1, 'for a place in the queue')
        actors.append(a)
    return actors


def moved(actors, n=1):
    """Until each has counted so many fail-overs."""
    for a in actors:
        until(lambda: a.ask('stats').failovers >= n, 'for a client to follow')


def turns(a, token, others):
    """The holder's release hands it to each of the others in this order; the last token."""
    a.ask('drop', 'l').ok()
    for b in others:
        got = b.answer('acquire', 'l').ok().token
        assert got > token, f'token {got} after {token}'
        token = got
        b.ask('drop', 'l').ok()
    return token
