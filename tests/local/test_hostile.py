# SPDX-License-Identifier: Apache-2.0
"""A hostile member of the group, beside users of local: in a folder of the group (2770).

The member (another user) may deny service: calls may fail. The member must not crash the processes of
others, read or change their files, or keep their calls from returning. Each case lets the
victims (root and another user) acquire and wait for locks all the time, while the member repeats one
attack, or holds kernel locks on the table until the victims are done. Afterwards no victim has died of a signal, hung in a call or printed a sanitizer's report, and the
canaries (a file, a folder and a socket outside, which the member can't access) are unchanged.
"""
import fcntl
import functools
import os
import random
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, run_in_turn  # noqa: E402

TOOL = os.environ['PAWL_TOOL']
GROUP, MEMBER, USER = 54320, 54322, 54323
SECONDS = float(os.environ.get('HOSTILE_SECONDS', '2.5'))
CALL_SECONDS = 30  # a victim's call that takes longer, though it waits 1 s at most, hangs


def as_user(uid):
    def change():
        os.setgroups([GROUP])
        os.setgid(GROUP)
        os.setuid(uid)
        os.umask(0o007)
    return change


class Scene:
    def __init__(self):
        self.top = tempfile.mkdtemp(prefix='pawl-hostile-', dir='/dev/shm')
        os.chmod(self.top, 0o755)
        self.folder = self.top + '/locks'
        os.mkdir(self.folder)
        os.chown(self.folder, 0, GROUP)
        os.chmod(self.folder, 0o2770)
        self.secret = self.top + '/secret'
        with open(self.secret, 'w') as f:
            f.write('canary')
        os.chmod(self.secret, 0o600)
        self.private = self.top + '/private'
        os.mkdir(self.private, 0o700)
        with open(self.private + '/d0', 'w') as f:
            f.write('canary')
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.door.bind(self.top + '/door')
        os.chmod(self.top + '/door', 0o600)
        self.door.setblocking(False)

    def inner(self, name):
        return self.folder + '/.pawl/' + name

    def unharmed(self):
        st = os.stat(self.secret)
        assert stat.S_IMODE(st.st_mode) == 0o600, f'mode of the canary: {st.st_mode:o}'
        assert st.st_uid == 0 and st.st_gid != GROUP, 'owner of the canary'
        assert open(self.secret).read() == 'canary', 'the canary was changed'
        assert os.listdir(self.private) == ['d0'], os.listdir(self.private)
        assert stat.S_IMODE(os.stat(self.private).st_mode) == 0o700
        assert stat.S_IMODE(os.stat(self.top + '/door').st_mode) == 0o600
        try:
            got = self.door.recv(100)
            raise AssertionError(f'the socket outside was sent {got!r}')
        except BlockingIOError:
            pass


def victims(scene, until):
    """Shells that use the locks again and again until the given time, and write the exit codes to one
    file each. A call that hangs is killed, which gives code 137."""
    limit = f'timeout -s KILL {CALL_SECONDS} '
    script = ('while [ "$(date +%s)" -lt "$2" ]; do '
              + limit + '"$0" run -w 1s -u "local:$1" x -- true; echo "code $?"; '
              + limit + '"$0" ls -u "local:$1"; echo "code $?"; done')
    found = []
    for uid in (0, USER, 0, USER):
        log = tempfile.TemporaryFile()
        found.append((subprocess.Popen(
            ['/bin/sh', '-c', script, TOOL, scene.folder, str(int(until))], stdout=log, stderr=log,
            preexec_fn=as_user(uid) if uid else None), log))
    return found


def holders(scene):
    """Processes that have the table open for the whole time: a holder and two waiters."""
    found = []
    for uid in (0, USER, 0):
        log = tempfile.TemporaryFile()
        found.append((subprocess.Popen(
            [TOOL, 'run', '-u', 'local:' + scene.folder, 'y', '--', 'sleep', '1000'], stdout=log,
            stderr=log, start_new_session=True, preexec_fn=as_user(uid) if uid else None), log))
        time.sleep(0.2)
    return found


def hostile(scene, act, until):
    done = False
    pid = os.fork()
    if pid == 0:
        try:
            as_user(MEMBER)()
            signal.alarm(int(until - time.time()) + CALL_SECONDS)
            rng = random.Random(7)
            while time.time() < until:
                try:
                    act(scene, rng)
                    done = True
                except OSError:
                    pass
            os._exit(0 if done else 2)
        finally:
            os._exit(3)
    return pid


