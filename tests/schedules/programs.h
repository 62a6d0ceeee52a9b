/* SPDX-License-Identifier: Apache-2.0
 *
 * programs.h - small random concurrent programs, made from seeds, that run under the scheduler
 * (steer.h). The seed of a program is the seed of its schedule divided by SCHEDULES, so each
 * program runs under several schedules.
 *
 * There are two kinds. *Critical* programs (critical.c) have long leases and no faults: every
 * section is exclusive (a plain counter, which ThreadSanitizer checks, too), and every wait without
 * a limit ends soon. *Wild* programs (wild.c) have leases of some ms, late, lost and refused
 * answers, and calls of every kind on handles that all threads share; a judge (programs.c) compares
 * the leases that the owners were told. In both kinds each `done` is called once, closing returns,
 * and nothing is left in the service or, in AddressSanitizer's build, in memory.
 *
 * The programs follow the rules of pawl.h (no call on a handle during or after its free). Threads
 * share only relaxed atomics, which order nothing: a mutex of the program would hide from
 * ThreadSanitizer that the library forgot a mutex.
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
    _Atomic unsigned releases;  /* how many releases of the program have begun */
    _Atomic int releasing;      /* how many of these are under way */
    bool judged;
};

/* An asynchronous operation. */
struct start {
    struct program *program;
    struct slot *slot;
    struct worker *worker;
    uint64_t chance;
    _Atomic int told;
    _Atomic bool begun;
    _Atomic bool freed; /* a callback freed the handle before: the code must not be 0 */
    bool members_first; /* the members are freed before the multi-lock */
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
    uint64_t chance; /* random state of the thread that prepares the program */
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
    /* until when each owner certainly holds each name according to valid_ms; 0: not held */
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
void start_told(struct start *s); /* the done callback ran: exactly once */

/* Begin to use a shared handle. NULL: the handle is being freed. */
pawl_lock *slot_claim(struct slot *slot);
bool slot_claim_as(struct slot *slot, const pawl_lock *lock); /* if the slot has this handle */
void slot_leave(struct slot *slot);

/* The owner was granted `slot` and asks how long the grant is valid. `releases` is the value of
 * slot->releases before the acquire. */
void judge_granted(struct program *p, struct slot *slot, size_t owner, pawl_lock *lock,
                   unsigned releases);
/* Called before and after a release of the owner's lock through `slot`. */
void judge_release_begins(struct program *p, struct slot *slot, size_t owner);
void judge_release_ends(struct slot *slot);
size_t judge_owner(const struct program *p, const struct slot *slot, const struct worker *w);

void cancel_duel(struct program *p);
void ended_thread(struct program *p);

void critical_prepare(struct program *p);
void critical_step(struct program *p, struct worker *w);
void wild_prepare(struct program *p);
void wild_step(struct program *p, struct worker *w);

bool program_is_wild(uint64_t seed);
void program_run(uint64_t seed);

#endif
