# SPDX-License-Identifier: Apache-2.0
"""Runs every command and program of the documentation. extract.py has the conventions, world.py the
machine on which the commands run. Prints a TAP line for each page, and how many commands and
programs there are, ran, and could not run, with the reasons. Links between the pages must lead
somewhere.

    test_docs.py BUILD [WORD ...]      only the pages whose names contain one of the words
"""
import collections
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import compare
import extract
import manual
import metric_names
import parity
import world

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, '..', '..'))
LIMIT = 120  # seconds for a page; only a hang takes so long
COMPILE = 'cc -Wall -Wextra -Werror -o {exe} {source} $(pkg-config --cflags --libs pawl)'
SIZE = 'stty rows 24 cols 80; '
TERMINAL = ('while printf %s {keys} 2> /dev/null; do sleep 0.1; done | '
            'TERM=xterm-256color script -qec {command} /dev/null')
STUBS = ('ffmpeg',)
STUB = '#!/bin/sh\nexit 0\n'  # stands for a program that the reader has
OWN = r'(?<![\w/])(?:\./|/usr/local/bin/)[\w-]+(?:\.sh)?(?![\w/.-])'
SESSION = '''
exec 2>&1
cd "$1"
__s=0
__begin() { printf '\\n@@ begin %s\\n' "$1"; }
__end() { printf '\\n@@ end %s %s\\n' "$1" "$__s"; }
'''


def pages():
    found = ['README.md', 'README.zh-CN.md', 'SECURITY.md', 'CONTRIBUTING.md']
    found += sorted(glob.glob('docs/**/*.md', root_dir=ROOT, recursive=True))
    found += sorted(glob.glob('man/*.[1-9]', root_dir=ROOT))
    made = glob.glob(os.path.join(sys.argv[1], 'man', '*.3'))  # from pawl.h
    return found + sorted(os.path.relpath(p, ROOT) for p in made)


class Tally:
    """Counts the blocks that were found, by result."""

    def __init__(self):
        self.commands = self.programs = self.files = self.compared = 0
        self.not_run = collections.Counter()
        self.elsewhere = self.prose = 0

    def print(self):
        print(f'# run: {self.commands} commands ({self.compared} of them with their documented '
              f'output) and {self.programs} programs; checked: {self.files} other files')
        print(f'# carried out by the tests of rights: {self.elsewhere} blocks')
        print(f'# not runnable: {sum(self.not_run.values())} commands and programs')
        for reason, n in sorted(self.not_run.items()):
            print(f'#   {n}: {reason}')


class Step:
    """One thing to run in a page's shell."""

    def __init__(self, where, command, expected=None, may_fail=False):
        self.where, self.command, self.expected = where, command, expected
        self.may_fail = may_fail or bool(expected and expected[0].startswith('pawl: '))


