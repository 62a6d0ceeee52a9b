#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""judge.py [--bound=MS] LOG ...: reads the logs of one free run and prints each violated rule.

The judge shares no code with the library and asks no server. Its input are the log files that the
processes mapped and wrote (holds.h): calls with the instants before and after, and holds as [the
acquire had returned, just before pawl_lock_valid_ms() was last seen above 0], all on one clock.
The judge checks these rules:

  exclusion  no two holds of different owners of a name overlap, unless both are shared; the permits
             of a semaphore that are held at one instant are never more than its capacity
  tokens     a hold whose acquire began after another's acquire had returned has a larger token
  done       the callback of each operation that was started came exactly once
  returns    each call returned, within its limit and `bound`; so did each close
  idle       no call waited for longer than `bound` while no other owner can have had the name
  honest     PAWL_EBUSY and PAWL_ETIMEDOUT only if another owner can have had the name or asked for it
  reach      no call that was not disturbed for `bound` and two exchanges ends without an answer: a
             client that lost the service finds the service again
  writes     the service was written to at most twice for each call that may change something, and 60
             times more
  cancelled  PAWL_ECANCELED only if a call cancelled, freed the handle or closed the client
  latches    no wait passes a latch that is certainly above 0; the rules `idle` and `honest` apply to
             waits for a latch that is certainly at 0
  lost       a hold is lost as "gone" before the end that pawl_lock_valid_ms() last promised only if
             a call broke the lock or the service lost data; by silence (leases of 2 s and more) only if
             the network, the service or the process was disturbed
  silent     no acquire that began while the service could not answer returned PAWL_EBUSY or
             PAWL_ETIMEDOUT
  connection no client gave up its connection, unless a fault cut the connection or the process was
             stopped
  places     pawl_inspect, pawl_list and the servers themselves have no more waiters than can wait; the
             queue entry ("place") of a waiter that was killed, or that got no answer, stays for at most
             a minute
  max        no hold is valid for longer than its max_hold_ms
  closed     a close that returned 0 left no holder of its client on the service
  end        each process that was not killed ended by itself with status 0

