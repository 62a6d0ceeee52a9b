#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C tests that c_test.py prints compile without a warning, pass, and fail if a result differs."""
import os
import subprocess
import sys
import tempfile

from c_test import c_test, expect
from program import Profile, sequential

SEEDS = (1290, 1355)  # small, with forks and callbacks
EXE = os.environ['PAWL_GENERATE']


def build(folder, program, expected):
    source, program_path = os.path.join(folder, 'test.c'), os.path.join(folder, 'test')
    with open(source, 'w', encoding='utf-8') as f:
        f.write(c_test(program, 'memory', expected))
    lib = os.environ['PAWL_LIB']
    subprocess.run([*os.environ.get('CC', 'cc').split(), '-std=gnu11', '-Wall', '-Werror', '-I',
                    os.environ['PAWL_INCLUDE'], source, '-o', program_path, '-L', lib, '-lpawl',
                    '-lpthread', f'-Wl,-rpath,{lib}'], check=True)
    return program_path


def status(program, expected):
    with tempfile.TemporaryDirectory(prefix='pawl-generate-') as folder:
        done = subprocess.run([build(folder, program, expected), 'memory:'], capture_output=True,
                              text=True, check=False, timeout=200)
        return done.returncode, done.stdout


def falsify(program, expected):
    """Another code for the last step that takes or gives back something."""
    for i in reversed(range(len(expected))):
        e = expected[i]
        if program.steps[i][1] in ('acquire', 'release', 'start') and not e.skipped and \
                e.ends < len(expected):
            e.code = -2 if e.code != -2 else 0
            return i
    raise AssertionError('no step to falsify')


def main():
    bad = 0
    for n, seed in enumerate(SEEDS):
        program = sequential(seed, Profile(brief=200))
        code, out = status(program, expect(EXE, program))
        print('ok' if code == 0 else 'not ok', 2 * n + 1, f'- seed {seed} passes')
        wrong = expect(EXE, program)
        step = falsify(program, wrong)
        other, text = status(program, wrong)
        good = other == 1 and f'step {step}:' in text
        print('ok' if good else 'not ok', 2 * n + 2, f'- seed {seed} fails with another result')
        bad += (code != 0) + (not good)
        for line in (out if code else '').splitlines():
            print('#', line)
    print(f'1..{2 * len(SEEDS)}')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
