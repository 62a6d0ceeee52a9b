# SPDX-License-Identifier: Apache-2.0
"""pawl top on a real terminal: the screen, the keys, and how the program ends.

The pictures in docs/pictures are made here: PAWL_PICTURES=docs/pictures python3 test_top.py pictures
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from ports import free_port  # noqa: E402
from screen import DOWN, END, ENTER, ESCAPE, Terminal, svg  # noqa: E402
from tool import PATIENCE, main, wait_for  # noqa: E402

PICTURES = os.path.join(os.path.dirname(__file__), '..', '..', 'docs', 'pictures')
SHANGHAI = '订单:上海'


def columns(text):
    """The number of terminal columns that the text takes."""
    return sum(0 if unicodedata.combining(c) else
               2 if unicodedata.east_asian_width(c) in 'WF' else 1 for c in text)


def cell_columns(screen, y):
    """The line as a list of columns; the column after a wide character is empty."""
    return [screen.buffer[y][x].data for x in range(screen.columns)]


def places(screen, y, word):
    """The column at which the word begins."""
    line = cell_columns(screen, y)
    text = ''.join(c if c else '\0' for c in line)
    return text.find(word)


def scene(box):
    """Locks of all types: one contended, one shared, a semaphore, a latch, a wide name."""
    box.holder('stock:42')
    for n in range(3):
        box.start('run', 'stock:42', '--', 'true')
        box.wait_waiters('stock:42', n + 1)
    box.holder('backup')
    box.holder('backup-of-the-customer-database')
    box.holder('report', '-s')
    box.holder('report', '-s')
    box.holder('convert', '-p', '4')
    box.holder(SHANGHAI)
    box.start('run', SHANGHAI, '--', 'true')
    box.wait_waiters(SHANGHAI, 1)
    equal(box.status('latch', 'set', 'ready', '2'), 0)


NAMES = ('stock:42', 'backup', 'report', 'convert', SHANGHAI, 'ready')


def rows_of(lines):
    """The lines between the titles and the keys."""
    return [line for line in lines[3:-1] if line]


def check_list(terminal, width, height):
    terminal.check(lambda: list_holds(terminal, width, height))


def list_holds(terminal, width, height):
    lines = terminal.lines()
    equal(len(lines), height)
    assert lines[0].startswith('pawl top  local:') and 'every 2s' in lines[0], lines[0]
    assert '7 names, 7 held, 4 waiting, longest wait' in lines[1], lines[1]
    equal(lines[2].split(), ['NAME', 'STATE', 'WAIT', 'OLDEST', 'SINCE', 'LEASE', 'TOKEN', 'HOST',
                             'HOLDER'])
    rows = rows_of(lines)
    equal(len(rows), 7)
    assert rows[0].startswith('stock:42') and rows[1].startswith(SHANGHAI[0]), rows
    assert all(columns(line) <= width for line in lines), lines
    assert 'q quit' in lines[-1], lines[-1]
    for word in (' held ', 'shared 2', '3/4 free', '2 to go'):
        assert word in terminal.text(), word
    check_columns(terminal.screen, len(rows))


def check_columns(screen, nrows):
    """Check that the state of every row begins under the title STATE, whatever the name."""
    column = places(screen, 2, 'STATE')
    for y in range(3, 3 + nrows):
        line = cell_columns(screen, y)
        equal(line[column - 1], ' ', f'row {y}: {line}')
        assert line[column] in 'hsf0123456789', f'row {y}: {line}'


@case('the list fits 80x24 and 160x50, the hottest first, and every column is aligned')
def sizes(box):
    scene(box)
    for width, height in ((80, 24), (160, 50)):
        terminal = Terminal(box, 'top', columns=width, lines=height)
        terminal.wait_for('stock:42', '7 names')
        check_list(terminal, width, height)
        terminal.key('q')
        equal(terminal.end(), 0)
        terminal.close()


@case('a resize is followed, down to a size that has no room')
def resize(box):
    scene(box)
    terminal = Terminal(box, 'top')
    terminal.wait_for('stock:42', '7 names')
    for width, height in ((160, 50), (40, 10), (80, 24)):
        terminal.resize(width, height)
        terminal.wait('the keys in the last line', lambda _, h=height:
                      'Enter open' in terminal.screen.display[h - 1] and
                      '7 names' in terminal.screen.display[1] and
                      terminal.screen.display[2].startswith('NAME'))
        terminal.check(lambda w=width: equal(
            [line for line in terminal.lines() if columns(line) > w], []))
    for width, height in ((5, 3), (1, 1), (200, 2), (80, 24)):
        terminal.resize(width, height)
        time.sleep(0.05)
    terminal.wait_for('stock:42', '7 names', 'q quit')
    check_list(terminal, 80, 24)
    terminal.key('q')
    equal(terminal.end(), 0)


@case('sort by each key, reverse, filter by a part and by a glob')
def sort_filter(box):
    scene(box)
    terminal = Terminal(box, 'top')
    terminal.wait_for('7 names')

    def first(*names):
        return lambda _: [r.split()[0] for r in rows_of(terminal.lines())][:len(names)] == [*names]
    terminal.key('n')
    terminal.wait_for('by name')
    terminal.wait('the first name', first('backup'))
    terminal.key('r')
    terminal.wait_for('by name, reversed')
    terminal.wait('the last name', lambda _: [r.split()[0] for r in
                                              rows_of(terminal.lines())][-1:] == ['backup'])
    terminal.key('r')
    terminal.key('l')
    terminal.wait_for('by longest wait')
    terminal.wait('the longest', first('stock:42'))
    terminal.key('s')
    terminal.wait_for('by held since')
    terminal.wait('the oldest', first('stock:42', 'backup'))
    terminal.key('/back')
    terminal.wait('only two', lambda _: len(rows_of(terminal.lines())) == 2)
    terminal.key('\x7f\x7f\x7f\x7f上')
    terminal.wait('only one', lambda _: len(rows_of(terminal.lines())) == 1)
    terminal.key(ENTER)
    terminal.wait_for("only '上'")
    terminal.key('/\x7fre?*' + ENTER)
    terminal.wait_for("only 're?*'")
    terminal.check(lambda: equal(sorted(r.split()[0] for r in rows_of(terminal.lines())),
                                 ['ready', 'report']))
    terminal.key('/zzz')
    terminal.wait_for("no name passes the filter 're?*zzz'")
    terminal.key(ESCAPE)
    terminal.wait('the filter from before', lambda _: len(rows_of(terminal.lines())) == 2)
    terminal.key(ESCAPE)
    terminal.wait('all', lambda _: len(rows_of(terminal.lines())) == 7)
    terminal.key('q')
    equal(terminal.end(), 0)


@case('an open lock shows its holder and its queue in order')
def open_lock(box):
    holder, _ = box.holder('x')
    waiters = []
    for n in range(30):
        waiters.append(box.start('run', 'x', '--', 'true').pid)
    box.wait_waiters('x', 30)
    waiters = [w['pid'] for w in box.show('x')['waiters']]
    terminal = Terminal(box, 'top')
    terminal.wait_for('1 name, 1 held, 30 waiting')
    terminal.key(ENTER)
    terminal.wait_for("'x': lock held, 30 waiting", 'holds', ' 1. ')

    def in_order():
        rows = rows_of(terminal.lines())
        equal(len(rows), 20)
        equal(rows[0].split()[:2], ['holds', str(holder.pid)])
        equal([row.split()[:2] for row in rows[1:]],
              [[f'{n + 1}.', str(pid)] for n, pid in enumerate(waiters[:19])])
    terminal.check(in_order)
    terminal.key(END)
    terminal.wait_for('30. ' + str(waiters[-1]))
    terminal.key(ESCAPE)
    terminal.wait_for('1 name, 1 held')
    terminal.key('q')
    equal(terminal.end(), 0)


@case('break names the victim and asks first; anything but y leaves the lock alone')
def break_(box):
    holder, _ = box.holder('stock:42')
    other, _ = box.holder('backup')
    terminal = Terminal(box, 'top')
    terminal.wait_for('2 names')
    terminal.key('n' + DOWN + 'b')
    terminal.wait_for(f"Break 'stock:42', held by pid {holder.pid} (sh) on ", '? [y/N]')
    terminal.key('n')
    terminal.wait_for('not broken')
    equal(box.status('show', 'stock:42'), 0)
    terminal.key('b')
    terminal.wait_for('? [y/N]')
    terminal.key('y')
    terminal.wait_for(f"broke 'stock:42', held by pid {holder.pid} (sh) on ")
    equal(box.end(holder)[0], 75)
    terminal.wait_for('1 name, 1 held')
    equal(other.poll(), None)
    terminal.key('q')
    equal(terminal.end(), 0)


@case('a lock that changed hands after the question is not broken')
def break_other(box):
    holder, _ = box.holder('x')
    terminal = Terminal(box, 'top')
    terminal.wait_for('1 name')
    terminal.key(ENTER + 'b')
    terminal.wait_for('? [y/N]')
    holder.terminate()
    box.end(holder)
    second, _ = box.holder('x')
    terminal.key('y')
    terminal.wait_for("'x' not broken: somebody else holds the lock by now")
    equal(second.poll(), None)
    equal(box.status('show', 'x'), 0)
    second.terminate()
    box.end(second)
    terminal.key('b')
    terminal.wait_for("nobody holds 'x'")
    terminal.key('q')
    equal(terminal.end(), 0)


def started(box, **options):
    terminal = Terminal(box, 'top', term='xterm-256color', **options)
    wait_for('the full screen', lambda: terminal.feed() or b'\x1b[?1049h' in terminal.raw)
    wait_for('the keys', lambda: terminal.feed() or b'quit' in terminal.raw)
    return terminal


def check_restored(terminal, what):
    terminal.feed()
    assert terminal.restored(), what + ': the modes'
    left, shown = terminal.raw.rfind(b'\x1b[?1049l'), terminal.raw.rfind(b'\x1b[?25h')
    assert left > terminal.raw.rfind(b'\x1b[?1049h'), what + ': still on the full screen'
    assert shown > terminal.raw.rfind(b'\x1b[?25l'), what + ': the cursor is hidden'
    terminal.close()


@case('the terminal is restored after q, ^C, SIGTERM, SIGINT, SIGHUP, SIGQUIT and a crash')
def restored(box):
    box.holder('x')
    terminal = started(box)
    terminal.key('q')
    equal(terminal.end(), 0)
    check_restored(terminal, 'q')
    terminal = started(box)
    terminal.key('\x03')
    equal(terminal.end(), 130)
    check_restored(terminal, '^C')
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        terminal = started(box)
        terminal.process.send_signal(number)
        equal(terminal.end(), 128 + number)
        check_restored(terminal, number.name)
    for number in (signal.SIGSEGV, signal.SIGABRT):
        terminal = started(box)
        terminal.process.send_signal(number)
        equal(terminal.end(), -number)
        check_restored(terminal, number.name)


@case('^Z gives the terminal back, and fg takes it again')
def stopped(box):
    box.holder('x')
    # a process of an orphaned group can't be stopped by ^Z, so its parent is in the session, too
    terminal = Terminal(box, term='xterm-256color', command=[
        sys.executable, '-c',
        'import os, signal, sys\n'
        'signal.signal(signal.SIGTTOU, signal.SIG_IGN)\n'
        'child = os.fork()\n'
        'if not child:\n'
        '    os.setpgid(0, 0); os.tcsetpgrp(0, os.getpid())\n'
        '    signal.signal(signal.SIGTTOU, signal.SIG_DFL)\n'
        f'    os.execv({os.environ["PAWL_TOOL"]!r}, ["pawl", "top"])\n'
        'while True:\n'
        '    _, status = os.waitpid(child, os.WUNTRACED)\n'
        '    if not os.WIFSTOPPED(status): break\n'
        '    os.tcsetpgrp(0, os.getpid())\n'
        '    print("STOPPED", flush=True)\n'
        '    sys.stdin.readline()\n'
        '    os.tcsetpgrp(0, child); os.kill(child, signal.SIGCONT)\n'
        'print("ENDED", os.waitstatus_to_exitcode(status), flush=True)\n'])
    wait_for('the keys', lambda: terminal.feed() or b'quit' in terminal.raw)
    wait_for('its own modes', lambda: not terminal.restored())
    terminal.settle()
    terminal.key('\x1a')
    wait_for('the stop', lambda: terminal.feed() or b'STOPPED' in terminal.raw)
    assert terminal.restored(), 'the modes while it is stopped'
    assert 0 < terminal.raw.rfind(b'\x1b[?1049l') < terminal.raw.rfind(b'STOPPED')
    before = len(terminal.raw)
    terminal.key('\n')
    wait_for('it to be back', lambda: terminal.feed() or b'quit' in terminal.raw[before:])
    assert b'\x1b[?1049h' in terminal.raw[before:], 'the full screen again'
    assert not terminal.restored(), 'its own modes again'
    terminal.key('q')
    wait_for('the end', lambda: terminal.feed() or b'ENDED 0' in terminal.raw)
    equal(terminal.end(), 0)
    check_restored(terminal, 'after ^Z and q')


# wait until the job has stopped because it wants the terminal
IN_BACKGROUND = 'until [ -n "$(jobs -s)" ]; do sleep 0.1; done'
KILL = 'kill %1; while kill -0 %1; do sleep 0.1; done; jobs\r'


def in_shell(box, line):
    """Start bash on a terminal, type the line, and wait for the screen of pawl top."""
    terminal = Terminal(box, term='xterm-256color', command=['bash', '--norc', '--noediting', '-i'],
                        env={'PS1': 'PROMPT> ', 'PAWL': os.environ['PAWL_TOOL']})
    typed(terminal, line, 'q quit')
    return terminal


def typed(terminal, keys, *answers):
    """Type the keys, and wait for the answers, one after the other."""
    at = len(terminal.raw)
    terminal.key(keys)
    for answer in answers:
        wait_for(answer, lambda word=answer.encode(), begin=at: terminal.feed() or
                 word in terminal.raw[begin:])
        at = terminal.raw.find(answer.encode(), at)
    terminal.settle()


@case('a shell can stop it, continue it in the background, and kill it there')
def jobs(box):
    box.holder('x')
    terminal = in_shell(box, '"$PAWL" top\r')
    for way in ('fg\r', 'kill -CONT %1; ' + IN_BACKGROUND + '; fg\r'):
        typed(terminal, '\x1a', '\x1b[?1049l', 'Stopped', 'PROMPT> ')
        typed(terminal, way, '\x1b[?1049h', '1 name, 1 held', 'q quit')
        typed(terminal, '?', 'any key: back')
        typed(terminal, ' ', 'q quit')
    typed(terminal, '\x1a', '\x1b[?1049l', 'Stopped', 'PROMPT> ')
    typed(terminal, KILL, 'Exit 143', 'PROMPT> ')
    typed(terminal, '"$PAWL" top\r', 'q quit', '1 name, 1 held')
    typed(terminal, '\x1a', '\x1b[?1049l', 'Stopped', 'PROMPT> ')
    typed(terminal, 'bg; ' + IN_BACKGROUND + '\r', 'PROMPT> ')
    typed(terminal, KILL, 'Exit 143', 'PROMPT> ')
    typed(terminal, '"$PAWL" top & ' + IN_BACKGROUND + '\r', 'PROMPT> ')
    typed(terminal, 'fg\r', '\x1b[?1049h', '1 name, 1 held')
    typed(terminal, 'q', '\x1b[?1049l', 'PROMPT> ')
    typed(terminal, '"$PAWL" top & ' + IN_BACKGROUND + '\r', 'PROMPT> ')
    typed(terminal, KILL, 'Terminated', 'PROMPT> ')
    typed(terminal, 'exit\r', 'exit')
    check_restored(terminal, 'the end of the shell')


@case('^C and ^Z that the caller ignores stay ignored')
def ignored(box):
    box.holder('x')
    terminal = Terminal(box, term='xterm-256color', command=[
        'sh', '-c', 'trap "" INT TSTP; exec "$0" top', os.environ['PAWL_TOOL']])
    wait_for('the keys', lambda: terminal.feed() or b'q quit' in terminal.raw)
    wait_for('its own modes', lambda: not terminal.restored())
    typed(terminal, '\x03\x1a?', 'any key: back')
    terminal.key('qq')
    equal(terminal.end(), 0)
    check_restored(terminal, 'ignored signals')


@case('a terminal that does not bring back its lines gets an empty one for the prompt')
def last_line(box):
    terminal = Terminal(box, 'top')
    terminal.wait_for('no names in use', 'q quit')
    terminal.key('q')
    equal(terminal.end(), 0)
    lines = terminal.lines()
    assert lines[0].startswith('pawl top') and lines[-1] == '', lines


@case('names and labels of others are harmless and aligned')
def hostile(box):
    evil = b'\x1b[31mred\x1b]0;title\x07\r\n\xff\xe2\x80\xae'
    shutil.copy('/bin/sleep', os.path.join(box.dir.encode(), evil))
    for name in ('plain', '锁' * 85, 'a\u0301\u0301\u0301\u0301\u0301b', 'x\u200b\u200dy\ufeff',
                 '\\x1b[2J', b'inv\xffalid\xc3', 'tab-\u0300' + 'é' * 40, '\U0001f512lock', '"<script>'):
        box.start('run', name, '--', b'./' + evil, '1000')
    wait_for('nine names', lambda: box.pawl('ls', '--json')[1].count('"name"') == 9)
    for width in (80, 160):
        terminal = Terminal(box, 'top', columns=width, env={'NO_COLOR': '1'})
        terminal.wait_for('9 names', 'plain')
        terminal.key('n')
        terminal.wait_for('by name')
        check_columns(terminal.screen, 9)
        assert all(columns(line) <= width for line in terminal.lines())
        for bad in (b'\x1b[31m', b'title\x07', b'\xff', b'\xe2\x80\xae', '\u200b'.encode()):
            assert bad not in terminal.raw, bad
        terminal.key('/锁' + ENTER)
        terminal.wait_for("only '锁'")
        terminal.key(ENTER)
        terminal.wait_for("'锁锁锁", '\\x1b[31m')
        terminal.key('b')
        text = terminal.wait_for("Break '锁锁锁", 'held by pid', '? [y/N]')
        assert text.count('锁') >= 85, 'the question has the whole name'
        terminal.key('nq')
        equal(terminal.end(), 0)
        terminal.close()


@case('without UTF-8 other characters are escapes')
def ascii_only(box):
    box.holder(SHANGHAI)
    terminal = Terminal(box, 'top', env={'LC_ALL': 'C'})
    terminal.wait_for('\\u8ba2', '1 name')
    assert terminal.raw.isascii()
    terminal.key('q')
    equal(terminal.end(), 0)


@case('colours on a terminal that has them, none with NO_COLOR')
def colours(box):
    box.holder('x')
    box.start('run', 'x', '--', 'true')
    box.wait_waiters('x', 1)
    colour = re.compile(rb'\x1b\[[0-9;]*[34][0-7]m')
    for env, some in (({}, True), ({'NO_COLOR': '1'}, False), ({'NO_COLOR': ''}, True)):
        terminal = Terminal(box, 'top', env=env)
        terminal.wait_for('1 name, 1 held, 1 waiting')
        equal(bool(colour.search(terminal.raw)), some, str(env))
        terminal.key('q')
        equal(terminal.end(), 0)
        terminal.close()


@case('where there is no terminal, or an unknown one, it says so')
def no_terminal(box):
    code, out, err = box.pawl('top')
    equal((code, out), (64, ''))
    assert 'needs a terminal' in err and 'pawl ls' in err, err
    for term, word in (('', 'TERM is not set'), ('no-such-type', 'unknown type'),
                       ('dumb', 'move its cursor')):
        terminal = Terminal(box, 'top', term=term)
        equal(terminal.end(), 64, term)
        assert word in terminal.raw.decode(), terminal.raw
        assert terminal.restored()
        terminal.close()
    for args in (('top', 'a', 'b'), ('top', '-i', '0'), ('top', '--json'), ('top', '-i', 'soon')):
        equal(box.status(*args), 64, ' '.join(args))


class Redis:
    """A Redis server for this case alone."""

    def __init__(self, box):
        self.box = box
        self.port = free_port()
        self.url = f'redis://127.0.0.1:{self.port}?timeout=1000'
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            ['redis-server', '--port', str(self.port), '--save', '', '--dir', self.box.dir],
            stdout=subprocess.DEVNULL, start_new_session=True)
        self.box.started.append(self.process)
        wait_for('the server', lambda: self.cli('PING') == 'PONG')

    def cli(self, *args, stdin=None):
        done = subprocess.run(['redis-cli', '-p', str(self.port), *args], input=stdin,
                              capture_output=True, timeout=PATIENCE)
        return done.stdout.decode().strip()


@case('a service that does not answer is shown as such, with the age of the data')
def silent(box):
    server = Redis(box)
    box.env['PAWL_URL'] = server.url
    box.holder('stock:42', '-l', '1h')
    terminal = Terminal(box, 'top', '-i', '200ms')
    terminal.wait_for('1 name, 1 held', 'stock:42')
    server.process.send_signal(signal.SIGSTOP)
    text = terminal.wait_for('NO ANSWER', 'data are ')
    assert 'stock:42' in text and 'no names' not in text, text
    terminal.wait('an age of seconds', lambda t: re.search(r'data are [2-9]s old', t))
    server.process.send_signal(signal.SIGCONT)
    terminal.wait('the answer', lambda t: 'NO ANSWER' not in t and '1 name, 1 held' in t)
    server.process.kill()
    server.process.wait()
    text = terminal.wait_for('NO ANSWER for ', 'data are ', 'stock:42')
    assert 'no names' not in text, text
    terminal.key(ENTER)
    text = terminal.wait_for('NO ANSWER', 'no data yet')
    assert 'nobody holds' not in text, text
    terminal.key(ESCAPE)
    server.start()
    terminal.wait('the new server', lambda t: 'NO ANSWER' not in t)
    terminal.key('q')
    equal(terminal.end(), 0)
    assert terminal.restored()


@case('q and SIGTERM end it at once while the service is silent; one that is down at first is awaited')
def quit_silent(box):
    server = Redis(box)
    box.env['PAWL_URL'] = server.url.replace('timeout=1000', 'timeout=60000')
    for ending, status in (('q', 0), (None, 143)):
        terminal = started(box)
        server.process.send_signal(signal.SIGSTOP)
        terminal.key(' ')
        wait_for('the alarm', lambda t=terminal: t.feed() or b'NO ANSWER' in t.raw)
        if ending:
            terminal.key(ending)
        else:
            terminal.process.terminate()
        begun = time.monotonic()
        equal(terminal.end(), status)
        assert time.monotonic() - begun < 30, 'it waited for the service'
        check_restored(terminal, 'a silent service')
        server.process.send_signal(signal.SIGCONT)
    server.process.kill()
    server.process.wait()
    terminal = Terminal(box, 'top', '-u', server.url)
    text = terminal.wait_for('NO ANSWER for ', 'no data yet: ')
    assert 'no names' not in text, text
    server.start()
    terminal.wait_for('0 names, 0 held', 'no names in use')
    terminal.key('q')
    equal(terminal.end(), 0)


@case('a service that answers with an error is shown with its words, not as silent or empty')
def refused(box):
    server = Redis(box)
    server.cli('CONFIG', 'SET', 'requirepass', 'secret')
    box.env['PAWL_URL'] = server.url
    box.env['PAWL_PASSWORD'] = 'secret'
    box.holder('stock:42', '-l', '1h')
    terminal = Terminal(box, 'top', '-i', '200ms')
    terminal.wait_for('1 name, 1 held', 'stock:42')
    server.cli('-a', 'secret', 'ACL', 'SETUSER', 'default', '-evalsha', '-eval', '-scan')
    text = terminal.wait_for('FAILS for ', 'data are ', 'stock:42')
    assert 'NO ANSWER' not in text and 'no names' not in text and 'secret' not in text, text
    terminal.key('q')
    equal(terminal.end(), 0)


@case('it ends when its terminal goes away, also if SIGHUP is ignored')
def hangup(box):
    box.holder('x')
    for command in (None, ['sh', '-c', 'trap "" HUP; exec "$0" top', os.environ['PAWL_TOOL']]):
        terminal = Terminal(box, 'top', command=command)
        terminal.wait_for('1 name, 1 held')
        terminal.close()
        equal(terminal.process.wait(timeout=PATIENCE), 129, str(command))


@case('ten thousand locks: one listing per interval, and keys are answered meanwhile')
def many(box):
    server = Redis(box)
    now = int(time.time() * 1000)
    lines = ''.join(f'SET pawl:stock:{n:05} "pawl x {n + 1:x}:1 {n + 1} 1 {now} ." PX 3600000\n'
                    for n in range(10000))
    server.cli(stdin=lines.encode())
    equal(server.cli('DBSIZE'), '10000')
    log = box.path('log')
    url = server.url.replace('timeout=1000', 'timeout=60000')  # for a crowded machine
    terminal = Terminal(box, command=[
        'sh', '-c', f'exec "$0" top -v -v -i 1s -u "trace:{url}" 2>"{log}"',
        os.environ['PAWL_TOOL']])
    terminal.wait_for('10000 names, 10000 held')
    begun = time.monotonic()
    terminal.key('n' + END)
    terminal.wait_for('stock:09999')
    terminal.key('/:00042')
    terminal.wait('one row', lambda _: len(rows_of(terminal.lines())) == 1)
    terminal.key(ENTER)
    terminal.wait_for("only ':00042'")
    stalled = time.monotonic() - begun
    assert stalled < 20, stalled
    wait_for('a few listings', lambda: box.read('log').count('> list') >= 4)
    seconds = time.monotonic() - begun
    lists = box.read('log').count('> list')
    assert lists <= seconds + 6, (lists, seconds)
    equal(box.read('log').count('> inspect'), 0)
    terminal.key(ENTER)
    terminal.wait_for("'stock:00042': lock held")
    lists = box.read('log').count('> list')
    wait_for('inspections', lambda: box.read('log').count('> inspect') >= 3)
    assert box.read('log').count('> list') <= lists + 1, 'no listing while a lock is open'
    terminal.key('q')
    equal(terminal.end(), 0)
    print(f'# 10000 locks: {stalled:.2f} s for four keys', flush=True)


def word_shape(word):
    return ('URL' if word.startswith('local:') else
            '#' if re.fullmatch(r'\d\d:\d\d:\d\d', word) else
            '#' if any(c.isdigit() for c in word) and ':' not in word else
            re.sub('.*~$', '~', word))


def shape(text):
    """A picture without the parts that differ between runs and hosts: numbers, times, the folder,
    and in each row the text after the first number."""
    lines = []
    for y, line in enumerate(text.splitlines()):
        words = [word_shape(w) for w in re.sub(r' for [^?]*\?', ' for 1s?', line).split()]
        if y > 2 and '#' in words and 'Break' not in words:
            words = words[:words.index('#')]
        lines.append(' '.join(words).replace(' on ' + os.uname().nodename, ' on vm'))
    return lines


def picture(name, terminal):
    """Write the picture as text and as SVG, or check that the one in docs/ still has this shape."""
    text = '\n'.join(terminal.lines()) + '\n'
    folder = os.environ.get('PAWL_PICTURES')
    if folder:
        for end, content in (('.txt', text), ('.svg', svg(terminal.screen))):
            with open(os.path.join(folder, name + end), 'w') as f:
                f.write(content)
        return
    with open(os.path.join(PICTURES, name + '.txt')) as f:
        kept = f.read()
    equal(shape(kept), shape(text), f'{name} has another shape; make it anew')
    drawn = xml.etree.ElementTree.parse(os.path.join(PICTURES, name + '.svg')).getroot()
    words = ''.join(drawn.itertext()).split()
    assert set(kept.split()) <= set(words) | set(kept.splitlines()[0].split()), 'made separately'


@case('the pictures in the documentation are what the screen shows')
def pictures(box):
    scene(box)
    for width, height in ((80, 24), (160, 50)):
        terminal = Terminal(box, 'top', columns=width, lines=height)
        check_list(terminal, width, height)
        picture(f'top-{width}x{height}', terminal)
        if width == 80:
            terminal.key(ENTER)
            terminal.wait_for('holds', ' 3. ')
            picture('top-lock-80x24', terminal)
            terminal.key('b')
            terminal.wait_for('[y/N]')
            picture('top-break-80x24', terminal)
            terminal.key('n')
        terminal.key('q')
        equal(terminal.end(), 0)
        terminal.close()


main()
