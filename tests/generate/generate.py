#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""generate.py [OPTIONS] ENGINE ...: run random programs on engines until the time is over.

ENGINE is one of engines.py, or all.

    --exe PATH         the program `generate` of the build
    --for TIME         total time: 90s, 30m, 2h (default 60s); engines and modes share it
    --each             TIME is for each engine and mode
    --mode MODE        sequence, free, steered, network, faults, or all (default)
    --seed N           seed of the first program; later programs count up. Default: random, and printed
    --programs N       run at most N programs
    --shape SHAPE      free programs of one shape only (shapes.py)
    --jobs N           programs at the same time (default 3)
    --failures N       stop an engine and mode after N failing programs (default 3)
    --no-shrink        print a failing program without shrinking it
    --keep FOLDER      write failing programs to FOLDER: text, C test, logs (default: printed only)
    --replay FILE      run the programs of a file instead of random ones

Prints TAP, one test per engine and mode, with figures in comments. A program that fails is run again,
shrunk, and printed as text and as a C test. docs/testing.md explains the details.
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from c_test import c_test, expect  # noqa: E402
from engines import ENGINES, start  # noqa: E402
from program import parse, sequential  # noqa: E402
from scenario import NotCarriedOut, Scenario, last_words, sanitizer_reports  # noqa: E402
from shapes import SHAPES  # noqa: E402
from shrink import shrink  # noqa: E402

AGAIN = 4  # how often a program that failed is run again
MOST_DISTURBED = 0.05  # a run in which a larger share of the programs was disturbed fails
MOST_BROKEN = 0.05  # the same for programs that were given up because a fault failed


class Sequences:
    """One process that runs sequential programs, one after another. After a crash a new process is
    started."""

    def __init__(self, exe, service):
        self.words = [exe, 'sequence', service.url, service.profile.way]
        self.process = None
        self.errors = tempfile.NamedTemporaryFile(prefix='pawl-generate-')

    def begin(self):
        if self.process is None or self.process.poll() is not None:
            self.errors.truncate(0)
            self.process = subprocess.Popen(self.words, stdin=subprocess.PIPE, text=True,
                                            stdout=subprocess.PIPE, stderr=self.errors)

    def run(self, program):
        """The differences, as lines; an empty list if there are none."""
        self.begin()
        lines = []
        try:
            self.process.stdin.write(program.text())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        for line in self.process.stdout:
            if line.startswith('same'):
                return self.reports()
            lines.append(line.rstrip())
            if line.startswith(('differs', 'disturbed')):
                return lines + (last_words(self.errors.name) if 'open' in line else [])
        status = self.process.wait()
        return lines + self.reports() + [f'the process ended with {status}']

    def reports(self):
        """The sanitizer's reports on the programs so far. The next program gets a new process."""
        found = sanitizer_reports(self.errors.name)
        if found:
            self.process.kill()
            self.process.wait()
        return found

    def close(self):
        """The errors at the end of the process, for example memory that was not freed."""
        lines = []
        if self.process and self.process.poll() is None:
            self.process.stdin.close()
            try:
                status = self.process.wait(30)
                lines = [f'the process ended with {status}'] if status else []
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                lines = ['the process does not end']
        lines += sanitizer_reports(self.errors.name)
        self.errors.close()
        return lines


class Tally:
    """Figures of one engine and mode, shared by its jobs."""

    def __init__(self, options, first):
        self.mutex = threading.Lock()
        self.most = options.failures
        self.next = first
        self.left = options.programs or 1 << 60
        self.until = time.monotonic() + options.share
        self.programs = self.steps = self.holds = self.calls = 0
        self.faults = {}
        self.failures = []
        self.disturbed = []
        self.broken = 0  # programs whose faults could not be carried out

    def take(self):
        """The seed of the next program, or None."""
        with self.mutex:
            if time.monotonic() > self.until or self.left <= 0 or len(self.failures) >= self.most:
                return None
            self.left -= 1
            self.next += 1
            return self.next - 1

    def count(self, steps, holds=0, calls=0, faults=()):
        with self.mutex:
            self.programs += 1
            self.steps += steps
            self.holds += holds
            self.calls += calls
            for f in faults:
                self.faults[f] = self.faults.get(f, 0) + 1


