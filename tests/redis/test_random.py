#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random requests to the scripts, each answer and each message compared with model.py.

Several clients send requests, some of them twice, late, or for owners that are long gone; clients are
killed and come back; leases end. The test ends leases by changing the keys, and makes claims long, so that
a run with the same seed is the same however slow the machine is.
Arguments: the first seed, and the number of seeds.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from redis_server import Server, keys  # noqa: E402
from model import Name  # noqa: E402

STEPS = 150
FAR = 10 ** 9


class World:
    def __init__(self, server, seed):
        self.random = random.Random(seed)
        self.server, self.admin = server, server.admin
        self.admin.call('FLUSHALL')
        self.name = self.random.choice(['n', 'a b', 'br{ace', 'close}r', '{tag}n', 'x{}y'])
        self.keys = keys(self.name)
        self.semaphore = self.random.random() < 0.35
        self.capacity = self.random.randint(1, 4)
        self.clients = {c.id: c for c in (server.client() for _ in range(4))}
        self.up = {c: True for c in self.clients}
        self.model = Name(lambda owner: self.up[owner.split(':')[0]])
        self.owners, self.grants, self.seq, self.last = {}, [], 0, 0
        self.log = []

    def close(self):
        for c in self.clients.values():
            if self.up[c.id]:
                c.close()

    # -- random actions

    def someone(self):
        """An owner of an earlier request, and its client if the client is running."""
        if not self.owners:
            return None, None, 0
        owner = self.random.choice(list(self.owners)[-12:])
        if self.model.holders and self.random.random() < 0.5:
            owner = self.random.choice(self.model.holders).owner
        client, seq = owner.split(':')
        return owner, self.clients[client] if self.up[client] else None, int(seq, 16)

    def ask(self, client, seq, options):
        owner = client.owner(seq)
        args = dict(mode=options['mode'], wait=FAR if options['queue'] else 0,
                    tokens=options['tokens'], permits=options['permits'],
                    capacity=options['capacity'], with_owner=options['with_owner'], lease=FAR)
        reply = client.acquire(self.name, seq, **args)
        status = self.model.acquire(owner, **options)
        self.same('acquire ' + owner, reply[:2], [status, owner])
        if status == 'GRANTED':
            self.grants.append((reply[2], reply[3], owner))
        elif status == 'QUEUED':
            self.same('watches', reply[2] == 0, owner == self.model.watch)
            self.same('foreign', reply[4], int(self.model.foreign))

    def acquire(self):
        client = self.random.choice([c for c in self.clients.values() if self.up[c.id]])
        self.seq += 1
        mode = 'p' if self.semaphore else self.random.choice('xxs')
        if self.random.random() < 0.04:
            mode = 'xsp'[self.random.randrange(3)]
        with_owner = ''
        held = [h.owner for h in self.model.holders
                if h.owner.startswith(client.id) and not h.lingers]
        if mode == 's' and held and self.random.random() < 0.5:
            with_owner = self.random.choice(held)
        options = dict(mode=mode, queue=self.random.random() < 0.8,
                       tokens=self.random.choice([1, 1, 8]),
                       permits=self.random.randint(0, 5) if mode == 'p' else 0,
                       capacity=self.random.choice([self.capacity, self.capacity, 0, 2])
                       if mode == 'p' else 0, with_owner=with_owner)
        self.owners[client.owner(self.seq)] = options
        self.ask(client, self.seq, options)

    def again(self):
        owner, client, seq = self.someone()
        if client:
            self.ask(client, seq, self.owners[owner])

    def release(self):
        owner, client, seq = self.someone()
        if client:
            keep = self.random.choice([0, 0, 1, 2]) if self.semaphore else 0
            linger = FAR if not keep and self.random.random() < 0.1 else 0
            self.same('release ' + owner, client.release(self.name, seq, keep, linger)[:2],
                      [self.model.release(owner, keep, linger), owner])

    def cancel(self):
        owner, client, seq = self.someone()
        if client:
            self.same('cancel ' + owner, client.cancel(self.name, seq)[:2],
                      [self.model.cancel(owner), owner])

    def renew(self):
        owner, client, seq = self.someone()
        if client:
            self.same('renew ' + owner, client.renew([(self.name, seq, FAR)]),
                      [owner if self.model.holder(owner) else ''])

    def break_(self):
        if self.random.random() < 0.3:
            client = self.random.choice([c for c in self.clients.values() if self.up[c.id]])
            self.same('break', client.break_(self.name), self.model.break_())

    def stranger(self):
        if self.random.random() < 0.3 and not self.semaphore:
            took = self.admin.call('SET', self.keys[0], 'theirs', 'NX', 'PX', FAR) == 'OK'
            free = not self.model.holders and not self.model.foreign
            self.same('a stranger takes it', took, free)
            self.model.foreign = self.model.foreign or took
        elif self.model.foreign and self.random.random() < 0.7:
            self.admin.call('DEL', self.keys[0])
            self.model.foreign = False

    def expire(self):
        if not self.model.holders:
            return
        gone = self.random.choice(self.model.holders)
        self.model.expire(gone)
        member = ('z:' if gone.lingers else '') + gone.owner
        if self.admin.call('ZSCORE', self.keys[4], member) is not None:
            self.admin.call('ZADD', self.keys[4], 'XX', 1, member)
        if not self.model.holders:
            self.admin.call('DEL', self.keys[0])

    def kill(self):
        client = self.random.choice(list(self.clients.values()))
        if not self.up[client.id]:
            client.connect()
            self.up[client.id] = True
        elif sum(self.up.values()) > 1 and self.random.random() < 0.5:
            client.close()
            self.up[client.id] = False

    # -- checks

    def same(self, what, got, wanted):
        self.log.append(what)
        assert got == wanted, f'{what}: got {got}, wanted {wanted}'

    def token(self, owner, token, n):
        holder = self.model.holder(owner)
        if holder.token != token:
            assert not holder.token and n == holder.tokens, f'{owner} has two tokens'
            assert token > self.last, f'{owner}: token {token} after {self.last}'
            holder.token = token
            self.last = token + n - 1
        assert self.last < 2 ** 53

    def check(self):
        wanted = {c: [] for c in self.clients}
        for letter, owner in self.model.told:
            wanted[owner.split(':')[0]].append((letter, owner))
        for c in self.clients.values():
            got = c.messages() if self.up[c.id] else []
            self.same(f'messages to {c.id}', sorted((m[0], m[1]) for m in got),
                      sorted(wanted[c.id]))
            self.grants += [(int(m[2]), int(m[3]), m[1]) for m in got if m[0] == 'g']
        for token, n, owner in sorted(self.grants):
            self.token(owner, token, n)
        self.grants.clear()
        self.model.told.clear()
        up = next(c for c in self.clients.values() if self.up[c.id])
        _, kind, count, used, nholders, nwaiters, rows = up.inspect(self.name)
        m = self.model
        if not m.foreign:
            self.same('holders', sorted((r[1], r[2], r[3], r[4]) for r in rows if r[0] == 'h'),
                      sorted((('z:' if h.lingers else '') + h.owner, h.mode, h.permits,
                              h.token) for h in m.holders))
            self.same('kind', kind, m.kind() or 'free')
            self.same('used', used, m.used())
        self.same('waiters', [(r[1], r[2], r[3]) for r in rows if r[0] == 'w'],
                  [(w.owner, w.mode, w.permits) for w in m.waiters])
        self.same('counts', (nholders, nwaiters),
                  (1 if m.foreign else len(m.holders), len(m.waiters)))
        watch = (self.admin.call('HGET', self.keys[3], 'watch') or ' ').split(' ')[1]
        if m.waiters:
            self.same('who watches', watch, m.watch)
            assert m.waiter(watch), f'{watch} watches, and does not wait'
        known = {w.owner for w in m.waiters} | {'used', 'x', 'watch', 'line'}
        known |= set(self.admin.call('ZRANGE', self.keys[4], 0, -1))
        assert set(self.admin.call('HKEYS', self.keys[3])) <= known, 'a record without an owner'
        if kind == 'semaphore':
            self.same('capacity', count, m.capacity)

    def leftovers(self):
        """When all owners are gone, only the counter is left."""
        for owner in list(self.owners):
            client = self.clients[owner.split(':')[0]]
            if not self.up[client.id]:
                client.connect()
                self.up[client.id] = True
            client.cancel(self.name, int(owner.split(':')[1], 16))
        if self.admin.call('GET', self.keys[0]):
            next(iter(self.clients.values())).break_(self.name)
        left = set(self.admin.call('KEYS', '*')) - {self.keys[1]}
        stale = {self.keys[3], self.keys[4]} # of leases that ended: with a time to live
        assert left <= stale, f'left behind: {left}'
        assert all(self.admin.call('PTTL', k) > 0 for k in left), left

    def run(self):
        actions = [self.acquire] * 8 + [self.again] * 3 + [self.release] * 7 + [
            self.cancel, self.renew, self.break_, self.stranger, self.expire, self.expire,
            self.kill, self.kill]
        for _ in range(STEPS):
            action = self.random.choice(actions)
            self.log.append('-- ' + action.__name__)
            action()
            self.check()
            self.log.append('   holders %s, waiters %s' % (
                [(h.owner, h.mode, h.permits, h.lingers) for h in self.model.holders],
                [(w.owner, w.mode, w.permits) for w in self.model.waiters]))
        self.leftovers()


def main():
    first, many = (int(a) for a in (sys.argv[1:] + ['1', '60'][len(sys.argv) - 1:])[:2])
    server = Server(claim_ms=FAR)
    failed = 0
    try:
        for seed in range(first, first + many):
            world = World(server, seed)
            try:
                world.run()
            except AssertionError as e:
                failed += 1
                print(f'# seed {seed}: {e}')
                for line in world.log[-int(os.environ.get('LINES', 8)):]:
                    print('#   ' + line)
                if failed == 3:
                    break
            finally:
                world.close()
    finally:
        server.stop()
    print('1..1')
    print(f'{"not ok" if failed else "ok"} 1 - random requests are answered as the rules say '
          f'(seeds {first} to {first + many - 1}, {STEPS} steps each)')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
