# SPDX-License-Identifier: Apache-2.0
"""Least rights: runs Pawl with the statements of docs/security.md, and with one right missing.

A block of statements is a fenced block with a mark, a line `<!-- rights: MARK -->`, before the fence. The
tests carry out these statements and no others, so that the documented statements are the tested ones.

everything() uses all functions of Pawl with the rights of one user. missing() does the same with one right
too few: each part either works or ends with PAWL_EAUTH and a text that names the right. No call hangs or
says that another owner has the lock.
"""
import os
import re
import shlex
import time

from actor import Actor

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'docs', 'security.md')
WAIT = 15000  # ms: a limit that calls should not reach
KINDS = ('mutex', 'fair', 'read', 'write', 'spin')


def block(mark):
    """The lines of the block, without prompts. A backslash at the end continues a line."""
    with open(PAGE, encoding='utf-8') as f:
        found = re.findall(r'^<!-- rights: ' + re.escape(mark) + r' -->\n```\w*\n(.*?)^```', f.read(),
                           re.M | re.S)
    assert len(found) == 1, f'{len(found)} blocks of rights "{mark}" in docs/security.md'
    text = re.sub(r'\s*\\\n\s*', ' ', found[0])
    return [re.sub(r'^\$ ', '', line) for line in text.splitlines() if line.strip()]


def commands(mark):
    """The words of each command line of the block."""
    return [shlex.split(line) for line in block(mark)]


def redis_rules(mark):
    """The ACL rules of the block for a user on Redis; the password is "pw"."""
    (words,) = commands(mark)
    at = words.index('ACL')
    assert words[0] == 'redis-cli' and words[at + 1] == 'SETUSER', words
    return [w.replace('PASSWORD', 'pw') for w in words[at + 3:]]


def statements(mark, **names):
    """The SQL statements of the block, with other names: shop='me', app='here'."""
    text = ' '.join(line.strip() for line in block(mark))
    for old, new in names.items():
        text = re.sub(rf'\b{old}\b', new, text)
    return [s.strip() for s in text.split(';') if s.strip()]


def single_grants(statement):
    """GRANT A, B ON KIND X, Y TO U as (A, KIND X), (A, KIND Y), (B, KIND X) ..."""
    rights, on = re.fullmatch(r'GRANT (.+?)(?: ON (.+))? TO \w+', statement).groups()
    if not on:
        return [(right, '') for right in rights.split(', ')]
    kind, things = re.fullmatch(r'((?:[A-Z]+ )?)(.+)', on).groups()
    return [(right, kind + thing) for right in rights.split(', ') for thing in things.split(', ')]


class Refused(Exception):
    """A call was refused for lack of a right."""

    def __init__(self, answer):
        super().__init__(answer.line)
        self.words = answer.words


