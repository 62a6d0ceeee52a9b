# SPDX-License-Identifier: Apache-2.0
"""Compares a page with its translation: both must have the same headings (by level), tables (by rows and
columns), pictures, links, code blocks (comments aside), and words in `code` in each paragraph, list item and
table row, so that a change of one page is not forgotten in the other.
"""
import itertools
import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.realpath(os.path.join(HERE, '..', '..'))
FENCE = re.compile(r'^((?:<!-- .*? -->\n)*)```(\w*)\n(.*?)^```', re.M | re.S)


def _without_comments(code):
    code = re.sub(r'\s*/\*.*?\*/', '', code)
    return [re.sub(r'\s+# .*', '', line).rstrip() for line in code.splitlines()]


def _code_words(line):
    return sorted(set(re.findall(r'`([^`]+)`', line)))


def structure(text):
    """[(what, value)] in the order of the page, kind by kind."""
    blocks = [(marker, language, *_without_comments(code))
              for marker, language, code in FENCE.findall(text)]
    lines = FENCE.sub('', text).splitlines()
    rows = [line for line in lines if line.startswith('|')]
    paragraphs = re.split(r'\n\s*\n', '\n'.join(lines))
    links = sorted(re.findall(r'\]\(([^)]+)\)', '\n'.join(lines)))
    return {
        'code block': blocks,
        'heading': [re.match(r'#+', line)[0] for line in lines if re.match(r'#+ ', line)],
        'table row': [(line.replace('\\|', '').count('|'), *_code_words(line)) for line in rows],
        'list item': [_code_words(line) for line in _items(lines)],
        'paragraph': [_code_words(part.replace('\n', ' ')) for part in paragraphs if part.strip()],
        'link': [link for link in links if not link.startswith('README')],
    }


def _items(lines):
    """The items of lists, each on one line."""
    found = []
    for line in lines:
        if line.startswith('- '):
            found.append(line)
        elif line.startswith('  ') and found:
            found[-1] += ' ' + line.strip()
    return found


def differences(one, other):
    """Sentences about two pages, or none."""
    pages = []
    for name in (one, other):
        with open(os.path.join(ROOT, name), encoding='utf-8') as f:
            pages.append(structure(f.read()))
    for what in pages[0]:
        pairs = itertools.zip_longest(pages[0][what], pages[1][what])
        for number, (first, second) in enumerate(pairs, 1):
            if first != second:
                yield f'{what} {number}: {one} has {first!r}, {other} has {second!r}'
                break
