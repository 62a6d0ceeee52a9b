#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lockd.py [PORT]: a tiny lock server on 127.0.0.1, the service of the example engine.

The server prints its port, and serves until its standard input ends. A request is one line of words,
and the answers come in the order of the requests. Texts are written "=TEXT" with %XX for all bytes
but letters, digits, '.', '_' and '-'.

  hello CLIENT =HOST PID =PROGRAM =LABEL       hello lockd 1
  acquire =NAME CLIENT SEQ LEASE_MS            granted TOKEN | busy
  release =NAME CLIENT SEQ                     ok | notheld
  renew {=NAME CLIENT SEQ LEASE_MS}            renewed {ok | notheld}
  break =NAME                                  ok | notheld
  inspect =NAME                                [row] end
  list =PATTERN                                {row} end

A row is a line "row =NAME TOKEN SINCE_MS LEASE_MS CLIENT SEQ =HOST PID =PROGRAM =LABEL". A line
"* broken" is no answer: a lock of this client was broken.

Locks are in memory: a server that is started again has none. Tokens count microseconds of the wall
clock, or one more than the last token, so that they rise over a restart unless the clock was set
back.
"""
import asyncio
import fnmatch
import sys
import time
import urllib.parse

LOCKS = {}    # name: Grant
CLIENTS = {}  # client: (words of its hello, writer)


class Grant:
    last = 0

    def __init__(self, owner, lease_ms):
        Grant.last = max(Grant.last + 1, time.time_ns() // 1000)
        self.owner, self.token, self.since = owner, Grant.last, time.monotonic()
        self.ends = self.since + lease_ms / 1000

    def renew(self, lease_ms):
        self.ends = max(self.ends, time.monotonic() + lease_ms / 1000)


def grant_of(name):
    """The grant of a name whose lease has not ended, or None."""
    grant = LOCKS.get(name)
    if grant and grant.ends <= time.monotonic():
        del LOCKS[name]
        return None
    return grant


def acquire(name, client, seq, lease_ms):
    grant = grant_of(name)
    if not grant:
        grant = LOCKS[name] = Grant((client, seq), int(lease_ms))
    elif grant.owner != (client, seq):
        return 'busy'
    grant.renew(int(lease_ms))  # the same owner again: the same grant, and its lease begins anew
    return f'granted {grant.token}'


def release(name, client, seq):
    grant = grant_of(name)
    if not grant or grant.owner != (client, seq):
        return 'notheld'
    del LOCKS[name]
    return 'ok'


def renew(*words):
    answers = []
    for i in range(0, len(words), 4):
        name, client, seq, lease_ms = words[i:i + 4]
        grant = grant_of(name)
        held = grant and grant.owner == (client, seq)
        if held:
            grant.renew(int(lease_ms))
        answers.append('ok' if held else 'notheld')
    return ' '.join(['renewed', *answers])


def break_(name):
    grant = grant_of(name)
    if not grant:
        return 'notheld'
    del LOCKS[name]
    CLIENTS[grant.owner[0]][1].write(b'* broken\n')
    return 'ok'


def row(name, grant):
    now = time.monotonic()
    info = ' '.join(CLIENTS[grant.owner[0]][0])
    since, lease = int(1000 * (now - grant.since)), int(1000 * (grant.ends - now))
    return f'row {name} {grant.token} {since} {lease} {" ".join(grant.owner)} {info}\n'


def text(word):
    return urllib.parse.unquote_to_bytes(word[1:]).decode('utf-8', 'surrogateescape')


def rows(names):
    held = [(n, grant_of(n)) for n in names]
    return ''.join(row(n, g) for n, g in held if g) + 'end'


def answer(verb, words, writer):
    if verb == 'hello':
        CLIENTS[words[0]] = words[1:], writer
        return 'hello lockd 1'
    if verb == 'inspect':
        return rows(words)
    if verb == 'list':
        return rows([n for n in LOCKS if fnmatch.fnmatchcase(text(n), text(words[0]))])
    return {'acquire': acquire, 'release': release, 'renew': renew, 'break': break_}[verb](*words)


async def serve(reader, writer):
    try:
        while line := await reader.readline():
            verb, *words = line.decode().split()
            writer.write(answer(verb, words, writer).encode() + b'\n')
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


async def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    server = await asyncio.start_server(serve, '127.0.0.1', port, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

if __name__ == '__main__':
    asyncio.run(main())
