# SPDX-License-Identifier: Apache-2.0
"""Error texts of pawl: the reason and a remedy, and nothing unless there is an error or -v."""
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from tool import TOOL, main, wait_for  # noqa: E402


def itself(box, name, outer, inner):
    """`pawl run` inside a `pawl run` of the same name must neither wait nor run its command."""
    process = box.start('run', *outer, name, '--', TOOL, 'run', *inner, name, '--', 'echo', 'ran')
    equal(box.end(process),
          (64, '', f"pawl: '{name}' is held by the pawl run that started this command "
                   f"(pid {process.pid}): it would wait for itself\n"))


@case('a run inside the run that holds the lock is told that it would wait for itself')
def waits_for_itself(box):
    for outer, inner in (((), ()), ((), ('-s',)), (('-s',), ()), (('-p', '1'), ('-p', '1'))):
        itself(box, 'x', outer, inner)
    other = ('-u', 'local:' + box.path('other'))
    itself(box, 'x', other, ())
    itself(box, 'x', other, other)
    os.mkdir(box.path('odd:'))
    secret = ('-u', 'local:' + box.path('odd:') + '//me:secret@host')
    itself(box, 'x', secret, secret)


@case('what only looks like waiting for itself is let through')
def not_itself(box):
    def nested(outer, inner):
        return box.pawl('run', *outer, '--', TOOL, 'run', *inner, '--', 'echo', 'ran')
    equal(nested(('-s', 'x'), ('-s', 'x')), (0, 'ran\n', ''))
    equal(nested(('-p', '2', 'x'), ('-p', '2', 'x')), (0, 'ran\n', ''))
    equal(nested(('x',), ('y',)), (0, 'ran\n', ''))
    equal(nested(('x',), ('-u', 'local:' + box.path('other'), 'x')), (0, 'ran\n', ''))
    equal(nested(('x',), ('-n', '-E', '7', 'x')), (7, '', ''))
    code, out, err = nested(('x',), ('-w', '50ms', 'x'))
    equal((code, out), (1, ''))
    assert err.startswith("pawl: not acquired 'x' after "), err
    box.env.update(PAWL_NAME='x', PAWL_TOKEN='1')
    holder, _ = box.holder('x')
    waiter = box.start('run', 'x', '--', 'echo', 'ran')
    box.wait_waiters('x', 1)
    holder.terminate()
    equal(box.end(waiter), (0, 'ran\n', ''))


@case('a name that is something else is called by what it is')
def misfit(box):
    equal(box.status('latch', 'set', 'ready', '1'), 0)
    box.holder('sem', '-p', '2')
    box.holder('one', '-p', '1')
    box.holder('lock')
    for args, words in ((('ready',), "'ready' is a latch, not a lock"),
                        (('-s', 'ready'), "'ready' is a latch, not a lock"),
                        (('-p', '2', 'ready'), "'ready' is a latch, not a semaphore"),
                        (('sem',), "'sem' is a semaphore of 2 permits, not a lock"),
                        (('one',), "'one' is a semaphore of 1 permit, not a lock"),
                        (('-p', '3', 'sem'), "'sem' has 2 permits, not 3"),
                        (('-p', '3', 'lock'), "'lock' is a lock, not a semaphore")):
        for wait in ((), ('-n',)):
            equal(box.pawl('run', *wait, *args, '--', 'true'), (64, '', f'pawl: {words}\n'))


@case('a bad name is said plainly, whichever the command')
def names(box):
    for args in (('run', '', '--', 'true'), ('run', '-p', '2', '', '--', 'true'), ('show', ''),
                 ('break', ''), ('latch', 'get', '')):
        code, _, err = box.pawl(*args)
        equal(code, 64)
        assert err.startswith('pawl: the name is empty'), err


@case('a folder that fails is not taken for a service that is down')
def folder_advice(box):
    os.chmod(box.locks, 0o777)
    for url in (box.env['PAWL_URL'], 'trace:' + box.env['PAWL_URL']):
        code, _, err = box.pawl('show', '-u', url, 'x')
        equal(code, 69)
        assert 'local: ' in err and 'service is up' not in err, err


