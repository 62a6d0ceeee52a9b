#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts on a real server: hand-over, tokens, dead clients, repeated requests.

Each case here tests one promise. test_random.py compares whole random runs with the rules.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal, run  # noqa: E402
from redis_server import Error, Server, keys  # noqa: E402
from wait import until  # noqa: E402

# ---- hand-over -----------------------------------------------------------------------------------

@case('a thousand waiters are served in order, with two scripts for each')
def _(s):
    n = 1000
    clients = [s.client() for _ in range(10)]
    equal(clients[0].acquire('n', 0)[0], 'GRANTED')
    owners = [clients[0].owner(0)]
    for i in range(1, n + 1):
        c = clients[i % 10]
        reply = c.acquire('n', i, wait=600000)
        equal(reply[:3], ['QUEUED', c.owner(i), min(i - 1, 1)])
        owners.append(c.owner(i))
    asked = s.scripts_run()
    token = 0
    for i in range(n):
        equal(clients[i % 10].release('n', i)[0], 'OK')
        next_one = clients[(i + 1) % 10]
        message = next_one.message()
        while message[0] != 'g':
            equal(message[:2], ['f', owners[n]], 'who came last watches:')
            message = next_one.message()
        equal(message[1], owners[i + 1])
        assert int(message[2]) > token
        token = int(message[2])
    equal(clients[n % 10].release('n', n)[0], 'OK')
    equal(s.scripts_run() - asked, n + 1, 'scripts for the releases:')
    equal(asked, n + 1, 'scripts for the acquires:')
    equal(s.admin.call('KEYS', '*'), [keys('n')[1]])


@case('a hand-over runs as many commands with 1000 waiters as with 2')
def _(s):
    def commands():
        info = s.admin.call('INFO', 'commandstats')
        return {line.split(':')[0]: int(line.split('calls=')[1].split(',')[0])
                for line in info.splitlines() if line.startswith('cmdstat_')}

    def cost(n):
        a = s.client()
        for i in range(n + 1):
            a.acquire('n%d' % n, i, wait=600000)
        a.release('n%d' % n, 0)  # and a waiter is told to watch
        before = commands()
        a.release('n%d' % n, 1)
        after = commands()
        return {k: v - before.get(k, 0) for k, v in after.items()
                if v != before.get(k, 0) and 'info' not in k}

    few, many = cost(3), cost(1000)
    equal(many, few)
    assert sum(few.values()) <= 12, few


@case('who is to watch is told how long the holder may take')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 1, lease=500, wait=60000)
    c.acquire('n', 1, wait=60000)
    a.release('n', 1)
    equal(b.messages()[0][3:5], ['1', '500'])
    equal(c.messages()[0][:4], ['f', c.owner(1), '500', '0'])


@case('one watches for all, until its turn comes, it leaves, or it would look too late')
def _(s):
    a, others = s.client(), [s.client() for _ in range(6)]
    watch = keys('n')[3]
    a.acquire('n', 1)
    for c in others:
        c.acquire('n', 1, wait=60000)

    def passed(holder, to, told=None):
        """Check which waiter is told to watch when the lock passes from `holder` to `to`."""
        holder.release('n', 1)
        equal(to.messages()[0][0], 'g')
        for c in others:
            equal([m[0] for m in c.messages()], ['f'] if c is told else [], 'told:')
        return int(s.admin.call('HGET', watch, 'watch').split(' ')[0])

    passed(a, others[0], others[5])  # the first waiter was the watcher, and has the lock now
    at = passed(others[0], others[1])
    others[5].cancel('n', 1)
    equal([m[0] for m in others[2].messages()], ['f'], 'the front is told:')
    others[1].release('n', 1)
    equal(others[2].messages()[0][0], 'g')
    equal(others[4].messages()[0][0], 'f', 'the last one watches:')
    others[2].renew([('n', 1, 60000)])
    equal(others[4].acquire('n', 1, wait=60000)[2], 0, 'who watches looks again:')
    equal(others[3].messages(), [])
    assert int(s.admin.call('HGET', watch, 'watch').split(' ')[0]) > at + 30000
    passed(others[2], others[3], others[4])  # a claim ends much sooner than that
    others[3].release('n', 1)
    equal(others[4].messages()[0][0], 'g')
    others[4].release('n', 1)
    equal(s.admin.call('KEYS', '*'), [keys('n')[1]])


