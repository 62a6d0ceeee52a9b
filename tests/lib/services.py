# SPDX-License-Identifier: Apache-2.0
"""Every engine that has a server, and every layout, for tests of commands that work on all of them."""
from etcd_server import Etcd
from redis_cluster import Calm
from redis_live import Live
from redis_sentinel import Watched
from sql_server import Mysql, Postgres
from zk_server import Server as Zk


class Three:
    """Three Redis servers, as one service."""

    def __init__(self):
        self.servers = [Live() for _ in range(3)]

    def url(self, **more):
        return 'quorum:settle=1|' + '|'.join(s.url(**more) for s in self.servers)

    def stop(self):
        for server in self.servers:
            server.stop()


def services():
    """The name of a service or layout, a function that starts its server, a function that returns the URL,
    and whether other clients can see the waiters."""
    long = {'timeout': 30000}
    yield 'redis', Live, lambda s: s.url(**long), True
    yield 'redisson', Live, lambda s: s.url(layout='redisson', **long), False
    yield 'sentinel', Watched, lambda s: s.url(**long), True
    yield 'cluster', Calm, lambda s: s.url(**long), True
    yield 'quorum', Three, lambda s: s.url(**long), True
    yield 'etcd', Etcd, lambda s: s.url(**long), True
    yield 'curator', lambda: Zk().start(), lambda s: s.url('/locks'), True
    yield 'kazoo', lambda: Zk().start(), lambda s: s.url('/locks?flavor=kazoo'), True
    yield 'postgres', Postgres, lambda s: s.url(**long), True
    yield 'advisory', Postgres, lambda s: s.url(layout='advisory', **long), True
    yield 'mysql', Mysql, lambda s: s.url(**long), True
    yield 'session', Mysql, lambda s: s.url(layout='session', **long), True
