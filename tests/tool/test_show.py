# SPDX-License-Identifier: Apache-2.0
"""pawl show, ls, break and latch."""
import json
import os
import re
import shutil
import signal
import sys
import unicodedata

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from screen import Terminal  # noqa: E402
from tool import main, wait_for  # noqa: E402


@case('show tells by its status whether it is held')
def status(box):
    code, out, _ = box.pawl('show', 'x')
    equal((code, out), (1, 'x: free\n'))
    holder, _ = box.holder('x')
    code, out, _ = box.pawl('show', 'x')
    equal(code, 0)
    assert 'held' in out and f'pid {holder.pid}' in out and '(sh)' in out and 'token' in out, out
    holder.terminate()
    box.end(holder)
    equal(box.status('show', 'x'), 1)


@case('show --json is one object with holders and waiters in order')
def show_json(box):
    free = box.show('x')
    equal((free['name'], free['held'], free['holders'], free['waiters']), ('x', False, [], []))
    holder, _ = box.holder('x')
    waiters = []
    for n in range(3):
        waiters.append(box.start('run', 'x', '--', 'true').pid)
        box.wait_waiters('x', n + 1)
    held = box.show('x')
    equal((held['held'], held['type'], held['shared']), (True, 'lock', False))
    equal([h['pid'] for h in held['holders']], [holder.pid])
    equal([w['pid'] for w in held['waiters']], waiters)
    person = held['holders'][0]
    equal(person['label'], 'sh')
    assert person['token'] > 0 and person['since_ms'] >= 0 and person['lease_ms'] > 0, person


@case('show --json of shared locks and semaphores')
def show_shared(box):
    box.holder('x', '-s')
    box.holder('x', '-s')
    shared = box.show('x')
    equal((shared['shared'], len(shared['holders'])), (True, 2))
    box.holder('y', '-p', '3')
    semaphore = box.show('y')
    equal((semaphore['type'], semaphore['capacity'], semaphore['available']), ('semaphore', 3, 2))
    assert '2 of 3 permits free' in box.pawl('show', 'y')[1]


@case('ls lists names in order, by pattern, as a table and as JSON')
def ls(box):
    equal(box.pawl('ls'), (0, '', 'pawl: no names in use\n'))
    equal(box.pawl('ls', 'q*'), (0, '', "pawl: no name in use matches 'q*'\n"))
    equal(json.loads(box.pawl('ls', '--json')[1]), [])
    holders = {name: box.holder(name)[0].pid for name in ('b', 'a:2', 'a:1')}
    code, out, err = box.pawl('ls')
    equal((code, err), (0, 'pawl: 3 names, 3 held, 0 waiting\n'))
    equal([line.split()[0] for line in out.splitlines()], ['NAME', 'a:1', 'a:2', 'b'])
    rows = json.loads(box.pawl('ls', 'a:*', '--json')[1])
    equal([row['name'] for row in rows], ['a:1', 'a:2'])
    equal(rows[0]['pid'], holders['a:1'])
    assert all(row['held'] for row in rows)


@case('ls makes room for long names')
def ls_long(box):
    for name in ('short', 'a-name-of-more-than-twenty-four-bytes', 'é' * 30):
        box.holder(name)
    lines = box.pawl('ls')[1].splitlines()
    equal(len(lines), 4)
    equal({line.find('lock ') for line in lines[1:]}, {lines[0].find('TYPE')}, 'the second column')


def width(text):
    return sum(2 if unicodedata.east_asian_width(c) in 'WF' else 1 for c in text)


