# SPDX-License-Identifier: Apache-2.0
"""Hostile names and labels (tests/lib/hostile.py) in every output of the command, and in the library's
metrics: no output has a control character or a mark that changes the direction of the text, every output is
UTF-8, JSON and metrics are read by real parsers, and no name is run or taken for an option.
"""
import contextlib
import json
import os
import pty
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, equal  # noqa: E402
from hostile import CHINESE, HOSTILE, LABEL, LISTED, clean, plant, shown  # noqa: E402
import metrics  # noqa: E402
from redis_live import Live  # noqa: E402
import shells  # noqa: E402
from tool import TOOL, main, wait_for  # noqa: E402

LONG = (CHINESE * 20).encode()[:255]  # the name that leaves least room for other words
RUN = [name for name in LISTED if not name.startswith(b'-')]  # `pawl run` would take it for an option
CONTROL = [name for name in HOSTILE if name not in LISTED]


class Service:
    """A service where an actor with the hostile label holds every listed name."""

    def __init__(self, box, url):
        self.box, self.url = box, url
        box.env['PAWL_URL'] = url
        box.env.pop('COLUMNS', None)
        self.actor = Actor(url, LABEL)
        for i, name in enumerate(LISTED):
            self.actor.lock(f'l{i}', name, lease=3600000)
            self.actor.ask('take', f'l{i}', 60000).ok()

    def drop(self, name):
        self.actor.ask('drop', f'l{LISTED.index(name)}').ok()

    def pawl(self, *args, status=0, **options):
        """Clean stdout and stderr of the command. Each line of stderr is a message of its own."""
        process = self.box.start(*args, **options)
        out, err = process.communicate(timeout=90)
        out, err = clean(out), clean(err)
        equal(process.returncode, status, f'{args}: {err}')
        assert all(line.startswith('pawl: ') for line in err.splitlines()), err
        return out, err


@contextlib.contextmanager
def services(box):
    """local: and Redis, with all names held."""
    server = Live()
    made = []

    def each():
        for url in ('local:' + box.locks, server.url(timeout=30000)):
            made.append(Service(box, url))
            yield made[-1]
    try:
        yield each()
    finally:
        for service in made:
            service.actor.kill()
        server.stop()


def as_json(name):
    return name.decode(errors='replace')


@case('ls lists every name in a row of its own')
def ls(box):
    with services(box) as each:
        for s in each:
            for env in (s.box.env, dict(s.box.env, LC_ALL='C'), dict(s.box.env, COLUMNS='80')):
                out, err = s.pawl('ls', env=env)
                equal(len(out.splitlines()), 1 + len(LISTED))
                assert f'{len(LISTED)} names, {len(LISTED)} held' in err, err
                if 'COLUMNS' not in env:
                    for name in LISTED:
                        assert any(line.startswith(shown(name) + ' ') for line in out.splitlines()), name
                else:
                    assert all(len(line) <= 80 for line in out.splitlines()), out
            rows = json.loads(s.pawl('ls', '--json')[0])
            equal(sorted(row['name'] for row in rows), sorted(map(as_json, LISTED)))
            equal({row['label'] for row in rows}, {LABEL})
            for name in HOSTILE:
                s.pawl('ls', b'no such ' + name[:247])


@case('ls leaves out names that are not valid in Pawl, whatever other programs store')
def foreign(box):
    server = Live()
    try:
        plant(server)
        box.env['PAWL_URL'] = server.url(layout='redisson', timeout=30000)
        for command in (('ls',), ('ls', '--json')):
            status, out, err = box.pawl(*command)
            clean(out), clean(err)
            equal(status, 0)
        equal(sorted(row['name'] for row in json.loads(out)), sorted(map(as_json, LISTED)))
    finally:
        server.stop()


@case('show and break name the lock and its holder in one line each')
def show(box):
    with services(box) as each:
        for s in each:
            for name in LISTED:
                lines = s.pawl('show', '--', name)[0].splitlines()
                equal((len(lines), lines[0]), (2, shown(name) + ': held'))
                assert f'held by pid {s.actor.pid} actor ({shown(LABEL)})' in lines[1], lines
                said = json.loads(s.pawl('show', '--json', '--', name)[0])
                equal((said['name'], said['holders'][0]['label']), (as_json(name), LABEL))
                as_text = LISTED.index(name) % 2
                out, _ = s.pawl('break', *([] if as_text else ['--json']), '--', name)
                if as_text:
                    assert out.startswith(f"broke '{shown(name)}', held by pid {s.actor.pid} ("), out
                else:
                    said = json.loads(out)
                    equal((said['name'], said['holders'][0]['label']), (as_json(name), LABEL))
                equal(s.pawl('break', '--', name, status=1)[1], f"pawl: nobody holds '{shown(name)}'\n")


