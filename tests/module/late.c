/* SPDX-License-Identifier: Apache-2.0
 *
 * late.c - a wrapper that delays ops of the inner engine at chosen moments:
 * "late:OPTIONS;INNER-URL".
 *
 *   renew=MS     a renewal is kept for MS before it goes on; one at a time, others are not kept
 *   lose=list    the answer of the first listing is lost
 *   lose=down    the answer of the first count-down of a latch is lost, later ones are kept
 *   claim=MS     the first grant becomes a claim of MS, to be renewed to the whole lease
 *   without=N    capabilities (enum pawl_caps) of the inner engine that this wrapper hides
 *   counts=1     CAP_COUNTS: the inner engine gets a renewal for a re-entry and a partial release
 *   grant=MS     a grant whose lease is shorter than MS is answered MS later
 *   refuse=N     the first N releases are refused with PAWL_EBACKEND; -N: every Nth release is
 *
 * Options are joined by commas. Unlike in "fault:" nothing is random, and the wrapper logs its
 * actions, so that a test can wait for them: "late: kept", "late: let go", "late: lost", and "late:
 * changed" if the name in a kept renewal had changed when the renewal went on. With grant=, each
 * release of permits is logged as "late: release N".
 */
#include <stdlib.h>

#include "engine.h"

typedef struct late {
    pawl_env *env;
    pawl_instance inner;
    int64_t renew_ms;
    uint32_t without;
    uint8_t lose;  /* the kind of op */
    bool lost;
    int64_t claim_ms;
    bool counts;
    int64_t grant_ms;
    int64_t refuse, releases;
    pawl_op *kept; /* a renewal or a count-down */
    pawl_timer timer;
    char name[PAWL_NAME_MAX + 1]; /* in the kept renewal */
    pawl_op child; /* sent to the inner engine instead of an op whose answer is lost or changed */
    pawl_op *outer;
} late;

/* ---- Renewals that are kept ------------------------------------------------------------------ */

static void let_go(pawl_timer *timer)
{
    late *l = timer->arg;
    pawl_op *op = l->kept;
    bool same = !strcmp(op->batch[0].name, l->name);

    l->kept = NULL;
    l->inner.engine->submit(l->inner.state, op);
    l->env->log(l->env, PAWL_LOG_WARNING, same ? "late: let go" : "late: changed");
}

static void keep(late *l, pawl_op *op)
{
    l->kept = op;
    l->env->log(l->env, PAWL_LOG_WARNING, "late: kept");
    if (op->kind != PAWL_OP_RENEW)
        return;
    snprintf(l->name, sizeof l->name, "%s", op->batch[0].name);
    l->timer.fire = let_go;
    l->timer.arg = l;
    l->env->timer_set(l->env, &l->timer, l->env->now(l->env) + l->renew_ms * PAWL_NS_PER_MS);
}

/* ---- Answers that are lost ------------------------------------------------------------------- */

static void lost(pawl_op *child)
{
    late *l = child->arg;

    l->lost = true;
    l->env->log(l->env, PAWL_LOG_WARNING, "late: lost");
    pawl_op_finish(l->outer, PAWL_EUNKNOWN);
}

static void send_child(late *l, pawl_op *op, void (*done)(pawl_op *))
{
    l->outer = op;
    l->child = *op;
    l->child.done = done;
    l->child.arg = l;
    l->inner.engine->submit(l->inner.state, &l->child);
}

/* ---- Grants that are claims ------------------------------------------------------------------ */

static void claimed(pawl_op *child)
{
    late *l = child->arg;
    pawl_op *op = l->outer;

    op->token = child->token;
    op->ntokens = child->ntokens;
    op->lease_from = child->lease_from;
    op->granted_ms = l->claim_ms;
    l->claim_ms = 0;
    pawl_op_finish(op, child->code);
}

/* ---- Ops that become others, or are answered late ------------------------------------------- */

typedef struct part {
    late *late;
    pawl_op op, *outer;
    pawl_renewal item;
    pawl_timer timer;
} part;

static void part_answer(part *p)
{
    pawl_op *outer = p->outer;
    int code = p->op.code ? p->op.code : p->item.code;

    outer->token = p->op.token;
    outer->ntokens = p->op.ntokens;
    outer->lease_from = p->op.lease_from;
    outer->waited = p->op.waited;
    free(p);
    pawl_op_finish(outer, code);
}

static void part_timer(pawl_timer *timer)
{
    part_answer(timer->arg);
}

static void part_done(pawl_op *op)
{
    part *p = op->arg;
    late *l = p->late;

    if (op->kind != PAWL_OP_ACQUIRE || op->code) {
        part_answer(p);
        return;
    }
    p->timer = (pawl_timer){.fire = part_timer, .arg = p};
    l->env->timer_set(l->env, &p->timer, l->env->now(l->env) + l->grant_ms * PAWL_NS_PER_MS);
}

/* Send the op itself, or a renewal in its place. */
static void send_part(late *l, pawl_op *op, bool renewal)
{
    part *p = calloc(1, sizeof *p);

    if (!p) {
        pawl_op_finish(op, PAWL_ENOMEM);
        return;
    }
    p->late = l;
    p->outer = op;
    op->engine[0] = p;
    p->op = *op;
    memset(p->op.engine, 0, sizeof p->op.engine);
    p->op.done = part_done;
    p->op.arg = p;
    p->item = (pawl_renewal){.name = op->name, .owner = op->owner, .lease_ms = op->lease_ms,
                             .mode = op->mode, .lock_kind = op->lock_kind};
    if (renewal) {
        p->op.kind = PAWL_OP_RENEW;
        p->op.batch = &p->item;
        p->op.batch_len = 1;
    }
    l->inner.engine->submit(l->inner.state, &p->op);
}