@case('tokens come in ranges, and each grant has its own')
def _(s):
    a, b = s.client(), s.client()
    first = a.acquire('n', 1, tokens=32)
    b.acquire('n', 1, tokens=5, wait=60000)
    a.release('n', 1)
    granted = b.message()
    second = int(granted[2])
    assert second >= first[2] + 32, (first, second)
    equal(granted[3], '5')
    equal(b.acquire('n', 1, tokens=5, wait=60000)[2:4], [second, 5])
    b.release('n', 1)
    assert a.acquire('n', 2)[2] >= second + 5


@case('tokens rise also when the counter lost its last values')
def _(s):
    a = s.client()
    old = a.acquire('n', 1)[2]
    before = s.admin.call('GET', keys('n')[1])
    a.release('n', 1)
    last = a.acquire('n', 2, tokens=32)[2] + 31
    a.release('n', 2)
    s.admin.call('SET', keys('n')[1], before)
    assert a.acquire('n', 3)[2] > last > old


@case('a floor raises the counter, also when the grant is repeated')
def _(s):
    a = s.client()
    token = a.acquire('n', 1)[2]
    far = token + 10 ** 12  # ahead of the clock by days
    equal(a.acquire('n', 1, floor=far)[2], token)
    a.release('n', 1)
    equal(a.acquire('n', 2)[2], far + 1)
    a.release('n', 2)
    equal(a.acquire('n', 3, floor=far + 100)[2], far + 101)


@case('tokens rise across FLUSHALL and across a counter that was set by hand')
def _(s):
    a, last = s.client(), 0
    for i, spoil in enumerate(['FLUSHALL', 'SET', 'DEL', 'FLUSHALL']):
        for k in range(50):
            token = a.acquire('n', 100 * i + k, tokens=8)[2]
            assert last < token < 2 ** 53, (last, token)
            last = token + 7
            a.release('n', 100 * i + k)
        s.admin.call(*{'FLUSHALL': ['FLUSHALL'], 'DEL': ['DEL', keys('n')[1]],
                       'SET': ['SET', keys('n')[1], 7]}[spoil])
    s.admin.call('SET', keys('n')[1], 'junk')
    try:
        a.acquire('n', 999)
        assert False, 'a spoilt counter must be an error'
    except Error:
        equal(s.admin.call('EXISTS', keys('n')[0]), 0)


# ---- dead clients --------------------------------------------------------------------------------

@case('a waiter whose connection is closed is skipped at once')
def _(s):
    a, b, c, d = (s.client() for _ in range(4))
    a.acquire('n', 1)
    for x in (b, c, d):
        x.acquire('n', 1, wait=60000)
    b.close()
    c.close()
    a.release('n', 1)
    equal([m[:2] for m in d.messages()], [['g', d.owner(1)]])
    equal(a.inspect('n')[5], 0)


@case('a waiter that is gone from behind the new owner is not left as the front')
def _(s):
    a, b, c, d = (s.client() for _ in range(4))
    a.acquire('n', 1)
    for x in (b, c, d):
        x.acquire('n', 1, wait=60000)
    c.close()
    a.release('n', 1)
    equal([m[:2] for m in b.messages()], [['g', b.owner(1)]])
    equal([m[:2] for m in d.messages()], [['f', d.owner(1)]])


@case('a waiter that did not keep up its place is passed over')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 1, wait=30)
    c.acquire('n', 1, wait=60000)
    time.sleep(0.1)
    a.release('n', 1)
    equal(b.messages(), [])
    equal([m[:2] for m in c.messages()], [['g', c.owner(1)]])


@case('a place in the queue that is kept up stays in place')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 1, wait=50)
    c.acquire('n', 1, wait=60000)
    equal(b.acquire('n', 1, wait=60000)[:3], ['QUEUED', b.owner(1), 0])
    time.sleep(0.1)
    a.release('n', 1)
    equal([m[:2] for m in b.messages()], [['g', b.owner(1)]])


@case('a claim that is not taken up ends, and the front that asks then gets the lock')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 1, lease=50, wait=60000)
    c.acquire('n', 1, wait=60000)
    a.release('n', 1)
    equal(c.message()[0], 'f')
    until(lambda: s.admin.call('EXISTS', keys('n')[0]) == 0)
    equal(c.acquire('n', 1, wait=60000)[0], 'GRANTED')
    equal(b.release('n', 1)[0], 'NOTHELD')
    equal(b.renew([('n', 1, 1000)]), [''])
    equal(b.acquire('n', 1, wait=60000)[:3], ['QUEUED', b.owner(1), 0])


