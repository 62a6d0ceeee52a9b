# SPDX-License-Identifier: Apache-2.0
"""Sides that take turns, and what their slices come to.

A slice is a short measurement of one side: a dictionary of figures. In each round every side has
one slice, and another side begins each time, so that noise of the machine meets all sides alike. A
ratio is that of two slices of the same round.
"""
import statistics
import subprocess

FAILURES = (RuntimeError, OSError, ValueError, KeyError, subprocess.SubprocessError)


def quantile(values, share):
    """Of sorted values."""
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0


def middle(values):
    """(lower quartile, median, upper quartile)"""
    values = sorted(values)
    return [quantile(values, 0.25), statistics.median(values), quantile(values, 0.75)]


def speed(figures):
    """The more, the better: operations per second, or the reciprocal of a time."""
    if 'rate' in figures:
        return figures['rate']
    return 1e6 / figures['p50'] if figures.get('p50') else 0


def times(sample, prefix=''):
    """Quantiles of a sorted sample in ns, as figures in us."""
    names = (('50', 0.5), ('99', 0.99), ('999', 0.999)) if sample else ()
    return {f'{prefix or "p"}{name}': quantile(sample, share) / 1000 for name, share in names}


def summary(slices, first):
    """Medians and quartiles of all figures, and how fast the first side was beside this one."""
    keys = [k for k in slices[0] if k != 'quantiles' and all(k in s for s in slices)]
    found = {k: statistics.median(s[k] for s in slices) for k in keys}
    if 'quantiles' in slices[0]:
        found['quantiles'] = [statistics.median(c) for c in zip(*(s['quantiles'] for s in slices))]
    found['slices'] = [{k: s[k] for k in keys} for s in slices]
    ratios = [speed(a) / speed(b) for a, b in zip(first, slices)
              if speed(b) and ('rate' in a) == ('rate' in b)]
    if ratios and speed(first[0]):
        found['ratio'] = middle(ratios)
    return found


def take_turns(rounds, sides):
    """sides: (title, function that returns a slice) or (title, why there is none).

    Returns {title: summary, or why there is none}. A side that fails once has no figures, because
    the slices before the failure would look as if all were well."""
    slices = {title: [] for title, _ in sides}
    why = {title: f for title, f in sides if isinstance(f, str)}
    for number in range(rounds):
        at = number % len(sides)
        for title, one_slice in sides[at:] + sides[:at]:
            if title in why:
                continue
            try:
                slices[title].append(one_slice())
            except FAILURES as e:
                why[title] = f'failed: {e}'[:200]
    first = next((s for t, s in slices.items() if t not in why), [])
    if sides and sides[0][0] in why:
        first = []
    return {t: why.get(t) or summary(slices[t], first) for t, _ in sides}
