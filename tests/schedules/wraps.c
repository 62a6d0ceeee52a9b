/* SPDX-License-Identifier: Apache-2.0
 *
 * wraps.c - functions that replace the system's functions (linker option --wrap, meson.build).
 *
 * A thread that is not steered (sched_managed) gets the system's function. For steered threads:
 *
 *   mutex      lock is trylock, repeated after each unlock; so the scheduler chooses the thread
 *              that gets the mutex, and the mutex is real for threads that are not steered
 *   condition  never the system's: the thread waits in the scheduler. One wait in 64 ends for no
 *              reason, as POSIX allows
 *   poll       and epoll_wait: a call without a wait; the thread waits in the scheduler and repeats
 *              the call
 *   time       the virtual clock is all clocks; a timer descriptor is an eventfd that the scheduler
 *              writes to
 *   threads    a thread leaves the scheduler in the third round of its destructors: the core's
 *              destructors are over by then
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "steer.h"

#define WRAP(type, name, args)                                                                     \
    type __real_##name args;                                                                       \
    type __wrap_##name args;                                                                       \
    type __wrap_##name args

#define ROUNDS 3

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- mutexes --------------------------------------------------------------------------------- */

int __real_pthread_mutex_trylock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);

static int take(pthread_mutex_t *mutex)
{
    int error;

    while ((error = __real_pthread_mutex_trylock(mutex)) == EBUSY)
        sched_block(ON_MUTEX, mutex, SCHED_NEVER);
    return error;
}

WRAP(int, pthread_mutex_lock, (pthread_mutex_t *mutex))
{
    if (!sched_managed())
        return __real_pthread_mutex_lock(mutex);
    sched_point(POINT_LOCK, mutex);
    return take(mutex);
}

WRAP(int, pthread_mutex_trylock, (pthread_mutex_t *mutex))
{
    sched_point(POINT_LOCK, mutex);
    return __real_pthread_mutex_trylock(mutex);
}

WRAP(int, pthread_mutex_unlock, (pthread_mutex_t *mutex))
{
    int error = __real_pthread_mutex_unlock(mutex);

    if (sched_active()) {
        sched_wake(ON_MUTEX, mutex, true);
        sched_point(POINT_UNLOCK, mutex);
    }
    return error;
}

WRAP(int, pthread_mutex_destroy, (pthread_mutex_t *mutex))
{
    if (sched_managed() && sched_anybody(ON_MUTEX, mutex))
        sched_fail("mutex %p is destroyed while a thread waits for it", (void *)mutex);
    return __real_pthread_mutex_destroy(mutex);
}

/* ---- conditions ------------------------------------------------------------------------------ */

static int wait_on(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t until)
{
    bool in_time = true;
    int error;

    sched_point(POINT_COND, cond);
    error = __real_pthread_mutex_unlock(mutex);
    if (error)
        return error;
    sched_wake(ON_MUTEX, mutex, true);
    if (sched_draw(64) == 0)
        sched_point(POINT_COND, cond);
    else
        in_time = sched_block(ON_COND, cond, until);
    take(mutex);
    pthread_testcancel();
    return in_time ? 0 : ETIMEDOUT;
}

WRAP(int, pthread_cond_wait, (pthread_cond_t *cond, pthread_mutex_t *mutex))
{
    return sched_managed() ? wait_on(cond, mutex, SCHED_NEVER)
                           : __real_pthread_cond_wait(cond, mutex);
}

WRAP(int, pthread_cond_timedwait,
     (pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *at))
{
    if (!sched_managed())
        return __real_pthread_cond_timedwait(cond, mutex, at);
    return wait_on(cond, mutex, (int64_t)at->tv_sec * 1000000000 + at->tv_nsec);
}

WRAP(int, pthread_cond_signal, (pthread_cond_t *cond))
{
    sched_wake(ON_COND, cond, false);
    sched_point(POINT_SIGNAL, cond);
    return __real_pthread_cond_signal(cond);
}

WRAP(int, pthread_cond_broadcast, (pthread_cond_t *cond))
{
    sched_wake(ON_COND, cond, true);
    sched_point(POINT_SIGNAL, cond);
    return __real_pthread_cond_broadcast(cond);
}

