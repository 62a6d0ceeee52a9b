/* SPDX-License-Identifier: Apache-2.0
 *
 * renew.c - renewal of leases, a batch at a time.
 *
 * The items of a batch are sent in parts, all at once: the items of a part are in one slot of a
 * cluster, and need the same number of keys. Grants that are alone on their key (exclusive grants)
 * need one key each, others three. The server answers "+" for an exclusive grant that shares its
 * key with readers, and such an item is sent again with three keys.
 *
 * An item's code is its state: REDIS_ASK_ONE, REDIS_ASK_THREE not sent yet; REDIS_IN_CALL in a
 * pending part; else the answer. A part that fails affects its own items only: leases on other
 * nodes are confirmed all the same. Items of a node that can't be reached now fail at once.
 */
#include <stdlib.h>

#include "redis.h"

typedef struct renewal {
    redis *redis;
    pawl_op *op;
    struct list parts;
    bool sending;              /* more parts may come: don't finish */
    size_t answered;           /* items that the server has answered */
    int code;                  /* why other items have no answer */
    char words[REDIS_WORDS];
    uint16_t slots[];          /* of the items */
} renewal;

static void finish(renewal *n)
{
    pawl_op *op = n->op;
    int code = n->answered || !op->batch_len ? 0 : n->code;

    if (code)
        pawl_error_set(op->err, code, "%s", n->words);
    free(n);
    pawl_op_finish(op, code);
}

static void part_free(redis_part *part)
{
    list_remove(&part->link);
    list_remove(&part->proof.link);
    free(part);
}

static void part_over(redis_part *part)
{
    renewal *n = part->whole;

    part_free(part);
    if (list_empty(&n->parts) && !n->sending)
        finish(n);
}

/* The part's items without an answer, and the renewed ones, fail with this code. */
static void part_failed(redis_part *part, int code, const char *words)
{
    renewal *n = part->whole;

    n->code = code;
    snprintf(n->words, sizeof n->words, "%s", words);
    for (size_t i = 0; i < part->n; i++)
        if (part->items[i]->code == REDIS_IN_CALL || part->items[i]->code == 0)
            part->items[i]->code = code;
}

static void send_parts(renewal *n, int sort);

/* ---- answers --------------------------------------------------------------------------------- */

static void count_answers(redis_part *part)
{
    for (size_t i = 0; i < part->n; i++)
        part->whole->answered += part->items[i]->code == 0 || part->items[i]->code == PAWL_ENOTHELD;
}

static void part_proven(redis_proof *proof, int64_t replicas)
{
    redis_part *part = list_entry(proof, redis_part, proof);
    renewal *n = part->whole;
    char words[REDIS_WORDS];

    if (replicas < n->redis->settings.replicas)
        part_failed(part, redis_proof_code(n->redis, replicas, words), words);
    count_answers(part);
    part_over(part);
}

static bool item_answered(pawl_renewal *item, const resp_node *node)
{
    if (!node)
        return false;
    if (resp_equal(node, "", 0))
        item->code = PAWL_ENOTHELD;
    else if (resp_equal(node, "+", 1))
        item->code = REDIS_ASK_THREE;
    else if (redis_is_owner(node, item->owner.client, item->owner.seq))
        item->code = 0;
    else
        return false;
    return true;
}

static bool answer_renew(redis_call *call, const resp_node *reply)
{
    redis_part *part = call->about;
    renewal *n = part->whole;
    const resp_node *node = reply + 1; /* the time, then an answer for each */
    int64_t now;

    if (reply->type != RESP_ARRAY || reply->count != 1 + part->n || !resp_integer(node, &now))
        return false;
    kit_clock_set(&call->on->clock, now, call->sent);
    for (size_t i = 0; i < part->n; i++) {
        node += node->span;
        if (!item_answered(part->items[i], node))
            return false;
    }
    if (!n->op->lease_from || call->sent < n->op->lease_from)
        n->op->lease_from = call->sent; /* the earliest of the parts */
    part->call = NULL;
    send_parts(n, REDIS_ASK_THREE);
    if (n->redis->settings.replicas) {
        redis_prove(call, &part->proof);
        return true;
    }
    count_answers(part);
    part_over(part);
    return true;
}

