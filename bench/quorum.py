#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of a quorum of five Redis servers, beside one server, redsync and node-redlock.

    quorum.py BENCH_QUORUM [SECONDS]

A decision of the majority costs about one round trip to the third fastest server, whatever the
other two do. To show this, one of the five servers answers 50 ms late, or is dead. The script
starts its own servers, and a proxy that delays all traffic by 25 ms each way. The peers are built
by `make interop`; a missing peer is reported.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'tests', 'redis'))
sys.dont_write_bytecode = True
from live import Live  # noqa: E402
from proxy import Proxy  # noqa: E402

INTEROP = os.path.join(HERE, '..', 'build', 'interop')
LATE = 0.025  # each way


def url(ports):
    return '|'.join(['quorum:settle=1', *(f'redis://127.0.0.1:{p}' for p in ports)])


def pawl(program, seconds, ports):
    return [program, 'pair', seconds, url(ports)]


def redsync(seconds, ports, *more):
    return [os.path.join(INTEROP, 'redsync'), 'bench', seconds, ','.join(map(str, ports)), *more]


def redlock(seconds, ports):
    return ['node', os.path.join(HERE, '..', 'interop', 'node', 'bench.js'), seconds,
            ','.join(map(str, ports))]


def measure(words, folder=None):
    """The figures it prints, or why there are none."""
    try:
        done = subprocess.run([str(w) for w in words], cwd=folder, capture_output=True, text=True,
                              timeout=120)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f'{e.strerror if isinstance(e, OSError) else "takes too long"}'
    if done.returncode:
        return (done.stderr.strip().splitlines() or ['failed'])[-1][:60]
    return [int(w) for w in done.stdout.split()]


def show(name, figures):
    if isinstance(figures, str):
        print(f'  {name:<34} {figures}', flush=True)
    else:
        print(f'  {name:<34}' + ''.join(f'{f:>10}' for f in figures), flush=True)


def missing():
    """Peers that are not installed, said so."""
    gone = []
    for name, path in (('redsync', 'redsync'), ('redlock', 'node/node_modules/redlock5')):
        if not os.path.exists(os.path.join(INTEROP, path)):
            gone.append(name)
            print(f'# {name} is not here (interop/setup fetches it): left out')
    return gone


def compare(title, program, seconds, ports, gone):
    print(f'{title:<36}  acquire       p99   release       p99')
    show('pawl', measure(pawl(program, seconds, ports)))
    if 'redsync' not in gone:
        show('redsync', measure(redsync(seconds, ports)))
        show('redsync, WithFailFast', measure(redsync(seconds, ports, 'fast')))
    if 'redlock' not in gone:
        show('node-redlock 5', measure(redlock(seconds, ports), os.path.join(INTEROP, 'node')))


def main():
    program, seconds = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else '2'
    servers, proxies = [], []
    try:
        servers += [Live() for _ in range(5)]
        ports = [s.port for s in servers]
        for s in servers:
            proxies.append(Proxy(s.port))
            proxies[-1].delay = LATE
        gone = missing()
        print('# microseconds: median and 99th percentile')
        print(f'{"one server":<36}  acquire       p99   release       p99')
        show('pawl', measure([program, 'pair', seconds, f'redis://127.0.0.1:{ports[0]}']))
        compare('five servers', program, seconds, ports, gone)
        compare('five, the last one 50 ms late', program, seconds,
                ports[:4] + [proxies[4].port], gone)
        compare('five, the first one 50 ms late', program, seconds,
                [proxies[0].port] + ports[1:], gone)
        print('from the release to the next one     acquire       p99')
        show('pawl, one server', measure([program, 'handover', 500,
                                          f'redis://127.0.0.1:{ports[0]}']))
        show('pawl, five servers', measure([program, 'handover', 500, url(ports)]))
        servers[4].kill()
        compare('five, the last one dead', program, seconds, ports, gone)
    finally:
        for p in proxies:
            p.close()
        for s in servers:
            s.stop()


if __name__ == '__main__':
    sys.exit(main())
