/* SPDX-License-Identifier: Apache-2.0
 *
 * desk.c - the engine slots over shelves: every op but acquire (waits.c) and those that only look
 * (view.c); cancel; beginning and end. See desk.h.
 */
#include "job.h"

#include <stdlib.h>

/* ---- ops that are done at once --------------------------------------------------------------- */

static void work_release(desk_job *job)
{
    const pawl_op *op = job->op;

    job->code = lockstate_release(&job->edit, op->owner.client, op->owner.seq,
                                  op->mode == PAWL_MODE_PERMITS ? op->permits : 0, op->linger_ms);
}

static void work_renew(desk_job *job)
{
    job->code = lockstate_renew(&job->edit, job->owner.client, job->owner.seq,
                                job->renewal->lease_ms);
}

static void work_break(desk_job *job)
{
    job->code = lockstate_break(&job->edit);
}

static void work_latch(desk_job *job)
{
    lockstate_entry who = desk_entry(job->desk, job->op);

    for (int round = 0; round < 2; round++) {
        if (job->op->kind == PAWL_OP_LATCH_DOWN)
            job->code = lockstate_latch_down(&job->edit, &who);
        else
            job->code = lockstate_latch_set(&job->edit, &who, job->op->count);
        if (job->code != PAWL_ESTATE)
            break;
        lockstate_settle(&job->edit, 0, 0); /* what is in the way may be dead */
    }
}

static void work_cancel(desk_job *job)
{
    job->code = lockstate_cancel(&job->edit, job->owner.client, job->owner.seq);
}

static void submit_renew(desk *d, pawl_op *op)
{
    int code = 0;

    for (size_t i = 0; i < op->batch_len; i++) {
        pawl_renewal *r = &op->batch[i];
        desk_job job = {.desk = d, .op = op, .owner = r->owner, .work = work_renew, .renewal = r};

        desk_perform(&job, r->name);
        r->code = job.code;
        if (job.code && job.code != PAWL_ENOTHELD)
            code = job.code;
    }
    pawl_op_finish(op, code);
}

static void submit_simple(desk *d, pawl_op *op, void (*work)(desk_job *))
{
    desk_job job = {.desk = d, .op = op, .owner = op->owner, .work = work,
                    .announce = work != work_release, .thorough = work != work_release};

    desk_perform(&job, op->name);
    pawl_op_finish(op, desk_words(&job));
}

static void submit_event(desk *d, pawl_op *op)
{
    int event = d->untold;

    d->event = op;
    d->untold = PAWL_EVENT_NONE;
    if (event != PAWL_EVENT_NONE)
        desk_event(d, event);
}

void desk_event(desk *d, int event)
{
    pawl_op *op = d->event;

    if (!op) {
        d->untold = event > d->untold ? event : d->untold;
        return;
    }
    d->event = NULL;
    op->event = event;
    op->reason = event == PAWL_EVENT_LOST ? PAWL_LOST_GONE : d->broken ? PAWL_LOST_BROKEN : 0;
    d->broken = false;
    pawl_op_finish(op, 0);
}

void desk_broken(desk *d)
{
    d->broken = true;
    desk_event(d, PAWL_EVENT_VERIFY);
}

void desk_submit(desk *d, pawl_op *op)
{
    switch (op->kind) {
    case PAWL_OP_ACQUIRE:
        desk_acquire(d, op);
        break;
    case PAWL_OP_RELEASE:
        submit_simple(d, op, work_release);
        break;
    case PAWL_OP_RENEW:
        submit_renew(d, op);
        break;
    case PAWL_OP_BREAK:
        submit_simple(d, op, work_break);
        break;
    case PAWL_OP_LATCH_SET:
    case PAWL_OP_LATCH_DOWN:
        submit_simple(d, op, work_latch);
        break;
    case PAWL_OP_EVENT:
        submit_event(d, op);
        break;
    default:
        desk_view(d, op);
    }
    if (!list_empty(&d->due) || (!list_empty(&d->waits) && !d->safety.armed))
        desk_look_around(d);
}

void desk_cancel(desk *d, pawl_op *op)
{
    desk_job job = {.desk = d, .op = op, .owner = op->owner, .work = work_cancel};
    desk_wait *w = op->engine[0];

    if (op == d->event) {
        d->event = NULL;
        pawl_op_finish(op, PAWL_ECANCELED);
        return;
    }
    if (!w)
        return;
    desk_perform(&job, op->name);
    if (job.code == PAWL_ESTATE) { /* claimed for an op with the same owner: the same grant */
        desk_mark(w, DESK_TOLD);
    } else {
        desk_free_wait(w);
        if (job.code == 0 || (job.code == PAWL_ENOTHELD && op->mode != PAWL_MODE_LATCH))
            pawl_op_finish(op, PAWL_ECANCELED);
        else
            pawl_op_finish(op, job.code == PAWL_ENOTHELD ? 0 : PAWL_EUNKNOWN);
    }
    desk_look_around(d);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

int desk_init(desk *d, pawl_env *env, const desk_store *store, void *arg, uint32_t nbuckets,
              uint16_t peer, uint32_t gen)
{
    struct desk_peer none = {0};

    d->env = env;
    d->store = store;
    d->arg = arg;
    d->nbuckets = nbuckets;
    d->peer = peer;
    d->gen = gen;
    d->safety.fire = desk_safety;
    d->safety.arg = d;
    list_init(&d->waits);
    list_init(&d->due);
    d->chains = malloc(DESK_CHAINS * sizeof *d->chains);
    for (size_t i = 0; d->chains && i < DESK_CHAINS; i++)
        list_init(&d->chains[i]);
    if (!d->chains || !desk_push(&d->tells, none) || !desk_push(&d->blockers, none))
        return PAWL_ENOMEM;
    return 0;
}

void desk_end(desk *d)
{
    pawl_op *op = d->event;

    if (!d->env)
        return;
    while (!list_empty(&d->waits)) {
        desk_wait *w = list_entry(d->waits.next, desk_wait, link);
        pawl_op *waiting = w->op;

        desk_free_wait(w);
        pawl_op_finish(waiting, PAWL_ECANCELED);
    }
    d->event = NULL;
    if (op)
        pawl_op_finish(op, PAWL_ECANCELED);
    d->env->timer_clear(d->env, &d->safety);
    if (d->spare)
        free(d->spare->watched.list);
    free(d->spare);
    free(d->chains);
    free(d->tells.list);
    free(d->blockers.list);
    *d = (desk){0};
}
