# SPDX-License-Identifier: Apache-2.0
"""What processes say they had, and what must hold of it.

A claim is a time in which somebody believed to hold, by the machine's boot-time clock: it begins at
the answer "granted" and ends when the holder was last sure of it. Tokens are per name.
"""
import itertools

from cases import equal

ALL = 9  # the share of a claim that is alone


class Claim:
    def __init__(self, name, share, asked, grant, token):
        self.name, self.share, self.asked, self.start = name, share, asked, grant
        self.token, self.end = token, None


def check_exclusion(claims, name, capacity):
    """A sweep over beginnings and ends: never more than the capacity."""
    edges = []
    for c in claims:
        share = capacity if c.share == ALL else c.share
        edges += [(c.start, 1, share, c), (c.end, 0, -share, c)]
    inside = 0
    for at, _, share, c in sorted(edges, key=lambda e: e[:2]):
        inside += share
        assert inside <= capacity, f'{name}: too many hold it at {at}, token {c.token}'


def check_tokens(claims, name):
    """Who asked after a token had been given out has a larger one; none is given twice."""
    equal(len({c.token for c in claims}), len(claims), f'{name}: tokens twice:')
    granted = sorted(claims, key=lambda c: c.start)
    largest, i = 0, 0
    for c in sorted(claims, key=lambda c: c.asked):
        while i < len(granted) and granted[i].start < c.asked:
            largest = max(largest, granted[i].token)
            i += 1
        assert c.token > largest, f'{name}: token {c.token} after {largest}'


def overlaps(claims):
    """Pairs of claims of one name that exclude each other and were there at the same time."""
    found = []
    for name, mine in itertools.groupby(sorted(claims, key=lambda c: (c.name, c.start)),
                                        key=lambda c: c.name):
        inside = []
        for c in mine:
            inside = [d for d in inside if d.end > c.start]
            found += [(d, c) for d in inside if c.end > c.start]
            inside.append(c)
    return found