class Page:
    def __init__(self, name, tally):
        self.name, self.tally, self.steps, self.files, self.wrong = name, tally, [], {}, []
        if name.endswith('.md'):
            self.wrong += bad_links(name)
        for number, block in enumerate(extract.read(os.path.join(ROOT, name), name)):
            try:
                self.take(block, number)
            except ValueError as e:
                self.wrong.append(f'{block.where}: {e}')

    def take(self, block, number):
        if block.marker('rights') is not None:
            self.tally.elsewhere += 1
        elif block.marker('not run') is not None:
            self.refuse(block)
        elif block.marker('excerpt of') is not None:
            self.take_excerpt(block)
        elif block.marker('terminal') is not None:
            self.take_terminal(block)
        elif block.language in extract.COMMANDS:
            self.take_commands(block)
        elif block.marker('file') is not None or block.language in extract.PROGRAMS:
            self.take_program(block, block.marker('file') or
                              f'block{number}.{"c" if block.language == "c" else "script"}')
        elif block.marker('sql') is not None:
            self.take_sql(block)
        elif block.marker('unit') is not None:
            self.take_unit(block)
        elif block.marker('yaml') is not None:
            self.tally.files += 1
            self.files[f'block{number}.yaml'] = block.text
            self.add(block, f'python3 -c "import yaml, sys; list(yaml.safe_load_all(open('
                            f"'block{number}.yaml')))\"")
        elif block.language in extract.PROSE:
            self.tally.prose += 1
        else:
            raise ValueError(f'a block of language "{block.language}" needs a marker '
                             '(tests/docs/extract.py)')

    def refuse(self, block):
        reason = block.marker('not run')
        if not reason:
            raise ValueError('"not run" without a reason')
        n = len(block.commands()) if block.language in extract.COMMANDS else 1
        self.tally.not_run[reason] += n

    def add(self, block, command, *more):
        self.steps.append(Step(block.where, command, *more))

    def take_commands(self, block):
        commands = block.commands()
        for i, (command, expected) in enumerate(commands):
            asks = i + 1 < len(commands) and commands[i + 1][0].startswith('echo $?')
            self.add(block, command, expected, asks)
            self.tally.commands += 1
            self.tally.compared += bool(expected)

    def take_terminal(self, block):
        for command, _ in block.commands():
            self.add(block, TERMINAL.format(keys=shlex.quote(block.marker('terminal')),
                                            command=shlex.quote(SIZE + command)))
            self.tally.commands += 1

    def take_excerpt(self, block):
        self.tally.files += 1
        there = ''
        for name in block.marker('excerpt of').split():
            with open(os.path.join(ROOT, name), encoding='utf-8') as f:
                there += squeezed(f.read()) + ' '
        for line in map(squeezed, block.text.splitlines()):
            if line not in there:
                raise ValueError(f'not in {block.marker("excerpt of")}: {line}')

    def take_program(self, block, name):
        self.files[name] = block.text
        self.tally.programs += 1
        if block.language == 'c':
            if 'main(' not in block.text:
                self.files[name] = wrapped(block.text)
            exe = './' + re.sub(r'\.c$', '', name) + '.exe'
            self.add(block, COMPILE.format(exe=exe, source=name))
            self.add(block, exe + ' ' + (block.marker('arguments') or ''))
        elif block.marker('file') is None:
            self.add(block, {'sh': 'sh -eu ', 'python': 'python3 '}[block.language] + name)

    def take_sql(self, block):
        self.tally.files += 1
        name = f'block{block.line}.sql'
        self.files[name] = block.text
        self.add(block, 'psql -Xq -v ON_ERROR_STOP=1 -h db1 -U shop app -f ' + name
                 if block.marker('sql').startswith('postgres') else
                 'mariadb -h db1 -u shop app < ' + name)

    def take_unit(self, block):
        self.tally.files += 1
        name = block.marker('unit')
        self.files['/etc/systemd/system/' + name] = block.text
        self.add(block, 'systemd-analyze verify --man=no /etc/systemd/system/' + name)

    # ---- running ----

    def text(self):
        return '\n'.join([s.command for s in self.steps] + list(self.files.values()))

    def run(self, folder):
        os.mkdir(folder)
        for name, text in self.files.items():
            write(os.path.join(folder, name), text)
        for name in STUBS:
            write(os.path.join(folder, 'bin', name), STUB)
        for name in re.findall(OWN, self.text()):
            path = os.path.join(folder, name)
            made_here = re.search(r'(-o |> ?)(\./)?' + re.escape(name.removeprefix('./')) + r'\b',
                                  self.text())
            if not os.path.exists(path) and not name.endswith('.exe') and not made_here:
                write(path, STUB)
        script = os.path.join(folder, '.session')
        with open(script, 'w', encoding='utf-8') as f:
            f.write(SESSION)
            for i, step in enumerate(self.steps):
                f.write(f'__begin {i}; (exit $__s)\n{step.command}\n__s=$?; __end {i}\n')
            f.write('kill $(jobs -p) 2>/dev/null; wait\n')
        self.judge(session(script, folder))

    def judge(self, output):
        for i, step in enumerate(self.steps):
            found = re.search(rf'^@@ begin {i}\n(.*?)\n?@@ end {i} (\d+)$', output, re.M | re.S)
            if not found:
                self.wrong.append(f'{step.where}: did not end: {step.command}\n{output[-1500:]}')
                return
            got = [x for x in found[1].rstrip('\n').split('\n') if x or step.expected]
            if int(found[2]) and not step.may_fail:
                self.wrong.append(f'{step.where}: status {found[2]}: {step.command}\n{found[1]}')
            elif step.expected and not compare.matches(step.expected, got):
                self.wrong.append(f'{step.where}: other output: {step.command}\n{found[1]}')


def anchors(text):
    """The names by which headings can be linked to, as GitHub makes them."""
    heads = re.findall(r'^#+ (.*)$', re.sub(r'^```.*?^```', '', text, flags=re.M | re.S), re.M)
    return {re.sub(r'[^\w\- ]', '', h.lower()).replace(' ', '-') for h in heads}


