# SPDX-License-Identifier: Apache-2.0
"""A second implementation of the rules, as simple as possible: lists and loops, no leases, no Redis.

One Name is one lock, semaphore or unused name. Each method has the effect that the script of the same name
should have, and returns the expected status; self.told collects (letter, owner) of the expected messages.
The caller checks tokens: here a grant only says how many.
"""


class Entry:
    def __init__(self, owner, mode, permits=0, tokens=1, lingers=False):
        self.owner, self.mode, self.permits, self.tokens = owner, mode, permits, tokens
        self.lingers, self.token = lingers, 0
        self.alone = mode == 'x'  # the grant is in K itself; after a downgrade it is one of several


class Name:
    def __init__(self, alive):
        self.alive = alive  # owner -> bool: would a message reach the owner?
        self.holders, self.waiters, self.told = [], [], []
        self.capacity = 0
        self.foreign = False
        self.watch = None  # the watcher: checks when the holder's lease ends

    # -- questions

    def holder(self, owner):
        return next((h for h in self.holders if h.owner == owner and not h.lingers), None)

    def waiter(self, owner):
        return next((w for w in self.waiters if w.owner == owner), None)

    def used(self):
        return sum(h.permits for h in self.holders)

    def kind(self):
        if self.foreign:
            return 'lock'
        anyone = (self.holders + self.waiters)[:1]
        return None if not anyone else 'semaphore' if anyone[0].mode == 'p' else 'lock'

    def fits(self, entry):
        if self.foreign:
            return False
        if entry.mode == 'x':
            return not self.holders
        if entry.mode == 's':
            return all(h.mode == 's' for h in self.holders)
        return self.used() + entry.permits <= self.capacity

    # -- passing on

    def front(self):
        return self.waiters[0].owner if self.waiters else None

    def admit(self, asker):
        while self.waiters and self.fits(self.waiters[0]):
            w = self.waiters.pop(0)
            if w.owner == asker:
                self.holders.append(w)
            elif self.alive(w.owner):
                self.holders.append(w)
                self.told.append(('g', w.owner))

    def conclude(self, before, asker=None, sooner=False):
        self.admit(asker)
        while self.waiters:
            w = self.waiters[0]
            if w.owner == asker or (w.owner == before and not sooner):
                return
            if self.alive(w.owner):
                self.told.append(('f', w.owner))
                self.watch = w.owner
                return
            self.waiters.pop(0)
            self.admit(asker)

    def pass_at_once(self):
        """Pass the lock to a front that wants it exclusively. False: conclude(None) must do the rest."""
        w = self.waiters.pop(0)
        if not self.alive(w.owner):
            return False
        self.holders.append(w)
        self.told.append(('g', w.owner))
        if not self.waiters or self.waiter(self.watch):
            return True
        last = self.waiters[-1].owner
        if not self.alive(last):
            return False
        self.told.append(('f', last))
        self.watch = last
        return True

    # -- requests

    def acquire(self, owner, mode, queue, tokens=1, permits=0, capacity=0, with_owner=''):
        before = self.front()
        if self.holder(owner):
            self.conclude(before)
            return 'GRANTED'
        self.conclude(before, owner)
        if self.holder(owner):
            return 'GRANTED'
        if self.waiter(owner):
            if owner == self.front():
                self.watch = owner
            return 'QUEUED'
        kind = self.kind()
        if kind and kind != ('semaphore' if mode == 'p' else 'lock'):
            return 'STATE'
        if mode == 'p':
            in_force = self.capacity if kind else capacity
            if in_force <= 0 or (capacity and capacity != in_force):
                return 'STATE'
            if not 1 <= permits <= in_force:
                return 'INVAL'
            self.capacity = in_force
        entry = Entry(owner, mode, permits if mode == 'p' else 0, tokens)
        held = with_owner and mode == 's' and self.holder(with_owner)
        if (held and held.mode == 'x') or (not self.waiters and self.fits(entry)):
            if held:
                held.alone = False
            self.holders.append(entry)
            return 'GRANTED'
        if queue:
            self.waiters.append(entry)
            if len(self.waiters) == 1:
                self.watch = owner
            return 'QUEUED'
        return 'BUSY'

    def release(self, owner, keep=0, linger=0):
        before, h = self.front(), self.holder(owner)
        if not h:
            self.conclude(before)
            again = linger and any(x.owner == owner and x.lingers for x in self.holders)
            return 'OK' if again else 'NOTHELD'
        if keep:
            if keep < h.permits:
                h.permits = keep
                self.conclude(before)
            return 'OK'
        if linger:
            h.lingers = True
            self.conclude(before, sooner=True)
            return 'OK'
        self.holders.remove(h)
        if not (h.alone and self.waiters and self.waiters[0].mode == 'x'):
            self.conclude(before)
        elif not self.pass_at_once():
            self.conclude(None)
        return 'OK'

    def cancel(self, owner):
        before, h, w = self.front(), self.holder(owner), self.waiter(owner)
        if w:
            self.waiters.remove(w)
            before = before if owner != self.watch else None
        elif h:
            self.holders.remove(h)
        self.conclude(before)
        return 'QUEUED' if w else 'HELD' if h else 'NOTHELD'

    def break_(self):
        before, had = self.front(), bool(self.holders) or self.foreign
        for h in self.holders:
            if not h.lingers and self.alive(h.owner):
                self.told.append(('e', h.owner))
        self.holders.clear()
        self.foreign = False
        self.conclude(before)
        return 'OK' if had else 'NOTHELD'

    def expire(self, entry):
        self.holders.remove(entry)
