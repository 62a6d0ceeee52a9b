/* SPDX-License-Identifier: Apache-2.0
 *
 * programs.h - small concurrent programs at random, to be run under the scheduler (steer.h), by
 * seed. The seed of a program is that of its schedule divided by SCHEDULES, so each program is run
 * under several schedules.
 *
 * Two kinds. *Critical* programs (critical.c) have long leases and no faults: every section is
 * exclusive (a plain counter, which ThreadSanitizer sees, too), every wait without a limit ends,
 * and soon. *Wild* programs (wild.c) have leases of some ms, late, lost and refused answers, and
 * calls of every kind on handles that all threads share; a judge (programs.c) looks at what each
 * owner was told about its lease. In both: each `done` comes once, closing returns, and nothing is
 * left in the service or, in AddressSanitizer's build, in memory.
 *
 * The programs keep to the rules of pawl.h (no call on a handle beside or after its free). What
 * they share among threads are relaxed atomics, which order nothing: a mutex of the program would
 * hide from ThreadSanitizer that the library forgot one.
 */
#ifndef PAWL_SCHED_PROGRAMS_H
#define PAWL_SCHED_PROGRAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pawl.h"
#include "steer.h"

#define SCHEDULES 8
#define CLIENTS 2
#define THREADS_MAX 4
#define NAMES 2
#define SLOTS 8
#define OWNERS (CLIENTS * THREADS_MAX + SLOTS)
#define STARTS 400
#define KEPT 64

struct program;

/* A handle that several threads use. */
struct slot {
    _Atomic int users; /* calls under way; -1: being freed */
    pawl_lock *_Atomic lock;
    size_t client, name;
    bool shared;       /* PAWL_READ */
    bool by_handle;
    _Atomic unsigned releases;  /* how often the program began to give it back */
    _Atomic int releasing;      /* calls that do so now */
    bool judged;
};

/* An operation that was started. */
struct start {
    struct program *program;
    struct slot *slot;
    struct worker *worker;
    uint64_t chance;
    _Atomic int told;
    _Atomic bool begun;
    _Atomic bool freed; /* its handle was freed in a callback before: it must not be told 0 */
    pawl_lock *_Atomic lock;
    unsigned releases;
    int64_t began; /* ms */
};

struct worker {
    struct program *program;
    size_t number;
    uint64_t chance;
    int steps;
    pthread_t id;
    pawl_lock *kept[KEPT]; /* handles that are freed at the end */
    size_t nkept;
};

struct program {
    uint64_t seed;
    uint64_t chance; /* of the thread that prepares it */
    bool wild, faults, breaks, fd_mode, closes; /* closes: a worker closes the first client */
    size_t nclients, nworkers;
    char url[300], plain[300]; /* plain: the same service without faults */
    char *folder;
    pawl_client *client[CLIENTS];
    _Atomic bool closing[CLIENTS];
    pawl_semaphore *sem[CLIENTS];
    bool lingers; /* a lock may stay for at_least_ms after its release */
    pawl_lock *multi;
    struct slot slots[SLOTS];
    struct worker workers[THREADS_MAX];
    struct start starts[STARTS];
    _Atomic unsigned nstarts;
    _Atomic bool loop_ends, ended;
    /* until when each owner surely holds each name, as it was told; 0: it does not */
    _Atomic int64_t sole[NAMES][OWNERS], joint[NAMES][OWNERS];
    int inside[NAMES]; /* critical sections: plain on purpose */
    _Atomic int inside_files[NAMES];
    _Atomic int permits;
};

uint64_t draw(uint64_t *chance, uint64_t n); /* 0 .. n-1 */
int64_t clock_ms(void);
/* End the process with a message and the seed. */
_Noreturn void program_fail(const struct program *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *name_of(size_t name);

struct start *start_new(struct program *p, struct worker *w, struct slot *slot, pawl_lock *lock);
void start_told(struct start *s); /* exactly once */

/* Use of a shared handle. NULL: it is being freed. */
pawl_lock *slot_claim(struct slot *slot);
bool slot_claim_as(struct slot *slot, const pawl_lock *lock); /* if it is that one */
void slot_leave(struct slot *slot);

/* The owner was granted `slot` and asks how long that lasts. `releases` is what slot->releases was
 * before. */
void judge_granted(struct program *p, struct slot *slot, size_t owner, pawl_lock *lock,
                   unsigned releases);
/* Around a call that gives back what the owner holds through `slot`. */
void judge_release_begins(struct program *p, struct slot *slot, size_t owner);
void judge_release_ends(struct slot *slot);
size_t judge_owner(const struct program *p, const struct slot *slot, const struct worker *w);

void cancel_duel(struct program *p);

void critical_prepare(struct program *p);
void critical_step(struct program *p, struct worker *w);
void wild_prepare(struct program *p);
void wild_step(struct program *p, struct worker *w);

bool program_is_wild(uint64_t seed);
void program_run(uint64_t seed);

#endif
