# SPDX-License-Identifier: Apache-2.0
"""Compares the output of a command with the documented output.

Words that differ from run to run match each other: times of day, durations, process ids, tokens,
host names, long numbers, versions, which clock is ahead. A line "..." stands for any number of
lines, and "..." within a line for any text. Everything else must be equal, blanks at the end of a
line aside.
"""
import re

CHANGING = (
    (r'\d\d:\d\d:\d\d(\.\d+)?', '<clock>'),
    (r'\b\d+(\.\d+)? (us|ms|s|min|h|d)\b', '<time>'),
    (r'\b(pid|token|lease)([ =]+)\d+', r'\1\2<n>'),
    (r'\bon [\w.-]+ (for|since)\b', r'on <host> \1'),
    (r'\bpawl \(\S+\) on [\w.-]+$', 'pawl (<user>) on <host>'),
    (r'\bhost=[\w.-]+', 'host=<host>'),
    (r"\b(ahead of|behind) this machine's", "<ahead of> this machine's"),
    (r'\d{6,}', '<n>'),
    (r'(?<![\d.])\d+\.\d+\.\d+(?![\d.])', '<version>'),
)


def plain(line):
    for pattern, name in CHANGING:
        line = re.sub(pattern, name, line)
    return line.rstrip()


def _line_matches(wanted, got):
    pattern = '.*'.join(re.escape(part) for part in plain(wanted).split('...'))
    return re.fullmatch(pattern, plain(got)) is not None


def matches(wanted, got):
    """Lists of lines."""
    if not wanted:
        return not got
    if wanted[0].strip() == '...':
        return any(matches(wanted[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and _line_matches(wanted[0], got[0]) and matches(wanted[1:], got[1:])