@case('-v tells who holds it while it waits, once')
def verbose_wait(box):
    holder, _ = box.holder('x')
    with open(box.path('err'), 'w') as err:
        waiter = box.start('run', '-v', 'x', '--', 'true', stderr=err)
    wait_for('the line', lambda: box.lines('err'))
    holder.terminate()
    equal(box.end(waiter)[0], 0)
    lines = box.lines('err')
    equal(len(lines), 1)
    assert lines[0].startswith("pawl: waiting for 'x' after "), lines
    assert f'held by pid {holder.pid} (sh)' in lines[0], lines


@case('a wait that lasts is reported once, with the holder, and without a wake-up before')
def late(box):
    holder, _ = box.holder('x')
    waiters = []
    for n, options in enumerate((('--warn-after', '1500ms'), ('--warn-after', '0'), ())):
        with open(box.path(f'err{n}'), 'w') as err:
            waiters.append(box.start('run', *options, 'x', '--', 'true', stderr=err))
        box.wait_waiters('x', n + 1)
    wait_for('the line', lambda: box.lines('err0'))
    line = box.lines('err0')[0]
    assert re.fullmatch(r"pawl: still waiting for 'x' after [\d.]+ s, place 1 of 3: held by "
                        rf'pid {holder.pid} \(sh\) on \S+ for [\d.]+ m?s, since \d\d:\d\d:\d\d', line), line
    time.sleep(2.5)
    holder.terminate()
    for n, waiter in enumerate(waiters):
        equal(box.end(waiter)[0], 0)
        equal(len(box.lines(f'err{n}')), n == 0, f'lines of waiter {n}')


@case('a wait that ends in vain says who holds it and since when; -n says nothing')
def in_vain(box):
    holder, _ = box.holder('x')
    box.holder('sem', '-p', '1')
    for args in (('x',), ('-s', 'x'), ('-p', '1', 'sem')):
        code, out, err = box.pawl('run', '-w', '50ms', *args, '--', 'true')
        equal((code, out), (1, ''))
        assert re.fullmatch(rf"pawl: not acquired '{args[-1]}' after [\d.]+ m?s: held by pid \d+ "
                            r'\(sh\) on \S+ for [\d.]+ m?s, since \d\d:\d\d:\d\d\n', err), err
    equal(box.pawl('run', '-n', 'x', '--', 'true'), (1, '', ''))


@case('mistyped commands, options, schemes and parameters: what may have been meant')
def meant(box):
    for args, words in ((('shwo', 'x'), "no command 'shwo' (did you mean 'show'?)"),
                        (('xyzzy',), "no command 'xyzzy'; there are run, "),
                        (('ls', '--jsn'), "unknown option '--jsn' (did you mean '--json'?)"),
                        (('run', '--wiat=3', 'x'), "unknown option '--wiat' (did you mean '--wait'?)"),
                        (('run', '--frobnicate', 'x'), "unknown option '--frobnicate'; see"),
                        (('-u', 'redsi://x', 'ls'), "no engine for 'redsi:'; did you mean 'redis:'?"),
                        (('-u', 'posgres://x', 'ls'), "did you mean 'postgres:'?"),
                        (('-u', 'local:?tiemout=3', 'ls'),
                         "unknown URL parameter 'tiemout' for local: (did you mean 'timeout'? "),
                        (('-u', 'redis://h?watchdgo=3', 'ls'), "(did you mean 'watchdog'? "),
                        (('-u', 'redis://h?frobnicate=3', 'ls'),
                         "unknown URL parameter 'frobnicate' for redis: (see pawl(7))")):
        code, out, err = box.pawl(*args)
        equal((code, out), (64, ''), ' '.join(args))
        assert err.startswith('pawl: ') and words in err and err.count('\n') == 1, err


