#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A value under a lock's key that another program wrote, and that looks like Pawl's, counts as a lock of
another program: Pawl shows it, waits for it, breaks it, and never treats the lock as free.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal, run  # noqa: E402
from redis_server import Server, keys  # noqa: E402

VALUES = ('pawl x', 'pawl x ', 'pawl x a', 'pawl x a 1 1 1', 'pawl z', 'pawl z a b c d e', 'pawl p',
          'pawl p x', 'pawl l', 'pawl l x', 'pawl m x', 'pawl ', 'pawl y 1')


@case('a value that only begins like one of ours is a stranger\'s')
def _(s):
    a = s.client()
    for value in VALUES:
        k = keys('n')[0]
        s.admin.call('SET', k, value, 'PX', 600000)
        shown = a.inspect('n')
        equal([shown[1], shown[4], shown[6][0][1]], ['foreign', 1, ''], value)
        equal(a.acquire('n', 1)[0], 'BUSY', value)
        equal(a.acquire('n', 2, mode='p', permits=1, capacity=1)[0], 'STATE', value)
        equal(a.release('n', 1)[0], 'NOTHELD', value)
        equal(s.admin.call('GET', k), value)
        equal(a.break_('n'), 'OK', value)
        equal(s.admin.call('EXISTS', k), 0, value)


if __name__ == '__main__':
    sys.exit(run(Server, jobs=1))
