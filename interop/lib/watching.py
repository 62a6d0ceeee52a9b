# SPDX-License-Identifier: Apache-2.0
"""The locks of a peer as an operator sees them: pawl ls, pawl top and the page of pawl serve."""
import json
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
import urllib.parse
import urllib.request
from fcntl import ioctl

from pair import check
from peers import built

PATIENCE = 60


def listed(url, layout, name):
    """The row of pawl ls."""
    done = subprocess.run([built('tool'), 'ls', '-u', url, *layout, '--json', name],
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    check(done.returncode == 0, 'pawl ls: %d, %s', done.returncode, done.stderr)
    rows = json.loads(done.stdout)
    check([r['name'] for r in rows] == [name], 'pawl ls does not list %s: %s', name, rows)
    return rows[0]


def on_screen(url, layout, name):
    """The line of pawl top, on a terminal of 160 columns."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 50, 160, 0, 0))
    top = subprocess.Popen([built('tool'), 'top', '-u', url, *layout, name], stdin=slave,
                           stdout=slave, stderr=slave, start_new_session=True,
                           env={**os.environ, 'TERM': 'vt100', 'NO_COLOR': '1'})
    os.close(slave)
    end, raw = time.monotonic() + PATIENCE, b''
    try:
        while time.monotonic() < end:
            if select.select([master], [], [], 0.2)[0]:
                raw += os.read(master, 65536)
            text = re.sub(rb'\x1b[\[(][0-9;?]*[A-Za-z]|\x1b[=>78]|[\x00-\x08\x0e-\x1f]', b' ', raw)
            lines = [x.decode(errors='replace') for x in re.split(rb'[\r\n]+', text)]
            found = [x for x in lines if re.search(rf'(^|\s){re.escape(name)}\s+(held|shared)', x)]
            if found:
                os.write(master, b'q')
                top.wait(PATIENCE)
                return found[0]
        check(False, 'pawl top does not show %s: %s', name, raw[-2000:])
    finally:
        if top.poll() is None:
            top.kill()
            top.wait()
        os.close(master)


class Page:
    """pawl serve."""

    def __init__(self, url, layout):
        self.process = subprocess.Popen([built('tool'), 'serve', '-u', url, *layout, '--listen',
                                         '127.0.0.1:0', '--interval', '250ms'], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        line = self.process.stdout.readline()
        self.base = re.search(r'http://\S+/', line)
        check(self.base, 'pawl serve says: %s', line)
        self.base = self.base[0]

    def get(self, path):
        with urllib.request.urlopen(self.base + path, timeout=PATIENCE) as f:
            return json.load(f)

    def lock(self, name, good):
        """The data of the lock's page, once good(lock) says so."""
        end = time.monotonic() + PATIENCE
        while True:
            lock = self.get('api/v1/lock?name=' + urllib.parse.quote(name))['lock']
            if lock and good(lock):
                break
            check(time.monotonic() < end, 'the page of %s says %s', name, lock)
            time.sleep(0.1)
        names = [x['name'] for x in self.get('api/v1/locks')['locks']]
        check(name in names, 'the page lists %s', names)
        return lock

    def close(self):
        self.process.terminate()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


def watched(url, layout, name, waiters, owner=None):
    """The lock is held and has so many waiters, wherever an operator looks."""
    row = listed(url, layout, name)
    check(row['held'] and row['waiter_count'] == waiters, 'pawl ls says %s', row)
    on_screen(url, layout, name)
    page = Page(url, layout)
    try:
        lock = page.lock(name, lambda x: x['held'] and x['waiter_count'] == waiters)
        owners = [h['owner'] for h in lock['holders']]
        check(len(owners) == 1 and owner in (None, owners[0]), 'the page names %s', owners)
        check(len(lock['waiters']) == waiters, 'the page has the waiters %s', lock['waiters'])
    finally:
        page.close()
    return 'shown'
