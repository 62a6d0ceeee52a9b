/* SPDX-License-Identifier: Apache-2.0
 *
 * steer_timers.c - timer descriptors in virtual time (steer.h).
 *
 * Each timer descriptor is an eventfd. A timer is idle, or due at an instant of the virtual clock;
 * when the clock has reached this instant, the scheduler rings the timer: it writes a count, as an
 * expired timer has one. Everything is under the scheduler's lock. Compiled without sanitizers and
 * with raw system calls only, for the reasons given in steer.c.
 */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "steer.h"

#define TIMERS 256

static struct {
    int fd;
    int64_t due;
} timers[TIMERS];
static size_t ntimers;

void sched_timer_add(int fd)
{
    sched_lock();
    if (ntimers == TIMERS)
        sched_fail("more than %d timer descriptors", TIMERS);
    timers[ntimers].fd = fd;
    timers[ntimers++].due = SCHED_NEVER;
    sched_unlock();
}

void sched_timer_remove(int fd)
{
    sched_lock();
    for (size_t i = 0; i < ntimers; i++)
        if (timers[i].fd == fd) {
            timers[i] = timers[--ntimers];
            break;
        }
    sched_unlock();
}

/* A timer that has rung and is set again loses its count. */
bool sched_timer_set(int fd, int64_t due)
{
    uint64_t count;
    bool found = false;

    sched_lock();
    for (size_t i = 0; i < ntimers; i++)
        if (timers[i].fd == fd) {
            syscall(SYS_read, fd, &count, sizeof count);
            timers[i].due = due;
            found = true;
        }
    sched_unlock();
    return found;
}

int64_t sched_timers_next(void)
{
    int64_t due = SCHED_NEVER;

    for (size_t i = 0; i < ntimers; i++)
        if (timers[i].due < due)
            due = timers[i].due;
    return due;
}

bool sched_timers_ring(int64_t now)
{
    uint64_t one = 1;
    bool any = false;

    for (size_t i = 0; i < ntimers; i++)
        if (timers[i].due <= now) {
            timers[i].due = SCHED_NEVER;
            syscall(SYS_write, timers[i].fd, &one, sizeof one);
            any = true;
        }
    return any;
}

void sched_timers_clear(void)
{
    ntimers = 0;
}
