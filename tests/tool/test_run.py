# SPDX-License-Identifier: Apache-2.0
"""pawl run: statuses, options, environment, and which commands run at the same time."""
import os
import resource
import signal
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import Skip, case, equal  # noqa: E402
import metrics  # noqa: E402
from tool import TOOL, main, wait_for, wake_ups  # noqa: E402


@case('the status is the command\'s')
def status(box):
    equal(box.status('run', 'x', '--', 'true'), 0)
    equal(box.status('run', 'x', '--', 'sh', '-c', 'exit 3'), 3)
    equal(box.status('run', 'x', 'sh', '-c', 'exit 4'), 4, 'without --')


@case('a command that a signal ended gives 128 plus the signal')
def killed(box):
    equal(box.status('run', 'x', '--', 'sh', '-c', 'kill -9 $$'), 137)
    equal(box.status('run', 'x', '--', 'sh', '-c', 'kill -TERM $$'), 143)


@case('a command that does not exist gives 127, one that can\'t be executed 126')
def cannot(box):
    code, _, err = box.pawl('run', 'x', '--', './nothing-here')
    equal(code, 127)
    assert err.startswith('pawl: ') and 'nothing-here' in err, err
    with open(box.path('plain'), 'w') as f:
        f.write('text')
    equal(box.status('run', 'x', '--', './plain'), 126)
    equal(box.status('show', 'x'), 1, 'and the lock is free again')


@case('arguments reach the command untouched, without a shell')
def arguments(box):
    code, out, _ = box.pawl('run', 'x', '--', 'printf', '%s|', 'a b', '$HOME', '-n', '--', '')
    equal((code, out), (0, 'a b|$HOME|-n|--||'))


@case('-n does not wait, and -E chooses the status')
def no_wait(box):
    box.holder('x')
    equal(box.pawl('run', '-n', 'x', '--', 'touch', 'ran'), (1, '', ''))
    equal(box.status('run', '-n', '-E', '99', 'x', '--', 'touch', 'ran'), 99)
    equal(box.status('run', '-E', '0', '-n', 'x', '--', 'touch', 'ran'), 0)
    assert not os.path.exists(box.path('ran')), 'it ran without the lock'


@case('-w waits no longer than asked')
def wait_limit(box):
    holder, _ = box.holder('x')
    equal(box.status('run', '-w', '0.05', 'x', '--', 'touch', 'ran'), 1)
    equal(box.status('run', '-w', '50ms', '-E', '7', 'x', '--', 'touch', 'ran'), 7)
    assert not os.path.exists(box.path('ran'))
    holder.terminate()
    equal(box.status('run', '-w', '1h', 'x', '--', 'touch', 'ran'), 0)
    assert os.path.exists(box.path('ran'))


@case('-v says who holds it')
def verbose(box):
    holder, _ = box.holder('x')
    code, _, err = box.pawl('run', '-v', '-n', 'x', '--', 'true')
    equal(code, 1)
    assert f'pid {holder.pid}' in err and '(sh)' in err, err


@case('flock\'s long options are taken')
def flock_options(box):
    box.holder('x')
    for option in ('--nonblock', '--nb', '--wait=0.05', '--timeout=50ms'):
        equal(box.status('run', option, '--conflict-exit-code', '9', 'x', '--', 'true'), 9, option)
    box.holder('y', '--shared')
    equal(box.status('run', '--shared', '--nb', 'y', '--', 'true'), 0)
    equal(box.status('run', '--nb', 'y', '--', 'true'), 1)


@case('-l wins over the URL\'s watchdog, for the lease and for --kill-after')
def lease_and_watchdog(box):
    url = box.env['PAWL_URL']
    box.holder('x', '-l', '1h', '-u', url + '?watchdog=2000', '--kill-after', '20m')
    assert box.show('x')['holders'][0]['lease_ms'] > 2000
    box.holder('y', '-l', '2s', '-u', url + '?watchdog=3600000')
    assert box.show('y')['holders'][0]['lease_ms'] <= 2000
    code, _, err = box.pawl('run', '-l', '2s', '--kill-after', '5s', '-u',
                            url + '?watchdog=3600000', 'z', '--', 'true')
    equal(code, 64)
    assert 'the lease of 2000ms' in err, err
    code, _, err = box.pawl('run', '--kill-after', '5s', '-u', url + '?watchdog=2000', 'z', '--',
                            'true')
    equal(code, 64)
    assert 'half of the lease' in err, err
    equal(box.status('run', '--', '-x', '--', 'true'), 0)  # a name that begins with a dash


