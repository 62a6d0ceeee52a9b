#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [OPTIONS] [NAME ...]: put known defects back, one by one, and see whether a test catches them.

Each NAME.patch of this folder puts one defect, which Pawl once had, into today's sources. The head of the
patch describes the defect and names the test that should catch it:

    Defect: one line
    Run: generate MODE ENGINE [OPTION ...] | environment [OPTION ...] | tool [OPTION ...] |
         schedules [OPTION ...] | driver
    Seed: seed of the first program (default 1)
    Limit: in seconds (default 120, at most 180)
    Caught: the output of the first run, or why nothing catches the defect (for the reader)

For each patch the script brings a copy of the sources (build/controls/tree) up to date, applies the
patch, builds the targets that the machine (generator or explorer) needs (build/controls/build), runs the
machine until it fails or the limit is over, and removes the patch again. No regression test is run. TAP: a
control that nothing catches is "not ok". The output of the machine is kept in build/controls/NAME.log.

    --clean   the same runs without the patches: these must pass. Equal runs are made once
    --check   only check that all patches apply; builds nothing
    --list    names and defects
    --limit N instead of the limits of the patches
"""
import argparse
import filecmp
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, '..', '..', '..'))
WORK = os.path.join(ROOT, 'build', 'controls')
TREE, BUILD = os.path.join(WORK, 'tree'), os.path.join(WORK, 'build')
MOST = 180
BROKEN = 'broke down'
JOBS = 8    # most programs wait most of the time
LANES = {'zk': 2, 'postgres': 2, 'mysql': 2, 'session': 2, 'cluster': 2,
         'redisson-cluster': 2}  # else 4
TARGETS = {
    'generate': r'engines/.*\.so|libpawl\.so.*|tests/generate/generate',
    'environment': r'engines/.*\.so|libpawl\.so.*|tools/pawl|tests/lib/actor|tests/generate/.*/\w+'
                   r'(\.so)?',
    'tool': r'engines/.*\.so|libpawl\.so.*|tools/pawl|tests/generate/tool/witness',
    'schedules': r'tests/schedules/schedules|tests/module/.*\.so',
    'driver': r'tests/schedules/\w+',
}


class Control:
    def __init__(self, name):
        self.name = name
        self.patch = os.path.join(HERE, name + '.patch')
        with open(self.patch, encoding='utf-8') as f:
            head = f.read().split('\ndiff --git', 1)[0]
        fields = dict(re.findall(r'^(\w+): (.*(?:\n +.*)*)', head, re.M))
        self.defect = ' '.join(fields['Defect'].split())
        self.run = shlex.split(fields['Run'])
        self.seed = int(fields.get('Seed', 1))
        self.limit = min(int(fields.get('Limit', 120)), MOST)


def names():
    return sorted(f[:-6] for f in os.listdir(HERE) if f.endswith('.patch'))


# ---- the copy ------------------------------------------------------------------------------------

def refresh():
    """Make the copy equal to the tracked files, without touching files that are equal already."""
    listed = subprocess.run(['git', 'ls-files', '-z'], cwd=ROOT, check=True, capture_output=True)
    files = [f for f in listed.stdout.decode().split('\0') if f and os.path.exists(f'{ROOT}/{f}')]
    for f in files:
        source, target = os.path.join(ROOT, f), os.path.join(TREE, f)
        if os.path.islink(source) or (os.path.exists(target)
                                      and filecmp.cmp(source, target, shallow=False)):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    if not os.path.exists(os.path.join(BUILD, 'build.ninja')):
        subprocess.run(['meson', 'setup', BUILD], cwd=TREE, check=True, stdout=subprocess.DEVNULL)


def apply(control, *options):
    return subprocess.run(['git', 'apply', '-p1', *options, control.patch], check=False,
                          capture_output=True, text=True,
                          cwd=ROOT if '--check' in options else TREE,
                          env=dict(os.environ, GIT_CEILING_DIRECTORIES=WORK))


def build(machine):
    subprocess.run(['ninja', '-C', BUILD, 'build.ninja'], check=True, stdout=subprocess.DEVNULL)
    listed = subprocess.run(['ninja', '-C', BUILD, '-t', 'targets', 'all'], check=True,
                            capture_output=True, text=True).stdout
    wanted = [t for t in re.findall(r'^(\S+): \w+_LINKER$', listed, re.M)
              if re.fullmatch(TARGETS[machine], t)]
    made = subprocess.run(['ninja', '-C', BUILD, *wanted], check=False, capture_output=True,
                          text=True)
    return '' if made.returncode == 0 else made.stdout[-3000:]


# ---- the machines --------------------------------------------------------------------------------

def command(control, limit):
    machine, *words = control.run
    tests = os.path.join(TREE, 'tests')
    seed = ['--seed', str(control.seed)]
    if machine == 'generate':
        mode, engine, *options = words
        return [sys.executable, f'{tests}/generate/generate.py', '--mode', mode, '--for', f'{limit}s',
                *seed, '--failures', '1', '--no-shrink', '--jobs', str(JOBS), *options, engine]
    if machine in ('environment', 'tool'):
        return [sys.executable, f'{tests}/generate/{machine}/generate.py', '--for', f'{limit}s',
                *seed, '--no-shrink', '--jobs', '2', *words]
    words = ['--exec', f'{BUILD}/tests/schedules/test_driver_steered', 'cancelled'] \
        if machine == 'driver' else words
    return [f'{BUILD}/tests/schedules/schedules', '--first', str(control.seed), '--for', str(limit),
            '--count', '1000000', *words]


def environ():
    made = subprocess.run(['meson', 'introspect', BUILD, '--tests'], check=True, capture_output=True,
                          text=True).stdout
    sql = dict(re.findall(r'"(PAWL_\w+_SQL)": "([^"]*)"', made))
    return dict(os.environ, **sql, PYTHONDONTWRITEBYTECODE='1',
                PAWL_GENERATE=f'{BUILD}/tests/generate/generate', PAWL_TOOL=f'{BUILD}/tools/pawl',
                PAWL_ACTOR=f'{BUILD}/tests/lib/actor',
                PAWL_WITNESS=f'{BUILD}/tests/generate/tool/witness',
                PAWL_TROUBLE=f'{BUILD}/tests/generate/environment/trouble.so',
                PAWL_ENGINE_DIR=f'{BUILD}/tests/module')


def lanes(control, limit):
    """The commands that run at the same time. A fault affects the whole service, so each program that runs
    at the same time needs a service of its own."""
    first = command(control, limit)
    if control.run[:2] != ['generate', 'faults']:
        return [first]
    at = first.index('--seed') + 1
    return [first[:at] + [str(control.seed + 10000 * i)] + first[at + 1:]
            for i in range(LANES.get(control.run[2], 4))]


def await_first(processes, end):
    """Wait until one process has failed, all have ended, or the time is over; then end the rest. Returns
    the process that failed or did not end in time, or None."""
    while True:
        codes = [p.poll() for p in processes]
        bad = [p for p, c in zip(processes, codes) if c]
        if bad or None not in codes or time.monotonic() > end:
            break
        time.sleep(0.2)
    late = None if bad or None not in codes else processes[codes.index(None)]
    for p in processes:
        p.terminate()
    for p in processes:
        try:
            p.wait(60)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
    return bad[0] if bad else late


def run(control, limit, log):
    """Returns (failed, number of programs, seconds, first error text)."""
    env = environ()
    if control.run[0] not in ('schedules', 'driver'):
        del env['PAWL_ENGINE_DIR']
    begin = time.monotonic()
    processes, logs = [], []
    for i, words in enumerate(lanes(control, limit)):
        logs.append(log if i == 0 else f'{log}.{i}')
        with open(logs[-1], 'wb') as out:
            processes.append(subprocess.Popen(words, env=env, stdout=out, stderr=subprocess.STDOUT))
    failed = await_first(processes, begin + limit + 150)
    took = time.monotonic() - begin
    texts = []
    for name in logs:
        with open(name, encoding='utf-8', errors='replace') as f:
            texts.append(f.read())
    text = texts[processes.index(failed)] if failed else '\n'.join(texts)
    counts = [re.findall(r'(?:^# .*:|ok 1 -|^#) (\d+) (?:programs|scenes)', t, re.M)
              for t in ([text] if failed else texts)]
    programs = sum(int(c[-1]) for c in counts if c) or '?'
    if failed and len(processes) > 1:
        programs = f'{programs} (one of {len(processes)} lanes)'
    return failed is not None, programs, took, seen(text)


def seen(text):
    """The first error text in the machine's output."""
    broken = re.search(r'^.*(Traceback|SyntaxError|IndentationError|broke down|do not start)', text, re.M)
    if broken:
        return f'{BROKEN}: {text[broken.start():][:300]}'
    for pattern in (r'violations; (.*)', r'fails:\n# +(.*(?:\n# +differs.*)?)',
                    r'# seed \d+ on \w+: (.*)', r'# schedule \d+, step \d+: (.*)', r'# seed \d+:? (.*)', r'# program \d+: (.*)', r'(not ok .*)'):
        found = re.search(pattern, text)
        if found:
            return ' '.join(found.group(1).replace('#', ' ').split())[:300]
    return ''


