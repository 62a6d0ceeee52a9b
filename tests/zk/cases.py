# SPDX-License-Identifier: Apache-2.0
"""Runs test cases on ZooKeeper and prints TAP. A case is a sentence and a function.

All cases of a program share its servers, because a Java process takes long to start; each case has a
chroot of its own. After a case no ephemeral node may be left below its chroot.

    program [FILTER]     FILTER: a part of the sentence
"""
import re
import signal
import sys
import traceback

from actor import Actor
from wait import until
from zk_client import Client, Error

_cases = []
_chroots = iter(range(1, 10 ** 6))


def case(sentence, fresh=False):
    """`fresh`: the case runs on servers that no other case has disturbed."""
    def add(function):
        _cases.append((sentence, fresh, function))
        return function
    return add


def equal(got, wanted, what=''):
    assert got == wanted, f'{what} got {got!r}, wanted {wanted!r}'


class World:
    """The argument of a case: the servers, a chroot, and processes that end with the case."""

    def __init__(self, servers):
        self.servers = servers
        self.chroot = f'/case{next(_chroots)}'
        self.actors, self.ends = [], []
        self.admin = Client(servers.port, session_ms=600000)

    def url(self, port=None, **params):
        words = '&'.join(f'{k}={v}' for k, v in params.items())
        base = f'zk://127.0.0.1:{port}' if port else self.servers.url()
        return base + self.chroot + ('?' + words if words else '')

    def actor(self, label='', port=None, environ=None, **params):
        made = Actor(self.url(port, **params), label, environ=environ)
        self.actors.append(made)
        return made

    def admin_of(self, auth):
        """A client with the rights of a user, to change nodes by hand."""
        made = Client(self.servers.port, auth=auth)
        self.at_end(made.close)
        return made

    def at_end(self, function):
        self.ends.append(function)

    def path(self, name):
        return f'{self.chroot}/{name}'

    def children(self, name):
        """The children of a node, as the leader has them."""
        self.admin.sync()
        return self.admin.children(self.path(name))

    def queue(self, name):
        """The contenders for a name, in order."""
        found = [re.search(r'.*(?:lock-|__)(-?\d{10})$', c) for c in self.children(name)]
        return [m[0] for m in sorted(filter(None, found), key=lambda m: int(m[1]))]

    def queue_up(self, name, actors, **options):
        """Put each actor's lock 'l' into the queue, one after the other."""
        for a in actors:
            n = len(self.queue(name))
            a.lock('l', name, **options)
            a.send('acquire', 'l', -1)
            until(lambda: len(self.queue(name)) == n + 1, 'for a place in the queue')

    def nothing_left(self, patience=30):
        """Check that no node of any session is left below the chroot."""
        until(lambda: not self.admin.ephemerals(self.chroot), 'until nothing is left', patience)

    def end(self):
        for function in self.ends:
            function()
        for a in self.actors:
            if a.process.poll() is None:
                a.kill()
        self.admin.close()


def run(make):
    """make() starts the servers."""
    entries = [c for c in _cases if len(sys.argv) < 2 or sys.argv[1] in c[0]]
    failed, servers = 0, None

    def stop(number, frame):
        sys.exit(128 + number)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    print(f'1..{len(entries)}', flush=True)
    try:
        for number, (sentence, fresh, function) in enumerate(entries, 1):
            world = None
            try:
                if servers and fresh:
                    servers.stop()
                    servers = None
                servers = servers or make()
                world = World(servers)
                function(world)
                word = 'ok'
            except Exception:
                word, failed = 'not ok', failed + 1
                print('\n'.join('# ' + line for line in traceback.format_exc().splitlines()))
            finally:
                if world:
                    world.end()
            print(f'{word} {number} - {sentence}', flush=True)
    finally:
        if servers:
            servers.stop()
    return 1 if failed or not entries else 0


def refused(function, code):
    try:
        function()
    except Error as error:
        equal(error.code, code)
        return
    raise AssertionError(f'not refused with {code}')