static bool counts_only(const late *l, const pawl_op *op)
{
    if (!l->counts || op->mode == PAWL_MODE_PERMITS || op->mode == PAWL_MODE_LATCH)
        return false;
    return (op->kind == PAWL_OP_ACQUIRE && op->count > 0) ||
           (op->kind == PAWL_OP_RELEASE && op->permits > 0);
}

static bool grant_is_late(const late *l, const pawl_op *op)
{
    return op->kind == PAWL_OP_ACQUIRE && l->grant_ms > op->lease_ms;
}

/* Whether this release is refused. */
static bool refused(late *l, const pawl_op *op)
{
    if (op->kind != PAWL_OP_RELEASE || !l->refuse)
        return false;
    l->releases++;
    return l->refuse > 0 ? l->releases <= l->refuse : l->releases % -l->refuse == 0;
}

/* ---- Functions of the engine ----------------------------------------------------------------- */

static int option(late *l, const char *text)
{
    if (!strncmp(text, "renew=", 6))
        l->renew_ms = atoi(text + 6);
    else if (!strncmp(text, "without=", 8))
        l->without = (uint32_t)atoi(text + 8);
    else if (!strncmp(text, "lose=list", 9))
        l->lose = PAWL_OP_LIST;
    else if (!strncmp(text, "lose=down", 9))
        l->lose = PAWL_OP_LATCH_DOWN;
    else if (!strncmp(text, "claim=", 6))
        l->claim_ms = atoi(text + 6);
    else if (!strncmp(text, "counts=", 7))
        l->counts = atoi(text + 7);
    else if (!strncmp(text, "grant=", 6))
        l->grant_ms = atoi(text + 6);
    else if (!strncmp(text, "refuse=", 7))
        l->refuse = atoi(text + 7);
    else
        return PAWL_EINVAL;
    return 0;
}

static int late_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    late *l = self;
    const char *text = url->rest;

    l->env = env;
    l->lose = PAWL_OP_EVENT; /* none */
    while (*text != ';') {
        if (option(l, text))
            return pawl_error_set(err, PAWL_EINVAL, "late: bad options, or no ';' after them");
        text += strcspn(text, ",;");
        text += *text == ',';
    }
    return env->instance_open(env, &l->inner, text + 1, err);
}

static void late_close(void *self)
{
    late *l = self;

    if (l->inner.engine)
        l->env->instance_close(&l->inner);
    l->inner = (pawl_instance){0};
}

static void late_submit(void *self, pawl_op *op)
{
    late *l = self;

    if (l->grant_ms && op->kind == PAWL_OP_RELEASE && op->mode == PAWL_MODE_PERMITS)
        l->env->log(l->env, PAWL_LOG_WARNING, "late: release %lld", (long long)op->count);
    if (refused(l, op))
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EBACKEND, "late: refused"));
    else if (counts_only(l, op) || grant_is_late(l, op))
        send_part(l, op, counts_only(l, op));
    else if (op->kind == PAWL_OP_RENEW && l->renew_ms && !l->kept)
        keep(l, op);
    else if (op->kind == PAWL_OP_ACQUIRE && l->claim_ms)
        send_child(l, op, claimed);
    else if (op->kind != PAWL_OP_EVENT && op->kind == l->lose && !l->lost)
        send_child(l, op, lost);
    else if (op->kind == PAWL_OP_LATCH_DOWN && l->lose == PAWL_OP_LATCH_DOWN)
        keep(l, op);
    else
        l->inner.engine->submit(l->inner.state, op);
}

static void late_cancel(void *self, pawl_op *op)
{
    late *l = self;

    if (l->kept == op) {
        l->kept = NULL;
        l->env->timer_clear(l->env, &l->timer);
        pawl_op_finish(op, PAWL_ECANCELED);
    } else if (counts_only(l, op) || grant_is_late(l, op)) {
        part *p = op->engine[0];

        if (!p->timer.armed) /* else the answer is only delayed */
            l->inner.engine->cancel(l->inner.state, &p->op);
    } else {
        l->inner.engine->cancel(l->inner.state, op);
    }
}

static uint32_t late_caps(void *self)
{
    late *l = self;

    if (!l->inner.engine)
        return 0;
    return (pawl_instance_caps(&l->inner) & ~l->without) | (l->counts ? PAWL_CAP_COUNTS : 0);
}

static int late_identity(void *self, char *ret, size_t size)
{
    return pawl_instance_identity(&((late *)self)->inner, ret, size);
}

static const pawl_engine late_engine = {
    .abi = PAWL_ENGINE_ABI,
    .scheme = "late",
    .state_size = sizeof(late),
    .open = late_open,
    .close = late_close,
    .submit = late_submit,
    .cancel = late_cancel,
    .caps_of = late_caps,
    .identity = late_identity,
};

PAWL_API pawl_engine_module_fn pawl_engine_module;

PAWL_API const pawl_engine *pawl_engine_module(void)
{
    return &late_engine;
}
