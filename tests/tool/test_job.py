# SPDX-License-Identifier: Apache-2.0
"""pawl run as a parent: signals, process group, terminal."""
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import case, equal  # noqa: E402
from tool import TOOL, alive, guardian_of, main, wait_for  # noqa: E402


@case('signals are passed on to the command')
def passed_on(box):
    for number, name in ((signal.SIGUSR1, 'USR1'), (signal.SIGUSR2, 'USR2'),
                         (signal.SIGTERM, 'TERM'), (signal.SIGHUP, 'HUP'),
                         (signal.SIGINT, 'INT'), (signal.SIGQUIT, 'QUIT')):
        holder, _ = box.holder('x', script=f'''exec 2>/dev/null; trap 'echo {name}; exit 21' {name}
            touch ready-{name}; while :; do sleep 0.01; done''')
        wait_for('the trap', lambda n=name: os.path.exists(box.path('ready-' + n)))
        holder.send_signal(number)
        equal(box.end(holder), (21, name + '\n', ''))


@case('a signal reaches the whole process group of the command')
def whole_group(box):
    holder, pid = box.holder('x', script='sleep 1000 & echo $! > child; wait')
    child = box.pid_in('child')
    equal(os.getpgid(pid), pid)
    equal(os.getpgid(child), pid)
    assert os.getpgid(holder.pid) != pid
    holder.terminate()
    equal(box.end(holder)[0], 143)
    wait_for('the group to end', lambda: not alive(child))


@case('what the command leaves in the background goes on, and the guardian is gone')
def background(box):
    os.mkfifo(box.path('go'))
    holder, _ = box.holder('x', script='''sleep 1000 >/dev/null 2>&1 &
        echo $! > child; read line < go''')
    guardian = wait_for('the guardian', lambda: guardian_of(holder.pid))
    child = box.pid_in('child')
    with open(box.path('go'), 'w') as f:
        f.write('go\n')
    equal(box.end(holder), (0, '', ''))
    assert alive(child) and not alive(guardian)


# ---- With a terminal ---------------------------------------------------------------------------


class Terminal:
    """A pseudo-terminal with `leader` as its session leader; the output is collected."""

    def __init__(self, box, leader):
        self.text = ''
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # wide enough for every line: otherwise the cut part would depend on durations
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 50, 200, 0, 0))
            try:
                os.chdir(box.dir)
                os.environ.clear()
                os.environ.update(box.env)
                os._exit(leader())
            finally:
                os._exit(111)

    def pump(self, wait=0.01):
        if select.select([self.fd], [], [], wait)[0]:
            try:
                self.text += os.read(self.fd, 65536).decode(errors='replace')
            except OSError:  # all processes have closed the terminal
                time.sleep(wait)

    def until(self, what, predicate):
        def step():
            self.pump()
            return predicate()
        return wait_for(what, step)

    def until_text(self, text):
        self.until(f'{text!r} on the terminal, which shows {self.text!r}',
                   lambda: text in self.text)

    def type(self, text):
        os.write(self.fd, text)

    def end(self):
        def ended():
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = status
            return pid == self.pid
        self.until('the session to end', ended)
        self.pump()
        os.close(self.fd)
        return os.waitstatus_to_exitcode(self.status)


def execute(*args):
    os.execv(TOOL, [TOOL, *args])


def job_shell(*args, background=False):
    """Acts like a shell with one job: reports that the job was stopped, waits for a line, and continues the
    job."""
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    shell = os.getpgrp()
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        if not background:
            os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        execute(*args)
    try:
        os.setpgid(pid, pid)
    except OSError:
        pass
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        os.tcsetpgrp(0, shell)
        if not os.WIFSTOPPED(status):
            print('signal' if os.WIFSIGNALED(status) else 'status',
                  abs(os.waitstatus_to_exitcode(status)), flush=True)
            return 0
        print('job stopped', flush=True)
        sys.stdin.readline()
        os.tcsetpgrp(0, pid)
        os.killpg(pid, signal.SIGCONT)


@case('waiting shows on a terminal who holds the lock, and clears the line')
def waiting_line(box):
    holder, _ = box.holder('x')
    other = box.start('run', 'x', '--', 'true')
    box.wait_waiters('x', 1)
    term = Terminal(box, lambda: execute('run', 'x', '--', 'echo', 'mine'))
    term.until_text(f"waiting for 'x'")
    term.until_text(f'held by pid {holder.pid} (sh)')
    term.until_text(', place 2 of 2: ')
    term.until_text(', since ')
    seen = len(term.text)
    term.until('a refresh', lambda: f'pid {holder.pid}' in term.text[seen:])
    holder.terminate()
    equal(term.end(), 0)
    equal(box.end(other)[0], 0)
    assert '\n' not in term.text.partition('mine')[0], repr(term.text)
    assert term.text.rpartition('\r\x1b[K')[2].strip() == 'mine', repr(term.text)


@case('waiting shows on a terminal why the service does not answer')
def waiting_silent(box):
    url = 'fault:drop=100;' + box.env['PAWL_URL']
    term = Terminal(box, lambda: job_shell('run', '-u', url, 'x', '--', 'true'))
    term.until_text("waiting for 'x'")
    term.until_text('the request was lost')
    term.type(b'\x03')
    term.until_text('status 130')
    equal(term.end(), 0)


@case('^Z past the end of the lease: the loss is told with its reason')
def stop_and_lose(box):
    term = Terminal(box, lambda: job_shell('run', '-l', '1s', 'x', '--', 'sh', '-c',
                                           'read line; echo got $line; exec sleep 1000'))
    wait_for('the lock', lambda: box.show('x')['held'])
    term.type(b'hello\n')
    term.until_text('got hello')
    term.type(b'\x1a')
    term.until_text('job stopped')
    wait_for('the loss', lambda: not box.show('x')['held'])
    term.type(b'continue\n')
    term.until_text('status 75')
    assert 'pawl had been stopped and could not renew it' in term.text, term.text
    equal(term.end(), 0)


