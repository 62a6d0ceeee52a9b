/* SPDX-License-Identifier: Apache-2.0
 *
 * callbacks.c - the callbacks done and on_lost of a program. A callback records its arguments and
 * the state of the handle, and then does the action that the object's `done` or `lost` names: a
 * call that callbacks may make, or a call that must be refused in a callback.
 *
 * A callback marks its operation as done at its very end. A thread that waits for the end of all
 * operations therefore also waits for the operations that a callback has started.
 */
#include <string.h>

#include "steps.h"

/* pawl.h: "In callbacks: PAWL_EDEADLK". In a closing client, PAWL_ESTATE is right, too. */
static void call_blocking(struct object *o)
{
    struct run *run = o->run;
    struct client *c = &run->program->clients[o->client];
    int code = pawl_lock_acquire(o->p, 0, NULL);

    if (code != PAWL_EDEADLK && !(code == PAWL_ESTATE && c->closed))
        run->blocked_wrong++;
    code = pawl_lock_release(o->p, NULL);
    if (code != PAWL_EDEADLK && !(code == PAWL_ESTATE && c->closed))
        run->blocked_wrong++;
}

static void ask(struct object *o)
{
    if (pawl_lock_held(o->p) && pawl_lock_valid_ms(o->p) < 0)
        o->run->blocked_wrong++;
    if (pawl_lock_hold_count(o->p) < 0 || !pawl_lock_name(o->p))
        o->run->blocked_wrong++;
}

static void start_again(struct object *o, int thread, int number, int kind)
{
    struct step step = {.thread = thread, .kind = kind, .object = o->id};
    struct op *op = op_new(o->run, &step, number);

    if (op)
        steps_start(op, o);
}

/* `number`: the number of the operation that the callback may start. -1: none. */
static void act(struct object *o, int64_t what, int thread, int number)
{
    switch (what) {
    case ACT_RELEASE:
        if (number >= 0)
            start_again(o, thread, number, DO_rstart);
        break;
    case ACT_AGAIN: /* the owner is the callback's thread, not the owner of the first operation */
        if (number >= 0)
            start_again(o, CALLBACK_THREAD, number, DO_start);
        break;
    case ACT_CANCEL:
        if (o->run->hooks)
            o->run->hooks->cancelling(o);
        pawl_lock_cancel(o->p);
        break;
    case ACT_ASK:
        ask(o);
        break;
    case ACT_BLOCK:
        call_blocking(o);
        break;
    default:
        break;
    }
}

/* The thread that started the operation may still be inside that call, so the free is retried. A
 * blocking call on the handle may take for ever: then the handle is not freed. */
static void free_here(struct object *o)
{
    for (int i = 0; i < 10000 && !o->inside && !steps_free(o); i++)
        nap_us(100);
}

static void act_guarded(struct object *o, int64_t what, int thread, int number)
{
    if (what == ACT_NONE || o->freed)
        return;
    if (what == ACT_FREE) {
        if (!o->pinned)
            free_here(o);
        return;
    }
    if (pthread_rwlock_tryrdlock(&o->guard))
        return;
    if (!o->freed)
        act(o, what, thread, number);
    pthread_rwlock_unlock(&o->guard);
}

void steps_done(void *arg, pawl_lock *lock, int code)
{
    struct op *op = arg;
    struct object *o = op->object;
    bool first = op->number < MAX_STEPS;

    (void)lock;
    op->dones++;
    if (op->run->hooks)
        op->run->hooks->done(op);
    if (op->dones > 1)
        return;
    op->code = code;
    op->ended = clock_ns();
    if (op->run->hooks)
        op->run->hooks->after(op);
    if (!pthread_rwlock_tryrdlock(&o->guard)) {
        steps_observe(op);
        pthread_rwlock_unlock(&o->guard);
    }
    if (first)
        act_guarded(o, o->done, op->thread, MAX_STEPS + op->number);
    op->state = 2;
    op->run->finished++;
}

void steps_lost(void *arg, pawl_lock *lock, int code)
{
    struct object *o = arg;
    /* several threads may lose the object at once, in any order: each of them releases */
    int most = o->lost == ACT_RELEASE ? MAX_LOSSES : 1, loss = o->losses;

    if (code != PAWL_ELOST)
        o->run->blocked_wrong++;
    if (lock) {
        o->last_reason = pawl_lock_lost_reason(lock);
        o->last_token = (long long)pawl_lock_token(lock);
    } else if (o->type == SEM && !pthread_rwlock_tryrdlock(&o->guard)) {
        o->last_reason = o->freed ? 0 : pawl_semaphore_lost_reason(o->p);
        pthread_rwlock_unlock(&o->guard);
    }
    if (o->run->hooks)
        o->run->hooks->lost(o);
    if (o->type == LOCK)
        act_guarded(o, o->lost, UNKNOWN_THREAD,
                    loss < most ? 2 * MAX_STEPS + loss * MAX_OBJECTS + o->id : -1);
    o->losses++;
}