@case('latch and run say what a name is in use for')
def latch(box):
    with services(box) as each:
        for s in each:
            for name in LISTED:
                word = shown(name)
                _, err = s.pawl('latch', 'set', '--', name, '2', status=64)
                assert f"'{word}' is a lock, not a latch" in err, err
                if name in RUN:
                    _, err = s.pawl('run', '-n', '-p', '2', name, '--', 'true', status=64)
                    assert f"'{word}' is a lock, not a semaphore" in err, err
                s.drop(name)
                equal(json.loads(s.pawl('latch', 'set', '--json', '--', name, '2')[0]),
                      {'name': as_json(name), 'count': 2})
                assert f"'{word}' is already set" in s.pawl('latch', 'set', '--', name, '2', status=1)[1]
                _, err = s.pawl('latch', 'wait', '-w', '50ms', '--', name, status=1)
                assert f"latch '{word}' did not open" in err, err
                assert f"'{word}' is a latch, 2 to go" in s.pawl('break', '--', name, status=1)[1]
                equal(s.pawl('show', '--', name)[0], f'{word}: latch, 2 to go\n')
                s.pawl('latch', 'down', '-a', '--', name)


@case('a wait that ends in vain, with -v and trace:, names the lock, the holder and the reason')
def waits(box):
    with services(box) as each:
        for s in each:
            for name in RUN:
                _, err = s.pawl('run', '-v', '-w', '300ms', name, '--', 'true', status=1)
                assert f"'{shown(name)}'" in err and f'pid {s.actor.pid} ({shown(LABEL)})' in err, err
                _, err = s.pawl('run', '-v', '-n', '-u', 'trace:' + s.url, name, '--', 'true', status=1)
                assert re.search('> acquire "', err), err


@case('a long wait names the holder: a line of --warn-after, and on a terminal')
def late(box):
    with services(box) as each:
        for s in each:
            for name in (RUN[0], RUN[2], LONG):
                waiter = s.box.start('run', '--warn-after', '100ms', name, '--', 'true',
                                     stderr=subprocess.PIPE)
                line = clean(waiter.stderr.readline())
                assert f"still waiting for '{shown(name)}'" in line and shown(LABEL) in line, line
                waiter.terminate()
                waiter.communicate(timeout=60)
                on_terminal(s, name)


def on_terminal(s, name):
    """The line that is refreshed every second begins with the name."""
    ours, theirs = pty.openpty()
    waiter = s.box.start('run', name, '--', 'true', stderr=theirs)
    os.close(theirs)
    begin, seen = b'\r\033[K', b''
    while seen.count(begin) < 2:
        seen += os.read(ours, 4096)
    waiter.terminate()
    waiter.communicate(timeout=60)
    os.close(ours)
    line = clean(seen.split(begin)[1].rstrip(b'\r'))
    words = f"pawl: waiting for '{shown(name)}"
    assert line.startswith(words[:79].rstrip('\ufffd')) or words.startswith(line), line


@case('a lock that is broken while the command runs: the message has the name and the reason')
def lost(box):
    with services(box) as each:
        for s in each:
            for name in RUN:
                s.drop(name)
                flag = box.path(f'runs-{len(box.started)}')
                holder = s.box.start('run', '-v', name, '--', 'sh', '-c', f'touch {flag}; exec sleep 1000')
                wait_for('the command', lambda f=flag: os.path.exists(f))
                s.pawl('break', '--', name)
                err = clean(holder.communicate(timeout=60)[1])
                equal(holder.returncode, 75, err)
                assert f"'{shown(name)}' was lost while the command ran" in err, err
                assert re.search(r"lost '.*' \(token \d+\): it was broken by pid ", err), err


@case('errors of the library have room for the reason beside the longest name')
def reasons(box):
    with services(box) as each:
        for s in each:
            one, two = Actor(s.url), Actor(s.url)
            try:
                one.lock('a', LONG)
                failed = one.ask('take', 'a', 0).be('PAWL_EBUSY')
                assert CHINESE in failed.words and "...': " in failed.words, failed
                s.drop(LONG)
                one.ask('take', 'a', 0).ok()
                assert 'holds it already' in one.ask('take', 'a', 0).be('PAWL_ESTATE').words
                two.lock('b', LONG)
                two.ask('break', 'b').ok()
                one.lost('a')
                failed = one.ask('drop', 'a').be('PAWL_ELOST')
                assert 'was lost: it was broken by pid' in failed.words, failed
                clean(failed.words)
            finally:
                one.kill(), two.kill()


