#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts on a real server: foreign locks, lost data, several holders, latches, a full server.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal, run  # noqa: E402
from redis_server import VERSION, Error, Server, keys  # noqa: E402
from wait import until  # noqa: E402

# ---- strangers, force, data loss -----------------------------------------------------------------

@case("a stranger's SET NX and Pawl exclude each other, in every mode")
def _(s):
    a, b = s.client(), s.client()

    def stranger():
        return s.admin.call('SET', keys('n')[0], 'theirs', 'NX', 'PX', 300000)

    for mode in 'xs':
        a.acquire('n', 1, mode=mode)
        equal(stranger(), None)
        a.release('n', 1)
        equal(stranger(), 'OK')
        busy = b.acquire('n', 2, mode=mode)
        equal([busy[0], busy[3]], ['BUSY', 1])
        assert 0 < busy[2] <= 300000
        queued = b.acquire('n', 2, mode=mode, wait=60000)
        equal([queued[0], queued[2], queued[4]], ['QUEUED', 0, 1])
        equal(a.release('n', 1)[0], 'NOTHELD')
        equal(a.renew([('n', 1, 1000)]), [''])
        s.admin.call('PEXPIRE', keys('n')[0], 1)
        until(lambda: s.admin.call('EXISTS', keys('n')[0]) == 0)
        equal(b.acquire('n', 2, mode=mode, wait=60000)[0], 'GRANTED')
        b.release('n', 2)
    s.admin.call('SET', keys('n')[0], 'theirs')
    equal(b.acquire('n', 3, wait=60000)[3], -1)
    equal(a.acquire('n', 9, mode='p', permits=1, capacity=1)[0], 'STATE')
    equal(a.break_('n'), 'OK')
    equal([m[0] for m in b.messages()], ['g'])


@case('a key of another type is left alone')
def _(s):
    a = s.client()
    s.admin.call('HSET', keys('n')[0], 'f', 1)
    equal(a.acquire('n', 1)[0], 'STATE')
    equal(a.acquire('n', 1, wait=60000)[0], 'STATE')
    equal(a.release('n', 1)[0], 'NOTHELD')
    equal(a.renew([('n', 1, 1000)]), [''])
    equal(a.break_('n'), 'NOTHELD')
    equal(a.inspect('n')[1], 'other')
    equal(a.latch('n', 'set', 1, 1)[0], 'STATE')
    equal(s.admin.call('HGET', keys('n')[0], 'f'), '1')


@case('after FLUSHALL the holder is told at its renewal and the waiters start anew')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 1, wait=60000)
    s.admin.call('FLUSHALL')
    equal(a.renew([('n', 1, 30000)]), [''])
    equal(c.acquire('n', 1)[0], 'GRANTED')
    equal(b.acquire('n', 1, wait=60000)[0], 'QUEUED')
    equal(a.release('n', 1)[0], 'NOTHELD')


@case('a deleted K ends all holds, and they do not come back with the next one')
def _(s):
    a, b = s.client(), s.client()
    a.acquire('p', 1, mode='p', permits=3, capacity=3)
    a.acquire('m', 1, mode='s')
    s.admin.call('DEL', keys('p')[0], keys('m')[0])
    equal(a.renew([('p', 1, 1000), ('m', 1, 1000)]), ['', ''])
    equal(b.acquire('p', 1, mode='p', permits=3, capacity=3)[0], 'GRANTED')
    equal(b.acquire('m', 1, mode='s')[0], 'GRANTED')
    equal(a.renew([('p', 1, 1000), ('m', 1, 1000)]), ['', ''])
    equal(a.release('p', 1)[0], 'NOTHELD')
    equal(b.inspect('p')[3:5], [3, 1])


@case('break tells the holders and wakes the next as a release would')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1, mode='s')
    b.acquire('n', 1, mode='s')
    c.acquire('n', 1, wait=60000)
    equal(c.break_('n'), 'OK')
    equal([m[:2] for m in a.messages()], [['e', a.owner(1)]])
    equal([m[:2] for m in b.messages()], [['e', b.owner(1)]])
    equal([m[:2] for m in c.messages()], [['g', c.owner(1)]])
    equal(c.break_('n'), 'OK')
    equal(c.break_('n'), 'NOTHELD')


# ---- several holders -----------------------------------------------------------------------------

