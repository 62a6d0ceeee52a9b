# SPDX-License-Identifier: Apache-2.0
"""Runs test cases of the scripts and prints TAP. A case is a sentence and a function, which gets a server
of its own. Cases wait only where a lease has to end by itself.
"""
import sys
import time
import traceback

from redis_server import Server

_cases = []


def case(sentence, *options):
    """options: for the server."""
    def add(function):
        _cases.append((sentence, options, function))
        return function
    return add


def equal(got, wanted, what=''):
    assert got == wanted, f'{what} got {got!r}, wanted {wanted!r}'


def until(predicate, patience=60):
    end = time.monotonic() + patience
    while not predicate():
        assert time.monotonic() < end, 'timed out'
        time.sleep(0.002)


def run():
    print(f'1..{len(_cases)}')
    failed = 0
    for number, (sentence, options, function) in enumerate(_cases, 1):
        server = None
        try:
            server = Server(*options)
            function(server)
            print(f'ok {number} - {sentence}')
        except Exception:
            failed += 1
            print(f'not ok {number} - {sentence}')
            print('\n'.join('# ' + line for line in traceback.format_exc().splitlines()))
        finally:
            if server:
                server.stop()
        sys.stdout.flush()
    return 1 if failed else 0
