/* SPDX-License-Identifier: Apache-2.0
 *
 * await.c - signals as events, and blocking calls that signals can cancel.
 */
#include "await.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/* ---- Signals ------------------------------------------------------------------------------- */

static const int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

int signals_open(signals *s)
{
    struct sigaction action, chld = {.sa_handler = SIG_DFL};
    sigset_t read, block;

    sigemptyset(&read);
    sigaddset(&read, SIGCHLD);
    sigaddset(&read, SIGCONT);
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++)
        /* A signal that the caller ignores (nohup) stays ignored: blocking such a signal would
         * deliver it. */
        if (!sigaction(passed_on[i], NULL, &action) && action.sa_handler != SIG_IGN)
            sigaddset(&read, passed_on[i]);
    block = read;
    sigaddset(&block, SIGTTOU);
    sigaddset(&block, SIGTTIN);
    sigaction(SIGCHLD, &chld, &s->old_chld);
    s->fd = signalfd(-1, &read, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0)
        return errno;
    return pthread_sigmask(SIG_BLOCK, &block, &s->old);
}

void signals_restore(const signals *s)
{
    sigaction(SIGCHLD, &s->old_chld, NULL);
    pthread_sigmask(SIG_SETMASK, &s->old, NULL);
}

void signals_close(signals *s)
{
    close(s->fd);
}

int signals_next(const signals *s)
{
    struct signalfd_siginfo info;

    return read(s->fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

/* ---- Tasks --------------------------------------------------------------------------------- */

static int64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

#define AGAIN_MS 20

/* A child's end or a SIGCONT does not end a wait. */
static int ending_signal(const signals *s)
{
    int n;

    while ((n = signals_next(s)))
        if (n != SIGCHLD && n != SIGCONT)
            return n;
    return 0;
}

static int64_t pause_of(const task *t)
{
    return t->pause_ms ? t->pause_ms : 1000;
}

int await(task *t, const signals *s)
{
    struct pollfd fds[] = {{.fd = t->fd, .events = POLLIN}, {.fd = s->fd, .events = POLLIN}};
    int64_t next = now_ms() + pause_of(t);
    int ended_by = 0;

    while (!t->step(t)) {
        int64_t left = next - now_ms();

        left = left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : left;
        poll(fds, 2, ended_by ? AGAIN_MS : t->second ? (int)left : -1);
        if (!ended_by)
            ended_by = ending_signal(s);
        if (ended_by)
            t->cancel(t); /* repeated: the call on the thread may not have begun to wait yet */
        if (t->second && !ended_by && now_ms() >= next) {
            t->second(t);
            next = now_ms() + pause_of(t);
        }
        if (ended_by)
            while (ending_signal(s)) /* one signal is enough to end the task */
                ;
    }
    return ended_by ? ended_by : ending_signal(s);
}

/* ---- Blocking calls ------------------------------------------------------------------------ */

static void *call_thread(void *arg)
{
    call *c = arg;
    uint64_t one = 1;

    c->code = c->fn(c);
    atomic_store(&c->done, true);
    while (write(c->task.fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
    return NULL;
}

static bool call_step(task *t)
{
    call *c = (call *)t;

    return atomic_load(&c->done);
}

int call_start(call *c)
{
    int error;

    c->task.step = call_step;
    c->task.fd = eventfd(0, EFD_CLOEXEC);
    if (c->task.fd < 0)
        return errno;
    error = pthread_create(&c->thread, NULL, call_thread, c);
    if (error)
        close(c->task.fd);
    return error;
}

int call_end(call *c)
{
    pthread_join(c->thread, NULL);
    close(c->task.fd);
    return c->code;
}