@case('doctor says nothing harmful about a service full of such names')
def doctor(box):
    with services(box) as each:
        for s in each:
            for args in (('doctor',), ('doctor', '--json')):
                status, out, err = s.box.pawl(*args)
                assert status in (0, 1), err
                clean(out), clean(err)
            json.loads(out)


@case('run --metrics writes what Prometheus reads, with the name as the command prints it')
def run_metrics(box):
    with services(box) as each:
        for s in each:
            for name in RUN:
                s.drop(name)
                s.pawl('run', '--metrics', 'out.prom', name, '--', 'true')
                with open(box.path('out.prom'), 'rb') as f:
                    found = metrics.samples(clean(f.read()))
                assert found['pawl_run_end_time_seconds', shown(name)] > 0, found


@case('the library\'s metrics are read by Prometheus\' own parsers, in both formats')
def library(box):
    with services(box) as each:
        for s in each:
            for form in ('prometheus', 'openmetrics'):
                s.actor.ask('metrics', form, box.path(form)).ok()
                with open(box.path(form), 'rb') as f:
                    text = clean(f.read())
                equal(text.endswith('# EOF\n'), form == 'openmetrics')
                found = metrics.samples(text)
                held = {key: value for key, value in found.items() if key[0] == 'pawl_held'}
                equal(sum(held.values()), len(LISTED))
                for name in (LISTED[0], LISTED[2], LONG):
                    equal(held['pawl_held', as_json(name)], 1)
                assert all(name == 'pawl_acquired_total' or not name.startswith('pawl_acquired')
                           for name, _ in found), found


@case('completion offers names as one harmless word each, and no name as an option')
def completion(box):
    offered = {name.decode() for name in LISTED
               if re.fullmatch(rb'[^-"\\][^"\\]*', name) and shown(name) == name.decode(errors='replace')}
    assert LONG.decode() in offered and '$(touch owned)`touch owned`;touch owned' in offered
    with services(box) as each:
        for s in each:
            for complete in (shells.bash, shells.fish, shells.zsh):
                for command in ('show', 'break', 'run', 'latch wait'):
                    got = complete(box, f'pawl {command} ')
                    if complete is shells.fish:  # offers words with a dot in front only after a dot
                        got |= complete(box, f'pawl {command} .')
                    clean('\n'.join(got))
                    if complete is shells.bash:  # its candidates are quoted for the shell
                        got = {subprocess.run(['bash', '-c', f'printf %s {word}'], cwd=box.dir, check=True,
                                              stdout=subprocess.PIPE).stdout.decode() for word in got}
                    equal(got, offered, complete.__name__)
            assert not os.path.exists(box.path('owned')), 'a name was run'


@case('a name with control characters is refused by every command, in one line')
def control(box):
    assert CONTROL
    for name in CONTROL:
        for args in (('show', name), ('break', name), ('latch', 'get', name), ('run', '-n', name, '--', 'true')):
            status, out, err = box.pawl(*args)
            equal((status, out, len(clean(err).splitlines())), (64, '', 1), f'{args}: {err}')
            assert 'control character' in err, err


@case('hostile words in other places: URL, options, command, files')
def elsewhere(box):
    for word in HOSTILE:
        for args, statuses in (((word,), (64,)), (('ls', '-u', word), (64,)), (('ls', b'--' + word), (64,)),
                               (('ls', '-u', b'redis://127.0.0.1:1/' + word), (64,)),
                               (('ls', '-u', b'local:?x' + word), (64,)),
                               (('run', '-w', word, 'x', '--', 'true'), (64,)),
                               (('run', '-n', 'x', '--', b'./' + word), (127,)),
                               (('run', '-n', '--metrics', b'no/' + word, 'x', '--', 'true'), (0,)),
                               (('help', word), (64,))):
            process = subprocess.run([TOOL, *args], env=dict(box.env), cwd=box.dir, timeout=90,
                                     stdin=subprocess.DEVNULL, capture_output=True, check=False)
            clean(process.stdout), clean(process.stderr)
            assert process.returncode in statuses, (args, process.returncode, process.stderr)


if __name__ == '__main__':
    main()
