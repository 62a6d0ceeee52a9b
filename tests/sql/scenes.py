# SPDX-License-Identifier: Apache-2.0
"""What several of the tests do."""
import re

from server import Actor, until


def fails(url, codes, pattern, wait=1500, environ=None):
    """Opening, or the first acquire, fails in these words."""
    a = Actor(url, environ=environ, opens=False)
    failure = a.opened
    if failure.code == 'PAWL_OK':
        a.lock('l', 'n')
        failure = a.ask('take', 'l', wait)
    failure.be(*codes)
    assert re.search(pattern, failure.words, re.I), f'no /{pattern}/ in "{failure.words}"'


def queue_up(s, name, actors):
    for n, a in enumerate(actors, 1):
        a.lock('l', name)
        a.send('acquire', 'l', -1)
        until(lambda: s.waiters(name) == n, 'for a place in the queue')