@case('leases of permits and of readers end one by one')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    b.acquire('p', 1, mode='p', permits=1, capacity=3)
    a.acquire('p', 1, mode='p', permits=2, capacity=3, lease=60)
    until(lambda: c.inspect('p')[3] == 1)
    equal(c.acquire('p', 1, mode='p', permits=2, lease=20000)[0], 'GRANTED')
    queued = a.acquire('p', 2, mode='p', permits=2, wait=60000)
    equal(queued[0], 'QUEUED')
    assert 10000 < queued[3] <= 20000, queued  # the earliest end of the leases
    equal(a.release('p', 1)[0], 'NOTHELD')
    equal(c.inspect('p')[2:5], [3, 3, 2])
    a.acquire('m', 1, mode='s', lease=60)
    b.acquire('m', 1, mode='s')
    until(lambda: c.inspect('m')[4] == 1)
    equal(a.renew([('m', 1, 1000)]), [''])
    assert s.admin.call('PTTL', keys('m')[0]) > 20000


@case('K lasts as long as the longest lease, not longer')
def _(s):
    a, b = s.client(), s.client()
    a.acquire('m', 1, mode='s', lease=60000)
    b.acquire('m', 1, mode='s', lease=5000)
    assert s.admin.call('PTTL', keys('m')[0]) > 30000
    a.release('m', 1)
    assert 0 < s.admin.call('PTTL', keys('m')[0]) <= 5000


@case('a downgrade lets readers in when the exclusive part ends, by release or by itself')
def _(s):
    a, b = s.client(), s.client()
    for name in 'nm':
        a.acquire(name, 1)
        b.acquire(name, 1, mode='s', wait=60000)
        equal(a.acquire(name, 2, mode='s', with_owner=a.owner(1))[0], 'GRANTED')
        equal(b.acquire(name, 9, mode='s', with_owner=a.owner(1))[0], 'BUSY')
        equal(b.messages(), [])
        equal(a.renew([(name, 1, 30000)]), [a.owner(1)])
        if name == 'n':
            a.release(name, 1)
            equal([m[0] for m in b.messages()], ['g'])
        else:
            s.admin.call('ZADD', keys('m')[4], 'XX', 1, a.owner(1))
            equal(b.acquire(name, 1, mode='s', wait=60000)[0], 'GRANTED')
        equal(b.inspect(name)[4], 2)


@case('a lock that lingers keeps others out and its owner too, then ends by itself')
def _(s):
    a, b = s.client(), s.client()
    a.acquire('n', 1, lease=90000)
    b.acquire('n', 1, wait=60000)
    equal(a.release('n', 1, linger=60000)[0], 'OK')
    front = b.message()
    equal(front[0], 'f')
    assert int(front[2]) <= 60000
    equal(a.release('n', 1, linger=60000)[0], 'OK')
    equal(a.release('n', 1)[0], 'NOTHELD')
    equal(a.renew([('n', 1, 1000)]), [''])
    s.admin.call('PEXPIRE', keys('n')[0], 1)
    until(lambda: s.admin.call('EXISTS', keys('n')[0]) == 0)
    equal(b.acquire('n', 1, wait=60000)[0], 'GRANTED')


# ---- latch ---------------------------------------------------------------------------------------

@case('a latch opens for everybody who waits, once, however often it is asked')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    equal(a.latch('l', 'set', 1, 2), ['OK', a.owner(1), 2])
    equal(a.latch('l', 'set', 1, 2), ['OK', a.owner(1), 2])
    equal(b.latch('l', 'set', 1, 2)[0], 'STATE')
    equal(b.acquire('l', 2, mode='l')[0], 'BUSY')
    queued = b.acquire('l', 2, mode='l', wait=60000)
    equal([queued[0], queued[6]], ['QUEUED', a.owner(1)])
    c.acquire('l', 2, mode='l', wait=60000)
    equal(a.acquire('l', 5)[0], 'STATE')
    for _ in range(2):
        equal(a.latch('l', 'down', 6), ['OK', a.owner(6), 1])
    equal(a.latch('l', 'down', 7), ['OK', a.owner(7), 0])
    equal([m[:2] for m in b.messages()], [['o', b.owner(2)]])
    equal([m[:2] for m in c.messages()], [['o', c.owner(2)]])
    equal(a.latch('l', 'set', 8, 1)[0], 'OK')
    equal(a.latch('l', 'down', 7), ['OK', a.owner(7), 1])  # a late request of the round before
    equal(b.acquire('l', 2, mode='l', wait=60000, seen=a.owner(1))[0], 'GRANTED')
    equal(b.acquire('l', 3, mode='l', wait=60000)[0], 'QUEUED')
    equal(b.cancel('l', 3)[0], 'QUEUED')
    equal(a.latch('l', 'down', 9)[2], 0)
    equal(b.messages(), [])
    equal(a.latch('l', 'down', 10)[2], 0)
    equal(a.acquire('l', 11)[0], 'GRANTED')
    equal(a.latch('l', 'set', 12, 1)[0], 'STATE')
    equal(a.latch('m', 'set', 13, 0)[0], 'INVAL')


# ---- a full server, names ------------------------------------------------------------------------

