# SPDX-License-Identifier: Apache-2.0
"""Checks the text of a failure."""
import re

from actor import Actor


def fails(url, codes, pattern, wait=1500, environ=None):
    """Opening, or the first acquire, fails with one of these codes and a text that matches."""
    a = Actor(url, environ=environ, opens=False)
    failure = a.opened
    if failure.code == 'PAWL_OK':
        a.lock('l', 'n')
        failure = a.ask('take', 'l', wait)
    failure.be(*codes)
    assert re.search(pattern, failure.words, re.I), f'no /{pattern}/ in "{failure.words}"'
