#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pawl doctor on folders (`local:`), and on `memory:`, which has no service."""
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
import threading

from doctor import TOOL, ask, expect, found, run, the
from cases import case, equal
from tool import main


def folder(parent='/var/lib'):
    """A folder in a place that no system cleans, for root; for others in the home folder."""
    return tempfile.mkdtemp(prefix='pawl-doctor-', dir=parent if os.access(parent, os.W_OK)
                            else os.path.expanduser('~'))


@case('a folder of its own has no findings; neither has memory:')
def _(box):
    path = folder()
    try:
        said = expect('local:' + path)
        assert said['facts'][0]['where'] == path, said
        os.chmod(path, 0o2770)
        expect('local:' + path)
        equal(expect('memory:')['facts'], [])
    finally:
        shutil.rmtree(path)


@case('a folder that every user can write to, and one below /tmp')
def _(box):
    path = folder()
    try:
        os.chmod(path, 0o777)
        f = the(expect('local:' + path, 'rights'), 'rights')
        assert 'everybody can write' in f['what'], f
        expect('local:' + path + '?others=allow', 'local-others')
        os.chmod(path, 0o755)
        f = the(expect('local:' + box.locks, 'local-tmp'), 'local-tmp')
        equal(f['where'], box.locks)
    finally:
        shutil.rmtree(path)


@case('a file system that is full')
def _(box):
    """Runs in a mount namespace of its own, so that other processes are not affected."""
    script = ('mkdir -p "$2/full" && mount -t tmpfs -o size=8m,mode=755 tmpfs "$2/full" && '
              '"$1" doctor --json -u "local:$2/full"')
    path = folder()
    try:
        done = subprocess.run(['unshare', '-m' if os.getuid() == 0 else '-rm', 'sh', '-c', script,
                               'sh', TOOL, path], stdout=subprocess.PIPE, check=False)
        equal(done.returncode, 1)
        assert b'"id":"local-space"' in done.stdout, done.stdout
        equal(done.stdout.count(b'"level":"warning"'), 1)
    finally:
        shutil.rmtree(path)


@case("this machine's clock, which somebody sets")
def _(box):
    path, clock, stop = folder(), box.path('clock'), threading.Event()
    with open(clock, 'wb') as f:
        f.write(bytes(4096))
    with open(clock, 'r+b') as f:
        shared = mmap.mmap(f.fileno(), 4096)

    def step():
        n = 0
        while not stop.wait(0.05):
            n += 1
            shared[:8] = struct.pack('q', n * 5 * 10**9)
    thread = threading.Thread(target=step)
    os.environ.update(CLKSHIM=clock, LD_PRELOAD=os.environ['PAWL_CLOCK_SHIM'],
                      ASAN_OPTIONS=os.environ.get('ASAN_OPTIONS', '') + ':verify_asan_link_order=0')
    try:
        expect('local:' + path)
        thread.start()
        f = the(expect('local:' + path, 'own-clock-step'), 'own-clock-step')
        equal(f['level'], 'warning')
    finally:
        del os.environ['LD_PRELOAD']
        stop.set()
        if thread.ident:
            thread.join()
        shutil.rmtree(path)


@case('files that somebody removes')
def _(box):
    """The folder is emptied again and again while pawl doctor runs."""
    path = folder()
    cleaner = subprocess.Popen(['sh', '-c', 'while :; do rm -f "$0"/.pawl/w*; done', path])
    try:
        assert 'local-files' in found('local:' + path), 'local-files'
    finally:
        cleaner.kill()
        cleaner.wait()
        shutil.rmtree(path)


@case('text and JSON say the same, and the status follows')
def _(box):
    status, out, err = run('local:' + box.locks)
    equal((status, err), (1, ''))
    f = the(ask('local:' + box.locks), 'local-tmp')
    flat = ' '.join(out.split())
    for words in (f['what'], f['why'], f['remedy'], 'WARNING local-tmp', '1 finding'):
        assert words in flat, (words, out)


main()