@case('on a full server release, hand-over, renewal and cancel still work', '--maxmemory-policy',
      'noeviction')
def _(s):
    a, b, c = s.client(), s.client(), s.client()
    a.acquire('n', 1)
    b.acquire('n', 1, wait=60000)
    c.acquire('n', 1, wait=60000)
    a.acquire('m', 1, mode='s', lease=90000)
    b.acquire('m', 1, mode='s', lease=20000)
    c.acquire('m', 1, wait=60000)
    a.acquire('p', 1, mode='p', permits=3, capacity=4)
    b.acquire('p', 1, mode='p', permits=2, wait=60000)
    a.acquire('z', 1)
    a.acquire('y', 1, mode='s')
    s.admin.call('CONFIG', 'SET', 'maxmemory', '1')
    for client, name in ((a, 'free'), (c, 'm'), (c, 'new')):
        try:
            reply = client.acquire(name, 7)
            assert reply[0] == 'BUSY', reply
        except Error as e:
            assert str(e).startswith('OOM') or 'OOM' in str(e), e
    equal(a.renew([('n', 1, 60000), ('m', 1, 95000), ('p', 1, 60000)]), [a.owner(1)] * 3)
    equal(b.renew([('m', 1, 30000)]), [b.owner(1)])  # K already lasts longer
    equal(a.release('p', 1, keep=1)[0], 'OK')
    equal([m[:2] for m in b.messages()], [['g', b.owner(1)]])
    equal(a.release('n', 1)[0], 'OK')
    equal([m[:2] for m in b.messages()], [['g', b.owner(1)]])
    equal(b.renew([('n', 1, 60000)]), [b.owner(1)])
    equal(b.cancel('n', 1)[0], 'HELD')
    equal([m[:2] for m in c.messages()], [['f', c.owner(1)], ['g', c.owner(1)]])
    equal(c.release('n', 1)[0], 'OK')
    equal(a.release('m', 1)[0], 'OK')
    equal(b.release('m', 1)[0], 'OK')
    equal([m[:2] for m in c.messages()], [['g', c.owner(1)]])
    equal(a.release('z', 1, linger=60000)[0], 'OK')
    equal(a.release('y', 1, linger=60000)[0], 'OK')
    equal(a.renew([('z', 1, 1000), ('y', 1, 1000)]), ['', ''])
    equal(c.break_('m'), 'OK')


@case('where a hand-over cannot be written the lock is freed and the waiter told to look')
def _(s):
    a, b = s.client(), s.client()
    for mode in 'xs':
        a.acquire(mode, 1)
        b.acquire(mode, 1, mode=mode, wait=60000)
        s.admin.call('SET', keys(mode)[1], 'junk')
        equal(a.release(mode, 1)[0], 'OK')
        equal([m[:3] for m in b.messages()], [['f', b.owner(1), '0']])
        equal(s.admin.call('EXISTS', keys(mode)[0], keys(mode)[4]), 0)
        s.admin.call('DEL', keys(mode)[1])
        equal(b.acquire(mode, 1, mode=mode, wait=60000)[0], 'GRANTED')


@case('all keys of a name are in one slot, whatever braces it has', '--cluster-enabled', 'yes')
def _(s):
    names = ['n', '{n}', 'a{b', 'a}b', '}{', '}x', '{}x', 'a{}b{c}', '{a}{b}', 'x{y}z}', '{{a}}',
             '{']
    seen = set()
    for prefix in ('', 'pawl:', '{app}:', '}'):
        for name in names:
            k = keys(name, prefix)
            equal(len({s.admin.call('CLUSTER', 'KEYSLOT', x) for x in k}), 1, f'{prefix}{name}')
            if prefix == 'pawl:':
                assert not seen & set(k), name
                seen |= set(k)


def sharded(s):
    s.admin.call('CLUSTER', 'ADDSLOTS', *range(16384))
    until(lambda: 'cluster_state:ok' in s.admin.call('CLUSTER', 'INFO'))
    a, b = s.client(), s.client()
    channel = '{pawl:n}:' + b.channel
    b.conn.send('SSUBSCRIBE', channel)
    equal(b.conn.push()[0], 'ssubscribe')
    a.acquire('n', 1)
    args = b.acquire_args('n', 1, wait=60000)
    args[args.index('p' + b.channel)] = 's' + channel
    equal(b.conn.call(*args)[0], 'QUEUED')
    a.release('n', 1)
    equal(b.conn.push()[0], 'smessage')


if VERSION >= 7:  # sharded channels exist since this version
    case('grants go by sharded channels where a waiter asks for that', '--cluster-enabled',
         'yes')(sharded)


if __name__ == '__main__':
    sys.exit(run(Server, jobs=1))