def holds(act):
    """The member does this once, and keeps what it has until the victims are done."""
    act.holds = True
    return act


def holding(scene, act):
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            as_user(MEMBER)()
            signal.alarm(int(SECONDS) + 5 * CALL_SECONDS)
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            act(scene, done)
        finally:
            os._exit(3)
    os.close(done)
    os.read(ready, 1)
    os.close(ready)
    return pid


def said(log):
    log.seek(0)
    return log.read().decode(errors='replace')


def run_case(act):
    scene = Scene()
    long = holders(scene)
    try:
        attack(scene, act, long)
    finally:
        for process, _ in long:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        scene.door.close()
        subprocess.run(['rm', '-rf', scene.top], check=True)


def attack(scene, act, long):
    holder = holding(scene, act) if hasattr(act, 'holds') else None
    until = time.time() + SECONDS
    pid = holder or hostile(scene, act, until)
    short = victims(scene, until)
    for process, log in short:
        process.wait(timeout=SECONDS + 3 * CALL_SECONDS)
    if holder:
        os.kill(holder, signal.SIGTERM)
    for process, log in short:
        text = said(log)
        codes = {int(line.split()[1]) for line in text.splitlines() if line.startswith('code ')}
        assert process.returncode == 0 and codes, text[-500:]
        assert not [c for c in codes if c > 125 or c < 0], f'died: {codes}\n{text[-2000:]}'
        assert 'Sanitizer' not in text and 'runtime error' not in text, text[-3000:]
    status = os.waitpid(pid, 0)[1]
    assert not os.WIFSIGNALED(status), 'the member itself hung: the case is wrong'
    assert status == 0, 'the member could do nothing'
    for process, log in long:
        # These processes may have lost the lock and exited with a code; a signal is a crash.
        code = process.poll()
        text = said(log)
        assert code is None or 0 <= code <= 125, f'a holder died: {code}\n{text[-2000:]}'
        assert 'Sanitizer' not in text and 'runtime error' not in text, text[-3000:]
    scene.unharmed()


def write_file(name):
    """Open or make a file to write. A client may have put a FIFO there in the meantime, and to open
    a FIFO whose client is gone would block for ever."""
    return os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o660), 'wb')


def truncate(scene, rng):
    os.truncate(scene.inner('table'), rng.choice([0, 1, 4096, 5000, 200000, 1130000, 1140000]))
    time.sleep(rng.random() / 100)


def flip(scene, rng):
    with open(scene.inner('table'), 'r+b', buffering=0) as f:
        size = os.fstat(f.fileno()).st_size
        for _ in range(200):
            at = rng.choice([rng.randrange(700), rng.randrange(4096, 135168),
                             rng.randrange(135168, 140000), rng.randrange(659456, 660000),
                             rng.randrange(1122304, max(size, 1122305))])
            byte = os.pread(f.fileno(), 1, at)
            if byte:
                os.pwrite(f.fileno(), bytes([byte[0] ^ 1 << rng.randrange(8)]), at)
    time.sleep(0.001)


def link_files(scene, rng):
    name = scene.inner(rng.choice('dw') + str(rng.randrange(8)))
    target = rng.choice([scene.secret, scene.top + '/door', scene.private, '/dev/log'])
    try:
        os.unlink(name)
    except OSError:
        pass
    os.symlink(target, name)


def other_files(scene, rng):
    name = scene.inner(rng.choice('dw') + str(rng.randrange(8)))
    try:
        os.unlink(name)
    except OSError:
        os.rmdir(name)
    how = rng.randrange(4)
    if how == 0:
        with write_file(name) as f:
            f.write(b'x' * 100000)
    elif how == 1:
        os.mkfifo(name, 0o660)
        fd = os.open(name, os.O_RDWR | os.O_NONBLOCK)
        os.write(fd, b'y' * 4000)
        os.close(fd)
    elif how == 2:
        os.mkdir(name)
    else:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.bind(name)
        s.close()


def knock(scene, rng):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.setblocking(False)
    for _ in range(50):
        try:
            s.sendto(rng.randbytes(rng.choice([0, 1, 12, 40, 48, 4000])),
                     scene.inner('w' + str(rng.randrange(8))))
        except OSError:
            pass
    s.close()