@case('flock\'s options: -x, -e, -o, -c, and why -F and --unlock can\'t be')
def flock_options(box):
    env = dict(box.env, SHELL='')
    for args in (('-x', 'x', '-c', 'echo a; echo b'), ('-e', '-o', 'x', '--command', 'echo a; echo b'),
                 ('--exclusive', '--close', 'x', '--', 'sh', '-c', 'echo a; echo b')):
        equal(box.pawl('run', *args, env=env), (0, 'a\nb\n', ''))
    with open(box.path('shell'), 'w') as f:
        f.write('#!/bin/sh\necho "mine: $1 $2"\n')
    os.chmod(box.path('shell'), 0o700)
    equal(box.pawl('run', 'x', '-c', 'line', env=dict(env, SHELL=box.path('shell'))),
          (0, 'mine: -c line\n', ''))
    box.holder('y', '-x', '-s')
    equal(box.status('run', '-n', '-s', 'y', '--', 'true'), 0, '-s came last')
    equal(box.status('run', '-n', '-s', '-x', 'y', '--', 'true'), 1, '-x came last')
    for args, word in ((('-F', 'x', '--', 'true'), 'renew the lease'),
                       (('--no-fork', 'x', '--', 'true'), 'renew the lease'),
                       (('--unlock', 'x'), 'ends with the command'),
                       (('x', '-c'), 'one line'), (('x', '-c', 'a', 'b'), 'one line')):
        code, _, err = box.pawl('run', *args)
        equal(code, 64)
        assert word in err, err


@case('who waits does not wake up to look')
def no_polling(box):
    if os.environ.get('PAWL_SANITIZER') == 'thread':
        raise Skip('the sanitizer has a thread of its own that wakes up')
    box.holder('x', '-l', '1h')
    waiter = box.start('run', 'x', '--', 'true')
    box.wait_waiters('x', 1)
    wait_for('it to sleep', lambda: settled(waiter.pid))
    before = wake_ups(waiter.pid)
    time.sleep(3)
    equal(wake_ups(waiter.pid) - before, 0, 'wake-ups in three seconds')


def settled(pid):
    before = wake_ups(pid)
    time.sleep(0.3)
    return wake_ups(pid) == before


@case('a waiter runs as soon as the holder\'s command has ended')
def waits(box):
    holder, pid = box.holder('x')
    waiter = box.start('run', 'x', '--', 'sh', '-c', f'kill -0 {pid} 2>/dev/null && exit 9; exit 5')
    box.wait_waiters('x', 1)
    os.kill(pid, signal.SIGTERM)
    equal(box.end(holder)[0], 143)
    equal(box.end(waiter)[0], 5)


@case('the command sees PAWL_NAME and a PAWL_TOKEN that rises, and no PAWL_PASSWORD')
def environment(box):
    box.env['PAWL_PASSWORD'] = 'secret'
    last = 0
    for _ in range(3):
        code, out, _ = box.pawl('run', 'stock:42', '--', 'env')
        equal(code, 0)
        env = dict(line.split('=', 1) for line in out.splitlines() if '=' in line)
        equal(env['PAWL_NAME'], 'stock:42')
        assert int(env['PAWL_TOKEN']) > last, out
        assert 'PAWL_PASSWORD' not in env and 'secret' not in out
        last = int(env['PAWL_TOKEN'])


@case('the command finds the same service by PAWL_URL, without a password')
def url_for_command(box):
    other = 'local:' + box.path('other')
    equal(box.pawl('run', '-u', other, 'x', '--', 'printenv', 'PAWL_URL'), (0, other + '\n', ''))
    equal(box.pawl('-u', other, 'run', 'x', '--', TOOL, 'run', '-n', 'x', '--', 'true')[0], 1)
    os.mkdir(box.path('odd:'))
    secret = 'local:' + box.path('odd:') + '//me:secret@host'  # looks like a URL with a password
    equal(box.pawl('run', '-u', secret, 'x', '--', 'printenv', 'PAWL_URL'),
          (0, box.env['PAWL_URL'] + '\n', ''))


