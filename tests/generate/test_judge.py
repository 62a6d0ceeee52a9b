#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the judge: forged logs, each of which violates one rule, and the same logs without the violation.

The judge must report each violation, and must accept each correct log.
"""
import sys
import tempfile

from judge import (CALL, END, EXCLUSIVE, HOLD, LATCH, MS, MULTI, PERMITS, RECONNECT, RELEASED, SHARED, VERBS, Facts,
                   Record, judge)
from scenario import sanitizer_reports  # also finds tests/lib
import cases

def case(function):
    return cases.case(function.__name__.replace('_', ' '))(function)


def hold(owner, got, valid, left=None, name=0, mode=EXCLUSIVE, token=0, begin=None, **more):
    left = valid if left is None else left
    fields = {'lease': 1000, 'how': RELEASED, 'process': owner, **more}
    return Record(type=HOLD, owner=owner, name=name, mode=mode, token=token,
                  begin=(got - 1 if begin is None else begin) * MS, got=got * MS, valid=valid * MS,
                  leaving=left * MS, left=left * MS, **fields)


def call(verb, begin, got, process=1, name=0, code=0, wait=0, **more):
    return Record(type=CALL, verb=VERBS.index(verb), process=process, name=name, code=code,
                  wait=wait, begin=begin * MS, got=got * MS, **more)


def found(check, records, facts=None):
    return any(v.startswith(check + ':') for v in judge(records, facts or Facts(bound_ms=1000)))


def differs(check, good, wrong, facts=None):
    assert not judge(good, facts or Facts(bound_ms=1000)), judge(good, facts or Facts(bound_ms=1000))
    assert found(check, wrong, facts), f'{check} is not found'


@case
def two_writers():
    differs('exclusion', [hold(1, 10, 20), hold(2, 20, 30)], [hold(1, 10, 21), hold(2, 20, 30)])


@case
def one_inside_the_other():
    differs('exclusion', [hold(1, 10, 90), hold(2, 91, 92)],
            [hold(1, 10, 90), hold(3, 20, 21, mode=SHARED)])


@case
def a_client_that_stays_away():
    def log(code, got):
        return [call('acquire', 1000, got, code=code, wait=20000)]
    busy = [hold(2, 0, 30000, process=2)]
    differs('reach', busy + log(-30, 3000), busy + log(-30, 8000), Facts(1000, 1500))
    gone = Facts(1000, 1500)
    gone.fault(['data'], 1000 * MS, 2000 * MS, 5000)
    differs('reach', busy + log(-30, 11000), busy + log(-30, 15000), gone)


@case
def a_stopped_waiter_may_have_got_the_lock():
    facts = Facts(1000, 100)
    facts.stopped[2] = [(100 * MS, 5000 * MS)]
    waits = call('acquire', 50, 5050, process=2, wait=9000)
    other = call('acquire', 60, 5060, process=1, wait=9000)
    assert not judge([waits, other], facts)
    assert found('idle', [call('acquire', 5005, 5050, process=2, wait=9000), other], facts)


@case
def more_writes_than_calls_explain():
    records = [call('acquire', 10, 20), call('release', 30, 40)]
    few, many = Facts(), Facts()
    few.writes, many.writes = 64, 65
    assert not judge(records, few)
    assert found('writes', records, many)


@case
def a_wait_that_nobody_cancelled():
    def log(verb, **more):
        return [call('acquire', 100, 900, code=-3, wait=5000, object=4, client=1),
                call(verb, 850, 860, **{'object': 4, 'client': 1, **more})]
    for verb in ('cancel', 'free', 'close'):
        differs('cancelled', log(verb), log(verb, process=2))
    differs('cancelled', log('cancel'), log('cancel', object=5))

    def entered(thread):  # the hold of object 5 was entered through object 0, and object 5 was freed
        return [call('start', 5, 9, object=5, thread=thread, dones=1),
                call('start', 10, 20, code=-3, dones=1),
                call('free', 15, 16, object=5, thread=-1)]
    differs('cancelled', entered(0), entered(1))
    one = log('close', client=2)
    several = [call('acquire', 100, 900, code=-3, wait=5000, object=4, client=1, at_least=MULTI), one[1]]
    differs('cancelled', several, one)


@case
def a_reader_beside_a_writer():
    differs('exclusion', [hold(1, 10, 50, mode=SHARED), hold(2, 20, 60, mode=SHARED)],
            [hold(1, 10, 50, mode=SHARED), hold(2, 20, 60)])


@case
def lost_for_no_reason():
    gone = {'lost': 30 * MS, 'code': 2, 'until': 60 * MS}
    differs('lost', [hold(1, 10, 20, lost=60 * MS, code=2, until=60 * MS)], [hold(1, 10, 20, **gone)])
    differs('lost', [hold(1, 10, 20, **gone), call('break', 19, 21, process=2)],
            [hold(1, 10, 20, **gone)])
    differs('lost', [hold(1, 10, 20, **gone, name=1), call('break', 19, 21, process=2, name=1)],
            [hold(1, 10, 20, **gone, name=1), call('break', 19, 21, process=2)])
    silent = {'lost': 30 * MS, 'code': 3, 'lease': 2000}
    differs('lost', [hold(1, 10, 20, lost=30 * MS, code=4, lease=2000)], [hold(1, 10, 20, **silent)])
    facts = Facts(bound_ms=1000)
    facts.disturbed.append((15 * MS, 25 * MS))
    assert not judge([hold(1, 10, 20, **silent), hold(2, 40, 50)], facts)


@case
def busy_by_a_service_that_is_silent():
    facts = Facts(bound_ms=1000)
    facts.silent.append((1000 * MS, 2000 * MS))
    other = hold(2, 10, 5000)
    differs('silent', [other, call('acquire', 1100, 1900, code=-30)],
            [other, call('acquire', 1100, 1900, code=-1)], facts)
    for good in (call('acquire', 900, 1900, code=-2), call('acquire', 1100, 2100, code=-1),
                 call('acquire', 1100, 1900, process=2, code=-1)):
        assert not judge([other, good], facts), judge([other, good], facts)


@case
def a_connection_given_up():
    again = Record(type=RECONNECT, process=1, begin=9000 * MS, got=9020 * MS)
    for words, span, good in ((['connected'], (6000, 8000), False), ([], (6000, 8000), True),
                              ([], (500, 900), False), ([], (9100, 9200), False)):
        facts = Facts(bound_ms=1000)
        facts.fault(words, span[0] * MS, span[1] * MS, 1000)
        assert found('connection', [again], facts) != good, (words, span)
    facts = Facts(bound_ms=1000)
    assert found('connection', [again], facts)
    facts.late.append((8000 * MS, 9000 * MS))
    assert not judge([again], facts)


@case
def a_place_of_nobody():
    other = call('acquire', 5, 0, process=2, wait=-1)
    facts = Facts(bound_ms=1000)
    facts.killed[2] = 20 * MS
    differs('places', [other, call('inspect', 10, 11, token=1)], [other, call('inspect', 10, 11, token=2)],
            facts)
    differs('places', [other, call('inspect', 69500, 69501, token=1)],
            [other, call('inspect', 69600, 69601, token=1)], facts)
    for at, good in ((69500, True), (69600, False)):
        facts.places = [(0, at * MS, (at + 1) * MS, 1)]
        assert bool(judge([other], facts)) != good
    left = call('acquire', 5, 10, process=2, wait=5, code=-2)
    differs('places', [hold(3, 4, 9), left, call('inspect', 5000, 5001, token=1)],
            [hold(3, 4, 9), left, call('inspect', 5100, 5101, token=1)], Facts(bound_ms=1000))


@case
def a_killed_waiter_in_the_way():
    """Lease 1 s, exchange 2 s, 4.5 s, and 3 s for the killed waiter: 10.5 s after the kill."""
    facts = Facts(bound_ms=1000, lease_ms=1000)
    facts.killed[2] = 100 * MS
    dead = call('acquire', 50, 0, process=2, wait=-1)
    differs('idle', [dead, call('acquire', 60, 11500, wait=-1)],
            [dead, call('acquire', 60, 11700, wait=-1)], facts)


@case
def what_is_left_at_one_of_several_servers():
    """A waiter has overruled the server after three exchanges, independent of the lease."""
    for words, last in (('left', 7000), ('stale', 36500)):
        facts = Facts(bound_ms=1000)
        facts.fault([words], 0, 10 * MS, 27000)
        differs('idle', [call('acquire', 5, last, wait=-1)], [call('acquire', 5, last + 50, wait=-1)],
                facts)


@case
def longer_than_max_hold():
    differs('max', [hold(1, 10, 110, wait=100)], [hold(1, 10, 190, wait=100)])


@case
def longer_than_the_max_hold_of_a_handle_that_entered():
    entry = hold(1, 10, 190, wait=100, mode=EXCLUSIVE)
    before, other = (call('start', 5, 15, object=7, mode=EXCLUSIVE, thread=t, dones=1)
                     for t in (0, 9))
    differs('max', [before, entry], [other, entry])


@case
def a_renewal_that_timed_out():
    differs('honest', [call('renew', 10, 20, code=-30)], [call('renew', 10, 20, code=-2)])


@case
def a_close_that_left_something():
    differs('closed', [call('close', 10, 20), call('close', 10, 20, code=-20, permits=1)],
            [call('close', 10, 20, permits=1)])


@case
def a_downgrade_is_one_owner():
    differs('exclusion', [hold(1, 10, 50), hold(1, 20, 60, mode=SHARED)],
            [hold(1, 10, 50), hold(2, 20, 60, mode=SHARED)])


@case
def too_many_permits():
    p = {'mode': PERMITS, 'capacity': 3}
    differs('exclusion', [hold(1, 10, 50, permits=2, **p), hold(2, 20, 60, permits=1, **p)],
            [hold(1, 10, 50, permits=2, **p), hold(2, 20, 60, permits=2, **p)])


@case
def a_break_ends_the_hold_but_only_from_then_on():
    b = call('break', 30, 31, process=3)
    differs('exclusion', [hold(1, 10, 50), hold(2, 32, 60), b],
            [hold(1, 10, 50), hold(2, 25, 60), b])


@case
def a_break_may_hit_an_acquire_that_returns_after_it_but_none_that_begins_after_it():
    b = call('break', 30, 31, process=3)
    differs('exclusion', [hold(1, 32, 50, begin=29), hold(2, 40, 60), b],
            [hold(1, 33, 50, begin=32), hold(2, 40, 60), b])


@case
def a_break_of_another_name_excuses_nothing():
    differs('exclusion', [hold(1, 10, 50), hold(2, 51, 60)],
            [hold(1, 10, 50), hold(2, 32, 60), call('break', 30, 31, process=3, name=1)])


@case
def lost_data_excuse_from_then_on():
    facts = Facts(bound_ms=1000)
    facts.data_lost = [(30 * MS, 35 * MS)]
    differs('exclusion', [hold(1, 10, 50), hold(2, 40, 60)], [hold(1, 10, 50), hold(2, 20, 60)],
            facts)
    assert found('exclusion', [hold(1, 36, 50), hold(2, 40, 60)], facts)


@case
def a_stopped_process_is_no_excuse():
    facts = Facts(bound_ms=1000)
    facts.stopped = {1: [(15 * MS, 40 * MS)]}
    differs('exclusion', [hold(1, 10, 15), hold(2, 20, 30)], [hold(1, 10, 41), hold(2, 20, 30)],
            facts)


@case
def a_token_that_does_not_rise():
    differs('tokens', [hold(1, 10, 20, token=5), hold(2, 30, 40, token=6)],
            [hold(1, 10, 20, token=6), hold(2, 30, 40, token=6)])


@case
def tokens_of_acquires_at_the_same_time_may_return_in_any_order():
    differs('tokens', [hold(1, 10, 20, token=6, begin=1), hold(2, 30, 40, token=5, begin=2)],
            [hold(1, 10, 20, token=6, begin=1), hold(2, 30, 40, token=5, begin=11)])


@case
def a_call_that_never_returns():
    differs('returns', [call('release', 10, 20)], [call('release', 10, 0)])
    facts = Facts(bound_ms=1000)
    facts.killed = {1: 30 * MS}
    assert not judge([call('release', 10, 0)], facts)


@case
def a_close_that_takes_too_long():
    differs('returns', [call('close', 10, 5000)], [call('close', 10, 5100)])


@case
def a_wait_that_outlasts_its_limit():
    other = hold(2, 1, 30000, lease=30000)
    differs('returns', [call('acquire', 10, 5900, wait=1000, code=-2), other],
            [call('acquire', 10, 6100, wait=1000, code=-2), other])


@case
def done_twice_or_never():
    differs('done', [call('start', 10, 20, dones=1)], [call('start', 10, 20, dones=2)])
    assert found('done', [call('rstart', 10, 20, dones=0)])
    assert not found('done', [call('rstart', 10, 20, dones=0, code=-11)])


@case
def a_free_lock_that_somebody_waits_for():
    first = hold(1, 1, 10)
    differs('idle', [first, call('acquire', 5, 900, 2, wait=9000), hold(2, 900, 905, begin=5)],
            [first, call('acquire', 5, 1100, 2, wait=9000), hold(2, 1100, 1105, begin=5)])


@case
def a_wait_that_times_out_beside_a_free_lock():
    first = hold(1, 1, 10)
    differs('idle', [first, call('acquire', 5, 1000, 2, wait=1000, code=-2)],
            [first, call('acquire', 5, 2005, 2, wait=2000, code=-2)])


@case
def a_lost_hold_may_last_as_long_as_its_lease():
    gone = {'how': 2, 'lease': 1000}
    late = [call('acquire', 5, 4500, 2, wait=9000), hold(2, 4500, 4600, begin=5)]
    soon = [call('acquire', 5, 3500, 2, wait=9000), hold(2, 3500, 3600, begin=5)]
    differs('idle', [hold(1, 1, 10, **gone), *soon], [hold(1, 1, 10, **gone), *late])


@case
def a_disturbed_service_is_not_idle_meanwhile():
    facts = Facts(bound_ms=1000)
    facts.disturbed = [(100 * MS, 600 * MS)]
    w = [call('acquire', 5, 1400, 2, wait=9000), hold(2, 1400, 1405, begin=5)]
    late = [call('acquire', 5, 2600, 2, wait=9000), hold(2, 2600, 2605, begin=5)]
    differs('idle', [hold(1, 1, 10), *w], [hold(1, 1, 10), *late], facts)


@case
def busy_although_nobody_was_there():
    differs('honest', [hold(1, 1, 10), call('acquire', 5, 6, 2, code=-1)],
            [hold(1, 1, 10), call('acquire', 100, 101, 2, code=-1)])


def latch(verb, begin, got, process=1, **more):
    return call(verb, begin, got, process, at_least=LATCH, **more)


@case
def a_latch_that_is_passed_too_early():
    was_set = latch('set', 1, 2, permits=2)
    down = [latch('down', 10, 11, 2), latch('down', 20, 21, 3)]
    passed = latch('wait', 15, 22, 4, wait=500)
    differs('latches', [was_set, *down, passed], [was_set, down[0], passed])
    assert found('latches', [was_set, *down, latch('wait', 15, 19, 4, wait=500)])
    assert not found('latches', [was_set, *down, latch('wait', 15, 20.5, 4, wait=500)])


@case
def a_count_down_without_an_answer_may_have_counted():
    was_set, passed = latch('set', 1, 2, permits=1), latch('wait', 15, 22, 4, wait=500)
    differs('latches', [was_set, latch('down', 3, 4, 2, code=-20), passed],
            [was_set, latch('down', 3, 4, 2, code=-41), passed])
    assert not found('latches', [was_set, latch('down', 3, 4, 2, code=-41), passed,
                                 latch('close', 3, 5, 2)])


@case
def a_latch_at_0_that_somebody_waits_for():
    was_set, down = latch('set', 1, 2, permits=1), latch('down', 10, 11, 2)
    differs('idle', [was_set, down, latch('wait', 5, 1000, 3, wait=9000)],
            [was_set, down, latch('wait', 5, 1020, 3, wait=9000)])
    assert not found('idle', [was_set, latch('wait', 5, 5000, 3, wait=9000, code=-3)])


@case
def a_latch_at_0_that_is_said_to_be_above():
    was_set, down = latch('set', 1, 2, permits=1), latch('down', 10, 11, 2)
    differs('honest', [was_set, down, latch('wait', 9, 12, 3, code=-1)],
            [was_set, down, latch('wait', 13, 14, 3, code=-1)])


@case
def a_latch_is_not_judged_once_data_were_lost():
    facts = Facts(bound_ms=1000)
    facts.fault(['data'], 5 * MS, 6 * MS, 100)
    good = [latch('set', 1, 2, permits=1), latch('wait', 15, 5000, 3, wait=9000, code=-2)]
    assert not judge(good, facts), judge(good, facts)
    assert not judge([good[0], latch('wait', 15, 16, 3)], facts)
    assert found('latches', [latch('set', 3000, 3001, permits=1), latch('wait', 3015, 3016, 3)],
                 facts)


@case
def lost_tokens_are_an_excuse_of_their_own():
    wrong = [hold(1, 10, 20, token=6), hold(2, 30, 40, token=6)]
    facts = Facts(bound_ms=1000)
    facts.fault(['data'], 21 * MS, 22 * MS, 100)
    assert found('tokens', wrong, facts)
    facts.fault(['tokens'], 21 * MS, 22 * MS, 100)
    assert not found('tokens', wrong, facts)


@case
def an_older_state_may_bring_back_what_had_ended():
    facts = Facts(bound_ms=1000, exchange_ms=10)
    facts.fault(['data', 'stale'], 20 * MS, 30 * MS, 100)  # until 4650
    told = [hold(1, 1, 10), call('acquire', 200, 201, 2, code=-1)]
    late = [hold(1, 1, 10), call('acquire', 5000, 5001, 2, code=-1)]
    differs('honest', told, late, facts)
    w = [hold(1, 1, 10), call('acquire', 40, 5600, 2, wait=9000), hold(2, 5600, 5601, begin=40)]
    x = [hold(1, 1, 10), call('acquire', 40, 5700, 2, wait=9000), hold(2, 5700, 5701, begin=40)]
    differs('idle', w, x, facts)


@case
def leases_that_begin_anew_last_longer():
    facts = Facts(bound_ms=1000, exchange_ms=10)
    facts.fault(['anew'], 900 * MS, 1000 * MS, 100)
    killed = {'process': 9, 'how': 0, 'lease': 1000}
    facts.killed = {9: 12 * MS}
    soon = [call('acquire', 5, 3100, 2, wait=9000), hold(2, 3100, 3101, begin=5)]
    late = [call('acquire', 5, 3200, 2, wait=9000), hold(2, 3200, 3201, begin=5)]
    differs('idle', [hold(1, 1, 10, **killed), *soon], [hold(1, 1, 10, **killed), *late], facts)


@case
def a_process_that_crashed():
    facts = Facts()
    facts.status = {1: 0}
    assert not judge([Record(type=END, process=1)], facts)
    facts.status = {1: -11}
    assert found('end', [], facts)
    facts.killed = {1: 5}
    facts.status = {1: -9}
    assert not judge([], facts)


@case
def a_report_of_a_sanitizer():
    for text, n in (('generate: open: no\n', 0), ('x.c:1:2: runtime error: shift\n', 1),
                    ('a\n==7==ERROR: AddressSanitizer: heap-use-after-free\n#0 f\n', 1),
                    ('WARNING: ThreadSanitizer: data race (pid=7)\n', 1)):
        with tempfile.NamedTemporaryFile('w') as f:
            f.write(text)
            f.flush()
            assert len(sanitizer_reports(f.name)) == n, text


if __name__ == '__main__':
    sys.exit(cases.run_in_turn())