static void renew_failed(redis_call *call, int code, const char *words)
{
    redis_part *part = call->about;

    part_failed(part, code, words);
    part_over(part);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int write_renew(redis_call *call, resp_buf *out)
{
    return call->on->redis->layout->write_renew(call, out);
}

static void send_part(redis_part *part, uint16_t slot, int sort)
{
    static const redis_call_type type = {.write = write_renew, .answer = answer_renew,
        .failed = renew_failed, .proven = true};
    renewal *n = part->whole;
    redis_call *call = redis_call_about(n->redis, slot, &type, part, sort);

    part->call = call;
    if (!call) {
        part_failed(part, PAWL_ENOMEM, "out of memory");
        part_over(part);
    } else if (n->redis->settings.service == REDIS_CLUSTER && call->on->state != LINK_READY) {
        part_failed(part, PAWL_ECONN, call->on->words);
        redis_call_free(call);
        part_over(part);
    } else {
        redis_call_send(call);
    }
}

/* Send the items with this state and the slot of the first one. False: no memory. */
static bool make_part(renewal *n, size_t first, int sort)
{
    pawl_op *op = n->op;
    uint16_t slot = n->slots[first];
    redis_part *part = malloc(sizeof *part + (op->batch_len - first) * sizeof part->items[0]);

    if (!part)
        return false;
    *part = (redis_part){.whole = n, .proof.proven = part_proven};
    list_init(&part->proof.link);
    for (size_t i = first; i < op->batch_len; i++)
        if (op->batch[i].code == sort && n->slots[i] == slot) {
            op->batch[i].code = REDIS_IN_CALL;
            part->items[part->n++] = &op->batch[i];
        }
    list_append(&n->parts, &part->link);
    send_part(part, slot, sort);
    return true;
}

static void send_parts(renewal *n, int sort)
{
    n->sending = true;
    for (size_t i = 0; i < n->op->batch_len; i++)
        if (n->op->batch[i].code == sort && !make_part(n, i, sort)) {
            n->code = n->op->batch[i].code = PAWL_ENOMEM;
            snprintf(n->words, sizeof n->words, "out of memory");
        }
    n->sending = false;
}

void redis_renew(redis *r, pawl_op *op)
{
    renewal *n = malloc(sizeof *n + op->batch_len * sizeof n->slots[0]);

    if (!n) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    *n = (renewal){.redis = r, .op = op};
    list_init(&n->parts);
    op->engine[0] = n;
    for (size_t i = 0; i < op->batch_len; i++) {
        bool alone = r->layout->exclusive_alone && op->batch[i].mode == PAWL_MODE_EXCLUSIVE;

        op->batch[i].code = alone ? REDIS_ASK_ONE : REDIS_ASK_THREE;
        n->slots[i] = redis_slot_of(r, op->batch[i].name);
    }
    send_parts(n, REDIS_ASK_ONE);
    send_parts(n, REDIS_ASK_THREE);
    if (list_empty(&n->parts))
        finish(n);
}

void redis_renew_cancel(redis *r, pawl_op *op)
{
    renewal *n = op->engine[0];

    (void)r;
    while (!list_empty(&n->parts)) {
        redis_part *part = list_entry(n->parts.next, redis_part, link);
        redis_call *call = part->call;
        const redis_link *link = call ? call->on : NULL;

        if (call && redis_call_withdraw(call)) {
            part_failed(part, link->last_code ? link->last_code : PAWL_ECANCELED, link->words);
        } else {
            if (call)
                call->about = NULL;
            part_failed(part, PAWL_EUNKNOWN, "no answer in time");
        }
        part_free(part);
    }
    finish(n);
}
