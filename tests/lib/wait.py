# SPDX-License-Identifier: Apache-2.0
"""Waiting for a condition. The limit exists only so that a test can't hang."""
import time

PATIENCE = 60  # seconds


def until(predicate, what='', patience=PATIENCE):
    """Wait until the predicate returns a true value, and return this value."""
    end = time.monotonic() + patience
    while True:
        value = predicate()
        if value:
            return value
        assert time.monotonic() < end, f'waited in vain {what}'
        time.sleep(0.002)