def say(*words):
    print('#', *words, flush=True)


def report(options, engine, mode, seed, small, lines, tally):
    with tally.mutex:
        tally.failures.append(seed)
        say(f'{engine} {mode}: seed {seed} fails:')
        for text in (*lines, *small.text().splitlines()):
            say('  ', text)
        test = c_test(small, engine, expect(options.exe, small)) if mode == 'sequence' else ''
        for text in test.splitlines():
            say('  |', text)
        if options.keep:
            os.makedirs(options.keep, exist_ok=True)
            base = os.path.join(options.keep, f'{engine}-{mode}-{seed}')
            with open(base + '.txt', 'w', encoding='utf-8') as f:
                f.write(small.text() + ''.join(f'# {x}\n' for x in lines))
            if test:
                with open(base + '.c', 'w', encoding='utf-8') as f:
                    f.write(test)


def disturbed(lines):
    return bool(lines) and lines[-1] == 'disturbed'


def settled(runner, program, tally, engine):
    """The differences in a run in which the service answered in time. None: every run was disturbed."""
    for attempt in range(1 + AGAIN):
        lines = runner.run(program)
        if not disturbed(lines):
            return lines
        if attempt == 0:
            with tally.mutex:
                tally.disturbed.append(program.seed)
        say(f'{engine} sequence: seed {program.seed} was disturbed:', *lines)
    return None


def sequence_job(options, engine, box, tally):
    service = box[0]
    runner = Sequences(options.exe, service)

    def fails(program):
        lines = runner.run(program)
        return lines and not disturbed(lines)

    while (seed := tally.take()) is not None:
        program = sequential(seed, service.profile)
        lines = settled(runner, program, tally, engine)
        if lines:
            again = sum(bool(fails(program)) for _ in range(AGAIN))
            lines.append(f'failed {1 + again} times of {1 + AGAIN}')
            small = program
            if again * 2 >= AGAIN and not options.whole:
                small = shrink(program, lambda p: fails(p) and fails(p))
            report(options, engine, 'sequence', seed, small, lines, tally)
        tally.count(len(program.steps))
    for line in runner.close():
        say(f'{engine} sequence: at the end: {line}')
        with tally.mutex:
            tally.failures.append('the end of the process')


def anew(engine, box, tally, seed, why):
    """A fault could not be carried out, so the state of the servers is unknown: start new servers."""
    with tally.mutex:
        tally.broken += 1
        say(f'{engine}: seed {seed}: {why}; the servers are started anew')
    box[0].stop()
    box[0] = start(engine)
    box[0].prepare('faults')
    return box[0]


def free_job(options, engine, box, tally, mode):
    service = box[0]
    while (seed := tally.take()) is not None:
        scenario = Scenario.make(seed, service, mode, options.shape, options.share)
        try:
            with tempfile.TemporaryDirectory(prefix='pawl-generate-') as folder:
                result = scenario.run(options.exe, service, folder)
        except NotCarriedOut as e:
            service = anew(engine, box, tally, seed, e)
            continue
        if result.violations:
            say(f'{engine} {mode}: seed {seed}: {len(result.violations)} violations; '
                + ' | '.join(result.violations[:3]))
            small, lines = (scenario, result.violations[:10]) if options.whole else \
                scenario.smaller(options.exe, service, result)
            report(options, engine, mode, seed, small, lines, tally)
        tally.count(scenario.steps(), result.holds, result.calls, result.faults)


def guarded(target, tally, args):
    """Run a job. A job that raises an exception has judged nothing, which must not look like success."""
    try:
        target(*args)
    except Exception:
        with tally.mutex:
            tally.failures.append('a job that broke down')
            for line in traceback.format_exc().splitlines():
                say('  ', line)


