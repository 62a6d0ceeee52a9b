# SPDX-License-Identifier: Apache-2.0
"""Runs test cases and prints TAP: cases.run('postgres'). All cases use one server unless a case asks for
its own. A second argument selects the cases with this text in their sentence.

A case gets the server and a lock name of its own. The actors of a case are ended afterwards.
"""
import sys
import time
import traceback

from actor import Actor
from sql_server import SERVERS

_cases = []


def case(sentence, only=None, own=None):
    """only: the engine that the case is for. own: options for a separate server."""
    def add(function):
        _cases.append((sentence, only, own, function))
        return function
    return add


def equal(got, wanted, what=''):
    assert got == wanted, f'{what} got {got!r}, wanted {wanted!r}'


class _Actors:
    """Remembers the actors that a case makes, so that all of them can be ended."""

    def __init__(self):
        self.made = []
        original = Actor.__init__

        def init(a, *words, **options):
            self.made.append(a)
            original(a, *words, **options)
        Actor.__init__ = init

    def end(self):
        for a in self.made:
            if hasattr(a, 'process') and a.process.poll() is None:
                a.resume()
                a.kill()
        self.made.clear()


def run(engine, part='', kinds=SERVERS):
    mine = [c for c in _cases if c[1] in (None, engine) and part in c[0]]
    kind = kinds[engine]
    actors = _Actors()
    failed = 0
    shared = None
    print(f'1..{len(mine)}')
    try:
        for number, (sentence, _, own, function) in enumerate(mine, 1):
            server = None
            begun = time.monotonic()
            try:
                if own is None and not shared:
                    shared = kind()
                    shared.schema()
                server = shared if own is None else kind(*own.get(engine, ()),
                                                         steps_clock=own.get('clock', False))
                function(server, f'case {number}')
                print(f'ok {number} - {sentence}')
            except Exception:
                failed += 1
                print(f'not ok {number} - {sentence}')
                print('\n'.join('# ' + x for x in traceback.format_exc().splitlines()))
            finally:
                actors.end()
                if server and server is not shared:
                    server.stop()
            print(f'# {time.monotonic() - begun:.1f} s')
            sys.stdout.flush()
    finally:
        if shared:
            shared.stop()
    return 1 if failed else 0
