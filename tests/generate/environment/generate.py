# SPDX-License-Identifier: Apache-2.0
"""Random programs whose environment runs out, fails or changes, judged; prints TAP.

    generate.py [--for 30m] [--seed N] [--programs N] [--engine local|redis|both]

A program that breaks a promise is played again with fewer and fewer steps, as long as it still
breaks one; the rest is printed as a Python script.
"""
import argparse
import json
import os
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from programs import program  # noqa: E402
from world import ROOT, World  # noqa: E402
from shrink_steps import seconds, shrink  # noqa: E402


class Engine:
    def __init__(self, name):
        self.name, self.server = name, None
        if name == 'redis':
            from redis_live import Live
            self.server = Live()

    def play(self, seed, steps, totals=None):
        world = World(self.name, seed, self.server)
        try:
            return world.play(steps)
        except Exception:
            return ['the world itself failed: ' + traceback.format_exc()]
        finally:
            if totals:
                totals.add(world, steps)
            world.close()

    def close(self):
        if self.server:
            self.server.stop()


class Totals:
    def __init__(self):
        self.programs = self.claims = self.failures = 0
        self.mutex = threading.Lock()
        self.steps, self.failed, self.codes = {}, {}, {}

    @staticmethod
    def sum(into, more):
        for k, n in more.items():
            into[k] = into.get(k, 0) + n

    def add(self, world, steps):
        with self.mutex:
            self.add_all(world, steps)

    def add_all(self, world, steps):
        everybody = world.clients + world.ended
        self.programs += 1
        self.claims += sum(len(c.claims) for c in everybody)
        self.sum(self.failed, world.control.failed())
        for c in everybody:
            self.sum(self.codes, c.codes)
        for _, p in world.runs:
            self.sum(self.codes, {f'pawl run {p.returncode}': 1})
        for s in steps:
            self.sum(self.steps, {' '.join((s['do'], s.get('what', ''))).strip(): 1})


def script(engine, seed, steps):
    lines = ',\n    '.join(json.dumps(s) for s in steps)
    return (f'import sys\nsys.path.insert(0, "tests/generate/environment")\n'
            f'from generate import replay\nreplay("{engine}", {seed}, [\n    {lines}])\n')


def replay(name, seed, steps, tries=10):
    """Play these steps until a promise is broken."""
    engine = Engine(name)
    try:
        for _ in range(tries):
            found = engine.play(seed, steps)
            if found:
                print('\n'.join('not ok - ' + f for f in found))
                sys.exit(1)
    finally:
        engine.close()
    print(f'ok - nothing broken in {tries} tries')


def tell(text):
    for line in text.splitlines():
        print('# ' + line, flush=True)


def one(engine, seed, totals, shrinks):
    steps = program(seed, engine.server is not None, ROOT)
    found = engine.play(seed, steps, totals)
    if not found:
        return True
    tell('\n'.join(f'seed {seed} on {engine.name}: {f}' for f in found))
    if shrinks:
        steps, found = shrink(lambda s: engine.play(seed, s), steps, found)
        tell('\n'.join('after shrinking: ' + f for f in found))
    tell(script(engine.name, seed, steps))
    return False


def many(name, number, options, totals, end):
    engine = Engine(name)
    try:
        for i in range(options.programs):
            if time.monotonic() > end or totals.failures >= options.failures:
                break
            if not one(engine, options.seed + 100000 * number + i, totals, options.shrink):
                with totals.mutex:
                    totals.failures += 1
    finally:
        engine.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--for', dest='time', type=seconds, default=16)
    parser.add_argument('--seed', type=int, default=int(time.time()))
    parser.add_argument('--programs', type=int, default=10**9)
    parser.add_argument('--engine', default='both')
    parser.add_argument('--jobs', type=int, default=1, help='at a time for each engine')
    parser.add_argument('--failures', type=int, default=1, help='stop after so many')
    parser.add_argument('--no-shrink', dest='shrink', action='store_false')
    options = parser.parse_args()
    print('1..1', flush=True)
    print(f'# seed {options.seed}' + ('' if ROOT else '; not root: no guests, no identities, no disk'),
          flush=True)
    names = ['local', 'redis'] if options.engine == 'both' else [options.engine]
    totals, end = Totals(), time.monotonic() + options.time
    threads = [threading.Thread(target=many, args=(n, i, options, totals, end))
               for i, n in enumerate(names * options.jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    failures = totals.failures
    tell(f'{totals.programs} programs, {totals.claims} claims judged\nsteps {totals.steps}\n'
         f'failed calls {totals.failed}\nanswers {totals.codes}')
    good = not failures and totals.claims > 0
    print(f'{"ok" if good else "not ok"} 1 - locks survive an environment that runs out or changes')
    sys.exit(0 if good else 1)


if __name__ == '__main__':
    main()