class Scene:
    """Two clients of one user, and their calls. Each call succeeds or raises Refused."""

    def __init__(self, url, environ=None, seen=True):
        """seen: the service shows the waiters of all kinds of locks, not only of fair locks."""
        self.url, self.environ, self.seen, self.actors = url, environ, seen, []
        self.a, self.b = self.client('a'), self.client('b')

    def client(self, label):
        actor = Actor(self.url, label, environ=self.environ, opens=False)
        self.actors.append(actor)
        self.good(actor.opened)
        return actor

    @staticmethod
    def good(answer, *codes):
        if answer.code == 'PAWL_EAUTH':
            raise Refused(answer)
        return answer.be(*(codes or ('PAWL_OK',)))

    def ask(self, actor, *words, codes=()):
        return self.good(actor.ask(*words), *codes)

    def end(self):
        for actor in self.actors:
            actor.kill()

    # ---- the parts ----

    def rows(self, *words):
        self.ask(self.a, *words)
        with self.a.changed:
            rows = [line for line in self.a.lines if line.verb == 'row']
            for row in rows:
                self.a.lines.remove(row)
        return rows

    def waits(self, name, actor, *answer, n=1):
        """Wait until n waiters are shown for the name. A wait that ends before fails the test, or raises
        Refused."""
        end = time.monotonic() + WAIT / 1000
        while sum(r.role == 'waiter' for r in self.rows('show', name)) < n:
            had = actor.have(*answer)
            if had:
                self.good(had)
                raise AssertionError(f'did not wait: {had}')
            assert time.monotonic() < end, f'nobody waits for {name}'
            time.sleep(0.02)

    def hand_over(self, name, **options):
        for x in (self.a, self.b):
            x.lock(name, name, **options)
        self.ask(self.a, 'take', name, WAIT)
        self.b.send('take', name, WAIT)
        if self.seen:
            self.waits(name, self.b, 'take', name)
        else:
            time.sleep(0.1)
        self.ask(self.a, 'renew', name, 40000)
        began = time.monotonic()
        self.ask(self.a, 'drop', name)
        self.good(self.b.answer('take', name))
        took = time.monotonic() - began
        assert took < WAIT / 2000, f'{name}: handed over after {took:.1f} s only'

    def mutex(self):
        self.hand_over('n')
        self.rows('ls')

    def fair(self):
        """Two clients wait, and get the lock in turn."""
        actors = [self.a, self.b, self.client('c')]
        for i, x in enumerate(actors):
            x.lock('f', 'line', kind='fair')
            if i == 0:
                self.ask(x, 'take', 'f', WAIT)
            else:
                x.send('take', 'f', WAIT)
                self.waits('line', x, 'take', 'f', n=i)
        for x, after in zip(actors, actors[1:]):
            self.ask(x, 'drop', 'f')
            self.good(after.answer('take', 'f'))

    def give_up(self, kind='mutex'):
        name = 'given up ' + kind
        for x in (self.a, self.b):
            x.lock('c', name, kind=kind)
        self.ask(self.b, 'take', 'c', WAIT)
        for ms in (100, 1000, WAIT):  # a busy service gets more time
            given_up = self.ask(self.a, 'take', 'c', ms, codes=('PAWL_ETIMEDOUT', 'PAWL_ECONN'))
            if given_up.code == 'PAWL_ETIMEDOUT':
                break
        given_up.be('PAWL_ETIMEDOUT')
        self.ask(self.b, 'drop', 'c')
        self.ask(self.a, 'take', 'c', WAIT)

    def give_up_fair(self):
        self.give_up('fair')

    def evict(self):
        for x in (self.a, self.b):
            x.lock('e', 'broken')
        self.ask(self.b, 'take', 'e', WAIT)
        self.ask(self.a, 'break', 'e')
        self.b.lost('e')

    def kinds(self):
        for kind in KINDS:
            self.a.lock(kind, 'k' + kind, kind=kind, at_least=1)
            self.ask(self.a, 'take', kind, WAIT)
            self.ask(self.a, 'drop', kind)

    def shared(self):
        for x in (self.a, self.b):
            x.lock('r', 'shared', kind='read')
            self.ask(x, 'take', 'r', WAIT)
        self.ask(self.a, 'drop', 'r')
        self.ask(self.a, 'break', 'r')

    def downgrade(self):
        """A writer also acquires the read lock, and releases one after the other."""
        self.a.lock('down', 'both', kind='write', thread=1)
        self.a.lock('downr', 'both', kind='read', thread=1)
        self.ask(self.a, 'take', 'down', WAIT)
        self.ask(self.a, 'take', 'downr', WAIT)
        self.rows('show', 'both')
        self.ask(self.a, 'drop', 'down')
        self.ask(self.a, 'drop', 'downr')

    def permits(self):
        for x in (self.a, self.b):
            x.sem('s', 's', permits=2)
        self.ask(self.a, 'take', 's', WAIT, 2)
        self.ask(self.a, 'available', 's')
        self.b.send('take', 's', WAIT, 1)
        self.ask(self.a, 'drop', 's', 1)
        self.good(self.b.answer('take', 's'))
        self.ask(self.a, 'drop', 's', 1)
        self.rows('show', 's')
        self.rows('ls')

    def latches(self):
        for x in (self.a, self.b):
            x.latch('d', 'd')
        self.ask(self.a, 'set', 'd', 2)
        self.ask(self.a, 'down', 'd')
        self.b.send('take', 'd', WAIT)
        time.sleep(0.1)  # by now the actor may wait
        self.ask(self.a, 'count', 'd')
        self.ask(self.a, 'down', 'd')
        self.good(self.b.answer('take', 'd'))

    def names(self, *names):
        for i, name in enumerate(names):
            self.a.lock(f'odd{i}', name)
            self.ask(self.a, 'take', f'odd{i}', WAIT)
            self.ask(self.a, 'drop', f'odd{i}')


PARTS = ('mutex', 'fair', 'give_up', 'give_up_fair', 'evict', 'kinds', 'shared', 'downgrade',
         'permits', 'latches', 'odd')


def play(url, part, names=(), environ=None, seen=True, **more):
    """Run one part with two new clients of this user. Returns None, or the error text of the refusal."""
    scene = Scene.__new__(Scene)
    scene.actors = []
    try:
        scene.__init__(url, environ, seen)
        if part == 'odd':
            scene.names(*names)
        elif part in more:
            more[part](scene)
        else:
            getattr(scene, part)()
        for x in scene.actors:
            x.close()
        return None
    except Refused as refused:
        return refused.words
    except AssertionError as failure:
        raise AssertionError(f'{part}: {failure}') from failure
    finally:
        scene.end()


def everything(url, parts=PARTS, **options):
    """All parts work with this user's rights."""
    for part in parts:
        words = play(url, part, **options)
        assert words is None, f'{part}: {words}'


def missing(right, pattern, url, parts=PARTS, **options):
    """One right is missing: each part works or is refused by name, and at least one is refused."""
    refused = [words for words in (play(url, part, **options) for part in parts)
               if words is not None]
    for words in refused:
        assert re.search(pattern, words), f'without {right}: "{words}"'
    assert refused, f'without {right} everything works: the right must not be in the list'
    print(f'# without {right}: {refused[0]}')
