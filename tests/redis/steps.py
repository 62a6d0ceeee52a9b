# SPDX-License-Identifier: Apache-2.0
"""Steps of several tests: with one server; with a server that fails; and with sentinels or a cluster."""
import re
import socket
import threading

from actor import Actor
from wait import until


def kill_connections(s):
    """Cut every connection of Pawl clients; returns when the clients have reconnected."""
    old = {r['id'] for r in s.subscribers()}
    for number in old:
        s.call('CLIENT', 'KILL', 'ID', number)
    until(lambda: len([r for r in s.subscribers() if r['id'] not in old]) >= len(old),
          'for new connections')


def counter(s, name):
    return int(s.call('GET', '{pawl:%s}:fence' % name))


def free_again(s, name):
    """Another client can acquire the lock, without waiting for the end of a lease."""
    b = s.actor()
    b.lock('f', name)
    token = b.ask('take', 'f', 20000).ok().token
    b.ask('drop', 'f').ok()
    b.close()
    return token


def warm_up(s):
    """Load every script, for tests that count commands: NOSCRIPT must not come in between."""
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
    """All MONITOR lines of commands that the server has carried out so far."""
    mark = f'until now {m.now()}'
    s.call('ECHO', mark)
    at, _ = m.wait(lambda e: e.command == 'echo' and e.words[1] == mark, what='the echo')
    return m.all()[:at]


def first_failure(url, wait=500, environ=None):
    """Returns the actor, and the failed answer of opening or of the first acquire."""
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
    """A server of another protocol that greets every connection with this text. Returns its port."""
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


# ---- more than one server: redis_sentinel.Watched, redis_cluster.Cluster -------------------------

def holder(servers, name='n', **params):
    """An actor that holds this lock as 'l', and the token."""
    a = servers.actor(**params)
    a.lock('l', name)
    return a, a.ask('take', 'l', 30000).ok().token


def waiters(servers, name, n, **params):
    """n actors in the queue, one after the other."""
    actors = []
    for i in range(n):
        a = servers.actor(**params)
        a.lock('l', name)
        a.send('acquire', 'l', -1)
        until(lambda: len(servers.queue(name)) == i + 1, 'for a place in the queue')
        actors.append(a)
    return actors


def moved(actors, n=1):
    """Wait until each actor has counted n fail-overs."""
    for a in actors:
        until(lambda: a.ask('stats').failovers >= n, 'for a client to follow')


def turns(a, token, others):
    """Releases pass the lock to each of the others in this order. Returns the last token."""
    a.ask('drop', 'l').ok()
    for b in others:
        got = b.answer('acquire', 'l').ok().token
        assert got > token, f'token {got} after {token}'
        token = got
        b.ask('drop', 'l').ok()
    return token
