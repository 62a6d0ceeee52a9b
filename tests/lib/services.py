# SPDX-License-Identifier: Apache-2.0
"""Every engine that has a server, and every layout, for tests of commands that work on all of them."""
from helpers import module


class Three:
    """Three Redis servers, as one service."""

    def __init__(self):
        self.servers = [module('redis', 'live').Live() for _ in range(3)]

    def url(self, **more):
        return 'quorum:settle=1|' + '|'.join(s.url(**more) for s in self.servers)

    def stop(self):
        for server in self.servers:
            server.stop()


def services():
    """The name of a service or layout, a function that starts its server, a function that returns the URL,
    and whether other clients can see the waiters."""
    sql, zk, long = module('sql', 'server'), module('zk', 'server'), {'timeout': 30000}
    live, etcd = module('redis', 'live').Live, module('etcd', 'etcds').Etcd
    yield 'redis', live, lambda s: s.url(**long), True
    yield 'redisson', live, lambda s: s.url(layout='redisson', **long), False
    yield 'sentinel', module('redis', 'sentinel').Watched, lambda s: s.url(**long), True
    yield 'cluster', module('redis', 'cluster').Calm, lambda s: s.url(**long), True
    yield 'quorum', Three, lambda s: s.url(**long), True
    yield 'etcd', etcd, lambda s: s.url(**long), True
    yield 'curator', lambda: zk.Server().start(), lambda s: s.url('/locks'), True
    yield 'kazoo', lambda: zk.Server().start(), lambda s: s.url('/locks?flavor=kazoo'), True
    yield 'postgres', sql.Postgres, lambda s: s.url(**long), True
    yield 'advisory', sql.Postgres, lambda s: s.url(layout='advisory', **long), True
    yield 'mysql', sql.Mysql, lambda s: s.url(**long), True
    yield 'session', sql.Mysql, lambda s: s.url(layout='session', **long), True
