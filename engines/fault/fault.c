/* SPDX-License-Identifier: Apache-2.0
 *
 * fault.c - the engine "fault:OPTIONS;INNER-URL": a bad network in front of any engine.
 *
 *     drop=P    the request is lost on its way in: never carried out, PAWL_EUNKNOWN
 *     lose=P    the answer is lost on its way out: carried out, PAWL_EUNKNOWN all the same
 *     delay=MS  each request and each answer takes up to MS
 *     repeat=P  the request arrives a second time, later; the second answer is discarded
 *     refuse=P  PAWL_ECONN at once
 *     evict=P   after such an op the EVENT op reports PAWL_EVENT_RECONNECT
 *     seed=N, only=acquire+release+..., for=MS (no faults after MS)
 *
 * Each op becomes a `request` that owns copies of all data, because a repeat outlives the op. The
 * engine causes only faults that a network can cause. An EVENT is no message, and is passed on
 * unchanged. A BREAK must not arrive twice, and is not repeated; neither are INSPECT, LIST and
 * EXAMINE, because their rows and findings can't be taken back.
 *
 * Stages of a request, and their transitions (under the client's mutex, so one at a time):
 *
 *     TRAVELS   on the way in; the timer sends the request. cancel: never sent, PAWL_ECANCELED.
 *     DROPPED   lost; the timer answers PAWL_EUNKNOWN, or cancel does.
 *     INSIDE    the inner engine has the request, until `answered`. cancel is passed on.
 *     RETURNS   the answer is on the way out; the timer delivers it. cancel changes nothing.
 *     PARKED    a repeat whose twin is INSIDE (waiting in a queue); sent when the twin is answered.
 *     HELD      an EVENT that came while no EVENT op was submitted; the next one gets it.
 *
 * `outer` is the op that waits for the answer; a repeat has none. Invariant: the inner engine never
 * has two acquires of one owner, because a server would treat both as one place in the queue. So a
 * repeat waits for the original, and an op that finds a repeat of itself inside takes the repeat
 * over.
 *
 * The same seed, ops and clock give the same faults: every op draws equally many random numbers.
 */
#include "fault.h"

static void answered(pawl_op *inner);
static void arrive_inside(pawl_timer *timer);

/* ---- The way out ----------------------------------------------------------------------------- */

/* End the request with an error text of this engine. */
static void fail(fault_request *r, int code, const char *why)
{
    pawl_op *outer = r->outer;

    fault_request_free(r);
    if (outer)
        pawl_op_finish(outer, pawl_error_set(outer->err, code, "fault: %s", why));
}

static void deliver(fault_request *r)
{
    pawl_op *outer = r->outer;
    int code = r->inner.code;

    if (r->lose) {
        fail(r, PAWL_EUNKNOWN, "the answer was lost");
        return;
    }
    outer->token = r->inner.token;
    outer->ntokens = r->inner.ntokens;
    outer->lease_from = r->inner.lease_from;
    outer->granted_ms = r->inner.granted_ms;
    outer->waited = r->inner.waited;
    outer->value = r->inner.value;
    outer->event = r->inner.event;
    outer->reason = r->inner.reason;
    outer->by = r->inner.by;
    outer->by_seq = r->inner.by_seq;
    for (size_t i = 0; r->inner.batch && i < r->inner.batch_len; i++) {
        outer->batch[i].code = r->batch[i].code;
        outer->batch[i].reason = r->batch[i].reason;
    }
    if (code && outer->err)
        *outer->err = r->err;
    fault_request_free(r);
    pawl_op_finish(outer, code);
}

static void arrive_outside(pawl_timer *timer)
{
    deliver(timer->arg);
}

static void arrive_nowhere(pawl_timer *timer)
{
    fail(timer->arg, PAWL_EUNKNOWN, "the request was lost");
}

/* ---- The way in ------------------------------------------------------------------------------ */

static void give_up_inside(fault_request *r)
{
    if (r->canceled)
        return;
    r->canceled = true;
    r->fault->inner.engine->cancel(r->fault->inner.state, &r->inner);
}

/* Cancel a repeat at its deadline. A service with a queue of its own would forget the waiter by
 * then; the inner engine relies on the submitter's cancel, and a repeat has no submitter. */