@case('the command gets back the signal mask and dispositions that pawl run was given')
def mask(box):
    def before():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, {signal.SIGUSR2})
    _, out, _ = box.pawl('run', 'x', '--', 'cat', '/proc/self/status', preexec_fn=before)
    fields = dict(line.split(':\t', 1) for line in out.splitlines() if ':\t' in line)
    ignored = int(fields['SigIgn'], 16)
    equal(int(fields['SigBlk'], 16), 1 << (signal.SIGUSR2 - 1), 'mask')
    for number in (signal.SIGHUP, signal.SIGCHLD):
        assert ignored >> (number - 1) & 1, f'{number} is no longer ignored'
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCONT, signal.SIGTTOU):
        assert not ignored >> (number - 1) & 1, f'{number} is ignored'


@case('the command inherits no descriptor that pawl run opened')
def descriptors(box):
    for options in ((), ('-p', '2')):
        _, out, _ = box.pawl('run', *options, 'x' + ''.join(options), '--', 'ls', '/proc/self/fd')
        equal(out.split(), ['0', '1', '2', '3'], 'the last is the folder that ls reads')


@case('shared runs go together, an exclusive one beside none')
def shared(box):
    first, _ = box.holder('x', '-s')
    equal(box.status('run', '-s', '-n', 'x', '--', 'true'), 0)
    equal(box.status('run', '-n', 'x', '--', 'true'), 1)
    first.terminate()
    box.end(first)
    equal(box.status('run', '-n', 'x', '--', 'true'), 0)
    box.holder('x')
    equal(box.status('run', '-s', '-n', 'x', '--', 'true'), 1)


@case('-p lets so many in and no more')
def permits(box):
    first, _ = box.holder('x', '-p', '2')
    box.holder('x', '-p', '2')
    equal(box.status('run', '-p', '2', '-n', '-E', '8', 'x', '--', 'true'), 8)
    waiter = box.start('run', '-p', '2', 'x', '--', 'sh', '-c', 'exit 6')
    box.wait_waiters('x', 1)
    first.terminate()
    equal(box.end(waiter)[0], 6)


@case('another capacity while it is in use is refused')
def capacity(box):
    box.holder('x', '-p', '2')
    code, _, err = box.pawl('run', '-p', '3', '-n', 'x', '--', 'true')
    equal(code, 64)
    assert err.startswith('pawl: '), err


@case('--at-least keeps the lock after a short command, though its process is gone')
def at_least(box):
    equal(box.status('run', '--at-least', '5s', 'x', '--', 'true'), 0)
    equal(box.status('run', '-n', 'x', '--', 'true'), 1)
    equal(box.status('run', '-w', '60', 'x', '--', 'true'), 0)


@case('words of other services in the URL do not change what --at-least and --kill-after do')
def words_in_url(box):
    for word in ('zk:', 'etcd:', 'layout=advisory', 'watchdog=', 'session='):
        url = 'local:' + box.path(word)
        os.mkdir(box.path(word), 0o700)
        first = box.start('run', '--at-least', '1h', '-u', url, 'x', '--', 'true')
        equal(box.end(first)[0], 0, word)  # pawl run itself does not stay for an hour
        equal(box.status('run', '-n', '-u', url, 'x', '--', 'true'), 1, word)
        waits = box.start('run', '--kill-after', '20s', '-u', url, 'x', '--', 'true')
        code, _, err = box.end(waits)  # refused before the wait begins
        equal(code, 64, word)
        assert 'half of the lease of 30000ms' in err, err


@case('20 contenders lose no update')
def contenders(box):
    with open(box.path('counter'), 'w') as f:
        f.write('0')
    script = f'''for i in 1 2 3 4 5; do
        "{TOOL}" run count -- sh -c 'n=$(cat counter); echo $((n + 1)) > counter' || exit 1
    done'''
    all_ = [subprocess.Popen(['sh', '-c', script], cwd=box.dir, env=box.env) for _ in range(20)]
    for process in all_:
        equal(process.wait(timeout=300), 0)
    equal(box.read('counter').strip(), '100')


