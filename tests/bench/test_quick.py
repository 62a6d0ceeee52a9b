#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""test_quick.py BUILD SERVICE ...: a short run of each workload of bench/compare, without the libraries
that would have to be downloaded for comparison.

The speed is not checked: the test shows that every workload still runs with the present servers and the
present Pawl, and that no worker fails."""
import json
import math
import os
import subprocess
import sys
import tempfile

BUILD, *SERVICES = sys.argv[1:]
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
COMPARE = os.path.join(TOP, 'bench', 'compare', 'compare.py')


def wrong(service, workload, title, result):
    """The reason why the result of a side is wrong, or None."""
    if isinstance(result, str):
        no_perf = service == 'calls' and 'perf' in result
        return None if result.startswith('not ') or no_perf else f'{workload}, {title}: {result}'
    figures = {k: v for k, v in result.items() if isinstance(v, (int, float))}
    bad = [k for k, v in figures.items() if not math.isfinite(v) or v < 0]
    return f'{workload}, {title}: {bad[0]} is {figures[bad[0]]}' if bad or not figures else None


def check(service, results):
    found = [wrong(service, w, t, r) for w, sides in results.items() for t, r in sides.items()]
    plain = results.get('own 1', {}).get('SET NX PX and a script, in C')
    if service == 'redis' and not 3.5 < plain['commands'] < 4.5:  # SET, EVALSHA, GET, DEL
        found.append(f'{plain["commands"]} commands for a pair that has four')
    return [f for f in found if f]


def main():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, COMPARE, BUILD, '--quick', '--no-peers', '--out',
                               folder, *SERVICES], stderr=subprocess.PIPE, text=True)
        said = ''.join(f'# {line}\n' for line in done.stderr.splitlines())
        with open(os.path.join(folder, 'results.json'), encoding='utf-8') as f:
            results = json.load(f)
    bad = 0
    for i, service in enumerate(SERVICES, 1):
        why = [results['failed'][service]] if service in results['failed'] else check(
            service, results['services'][service]['results'])
        print(f'{"not " if why else ""}ok {i} - {service}', *(f'# {w}' for w in why), sep='\n')
        bad += bool(why)
    print(f'1..{len(SERVICES)}\n{said if bad else ""}')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