static void repeat_overdue(pawl_timer *timer)
{
    give_up_inside(timer->arg);
}

/* Make an independent copy of the request, which arrives later. No memory: no repeat. */
static void repeat(fault_request *r)
{
    fault_request *copy = fault_request_new(r->fault, &r->inner, answered);

    r->again = false;
    if (!copy)
        return;
    copy->later = r->later;
    fault_request_later(copy, copy->later, arrive_inside);
}

/* Let the repeat that is inside already replace `r`; to the inner engine both are the same. */
static void take_over(fault_request *r, fault_request *inside)
{
    r->fault->env->timer_clear(r->fault->env, &inside->timer);
    inside->outer = r->outer;
    inside->outer->engine[0] = inside;
    inside->inner.outer = inside->outer;
    inside->lose = r->lose;
    inside->way_out = r->way_out;
    fault_request_free(r);
}

static void send(fault_request *r)
{
    fault *f = r->fault;
    fault_request *twin = r->outer ? fault_request_twin(r, INSIDE) : NULL;

    if (r->again)
        repeat(r);
    if (twin && !twin->outer && !twin->canceled && twin->inner.queue == r->inner.queue) {
        take_over(r, twin);
        return;
    }
    if (twin && !twin->outer)
        give_up_inside(twin);
    r->stage = INSIDE;
    if (!r->outer && r->inner.deadline > 0 && r->inner.deadline < PAWL_NEVER)
        fault_request_later(r, r->inner.deadline - f->env->now(f->env), repeat_overdue);
    f->inner.engine->submit(f->inner.state, &r->inner);
}

static void arrive_inside(pawl_timer *timer)
{
    fault_request *r = timer->arg;

    if (!r->outer && fault_request_twin(r, INSIDE))
        r->stage = PARKED;
    else
        send(r);
}

/* The inner engine has answered. The inner engine must not be called from here. */
static void answered(pawl_op *inner)
{
    fault_request *r = inner->arg, *parked = r->fault ? fault_request_twin(r, PARKED) : NULL;

    if (parked) {
        parked->stage = TRAVELS;
        fault_request_later(parked, parked->later, arrive_inside);
    }
    if (!r->outer) {
        if (r->fault && inner->kind == PAWL_OP_EVENT && inner->code != PAWL_ECANCELED)
            r->stage = HELD;
        else
            fault_request_free(r);
        return;
    }
    r->stage = RETURNS;
    if (r->way_out)
        fault_request_later(r, r->way_out, arrive_outside);
    else
        deliver(r);
}

/* ---- The engine's functions ------------------------------------------------------------------ */

/* The inner engine always has one EVENT op, also between two outer EVENT ops after an eviction. */
static void submit_event(fault *f, pawl_op *op)
{
    fault_request *r = f->requests;

    if (f->evicted) {
        f->evicted = false;
        op->event = PAWL_EVENT_RECONNECT;
        pawl_op_finish(op, 0);
        return;
    }
    while (r && (r->inner.kind != PAWL_OP_EVENT || r->outer))
        r = r->next;
    bool known = r != NULL;
    if (!known && !(r = fault_request_new(f, op, answered))) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "fault: out of memory"));
        return;
    }
    r->outer = op;
    op->engine[0] = r;
    if (!known)
        send(r);
    else if (r->stage == HELD)
        deliver(r);
}

static void evict(fault *f)
{
    for (fault_request *r = f->requests; r; r = r->next)
        if (r->inner.kind == PAWL_OP_EVENT && r->outer && !r->canceled) {
            pawl_op *outer = r->outer;
            r->outer = NULL;
            outer->event = PAWL_EVENT_RECONNECT;
            pawl_op_finish(outer, 0);
            return;
        }
    f->evicted = true;
}

static bool may_repeat(const pawl_op *op)
{
    return op->kind != PAWL_OP_BREAK && op->kind != PAWL_OP_INSPECT &&
           op->kind != PAWL_OP_LIST && op->kind != PAWL_OP_EXAMINE;
}

