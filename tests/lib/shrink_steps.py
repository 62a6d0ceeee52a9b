# SPDX-License-Identifier: Apache-2.0
"""Shrinks failing lists of steps, for generators for which any subset of the steps is a program, too."""
import re
import time


def shrink(broken, steps, found, seconds=240, tries=3):
    """broken(steps) returns a list of errors; `found` is the list for all steps. Leaves out halves first,
    then single steps. Real processes are not deterministic, so each smaller program gets some tries.
    Returns the remaining steps and their errors."""
    def still(rest):
        for _ in range(tries if rest else 0):
            wrong = broken(rest)
            if wrong:
                return wrong
        return []

    end = time.monotonic() + seconds
    size = max(len(steps) // 2, 1)
    while size and time.monotonic() < end:
        at, smaller = 0, False
        while at < len(steps) and time.monotonic() < end:
            rest = steps[:at] + steps[at + size:]
            wrong = still(rest)
            if wrong:
                steps, found, smaller = rest, wrong, True
            else:
                at += size
        size = size // 2 if size > 1 else int(smaller)
    return steps, found


def seconds(text):
    """The number of seconds in a text such as 90, 90s, 30m or 2h."""
    n, unit = re.fullmatch(r'(\d+)([smh]?)', text).groups()
    return int(n) * {'': 1, 's': 1, 'm': 60, 'h': 3600}[unit]
