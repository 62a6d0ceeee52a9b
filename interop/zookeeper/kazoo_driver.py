# SPDX-License-Identifier: Apache-2.0
"""kazoo's Lock, ReadLock and WriteLock behind one line in, one line out (interop/README.md).

Every ID has a thread that carries out its commands in order, so a wait blocks only its own ID.
`loop ID SECONDS` acquires and releases as fast as it can, for the benchmarks.
"""
import logging
import os
import queue
import signal
import sys
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

logging.disable(logging.CRITICAL)
clients, threads, handles = {}, {}, {}
output = threading.Lock()


def say(ident, status, words=''):
    line = '%s %s %d %s' % (ident, status, time.monotonic_ns() // 1000, words)
    with output:
        print(line.replace('\n', ' ').strip(), flush=True)


def make(ident, kind, name):
    client, root = clients[ident.split('.')[0]]
    maker = {'mutex': client.Lock, 'read': client.ReadLock, 'write': client.WriteLock}[kind]
    return maker('/%s/%s' % (root, name), ident)


def acquire(lock, wait):
    """None: busy."""
    try:
        got = lock.acquire(blocking=wait != 0, timeout=wait / 1000 if wait > 0 else None)
        return '' if got else None
    except LockTimeout:
        return None


def loop(lock, seconds):
    took = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic_ns()
        lock.acquire()
        lock.release()
        took.append((time.monotonic_ns() - begin) // 1000)
    took.sort()
    return '%d %d %d' % (len(took), took[len(took) // 2], took[len(took) * 99 // 100])


def serve(words):
    verb, ident = words[0], words[1]
    if verb == 'open':
        client = KazooClient('127.0.0.1:' + words[2], timeout=int(words[3]) / 1000)
        client.start(30)
        clients[ident] = (client, words[4])
        return ''
    if verb == 'close':
        clients.pop(ident)[0].stop()
        return ''
    if verb == 'lock':
        handles[ident] = make(ident, words[2], words[3])
        return ''
    if verb == 'acquire':
        return acquire(handles[ident], int(words[2]))
    if verb == 'release':
        handles[ident].release()
        return ''
    if verb == 'loop':
        return loop(handles[ident], float(words[2]))
    raise ValueError(verb)


def work(commands):
    while True:
        words = commands.get()
        try:
            answer = serve(words)
            say(words[1], 'busy' if answer is None else 'ok', answer or '')
        except Exception as error:
            say(words[1], 'error', '%s %s' % (type(error).__name__, error))


for line in sys.stdin:
    words = line.split()
    if words[0] == 'die':
        os.kill(os.getpid(), signal.SIGKILL)
    if words[1] not in threads:
        threads[words[1]] = queue.Queue()
        threading.Thread(target=work, args=(threads[words[1]],), daemon=True).start()
    threads[words[1]].put(words)
os._exit(0)