def usage(box, *args):
    code, out, err = box.pawl(*args)
    equal((code, out), (64, ''), ' '.join(args))
    assert err.startswith('pawl: ') and err.count('\n') == 1 and '--help' in err, err


@case('what is no duration is a usage error')
def bad_durations(box):
    for text in ('', 'x', '-1', '1.5.2', '5 s', '5d', '5sec', 'inf', 'nan', '0x10', '1e3', '.',
                 'ms', '99999999999999999999', '9999999999h'):
        usage(box, 'run', '-w', text, 'x', '--', 'true')
    usage(box, 'run', '-l', '1ms', 'x', '--', 'true')


@case('every way to write a duration is taken')
def good_durations(box):
    for text in ('0', '5', '0.25', '.5', '1.', '250ms', '5s', '2m', '1h', '1.5h', '0.0001'):
        equal(box.status('run', '-w', text, 'x', '--', 'true'), 0, text)


@case('wrong options and arguments are usage errors')
def bad_usage(box):
    for args in ((), ('-n',), ('-Z', 'x', '--', 'true'), ('--what', 'x', '--', 'true'), ('x',),
                 ('x', '--'), ('x', '-n', '--', 'true'), ('-n', '-w', '5', 'x', '--', 'true'),
                 ('-p', '0', 'x', '--', 'true'), ('-p', '-1', 'x', '--', 'true'),
                 ('-p', 'two', 'x', '--', 'true'), ('-E', '256', 'x', '--', 'true'),
                 ('-E', '', 'x', '--', 'true'), ('-p', '2', '-s', 'x', '--', 'true'),
                 ('-p', '2', '--at-least', '1s', 'x', '--', 'true'), ('-w',),
                 ('--', 'true'), ('-n', '--', 'sh', '-c', 'true')):
        usage(box, 'run', *args)
    code, _, err = box.pawl('run', '-l', '4s', '--kill-after', '3s', 'x', '--', 'true')
    equal(code, 64)
    assert 'half of the lease' in err, err
    equal(box.status('run', '--', '-x', '--', 'true'), 0)  # a name that begins with a dash


@case('a bad name or URL is the caller\'s mistake, an unusable folder the service\'s')
def bad_service(box):
    for args in (('run', '', '--', 'true'), ('run', 'a\tb', '--', 'true'),
                 ('run', 'x' * 256, '--', 'true'), ('run', '-u', 'nosuch:', 'x', '--', 'true'),
                 ('run', '-u', 'local:' + box.locks + '?what=1', 'x', '--', 'true'),
                 ('run', '-u', 'local:' + box.path('no/such'), 'x', '--', 'true')):
        code, _, err = box.pawl(*args)
        equal(code, 64, ' '.join(args))
        assert err.startswith('pawl: ') and err.count('\n') == 1, err
    os.chmod(box.locks, 0o777)
    code, _, err = box.pawl('run', 'x', '--', 'true')
    equal(code, 69)
    assert err.startswith('pawl: ') and 'everybody can write' in err and err.count('\n') == 1, err


@case('-u wins over PAWL_URL, before and after the verb')
def urls(box):
    other = box.path('other')
    os.mkdir(other, stat.S_IRWXU)
    box.holder('x')
    equal(box.status('run', '-n', 'x', '--', 'true'), 1)
    equal(box.status('run', '-u', 'local:' + other, '-n', 'x', '--', 'true'), 0)
    equal(box.status('-u', 'local:' + other, 'run', '-n', 'x', '--', 'true'), 0)


@case('a signal ends the wait, gives up the place and is told by the status')
def signalled(box):
    box.holder('x')
    box.holder('y', '-p', '1')
    for name, options in (('x', ()), ('x', ('-s',)), ('y', ('-p', '1'))):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            waiter = box.start('run', *options, name, '--', 'touch', 'ran')
            box.wait_waiters(name, 1)
            waiter.send_signal(number)
            equal(box.end(waiter), (128 + number, '', ''), f'{name} {options} {number}')
            equal(box.show(name)['waiter_count'], 0, 'the place')
    assert not os.path.exists(box.path('ran'))


