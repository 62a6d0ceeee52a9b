# SPDX-License-Identifier: Apache-2.0
"""pawl bench."""
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from tool import main, wait_for  # noqa: E402


def bench(box, *args):
    status, out, err = box.pawl('bench', '--json', *args)
    equal((status, err), (0, ''))
    return json.loads(out)


def names(box):
    return [row['name'] for row in json.loads(box.pawl('ls', '--json')[1])]


@case('bench is bounded by a count, and leaves nothing behind')
def count(box):
    said = bench(box, '-n', '50', '-t', '1m', '-c', '3')
    equal((said['pair']['count'], said['hand_over']['count'] <= 50, said['interrupted']),
          (50, True, False))
    assert 48 <= said['rate']['count'] <= 50 and said['rate']['clients'] == 3, said
    assert said['hand_over']['count'] >= 25, said
    for part in ('pair', 'hand_over', 'rate'):
        s = said[part]
        equal(sum(b['count'] for b in s['histogram']), s['count'])
        assert 0 < s['p50_us'] <= s['p90_us'] <= s['p99_us'] <= s['p999_us'] <= s['max_us'], s
        assert s['max_us'] < s['histogram'][-1]['below_us'], s
    equal(names(box), [])


@case('bench is bounded by time')
def duration(box):
    began = time.monotonic()
    said = bench(box, '-n', '1000000', '-t', '200ms')
    assert time.monotonic() - began < 30
    assert 0.2 <= said['pair']['seconds'] < 10, said
    assert said['pair']['per_second'] > 0, said


@case('bench prints percentiles and a histogram for people')
def text(box):
    status, out, err = box.pawl('bench', '-t', '100ms')
    equal((status, err), (0, ''))
    for words in ('pair:', 'hand-over:', 'rate: 4 clients', 'median ', '99 % within ', '####'):
        assert words in out, (words, out)
    assert all(len(line) < 80 for line in out.splitlines()), out


@case('a signal ends bench early, with what is known and nothing held')
def interrupted(box):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = box.start('bench', '--json', '-n', '1000000', '-t', '1h')
        wait_for('the bench', lambda: 'pawl-bench' in names(box))
        time.sleep(0.2)  # so that there is something to tell
        process.send_signal(number)
        status, out, _ = box.end(process)
        equal(status, 128 + number)
        said = json.loads(out)
        equal((said['interrupted'], said['rate']['count']), (True, 0))
        assert said['pair']['count'] > 0, said
        equal(names(box), [])


@case('two benches do not measure each other')
def alone(box):
    first = box.start('bench', '-n', '1000000', '-t', '1h')
    wait_for('the bench', lambda: 'pawl-bench' in names(box))
    status, out, err = box.pawl('bench')
    equal((status, out), (1, ''))
    assert 'another pawl bench' in err, err
    first.send_signal(signal.SIGINT)
    equal(box.end(first)[0], 130)


@case('wrong options and services that do not answer')
def wrong(box):
    for args in (('-n', '0'), ('-n', 'x'), ('-t', '0'), ('-t', '2h'), ('-c', '65'), ('more',)):
        equal(box.status('bench', *args), 64, str(args))
    equal(box.status('bench', '-u', 'redis://127.0.0.1:1/?timeout=500'), 69)


main()