@case('ls has host and lease, fits the terminal or COLUMNS, and aligns wide and broken names')
def ls_fits(box):
    holders = [box.holder(name)[0].pid for name in
               ('short', '锁' * 85, 'a-name-of-more-than-twenty-four-bytes', b'a\xffb')]
    box.start('run', 'short', '--', 'true')
    box.wait_waiters('short', 1)
    code, out, err = box.pawl('ls')
    lines = out.splitlines()
    equal((code, len(lines)), (0, 5))
    equal(lines[0].split(), ['NAME', 'TYPE', 'STATE', 'WAITING', 'SINCE', 'LEASE', 'HOST', 'HOLDER'])
    assert '锁' * 85 + ' ' in out and 'a\\xffb ' in out, out
    assert err.startswith('pawl: 4 names, 4 held, 1 waiting, longest wait '), err
    row = next(line for line in lines if line.startswith('short')).split()
    equal((row[1:4], row[6:]), (['lock', 'held', '1'], [os.uname().nodename, str(holders[0]), 'sh']))
    assert re.fullmatch(r'2\ds', row[5]), row
    _, out, _ = box.pawl('ls', env=dict(box.env, COLUMNS='80'))
    lines = out.splitlines()
    assert all(width(line) <= 80 for line in lines), lines
    column = lines[0].index('TYPE')
    for line in lines[1:]:
        name = line[:line.index(' lock ')]
        equal(width(name), column - 1, line)
    terminal = Terminal(box, 'ls', columns=70)
    equal(terminal.end(), 0)
    shown = terminal.lines()
    assert all(width(line) <= 70 for line in shown) and shown[0].startswith('NAME'), shown
    assert shown[5].startswith('pawl: 4 names'), shown
    summary = json.loads(box.pawl('ls', '--json', 'short')[1])[0]
    assert 0 < summary['lease_ms'] <= 30000 and summary['wait_ms'] >= 0, summary


@case('ls --watch lists again and again, until a signal or the end of its reader')
def ls_watch(box):
    with open(box.path('out'), 'w') as out:
        watch = box.start('ls', '--watch=100ms', '--json', stdout=out)
    wait_for('an empty list', lambda: '[]' in box.lines('out'))
    box.holder('x')
    wait_for('the lock', lambda: '"name":"x"' in box.read('out'))
    watch.terminate()
    equal(box.end(watch)[0], -signal.SIGTERM)
    terminal = Terminal(box, 'ls', '--watch')
    terminal.wait_for('NAME', 'x ', 'pawl: 1 name, 1 held')
    terminal.key('\x03')
    equal(terminal.end(), -signal.SIGINT)
    for bad in ('--watch=0', '--watch=soon'):
        equal(box.status('ls', bad), 64)


@case('show tells what --at-least has left over from what somebody holds')
def show_left_over(box):
    equal(box.status('run', '--at-least', '1h', 'x', '--', 'true'), 0)
    code, out, _ = box.pawl('show', 'x')
    equal(code, 0)
    assert '  kept by --at-least for another 59 min ' in out, out
    assert out.endswith(' (its command has ended)\n') and 'held by' not in out, out
    _, _, err = box.pawl('run', '-v', '-n', 'x', '--', 'true')
    assert 'kept by --at-least for another 59 min' in err, err


@case('break tells whether anybody held it')
def break_(box):
    code, out, err = box.pawl('break', 'x')
    equal((code, out), (1, ''))
    assert 'nobody' in err, err
    holder, _ = box.holder('x')
    broken = json.loads(box.pawl('break', '--json', 'x')[1])
    equal((broken['name'], broken['broken'], [h['pid'] for h in broken['holders']]),
          ('x', True, [holder.pid]))
    equal(box.end(holder)[0], 75)
    equal(json.loads(box.pawl('break', '--json', 'x')[1]),
          {'name': 'x', 'broken': False, 'holders': []})
    readers = [box.holder('x', '-s')[0] for _ in range(2)]
    code, out, err = box.pawl('break', 'x')
    equal((code, err, len(out.splitlines())), (0, '', 2))
    for reader, line in zip(readers, out.splitlines()):
        assert line.startswith(f"broke 'x', held by pid {reader.pid} (sh) on "), line
        equal(box.end(reader)[0], 75)


@case('control characters and broken text of others are printed harmlessly')
def harmless(box):
    evil = b'\x1b[31mred\r\n"\\\xff\xe2\x80\xae'
    shutil.copy('/bin/sleep', os.path.join(box.dir.encode(), evil))
    holder = box.start('run', 'x', '--', b'./' + evil, '1000')
    wait_for('the lock', lambda: box.status('show', 'x') == 0)
    for args in (('show', 'x'), ('ls',), ('run', '-v', '-n', 'x', '--', 'true')):
        _, out, err = box.pawl(*args)
        text = out + err
        assert '\x1b' not in text and '\r' not in text and '\u202e' not in text, repr(text)
        assert 'red' in text, repr(text)
    label = box.show('x')['holders'][0]['label']
    assert 'red' in label and '\x1b' in label, repr(label)
    _, out, _ = box.pawl('show', '--json', 'x')
    assert '\x1b' not in out and out.count('\n') == 1
    _, _, err = box.pawl('show', 'a\x1b]0;title\x07b')
    assert '\x1b' not in err and err, repr(err)
    holder.terminate()


