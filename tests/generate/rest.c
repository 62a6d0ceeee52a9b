/* SPDX-License-Identifier: Apache-2.0
 *
 * rest.c - tells sequence.c when nothing moves any more.
 *
 * A barrier is a hand-over of a separate lock to each client, from a client of this file. memory:
 * tells the client of the grant after everything that memory: had to tell the client before, and
 * callbacks run in their order, one at a time. When the barrier's callback runs, the client has
 * therefore heard of all earlier grants and losses, and has reported them, whichever of its threads
 * drives its loop. (An acquire of a free lock would be no barrier: the thread that asks gets such a
 * lock without a turn of the loop.) Effects of these reports (another client's grant, a step of a
 * callback) need another pass.
 */
#include "sequence.h"

#include <stdio.h>

struct count {
    int holders, waiters;
};

static pawl_client *own;
static pawl_lock *gates[MAX_CLIENTS];  /* of `own` */
static pawl_lock *probes[MAX_CLIENTS]; /* of the program's clients, with the same names */
static atomic_int told[MAX_CLIENTS];

static int count_holders(void *arg, const pawl_info *info)
{
    struct count *count = arg;

    if (info->role == PAWL_ROLE_SUMMARY)
        *count = (struct count){(int)info->holders, (int)info->waiters};
    return 0;
}

static void probe_told(void *arg, pawl_lock *lock, int code)
{
    (void)lock;
    (void)code;
    ++*(atomic_int *)arg;
}

/* After the loop of a client has ended, none of its callbacks runs until the close. */
static bool await_told(struct client *c, atomic_int *of, int code)
{
    int64_t until = clock_ns() + HANG_MS * 1000000LL;

    while (!code && !*of && !c->stop) {
        if (clock_ns() > until)
            return false;
        nap_us(20);
    }
    *of = 0;
    return true;
}

/* Start to wait for a lock that `own` holds, and give the lock to the waiter. */
static bool hand_over(struct client *c, int i, const char *name)
{
    int64_t until = clock_ns() + HANG_MS * 1000000LL;
    struct count count = {0};
    int code;

    told[i] = 0;
    if (pawl_lock_acquire(gates[i], HANG_MS, NULL))
        return false;
    code = pawl_lock_acquire_start(probes[i], PAWL_FOREVER, probe_told, &told[i]);
    while (!code && !told[i] && !count.waiters && clock_ns() < until)
        if (pawl_inspect(own, name, count_holders, &count, NULL))
            return false;
    return !pawl_lock_release(gates[i], NULL) && await_told(c, &told[i], code);
}

static bool through(struct run *run, int i)
{
    struct client *c = &run->program->clients[i];
    pawl_lock_options options = {.size = sizeof options, .owner = PAWL_OWNER_HANDLE};
    char name[96];

    snprintf(name, sizeof name, "probe%d-%.60s", i, run->prefix);
    if (!own && pawl_open(&own, "memory:", NULL, NULL))
        return false;
    if (!gates[i] && pawl_lock_new(&gates[i], own, name, &options, NULL))
        return false;
    if (!probes[i] && pawl_lock_new(&probes[i], c->p, name, &options, NULL))
        return true; /* the client is being closed */
    return hand_over(c, i, name) &&
           await_told(c, &told[i], pawl_lock_release_start(probes[i], probe_told, &told[i]));
}

bool barrier_pass(struct run *run)
{
    struct program *p = run->program;
    bool ok = true;

    for (int i = 0; i < p->nclients; i++) {
        struct client *c = &p->clients[i];

        if (!c->present || pthread_rwlock_tryrdlock(&c->guard))
            continue; /* a step closes it */
        if (!c->closed && !c->stop)
            ok &= through(run, i);
        pthread_rwlock_unlock(&c->guard);
    }
    return ok;
}

void barrier_end(void)
{
    for (int i = 0; i < MAX_CLIENTS; i++) {
        pawl_lock_free(probes[i]);
        pawl_lock_free(gates[i]);
        probes[i] = gates[i] = NULL;
    }
    pawl_close(own);
    own = NULL;
}

int waiting_at_clients(struct run *run)
{
    struct program *p = run->program;
    int n = 0;

    for (int i = 0; i < p->nclients; i++) {
        struct client *c = &p->clients[i];
        pawl_stats stats = {.size = sizeof stats};

        if (!c->present || pthread_rwlock_tryrdlock(&c->guard))
            continue; /* a step closes it */
        if (!c->closed && !pawl_client_stats(c->p, &stats))
            n += (int)stats.waiting;
        pthread_rwlock_unlock(&c->guard);
    }
    return n;
}

int waits_under_way(struct run *run)
{
    int n = 0;

    for (int i = 0; i < MAX_OPS; i++)
        n += run->ops[i].state == 1 && run->ops[i].step.kind != DO_wait;
    return n;
}

static struct count count_of(struct run *run, int64_t number)
{
    struct program *p = run->program;
    struct count count = {0};
    char name[96];

    for (int i = 0; i < p->nclients; i++) {
        struct client *c = &p->clients[i];
        bool asked = false;

        if (!c->present || pthread_rwlock_tryrdlock(&c->guard))
            continue;
        if (!c->closed)
            asked = !pawl_inspect(c->p, run_name(run, number, name), count_holders, &count, NULL);
        pthread_rwlock_unlock(&c->guard);
        if (asked)
            break;
    }
    return count;
}

int holders_of(struct run *run, int64_t number)
{
    return count_of(run, number).holders;
}

/* A client with a cohort may keep its waiters to itself. */
static int calls_for(struct run *run, int64_t name)
{
    int n = 0;

    for (int i = 0; i < MAX_OPS; i++) {
        const struct op *op = &run->ops[i];

        n += op->state == 1 && op->object && op->object->type == LOCK && op->object->name == name &&
             may_wait(&op->step) && !run->program->clients[op->object->client].cohort;
    }
    return n;
}

void await_waiters(struct run *run, int64_t name, int64_t until)
{
    while (count_of(run, name).waiters < calls_for(run, name) && clock_ns() < until)
        nap_us(1000);
}
