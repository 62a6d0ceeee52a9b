# SPDX-License-Identifier: Apache-2.0
"""Helpers that several of the tests use."""
import os
import re
import signal

from actor import Actor
from wait import until


def fails(url, codes, pattern, wait=1500, environ=None):
    """Opening, or the first acquire, fails with one of these codes and a text that matches."""
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


def processes(s):
    """The processes of a server: with PostgreSQL also its children, which do the work."""
    children = []
    if s.scheme == 'postgres':
        path = f'/proc/{s.process.pid}/task/{s.process.pid}/children'
        with open(path, encoding='ascii') as f:
            children = [int(p) for p in f.read().split()]
    return [*children, s.process.pid]


def stopped(pid):
    with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as f:
        return f.read().rpartition(')')[2].split()[0] in 'TZ'


def freeze(s):
    """Stop all processes of a server, the parent first: a stopped parent makes no new children."""
    os.kill(s.process.pid, signal.SIGSTOP)
    until(lambda: stopped(s.process.pid))
    for pid in processes(s):
        os.kill(pid, signal.SIGSTOP)
        until(lambda: stopped(pid))


def thaw(s):
    """Resume all processes of a server, the parent last."""
    for pid in processes(s):
        os.kill(pid, signal.SIGCONT)
