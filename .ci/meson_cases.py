#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""meson_cases.py JUNIT-FILE REPORT: "GOOD BAD", and in REPORT what those that failed have said.

A case is a TAP line, or a test that prints none.
"""
import sys
import xml.etree.ElementTree as tree

TAIL = 60


def words(element):
    """What a test printed that is worth reading: TAP from each "not ok" on, and else its end."""
    for output in element.iter('system-out'):
        lines, show = (output.text or '').splitlines(), False
        tap = any(line.startswith('1..') for line in lines)
        for line in lines if tap else lines[-TAIL:]:
            show = not tap or line.startswith('not ok') or show and not line.startswith('ok')
            if show:
                yield line
    for output in element.iter('system-err'):
        yield from (output.text or '').splitlines()[-TAIL:]


def main(junit, report):
    good = bad = 0
    for suite in tree.parse(junit).iter('testsuite'):
        wrong = []
        for case in suite.iter('testcase'):
            kinds = {child.tag for child in case}
            if 'failure' in kinds or 'error' in kinds:
                wrong.append(case)
            elif 'skipped' not in kinds:
                good += 1
        bad += len(wrong)
        if not wrong:
            continue
        names = ', '.join(case.get('name') for case in wrong)
        print(f'\n{junit.split("/")[-3]}: {suite.get("name")}: {names}', file=report)
        of_its_own = suite.find('system-out') is not None
        for element in [suite] if of_its_own else wrong:
            for line in words(element):
                print(line[:300], file=report)
    print(good, bad)


if __name__ == '__main__':
    with open(sys.argv[2], 'a', encoding='utf-8') as out:
        main(sys.argv[1], out)
