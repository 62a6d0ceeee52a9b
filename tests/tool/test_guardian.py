# SPDX-License-Identifier: Apache-2.0
"""pawl run that is killed or stopped, or whose lock is broken. Its command must be gone before the command
of the next owner begins. Each command appends records to one log (O_APPEND), and the order of the
records shows whether two commands overlapped."""
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cases import Skip, case, equal  # noqa: E402
from tool import TOOL, alive, guardian_of, main, wait_for  # noqa: E402

# Writes "tick PID" endlessly, and ignores SIGTERM.
STUBBORN = 'exec 2>/dev/null; trap "" TERM; while :; do echo tick $$ >> log; sleep 0.005; done'
POLITE = '''exec 2>/dev/null; trap "echo end $$ >> log; exit 0" TERM
            while :; do echo tick $$ >> log; sleep 0.005; done'''


def ticking(box):
    wait_for('the command', lambda: 'tick' in box.read('log'))


def no_tick_after_second(box):
    lines = box.lines('log')
    assert 'second' in lines, lines[-3:]
    late = lines[lines.index('second'):]
    equal(late, ['second'], 'records after the next owner began')


def kill_case(box, script, *options):
    holder, pid = box.holder('x', '-l', '10m', *options, script=script)
    ticking(box)
    guardian = wait_for('the guardian', lambda: guardian_of(holder.pid))
    next_ = box.start('run', *(o for o in options if o in ('-p', '1')), 'x', '--',
                      'sh', '-c', 'echo second >> log; sleep 0.3')
    box.wait_waiters('x', 1)
    holder.kill()
    equal(box.end(next_)[0], 0)
    no_tick_after_second(box)
    assert not alive(pid) and not alive(guardian)
    return holder


@case('pawl run killed -9: the command has ended before the next owner begins')
def killed(box):
    kill_case(box, POLITE)
    assert 'end' in box.read('log'), 'it was asked politely'


@case('pawl run killed -9: a command that ignores SIGTERM is killed')
def killed_stubborn(box):
    kill_case(box, STUBBORN, '--kill-after', '0.2')


@case('pawl run -p killed -9: the same for a permit')
def killed_permit(box):
    kill_case(box, STUBBORN, '-p', '1', '--kill-after', '0.2')


@case('the guardian can gain no privileges, and the command can')
def no_new_privileges(box):
    holder, pid = box.holder('x', script=POLITE)
    guardian = wait_for('the guardian', lambda: guardian_of(holder.pid))

    def privileges(process):
        with open(f'/proc/{process}/status', encoding='ascii') as f:
            return next(line.split()[1] for line in f if line.startswith('NoNewPrivs:'))
    wait_for('the flag', lambda: privileges(guardian) == '1')
    equal(privileges(pid), privileges('self'))
    equal(privileges(holder.pid), privileges('self'))


@case('pawl run killed -9: whoever reads its output to the end does not wait for the guardian')
def killed_output(box):
    holder, _ = box.holder('x', '--kill-after', '10s',
                           script='exec >/dev/null 2>&1 </dev/null; ' + STUBBORN)
    ticking(box)
    guardian = wait_for('the guardian', lambda: guardian_of(holder.pid))
    holder.kill()
    equal(box.end(holder), (-9, '', ''))
    assert alive(guardian), 'the guardian was waited for'
    for pid in box.pids:
        os.kill(pid, signal.SIGKILL)


@case('pawl run stopped: the command has ended before its lease has, and the next owner begins')
def stopped(box):
    for script in (STUBBORN, POLITE):
        if os.path.exists(box.path('log')):
            os.unlink(box.path('log'))
        holder, pid = box.holder('x', '-l', '1s', script=script)
        ticking(box)
        next_ = box.start('run', 'x', '--', 'sh', '-c', 'echo second >> log; sleep 0.3')
        box.wait_waiters('x', 1)
        holder.send_signal(signal.SIGSTOP)
        equal(box.end(next_)[0], 0)
        no_tick_after_second(box)
        assert not alive(pid)
        holder.send_signal(signal.SIGCONT)
        code, _, err = box.end(holder)
        equal(code, 75)
        assert err.startswith('pawl: ') and 'lost' in err and 'had been stopped' in err, err


@case('a stopped command is ended as well')
def stopped_command(box):
    holder, pid = box.holder('x', '-l', '1s')
    os.kill(pid, signal.SIGSTOP)
    holder.kill()
    wait_for('the command to end', lambda: not alive(pid))


@case('a stopped command without a terminal keeps the lock as long as pawl run lives')
def stopped_command_holds(box):
    holder, pid = box.holder('x', '-l', '1s')
    os.kill(pid, signal.SIGSTOP)
    equal(box.status('run', '-w', '2s', 'x', '--', 'true'), 1)
    os.kill(pid, signal.SIGCONT)
    assert alive(pid)
    holder.terminate()
    equal(box.end(holder)[0], 143)