WRAP(int, pthread_cond_destroy, (pthread_cond_t *cond))
{
    if (sched_managed() && sched_anybody(ON_COND, cond))
        sched_fail("condition %p is destroyed while a thread waits on it", (void *)cond);
    return __real_pthread_cond_destroy(cond);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct start {
    void *(*run)(void *);
    void *arg;
    struct sched_thread *thread;
    int rounds;
};

static void leave(void *value)
{
    struct start *start = value;

    if (++start->rounds < ROUNDS && !pthread_setspecific(key, start))
        return;
    free(start);
    sched_thread_end();
}

static void child_of_fork(void)
{
    sched_forked();
}

static void prepare(void)
{
    pthread_key_create(&key, leave);
    pthread_atfork(NULL, NULL, child_of_fork);
}

static void *thread_main(void *value)
{
    struct start *start = value;

    pthread_setspecific(key, start);
    sched_thread_begin(start->thread);
    return start->run(start->arg);
}

WRAP(int, pthread_create,
     (pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *), void *arg))
{
    struct start *start;
    int error;

    pthread_once(&once, prepare);
    if (!sched_begins())
        return __real_pthread_create(ret, attr, run, arg);
    start = malloc(sizeof *start);
    if (!start)
        return EAGAIN;
    *start = (struct start){run, arg, sched_thread_new(), 0};
    if (!start->thread)
        sched_fail("too many threads");
    error = __real_pthread_create(ret, attr, thread_main, start);
    if (error)
        sched_fail("no thread: %s", strerror(error));
    sched_thread_id(start->thread, *ret);
    sched_point(POINT_CREATE, NULL);
    return 0;
}

WRAP(int, pthread_join, (pthread_t id, void **result))
{
    struct sched_thread *t = sched_managed() ? sched_thread_find(id) : NULL;

    if (t) {
        sched_point(POINT_JOIN, t);
        while (!sched_thread_ended(t))
            sched_block(IN_JOIN, t, SCHED_NEVER);
        sched_thread_joined(t);
    }
    return __real_pthread_join(id, result);
}

WRAP(int, pthread_cancel, (pthread_t id))
{
    struct sched_thread *t = sched_managed() ? sched_thread_find(id) : NULL;
    int error = __real_pthread_cancel(id);

    if (t) {
        sched_thread_poke(t);
        sched_point(POINT_SIGNAL, t);
    }
    return error;
}

WRAP(int, sched_yield, (void))
{
    if (!sched_managed())
        return __real_sched_yield();
    sched_demote();
    sched_point(POINT_PROGRAM, NULL);
    return 0;
}

/* ---- waiting in the kernel ------------------------------------------------------------------- */

static int64_t limit_of(int timeout_ms)
{
    return timeout_ms < 0 ? SCHED_NEVER : sched_now() + (int64_t)timeout_ms * 1000000;
}

WRAP(int, poll, (struct pollfd *fds, nfds_t n, int timeout))
{
    int64_t until;
    int ready;

    if (!sched_managed())
        return __real_poll(fds, n, timeout);
    sched_point(POINT_POLL, fds);
    until = limit_of(timeout);
    do
        ready = __real_poll(fds, n, 0);
    while (!ready && timeout && sched_block_poll(fds, n, until));
    return ready;
}

WRAP(int, epoll_wait, (int fd, struct epoll_event *events, int room, int timeout))
{
    struct pollfd one = {fd, POLLIN, 0};
    int64_t until;
    int ready;

    if (!sched_managed())
        return __real_epoll_wait(fd, events, room, timeout);
    sched_point(POINT_POLL, events);
    until = limit_of(timeout);
    do
        ready = __real_epoll_wait(fd, events, room, 0);
    while (!ready && timeout && sched_block_poll(&one, 1, until));
    return ready;
}

static int sleep_ns(int64_t ns)
{
    sched_point(POINT_SLEEP, NULL);
    sched_block(ASLEEP, NULL, sched_now() + ns);
    return 0;
}

WRAP(int, usleep, (useconds_t us))
{
    return sched_managed() ? sleep_ns((int64_t)us * 1000) : __real_usleep(us);
}