def bad_links(name):
    """Links of a page to files or headings that don't exist."""
    with open(os.path.join(ROOT, name), encoding='utf-8') as f:
        text = f.read()
    prose = re.sub(r'^```.*?^```', '', text, flags=re.M | re.S)
    for target in re.findall(r'\]\(([^)\s]+)\)', prose):
        if re.match(r'\w+:', target):
            continue
        path, _, heading = target.partition('#')
        path = os.path.normpath(os.path.join(ROOT, os.path.dirname(name), path) if path
                                else os.path.join(ROOT, name))
        if not os.path.exists(path):
            yield f'{name}: no such file: {target}'
        elif heading and path.endswith('.md'):
            with open(path, encoding='utf-8') as f:
                if heading not in anchors(f.read()):
                    yield f'{name}: no such heading: {target}'


def squeezed(text):
    """Without comments, and with single blanks."""
    return ' '.join(re.sub(r'/\*.*?\*/', '', text, flags=re.S).split())


def wrapped(text):
    return ('#include <pawl.h>\n#include <stdio.h>\n'
            'static void sell_one(unsigned long long token) { (void)token; }\n'
            f'int main(void)\n{{\n(void)sell_one;\n{text}return 0;\n}}\n')


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)
    os.chmod(path, 0o755 if text.startswith('#!') else 0o644)


def session(script, folder):
    """The output of the page's shell."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(('PAWL_', 'MESON', 'NINJA'))}
    env.update(HOME=folder, LANG='C.UTF-8', PYTHONDONTWRITEBYTECODE='1', PAGER='cat',
               PATH=os.path.join(folder, 'bin') + ':/usr/local/bin:' + env['PATH'])
    with open(script + '.out', 'wb') as out:
        process = subprocess.Popen(['bash', '--norc', script, folder], stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=out, env=env, start_new_session=True)
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    with open(script + '.out', encoding='utf-8', errors='replace') as f:
        return f.read()


def report(number, sentence, faults):
    """Print a TAP line with the faults. Returns whether there are any."""
    faults = list(faults)
    print(f'{"not ok" if faults else "ok"} {number} - {sentence}')
    print(''.join(f'# {fault}\n' for fault in faults), end='')
    return bool(faults)


def main():
    words = sys.argv[2:]
    tally = Tally()
    # A quorum's servers must be 30 s old: its page comes last.
    found = [Page(name, tally) for name in pages()
             if not words or any(w in name for w in words)]
    folder = tempfile.mkdtemp(prefix='pawl-docs-')
    place = world.World(sys.argv[1], folder)
    failed = False
    try:
        began = time.monotonic()
        place.start('\n'.join(p.text() for p in found))
        print(f'# the services started in {time.monotonic() - began:.1f} s')
        print(f'1..{len(found) + 4}')
        broken = Page('tests/docs/broken.md', Tally())
        broken.run(os.path.join(folder, 'broken'))
        failed |= len(broken.wrong) != 7
        print(f'{"not ok" if failed else "ok"} 1 - a page with seven mistakes: '
              f'{len(broken.wrong)} found')
        failed |= report(2, 'manual pages of all functions, with examples, without warnings',
                         manual.faults(p.name for p in found if not p.name.endswith('.md')))
        failed |= report(3, 'README.zh-CN.md has everything that README.md has',
                         parity.differences('README.md', 'README.zh-CN.md'))
        failed |= report(4, 'all metrics are documented, and alert rules use no others',
                         metric_names.faults())
        for number, page in enumerate(sorted(found, key=lambda p: 'r1|' in p.text()), 5):
            began = time.monotonic()
            page.run(os.path.join(folder, page.name.replace('/', '-')))
            failed |= bool(page.wrong)
            print(f'{"not ok" if page.wrong else "ok"} {number} - {page.name}: '
                  f'{len(page.steps)} steps in {time.monotonic() - began:.1f} s')
            for wrong in page.wrong:
                print('\n'.join('# ' + line for line in wrong.splitlines()))
            sys.stdout.flush()
        for word, why in place.missing.items():
            if why:
                print(f'# {word}: {why}')
        tally.print()
    finally:
        place.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == '__main__':
    try:
        world.enter()
    except world.NoWorld as reason:
        print(f'1..0 # SKIP {reason}')
        sys.exit(0)
    sys.exit(main())
