# SPDX-License-Identifier: Apache-2.0
"""Plays and judges random scenes for the pawl command; prints TAP.

    generate.py [--for 30m] [--seed N] [--scenes N] [--engine local|redis|both] [--jobs N]
    generate.py --seed N --scenes 1 --engine redis      play one scene again

A scene that breaks a promise is played again with fewer and fewer steps, as long as a promise is still
broken. The smallest scene is printed as a Python script, which calls replay() below. Real processes are
not deterministic, so each smaller scene gets a few tries.
"""
import argparse
import json
import os
import signal
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from judge import judge, read_log  # noqa: E402
from scene import scene  # noqa: E402
from world import Lateness, World  # noqa: E402
from shrink_steps import seconds, shrink  # noqa: E402


class Totals:
    def __init__(self):
        self.mutex = threading.Lock()
        self.scenes = self.runs = self.commands = self.records = 0
        self.steps, self.statuses, self.failures = {}, {}, []

    def add(self, world, steps, engine):
        commands = read_log(world)
        with self.mutex:
            self.scenes += 1
            self.runs += len(world.runs)
            self.commands += len(commands)
            for s in steps:
                what = s.get('target', s.get('what', s.get('key', '')))
                key = ' '.join(w for w in (s['do'], what, s.get('sig', ''), s.get('shape', '')) if w)
                self.steps[key] = self.steps.get(key, 0) + 1
            for r in world.runs.values():
                self.statuses[r.status] = self.statuses.get(r.status, 0) + 1


def play(world, steps):
    world.play(steps)
    return judge(world)


def broken(world, steps):
    found = play(world, steps)
    world.forget()
    return found


def script(engine, steps):
    lines = ',\n    '.join(json.dumps(s) for s in steps)
    return (f'import sys\nsys.path.insert(0, "tests/generate/tool")\n'
            f'from generate import replay\nreplay("{engine}", [\n    {lines}])\n')


def replay(engine, steps, tries=20):
    """Play these steps until a promise is broken."""
    world = World(engine, Lateness())
    try:
        for i in range(tries):
            found = play(world, steps)
            for r in world.runs.values():
                print(f'# try {i}: run {r.id} status {r.status} {r.err()[-200:]!r}')
            world.forget()
            if found:
                print('\n'.join('not ok - ' + f for f in found))
                sys.exit(1)
    finally:
        world.close()
    print(f'ok - nothing broken in {tries} tries')


class Worker(threading.Thread):
    def __init__(self, number, options, totals, lateness, end):
        super().__init__(daemon=True)
        self.number, self.options, self.totals, self.end = number, options, totals, end
        engines = ['local', 'redis'] if options.engine == 'both' else [options.engine]
        self.engine = engines[number % len(engines)]
        self.world = World(self.engine, lateness)

    def run(self):
        seed = self.options.seed + self.number
        count = 0
        while not self.over(count):
            try:
                self.one(seed)
            except Exception:
                self.fail(f'the generator itself failed, seed {seed}: {traceback.format_exc()}')
            seed += self.options.jobs
            count += 1

    def over(self, count):
        if self.options.scenes:
            return count >= self.options.scenes
        return time.monotonic() > self.end or len(self.totals.failures) >= self.options.failures

    def one(self, seed):
        steps = scene(seed, self.world.server is not None)
        found = play(self.world, steps)
        self.totals.add(self.world, steps, self.engine)
        if not found:
            self.world.forget()
            return
        told = [f'seed {seed} on {self.engine}: ' + f for f in found]
        for r in self.world.runs.values():
            told.append(f'  run {r.id} {r.shape} status {r.status} done '
                        f'{[((t - self.world.begun) // 10**6, a, b) for t, a, b, _ in r.done]} '
                        f'{r.err()[-200:]!r}')
        if self.options.shrink:
            steps, found = shrink(lambda s: broken(self.world, s), steps, found)
        self.fail('\n'.join(told + ['after shrinking: ' + f for f in found] +
                            [script(self.engine, steps)]))

    def fail(self, text):
        with self.totals.mutex:
            self.totals.failures.append(text)
        for line in text.splitlines():
            print('# ' + line, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--for', dest='time', type=seconds, default=15)
    parser.add_argument('--seed', type=int, default=int(time.time()) * 1000)
    parser.add_argument('--scenes', type=int, default=0, help='so many of each worker')
    parser.add_argument('--engine', default='both')
    parser.add_argument('--jobs', type=int, default=4)
    parser.add_argument('--failures', type=int, default=1, help='stop after so many')
    parser.add_argument('--no-shrink', dest='shrink', action='store_false')
    options = parser.parse_args()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:  # ignored, as in a job in the background
            signal.signal(number, signal.SIG_DFL)
    print('1..1', flush=True)
    print(f'# seed {options.seed}', flush=True)
    totals, lateness = Totals(), Lateness()
    end = time.monotonic() + options.time
    workers = [Worker(i, options, totals, lateness, end) for i in range(options.jobs)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
        w.world.close()
    print(f'# {totals.scenes} scenes, {totals.runs} runs, {totals.commands} commands judged')
    print(f'# steps {json.dumps(totals.steps, sort_keys=True)}')
    print(f'# statuses {sorted(totals.statuses.items(), key=str)}')
    good = not totals.failures and totals.commands > 0
    print(f'{"ok" if good else "not ok"} 1 - commands under locks survive signals and kills')
    sys.exit(0 if good else 1)


if __name__ == '__main__':
    main()