WRAP(int, nanosleep, (const struct timespec *t, struct timespec *left))
{
    return sched_managed() ? sleep_ns((int64_t)t->tv_sec * 1000000000 + t->tv_nsec)
                           : __real_nanosleep(t, left);
}

/* ---- input and output: a point, then the call ------------------------------------------------ */

WRAP(ssize_t, read, (int fd, void *to, size_t n))
{
    sched_point(POINT_IO, NULL);
    return __real_read(fd, to, n);
}

WRAP(ssize_t, write, (int fd, const void *from, size_t n))
{
    sched_point(POINT_IO, NULL);
    return __real_write(fd, from, n);
}

WRAP(ssize_t, pread64, (int fd, void *to, size_t n, off64_t at))
{
    sched_point(POINT_IO, NULL);
    return __real_pread64(fd, to, n, at);
}

WRAP(ssize_t, pwrite64, (int fd, const void *from, size_t n, off64_t at))
{
    sched_point(POINT_IO, NULL);
    return __real_pwrite64(fd, from, n, at);
}

WRAP(ssize_t, sendto,
     (int fd, const void *from, size_t n, int flags, const struct sockaddr *to, socklen_t size))
{
    sched_point(POINT_IO, NULL);
    return __real_sendto(fd, from, n, flags, to, size);
}

WRAP(ssize_t, send, (int fd, const void *from, size_t n, int flags))
{
    sched_point(POINT_IO, NULL);
    return __real_send(fd, from, n, flags);
}

WRAP(ssize_t, recv, (int fd, void *to, size_t n, int flags))
{
    sched_point(POINT_IO, NULL);
    return __real_recv(fd, to, n, flags);
}

WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags))
{
    sched_point(POINT_IO, NULL);
    return __real_sendmsg(fd, message, flags);
}

WRAP(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags))
{
    sched_point(POINT_IO, NULL);
    return __real_recvmsg(fd, message, flags);
}

WRAP(int, close, (int fd))
{
    if (sched_active()) {
        sched_timer_remove(fd);
        sched_point(POINT_IO, NULL);
    }
    return __real_close(fd);
}

/* ---- time and chance ------------------------------------------------------------------------- */

WRAP(int, clock_gettime, (clockid_t clock, struct timespec *ret))
{
    int64_t now;

    if (!sched_active() ||
        (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC && clock != CLOCK_BOOTTIME))
        return __real_clock_gettime(clock, ret);
    now = sched_now();
    ret->tv_sec = now / 1000000000;
    ret->tv_nsec = now % 1000000000;
    return 0;
}

WRAP(int, timerfd_create, (int clock, int flags))
{
    int fd;

    pthread_once(&once, prepare);
    if (!sched_begins())
        return __real_timerfd_create(clock, flags);
    fd = eventfd(0, (flags & TFD_NONBLOCK ? EFD_NONBLOCK : 0) |
                    (flags & TFD_CLOEXEC ? EFD_CLOEXEC : 0));
    if (fd >= 0)
        sched_timer_add(fd);
    return fd;
}

WRAP(int, timerfd_settime,
     (int fd, int flags, const struct itimerspec *value, struct itimerspec *old))
{
    int64_t due = (int64_t)value->it_value.tv_sec * 1000000000 + value->it_value.tv_nsec;

    if (due && !(flags & TFD_TIMER_ABSTIME))
        due += sched_now();
    if (!sched_active() || !sched_timer_set(fd, due ? due : SCHED_NEVER))
        return __real_timerfd_settime(fd, flags, value, old);
    sched_point(POINT_IO, NULL);
    return 0;
}

WRAP(ssize_t, getrandom, (void *to, size_t n, unsigned flags))
{
    unsigned char *byte = to;

    if (!sched_managed())
        return __real_getrandom(to, n, flags);
    for (size_t i = 0; i < n; i++)
        byte[i] = (unsigned char)sched_draw(256);
    return (ssize_t)n;
}

/* ---- points inside the core (points.h, -finstrument-functions) ------------------------------- */

void sched_atomic(const volatile void *word);
void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller);

void sched_atomic(const volatile void *word)
{
    sched_point(POINT_ATOMIC, (const void *)word);
}

void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)caller;
    sched_point(POINT_FUNCTION, function);
}

void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)caller;
    sched_point(POINT_FUNCTION, function);
}
