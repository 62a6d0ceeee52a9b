# SPDX-License-Identifier: Apache-2.0
"""pawl bench on every engine and layout that has a server: it measures something, and leaves nothing."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from services import services  # noqa: E402
from tool import main, wait_for  # noqa: E402
from zk_client import Client  # noqa: E402

COUNT = 20


def measured(box, what):
    status, out, err = box.pawl('bench', '--json', '-n', str(COUNT), '-t', '1m', '-c', '3')
    equal((status, err), (0, ''), what)
    said = json.loads(out)
    equal((said['pair']['count'], said['interrupted'], said['rate']['clients']), (COUNT, False, 3), what)
    assert COUNT / 2 <= said['hand_over']['count'] <= COUNT, (what, said)
    assert COUNT - 2 <= said['rate']['count'] <= COUNT, (what, said)
    for part in ('pair', 'hand_over', 'rate'):
        s = said[part]
        equal(sum(b['count'] for b in s['histogram']), s['count'], what)
        assert 0 < s['p50_us'] <= s['p99_us'] <= s['max_us'], (what, s)
    return said['pair']['p50_us'], said['hand_over']['p50_us']


def left(what, server):
    """What the service still stores for the bench, but for the counters of tokens: Redisson's stay for
    good, Pawl's expire."""
    if what == 'redisson':
        return [k for k in server.call('KEYS', '*') if not k.startswith('redisson_lock_token:')]
    if what == 'redis':
        return [k for k in server.call('KEYS', '*pawl-bench*')
                if not k.endswith(':fence') or server.call('PTTL', k) == -1]
    if what == 'etcd':
        return server.keys() + server.leases()
    if what in ('curator', 'kazoo'):
        return Client(server.port).ephemerals('/locks')
    if what in ('postgres', 'mysql'):
        return server.sql(f'SELECT name FROM {server.prefix}_member').split()
    return []


def check(box, what, server, url):
    box.env['PAWL_URL'] = url
    times = measured(box, what)
    status, out, err = box.pawl('ls', '--json')
    equal((status, json.loads(out), err), (0, [], ''), what)
    wait_for(f'{what} to be empty', lambda: not left(what, server))
    print(f'# {what}: pair {times[0] / 1000:.2f} ms, hand-over {times[1] / 1000:.2f} ms (medians)')


for _what, _start, _url, _queue in services():
    @case(f'bench on {_what} measures each phase, and leaves nothing behind')
    def _(box, what=_what, start=_start, url=_url):
        server = start()
        try:
            check(box, what, server, url(server))
        finally:
            server.stop()


main()
