/* SPDX-License-Identifier: Apache-2.0
 *
 * job.c - see job.h.
 */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tool.h"

/* ---- The terminal -------------------------------------------------------------------------- */

static void lend_terminal(job *j)
{
    if (j->tty >= 0 && tcgetpgrp(j->tty) == getpgrp())
        j->lent = tcsetpgrp(j->tty, j->pid) == 0;
}

static void take_terminal(job *j)
{
    if (j->lent && tcgetpgrp(j->tty) == j->pid)
        tcsetpgrp(j->tty, getpgrp());
    j->lent = false;
}

/* The reader of our output, for example a pager, is in our process group and may need the terminal:
 * without the terminal the pager's first read would stop the whole group. In such a pipe the
 * command gets the terminal when the command reads from the terminal (stop_too). */
static bool feeds_pipe(void)
{
    struct stat st;

    return !fstat(STDOUT_FILENO, &st) && S_ISFIFO(st.st_mode);
}

static void let_stop(int how)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    pthread_sigmask(how, &set, NULL);
}

/* ---- Starting ------------------------------------------------------------------------------ */

/* Runs in the child, which may share its memory with the caller (vfork), so the child writes only
 * values that the caller would write, too. Both sides set the group and hand over the terminal,
 * because either may run first. */
static _Noreturn void run_command(job *j, char **command, const signals *s, guardian *g)
{
    int error;

    setpgid(0, 0);
    j->pid = getpid();
    if (!guardian_enlist(g))
        _exit(STATUS_LOST);
    if (j->lent)
        tcsetpgrp(j->tty, j->pid);
    signals_restore(s);
    execvp(command[0], command);
    error = errno;
    say("can't run '%s': %s", command[0], strerror(error));
    _exit(error == ENOENT ? STATUS_NOT_FOUND : STATUS_CANT_RUN);
}

int job_start(job *j, char **command, const signals *s, guardian *g)
{
    pid_t pid;

    *j = (job){.tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)};
    j->piped = j->tty >= 0 && feeds_pipe();
    j->lent = j->tty >= 0 && tcgetpgrp(j->tty) == getpgrp() && !j->piped;
    if (j->piped)
        let_stop(SIG_BLOCK);
    fflush(NULL);
    /* vfork copies no page tables, which saves a good part of the time of a short command. But the
     * caller sleeps until the child's exec: on a terminal, a ^Z before the exec could stop the
     * child, and then nobody could take the terminal back. So on a terminal fork is used. */
    pid = j->tty < 0 ? vfork() : fork();
    if (pid == 0)
        run_command(j, command, s, g);
    if (pid < 0) {
        int error = errno;

        if (j->tty >= 0)
            close(j->tty);
        return error;
    }
    j->pid = pid;
    setpgid(pid, pid);
    if (j->lent)
        tcsetpgrp(j->tty, pid);
    return 0;
}

/* ---- While it runs ------------------------------------------------------------------------- */

void job_signal(job *j, int signal)
{
    if (signal == SIGCONT && !j->piped)
        lend_terminal(j);
    kill(-j->pid, signal);
}

/* Was this signal sent to this process in the meantime? A blocked signal stays pending. */
static bool was_sent(int signal)
{
    static const struct timespec at_once = {0};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, signal);
    return sigtimedwait(&set, NULL, &at_once) == signal;
}

/* The command has stopped. Without a terminal, do nothing; the lock stays held. On a terminal, stop
 * this process as a job does. kill() returns after a SIGCONT, or at once where the system ignores
 * SIGTSTP because no shell could continue us. In the second case a command that ^Z stopped is
 * continued; a command that stopped because it does not have the terminal would only stop again. */
static void stop_too(job *j, int signal)
{
    bool continued;

    if (j->tty < 0)
        return;
    if (!j->lent && (signal == SIGTTIN || signal == SIGTTOU)) {
        lend_terminal(j);
        if (j->lent) {
            kill(-j->pid, SIGCONT);
            return;
        }
    }
    take_terminal(j);
    was_sent(SIGCONT);
    let_stop(SIG_UNBLOCK);
    kill(0, SIGTSTP);
    if (j->piped)
        let_stop(SIG_BLOCK);
    continued = was_sent(SIGCONT);
    j->stopped |= continued;
    if (continued || signal == SIGTSTP)
        job_signal(j, SIGCONT);
}

bool job_ended(job *j)
{
    siginfo_t info = {0};

    if (j->piped && was_sent(SIGTSTP))
        kill(-j->pid, SIGTSTP); /* ^Z: this process stops when the command has stopped */
    if (waitid(P_PID, (id_t)j->pid, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) ||
        info.si_pid != j->pid)
        return false;
    if (info.si_code != CLD_STOPPED && info.si_code != CLD_TRAPPED)
        return true;
    waitid(P_PID, (id_t)j->pid, &info, WSTOPPED | WNOHANG); /* consume the stop event */
    stop_too(j, info.si_status);
    return false;
}

int job_reap(job *j)
{
    int status = 0;
    bool lent = j->lent;

    take_terminal(j);
    if (lent && j->piped)
        kill(0, SIGCONT); /* a pager that wanted the terminal in the meantime was stopped */
    while (waitpid(j->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (j->tty >= 0)
        close(j->tty);
    j->tty = -1;
    j->interrupted = lent && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT;
    return WIFSIGNALED(status) ? STATUS_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}