@case('after the end of a lease whoever asks brings the front in, not itself')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 1, wait=60000)
    s.admin.call('PEXPIRE', keys('n')[0], 1)
    until(lambda: s.admin.call('EXISTS', keys('n')[0]) == 0)
    equal(c.acquire('n', 1)[0], 'BUSY')
    equal([m[:2] for m in b.messages()], [['g', b.owner(1)]])


@case('nothing is left behind when everybody was killed')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1, lease=5000)
    b.acquire('n', 1, wait=5000)
    c.acquire('m', 1, mode='s', lease=5000)
    b.acquire('m', 1, wait=5000)
    a.acquire('p', 1, mode='p', permits=1, capacity=1, lease=5000)
    for k in s.admin.call('KEYS', '*'):
        if not k.endswith(':fence'):
            assert 0 < s.admin.call('PTTL', k) <= 15000, k


# ---- repeated requests ---------------------------------------------------------------------------

@case('an acquire that is repeated finds its grant, whether the push came or not')
def _(s):
    a, b = s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 1, wait=60000)
    b.conn.close()  # the push is lost with the connection
    s.forget(b)
    b.connect()
    equal(b.acquire('n', 1, wait=60000)[:3], ['QUEUED', b.owner(1), 0])
    a.release('n', 1)
    pushed = b.message()
    equal(b.acquire('n', 1, wait=60000)[:3], ['GRANTED', b.owner(1), int(pushed[2])])
    assert s.admin.call('PTTL', keys('n')[0]) > 20000


@case('late and repeated releases and cancels touch nobody else')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 1, wait=60000)
    equal(a.release('n', 1)[0], 'OK')
    for _ in range(2):
        equal(a.release('n', 1)[0], 'NOTHELD')
        equal(a.cancel('n', 1)[0], 'NOTHELD')
    equal(c.release('n', 1)[0], 'NOTHELD')
    equal(b.renew([('n', 1, 30000)]), [b.owner(1)])
    equal([r[1] for r in b.inspect('n')[6]], [b.owner(1)])


@case('a cancel passes a grant on that is on its way, and a late acquire is told by its push')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 1, wait=60000)
    c.acquire('n', 1, wait=60000)
    a.release('n', 1)
    equal(b.cancel('n', 1)[0], 'HELD')
    equal([m[0] for m in c.messages()], ['f', 'g'])
    equal(b.acquire('n', 1, wait=60000)[0], 'QUEUED')  # from an old connection that the client gave up
    b.messages()
    c.release('n', 1)
    equal(b.message()[:2], ['g', b.owner(1)])
    equal(b.cancel('n', 1)[0], 'HELD')
    equal(s.admin.call('EXISTS', keys('n')[0]), 0)


@case('a renewal never shortens, never makes anew, and answers each of a batch')
def _(s):
    a, b = s.client(), s.client()
    a.acquire('n', 1, lease=60000)
    a.acquire('m', 1, mode='s', lease=60000)
    a.acquire('p', 1, mode='p', permits=2, capacity=3, lease=1000)
    batch = [('n', 1, 10), ('m', 1, 10), ('p', 1, 50000), ('q', 1, 1000), ('n', 2, 99999)]
    equal(a.renew(batch), [a.owner(1), a.owner(1), a.owner(1), '', ''])
    equal(a.renew(batch, step=1), [a.owner(1), '+', '+', '', ''])
    equal(b.renew(batch), [''] * 5)
    for name, at_least in (('n', 50000), ('m', 50000), ('p', 45000)):
        assert s.admin.call('PTTL', keys(name)[0]) > at_least, name
    equal(s.admin.call('EXISTS', keys('q')[0]), 0)


@case('a lease of nothing is refused')
def _(s):
    a = s.client()
    for lease in (0, -1):
        equal(a.acquire('n', 1, lease=lease), ['INVAL', a.owner(1)])
        equal(a.acquire('n', 1, lease=lease, wait=100), ['INVAL', a.owner(1)])
    a.acquire('n', 1)
    equal(a.renew([('n', 1, 0)]), [''])
    assert s.admin.call('PTTL', keys('n')[0]) > 20000