@case('^C while waiting on a terminal gives up the place')
def interrupt_waiting(box):
    box.holder('x')
    term = Terminal(box, lambda: job_shell('run', 'x', '--', 'touch', 'ran'))
    box.wait_waiters('x', 1)
    term.type(b'\x03')
    term.until_text('status 130')
    equal(term.end(), 0)
    equal(box.show('x')['waiter_count'], 0)
    assert not os.path.exists(box.path('ran'))


@case('the command has the terminal, and ^C ends it and tells the shell')
def interrupt_command(box):
    term = Terminal(box, lambda: job_shell('run', 'x', '--', 'sh', '-c',
                                           'read line; echo got $line; exec sleep 1000'))
    wait_for('the lock', lambda: box.show('x')['held'])
    term.type(b'hello\n')
    term.until_text('got hello')
    term.type(b'\x03')
    term.until_text('signal 2')
    equal(term.end(), 0)
    equal(box.status('show', 'x'), 1)


@case('^Z stops the job, the terminal is the shell\'s again, and it goes on when continued')
def stop_and_continue(box):
    term = Terminal(box, lambda: job_shell('run', '-l', '1h', 'x', '--', 'sh', '-c',
                                           'read line; echo got $line; read line; exit 23'))
    wait_for('the lock', lambda: box.show('x')['held'])
    term.type(b'hello\n')
    term.until_text('got hello')
    term.type(b'\x1a')
    term.until_text('job stopped')
    equal(box.status('show', 'x'), 0, 'still held')
    term.type(b'continue\n')
    term.type(b'end\n')
    term.until_text('status 23')
    equal(term.end(), 0)


@case('^Z where no shell could continue the job does not hang it')
def stop_without_shell(box):
    term = Terminal(box, lambda: execute('run', '-l', '1h', 'x', '--', 'sh', '-c',
                                         'read line; echo got $line; read line; exit 25'))
    wait_for('the lock', lambda: box.show('x')['held'])
    term.type(b'hello\n')
    term.until_text('got hello')
    term.type(b'\x1a')
    term.type(b'end\n')
    equal(term.end(), 25)


@case('a background job that wants the terminal stops, and goes on in the foreground')
def background_read(box):
    term = Terminal(box, lambda: job_shell('run', '-l', '1h', 'x', '--', 'sh', '-c',
                                           'read line; exit 24', background=True))
    term.until_text('job stopped')
    term.type(b'continue\n')
    term.type(b'end\n')
    term.until_text('status 24')
    equal(term.end(), 0)



def pipeline(box, script, pager):
    """Acts like a shell that runs `pawl run x -- sh -c SCRIPT | PAGER`: one group, in the foreground."""
    def leader():
        read, write = os.pipe()
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        first = os.fork()
        if first == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(0, os.getpid())
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            second = os.fork()
            if second == 0:
                os.dup2(read, 0)
                os.close(write)
                os.execvp(sys.executable, [sys.executable, '-c', pager])
            os.dup2(write, 1)
            os.close(read)
            os.close(write)
            execute('run', '-l', '1s', 'x', '--', 'sh', '-c', script)
        os.close(read)
        os.close(write)
        stops = 0
        while True:
            _, status = os.waitpid(first, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                break
            stops += 1
            os.write(1, b'[stopped]\r\n')
            os.tcsetpgrp(0, os.getpgrp())
            sys.stdin.readline()
            os.tcsetpgrp(0, first)
            os.killpg(first, signal.SIGCONT)
        return os.waitstatus_to_exitcode(status)
    return Terminal(box, leader)


PAGER = """import sys
key = open('/dev/tty').readline()
print('key', key.strip(), flush=True)
open('pressed', 'w').write('yes')
sys.stdin.read()"""


@case('a pager behind the command reads the terminal, and nobody stops')
def pager(box):
    t = pipeline(box, 'echo $$ > pid; until test -e go; do sleep 0.02; done; echo $? > ended',
                 PAGER)
    t.until('the command', lambda: box.read('pid'))
    t.type(b'q\n')
    t.until_text('key q')
    time.sleep(1.5)  # longer than the lease, which is renewed
    open(box.path('go'), 'w').close()
    equal(t.end(), 0)
    equal(box.read('ended'), '0\n')
    assert '[stopped]' not in t.text, t.text


@case('a command in front of a pipe gets the terminal when it reads it')
def reads_terminal(box):
    t = pipeline(box, 'echo $$ > pid; read line < /dev/tty; echo "$line" > got',
                 'import sys; sys.stdin.read()')
    t.until('the command', lambda: box.read('pid'))
    t.type(b'hello\n')
    equal(t.end(), 0)
    equal(box.read('got'), 'hello\n')


@case('^Z stops a command in front of a pipe and pawl with it, and both go on')
def stop_in_pipe(box):
    # A shell that starts a program at the moment of the ^Z may wait for a child that was stopped before
    # its exec (vfork). Such a shell can't be stopped, so this script only reads.
    os.mkfifo(box.path('go'))
    t = pipeline(box, 'echo $$ > pid; read line < go', 'import sys; sys.stdin.read()')
    t.until('the command', lambda: box.read('pid'))
    t.type(b'\x1a')
    t.until_text('[stopped]')
    pid = int(box.read('pid'))
    with open(f'/proc/{pid}/stat') as f:
        equal(f.read().rpartition(')')[2].split()[0], 'T')
    t.type(b'fg\n')
    with open(box.path('go'), 'w') as f:
        f.write('go\n')
    equal(t.end(), 0)


main()
