/* SPDX-License-Identifier: Apache-2.0
 *
 * run.h - a random program that uses pawl.h, and the types of the code that runs the program.
 *
 * A program is text (program.py makes the text and explains the format): clients, objects (locks,
 * multi-locks, semaphores, latches), and steps. A step is one call on one object by one thread. Two
 * runners share the code that does a step (steps.c):
 *
 *   sequence.c  one step at a time, first on memory: and then on the engine under test, whose
 *               results must be the same;
 *   free.c      every thread does its own steps as fast as possible, and logs each call and hold in
 *               a mapped file (holds.c), which the judge reads (judge.py).
 *
 * Nothing here looks inside the library: pawl.h is the only header of Pawl that is included.
 *
 * Threads: a program is read-only once the text has been parsed. Any thread may free an object's
 * handle, and close a client, at any time. pawl.h forbids calls on a handle while another thread
 * frees the handle. Each step therefore holds the `guard` of its object for reading, and a free
 * takes the guard for writing without waiting (if the guard is taken, the free is left out). The
 * few calls that take a client use the client's guard in the same way. A close is allowed during
 * calls on handles.
 */
#ifndef PAWL_GENERATE_RUN_H
#define PAWL_GENERATE_RUN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pawl.h"

enum { MAX_CLIENTS = 8, MAX_OBJECTS = 64, MAX_THREADS = 8, MAX_STEPS = 400, MAX_MEMBERS = 4 };
/* Operations: one for each step, one that the done callback of each step may start, and those that
 * the on_lost callback of each object may start: a release for each owner. */
enum { MAX_LOSSES = 4 };
enum { MAX_OPS = 2 * MAX_STEPS + MAX_LOSSES * MAX_OBJECTS, MAX_NAMES = 64 };
enum { HANG_MS = 20000 };  /* a call that takes longer counts as hanging */
enum { SHORT_LEASE = 3000 }; /* a step waits for the end of leases up to this */
enum { SHORT_WAIT = 2000 }; /* a wait up to this runs to its end; a longer one may stay pending */

enum type { LOCK, MULTI, SEM, LATCH };

/* The action of a callback, in addition to recording the result. */
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
    int64_t reconnects; /* free.c: how many reconnects are in the log */
    pawl_client *p;
    pthread_rwlock_t guard;
    atomic_bool closed;
    pthread_t looper;
    atomic_bool looping, stop;
    char label[64]; /* shows which holders belong to this client */
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
    atomic_bool pinned; /* sequence.c: callbacks don't free the handle */
    atomic_int losses, last_reason;
    atomic_llong last_token; /* of the lost hold */
    struct run *run;
};

/* One call, or one asynchronous operation from its start to its done callback. The number is the
 * number of the step; operations that callbacks started have numbers from MAX_STEPS on. */
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
    int64_t began, ended, seen; /* seen: when the state of the handle was read */
    struct record *record; /* free.c: the record of this operation in the log */
    struct record *leaves; /* free.c: the record of the hold that a release ends */
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

/* The state of a program while it runs. */
struct run {
    struct program *program;
    const char *url;
    char prefix[64];
    bool free; /* free.c */
    struct op ops[MAX_OPS];
    atomic_int begun, finished; /* ops */
    atomic_int extra;           /* ops that callbacks started */
    atomic_int blocked_wrong;   /* blocking calls that were not refused in a callback */
    uint64_t max_token[MAX_NAMES];
    const struct hooks *hooks;  /* free.c: the functions that write the log; else NULL */
};

/* Called around each step, by the thread or callback that does the step. */
struct hooks {
    void (*before)(struct op *op);
    void (*after)(struct op *op); /* code is set */
    void (*done)(struct op *op);  /* each time that the done callback is called */
    void (*hold)(struct op *op);  /* the step `hold` */
    void (*fault)(struct op *op); /* the step `fault` */
    void (*freeing)(struct object *o);
    void (*cancelling)(struct object *o); /* from a callback */
    void (*lost)(struct object *o);
};

/* parse.c. Read a program from text, up to the line "end". Returns 0, or -1 at the end of the
 * input. */
int parse_program(struct program *ret, void *file);
const char *step_name(int kind);

/* steps.c */
int run_open(struct run *run); /* 0, or an error code; the error text is on stderr */
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