# ---- stale entries, and keys that are left behind -----------------------------------------------

def granted_by_message(s, mode='x'):
    """A stale entry at the front of the queue gets the lock. Returns (its client, token, time of the grant)."""
    a, b = s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 2, mode=mode, wait=60000)
    a.release('n', 1)
    message = [m for m in b.messages() if m[0] == 'g'][0]
    return b, message[2], message[5]


@case('a claim that the client disowns is passed on; once it was renewed it is not')
def _(s):
    for mode in 'xs':
        b, token, when = granted_by_message(s, mode)
        c = s.client()
        c.acquire('n', 3, wait=60000)
        equal(b.cancel('n', 2, '1', when)[0], 'NOTHELD', 'another token:')
        equal(b.cancel('n', 2, '', when)[0], 'NOTHELD', 'told to watch:')
        equal(b.cancel('n', 2, token, when)[0], 'HELD')
        equal([m[0] for m in c.messages()][-1:], ['g'])
        c.release('n', 3)
        b, token, when = granted_by_message(s, mode)
        equal(b.renew([('n', 2, 2101)]), [b.owner(2)])
        equal(b.cancel('n', 2, token, when)[0], 'NOTHELD', 'renewed:')
        equal(b.cancel('n', 2, token, str(int(when) + 60000))[0], 'NOTHELD', 'a time to come:')
        equal(b.renew([('n', 2, 2101)]), [b.owner(2)])
        b.release('n', 2)


@case('messages repeat the secret of the wait, and the key')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 2, wait=60000)
    c.acquire('n', 3, wait=60000)
    a.release('n', 1)
    equal([m[6:] for m in b.messages() if m[0] == 'g'], [['%x' % (0x5ec2e7 + 2), 'pawl:n']])
    equal([m[5:] for m in c.messages() if m[0] == 'f'], [['%x' % (0x5ec2e7 + 3), 'pawl:n']])


@case('dead waiters behind one that lives are swept away when it asks again')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 2, wait=60000)
    for seq in range(10, 161):
        c.acquire('n', seq, wait=300)
    c.acquire('n', 3, wait=60000)
    queue = keys('n')[2]
    equal(s.admin.call('ZCARD', queue), 153)
    time.sleep(0.4)
    equal(b.acquire('n', 2, wait=60000)[0], 'QUEUED')
    equal(s.admin.call('ZRANGE', queue, 0, -1), [b.owner(2), c.owner(3)])
    equal(s.admin.call('HLEN', keys('n')[3]), 4, 'two records, watch and line:')


@case('a counter ends a day or more after its last token, or after the clock has reached it')
def _(s):
    a = s.client()
    fence, most = keys('n')[1], 96400 * 1000  # a day, and the time for which the expiry is not refreshed
    a.acquire('n', 1)
    a.release('n', 1)
    assert most - 5000 < s.admin.call('PTTL', fence) <= most
    seconds, micros = (int(x) for x in s.admin.call('TIME'))
    ahead = (seconds + 3600) * 1000000 + micros
    s.admin.call('SET', fence, ahead)
    equal(a.acquire('n', 2)[2], ahead + 1)
    assert most + 3590000 < s.admin.call('PTTL', fence) <= most + 3600000
    equal(a.acquire('n', 2, floor=ahead + 3600 * 10 ** 6)[2], ahead + 1)
    assert most + 7190000 < s.admin.call('PTTL', fence) <= most + 7200000
    a.release('n', 2)
    before = a.acquire('n', 3)[2]
    a.release('n', 3)
    assert a.acquire('m', 4)[2] < before, 'names count by themselves'
    for used in (10001, 86000):  # s ago
        s.admin.call('SET', keys('m')[1], (seconds - used) * 1000000, 'PX', 96400000 - used * 1000)
        a.release('m', 4)
        a.acquire('m', 4)
        assert most - 5000 < s.admin.call('PTTL', keys('m')[1]) <= most, used
    b = s.client()  # by a hand-over, too
    b.acquire('m', 5, wait=60000)
    s.admin.call('SET', keys('m')[1], (seconds - 86000) * 1000000, 'PX', 10000)
    a.release('m', 4)
    assert most - 5000 < s.admin.call('PTTL', keys('m')[1]) <= most


if __name__ == '__main__':
    sys.exit(run(Server, jobs=1))
