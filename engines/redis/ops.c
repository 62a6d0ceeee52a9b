/* SPDX-License-Identifier: Apache-2.0
 *
 * ops.c - the ops that are one script and one answer: release, break, latch.
 *
 * op->engine[0] is the op's pending call. When an op is cancelled, the answer to its call is
 * ignored. The server may still carry the request out, so the op ends with PAWL_EUNKNOWN.
 */
#include "redis.h"

static void op_failed(redis_call *call, int code, const char *words)
{
    pawl_op_finish_with(call->about, code, words);
}

static void start(redis *r, pawl_op *op, const redis_call_type *type)
{
    redis_call *call = redis_call_about(r, redis_slot_of(r, op->name), type, op, 0);

    op->engine[0] = call;
    if (call)
        redis_call_send(call);
    else
        pawl_op_finish_with(op, PAWL_ENOMEM, "out of memory");
}

static bool has_owner(const resp_node *reply, const pawl_op *op)
{
    return redis_is_owner(resp_child(reply, 1), op->owner.client, op->owner.seq);
}

/* Element i of the reply is the server's time. */
static bool take_time(redis_call *call, const resp_node *reply, uint32_t i)
{
    const resp_node *node = resp_child(reply, i);
    int64_t now;

    if (!node || !resp_integer(node, &now))
        return false;
    kit_clock_set(&call->on->clock, now, call->sent);
    return true;
}

/* ---- release --------------------------------------------------------------------------------- */

static bool answer_release(redis_call *call, const resp_node *reply)
{
    const resp_node *word = resp_child(reply, 0);
    bool ok = word && resp_equal(word, "OK", 2);

    if (!word || (!ok && !resp_equal(word, "NOTHELD", 7)) || !has_owner(reply, call->about) ||
        !take_time(call, reply, 2))
        return false;
    pawl_op_finish(call->about, ok ? 0 : PAWL_ENOTHELD);
    return true;
}

static int write_release(redis_call *call, resp_buf *out)
{
    return call->on->redis->layout->write_release(call, out);
}

static const redis_call_type release_type = {.write = write_release, .answer = answer_release,
        .failed = op_failed};

/* ---- break ----------------------------------------------------------------------------------- */

static bool answer_break(redis_call *call, const resp_node *reply)
{
    const resp_node *word = resp_child(reply, 0);
    bool ok = word && resp_equal(word, "OK", 2);

    if (!word || (!ok && !resp_equal(word, "NOTHELD", 7)) || !take_time(call, reply, 1))
        return false;
    pawl_op_finish(call->about, ok ? 0 : PAWL_ENOTHELD);
    return true;
}

static int write_break(redis_call *call, resp_buf *out)
{
    return call->on->redis->layout->write_break(call, out);
}

static const redis_call_type break_type = {.write = write_break, .answer = answer_break,
        .failed = op_failed, .tells = true};

/* ---- latch ----------------------------------------------------------------------------------- */

static bool answer_latch(redis_call *call, const resp_node *reply)
{
    const resp_node *word = resp_child(reply, 0);
    pawl_op *op = call->about;

    if (!word || !has_owner(reply, op))
        return false;
    if (resp_equal(word, "OK", 2))
        pawl_op_finish(op, 0);
    else if (resp_equal(word, "STATE", 5))
        pawl_op_finish_with(op, PAWL_ESTATE,
                            op->kind == PAWL_OP_LATCH_SET
                                ? "it is set already, or in use as something else"
                                : "the name is in use as something else");
    else if (resp_equal(word, "INVAL", 5))
        pawl_op_finish_with(op, PAWL_EINVAL, "a latch is set to 1 or more, below 2^53");
    else
        return false;
    return true;
}

static int write_latch(redis_call *call, resp_buf *out)
{
    return call->on->redis->layout->write_latch(call, out);
}

static const redis_call_type latch_type = {.write = write_latch, .answer = answer_latch,
        .failed = op_failed, .tells = true};

/* ---- all of them ----------------------------------------------------------------------------- */

void redis_simple(redis *r, pawl_op *op)
{
    switch (op->kind) {
    case PAWL_OP_RELEASE:
        start(r, op, &release_type);
        break;
    case PAWL_OP_BREAK:
        start(r, op, &break_type);
        break;
    case PAWL_OP_LATCH_SET:
    case PAWL_OP_LATCH_DOWN:
        start(r, op, &latch_type);
        break;
    default:
        pawl_op_finish_with(op, PAWL_ENOTSUP, "this engine has no such operation");
    }
}

void redis_simple_cancel(redis *r, pawl_op *op)
{
    redis_call *call = op->engine[0];
    const redis_link *link = call->on;

    (void)r;
    if (!redis_call_withdraw(call)) {
        call->about = NULL;
        pawl_op_finish_with(op, PAWL_EUNKNOWN, "no answer in time");
    } else if (link->last_code) {
        pawl_op_finish_with(op, link->last_code, link->words);
    } else {
        pawl_op_finish(op, PAWL_ECANCELED);
    }
}
