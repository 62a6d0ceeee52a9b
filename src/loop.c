/* SPDX-License-Identifier: Apache-2.0
 *
 * loop.c - starts libuv's loop in processes with few descriptors.
 *
 * The first uv_loop_init of a process opens a pipe for signal handlers, and aborts the process if
 * that fails. Later calls, and all other descriptors that uv_loop_init opens (epoll, io_uring, the
 * wake-up of worker threads), only return an error. So the first loop is started with care:
 *
 *   - One thread at a time, so that clients that are opened at once don't count on the same free
 *     descriptors.
 *   - Only if LOOP_FDS descriptors are free.
 *   - If fewer than SPARE are free, another thread of the program could take them in between. For
 *     that moment the soft limit is raised to the hard limit, so that no thread can take all.
 *
 * One danger remains: fewer than SPARE descriptors are free, the soft limit is the hard limit, and
 * other threads take all but a few descriptors within some microseconds.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core.h"
#include "fork.h"

enum { LOOP_FDS = 8, SPARE = 64 };

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool started;

/* How many descriptors are free? At most SPARE are counted. *error says why there are no more. */
static int count_free(int *error)
{
    int fds[SPARE], n = 0, found;

    *error = 0;
    while (n < SPARE && (fds[n] = eventfd(0, EFD_CLOEXEC)) >= 0)
        n++;
    if (n < SPARE)
        *error = errno;
    for (found = n; n > 0;)
        close(fds[--n]);
    return found;
}

static int start_first(uv_loop_t *loop)
{
    struct rlimit before, raised, now;
    int error, found = count_free(&error);

    if (found < LOOP_FDS)
        return error;
    if (found == SPARE || getrlimit(RLIMIT_NOFILE, &before) || before.rlim_cur >= before.rlim_max)
        return -uv_loop_init(loop);
    raised = before;
    raised.rlim_cur = before.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised))
        return -uv_loop_init(loop);
    error = -uv_loop_init(loop);
    if (!getrlimit(RLIMIT_NOFILE, &now) && now.rlim_cur == raised.rlim_cur) {
        now.rlim_cur = before.rlim_cur;
        (void)setrlimit(RLIMIT_NOFILE, &now);
    }
    return error;
}

int pawl__loop_init(uv_loop_t *loop)
{
    int error;

    if (atomic_load(&started))
        return -uv_loop_init(loop);
    pawl__fork_mutex_add(&starting);
    pthread_mutex_lock(&starting);
    error = atomic_load(&started) ? -uv_loop_init(loop) : start_first(loop);
    if (!error)
        atomic_store(&started, true);
    pthread_mutex_unlock(&starting);
    return error;
}
