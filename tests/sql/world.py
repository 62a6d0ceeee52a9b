# SPDX-License-Identifier: Apache-2.0
"""What a case on PostgreSQL or MariaDB gets: a server and a lock name of its own. All cases use one server
unless a case asks for its own. The actors of a case are ended afterwards.
"""
import contextlib
import sys

from actor import Actor
from cases import run_in_turn
from sql_server import SERVERS


class Shared:
    """What the cases share: a server. own: options for a server of the case's own."""

    def __init__(self, kind):
        self.kind, self.server = kind, None

    @contextlib.contextmanager
    def case(self, number, own=None):
        if own is None and not self.server:
            self.server = self.kind()
            self.server.schema()
        server = self.server if own is None else self.kind(**own)
        try:
            yield server, f'case {number}'
        finally:
            Actor.kill_all()
            if server is not self.server:
                server.stop()

    def stop(self):
        if self.server:
            self.server.stop()


def run(kinds=SERVERS):
    """The first word of the command line is the engine."""
    engine = sys.argv.pop(1)
    shared = Shared(kinds[engine])
    return run_in_turn(shared.case, shared.stop, only=engine)