@case('latch: set, get, down, wait')
def latch(box):
    equal(box.pawl('latch', 'get', 'l'), (0, '0\n', ''))
    equal(box.status('latch', 'wait', 'l'), 0, 'a latch that is not set')
    equal(box.status('latch', 'set', 'l', '2'), 0)
    code, _, err = box.pawl('latch', 'set', 'l', '5')
    equal(code, 1)
    assert err.startswith('pawl: '), err
    equal(box.pawl('latch', 'get', 'l'), (0, '2\n', ''))
    equal(box.status('latch', 'wait', '-n', 'l'), 1)
    equal(box.status('latch', 'wait', '-w', '50ms', 'l'), 1)
    waiter = box.start('latch', 'wait', 'l')
    equal(box.status('latch', 'down', 'l'), 0)
    equal(json.loads(box.pawl('latch', '--json', 'get', 'l')[1]), {'name': 'l', 'count': 1})
    equal(waiter.poll(), None, 'released too early')
    equal(box.status('latch', 'down', 'l'), 0)
    equal(box.end(waiter), (0, '', ''))
    equal(box.status('latch', 'down', 'l'), 0, 'at 0 already')


@case('a latch that is stuck: break says what to do, down -a does it')
def latch_stuck(box):
    equal(box.status('latch', 'set', 'stuck', '2'), 0)
    equal(box.pawl('break', 'stuck'),
          (1, '', "pawl: 'stuck' is a latch, 2 to go: count it down with "
                  "'pawl latch down stuck'\n"))
    waiter = box.start('latch', 'wait', 'stuck')
    wait_for('the waiter', lambda: box.show('stuck')['waiter_count'] == 1)
    equal(box.pawl('latch', 'down', '-a', 'stuck'), (0, '', ''))
    equal(box.end(waiter), (0, '', ''))
    equal(box.pawl('latch', 'get', 'stuck'), (0, '0\n', ''))
    equal(json.loads(box.pawl('latch', 'down', '-a', '--json', 'stuck')[1]),
          {'name': 'stuck', 'count': 0})


@case('a latch that does not open in time says so, one that is set already too')
def latch_words(box):
    equal(box.status('latch', 'set', 'l', '2'), 0)
    equal(box.pawl('latch', 'wait', '-w', '50ms', 'l'),
          (1, '', "pawl: the latch 'l' did not open within 50 ms\n"))
    equal(box.pawl('latch', 'wait', '-n', 'l'), (1, '', ''))
    equal(box.pawl('latch', 'set', 'l', '3'), (1, '', "pawl: 'l' is already set, 2 to go\n"))
    box.holder('x')
    for verb in (('set', 'x', '2'), ('down', 'x'), ('wait', 'x'), ('get', 'x')):
        equal(box.pawl('latch', *verb), (64, '', "pawl: 'x' is a lock, not a latch\n"))


@case('latch wait ends by a signal')
def latch_signal(box):
    equal(box.status('latch', 'set', 'l', '1'), 0)
    waiter = box.start('latch', 'wait', 'l')
    wait_for('the waiter', lambda: box.show('l')['waiter_count'] == 1)
    waiter.send_signal(signal.SIGINT)
    equal(box.end(waiter), (130, '', ''))
    equal(box.show('l')['waiter_count'], 0)
    equal(box.show('l')['count'], 1)


@case('wrong use of show, ls, break and latch is a usage error')
def bad_usage(box):
    for args in (('show',), ('show', 'a', 'b'), ('show', '-x', 'a'), ('ls', 'a', 'b'), ('break',),
                 ('break', 'a', 'b'), ('latch',), ('latch', 'what', 'x'), ('latch', 'set', 'x'),
                 ('latch', 'set', 'x', '0'), ('latch', 'set', 'x', 'many'), ('latch', 'get'),
                 ('latch', 'get', 'x', 'y'), ('latch', 'get', '-w', '5', 'x'),
                 ('latch', 'get', '-a', 'x'),
                 ('latch', 'wait', '-w', 'soon', 'x'), ('show', '--url'), ('--what',)):
        code, out, err = box.pawl(*args)
        equal((code, out), (64, ''), ' '.join(args))
        assert err.startswith('pawl: ') and err.count('\n') == 1, err


main()
