/* SPDX-License-Identifier: Apache-2.0
 *
 * fork.c - the step `fork`: a child process calls Pawl on the handle of its parent, each call must
 * be refused, and the child exits. Other threads of the parent may be anywhere in the library at
 * the instant of the fork, and go on.
 *
 * The caller holds the guard of the object, so no thread frees the handle during the fork. The
 * child uses no guard, mutex or log of this program. A child that hangs is killed by its alarm.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "steps.h"

enum { CHILD_SECONDS = 30 };

static void ignore(void *arg, pawl_lock *lock, int code)
{
    (void)arg;
    (void)lock;
    (void)code;
}

/* pawl.h: "After fork() the child's calls on the parent's objects return PAWL_EFORK". */
static int refused(const int *codes, int n)
{
    int wrong = 0;

    for (int i = 0; i < n; i++)
        wrong += codes[i] != PAWL_EFORK;
    return wrong;
}

static int use_handle(const struct object *o)
{
    int64_t number;

    if (o->type == SEM) {
        int codes[] = {pawl_semaphore_acquire(o->p, 1, 0, NULL),
                       pawl_semaphore_release(o->p, 1, NULL),
                       pawl_semaphore_available(o->p, &number, NULL)};
        return refused(codes, 3);
    }
    if (o->type == LATCH) {
        int codes[] = {pawl_latch_wait(o->p, 0, NULL), pawl_latch_count_down(o->p, NULL),
                       pawl_latch_count(o->p, &number, NULL)};
        return refused(codes, 3);
    }
    int codes[] = {pawl_lock_acquire(o->p, PAWL_FOREVER, NULL), pawl_lock_release(o->p, NULL),
                   pawl_lock_renew(o->p, 0, NULL), pawl_lock_break(o->p, NULL),
                   pawl_lock_acquire_start(o->p, 0, ignore, NULL),
                   pawl_lock_release_start(o->p, ignore, NULL)};
    return refused(codes, 6);
}

/* The number of calls that were not refused. 100: the child did not end by itself. */
int steps_fork(struct object *o)
{
    int status = 0;
    pid_t child = fork();

    if (child < 0)
        return 0; /* fork failed: nothing was tried */
    if (!child) {
        signal(SIGALRM, SIG_DFL);
        alarm(CHILD_SECONDS);
        _exit(use_handle(o));
    }
    while (waitpid(child, &status, 0) < 0)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}
