#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The number of commands that a hand-over costs the server, with few and many waiters, from INFO
commandstats.

An acquire and a release are one script each, with 2 waiting processes or with 256. Renewals are counted
separately by MONITOR, which also shows the order. Only if the machine is so slow that a claim ends in the
meantime, the front asks again; such repetitions are recognized by their distance in time.
"""
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal, run  # noqa: E402
from redis_live import Live  # noqa: E402
from steps import seen_until_now, warm_up  # noqa: E402
from wait import until  # noqa: E402

PAIRS = os.environ.get('PAWL_PAIRS', 'pairs')
SLOW_US = 1500000


def measure(s, processes, rounds):
    """Let all actors take their turns. Returns the events from start to end, and the counts of INFO."""
    warm_up(s)
    pairs = subprocess.Popen([PAIRS, s.url(timeout=30000), 'n', str(processes), str(rounds)],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    equal(pairs.stdout.readline(), 'ready\n')
    m = s.monitor()
    before = [s.stat('evalsha', 'eval'), s.stat('publish')]
    pairs.stdin.write('go\n')
    pairs.stdin.flush()
    equal(pairs.stdout.readline(), 'done failures=0\n')
    scripts, messages = s.stat('evalsha', 'eval') - before[0], s.stat('publish') - before[1]
    events = seen_until_now(s, m)
    pairs.stdin.close()
    equal(pairs.wait(), 0)
    return events, scripts, messages


def repeats(events):
    """The number of repeated acquires: those due because of the elapsed time, and the others."""
    last, late, early = {}, 0, 0
    for e in events:
        if e.script == 'acquire':
            if e.owner in last:
                if e.us - last[e.owner] >= SLOW_US:
                    late += 1
                else:
                    early += 1
            last[e.owner] = e.us
    return late, early


def in_order(events):
    """The owners in order of arrival, and in the order of their grants."""
    arrived, granted = [], []
    seen = set()
    for e in events:
        if e.script == 'acquire' and e.owner not in seen:
            seen.add(e.owner)
            arrived.append(e.owner)
        elif e.granted() and e.words[1] == 'pawl:n':
            granted.append(e.granted())
    return arrived, granted


def cost(s, processes, rounds):
    events, scripts, messages = measure(s, processes, rounds)
    pairs = processes * rounds
    count = {name: sum(e.script == name for e in events)
             for name in ('acquire', 'release', 'renew')}
    late, early = repeats(events)
    equal(sum(e.script is not None for e in events), scripts, 'MONITOR and INFO differ:')
    equal(count['release'], pairs)
    equal(early, 0, 'asked again without need:')
    assert scripts - count['renew'] - late <= 2 * pairs, (
        f'{scripts} scripts, of them {count["renew"]} renewals, for {pairs} pairs: {count}')
    assert messages <= 2 * pairs + 2 * late, f'{messages} messages for {pairs} pairs'
    arrived, granted = in_order(events)
    equal(len(arrived), pairs)
    equal(granted, arrived, 'not first come, first served:')
    polls = sum(e.source != 'lua' and e.script is None and e.command not in ('info', 'echo')
                for e in events)
    assert polls <= processes, f'{polls} other commands'
    print(f'# {processes} processes, {pairs} pairs: {(scripts - count["renew"]) / pairs:.3f} '
          f'scripts and {count["renew"] / pairs:.3f} renewals for each, '
          f'{messages / pairs:.2f} messages, '
          f'{late} asked again after a claim had ended')


for n, each in ((2, 200), (16, 40), (64, 12), (256, 4)):
    @case(f'{n} waiting processes: two scripts for an acquire and release, in order of arrival',
          limit=120)
    def _(s, processes=n + 1, rounds=each):
        cost(s, processes, rounds)


@case('who waits behind others asks again every 4 s or so, and sends nothing else')
def _(s):
    warm_up(s)
    m = s.monitor()
    h, *waiters = [s.actor() for _ in range(6)]
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    for n, w in enumerate(waiters, 1):
        w.lock('l', 'n')
        w.send('acquire', 'l', -1)
        until(lambda: len(s.queue('n')) == n)
    time.sleep(5)
    events = seen_until_now(s, m)
    asked = {}
    for e in events:
        if e.script == 'acquire':
            asked.setdefault(e.owner, []).append(e.ms)
    equal(len(asked), 6)
    for times in asked.values():
        assert all(b - a > 3900 for a, b in zip(times, times[1:])), asked
    assert 6 < sum(len(times) for times in asked.values()) <= 12, asked
    equal(sum(e.script not in (None, 'acquire', 'renew', 'entry') for e in events), 0)


@case('a chain of hand-overs is one script each')
def _(s):
    warm_up(s)
    h, *waiters = [s.actor() for _ in range(9)]
    h.lock('l', 'n')
    h.ask('take', 'l', 0).ok()
    for n, w in enumerate(waiters, 1):
        w.lock('l', 'n')
        w.send('acquire', 'l', -1)
        until(lambda: len(s.queue('n')) == n)
    m = s.monitor()
    h.ask('drop', 'l').ok()
    for w in waiters:
        w.answer('acquire', 'l').ok()
        w.ask('drop', 'l').ok()
    events = seen_until_now(s, m)
    late, early = repeats(events)
    equal(early, 0)
    equal(sum(e.script not in (None, 'renew') for e in events) - late, 9, 'scripts:')


if __name__ == '__main__':
    sys.exit(run(Live))