# ---- the command line ----------------------------------------------------------------------------

def try_one(control, limit):
    refresh()
    applied = apply(control)
    if applied.returncode:
        return False, f'the patch does not apply: {applied.stderr.strip()}'
    try:
        wrong = build(control.run[0])
        if wrong:
            return False, f'does not build: {wrong}'
        caught, programs, took, what = run(control, limit, os.path.join(WORK, control.name + '.log'))
        if what.startswith(BROKEN):
            return False, f'the machine {what}'
    finally:
        refresh()
    return caught, f'{"caught" if caught else "NOT caught"} after {programs} programs, ' \
        f'{took:.0f} s: {what}'


def check(controls):
    failed = 0
    for i, c in enumerate(controls, 1):
        applied = apply(c, '--check')
        failed += applied.returncode != 0
        print('not ok' if applied.returncode else 'ok', i, '-', c.name)
        for line in applied.stderr.splitlines():
            print('#', line)
    print(f'1..{len(controls)}')
    return failed


def clean(controls, limit):
    runs = {}
    for c in controls:
        known = runs.setdefault((tuple(c.run), c.seed), c)
        known.limit = max(known.limit, c.limit)
    refresh()
    failed = 0
    for i, c in enumerate(runs.values(), 1):
        wrong = build(c.run[0])
        bad, programs, took, what = run(c, limit or c.limit, os.path.join(WORK, f'clean-{c.name}.log'))
        failed += bool(bad or wrong)
        print('not ok' if bad or wrong else 'ok', i, '-', ' '.join(c.run), 'from seed', c.seed,
              f'without a defect: {programs} programs, {took:.0f} s {what if bad else ""}{wrong}',
              flush=True)
    print(f'1..{len(runs)}')
    return failed


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument('names', nargs='*')
    p.add_argument('--clean', action='store_true')
    p.add_argument('--check', action='store_true')
    p.add_argument('--list', action='store_true')
    p.add_argument('--limit', type=int)
    options = p.parse_args()
    controls = [Control(n) for n in options.names or names()]
    if options.list:
        for c in controls:
            print(f'{c.name}: {c.defect} [{" ".join(c.run)}]')
        return 0
    if options.check:
        return check(controls)
    os.makedirs(TREE, exist_ok=True)
    if options.clean:
        return clean(controls, options.limit)
    failed = 0
    for i, c in enumerate(controls, 1):
        caught, words = try_one(c, options.limit or c.limit)
        failed += not caught
        print('ok' if caught else 'not ok', i, f'- {c.name}: {words}', flush=True)
    print(f'1..{len(controls)}')
    return failed


if __name__ == '__main__':
    sys.exit(min(main(), 100))
