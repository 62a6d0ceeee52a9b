#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unload.py LIBRARY URL: a plug-in of a program. Threads use the library, the program unloads it, and
the threads end after that."""
import _ctypes
import ctypes
import sys
import threading

THREADS = 3


def use(lib, url, name, used, go):
    client, lock = ctypes.c_void_p(), ctypes.c_void_p()
    if lib.pawl_open(ctypes.byref(client), url, None, None) == 0:
        if lib.pawl_lock_new(ctypes.byref(lock), client, name, None, None) == 0:
            if lib.pawl_lock_acquire(lock, ctypes.c_int64(20), None) == 0:
                lib.pawl_lock_release(lock, None)
            lib.pawl_lock_free(lock)
        lib.pawl_close(client)
    used.release()
    go.wait()


def main():
    lib = ctypes.CDLL(sys.argv[1])
    used, go = threading.Semaphore(0), threading.Event()
    threads = [threading.Thread(target=use, args=(lib, sys.argv[2].encode(), b'plug-in-%d' % i, used,
                                                  go)) for i in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        used.acquire()
    _ctypes.dlclose(lib._handle)
    go.set()
    for t in threads:
        t.join()


if __name__ == '__main__':
    main()
