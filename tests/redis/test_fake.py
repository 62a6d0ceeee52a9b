#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server that answers nonsense: each call ends within its limit with a documented error, the client never
reports a grant that the server did not make, and works again as soon as a connection gives correct answers.
"""
import itertools
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal, run  # noqa: E402
from fake import Fake, bulk, message  # noqa: E402
from redis_live import Live  # noqa: E402
from steps import free_again  # noqa: E402
from wait import until  # noqa: E402

FAILED = ('PAWL_EPROTO', 'PAWL_EUNKNOWN', 'PAWL_ECONN', 'PAWL_EBACKEND', 'PAWL_ETIMEDOUT',
          'PAWL_ESTATE', 'PAWL_EINVAL', 'PAWL_ENOTSUP', 'PAWL_EBUSY')
# The client repeats the request until the time is over; on a slow machine the time may end before the answer.
UNREADABLE = ('PAWL_EPROTO', 'PAWL_EUNKNOWN', 'PAWL_ECONN', 'PAWL_ETIMEDOUT')


def peak_kb(a):
    with open(f'/proc/{a.pid}/status', encoding='ascii') as f:
        return next(int(line.split()[1]) for line in f if line.startswith('VmHWM'))


def bounded(a):
    most = 300000 * int(os.environ.get('PAWL_MEMORY_FACTOR', '1'))  # sanitizers need more
    assert peak_kb(a) < most, f'{peak_kb(a)} KB were used'


def no_grant(f, a, reply, what, codes=UNREADABLE, wait=400):
    """The acquire fails with an error text; afterwards an acquire works."""
    f.spoil('acquire', reply)
    failure = a.ask('take', 'l', wait, patience=30)
    assert failure.code in codes and failure.words, f'{what}: {failure}'
    f.codes.append(failure.code)
    state = a.ask('held', 'l')
    equal([state.held, state.token, state.valid], [0, 0, 0], what)
    f.behave()
    a.ask('take', 'l', 30000).ok()
    a.ask('drop', 'l').ok()


def called_by_name(f):
    """The request was not refused: its outcome is unknown, or the answer was nonsense."""
    assert set(f.codes) <= {'PAWL_EPROTO', 'PAWL_EUNKNOWN'}, f.codes


def pair(s, timeout=1500, **params):
    f = Fake(s)
    f.codes = []
    a = Actor(f.url(timeout=timeout, **params))
    a.lock('l', 'n')
    a.ask('take', 'l', 30000).ok()
    a.ask('drop', 'l').ok()
    return f, a


def grant(r, owner=None, token=2000000000000000, ntokens=1, ms=30000, now=1700000000000):
    return bulk('GRANTED', owner or r.owner, token, ntokens, ms, now)


# ---- answers to acquire --------------------------------------------------------------------------

@case('answers that are cut short')
def _(s):
    f, a = pair(s, timeout=300)
    for n in (1, 2, 4, 9, 15, 21, 34, 48):
        no_grant(f, a, lambda r: grant(r)[:n], f'{n} bytes of a grant')
    no_grant(f, a, None, 'no answer')
    no_grant(f, a, b'$100\r\nabc', 'a text that does not end')


@case('answers that announce more than there can be')
def _(s):
    f, a = pair(s)
    for reply in (b'$9223372036854775807\r\n', b'*9223372036854775807\r\n', b'$99999999999\r\nxx',
                  b'*2147483648\r\n', b'%4611686018427387904\r\n', b'*1000000000\r\n:1\r\n',
                  b'$536870912\r\n' + b'x' * 100000, b'=1000000000\r\ntxt:'):
        no_grant(f, a, reply, repr(reply[:30]))
    called_by_name(f)
    bounded(a)


@case('answers inside answers inside answers')
def _(s):
    f, a = pair(s)
    for reply in (b'*1\r\n' * 100000, b'*1\r\n' * 17 + b':1\r\n', b'%1\r\n:1\r\n' * 5000,
                  b'|1\r\n+a\r\n' * 1000 + b':1\r\n', b'>1\r\n' * 100,
                  b'*2\r\n:1\r\n' * 40 + b':1\r\n'):
        no_grant(f, a, reply, repr(reply[:30]))
    called_by_name(f)
    bounded(a)


@case('answers that are no RESP')
def _(s):
    f, a = pair(s)
    for reply in (b'GRANTED\r\n', b'\0' * 64, b'*2\n:1\n:2\n', b'*x\r\n', b':12a\r\n',
                  b'$3\r\nabcd\r\n',
                  b':99999999999999999999999\r\n', b'$-2\r\n', b'*-2\r\n', b'#x\r\n', b',..\r\n',
                  b'_x\r\n', b'\r\n', b'HTTP/1.1 200 OK\r\n\r\n', bytes(range(256))):
        no_grant(f, a, reply, repr(reply[:30]))
    called_by_name(f)


@case('answers of the wrong shape')
def _(s):
    f, a = pair(s)
    for make in (lambda r: b'+OK\r\n', lambda r: b'_\r\n', lambda r: b':1\r\n', lambda r: b'*0\r\n',
                 lambda r: b'#t\r\n', lambda r: b'%0\r\n', lambda r: bulk('GRANTED'),
                 lambda r: bulk('GRANTED', r.owner),
                 lambda r: bulk('GRANTED', r.owner, 'x', 1, 1, 1),
                 lambda r: bulk('granted', r.owner, 9, 1, 30000, 1),
                 lambda r: bulk(7, r.owner, 9, 1, 30000, 1),
                 lambda r: bulk('GRANTED', 5, 9, 1, 30000, 1),
                 lambda r: b'*6\r\n' + b'*0\r\n' * 6, lambda r: b'*6\r\n' + b'_\r\n' * 6,
                 lambda r: bulk('OK', r.owner, 1), lambda r: bulk('NOTHELD', r.owner, 1),
                 lambda r: bulk('QUEUED', r.owner),
                 lambda r: bulk('QUEUED', r.owner, 'a', 'b', 'c'),
                 lambda r: bulk('', '')):
        no_grant(f, a, make, 'wrong shape')
    called_by_name(f)
    for reply in (b'-\r\n', b'!5\r\nERR x\r\n', b'-ERR \x01\x7f\xff\r\n',
                  b'-' + b'E' * 9999 + b'\r\n'):
        no_grant(f, a, reply, 'an error', UNREADABLE + ('PAWL_EBACKEND',))


@case('rights that a script lacks, in the words of Redis 6.2, of 7.0 and of Valkey')
def _(s):
    f, a = pair(s)
    for words in (b'Error running script (call to f_1): @user_script:1: @user_script: 1: The user '
                  b"executing the script can't run this command or subcommand",
                  b"The user executing the script can't run this command or subcommand",
                  b"ACL failure in script: User u has no permissions to run the 'set' command"):
        no_grant(f, a, b'-ERR ' + words + b'\r\n', words, ('PAWL_EAUTH',))


@case('numbers that make no sense')
def _(s):
    f, a = pair(s)
    for change in ({'token': 0}, {'token': -1}, {'ntokens': 0}, {'ntokens': -5},
                   {'ntokens': 2 ** 40}, {'ms': 0}, {'ms': -1}, {'ms': -2 ** 63},
                   {'token': -2 ** 63}, {'now': -2 ** 63, 'ms': -1}, {'now': -1, 'token': 0}):
        no_grant(f, a, lambda r: grant(r, **change), str(change))
    called_by_name(f)


@case('answers meant for somebody else')
def _(s):
    f, a = pair(s)
    previous = [r.owner for r in f.seen if r.name == 'acquire'][-1]
    for make in (lambda r: grant(r, owner=previous), lambda r: grant(r, owner='0' * 16 + ':1'),
                 lambda r: grant(r, owner=r.owner + '0'), lambda r: grant(r, owner=r.owner[:-1]),
                 lambda r: grant(r, owner=r.owner + '\0'), lambda r: grant(r, owner=' ' + r.owner),
                 lambda r: bulk('QUEUED', previous, 0, 100, 0, 1),
                 lambda r: bulk('BUSY', previous, 100, 0, 1),
                 lambda r: bulk('STATE', previous)):
        no_grant(f, a, make, 'the wrong owner')
    called_by_name(f)


@case('a grant whose answer can\'t be read is given back')
def _(s):
    f, a = pair(s)
    b = s.actor()
    b.lock('l', 'n')
    for reply in (b'*6\r\n$7\r\nGRANTED\r\n$x', lambda r: grant(r, owner='0' * 16 + ':1'),
                  b':5\r\n', None):
        f.spoil('acquire', reply, carry_out=True)
        failure = a.ask('take', 'l', 700, patience=30)
        assert failure.code in FAILED, failure
        f.behave()
        b.ask('take', 'l', 15000).ok()  # before the lease of 30 s is over
        b.ask('drop', 'l').ok()


# ---- other answers -------------------------------------------------------------------------------

NONSENSE = (b'*x\r\n', b'+OK\r\n', b'*0\r\n', b':0\r\n', bulk('OK', 'somebody', 1), b'$-1\r\n',
            b'*1\r\n' * 50, b'$99999999999\r\n', bulk('GRANTED', 'x', 1, 1, 1, 1), b'-ERR no\r\n',
            b'-\r\n', b'%1\r\n+a\r\n')


def spoil_one(s, name, act, outcome):
    """Call `act` while its answers are nonsense. Afterwards the lock can be acquired again, at the latest
    after the lease."""
    f, a = pair(s, timeout=300, watchdog=4000)
    a.ask('take', 'l', 30000).ok()
    for reply in NONSENSE:
        f.spoil(name, reply)
        got = act(a)
        assert got.code in outcome, f'{reply[:40]!r}: {got}'
        f.behave()
        if a.ask('held', 'l').held:
            continue
        a.ask('drop', 'l')
        s.call('DEL', 'pawl:n')
        a.ask('take', 'l', 30000).ok()
    a.close()
    free_again(s, 'n')


def works(a, *words):
    """The call works now that the server answers correctly; on a slow machine perhaps not at the first try."""
    until(lambda: a.ask(*words).code == 'PAWL_OK', f'for {words} to work')


@case('nonsense in answer to a release: an error, and the lock is free in the end')
def _(s):
    spoil_one(s, 'release', lambda a: a.ask('drop', 'l'), FAILED + ('PAWL_OK', 'PAWL_ELOST'))


@case('nonsense in answer to a renewal: never a lease that was not confirmed')
def _(s):
    def act(a):
        got = a.ask('renew', 'l', 60000)
        assert got.code != 'PAWL_OK' and got.valid <= 4000, got
        return got
    spoil_one(s, 'renew', act, FAILED + ('PAWL_ELOST', 'PAWL_ENOTHELD'))


@case('a renewal whose answer is about others is no renewal')
def _(s):
    f, a = pair(s, watchdog=1500)
    a.ask('take', 'l', 30000).ok()
    token = a.ask('token', 'l').token
    f.spoil('renew', lambda r: bulk(1700000000000, '0' * 16 + ':1'))
    a.lost('l')
    equal(a.ask('valid', 'l').valid, 0)
    f.behave()
    a.ask('drop', 'l').be('PAWL_ELOST')
    assert free_again(s, 'n') > token


@case('nonsense in answer to inspect, list and latches: an error, and then none')
def _(s):
    f, a = pair(s, timeout=300)
    a.latch('d', 'd')
    a.ask('take', 'l', 30000).ok()
    for name, words in (('inspect', ('show', 'n')), ('SCAN', ('ls',)), ('latch', ('set', 'd', 2)),
                        ('latch', ('down', 'd')), ('break', ('break', 'l'))):
        for reply in NONSENSE:
            f.spoil(name, reply)
            got = a.ask(*words)
            assert got.code in FAILED, f'{words} {reply[:40]!r}: {got}'
            f.behave()
    works(a, 'show', 'n')
    works(a, 'ls')
    works(a, 'set', 'd', 1)
    works(a, 'down', 'd')
    equal(a.ask('held', 'l').held, 1)


@case('rows that make no sense are an error, not a crash')
def _(s):
    f, a = pair(s, timeout=300)
    whole = bulk(1700000000000, 'lock', 0, 0, 1, 0)
    row = bulk('h', 'a:1', 'x', 0, 5, 1, 1700000000000, 100)
    for rows in (b'*1\r\n' + b'*0\r\n', b'*1\r\n' + row[:-6], b'*1\r\n:5\r\n', b'*1\r\n_\r\n',
                 b':9\r\n',
                 b'*1\r\n' + bulk('q', 'a:1', 'x', 0, 5, 1, 1, 1),
                 b'*1\r\n' + bulk('h', 'x' * 5000, 'x', 0, 5, 1, 1, 1),
                 b'*1\r\n' + bulk('h', '', '', '', '', '', '', ''),
                 b'*3\r\n' + row * 2, b'*1000000\r\n' + row):
        f.spoil('inspect', b'*7\r\n' + whole[4:] + rows)
        got = a.ask('show', 'n', patience=30)
        assert got.code in FAILED + ('PAWL_OK',), got
        f.behave()
        works(a, 'show', 'n')


@case('nonsense in answer to the first words: an error in time, and then a connection')
def _(s):
    f = Fake(s)
    hello = (b'+OK\r\n', b'*0\r\n', b'%0\r\n', b'*x\r\n', b'%1\r\n+version\r\n:7\r\n', None,
             b'%1\r\n+version\r\n*0\r\n', b'%2147483648\r\n', b'$5\r\nhello\r\n', b'_\r\n',
             b'%2\r\n+version\r\n+7.0.0\r\n+id\r\n+minus one\r\n', b'>0\r\n', b'-\r\n',
             b'*1\r\n' * 100000)
    for name, replies in (('HELLO', hello), ('PING', (b'*x\r\n', b':0\r\n', None)),
                          ('SUBSCRIBE', (b'*x\r\n', b'+OK\r\n', b'>1\r\n+x\r\n', None))):
        for reply in replies:
            f.spoil(name, reply)
            a = Actor(f.url(timeout=400), opens=False)
            failure = a.opened
            if failure.code == 'PAWL_OK':
                a.lock('l', 'n')
                failure = a.ask('take', 'l', 500, patience=30)
            assert failure.code in FAILED + ('PAWL_OK',), f'{name} {reply!r}: {failure}'
            f.behave()
            if a.opened.code == 'PAWL_OK' and failure.code != 'PAWL_OK':
                until(lambda: a.ask('take', 'l', 10000).code == 'PAWL_OK')
            a.kill()
            s.call('FLUSHALL')


# ---- unexpected messages -------------------------------------------------------------------------

def survives(s, f, a, data, what):
    """The client may drop the connection, but must keep the lock and go on."""
    token = a.ask('take', 'l', 30000).ok().token
    f.push(data)
    a.lock('k', 'k')
    a.ask('take', 'k', 30000, patience=60).ok()
    a.ask('drop', 'k').ok()
    equal(a.ask('token', 'l').token, token, what)
    a.ask('drop', 'l').ok()
    a.ask('free', 'k')


@case('an answer too many: the connection is given up, nothing else')
def _(s):
    f, a = pair(s)
    for data in (b'+OK\r\n', bulk('GRANTED', 'x', 1, 1, 1, 1), b'-ERR x\r\n', b'_\r\n' * 1000):
        survives(s, f, a, data, repr(data[:20]))
    assert a.ask('stats').reconnects > 0


@case('pushes that make no sense do no harm')
def _(s):
    f, a = pair(s)
    for data in (b'>0\r\n', b'>1\r\n+x\r\n', b'>3\r\n*0\r\n*0\r\n*0\r\n',
                 b'>2\r\n+message\r\n+x\r\n',
                 message('nobody', 'g a b c'), b'>3\r\n+message\r\n:1\r\n:2\r\n',
                 b'>1\r\n+invalidate\r\n', b'>2\r\n+invalidate\r\n_\r\n', b'>x\r\n'):
        survives(s, f, a, data, repr(data[:30]))


@case('messages that make no sense do no harm')
def _(s):
    f, a = pair(s)
    owner = [r.owner for r in f.seen if r.name == 'acquire'][-1]
    client = owner.split(':')[0]
    for text in ('', ' ', 'g', 'g ', f'g {owner}', f'g {owner} 1', f'g {owner} x y z w',
                 f'g {client}:ffff 1 1 2000 1', f'g {client}:ffffffffffffffffffff 1 1 2000 1',
                 f'g {client}: 1 1 2000 1', f'g {client}:-1 1 1 2000 1', 'f', f'f {owner} 0 0 1',
                 f'f {owner} -9223372036854775808 0 1', f'e {owner}', 'e x 1', f'o {owner} 1',
                 'z' * 100000, f'g {owner} 99999999999999999999 1 2000 1', 'g\0g',
                 f'e {client}:1 1',
                 f'g {"0" * 16}:1 1 1 2000 1', 'g ' + client, f'g {owner} 1 1 1999 1 0 ',
                 f'g {owner} 1 1 1999 1 0 pawl:', f'g {owner} 1 1 1999 1 0 other:n',
                 f'g {owner} 1 1 1999 1 0 pawl:' + 'n' * 300, f'f {owner} 0 0 1 x pawl:n',
                 f'f {owner} 0 0 1 0 pawl:n', f'g {client}:{"f" * 16} 1 1 1999 1 0 pawl:n'):
        survives(s, f, a, lambda channel: message(channel, text), repr(text[:40]))


@case('a false grant in a message is not believed where it can be seen to be false')
def _(s):
    f, a = pair(s)
    h = s.actor()
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    a.send('acquire', 'l', -1)
    until(lambda: s.queue('n'))
    owner = s.queue('n')[0]
    now = int(s.call('TIME')[0]) * 1000 + 1000
    secret = s.call('HGET', '{pawl:n}:rec', owner).split(' ')[7]
    end = f'{secret} pawl:n'
    for text in (f'g {owner} 5 1 1999 {now}', f'g {owner} 5 1 1999 {now} 0 pawl:n',
                 f'g {owner} 5 1 1999 {now} {int(secret, 16) ^ 1:x} pawl:n',
                 f'o {owner} {now} 1 pawl:n',
                 f'g {owner} 5 1 2001 {now} {end}', f'g {owner} 5 1 60000 {now} {end}',
                 f'g {owner} 0 1 2000 {now} {end}', f'g {owner} 5 0 2000 {now} {end}',
                 f'g {owner} 5 1 0 {now} {end}', f'g {owner} 5 1 -1 {now} {end}',
                 f'g {owner} 5 1 2000 {now - 10 ** 7} {end}', f'g {owner}0 5 1 1999 {now} {end}',
                 f'g {owner}', f'g {owner} 0 1 2000 {now}', f'g {owner} -5 1 2000 {now}',
                 f'g {owner} 5 0 2000 {now}', f'g {owner} 5 1 0 {now}', f'g {owner} 5 1 -1 {now}',
                 f'g {owner} 5 1 2000', f'g {owner} 5 1 2000 x',
                 f'g {owner}0 5 1 2000 {now}', f' g {owner} 5 1 2000 {now}',
                 f'g {owner} 5 1 2000 {now - 10 ** 7}'):
        until(lambda: f.open_sides())
        f.push(lambda channel: message(channel, text))
        a.ask('sync')
        got = a.have('acquire', 'l')
        assert got is None, f'{text}: {got}'
        equal(a.ask('held', 'l').held, 0)
    until(lambda: s.queue('n') == [owner])
    h.ask('drop', 'l').ok()
    a.answer('acquire', 'l').ok()


@case('an endless stream: every call ends in its time, and memory is bounded')
def _(s):
    f, a = pair(s)
    forever = itertools.repeat
    for what, stream in (('answers', forever(b'+OK\r\n' * 1000)), ('pushes',
                         forever(b'>1\r\n+x\r\n' * 1000)),
                         ('one text', itertools.chain([b'$400000000\r\n'], forever(b'x' * 65536))),
                         ('one array', itertools.chain([b'*100000000\r\n'],
                                                       forever(b':1\r\n' * 1000))),
                         ('one line', itertools.chain([b'+'], forever(b'y' * 65536))),
                         ('one number', itertools.chain([b':'], forever(b'1' * 65536))),
                         ('attributes', forever(b'|1\r\n+a\r\n+b\r\n' * 500)),
                         ('messages', forever(message('pawl:@0', 'g x') * 200))):
        f.spoil('acquire', stream)
        failure = a.ask('take', 'l', 700, patience=30)
        assert failure.code in FAILED, f'{what}: {failure}'
        f.behave()
        a.ask('take', 'l', 30000, patience=60).ok()
        a.ask('drop', 'l').ok()
    bounded(a)


@case('numbers of an inspection that can\'t be, and more rows than were asked for')
def _(s):
    f, a = pair(s)
    top, row = 2 ** 63 - 1, ('h', '0123456789abcdef:1', 'x')
    for number in (top, -top - 1, -2):
        rows = b'*1\r\n' + bulk(*row, *[number] * 5)
        f.spoil('inspect', lambda r: bulk(number, 'lock', *[number] * 4, 'x')
                .replace(b'$1\r\nx\r\n', rows))
        shown = a.rows('show', 'n')
        for r in shown:
            numbers = [int(v) for v in r.fields.values() if v.lstrip('-').isdigit()]
            assert all(-1 <= v <= 2 ** 53 for v in numbers), r
    many = b'*20000\r\n' + bulk(*row, *[1] * 5) * 20000
    f.spoil('inspect', lambda r: bulk(1, 'lock', 0, 0, 1, 0, 'x').replace(b'$1\r\nx\r\n', many))
    a.ask('show', 'n').be('PAWL_ECONN', 'PAWL_EUNKNOWN', 'PAWL_EPROTO')
    bounded(a)


@case('a list without end is an error at a million names, and memory is bounded')
def _(s):
    f, a = pair(s, timeout=30000)
    keys = [f'pawl:name-{i}' for i in range(10000)]
    f.spoil('SCAN', b'*2\r\n' + bulk('7')[4:] + bulk(*keys))
    got = a.ask('ls', patience=80).be('PAWL_EBACKEND')
    assert 'more than a million names' in got.words, got
    f.behave()
    works(a, 'ls')
    bounded(a)


@case('a server\'s words reach nobody with control characters in them')
def _(s):
    f, a = pair(s)
    for said in (b'\x1b]0;title\x07', b'\x7f\x9b31m', b'\xc2\x9b31m', b'\xff\xfe\xc3'):
        f.spoil('acquire', b'-ERR ' + said + b' end\r\n')
        words = a.ask('take', 'l', 0).be('PAWL_EBACKEND').words
        assert 'end' in words and all(c.isprintable() for c in words), repr(words)
    f.spoil('acquire', '-ERR Größe é €\r\n'.encode())
    assert 'Größe é €' in a.ask('take', 'l', 0).words
    f.spoil('HELLO', b'%1\r\n$7\r\nversion\r\n$9\r\n5.0\x1b[31mx\r\n')
    b = Actor(f.url())
    b.lock('l', 'n')
    words = b.ask('take', 'l', 2000).be('PAWL_ENOTSUP').words
    assert '5.0' in words and words.isprintable(), repr(words)


if __name__ == '__main__':
    sys.exit(run(Live))