static void fault_submit(void *self, pawl_op *op)
{
    fault *f = self;
    const fault_options *o = &f->options;

    if (op->kind == PAWL_OP_EVENT) {
        submit_event(f, op);
        return;
    }
    bool hit = (o->only >> op->kind & 1) && f->env->now(f->env) < f->until;
    bool refuse = fault_chance(f, o->refuse) && hit, drop = fault_chance(f, o->drop) && hit;
    bool lose = fault_chance(f, o->lose) && hit, evicts = fault_chance(f, o->evict) && hit;
    bool again = fault_chance(f, o->repeat) && hit && may_repeat(op);
    int64_t in = fault_delay(f), out = fault_delay(f), later = fault_delay(f) + PAWL_NS_PER_MS;

    if (evicts)
        evict(f);
    if (refuse) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ECONN, "fault: refused"));
        return;
    }
    fault_request *r = fault_request_new(f, op, answered);
    if (!r) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "fault: out of memory"));
        return;
    }
    op->engine[0] = r;
    r->outer = r->inner.outer = op;
    r->lose = lose;
    r->again = again;
    r->later = later;
    r->way_out = hit ? out : 0;
    if (drop) {
        r->stage = DROPPED;
        fault_request_later(r, in + out + PAWL_NS_PER_MS, arrive_nowhere);
    } else if (hit && in) {
        fault_request_later(r, in, arrive_inside);
    } else {
        send(r);
    }
}

static void fault_cancel(void *self, pawl_op *op)
{
    fault_request *r = op->engine[0];

    (void)self;
    switch (r->stage) {
    case TRAVELS:
        fail(r, PAWL_ECANCELED, "cancelled before it was sent");
        break;
    case DROPPED:
        fail(r, PAWL_EUNKNOWN, "the request was lost");
        break;
    case INSIDE:
        give_up_inside(r);
        break;
    default:
        break; /* the answer is on its way */
    }
}

static int fault_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    fault *f = self;
    const char *inner_url = fault_options_read(&f->options, url->rest, err);

    f->env = env;
    if (!inner_url)
        return PAWL_EINVAL;
    f->until = f->options.for_ms ? env->now(env) + f->options.for_ms * PAWL_NS_PER_MS : PAWL_NEVER;
    f->random = f->options.seeded ? f->options.seed : env->random(env);
    return env->instance_open(env, &f->inner, inner_url, err);
}

/* Only repeats and the EVENT op can be left. Requests that are not INSIDE end; requests that are
 * INSIDE are cancelled. A request that the inner engine does not complete at once is detached, and
 * frees itself when it is answered, at the latest when the inner engine is closed. */
static void fault_close(void *self)
{
    fault *f = self;
    fault_request *r;

    if (!f->inner.engine)
        return;
    for (fault_request *next = f->requests; (r = next);) {
        next = r->next;
        if (r->stage != INSIDE)
            fail(r, PAWL_ECANCELED, "closed");
    }
    for (;;) {
        for (r = f->requests; r && (r->canceled || r->inner.kind == PAWL_OP_EVENT);)
            r = r->next;
        if (!r)
            break;
        r->way_out = 0;
        give_up_inside(r);
    }
    while ((r = f->requests)) {
        f->env->timer_clear(f->env, &r->timer);
        f->requests = r->next;
        r->fault = NULL;
        r->way_out = 0;
    }
    f->env->instance_close(&f->inner);
    memset(&f->inner, 0, sizeof f->inner);
}

static uint32_t fault_caps(void *self)
{
    fault *f = self;

    return f->inner.engine ? pawl_instance_caps(&f->inner) : 0;
}

static int fault_identity(void *self, char *ret, size_t size)
{
    return pawl_instance_identity(&((fault *)self)->inner, ret, size);
}

static bool fault_unfinished(void *self)
{
    return pawl_instance_unfinished(&((fault *)self)->inner);
}

const pawl_engine pawl_engine_fault = {
    .abi = PAWL_ENGINE_ABI,
    .scheme = "fault",
    .state_size = sizeof(fault),
    .open = fault_open,
    .identity = fault_identity,
    .close = fault_close,
    .submit = fault_submit,
    .cancel = fault_cancel,
    .caps_of = fault_caps,
    .unfinished = fault_unfinished,
};
