# SPDX-License-Identifier: Apache-2.0
"""redis-py's Lock and python-redis-lock behind one line in, one line out (interop/README.md).

    driver.py redis-py | python-redis-lock

Every ID has a thread that carries out its commands in order, so a wait blocks only its own ID.
"""
import logging
import os
import queue
import signal
import sys
import threading
import time

import redis
import redis_lock

# python-redis-lock's renewing thread ends with an exception when the lock is gone; that is its way.
logging.disable(logging.CRITICAL)
threading.excepthook = lambda args: None

BUSY = object()
clients = {}
output = threading.Lock()


def say(ident, status, words=''):
    line = '%s %s %d %s' % (ident, status, time.monotonic_ns() // 1000, words)
    with output:
        print(line.replace('\n', ' ').strip(), flush=True)


class RedisPy:
    def __init__(self, client, name, lease, renew):
        if renew:
            raise ValueError('redis-py does not renew')
        self.lock = client.lock(name, timeout=lease / 1000, thread_local=False)

    def acquire(self, wait):
        limit = wait / 1000 if wait > 0 else None
        got = self.lock.acquire(blocking=wait != 0, blocking_timeout=limit)
        return self.token() if got else BUSY

    def release(self):
        self.lock.release()

    def extend(self, ms):
        self.lock.extend(ms / 1000, replace_ttl=True)

    def held(self):
        return int(self.lock.owned())

    def token(self):
        return (self.lock.local.token or b'').decode()


class PythonRedisLock:
    def __init__(self, client, name, lease, renew):
        self.lock = redis_lock.Lock(client, name, expire=lease // 1000, auto_renewal=renew)

    def acquire(self, wait):
        limit = max(wait // 1000, 1) if wait > 0 else None
        got = self.lock.acquire(blocking=wait != 0, timeout=limit)
        return self.token() if got else BUSY

    def release(self):
        self.lock.release()

    def extend(self, ms):
        self.lock.extend(expire=ms // 1000)

    def held(self):
        return int(self.lock._held)

    def token(self):
        return self.lock.id


MAKERS = {'redis-py': RedisPy, 'python-redis-lock': PythonRedisLock}


class Handle(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.commands = queue.Queue()
        self.lock = None
        self.start()

    def run(self):
        while True:
            words = self.commands.get()
            try:
                result = self.serve(*words)
            except Exception as error:  # whatever it is, it is the answer
                say(words[1], 'error', '%s: %s' % (type(error).__name__, error))
                continue
            if result is BUSY:
                say(words[1], 'busy')
            else:
                say(words[1], 'ok', '' if result is None else result)

    def serve(self, verb, ident, *args):
        if verb == 'lock':
            if args[0] != 'mutex':
                raise ValueError('no such kind: ' + args[0])
            client = clients[ident.split('.')[0]]
            self.lock = MAKERS[sys.argv[1]](client, args[1], int(args[2]), 'renew' in args)
            return None
        if verb == 'try':
            return self.lock.acquire(0)
        if verb not in ('acquire', 'release', 'extend', 'held', 'token'):
            raise ValueError('this kind does not know ' + verb)
        return getattr(self.lock, verb)(*map(int, args))


def main():
    handles = {}
    for line in sys.stdin:
        words = line.split()
        if words[0] == 'die':
            os.kill(os.getpid(), signal.SIGKILL)
        if words[0] == 'open':
            # No time-out: python-redis-lock waits in the server, longer than redis-py's 5 s.
            clients[words[1]] = redis.Redis(port=int(words[2]), socket_timeout=None)
            clients[words[1]].ping()
            say(words[1], 'ok')
        elif words[0] == 'close':
            clients.pop(words[1]).close()
            say(words[1], 'ok')
        else:
            if words[1] not in handles:
                handles[words[1]] = Handle()
            handles[words[1]].commands.put(words)
    os._exit(0)


main()