def run_mode(options, engine, box, mode, first):
    tally = Tally(options, first)
    jobs = 1 if mode == 'faults' else options.jobs  # faults are the whole service's
    target = sequence_job if mode == 'sequence' else free_job
    args = (options, engine, box, tally) + (() if mode == 'sequence' else (mode,))
    threads = [threading.Thread(target=guarded, args=(target, tally, args), daemon=True)
               for _ in range(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    faults = ', '.join(f'{n} {k}' for k, n in sorted(tally.faults.items()))
    say(f'{engine} {mode}: {tally.programs} programs, {tally.steps} steps'
        + (f', {tally.holds} holds and {tally.calls} calls judged' if tally.calls else '')
        + (f'; faults: {faults}' if faults else '')
        + (f'; disturbed: {tally.disturbed}' if tally.disturbed else ''))
    if tally.broken:
        say(f'{engine} {mode}: {tally.broken} programs were given up, a fault could not be carried out')
    if tally.broken > max(MOST_BROKEN * tally.programs, 2):
        tally.failures.append('too many were given up')
    if len(tally.disturbed) > max(MOST_DISTURBED * tally.programs, 2):
        tally.failures.append('too many were disturbed')
    return tally


def modes_of(options, engine):
    if engine not in ENGINES:
        sys.exit(f'no engine {engine}; there are: {" ".join(ENGINES)}')
    there = ENGINES[engine][1]
    return there if options.mode == 'all' else [m for m in options.mode.split(',') if m in there]


def seconds(text):
    unit = {'s': 1, 'm': 60, 'h': 3600}.get(text[-1])
    return float(text[:-1]) * unit if unit else float(text)


def parse_options():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument('engines', nargs='+')
    p.add_argument('--exe', default=os.environ.get('PAWL_GENERATE', 'generate'))
    p.add_argument('--for', type=seconds, default=60)
    p.add_argument('--each', action='store_true')
    p.add_argument('--mode', default='all')
    p.add_argument('--seed', type=int)
    p.add_argument('--programs', type=int)
    p.add_argument('--shape', choices=SHAPES)
    p.add_argument('--jobs', type=int, default=3)
    p.add_argument('--failures', type=int, default=3)
    p.add_argument('--no-shrink', dest='whole', action='store_true')
    p.add_argument('--keep')
    p.add_argument('--replay')
    return p.parse_args()


def replay(options):
    with open(options.replay, encoding='utf-8') as f:
        program = parse(f.read())
    service = start(options.engines[0])
    try:
        lines = Sequences(options.exe, service).run(program)
        print('\n'.join(lines) or 'same')
        return 1 if lines else 0
    finally:
        service.stop()


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *a: sys.exit(143))
    schemas = os.path.join(os.path.dirname(options.exe), '..', '..', 'engines', 'sql')
    for scheme in ('postgres', 'mysql'):
        os.environ.setdefault(f'PAWL_{scheme.upper()}_SQL', os.path.join(schemas, scheme + '.sql'))
    if options.replay:
        return replay(options)
    first = options.seed if options.seed is not None else random.randrange(1 << 40)
    say(f'seed {first}')
    engines = list(ENGINES) if options.engines == ['all'] else options.engines
    engines = [e for e in engines if modes_of(options, e)]
    modes = sum(len(modes_of(options, e)) for e in engines)
    options.share = getattr(options, 'for') / (1 if options.each else max(modes, 1))
    tests = bad = 0
    for engine in engines:
        try:
            box = [start(engine)]
        except Exception as e:
            tests, bad = tests + 1, bad + 1
            print('not ok', tests, f'- {engine}: the servers do not start: {e!r}', flush=True)
            continue
        try:
            for mode in modes_of(options, engine):
                box[0].prepare(mode)
                tally = run_mode(options, engine, box, mode, first)
                tests += 1
                if not tally.programs:
                    tally.failures.append('no program was run')
                bad += bool(tally.failures)
                print('not ok' if tally.failures else 'ok', tests,
                      f'- {engine} {mode}: {tally.programs} programs'
                      + (f'; seeds that fail: {tally.failures}' if tally.failures else ''),
                      flush=True)
        finally:
            box[0].stop()
    print(f'1..{tests}')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
