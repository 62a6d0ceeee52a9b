#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""worker.py LIBRARY ADDRESS [first]: measures a lock library of Python for compare.py.

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
    lock = redis.Redis(host=host, port=int(port)).lock(name, timeout=30, sleep=0.005)
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


def usage():
    """CPU time in us, and how often the process has slept and was woken."""
    u = resource.getrusage(resource.RUSAGE_SELF)
    return int((u.ru_utime + u.ru_stime) * 1e6), u.ru_nvcsw


def contend(library, address, mode, number, ready, go, stop, results, holder, released):
    acquire, release = LIBRARIES[library](address, f'bench-{0 if mode == "same" else number}')
    for _ in range(WARM_UP):
        acquire()
        release()
    ready.release()
    go.wait()
    (cpu, slept), times, gaps, rounds, handovers = usage(), [], [], 0, 0
    while True:
        asked = time.monotonic_ns()
        acquire()
        held = time.monotonic_ns()
        changed = holder.value != number
        holder.value = number
        if mode == 'same' and changed and released.value > asked:
            gaps.append(held - released.value)
        released.value = time.monotonic_ns()
        release()
        times.append((held if mode == 'same' else time.monotonic_ns()) - asked)
        if stop.is_set():  # this round ended too late to count for the rate
            break
        rounds += 1
        handovers += changed
    used = usage()
    results.put((rounds, handovers, used[0] - cpu, used[1] - slept, sample(times), sample(gaps)))


def sample(times):
    return times[::max(1, len(times) // SAMPLES)]


def collect(crew, results):
    """What the contenders put. A contender that failed puts nothing."""
    parts = []
    while len(parts) < len(crew):
        if not results.empty():
            parts.append(results.get())
        elif any(p.exitcode for p in crew):
            sys.exit('a contender failed')
        else:
            time.sleep(0.001)
    return parts


def run(library, address, mode, contenders, ms):
    fork = multiprocessing.get_context('fork')
    ready, go, stop, results = fork.Semaphore(0), fork.Event(), fork.Event(), fork.SimpleQueue()
    holder, released = fork.Value('i', -1, lock=False), fork.Value('q', 0, lock=False)
    crew = [fork.Process(target=contend, daemon=True,
                         args=(library, address, mode, i, ready, go, stop, results, holder,
                               released)) for i in range(contenders)]
    for p in crew:
        p.start()
    for _ in crew:
        if not ready.acquire(timeout=120):
            sys.exit('not all contenders are ready after two minutes')
    print('ready', flush=True)
    sys.stdin.readline()
    began = time.monotonic_ns()
    go.set()
    time.sleep(ms / 1000)
    stop.set()
    elapsed = (time.monotonic_ns() - began) // 1000
    parts = collect(crew, results)
    for p in crew:
        p.join()
    rounds, handovers, cpu, slept = (sum(p[i] for p in parts) for i in range(4))
    print(f'ran rounds={rounds} handovers={handovers} cpu_us={cpu} elapsed_us={elapsed}',
          f'fewest={min(p[0] for p in parts)} most={max(p[0] for p in parts)} wakeups={slept}',
          'times', *(t for p in parts for t in p[4]), 'gaps', *(t for p in parts for t in p[5]),
          flush=True)


def first(library, address):
    acquire, release = LIBRARIES[library](address, 'bench-first')
    acquire()
    release()


def main():
    library, address, *more = sys.argv[1:]
    if more == ['first']:
        first(library, address)
        return
    for line in iter(sys.stdin.readline, ''):
        word, mode, contenders, ms = line.split()
        assert word == 'run' and mode in ('own', 'same'), line
        run(library, address, mode, int(contenders), int(ms))


main()