def replace_table(scene, rng):
    name = scene.inner('table')
    os.rename(name, scene.inner('old'))
    how = rng.randrange(5)
    if how == 0:
        os.symlink(scene.secret, name)
    elif how == 1:
        os.mkfifo(name, 0o660)
    elif how == 2:
        os.mkdir(name)
    elif how == 3:
        with write_file(name) as f:
            f.truncate(1 << 30)
    time.sleep(0.02)
    try:
        os.unlink(name)
    except OSError:
        os.rmdir(name)
    if rng.randrange(2):
        os.rename(scene.inner('old'), name)


def replace_folder(scene, rng):
    name = scene.folder + '/.pawl'
    away = scene.folder + '/away%d' % rng.randrange(1 << 40)
    os.rename(name, away)
    os.symlink(scene.private, name)
    time.sleep(0.02)
    os.unlink(name)
    if rng.randrange(2):
        os.rename(away, name)


def take_over(scene, name):
    """Replace a file whose permissions the member can't change by a file of the member."""
    path = scene.inner(name)
    if name == 'table':
        with open(path, 'rb') as table, write_file(scene.inner('mine')) as f:
            f.write(table.read())
        os.rename(scene.inner('mine'), path)
    else:
        os.unlink(path)
        os.mkfifo(path, 0o660)


def change_modes(scene, rng):
    if os.stat(scene.folder + '/.pawl').st_uid != MEMBER and rng.randrange(50) == 0:
        os.rename(scene.folder + '/.pawl', scene.folder + '/away')
        os.mkdir(scene.folder + '/.pawl', 0o2770)
    for name in os.listdir(scene.folder + '/.pawl'):
        try:
            if os.stat(scene.inner(name)).st_uid != MEMBER:
                take_over(scene, name)
            os.chmod(scene.inner(name), rng.choice([0, 0o600, 0o777, 0o666]))
        except OSError:
            pass
    time.sleep(0.01)
    if os.stat(scene.folder + '/.pawl').st_uid == MEMBER:
        os.chmod(scene.folder + '/.pawl', rng.choice([0o2770, 0o777, 0o700]))


def delete(scene, rng):
    for name in os.listdir(scene.folder + '/.pawl'):
        if rng.randrange(3) == 0:
            os.unlink(scene.inner(name))
    time.sleep(0.01)


# Where table_words.c locks words: one byte per word. The words of the blocks' owners.
WORDS, OWNERS, BLOCKS = 1 << 41, (4096 + 16384 * 8 + 4096 * 128) // 8, 57920


def lock_range(table, how, start, length):
    fcntl.fcntl(table, fcntl.F_OFD_SETLK, struct.pack('hhqqi', how, os.SEEK_SET, start, length, 0))


def lock_for_good(table, start, length):
    """The victims hold single locks for moments."""
    while True:
        try:
            return lock_range(table, fcntl.F_WRLCK, start, length)
        except OSError:
            pass


@holds
def lock_owners(scene, done):
    with open(scene.inner('table'), 'r+b') as table:
        lock_for_good(table, WORDS + OWNERS, BLOCKS)
        os.write(done, b'.')
        signal.pause()


@holds
def lock_words(scene, done):
    with open(scene.inner('table'), 'r+b') as table:
        lock_for_good(table, WORDS, 1 << 30)
        os.write(done, b'.')
        signal.pause()


@holds
def lock_with_gaps(scene, done):
    """Each victim gets on by a word or two now and then."""
    with open(scene.inner('table'), 'r+b') as table:
        while True:
            lock_for_good(table, WORDS, 1 << 30)
            os.write(done, b'.')
            time.sleep(1.5)
            lock_range(table, fcntl.F_UNLCK, WORDS, 1 << 30)
            time.sleep(0.0002)


CASES = [
    ('the table is cut again and again', truncate),
    ('bits of the table flip', flip),
    ('links take the place of sockets and FIFOs', link_files),
    ('files, folders, foreign FIFOs and sockets take the place of sockets and FIFOs', other_files),
    ('random messages arrive', knock),
    ('links, FIFOs, folders and huge files take the place of the table', replace_table),
    ('a link takes the place of the sub-folder', replace_folder),
    ('rights are changed', change_modes),
    ('files are deleted', delete),
    ("the words of the blocks' owners are locked", lock_owners),
    ('all words are locked', lock_words),
    ('all words are locked, but for a moment now and then', lock_with_gaps),
]


def main():
    if os.geteuid():
        print('1..0 # SKIP needs root, to be several users')
        return 0
    for sentence, act in CASES:
        case(sentence)(functools.partial(run_case, act))
    return run_in_turn()


sys.exit(main())