@case('version lists engines, modules and libraries; a module that can\'t be loaded says why')
def versions(box):
    code, out, err = box.pawl('version')
    equal((code, err), (0, ''))
    assert re.search(r'^pawl      \d+\.\d+\.\d+\nlibraries libuv \d(.*\n)+engine    rediss +OpenSSL \d', out), out
    told = json.loads(box.pawl('version', '--json')[1])
    engines = {e['scheme']: e for e in told['engines']}
    assert {'local', 'memory', 'redis', 'quorum'} <= engines.keys(), engines
    assert not any(e['trouble'] for e in told['engines']), told
    built = {'screen': r'ncurses \d+\.\d+\S*', 'web': r'libmicrohttpd \d+\.\d+\S*'}
    for member, pattern in built.items():  # "": built without the library
        assert told[member] == '' or re.fullmatch(pattern, told[member]), (member, told)
        assert told[member] in out.splitlines()[1], (member, out)
    equal(told['web'] == '', 'without libmicrohttpd' in box.pawl('serve', 'too-much')[2])
    if 'postgres' in engines:
        assert re.fullmatch(r'libpq \d+\.\d+', engines['postgres']['libraries']), engines
    with open(box.path('pawl-odd.so'), 'w') as f:
        f.write('no module')
    told = json.loads(box.pawl('version', '--json', env=dict(box.env, PAWL_ENGINE_DIR=box.dir))[1])
    modules = [e for e in told['engines'] if e['module']]
    equal([e['scheme'] for e in modules], ['odd'])
    assert "can't load the engine for 'odd:'" in modules[0]['trouble'], modules
    equal(box.status('version', 'x'), 64)


@case('-v prints what a trace: URL traces, also inside another URL; without either nothing is')
def verbosity(box):
    trace = 'trace:' + box.env['PAWL_URL']
    wrapped = 'fault:seed=1;' + trace
    for args in (('-v', '-u', trace), ('-vv', '-u', trace), ('-v', '-u', wrapped)):
        code, _, err = box.pawl('run', *args, 'x', '--', 'true')
        equal(code, 0)
        assert 'pawl: > acquire "x"' in err and 'pawl: < release "x"' in err, err
    for args in (('-v',), ('-u', trace), ('-vv',)):
        code, _, err = box.pawl('run', *args, 'x', '--', 'true')
        equal(code, 0)
        assert 'acquire' not in err, err


@case('a wait that lasts because the service is silent says why')
def silent(box):
    url = 'fault:drop=100;' + box.env['PAWL_URL']
    with open(box.path('err'), 'w') as err:
        waiter = box.start('run', '-v', '-u', url, 'x', '--', 'true', stderr=err)
    wait_for('the reason', lambda: 'the request was lost' in box.read('err'))
    waiter.terminate()
    equal(box.end(waiter)[0], 143)
    line = next(line for line in box.lines('err') if 'the request was lost' in line)
    assert line.startswith("pawl: waiting for 'x' after "), line


def secret_url(box):
    """A URL of this machine that looks as if it had a password."""
    os.makedirs(box.path('odd:'), exist_ok=True)
    return 'local:' + box.path('odd:') + '//me:secret@host'


@case('a password in PAWL_URL or -u reaches neither the command nor ps')
def no_password_for_command(box):
    url = secret_url(box)
    env = dict(box.env, PAWL_URL=url)
    status, out, err = box.pawl('run', 'x', '--', 'env', env=env)
    equal((status, err), (0, ''))
    assert 'secret' not in out, out
    status, out, err = box.pawl('run', '-u', url, 'x', '--', 'env', env=env)
    equal((status, err), (0, ''))
    assert 'secret' not in out, out
    holder, _ = box.holder('y', '-u', url)
    with open(f'/proc/{holder.pid}/cmdline', 'rb') as f:
        assert b'secret' not in f.read()


@case('the URL comes from a file, or from a credential of systemd; one that is not there is an error')
def url_from_file(box):
    holder, _ = box.holder('x')
    del box.env['PAWL_URL']
    os.mkdir(box.path('credentials'))
    for path, variable in (('url', 'PAWL_URL_FILE'), ('credentials/pawl.url', None)):
        with open(box.path(path), 'w') as f:
            f.write('local:' + box.locks + '\n')
        env = dict(box.env)
        env[variable or 'CREDENTIALS_DIRECTORY'] = box.path(path if variable else 'credentials')
        equal(box.pawl('run', '-n', 'x', '--', 'true', env=env), (1, '', ''), path)
    env = dict(box.env, PAWL_URL_FILE=box.path('nowhere'))
    equal(box.pawl('run', '-n', 'x', '--', 'true', env=env),
          (64, '', f"pawl: can't read one line from '{box.path('nowhere')}'\n"))


main()
