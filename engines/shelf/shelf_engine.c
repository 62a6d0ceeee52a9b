/* SPDX-License-Identifier: Apache-2.0
 *
 * shelf_engine.c - the engine functions over shelves: cancel, init, end, and every op but acquire
 * (waiters.c) and the ops that only read (inspect.c). See shelf_engine.h.
 */
#include "edit.h"

#include <stdlib.h>

/* ---- ops that are done at once --------------------------------------------------------------- */

static void work_release(shelf_edit *edit)
{
    const pawl_op *op = edit->op;

    edit->code = lockstate_release(&edit->state, op->owner.client, op->owner.seq,
                                   op->mode == PAWL_MODE_PERMITS ? op->permits : 0, op->linger_ms);
}

static void work_renew(shelf_edit *edit)
{
    edit->code = lockstate_renew(&edit->state, edit->owner.client, edit->owner.seq,
                                 edit->renewal->lease_ms);
}

static void work_break(shelf_edit *edit)
{
    edit->code = lockstate_break(&edit->state);
}

static void work_latch(shelf_edit *edit)
{
    lockstate_entry who = shelf_entry(edit->engine, edit->op);

    for (int round = 0; round < 2; round++) {
        if (edit->op->kind == PAWL_OP_LATCH_DOWN)
            edit->code = lockstate_latch_down(&edit->state, &who);
        else
            edit->code = lockstate_latch_set(&edit->state, &who, edit->op->count);
        if (edit->code != PAWL_ESTATE)
            break;
        lockstate_expire(&edit->state, 0, 0); /* a blocking holder or waiter may be dead */
    }
}

static void work_cancel(shelf_edit *edit)
{
    edit->code = lockstate_cancel(&edit->state, edit->owner.client, edit->owner.seq);
}

static void submit_renew(shelf_engine *se, pawl_op *op)
{
    int code = 0;

    for (size_t i = 0; i < op->batch_len; i++) {
        pawl_renewal *r = &op->batch[i];
        shelf_edit edit = {.engine = se, .op = op, .owner = r->owner, .work =
            work_renew, .renewal = r};

        shelf_edit_run(&edit, r->name);
        r->code = edit.code;
        if (edit.code && edit.code != PAWL_ENOTHELD)
            code = edit.code;
    }
    pawl_op_finish(op, code);
}

static void submit_simple(shelf_engine *se, pawl_op *op, void (*work)(shelf_edit *))
{
    shelf_edit edit = {.engine = se, .op = op, .owner = op->owner, .work = work,
                       .announce = work != work_release, .thorough = work != work_release};

    shelf_edit_run(&edit, op->name);
    pawl_op_finish(op, shelf_edit_error(&edit));
}

void shelf_engine_submit(shelf_engine *se, pawl_op *op)
{
    switch (op->kind) {
    case PAWL_OP_ACQUIRE:
        shelf_acquire(se, op);
        break;
    case PAWL_OP_RELEASE:
        submit_simple(se, op, work_release);
        break;
    case PAWL_OP_RENEW:
        submit_renew(se, op);
        break;
    case PAWL_OP_BREAK:
        submit_simple(se, op, work_break);
        break;
    case PAWL_OP_LATCH_SET:
    case PAWL_OP_LATCH_DOWN:
        submit_simple(se, op, work_latch);
        break;
    case PAWL_OP_EVENT:
        pawl_events_submit(&se->events, op);
        break;
    default:
        shelf_inspect(se, op);
    }
    if (!list_empty(&se->due) || (!list_empty(&se->waiters) && !se->safety.armed))
        shelf_check_due(se);
}

void shelf_engine_cancel(shelf_engine *se, pawl_op *op)
{
    shelf_edit edit = {.engine = se, .op = op, .owner = op->owner, .work = work_cancel};
    shelf_waiter *w = op->engine[0];

    if (op == se->events.op) {
        pawl_events_end(&se->events);
        return;
    }
    if (!w)
        return;
    shelf_edit_run(&edit, op->name);
    if (edit.code == PAWL_ESTATE) { /* claimed for an op with the same owner: the same grant */
        shelf_waiter_mark(w, SHELF_TOLD);
    } else {
        shelf_waiter_free(w);
        if (edit.code == 0 || (edit.code == PAWL_ENOTHELD && op->mode != PAWL_MODE_LATCH))
            pawl_op_finish(op, PAWL_ECANCELED);
        else
            pawl_op_finish(op, edit.code == PAWL_ENOTHELD ? 0 : PAWL_EUNKNOWN);
    }
    shelf_check_due(se);
}

/* ---- beginning and end ----------------------------------------------------------------------- */

int shelf_engine_init(shelf_engine *se, pawl_env *env, const shelf_store *store, void *arg,
                      uint32_t nbuckets, uint16_t peer, uint32_t gen)
{
    struct shelf_peer none = {0};

    se->env = env;
    se->store = store;
    se->arg = arg;
    se->nbuckets = nbuckets;
    se->peer = peer;
    se->gen = gen;
    se->safety.fire = shelf_safety_fired;
    se->safety.arg = se;
    list_init(&se->waiters);
    list_init(&se->due);
    se->chains = malloc(SHELF_CHAINS * sizeof *se->chains);
    for (size_t i = 0; se->chains && i < SHELF_CHAINS; i++)
        list_init(&se->chains[i]);
    if (!se->chains || !shelf_peers_push(&se->tells, none) ||
        !shelf_peers_push(&se->blockers, none))
        return PAWL_ENOMEM;
    return 0;
}

void shelf_engine_end(shelf_engine *se)
{
    if (!se->env)
        return;
    while (!list_empty(&se->waiters)) {
        shelf_waiter *w = list_entry(se->waiters.next, shelf_waiter, link);
        pawl_op *waiting = w->op;

        shelf_waiter_free(w);
        pawl_op_finish(waiting, PAWL_ECANCELED);
    }
    pawl_events_end(&se->events);
    se->env->timer_clear(se->env, &se->safety);
    if (se->spare)
        free(se->spare->watched.list);
    free(se->spare);
    free(se->chains);
    free(se->tells.list);
    free(se->blockers.list);
    *se = (shelf_engine){0};
}
