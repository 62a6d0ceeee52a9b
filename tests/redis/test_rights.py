#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Least rights on Redis: the statements of docs/security.md are enough, and each right in them is
needed: without it a call fails, and the error names the right.
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from actor import Actor  # noqa: E402
from cases import case, run  # noqa: E402
from redis_live import Live  # noqa: E402
from redis_sentinel import Watched  # noqa: E402
import rights  # noqa: E402
from wait import until  # noqa: E402

BATCHES = 8  # of rights that are taken away, side by side
ODD = ('a}b', 'tag{x}y')


def url_of(s, rules, **params):
    """The URL of a new user with these rules, on an empty server."""
    s.call('ACL', 'SETUSER', 'u', 'reset', *rules)
    s.call('FLUSHALL')
    s.call('SCRIPT', 'FLUSH')
    query = '&'.join(f'{k}={v}' for k, v in params.items())
    return f'redis://u:pw@127.0.0.1:{s.port}/?{query}'


def names_it(right):
    """The text that the error must contain if this rule is missing."""
    if right[0] == '+':
        return rf"'{re.escape(right[1:])}' command|\+{re.escape(right[1:])}\b"
    return re.escape(right)


def single(rules):
    return [r for r in rules if r[0] in '+~&']


def take_away(s, mark, batch, **options):
    rules = rights.redis_rules(mark)
    params = options.pop('params', {})
    for right in single(rules)[batch::BATCHES]:
        url = url_of(s, [r for r in rules if r != right], **params)
        rights.missing(right, names_it(right), url, **options)


LAYOUTS = {'redis': dict(names=ODD),
           'redisson': dict(names=ODD, seen=False, params={'layout': 'redisson', 'prefix': 'shop:'})}

for layout, how in LAYOUTS.items():
    for number in range(BATCHES):
        @case(f"{layout}: each right that is missing is named, part {number + 1}", limit=300)
        def _(s, layout=layout, number=number, how=how):
            take_away(s, layout, number, **how)


# ---- less than everything, and more ---------------------------------------------------------------

def looks(url, pattern):
    """Run pawl ls and pawl show with this URL; each missing right must be named."""
    a = Actor(url, opens=False)
    for words in (('show', 'n'), ('show', 'k'), ('show', 's'), ('ls',)):
        answer = a.opened if a.opened.code != 'PAWL_OK' else a.ask(*words)
        if answer.code != 'PAWL_OK':
            break
    a.kill()
    assert (answer.code == 'PAWL_OK') == (pattern is None), answer
    assert pattern is None or answer.be('PAWL_EAUTH') and re.search(pattern, answer.words), answer


@case('rights to look, and no more: ls and show work, a lock is refused; each right is needed')
def _(s):
    rules = rights.redis_rules('redis look')
    for right in [None] + single(rules):
        url = url_of(s, [r for r in rules if r != right])
        h = s.actor('shown')
        h.lock('l', 'n' if right != '~{*}:pawl:*' else 'a}b')
        h.ask('take', 'l', 20000).ok()
        h.lock('k', 'k', kind='read')
        h.ask('take', 'k', 20000).ok()
        looks(url, right and names_it(right))
        h.kill()
    b = Actor(url_of(s, rules))
    b.lock('k', 'k')
    b.ask('take', 'k', 1000).be('PAWL_EAUTH')


@case('a right that is given later is found')
def _(s):
    rules = rights.redis_rules('redis')
    a = Actor(url_of(s, [r for r in rules if r != '+publish']))
    a.lock('l', 'n')
    a.ask('take', 'l', 1000).be('PAWL_EAUTH')
    s.call('ACL', 'SETUSER', 'u', '+publish')
    until(lambda: a.ask('take', 'l', 1000).be('PAWL_OK', 'PAWL_EAUTH').code == 'PAWL_OK')


@case('rights of single features that are missing are named')
def _(s):
    rules = rights.redis_rules('redis')
    for right, change in (('+select', lambda u: u.replace('/?', '/2?')),
                          ('+wait', lambda u: u + 'replicas=1')):
        a = Actor(change(url_of(s, rules)))
        a.lock('l', 'n')
        answer = a.ask('take', 'l', 1500)
        assert re.search(names_it(right), answer.be('PAWL_EAUTH').words), answer
        a.kill()
        a = Actor(change(url_of(s, rules + [right])))
        a.lock('l', 'n')
        assert 'NOPERM' not in a.ask('take', 'l', 1500).words
        a.kill()


def a_sentinel():
    return Watched(replicas=0, sentinels=1)


@case('each right of a sentinel that is missing is named', server=a_sentinel)
def _(w):
    rules = rights.redis_rules('redis sentinel')
    url = w.url(sentinel_user='u', sentinel_password='pw')
    for right in [None] + single(rules):
        w.sentinels[0].call('ACL', 'SETUSER', 'u', 'reset', *[r for r in rules if r != right])
        a = Actor(url)
        a.lock('l', 'n')
        answer = a.ask('take', 'l', 10000)
        a.close()
        if right is None:
            answer.ok()
        else:
            assert re.search(names_it(right), answer.be('PAWL_EAUTH').words), answer
            print(f'# without {right}: {answer.words}')


if __name__ == '__main__':
    sys.exit(run(Live))
