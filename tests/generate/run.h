/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h - a random program over pawl.h, and what runs it.
 *
 * A program is text (program.py makes and explains it): clients, objects (locks, multi-locks,
 * semaphores, latches), and steps, each of which one thread does to one object. Two runners share
 * the code that does a step (steps.c):
 *
 *   sequence.c  one step at a time, first on memory: and then on the engine under test, whose
 *               results must be the same;
 *   free.c      every thread does its own steps as fast as it can, and a log in a mapped file says
 *               what happened when (holds.c), for the judge (judge.py).
 *
 * Nothing here looks inside the library: pawl.h is all that is included.
 *
 * Who may touch what: a program is read-only once it is parsed. An object's handle may be freed,
 * and a client closed, by any thread at any time. Each step therefore holds the `guard` of its
 * object for reading, and freeing takes the guard for writing without waiting (a step that can't
 * have the guard is left out). pawl.h forbids only that: calls on a handle beside its free. A
 * client's guard is the same for the few calls that take a client; closing beside calls on
 * handles is allowed.
 */
#ifndef PAWL_GENERATE_RUN_H
#define PAWL_GENERATE_RUN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pawl.h"

enum { MAX_CLIENTS = 8, MAX_OBJECTS = 64, MAX_THREADS = 8, MAX_STEPS = 400, MAX_MEMBERS = 4 };
/* Operations: one per step, one per step that its done callback started, one per object that its
 * on_lost callback started. */
enum { MAX_OPS = 2 * MAX_STEPS + MAX_OBJECTS, MAX_NAMES = 64 };
enum { HANG_MS = 20000 };  /* what takes longer hangs */
enum { SHORT_LEASE = 3000 }; /* a lease up to this ends while a step waits for that */
enum { SHORT_WAIT = 2000 }; /* a wait up to this is run to its end; a longer one may stay pending */

enum type { LOCK, MULTI, SEM, LATCH };

/* What a callback does in addition to telling. */
enum act { ACT_NONE, ACT_RELEASE, ACT_FREE, ACT_CANCEL, ACT_AGAIN, ACT_ASK, ACT_BLOCK, ACTS };

#define STEP_KINDS(X)                                                                              \
    X(acquire) X(start) X(release) X(rstart) X(renew) X(break) X(cancel) X(free) X(close)          \
    X(inspect) X(list) X(sacquire) X(srelease) X(avail) X(set) X(down) X(wait) X(count) X(sleep)   \
    X(expire) X(hold) X(end) X(fork) X(fault)

enum step_kind {
#define X(name) DO_##name,
    STEP_KINDS(X)
#undef X
        STEP_KIND_COUNT
};

struct step {
    int thread, kind, object; /* close, list: the client */
    int64_t a, b;
    char text[64];
};

struct client {
    bool present;
    int64_t loop, cohort, watchdog, timeout;
    int64_t reconnects; /* free.c: those that are in the log */
    pawl_client *p;
    pthread_rwlock_t guard;
    atomic_bool closed;
    pthread_t looper;
    atomic_bool looping, stop;
    char label[64]; /* tells its holders from those of others */
};

struct object {
    bool present;
    int id, type;
    int64_t client, name, kind, owner, lease, max_hold, at_least, lost, done, permits;
    int members[MAX_MEMBERS], nmembers;
    void *p;
    pthread_rwlock_t guard;
    atomic_bool freed;
    atomic_int inside; /* blocking calls under way that may last for ever */
    atomic_int losses, last_reason;
    struct run *run;
};

/* One call, or one asynchronous operation from its start to its done. Number: its step's, or for
 * what a callback started, one of those from MAX_STEPS on. */
struct op {
    struct run *run;
    int number, thread;
    struct object *object;
    struct step step;
    atomic_int state; /* 0 not begun, 1 under way, 2 done */
    atomic_int dones; /* how often done was called */
    bool async, skipped;
    int code, hold_count, held, token_class, reason;
    int64_t value; /* of inspect, avail, count */
    int64_t waiters; /* of inspect */
    int64_t began, ended, seen; /* seen: what the handle says was asked */
    struct record *record; /* free.c: its line in the log */
    struct record *leaves; /* free.c: the hold that a release is about */
};

struct program {
    uint64_t seed;
    int nclients, nobjects, nthreads, nsteps, process;
    int64_t run_ms; /* free.c: how long the threads may take; 0: RUN_MS */
    int64_t after; /* closing.c; -1: no closing round */
    struct client clients[MAX_CLIENTS];
    struct object objects[MAX_OBJECTS];
    struct step steps[MAX_STEPS];
};

/* A program at work. */
struct run {
    struct program *program;
    const char *url;
    char prefix[64];
    bool free; /* free.c */
    struct op ops[MAX_OPS];
    atomic_int begun, finished; /* ops */
    atomic_int extra;           /* ops that callbacks started */
    atomic_int blocked_wrong;   /* blocking calls that a callback was not refused */
    uint64_t max_token[MAX_NAMES];
    const struct hooks *hooks;  /* free.c: what is logged; else NULL */
};

/* Called around each step, by the thread or callback that does it. */
struct hooks {
    void (*before)(struct op *op);
    void (*after)(struct op *op); /* code is set */
    void (*done)(struct op *op);  /* each time that its callback is called */
    void (*hold)(struct op *op);  /* the step `hold` */
    void (*fault)(struct op *op); /* the step `fault` */
    void (*freeing)(struct object *o);
    void (*cancelling)(struct object *o); /* from a callback */
    void (*lost)(struct object *o);
};

/* parse.c. A program from text, up to "end"; 0, or -1 at the end of the input. */
int parse_program(struct program *ret, void *file);
const char *step_name(int kind);

/* steps.c */
int run_open(struct run *run); /* 0, or the code of what failed, which is on stderr */
bool run_close(struct run *run); /* false: something hangs */
bool run_await_all(struct run *run, int64_t ms); /* until no operation is under way */
void run_step(struct op *op);
int64_t clock_ns(void);
void nap_us(int64_t us);
bool may_wait(const struct step *step);
const char *run_name(const struct run *run, int64_t name, char *buffer);
struct op *op_new(struct run *run, const struct step *step, int number);
void run_close_client(struct run *run, struct client *c, int *code);

/* sequence.c, free.c */
int sequence_main(const char *url, const char *classes);
int expect_main(void);
int free_main(const char *url, const char *log_path, const char *prefix);

#endif
