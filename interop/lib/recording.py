# SPDX-License-Identifier: Apache-2.0
"""Runs a scenario with a driver and writes down what the server saw, step by step.

A recording has, for every step, the answer (=), the commands the client sent and what its scripts
ran (|), the messages (msg), and every key with its type, value and time to live (key). What differs
from run to run is replaced: owners by the ID that owns them, request and permit ids by a number,
times by the next multiple of 10 s, or of what the scenario says (its leases are such multiples).
Two recordings agree if all but their | lines are equal: how a client asks is its own affair.
"""
import os
import re
import time

from redisdb import parse_monitor

QUIET = 0.12
NEVER = 922337203685477
OWN = {b'CLIENT', b'HELLO', b'PING', b'INFO', b'AUTH', b'SELECT', b'COMMAND', b'WAIT'}
OWNER = re.compile(r'([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(:\d+)?')
LATCH = b'redisson_unlock_latch:'


def load(path):
    """The steps of a scenario file: lists of words; comments are one step '#'."""
    steps = []
    with open(path, encoding='utf-8') as file:
        for line in file:
            line = line.strip()
            if line.startswith('#'):
                steps.append(['#', line[1:].strip()])
            elif line:
                steps.append(line.split())
    return steps


class Names:
    """What stands for the things that differ from run to run."""

    def __init__(self):
        self.step = 10000
        self.owners = {}
        self.numbered = {}

    def owner(self, raw, ident):
        self.owners[raw] = '<%s>' % ident
        self.owners[raw.split(':')[0]] = '<%s>' % ident.split('.')[0]

    def whose(self, found):
        client = self.owners.get(found[1]) or self.number('uuid', found[1])
        return self.owners.get(found[0], client + (found[2] or ''))

    def number(self, what, raw):
        known = self.numbered.setdefault(what, {})
        return '<%s:%d>' % (what, known.setdefault(raw, len(known) + 1))

    def permit(self, raw):
        """A member that is a raw permit id gets its number when it is first seen in a key."""
        return self.number('permit', raw.hex()) if len(raw) == 16 else None

    def text(self, raw):
        """A word of a command, a key, a field or a value."""
        if len(raw) == 40 and re.fullmatch(rb'[0-9a-f]{40}', raw):
            return self.number('script', raw)
        if len(raw) == 16 and not re.fullmatch(rb'[\x21-\x7e]*', raw):
            known = self.numbered.get('permit', {}).get(raw.hex())
            return '<permit:%d>' % known if known else '<permit>'
        text = raw.decode('utf-8', 'backslashreplace')
        text = OWNER.sub(self.whose, text)
        text = re.sub(r'\b[0-9a-f]{32}\b', lambda i: self.number(
            'permit' if i.group() in self.numbered.get('permit', {}) else 'id', i.group()), text)
        return re.sub(r'\b1\d{12}\b', lambda t: self.moment(int(t.group())), text)

    def up(self, ms):
        return int(-(-ms // self.step) * self.step)

    def moment(self, epoch_ms):
        """An instant by its distance from now."""
        if epoch_ms == NEVER:
            return '<never>'
        ahead = self.up(epoch_ms - time.time() * 1000)
        return '<now>' if ahead == 0 else '<past>' if ahead < 0 else '<now+%d>' % ahead

    def word(self, raw):
        """A word of a command: lengths of time are rounded up too."""
        if re.fullmatch(rb'-?\d{4,7}', raw) and int(raw) % 500:
            return '~%d' % self.up(int(raw))
        text = self.text(raw)
        return text if text and not re.search(r'\s', text) else '"%s"' % text


class Recorder:
    def __init__(self, server, driver, commands=True):
        self.server = server
        self.driver = driver
        self.commands = commands
        self.names = Names()
        self.out = []
        self.waiting = {}
        self.told = set()
        self.fresh = {}
        info = server.call('CLIENT', 'INFO').decode()
        self.own = re.search(r' addr=(\S+)', info).group(1)
        self.monitor = server.monitor()
        self.listener = server.listener()

    def close(self):
        self.monitor.close()
        self.listener.close()

    def run(self, steps):
        for step in steps:
            self.marks = self.monitor.mark(), self.listener.mark()
            if step[0] == '#':
                self.out.append('\n# ' + step[1])
            elif step[0] == 'round':
                self.names.step = int(step[1])
            elif step[0] == 'open':
                self.driver.do(' '.join(['open', step[1], str(self.server.port)] + step[2:]))
            elif step[0] == 'lock':
                self.driver.do(' '.join(step))
                self.learn(step[1])
            else:
                self.step(step)
        return '\n'.join(self.out).strip() + '\n'

    def learn(self, ident):
        client, owner = ident.split('.')[0], '.'.join(ident.split('.')[:2])
        if owner not in self.told:
            self.told.add(owner)
            raw = self.driver.do('owner ' + ident)
            self.names.owner(raw, owner)
            if self.driver.another(ident):
                self.fresh[client] = raw.split(':')[0]

    def step(self, step):
        self.out.append('> ' + ' '.join(step))
        if step[0] == '!':  # a peculiarity of Redisson's: nobody else is asked to do it
            step = step[1:]
            if self.driver.another(step[1]):
                return
        if step[0] == '+':  # here others may send messages besides (mixed.py)
            step = step[1:]
        if step[0] == 'sleep':
            time.sleep(int(step[1]) / 1000)
            result = ''
        elif step[0] == '&':
            answer = self.driver.send(' '.join(step[1:]))
            self.waiting[step[2]] = answer
            self.monitor.wait(self.foreign, self.marks[0])
            self.settle()
            result = 'ended' if answer.done.is_set() else 'waits'
        elif step[0] == 'answer':
            result = self.result(self.waiting.pop(step[1]).wait())
        else:
            result = self.command(step)
        self.settle()
        if result:
            self.out.append('  = ' + result)
        self.meet(step)
        state = self.messages() + self.keys()
        self.out += (self.sent() if self.commands else []) + state

    def meet(self, step):
        """A client may call its owners anew with each acquire: who is new now is who asked for
        the lock in this step, or was given it; in the order in which they began."""
        if '->' in step:
            asked = step[step.index('->') + 1:]
        else:
            asked = step[2:3] if step[0] == '&' else step[1:2]
        for client, uuid in self.fresh.items():
            new = sorted(self.strangers(uuid), key=lambda o: int(o.split(':')[1]))
            mine = ['.'.join(w.split('.')[:2]) for w in asked if w.split('.')[0] == client]
            for raw, owner in zip(new, mine):
                self.names.owners[raw] = '<%s>' % owner

    def strangers(self, uuid):
        """The owners of that client that are in the server and have no name yet."""
        seen = set()
        for key in self.server.call('KEYS', '*'):
            kind = self.server.call('TYPE', key)
            parts = [key] + {b'hash': lambda: self.server.call('HKEYS', key),
                             b'list': lambda: self.server.call('LRANGE', key, 0, -1),
                             }.get(kind, list)()
            for part in parts:
                seen.update(m.group() for m in OWNER.finditer(part.decode('latin-1')) if m[2])
        return {o for o in seen if o.startswith(uuid) and o not in self.names.owners}

    def command(self, step):
        """A command, or "COMMAND -> ID ...": and then each ID that waits gets its answer."""
        cut = step.index('->') if '->' in step else len(step)
        results = [self.result(self.driver.ask(' '.join(step[:cut])))]
        for ident in step[cut + 1:]:
            results.append(ident + ' ' + self.result(self.waiting.pop(ident).wait()))
        return ', '.join(results)

    def result(self, answer):
        words = answer.words.split(':')[0] if answer.status == 'error' else answer.words
        if re.fullmatch(r'[0-9a-f]{32}(,[0-9a-f]{32})*', words):  # permit ids
            words = ''
        return (answer.status + ' ' + words).strip()

    def foreign(self, line):
        source, words = parse_monitor(line)
        return source != self.own and words[0].upper() not in OWN

    def settle(self):
        """Until the clients have been quiet for a moment; a client that polls never is."""
        begin = time.monotonic()
        while time.monotonic() < begin + 6 * QUIET:
            seen = [at for at, line in self.monitor.since(self.marks[0]) if self.foreign(line)]
            rest = max([begin] + seen[-1:]) + QUIET - time.monotonic()
            if rest <= 0:
                return
            time.sleep(rest)

    def sent(self):
        lines = []
        for _, line in self.monitor.since(self.marks[0]):
            source, words = parse_monitor(line)
            if not self.foreign(line):
                continue
            shown = ' '.join('<text>' if b'\n' in w or len(w) > 300 else self.names.word(w)
                             for w in words[1:])
            lines.append(('  |     ' + words[0].decode().lower() if source == 'lua' else
                          '  | ' + words[0].decode().upper()) + ' ' + shown)
        return once(lines)

    def messages(self):
        return ['  msg ' + ' '.join(self.names.text(v) for v in value[2:])
                for _, value in self.listener.since(self.marks[1]) if value[0] == b'pmessage']

    def keys(self):
        lines = [self.key(k) for k in self.server.call('KEYS', '*') if not k.startswith(LATCH)]
        return sorted(line for line in lines if line) or ['  no keys']

    def key(self, key):
        kind = self.server.call('TYPE', key).decode()
        ttl = self.server.call('PTTL', key)
        if ttl == -2:
            return None
        show = self.names.text
        if kind == 'hash':
            flat = self.server.call('HGETALL', key)
            items = sorted('%s=%s' % (show(f), show(v)) for f, v in zip(flat[::2], flat[1::2]))
        elif kind == 'zset':
            flat = self.server.call('ZRANGE', key, 0, -1, 'WITHSCORES')
            items = ['%s@%s' % (self.names.permit(m) or show(m), self.names.moment(int(float(s))))
                     for m, s in zip(flat[::2], flat[1::2])]
        elif kind == 'list':
            items = [show(v) for v in self.server.call('LRANGE', key, 0, -1)]
        else:
            items = [show(self.server.call('GET', key))]
        lives = 'ttl %d' % self.names.up(ttl) if ttl >= 0 else 'no ttl'
        return '  key %s %s %s: %s' % (show(key), kind, lives, ' '.join(items))


def once(lines):
    """A polling client's rounds are told once."""
    out, repeats = [], 0
    for line in lines:
        out.append(line)
        for size in range(1, 13):
            if len(out) >= 2 * size and out[-size:] == out[-2 * size:-size]:
                del out[-size:]
                repeats += 1
                break
    return out + ['  | (repeated until the end of the step)'] * (repeats > 2)


def essence(text):
    """What two recordings must agree in."""
    return [line for line in text.splitlines() if line.strip() and not line.startswith('  |')]


def scenarios(folder):
    return sorted(f[:-4] for f in os.listdir(folder) if f.endswith('.txt'))
