#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""worker.py LIBRARY ADDRESS: measures a lock library of Python for compare.py.

LIBRARY is redis-py, python-redis-lock or kazoo; ADDRESS is HOST:PORT. Contenders are processes with
a client each.
"""
import multiprocessing
import resource
import sys
import time

WARM_UP = 3
SAMPLES = 4000


def redis_py(address, name):
    import redis
    host, port = address.split(':')
    lock = redis.Redis(host=host, port=int(port)).lock(name, timeout=30)
    return lock.acquire, lock.release


def python_redis_lock(address, name):
    import redis
    import redis_lock
    host, port = address.split(':')
    lock = redis_lock.Lock(redis.StrictRedis(host=host, port=int(port)), name, expire=30)
    return lock.acquire, lock.release


def kazoo(address, name):
    from kazoo.client import KazooClient
    client = KazooClient(hosts=address, timeout=30)
    client.start()
    lock = client.Lock('/bench-kazoo/' + name)
    return lock.acquire, lock.release


LIBRARIES = {'redis-py': redis_py, 'python-redis-lock': python_redis_lock, 'kazoo': kazoo}


def cpu_us():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return int((u.ru_utime + u.ru_stime) * 1e6)


def contend(library, address, mode, number, ready, go, stop, results, holder):
    acquire, release = LIBRARIES[library](address, f'bench-{0 if mode == "same" else number}')
    for _ in range(WARM_UP):
        acquire()
        release()
    ready.release()
    go.wait()
    before, times, rounds, handovers = cpu_us(), [], 0, 0
    while True:
        began = time.monotonic_ns()
        acquire()
        held = time.monotonic_ns()
        changed = holder.value != number
        holder.value = number
        release()
        times.append((held if mode == 'same' else time.monotonic_ns()) - began)
        if stop.is_set():  # this round ended too late to count for the rate
            break
        rounds += 1
        handovers += changed
    step = max(1, len(times) // SAMPLES)
    results.put((rounds, handovers, cpu_us() - before, times[::step]))


def run(library, address, mode, contenders, ms):
    fork = multiprocessing.get_context('fork')
    ready, go, stop, results = fork.Semaphore(0), fork.Event(), fork.Event(), fork.SimpleQueue()
    holder = fork.Value('i', -1, lock=False)
    crew = [fork.Process(target=contend, args=(library, address, mode, i, ready, go, stop, results,
                                               holder)) for i in range(contenders)]
    for p in crew:
        p.start()
    for _ in crew:
        if not ready.acquire(timeout=120):
            sys.exit('not all contenders are ready after two minutes')
    print('ready', flush=True)
    sys.stdin.readline()
    go.set()
    time.sleep(ms / 1000)
    stop.set()
    parts = [results.get() for _ in crew]
    for p in crew:
        p.join()
    print('ran', *(sum(p[i] for p in parts) for i in range(3)), *(t for p in parts for t in p[3]),
          flush=True)


def main():
    library, address = sys.argv[1:]
    for line in iter(sys.stdin.readline, ''):
        word, mode, contenders, ms = line.split()
        assert word == 'run' and mode in ('own', 'same'), line
        run(library, address, mode, int(contenders), int(ms))


main()
