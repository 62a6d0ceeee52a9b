/* SPDX-License-Identifier: Apache-2.0
 *
 * closing.c - the closing round of a program with faults: once all faults are over, each client
 * must be able to acquire each of its names.
 *
 *   1. Each thread that has done its steps releases its locks. The main thread waits for the end of
 *      the last fault, cancels the pending waits, and releases the locks that handles own.
 *   2. For each client and name the main thread acquires the lock, with a limit that is longer than
 *      every delay that a fault excuses, and releases the lock.
 *   3. No client is closed before all processes have finished step 2. A grant that a client wrongly
 *      keeps, or keeps renewing, would end with the client and stay unnoticed.
 *
 * The log contains the calls of the closing round like those of other steps, and the judge's rules
 * decide. A lock that could not be released (for example because a callback's thread is the owner)
 * counts as held for the judge as well, and excuses a wait.
 */
#include "holds.h"

enum { HEAL_MS = 120000, WAIT_MS = 20000, OTHERS_MS = 60000, OPS = 1024, RELEASES = 8 };

static struct op *step_of(struct run *run, int thread, int kind, struct object *o, int64_t a)
{
    static struct op ops[OPS];
    static atomic_int used;
    int n = used++;
    struct op *op = &ops[n];

    if (n >= OPS)
        return NULL;
    op->run = run;
    op->number = MAX_STEPS;
    op->thread = thread;
    op->object = o;
    op->step = (struct step){.thread = thread, .kind = kind, .object = o->id, .a = a};
    run->begun++;
    op->state = 1;
    return op;
}

static int do_step(struct run *run, int thread, int kind, struct object *o, int64_t a)
{
    struct op *op = step_of(run, thread, kind, o, a);

    if (!op)
        return PAWL_ESTATE;
    run_step(op);
    return op->skipped ? PAWL_ESTATE : op->code;
}

static bool is_lock(const struct object *o)
{
    return o->present && (o->type == LOCK || o->type == MULTI);
}

/* How many times the calling thread, or the handle, holds the object. */
static int holds(struct object *o)
{
    int n = 0;

    if (pthread_rwlock_tryrdlock(&o->guard))
        return 0;
    if (!o->freed && o->p)
        n = pawl_lock_hold_count(o->p);
    pthread_rwlock_unlock(&o->guard);
    return n;
}

/* Multi-locks come last in a program. Locks that were acquired through a multi-lock are therefore
 * released through the multi-lock. */
static void release_all(struct run *run, int thread)
{
    for (int i = run->program->nobjects - 1; i >= 0; i--) {
        struct object *o = &run->program->objects[i];

        for (int k = 0; k < RELEASES && is_lock(o) && holds(o) > 0; k++)
            if (do_step(run, thread, DO_release, o, 0))
                break;
    }
}

void closing_thread(struct run *run, int thread)
{
    release_all(run, thread);
}

/* The first lock of this client on this name whose handle has not been freed. */
static struct object *lock_on(struct program *p, int client, int64_t name)
{
    for (int i = 0; i < p->nobjects; i++) {
        struct object *o = &p->objects[i];

        if (o->present && o->type == LOCK && o->client == client && o->name == name && !o->freed)
            return o;
    }
    return NULL;
}

static void one_client(struct run *run, int client)
{
    struct program *p = run->program;

    for (int name = 0; name < MAX_NAMES && !p->clients[client].closed; name++) {
        struct object *o = lock_on(p, client, name);

        if (o && !do_step(run, p->nthreads, DO_acquire, o, WAIT_MS))
            do_step(run, p->nthreads, DO_release, o, 0);
    }
}

static void await_flag(atomic_llong *flag, int64_t ms)
{
    int64_t until = clock_ns() + ms * 1000000;

    while (!*flag && clock_ns() < until)
        nap_us(1000);
}

void closing_round(struct run *run, struct log *log)
{
    struct program *p = run->program;

    await_flag(&log->healed, HEAL_MS);
    for (int i = 0; i < p->nobjects; i++)
        if (is_lock(&p->objects[i]))
            do_step(run, p->nthreads, DO_cancel, &p->objects[i], 0);
    release_all(run, p->nthreads);
    for (int i = 0; i < p->nclients; i++)
        if (p->clients[i].present)
            one_client(run, i);
    log->through = 1;
    await_flag(&log->over, OTHERS_MS);
}
