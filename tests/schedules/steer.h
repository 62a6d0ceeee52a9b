/* SPDX-License-Identifier: Apache-2.0
 *
 * steer.h - a scheduler for the threads of one process: one thread runs at a time, and a seed
 * decides which one.
 *
 * Link a program with `sched_dep` (meson.build): the core is compiled with points at its atomics
 * and functions, and the linker sends its calls of pthread_*, poll, epoll_wait, read, write, send,
 * recv, timerfd_*, clock_gettime, nanosleep and getrandom through wraps.c. Then either
 *
 *     sched_start(seed, NULL);  ... threads ...  sched_stop();
 *
 * in the program, or PAWL_SCHEDULE_SEED=N in the environment: the scheduler then starts with the
 * first timerfd_create or pthread_create of the process (again after each fork). pthread_create
 * puts a thread under the scheduler, until the last destructor of the thread has run.
 * PAWL_SCHEDULE_TRACE=1 prints every change of thread.
 *
 * Time is virtual: each point takes a microsecond, and when no thread can run the clock jumps to
 * the next timer. If no thread can run and no timer is pending, this is a deadlock, which ends the
 * process with a report (abort).
 */
#ifndef PAWL_SCHED_H
#define PAWL_SCHED_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum sched_way { SCHED_PCT, SCHED_WALK };

/* Fields that are 0 are drawn from the seed. */
struct sched_options {
    int depth;       /* how many priority changes (PCT) */
    uint64_t length; /* the changes happen within this many points */
    int functions;   /* 1: functions of the core are points, too; -1: no */
    int jumps;       /* at one of this many points the clock jumps to the next timer; -1: never */
};

void sched_start(uint64_t seed, const struct sched_options *options);
void sched_stop(void);
bool sched_active(void);
/* The calling thread may lose its turn here. */
void sched_yield_point(void);
/* End the process with a message, the seed and the state of each thread. */
_Noreturn void sched_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The number of points so far; a hash of all decisions; and how often a thread was stuck in the
 * kernel and others ran at the same time (then the seed can't be replayed). */
uint64_t sched_steps(void), sched_hash(void), sched_strays(void);
int64_t sched_now(void); /* virtual ns; the call takes some virtual time */

/* ---- for wraps.c ----------------------------------------------------------------------------- */

#define SCHED_NEVER INT64_MAX

enum sched_point {
    POINT_LOCK, POINT_UNLOCK, POINT_COND, POINT_SIGNAL, POINT_POLL, POINT_IO, POINT_CREATE,
    POINT_JOIN, POINT_SLEEP, POINT_ATOMIC, POINT_FUNCTION, POINT_PROGRAM, POINT_END
};

enum sched_state { RUNNABLE, ON_MUTEX, ON_COND, IN_POLL, IN_JOIN, ASLEEP, ENDED };

struct sched_thread;

bool sched_managed(void); /* the calling thread is steered */
bool sched_begins(void);  /* as sched_managed, but first starts if the environment says so */
void sched_point(enum sched_point kind, const void *what);
/* Let other threads run until this thread is woken, or until `until`. False: the time has
 * passed. */
bool sched_block(enum sched_state state, const void *what, int64_t until);
bool sched_block_poll(struct pollfd *fds, nfds_t n, int64_t until);
/* Make threads that block in this state on `what` runnable: all of them, or a random one. */
void sched_wake(enum sched_state state, const void *what, bool all);
bool sched_anybody(enum sched_state state, const void *what);
uint64_t sched_draw(uint64_t n); /* 0 .. n-1; 0: all 64 bits */
void sched_demote(void);         /* the calling thread has the lowest priority from now on */

struct sched_thread *sched_thread_new(void);         /* NULL: too many */
void sched_thread_begin(struct sched_thread *t);     /* first thing of a new thread: waits */
void sched_thread_id(struct sched_thread *t, pthread_t id);
void sched_thread_end(void);
struct sched_thread *sched_thread_find(pthread_t id); /* a thread that was not joined */
bool sched_thread_ended(const struct sched_thread *t);
void sched_thread_joined(struct sched_thread *t);
void sched_thread_poke(struct sched_thread *t);       /* make a waiting thread runnable */
void sched_forked(void);

/* Virtual timer descriptors. */
void sched_timer_add(int fd);
bool sched_timer_set(int fd, int64_t due); /* SCHED_NEVER: off. False: no virtual timer */
void sched_timer_remove(int fd);
/* Called with the scheduler's lock. */
int64_t sched_timers_next(void);
bool sched_timers_ring(int64_t now); /* true: one was due */
void sched_timers_clear(void);
void sched_lock(void), sched_unlock(void);

#endif
