/* SPDX-License-Identifier: Apache-2.0
 *
 * ambiguous.c - what sequence.c leaves out, because the result would depend on which thread is
 * faster: some steps, and some callbacks that free their handle.
 */
#include "sequence.h"
#include "steps.h"

static bool names_meet(const struct program *p, const struct object *a, const struct object *b)
{
    if (a->type == MULTI) {
        for (int i = 0; i < a->nmembers; i++)
            if (names_meet(p, &p->objects[a->members[i]], b))
                return true;
        return false;
    }
    if (b->type == MULTI)
        return names_meet(p, b, a);
    return a->name == b->name;
}

static bool order_is_known(const struct object *a, const struct object *b, bool ordered)
{
    if (a->type == MULTI || b->type == MULTI)
        return false;
    if (a->type == LOCK && b->type == LOCK && a->kind == PAWL_FAIR && b->kind == PAWL_FAIR)
        return true;
    return ordered;
}

static bool takes(const struct step *s)
{
    return s->kind == DO_acquire || s->kind == DO_start || s->kind == DO_sacquire;
}

/* Whether callbacks may try to acquire this name while a wait ends: before or after the waiter's
 * callback (or a multi-lock) releases it or, without an order, before the waiter gets the lock. */
static bool callbacks_try(const struct program *p, const struct object *o, bool ordered)
{
    bool try = false, give = false;

    for (int i = 0; i < p->nobjects; i++) {
        const struct object *x = &p->objects[i];

        if (!x->present || !names_meet(p, x, o))
            continue;
        try |= x->done == ACT_AGAIN || x->lost == ACT_AGAIN;
        give |= x->done == ACT_RELEASE || x->done == ACT_FREE || x->type == MULTI;
    }
    return try && (give || !ordered);
}

/* On a service without an order of waiters, a try may or may not overtake the waiters, too. A break
 * of a multi-lock breaks its members in turn, and a multi-lock that waits may come in between. */
bool is_ambiguous(struct run *run, const struct step *s, bool ordered)
{
    struct program *p = run->program;
    const struct object *o = &p->objects[s->object];
    bool tries = s->kind != DO_close && s->kind != DO_list && callbacks_try(p, o, ordered);
    bool in_parts = s->kind == DO_break && o->type == MULTI;

    if (!tries && !in_parts && !may_wait(s) && (ordered || !takes(s)))
        return false;
    for (int i = 0; i < MAX_OPS; i++) {
        struct op *op = &run->ops[i];

        if (op->state == 1 && op->object && may_wait(&op->step) &&
            names_meet(p, op->object, o) && (tries || (in_parts && op->object->type == MULTI) ||
             (!in_parts && !order_is_known(op->object, o, ordered))))
            return true;
    }
    return false;
}

/* A callback of this step frees a handle only if no call that may last for ever is under way on the
 * handle when the step begins, or begins in this step. Else it would depend on threads whether such
 * a call returns before the callback looks. */
void pin_handles(struct run *run, const struct op *beginning)
{
    for (int i = 0; i < run->program->nobjects; i++)
        run->program->objects[i].pinned = false;
    for (int i = 0; i < MAX_OPS; i++) {
        const struct op *op = &run->ops[i];

        if (op->object && may_last(&op->step) && !op->skipped &&
            (op == beginning || (op->state == 1 && !op->async)))
            op->object->pinned = true;
    }
}
