# SPDX-License-Identifier: Apache-2.0
"""What a case on ZooKeeper gets. All cases of a program share its servers, because a Java process takes long
to start; each case has a chroot of its own. After a case no ephemeral node may be left below its chroot.
"""
import contextlib
import re

from actor import Actor
from cases import equal, run_in_turn
from wait import until
from zk_client import Client, Error

class World:
    """The argument of a case: the servers, a chroot, and processes that end with the case."""

    def __init__(self, servers, number):
        self.servers = servers
        self.chroot = f'/case{number}'
        self.ends = []
        self.admin = Client(servers.port, session_ms=600000)

    def url(self, port=None, **params):
        words = '&'.join(f'{k}={v}' for k, v in params.items())
        base = f'zk://127.0.0.1:{port}' if port else self.servers.url()
        return base + self.chroot + ('?' + words if words else '')

    def actor(self, label='', port=None, environ=None, **params):
        return Actor(self.url(port, **params), label, environ=environ)

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
        Actor.kill_all()
        self.admin.close()


class Shared:
    """What the cases share: servers. fresh: the case runs on servers that no other case has disturbed."""

    def __init__(self, start):
        self.start, self.servers = start, None

    @contextlib.contextmanager
    def case(self, number, fresh=False):
        if fresh:
            self.stop()
        self.servers = self.servers or self.start()
        world = World(self.servers, number)
        try:
            yield [world]
        finally:
            world.end()

    def stop(self):
        if self.servers:
            self.servers.stop()
            self.servers = None


def run(start):
    """start() starts the servers."""
    shared = Shared(start)
    return run_in_turn(shared.case, shared.stop)


def refused(function, code):
    try:
        function()
    except Error as error:
        equal(error.code, code)
        return
    raise AssertionError(f'not refused with {code}')