@case('help teaches by example, version and unknown commands answer')
def help_texts(box):
    for args in (('--help',), ('-h',), ('help',), ('run', '--help'), ('run', '-h'),
                 ('help', 'latch'), ('show', '--help'), ('ls', '-h'), ('break', '--help')):
        code, out, err = box.pawl(*args)
        equal((code, err), (0, ''), ' '.join(args))
        assert out.startswith('usage: pawl ') and '  pawl ' in out or 'pawl run backup' in out, out
    code, out, _ = box.pawl('--version')
    assert code == 0 and out.startswith('pawl 0.'), out
    code, _, err = box.pawl('frobnicate')
    equal(code, 64)
    assert 'there are run, show, ls, ' in err and 'break' in err, err
    equal(box.status(), 64, 'no command')


@case('with too few descriptors, however many: 71, the reason, and no files left')
def few_descriptors(box):
    for n in range(4, 64):
        limit = (n, n)
        code, _, err = box.pawl('run', '-n', 'x', '--', 'true',
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit))
        if code == 127 and 'shared libraries' in err:
            continue
        folder = box.locks + '/.pawl'
        left = set(os.listdir(folder)) - {'table'} if os.path.exists(folder) else set()
        equal(left, set(), f'files, with {n}')
        if code == 0:
            break
        equal(code, 71, f'with {n}: {err}')
        assert err.startswith('pawl: ') and 'Too many open files' in err, err
    else:
        raise AssertionError('never enough')


@case('a signal that comes while a wait begins ends the wait')
def early_signal(box):
    box.status('latch', 'set', 'l', '1')
    box.holder('s', '-p', '1')
    for words in (('latch', 'wait', 'l'), ('run', '-p', '1', 's', '--', 'true')):
        for i in range(40):
            process = box.start(*words)
            time.sleep(0.0005 * i)
            process.terminate()
            assert box.end(process)[0] in (-signal.SIGTERM, 128 + signal.SIGTERM)


@case('--metrics writes a whole file for the node_exporter: waiting, held, ended')
def metrics_file(box):
    holder, _ = box.holder('stock:7')
    waiter = box.start('run', '--metrics', 'x.prom', 'stock:7', '--', 'sh', '-c',
                       'cp x.prom held; exit 3')
    box.wait_waiters('stock:7', 1)
    before = metrics.samples(box.read('x.prom'))
    equal(before['pawl_run_acquired_time_seconds', 'stock:7'], 0)
    holder.terminate()
    box.end(holder)
    equal(box.end(waiter)[0], 3)
    held, ended = metrics.samples(box.read('held')), metrics.samples(box.read('x.prom'))
    assert (held['pawl_run_acquired_time_seconds', 'stock:7'] >=
            held['pawl_run_start_time_seconds', 'stock:7'] > 0), held
    equal((held['pawl_held', 'stock:*'], held['pawl_run_end_time_seconds', 'stock:7']), (1, 0))
    equal((ended['pawl_held', 'stock:*'], ended['pawl_released_total', 'stock:*']), (0, 1))
    equal(ended['pawl_run_exit_status', 'stock:7'], 3)
    equal([f for f in os.listdir(box.dir) if f.endswith('.tmp')], [])
    equal(os.stat(box.path('x.prom')).st_mode & 0o777, 0o644)


@case('metrics that cannot be written are reported, and the command runs')
def metrics_fail(box):
    code, out, err = box.pawl('run', '--metrics', 'no/such/folder/x', 'x', '--', 'echo', 'ran')
    equal((code, out), (0, 'ran\n'))
    equal(err.count("can't write the metrics to 'no/such/folder/x': No such file"), 1, err)


@case('TRACEPARENT reaches the command')
def traceparent(box):
    parent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
    env = dict(box.env, TRACEPARENT=parent, TRACESTATE='a=b')
    out = box.pawl('run', 'x', '--', 'sh', '-c', 'echo $TRACEPARENT $TRACESTATE', env=env)[1]
    equal(out, parent + ' a=b\n')


main()
