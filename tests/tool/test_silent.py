# SPDX-License-Identifier: Apache-2.0
"""A service that does not answer is never reported as "busy", "free" or "done": the status is 69, with an
error text.

There are two kinds of silent servers: one accepts connections and never answers, the other sends the first
bytes of a greeting and then stalls. Each verb is tried on every engine with a network. The verbs of one
engine run at the same time, because each waits for a time limit.
"""
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from tool import TOOL, main  # noqa: E402

URLS = {
    'redis': 'redis://127.0.0.1:%d',
    'redisson': 'redis://127.0.0.1:%d?layout=redisson',
    'rediss': 'rediss://127.0.0.1:%d',
    'sentinel': 'redis+sentinel://127.0.0.1:%d/m',
    'cluster': 'redis+cluster://127.0.0.1:%d',
    'etcd': 'etcd://127.0.0.1:%d',
    'zk': 'zk://127.0.0.1:%d',
    'postgres': 'postgres://u@127.0.0.1:%d/d',
    'advisory': 'postgres://u@127.0.0.1:%d/d?layout=advisory',
    'mysql': 'mysql://u@127.0.0.1:%d/d',
    'session': 'mysql://u@127.0.0.1:%d/d?layout=session',
    'quorum': 'quorum:redis://127.0.0.1:%d?db=0|redis://127.0.0.1:%d?db=1|redis://127.0.0.1:%d?db=2',
}
MODULES = os.path.join(os.path.dirname(os.path.dirname(TOOL)), 'engines')
LOCKS_ONLY = ('advisory', 'session', 'quorum')
VERBS = [['run', '-w', '0.5', 'x', '--', 'true'], ['run', '-n', 'x', '--', 'true'],
         ['run', '-s', '-w', '0.5', 'x', '--', 'true'],
         ['run', '-p', '2', '-w', '0.5', 'x', '--', 'true'],
         ['run', '-p', '2', '-n', 'x', '--', 'true'],
         ['show', 'x'], ['ls'], ['break', 'x'],
         ['latch', 'get', 'x'], ['latch', 'down', 'x'], ['latch', 'set', 'x', '3'],
         ['latch', 'wait', '-w', '0.5', 'x'], ['latch', 'wait', '-n', 'x']]


class Silent:
    """A server that sends `word` on each connection, and nothing else."""

    def __init__(self, word=b''):
        self.word = word
        self.socket = socket.create_server(('127.0.0.1', 0), backlog=128)
        self.port = self.socket.getsockname()[1]
        self.kept = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                peer, _ = self.socket.accept()
                self.kept.append(peer)
                peer.sendall(self.word)
            except OSError:
                return

    def close(self):
        self.socket.close()
        for peer in self.kept:
            peer.close()


def words_of(engine):
    """The beginning of the service's first message, or nothing."""
    return {'redis': b'%7\r\n$6\r\nserver\r\n', 'redisson': b'%7\r\n', 'quorum': b'%7\r\n',
            'rediss': b'\x16\x03\x03\x00\x7a\x02', 'zk': b'\x00\x00\x00\x25\x00',
            'etcd': b'\x00\x00\x00\x04', 'postgres': b'R\x00\x00', 'advisory': b'R\x00\x00',
            'mysql': b'\x4a\x00\x00\x00\x0a5.5.5',
            'session': b'\x4a\x00\x00\x00\x0a5.5.5'}.get(engine, b'*')


def try_all(box, engine, url):
    started = []
    for verb in VERBS:
        if engine in LOCKS_ONLY and (verb[0] == 'latch' or '-p' in verb):
            continue
        if engine == 'session' and '-s' in verb:
            continue
        at = 2 if verb[0] == 'latch' else 1
        started.append((verb, box.start(*verb[:at], '-u', url, *verb[at:])))
    for verb, process in started:
        status, out, err = box.end(process)
        what = f'{engine}: pawl {" ".join(verb)}: {out!r} {err!r}'
        equal(status, 69, what)
        assert err.startswith('pawl: ') and err.count('\n') == 1, what
        for word in ('not acquired', 'held by somebody', 'did not open'):
            assert word not in err, what
        equal(out, '', what)


def for_each(stalls):
    def run(box):
        box.env['PAWL_ENGINE_DIR'] = MODULES
        for engine, url in URLS.items():
            server = Silent(words_of(engine) if stalls else b'')
            try:
                try_all(box, engine, url.replace('%d', str(server.port)))
            finally:
                server.close()
    return run


case('a port that never answers is "no answer" to every verb on every engine')(for_each(False))
case('a service that stalls in the middle of its greeting is "no answer", too')(for_each(True))


@case('who waits without end for a silent service is told so, once')
def told_once(box):
    server = Silent()
    waiter = box.start('run', '-u', f'redis://127.0.0.1:{server.port}?timeout=300', 'x', '--',
                       'true')
    line = waiter.stderr.readline().decode()
    assert line.startswith("pawl: waiting for 'x' after ") and 'no answer' in line, line
    time.sleep(3)  # several timeouts more
    waiter.terminate()
    equal(box.end(waiter), (143, '', ''))
    server.close()


@case('-v does not stretch -w when the service is silent')
def not_stretched(box):
    server = Silent()
    began = time.monotonic()
    status, _, err = box.pawl('run', '-v', '-w', '1.2', '-u',
                              f'redis://127.0.0.1:{server.port}?timeout=8000', 'x', '--', 'true')
    took = time.monotonic() - began
    equal(status, 69, err)
    assert took < 6, took  # a question to the silent service would take eight seconds more
    server.close()


main()