@case('the lease is renewed: a command may run longer than it')
def renewed(box):
    equal(box.pawl('run', '-l', '1s', 'x', '--', 'sleep', '3'), (0, '', ''))


@case('renewals without an answer: the command has ended before the next owner begins')
def not_renewed(box):
    for script in (STUBBORN, POLITE):
        if os.path.exists(box.path('log')):
            os.unlink(box.path('log'))
        holder, pid = box.holder('x', '-l', '2s', '-u',
                                 'fault:drop=100,only=renew;' + box.env['PAWL_URL'], script=script)
        ticking(box)
        next_ = box.start('run', 'x', '--', 'sh', '-c', 'echo second >> log; sleep 0.3')
        equal(box.end(next_)[0], 0)
        no_tick_after_second(box)
        assert not alive(pid)
        code, _, err = box.end(holder)
        equal(code, 75)
        assert err.startswith('pawl: ') and 'lost' in err and err.count('\n') == 1, err


@case('a broken lock ends the command and gives 75')
def broken(box):
    holder, pid = box.holder('x', script=POLITE)
    ticking(box)
    equal(box.status('break', 'x'), 0)
    code, _, err = box.end(holder)
    equal(code, 75)
    assert err.startswith('pawl: ') and 'lost' in err and err.count('\n') == 1, err
    assert 'end' in box.read('log') and not alive(pid)


@case('a broken lock kills what ignores SIGTERM, all of the group')
def broken_group(box):
    holder, pid = box.holder('x', '--kill-after', '0.2', script='''
        sh -c 'trap "" TERM; echo $$ > child; while :; do sleep 0.01; done' & wait''')
    child = box.pid_in('child')
    equal(box.status('break', 'x'), 0)
    equal(box.end(holder)[0], 75)
    assert not alive(pid) and not alive(child)


@case('a broken permit ends the command as well')
def broken_permit(box):
    holder, pid = box.holder('x', '-p', '3', script=POLITE)
    ticking(box)
    equal(box.status('break', 'x'), 0)
    equal(box.end(holder)[0], 75)
    assert not alive(pid)


@case('a killed guardian is replaced, and the new one does its duty')
def guardian_killed(box):
    holder, pid = box.holder('x')
    for _ in range(3):
        first = wait_for('the guardian', lambda: guardian_of(holder.pid))
        os.kill(first, signal.SIGKILL)
        wait_for('another guardian', lambda: guardian_of(holder.pid) not in (None, first))
    assert alive(pid)
    holder.kill()
    wait_for('the command to end', lambda: not alive(pid))


@case('a stopped guardian is replaced: a broken lock ends the command all the same')
def guardian_stopped(box):
    holder, pid = box.holder('x', '--kill-after', '0.2', script=STUBBORN)
    ticking(box)
    first = wait_for('the guardian', lambda: guardian_of(holder.pid))
    os.kill(first, signal.SIGSTOP)
    try:
        equal(box.status('break', 'x'), 0)
        equal(box.end(holder)[0], 75)
        assert not alive(pid) and not alive(first)
    finally:
        if alive(first):
            os.kill(first, signal.SIGKILL)


@case('a /proc of other process numbers: a command that ignores SIGTERM is killed')
def foreign_proc(box):
    unshare = [shutil.which('unshare') or 'unshare', '--pid', '--fork', '--kill-child']
    if os.geteuid():
        unshare[1:1] = ['--user', '--map-root-user']
    if subprocess.run([*unshare, 'true'], stderr=subprocess.DEVNULL, check=False).returncode:
        raise Skip('unshare(1) may not make a PID namespace here')
    outside = subprocess.Popen([*unshare, TOOL, 'run', '--kill-after', '0.2', 'x', '--', 'sh', '-c',
                                STUBBORN], env=box.env, cwd=box.dir, stdin=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    box.started.append(outside)
    ticking(box)
    equal(box.status('break', 'x'), 0)
    code, _, err = box.end(outside)
    equal(code, 75, err)
    equal(box.status('run', 'x', '--', 'sh', '-c', 'echo second >> log; sleep 0.3'), 0)
    no_tick_after_second(box)


@case('many runs killed at random moments leave nothing behind')
def random_kills(box):
    for i in range(40):
        process = box.start('run', 'x', '--', 'sh', '-c', f'echo $$ > pid-{i}; exec sleep 1000')
        try:
            process.wait(timeout=0.001 * (i % 20))
        except Exception:
            pass
        process.kill()
        box.end(process)
    equal(box.status('run', '-w', '60', 'x', '--', 'true'), 0)
    left = [p for i in range(40) for p in box.lines(f'pid-{i}') if alive(int(p))]
    equal(left, [], 'commands without a lock')


main()