`Facts` records the faults that the orchestrator caused: processes that were killed or stopped,
instants when the network or the server was disturbed, and the data that the service lost by a fault
(Facts.fault). A fault excuses exactly this: a killed process has not returned from its calls; the time
for which a process was stopped, or the network or server was disturbed, does not count as idle or as
late; for the exclusion check, existing holds end at the instant when a break, or a fault that lost
data, began. Nothing else excuses two holders, whatever the network or the scheduler did.
"""
import struct
import sys

FIELDS = ('type', 'process', 'thread', 'object', 'owner', 'name', 'mode', 'permits', 'capacity',
          'lease', 'begin', 'got', 'valid', 'leaving', 'left', 'code', 'token', 'wait', 'verb',
          'dones', 'at_least', 'how', 'client', 'lost', 'until')
VERBS = ('acquire', 'start', 'release', 'rstart', 'renew', 'break', 'cancel', 'free', 'close',
         'inspect', 'list', 'sacquire', 'srelease', 'avail', 'set', 'down', 'wait', 'count', 'sleep',
         'expire', 'hold', 'end', 'fork', 'fault')
HOLD, CALL, END, RECONNECT, LATE = 1, 2, 3, 4, 5
EXCLUSIVE, SHARED, PERMITS = 0, 1, 2
NOT_ENDED, RELEASED, LOST, FREED, CLOSED, UNKNOWN = range(6)
EBUSY, ETIMEDOUT = -1, -2
ECANCELED, EUNKNOWN, ECONN, EQUORUM, ESTATE = -3, -20, -30, -34, -41
UNANSWERED = (-20, -30, -34, -10)  # EUNKNOWN, ECONN, EQUORUM, ELOST
LATCH, MULTI = 3, 1
LOST_GONE, LOST_SILENCE = 2, 3
WRITES = ('acquire', 'start', 'sacquire', 'release', 'rstart', 'srelease', 'renew', 'break', 'close',
          'set', 'down', 'wait')  # calls that change something at the service
TAKES = ('acquire', 'start', 'sacquire')
MS = 1000000
PLACE = 64500 * MS  # a waiter's queue entry is refreshed every 4.5 s and is valid for a minute
FOREVER = 1 << 62
ROW = struct.Struct(f'<{len(FIELDS)}q')


class Record:
    def __init__(self, **fields):
        for f in FIELDS:
            setattr(self, f, fields.get(f, 0))
        if self.type == CALL:
            self.word = VERBS[self.verb]

    def __repr__(self):
        return f'process {self.process} thread {self.thread} object {self.object}'


def read_log(path):
    with open(path, 'rb') as f:
        data = f.read()
    count = struct.unpack_from('<q', data)[0]
    count = min(count, (len(data) - 64) // ROW.size)
    return [Record(**dict(zip(FIELDS, ROW.unpack_from(data, 64 + i * ROW.size))))
            for i in range(count)]


class Facts:
    def __init__(self, bound_ms=5000, exchange_ms=2000, lease_ms=30000):
        self.bound = bound_ms * MS
        self.exchange = exchange_ms * MS  # the clients' limit of one exchange
        self.lease = lease_ms * MS        # the longest lease
        self.tied = False    # a lock ends with the connection of its holder
        self.far = 0         # the longest time that a message takes without a fault
        self.killed = {}    # process: instant
        self.stopped = {}   # process: [(from, to)]
        self.disturbed = []  # [(from, to)]: network or server
        self.data_lost = []  # [(from, to)]
        self.counts_lost = []  # [(from, to)]: latches may have lost counts
        self.tokens_lost = []
        self.stale = []
        self.waits = []      # [(from, to)]: as `stale`, but for waits only
        self.anew = []
        self.cuts = []       # [(from, to)]: connections may be cut, or given up
        self.silent = []     # [(from, to)]: the service can't answer any client
        self.away = []  # clients need not have a connection
        self.writes = None  # the number of writes that the service counted
        self.sessions = False  # a lock ends with its connection
        self.few = False  # a client has fewer connections than it may wait for locks at a time
        self.late = []      # [(from, to)]: the machine gave a process no processor time
        self.places = []    # [(name, from, to, places)]: queue entries of waiters on the servers
        self.status = {}    # process: exit status

    def fault(self, excuses, begin, end, lease_ms):
        """The network or the servers were disturbed. A client repeats a request that got no answer after
        the limit of an exchange, and backs off before it reconnects. The excuses:

        data    the service may have lost grants
        tokens  the service may have lost the counters of tokens, too
        counts  a latch may be back at an older count; data loss excuses that, too
        stale   ended grants may exist again, on all servers or some of them, until their lease and the
                longest time that the documentation states (4.5 s) are over
        left    ended grants may still exist on some of the servers. This excuses PAWL_EBUSY as `stale`
                does, but not a wait: three exchanges after the fault a waiter has overruled such a server
        connected  the fault is no reason to give up a connection
        anew    every lease began again, with its whole time, at the end of the fault
        """
        self.disturbed.append((begin, end + 2 * self.exchange))
        if excuses:  # a client that has seen newer data connects again when its lease is over
            self.away.append((begin, end + lease_ms * MS + 2 * self.exchange))
        if 'connected' not in excuses:
            self.cuts.append(self.away[-1] if 'stale' in excuses else self.disturbed[-1])
        if 'data' in excuses:
            self.data_lost.append((begin, end + self.exchange))
        if 'data' in excuses or 'counts' in excuses:
            self.counts_lost.append((begin, end + self.exchange))
        if 'tokens' in excuses:
            self.tokens_lost.append((begin, end + self.exchange))
        if 'stale' in excuses or 'left' in excuses:
            self.stale.append((begin, end + (lease_ms + 4500) * MS + 2 * self.exchange))
        self.waits.append(self.stale[-1] if 'stale' in excuses
                          else (begin, end + 3 * self.exchange * ('left' in excuses)))
        if 'anew' in excuses:
            self.anew.append((begin, end))

    def quiet(self, process, begin, end, more=()):
        """The part of begin to end in which nothing disturbed the process or the service."""
        cuts = self.disturbed + self.late + self.stopped.get(process, []) + list(more)
        return end - begin - overlap(cuts, begin, end)


def overlap(spans, begin, end):
    """How much of begin to end the spans cover, each instant once."""
    total, at = 0, begin
    for a, b in sorted(spans):
        a, b = max(a, at), min(b, end)
        if b > a:
            total += b - a
            at = b
    return total


def union(spans):
    out = []
    for a, b in sorted(spans):
        if out and a <= out[-1][1]:
            out[-1][1] = max(out[-1][1], b)
        else:
            out.append([a, b])
    return out


class Judge:
    def __init__(self, records, facts):
        self.facts = facts
        self.holds = [r for r in records if r.type == HOLD and r.got]
        self.calls = [r for r in records if r.type == CALL and r.word != 'sleep']
        facts.late += [(r.begin, r.got) for r in records if r.type == LATE]
        self.slow = [(a, b + facts.exchange) for a, b in facts.late]
        self.reconnects = [r for r in records if r.type == RECONNECT]
        self.ends = {r.process for r in records if r.type == END}
        self.violations = []
        self.last = max([r.got or r.begin for r in self.calls] + [0])
        self.names = {r.name for r in self.holds} | {
            r.name for r in self.calls if r.word in TAKES and r.at_least != MULTI}
        self.breaks = {}
        for c in self.calls:
            if c.word == 'break':
                self.breaks.setdefault(c.name, []).append(c)

    def bad(self, check, text):
        self.violations.append(f'{check}: {text}')

    # ---- exclusion ----

    def claim(self, h):
        """[from, to] of a hold for the exclusion check, or None. A break may end a grant that was made
        before the break returned, even if the acquire returned later than the break did."""
        end = h.valid
        for b in self.breaks.get(h.name, []) + self.multi_breaks():
            if h.begin < (b.got or FOREVER):
                end = min(end, b.begin)
        for a, b in self.facts.data_lost:
            if h.begin < b:
                end = min(end, a)
        return (h.got, end) if end > h.got else None

    def multi_breaks(self):
        """A break through a multi-lock breaks the members. The log does not say which names these
        are."""
        return [b for b in self.calls if b.word == 'break' and b.at_least == MULTI]

    def exclusion(self):
        for name in self.names:
            claims = [(self.claim(h), h) for h in self.holds if h.name == name]
            claims = sorted(((c, h) for c, h in claims if c), key=lambda x: x[0])
            if any(h.mode == PERMITS for _, h in claims):
                self.permits(name, claims)
            else:
                self.exclusive(name, claims)

    def exclusive(self, name, claims):
        live = []
        for (begin, end), h in claims:
            live = [(e, g) for e, g in live if e > begin]
            for e, g in live:
                if g.owner != h.owner and not (g.mode == SHARED and h.mode == SHARED):
                    self.bad('exclusion', f'name {name}: {g} and {h} both hold it for '
                             f'{(min(e, end) - begin) / MS:.3f} ms '
                             f'(modes {g.mode}, {h.mode}, tokens {g.token}, {h.token})')
            live.append((end, h))

    def permits(self, name, claims):
        events = sorted([(b, 1, h) for (b, _), h in claims] + [(e, 0, h) for (_, e), h in claims],
                        key=lambda x: x[:2])
        held = 0
        capacity = max(h.capacity for _, h in claims)
        for at, begins, h in events:
            held += h.permits if begins else -h.permits
            if held > capacity:
                self.bad('exclusion', f'name {name}: {held} of {capacity} permits held ({h})')
                return

    # ---- tokens ----

    def tokens(self):
        for name in self.names:
            holds = [h for h in self.holds if h.name == name and h.token]
            by_begin = sorted(holds, key=lambda h: h.begin)
            by_got = sorted(holds, key=lambda h: h.got)
            i, largest = 0, None
            for h in by_begin:
                while i < len(by_got) and by_got[i].got < h.begin:
                    if largest is None or by_got[i].token > largest.token:
                        largest = by_got[i]
                    i += 1
                if largest and h.token <= largest.token and not (
                        h.owner == largest.owner and h.token == largest.token):
                    if not any(a < h.got and b > largest.got for a, b in self.facts.tokens_lost):
                        self.bad('tokens', f'name {name}: {h} got {h.token} after {largest} had got '
                                 f'{largest.token}')

    # ---- calls ----

    def returns(self):
        for c in self.calls:
            if c.process in self.facts.killed:
                continue
            if not c.got:
                self.bad('returns', f'{c}: {c.word} never returned')
                continue
            if c.wait < 0 and c.word in TAKES + ('wait',):
                continue
            limit = self.facts.bound + 2 * self.facts.exchange
            if c.word in TAKES + ('wait', 'hold', 'expire'):
                limit += max(c.wait, 0) * MS
            took = self.facts.quiet(c.process, c.begin, c.got)
            if took > limit:
                self.bad('returns', f'{c}: {c.word} took {took // MS} ms, its limit is {c.wait} ms')

    def done(self):
        for c in self.calls:
            if c.word not in ('start', 'rstart') or c.process in self.facts.killed:
                continue
            if c.dones > 1:
                self.bad('done', f'{c}: done was called {c.dones} times')
            if c.dones == 0 and c.code == 0:
                self.bad('done', f'{c}: {c.word} was accepted and done never called')

    def closed(self):
        """The process asked the service for its holders right after the close (free.c). A service that
        went back to an older state may have released grants again."""
        for c in self.calls:
            if c.word == 'close' and c.got and c.code == 0 and c.permits and not any(
                    a < c.got for a, _ in self.facts.stale + self.facts.data_lost):
                self.bad('closed', f'{c}: close returned 0, and {c.permits} of its locks are there')

    def end(self):
        for process, status in self.facts.status.items():
            if process not in self.facts.killed and status not in (0, 5):
                self.bad('end', f'process {process} ended with {status}')

    def lost(self):
        """A lock that was promised to be valid is gone only if the service lost the lock. Neither a
        disturbed network nor a busy machine ends a lease early."""
        for h in self.holds:
            if not h.lost:
                continue
            if h.code == LOST_GONE and h.lost < h.until - 5 * MS:
                spans = [(b.begin, b.got or FOREVER)
                         for b in self.breaks.get(h.name, []) + self.multi_breaks()]
                spans += self.facts.data_lost + self.facts.stale + self.facts.anew
                spans += self.facts.disturbed if self.facts.tied or self.facts.sessions else []
            elif h.code == LOST_SILENCE and h.lease >= 2000:
                spans = self.facts.stopped.get(h.process, []) + self.facts.disturbed + self.slow
            else:
                continue
            if not any(a < h.lost and b > h.begin for a, b in spans):
                self.bad('lost', f'name {h.name}: {h} was told that its lock is lost (reason {h.code}, '
                         f'lease {h.lease} ms), but nothing had happened')

    def connection(self):
        """A client gives up a connection if an answer does not come within an exchange."""
        for r in self.reconnects:
            spans = self.facts.cuts + self.slow + self.facts.stopped.get(r.process, [])
            if not any(a < r.got and b > r.begin - 2 * self.facts.exchange for a, b in spans):
                self.bad('connection', f'process {r.process}: client {r.client} connected again, but '
                         'nothing had cut its connection')

    def place(self, c):
        """[from, to] in which the service can have a queue entry for this acquire."""
        end = c.got or self.facts.killed.get(c.process) or FOREVER
        if not c.got or c.code in UNANSWERED or self.unsure(c):
            end += PLACE
        return c.begin, end + self.facts.bound + 2 * self.facts.exchange

    def places(self):
        shown = [(i.name, i.begin, i.got, i.token) for i in self.calls
                 if i.word == 'inspect' and not i.code and i.got]
        for name, begin, end, n in shown + self.facts.places:
            if not n or any(a < end for a, _ in self.facts.stale + self.facts.data_lost):
                continue
            most = sum(1 for c in self.calls if c.word in TAKES + ('wait',) and
                       (c.name == name or c.at_least == MULTI) and
                       self.place(c)[0] < end and self.place(c)[1] > begin)
            if n > most:
                self.bad('places', f'name {name}: there are {n} waiters, and {most} can be there')
                return

    def entered(self, h):
        """Whether h may be an entry into a hold of another handle of the same thread, whose callback
        had not run yet. The other handle then says how long the hold lasts. (In virtual time, calls
        one after another may have the same instant.)"""
        return any(c.word == 'start' and c.object != h.object and c.begin <= h.got and
                   c.got >= h.begin and (c.process, c.thread, c.name, c.mode) ==
                   (h.process, h.thread, h.name, h.mode) for c in self.calls)

    def max(self):
        for h in self.holds:
            if h.wait and h.mode != PERMITS and h.valid - h.got > (h.wait + 20) * MS and \
                    not self.entered(h):
                self.bad('max', f'name {h.name}: {h} was valid for {(h.valid - h.got) // MS} ms, '
                         f'its longest time is {h.wait} ms')

    # ---- liveness ----

    def closed_at(self, h):
        for c in self.calls:
            if c.word == 'close' and c.process == h.process and c.client == h.client and c.got:
                return c.got if c.code == 0 else None
        return None

    def most(self, h):
        """The latest instant at which the service can still have had this hold."""
        grace = h.lease * MS + self.facts.exchange
        end = h.left if h.how == RELEASED and h.left else None
        if end is None:
            end = max(h.valid, h.got, h.leaving, h.lost) + grace
            killed = self.facts.killed.get(h.process)
            if killed and h.how == NOT_ENDED:
                end = killed + grace
            elif h.how == NOT_ENDED and not killed:
                end = self.closed_at(h) or FOREVER
        for a, b in self.facts.stopped.get(h.process, []):
            if h.got < b and end > a:
                end += b - a
        for a, b in self.facts.anew:
            if h.got < b and end > a:
                end = max(end, b + grace)
        if h.at_least:
            end = max(end, h.got + h.at_least * MS)
        return end + overlap(self.facts.disturbed, h.begin, end)

    def dead(self):
        """How long at most killed waiters delay the others: the lease of a grant that one of them may
        have got, then 4.5 s until the first dead waiter is noticed, and 3 s for each dead waiter
        (docs/promises.md)."""
        waited = sum(1 for c in self.calls if c.process in self.facts.killed and not c.got
                     and c.word in TAKES)
        return self.facts.lease + self.facts.exchange + (4500 + 3000 * waited) * MS

    def leftover(self, c):
        """[from, to] in which a call may have had the name although its result does not say so."""
        if c.process in self.facts.killed and not c.got:
            return (c.begin, self.facts.killed[c.process] + self.dead())
        if c.got and c.code in UNANSWERED:
            return (c.begin, c.got + 30000 * MS)
        return None

    def occupied(self, name):
        """All times at which an owner can have had the name."""
        spans = [(h.got, self.most(h)) for h in self.holds if h.name == name]
        spans += [s for s in (self.leftover(c) for c in self.calls
                              if c.word in TAKES and (c.name == name or c.at_least == MULTI)) if s]
        spans += [s for c in self.calls if c.word in TAKES and (c.name == name or c.at_least == MULTI)
                  for s in self.granted_unheard(c)]
        return union(spans)

    def granted_unheard(self, c):
        """A process that is stopped while one of its calls waits may get the name and not log that."""
        for a, b in self.facts.stopped.get(c.process, []):
            if c.begin < b and (c.got or FOREVER) > a:
                yield max(a, c.begin), b + self.facts.exchange

    def idle(self):
        for name in () if self.facts.few else self.names:
            busy = self.occupied(name)
            for c in self.calls:
                if c.word not in ('acquire', 'start', 'sacquire') or c.name != name or \
                        c.at_least == MULTI or c.wait == 0 or c.process in self.facts.killed:
                    continue
                self.one_wait(name, busy, c)

    def one_wait(self, name, busy, c):
        begin, end = c.begin, c.got or self.last
        at = begin
        for a, b in busy + [[end, end]]:
            if at >= end:
                break
            free_until = min(max(a, at), end)
            if self.facts.quiet(c.process, at, free_until, self.facts.waits) > self.facts.bound:
                self.bad('idle', f'name {name}: {c} waited {(free_until - at) // MS} ms for what '
                         f'nobody had (code {c.code})')
                return
            at = max(at, b)

    def honest(self):
        for c in self.calls:
            if c.word in ('release', 'rstart', 'srelease', 'renew') and c.code in (EBUSY, ETIMEDOUT):
                self.bad('honest', f'{c}: {c.word} was told {c.code}, which only acquires are')
            if c.word not in TAKES or c.code not in (EBUSY, ETIMEDOUT) or not c.got or \
                    c.at_least == MULTI:
                continue
            if not self.others(c) and not self.facts.few:
                self.bad('honest', f'name {c.name}: {c} was told {c.code}, but nobody else had it or '
                         'asked for it')

    def silent(self):
        """A client may know without the service that the name is busy: if another owner has the name, or
        asks for the name, through the same client."""
        for c in self.calls:
            if c.word not in TAKES or c.code not in (EBUSY, ETIMEDOUT) or not c.got or \
                    c.at_least == MULTI:
                continue
            if any(a + 50 * MS < c.begin and c.got < b for a, b in self.facts.silent) and \
                    not self.others(c, (c.process, c.client)):
                self.bad('silent', f'name {c.name}: {c} was told {c.code} by a service that could not '
                         'answer')

    def reach(self):
        """A node of a quorum that lost its data does not vote for a while (settle=). The spans of `stale`
        cover this time."""
        for c in self.calls:
            if c.code not in (EUNKNOWN, ECONN, EQUORUM) or not c.got or self.facts.few:
                continue
            took = self.facts.quiet(c.process, c.begin, c.got, self.facts.away + (
                self.facts.stale if c.code == EQUORUM else []))
            if took > self.facts.bound + 2 * self.facts.exchange:
                self.bad('reach', f'{c}: {c.word} got no answer (code {c.code}) in {took // MS} ms in '
                         'which nothing was disturbed')

    def written(self):
        """A limit for the number of writes, which includes refused and repeated requests."""
        if self.facts.writes is None:
            return
        asked = sum(1 for c in self.calls if c.word in WRITES)
        most = 2 * asked + 60
        if self.facts.writes > most:
            self.bad('writes', f'{self.facts.writes} writes for {asked} calls')

    def cancelled(self):
        for c in self.calls:
            if c.code == ECANCELED and c.got and not any(self.may_cancel(d, c) for d in self.calls):
                self.bad('cancelled', f'{c}: {c.word} was told that it is cancelled, which nobody did')

    def may_cancel(self, d, c):
        """Whether call d may have cancelled call c. Cancelling or freeing a multi-lock affects its
        members as well, and the other way round. The members of a multi-lock may belong to several
        clients. An acquire may have entered a hold of another handle of its thread; freeing that
        handle releases the hold."""
        if d.process != c.process or d.begin > c.got:
            return False
        if d.word == 'close':
            return d.client == c.client or c.at_least == MULTI
        return d.word in ('cancel', 'free') and \
            (d.got or FOREVER) >= c.begin and (
                d.object == c.object or MULTI in (c.at_least, d.at_least) or
                (d.word == 'free' and c.word == 'start' and self.had_entered(c, d.object)))

    def had_entered(self, c, object_):
        return any(e.word in TAKES and e.object == object_ and e.begin <= c.begin and
                   (e.process, e.thread, e.name) == (c.process, c.thread, c.name)
                   for e in self.calls)

    def others(self, c, client=None):
        slack = 50 * MS + 4 * self.facts.far
        if client is None and any(a < c.got and b > c.begin for a, b in self.facts.stale):
            return True
        for h in self.holds:
            if client in (None, (h.process, h.client)) and h.name == c.name and h.begin < c.got and self.most(h) + slack > c.begin:
                return True
        for d in self.calls:
            if d is not c and client in (None, (d.process, d.client)) and d.word in TAKES and (d.name == c.name or d.at_least == MULTI):
                until = d.got + slack if d.got and d.code not in UNANSWERED else FOREVER
                if d.begin < c.got and until > c.begin:
                    return True
        return False

    # ---- latches ----

    def of_latch(self, name, word):
        return [c for c in self.calls if c.name == name and c.word == word and c.at_least == LATCH]

    @staticmethod
    def certain(c):
        return bool(c.got) and c.code == 0

    def unsure(self, c):
        """Whether the outcome of a call is unknown: the call may have been carried out or not, now or
        later. A close ends calls with an unknown outcome as well."""
        return not c.got or c.code in UNANSWERED or c.code == ESTATE and any(
            d.word == 'close' and d.process == c.process and d.client == c.client and
            d.begin < c.got for d in self.calls)

    def latches(self):
        for name in {c.name for c in self.calls if c.at_least == LATCH}:
            sets, downs = self.of_latch(name, 'set'), self.of_latch(name, 'down')
            closed = union([(s.begin, self.open_from(s, downs)) for s in sets
                            if self.certain(s) or self.unsure(s)]
                           + [(a, FOREVER) for a, _ in self.facts.counts_lost])
            for w in self.of_latch(name, 'wait'):
                if self.certain(w):
                    self.passed(name, sets, downs, w)
                if w.wait and w.process not in self.facts.killed:
                    self.one_wait(name, closed, w)
                if w.got and w.code in (EBUSY, ETIMEDOUT) and not overlap(closed, w.begin - 1, w.got):
                    self.bad('honest', f'latch {name}: {w} was told {w.code}, but nobody had set it')

    def open_from(self, s, downs):
        """The instant from which a latch that was set is certainly at 0, if nobody sets the latch again."""
        if not self.certain(s):
            return FOREVER
        ends = sorted(d.got for d in downs if self.certain(d) and d.begin >= s.got)
        return ends[s.permits - 1] if len(ends) >= s.permits else FOREVER

    def passed(self, name, sets, downs, w):
        for s in sets:
            if not self.certain(s) or s.got > w.begin or \
                    any(a < w.got and b > s.begin for a, b in self.facts.counts_lost):
                continue
            most = sum(1 for d in downs if d.begin < w.got and (
                self.unsure(d) or d.code == 0 and d.got > s.begin))
            if most < s.permits:
                self.bad('latches', f'latch {name}: {w} passed it, although {s} had set it to '
                         f'{s.permits} and there were only {most} count-downs')

    def run(self):
        for check in (self.exclusion, self.tokens, self.done, self.returns, self.idle, self.honest,
                      self.silent, self.reach, self.written, self.cancelled, self.latches, self.lost,
                      self.connection, self.places, self.max, self.closed, self.end):
            check()
        return self.violations


def judge(records, facts):
    return Judge(records, facts).run()


def main():
    facts = Facts()
    paths = []
    for word in sys.argv[1:]:
        if word.startswith('--bound='):
            facts.bound = int(word[8:]) * MS
        else:
            paths.append(word)
    records = [r for p in paths for r in read_log(p)]
    bad = judge(records, facts)
    print('\n'.join(bad) or f'nothing wrong in {len(records)} records')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
