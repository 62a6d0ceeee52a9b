# SPDX-License-Identifier: Apache-2.0
"""Writes what a run has shown as a page: peers and versions, and a table of properties.

Nothing on the page is not from the run: what was not run is not on it.
"""
import javaside
import properties
import zookeeper
from peers import EVERYBODY, PAWL

HEAD = '''# Sharing locks: what was shown

This page is written by `make interop` from what its run has shown, with the real packages, on one
machine; the suite is in [interop/](../interop/README.md). Pawl {pawl}, redis-server {server}.

| peer | version | how to share | a waiter of the peer looks | it renews |
|---|---|---|---|---|
'''

WORDS = '''
A cell has one outcome if both ways gave the same, else two: first Pawl is x and the peer y, then
the peer is x and Pawl y. `yes` or a figure: shown. A time is what passed until the other side had the
lock: the median of five, and the longest. `-`: the peer has no means for it. **no**: it failed.

Where no message can reach a waiter it looks from time to time, and then the time is that of the
looking. Pawl, behind a stranger's plain lock, looks every 20 ms at first, every 250 ms in the end;
the peers of the layout `redisson` are told, and so is Pawl by them.
'''


def share(peer):
    if peer.layout == 'plain':
        return '`redis://...?prefix=%s`' % peer.prefix
    return '`redis%s://...?layout=redisson`' % ('+cluster' if peer.cluster else '')


def cell(results, peer, row, both):
    def one(direction):
        outcome = results.get((peer, row, direction), '?')
        if outcome is None:
            return '-'
        if not isinstance(outcome, str):
            return '**no**'
        return 'yes' if outcome == 'shown' else outcome
    outcomes = [one(d) for d in range(1 + both)]
    return outcomes[0] if len(set(outcomes)) == 1 else ' · '.join(outcomes)


def rows(results, peers, chosen):
    lines = ['| | ' + ' | '.join(EVERYBODY[p].title for p in peers) + ' |',
             '|---' * (1 + len(peers)) + '|']
    for row, words, both, _ in chosen:
        if any((p, row, 0) in results for p in peers):
            cells = [cell(results, p, row, both) for p in peers]
            lines.append('| ' + ' | '.join([words.format(x='x', y='y')] + cells) + ' |')
    return '\n'.join(lines) + '\n'


def bytes_table(results):
    found = sorted({(row, peer) for peer, row, _ in results if row.startswith('bytes ')})
    if not found:
        return ''
    titles = sorted({(peer, d) for peer, row, d in results if row.startswith('bytes ')})
    names = {0: 'Pawl first, %s second', 1: '%s first, Pawl second', 2: 'Pawl alone'}
    lines = ['\n## Byte for byte', '', 'Keys, values, times to live and messages at every step of '
             'a scenario, beside the recording of the real Redisson.', '',
             '| scenario | ' + ' | '.join(names[d] % EVERYBODY[p].title if d < 2 else names[d]
                                          for p, d in titles) + ' |',
             '|---' * (1 + len(titles)) + '|']
    for row in sorted({r for r, _ in found}):
        outcomes = [results.get((p, row, d)) for p, d in titles]
        cells = ['same' if isinstance(o, str) else '-' if o is None else '**differs**'
                 for o in outcomes]
        lines.append('| ' + ' | '.join([row[6:]] + cells) + ' |')
    return '\n'.join(lines) + '\n'


def write(path, results, peers, server):
    everybody = peers
    peers = [p for p in EVERYBODY if p in peers]
    page = HEAD.format(pawl=PAWL.version(), server=server)
    for name in peers:
        p = EVERYBODY[name]
        page += '| %s | %s | %s | %s | %s |\n' % (
            p.title, p.version(), share(p),
            'when told, or after ' + p.polls if p.signal else 'every ' + p.polls
            if p.polls[0].isdigit() else 'after ' + p.polls, 'yes' if p.renews else 'no')
    page += WORDS + '\n' + rows(results, peers, properties.PROPERTIES)
    java = [p for p in peers if EVERYBODY[p].layout == 'redisson']
    if java:
        page += "\n## Redisson's other kinds\n\n" + rows(results, java, javaside.PROPERTIES)
    page += bytes_table(results)
    page += zookeeper.table(results, everybody, cell)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(page)
