/* SPDX-License-Identifier: Apache-2.0
 *
 * trace.c - the engine "trace:INNER-URL": logs every op of the inner engine.
 *
 * Every op is copied into a child op for the inner engine, and the answer of the child is copied
 * back. The log gets two lines per op at PAWL_LOG_INFO: one when the op is submitted, and one with
 * the duration when the op is done.
 *
 * Invariant: an outer op and its child begin and end together. Strings, batch and row function of
 * the outer op stay valid until op->done, so the child may point to them.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "engine.h"

typedef struct trace {
    pawl_env *env;
    pawl_instance inner;
} trace;

typedef struct child {
    pawl_op op;
    pawl_op *outer;
    trace *trace;
    int64_t began;
} child;

static const char *kind_name(uint8_t kind)
{
    static const char *const names[] = {
        [PAWL_OP_ACQUIRE] = "acquire",     [PAWL_OP_RELEASE] = "release",
        [PAWL_OP_RENEW] = "renew",         [PAWL_OP_BREAK] = "break",
        [PAWL_OP_INSPECT] = "inspect",     [PAWL_OP_LIST] = "list",
        [PAWL_OP_COUNT] = "count",         [PAWL_OP_LATCH_SET] = "latch-set",
        [PAWL_OP_LATCH_DOWN] = "latch-down", [PAWL_OP_EVENT] = "event",
        [PAWL_OP_EXAMINE] = "examine",
    };

    return kind < sizeof names / sizeof *names && names[kind] ? names[kind] : "?";
}

static const char *mode_name(uint8_t mode)
{
    static const char *const names[] = {"exclusive", "shared", "permits", "latch"};

    return mode < sizeof names / sizeof *names ? names[mode] : "?";
}

static const char *event_name(int event)
{
    switch (event) {
    case PAWL_EVENT_VERIFY: return "verify";
    case PAWL_EVENT_RECONNECT: return "reconnect";
    case PAWL_EVENT_FAILOVER: return "failover";
    case PAWL_EVENT_LOST: return "lost";
    default: return "none";
    }
}

/* A short text that identifies an owner in a log: 16 bits of the client id, and the number. */
static void owner_text(char *text, size_t size, const pawl_owner *owner)
{
    snprintf(text, size, "%04x#%" PRIu64, (unsigned)(owner->client & 0xffff), owner->seq);
}

/* The name and other arguments of the op; "" if the kind has none. */
static const char *subject(const pawl_op *op, char *text, size_t size)
{
    text[0] = 0;
    if (op->kind == PAWL_OP_RENEW)
        snprintf(text, size, "%zu leases", op->batch_len);
    else if (op->name)
        snprintf(text, size, "\"%s\"", op->name);
    return text;
}

static void log_down(trace *t, const pawl_op *op)
{
    char what[PAWL_NAME_MAX + 3], owner[32];

    subject(op, what, sizeof what);
    owner_text(owner, sizeof owner, &op->owner);
    if (op->kind == PAWL_OP_ACQUIRE)
        t->env->log(t->env, PAWL_LOG_INFO,
                    "> acquire %s %s %s lease %" PRId64 " ms, permits %" PRIu32 ", tokens %" PRIu32
                    "%s",
                    what, owner, mode_name(op->mode), op->lease_ms, op->permits, op->tokens,
                    op->queue ? ", queue" : "");
    else
        t->env->log(t->env, PAWL_LOG_INFO, "> %s %s %s", kind_name(op->kind), what, owner);
}

static void log_up(trace *t, const pawl_op *op, int64_t began)
{
    char what[PAWL_NAME_MAX + 3], owner[32], more[80] = "";

    subject(op, what, sizeof what);
    owner_text(owner, sizeof owner, &op->owner);
    if (op->code)
        ; /* a failed op has no answer */
    else if (op->kind == PAWL_OP_ACQUIRE)
        snprintf(more, sizeof more, ", token %" PRIu64 " +%" PRIu32 ", claim %" PRId64 " ms",
                 op->token, op->ntokens, op->granted_ms);
    else if (op->kind == PAWL_OP_COUNT)
        snprintf(more, sizeof more, ", value %" PRId64, op->value);
    else if (op->kind == PAWL_OP_EVENT)
        snprintf(more, sizeof more, ", %s", event_name(op->event));
    t->env->log(t->env, PAWL_LOG_INFO, "< %s %s %s %s after %" PRId64 " us%s", kind_name(op->kind),
                what, owner, op->code ? pawl_errname(op->code) : "ok",
                (t->env->now(t->env) - began) / 1000, more);
}

static void done(pawl_op *op)
{
    child *c = op->arg;
    pawl_op *outer = c->outer;

    log_up(c->trace, op, c->began);
    outer->token = op->token;
    outer->ntokens = op->ntokens;
    outer->lease_from = op->lease_from;
    outer->granted_ms = op->granted_ms;
    outer->waited = op->waited;
    outer->value = op->value;
    outer->event = op->event;
    outer->reason = op->reason;
    outer->by = op->by;
    outer->by_seq = op->by_seq;
    int code = op->code;
    free(c);
    pawl_op_finish(outer, code);
}

static void trace_submit(void *self, pawl_op *op)
{
    trace *t = self;
    child *c = calloc(1, sizeof *c);

    if (!c) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "trace: out of memory"));
        return;
    }
    c->op = *op; /* the request; words, batch and rows go to the outer op's places directly */
    memset(c->op.engine, 0, sizeof c->op.engine);
    c->op.done = done;
    c->op.arg = c;
    c->op.outer = op;
    c->outer = op;
    c->trace = t;
    c->began = t->env->now(t->env);
    op->engine[0] = c;
    log_down(t, op);
    t->inner.engine->submit(t->inner.state, &c->op);
}

static void trace_cancel(void *self, pawl_op *op)
{
    trace *t = self;
    child *c = op->engine[0];
    char what[PAWL_NAME_MAX + 3], owner[32];

    owner_text(owner, sizeof owner, &op->owner);
    t->env->log(t->env, PAWL_LOG_INFO, "> cancel %s %s %s", kind_name(op->kind),
                subject(op, what, sizeof what), owner);
    t->inner.engine->cancel(t->inner.state, &c->op);
}

static int trace_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    trace *t = self;

    t->env = env;
    if (!*url->rest)
        return pawl_error_set(err, PAWL_EINVAL,
                              "trace: which engine? Write its URL behind it, as in trace:local:");
    return env->instance_open(env, &t->inner, url->rest, err);
}

/* The inner engine completes its EVENT op, and the child's done function completes the outer EVENT
 * op. Also called after a failed open, with an inner engine that failed to open, or none. */
static void trace_close(void *self)
{
    trace *t = self;

    if (t->inner.engine)
        t->env->instance_close(&t->inner);
    memset(&t->inner, 0, sizeof t->inner);
}

static uint32_t trace_caps(void *self)
{
    trace *t = self;

    return t->inner.engine ? pawl_instance_caps(&t->inner) : 0;
}

static int trace_identity(void *self, char *ret, size_t size)
{
    return pawl_instance_identity(&((trace *)self)->inner, ret, size);
}

static bool trace_unfinished(void *self)
{
    return pawl_instance_unfinished(&((trace *)self)->inner);
}

const pawl_engine pawl_engine_trace = {
    .abi = PAWL_ENGINE_ABI,
    .scheme = "trace",
    .state_size = sizeof(trace),
    .open = trace_open,
    .identity = trace_identity,
    .close = trace_close,
    .submit = trace_submit,
    .cancel = trace_cancel,
    .caps_of = trace_caps,
    .unfinished = trace_unfinished,
};
