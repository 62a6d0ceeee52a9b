# SPDX-License-Identifier: Apache-2.0
"""How late processes of this machine are at present, for tests that check times."""
from actor import Actor

PROMPT_MS = 100


class Control:
    """A process that wakes up every 5 ms and notes its delay: other processes may be as late."""

    def __init__(self):
        self.actor = Actor('memory:')
        self.actor.send('ticks', 5)
        self.actor.answer('ticks').ok()

    def late_ms(self):
        return self.actor.ask('late').us / 1e3

    def prompt(self, ms, limit, what):
        """Check that `ms` is at most the limit, plus PROMPT_MS and three times the control's delay."""
        late = self.late_ms()
        print(f'# {what}: {ms:.1f} ms; the control was up to {late:.1f} ms late')
        assert ms <= limit + PROMPT_MS + 3 * late, f'{what}: {ms:.1f} ms, the limit is {limit}'

    def before(self, first_ns, second_ns, what):
        """Check the order of two instants of two processes, each of which may be as late as the control."""
        late = self.late_ms()
        ms = (second_ns - first_ns) / 1e6
        print(f'# {what}: {ms:.1f} ms apart; the control was up to {late:.1f} ms late')
        assert ms > (0 if late < 10 else -3 * late), f'{what}: {ms:.1f} ms, the wrong way round'
