/* SPDX-License-Identifier: Apache-2.0
 *
 * ops.c - the ops that are one statement and one answer: release, renew, break, latch.
 *
 * op->engine[0] is the op's call until the answer. An op that is cancelled leaves its call behind,
 * and the answer is discarded. The server may still carry the request out, so the op ends with
 * PAWL_EUNKNOWN. op->engine[1] and [2] are memory of the op, freed when the op is done.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "sql.h"

void sql_done(pawl_op *op, int code, const char *words)
{
    if (code && words)
        pawl_error_set(op->err, code, "%s", words);
    free(op->engine[1]);
    free(op->engine[2]);
    pawl_op_finish(op, code);
}

static void op_failed(sql_call *call, int code, const char *words)
{
    sql_done(call->about, code, words);
}

void sql_start(sql *q, pawl_op *op, const sql_call_type *type)
{
    sql_call *call = sql_call_new(&q->link, type, op);

    op->engine[0] = call;
    if (call)
        sql_link_send(&q->link, call);
    else
        sql_done(op, PAWL_ENOMEM, "out of memory");
}

void sql_give_up(sql *q, pawl_op *op)
{
    sql_call *call = op->engine[0];

    if (!sql_call_withdraw(call)) {
        call->about = NULL;
        sql_done(op, PAWL_EUNKNOWN, "no answer in time");
    } else if (q->link.last_code) {
        sql_done(op, q->link.last_code, q->link.words);
    } else {
        sql_done(op, PAWL_ECANCELED, NULL);
    }
}

/* Split "WORD OWNER rest" into the word and the rest. False: not about the op's owner. */
static bool reply_for(const pawl_op *op, const sql_reply *reply, char word[12], const char **rest)
{
    const char *text = reply->cell(reply, 0, 0);
    uint64_t client, seq;
    int used = 0;

    if (!text || sscanf(text, "%11s %16" SCNx64 ":%" SCNx64 "%n", word, &client, &seq, &used) != 3)
        return false;
    *rest = text + used;
    return client == op->owner.client && seq == op->owner.seq;
}

static void add_name_and_owner(sql_params *p, const pawl_op *op)
{
    sql_owner(p->owner, op->owner.client, op->owner.seq);
    sql_add_bytes(p, op->name, strlen(op->name));
    sql_add_text(p, p->owner);
}

/* ---- release --------------------------------------------------------------------------------- */

static void fill_release(const sql_call *call, sql_params *p)
{
    const pawl_op *op = call->about;

    add_name_and_owner(p, op);
    sql_add_int(p, op->mode == PAWL_MODE_PERMITS ? op->permits : 0);
    sql_add_int(p, sql_lease(op->linger_ms));
    sql_add_int(p, 0);
    sql_add_int(p, sql_call_may_wait(call));
}

static bool answer_release(sql_call *call, const sql_reply *reply)
{
    pawl_op *op = call->about;
    sql *q = call->on->sql;
    const char *rest;
    long long now;
    char word[12];

    if (!reply_for(op, reply, word, &rest) || sscanf(rest, "%lld", &now) != 1)
        return false;
    kit_clock_set(&q->clock, now, call->sent);
    if (q->held && !(op->mode == PAWL_MODE_PERMITS && op->permits))
        q->held--;
    sql_done(op, strcmp(word, "OK") ? PAWL_ENOTHELD : 0, NULL);
    return true;
}

/* ---- break ----------------------------------------------------------------------------------- */

static void fill_break(const sql_call *call, sql_params *p)
{
    add_name_and_owner(p, call->about);
    sql_add_int(p, sql_call_may_wait(call));
}

static bool answer_break(sql_call *call, const sql_reply *reply)
{
    const char *text = reply->cell(reply, 0, 0);

    if (!text || (strncmp(text, "OK ", 3) && strncmp(text, "NOTHELD ", 8)))
        return false;
    sql_done(call->about, text[0] == 'O' ? 0 : PAWL_ENOTHELD, NULL);
    return true;
}

/* ---- latch ----------------------------------------------------------------------------------- */

static void fill_latch(const sql_call *call, sql_params *p)
{
    const pawl_op *op = call->about;

    add_name_and_owner(p, op);
    sql_add_int(p, op->kind == PAWL_OP_LATCH_SET ? op->count : 0);
    sql_add_int(p, sql_call_may_wait(call));
}

static bool answer_latch(sql_call *call, const sql_reply *reply)
{
    pawl_op *op = call->about;
    const char *rest;
    char word[12];

    if (!reply_for(op, reply, word, &rest))
        return false;
    if (!strcmp(word, "OK"))
        sql_done(op, 0, NULL);
    else if (!strcmp(word, "STATE"))
        sql_done(op, PAWL_ESTATE, op->kind == PAWL_OP_LATCH_SET
                                      ? "it is set already, or in use as something else"
                                      : "the name is in use as something else");
    else
        return false;
    return true;
}

/* ---- renew ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const pawl_renewal *x = *(const pawl_renewal *const *)a, *y = *(const pawl_renewal *const *)b;
    int order = strcmp(x->name, y->name);

    return order ? order : x < y ? -1 : x > y;
}

/* The items sorted by name, so that two batches don't deadlock. */
static pawl_renewal **in_order(const pawl_op *op)
{
    pawl_renewal **items = malloc(op->batch_len * sizeof *items);

    for (size_t i = 0; items && i < op->batch_len; i++)
        items[i] = &op->batch[i];
    if (items)
        qsort(items, op->batch_len, sizeof *items, by_name);
    return items;
}

/* "HEXNAME OWNER LEASE HEXNAME ... " for the whole batch; NULL: no memory. */
static char *batch_text(const pawl_op *op, pawl_renewal *const *items)
{
    size_t room = 1, used = 0;
    char owner[SQL_OWNER_MAX], *text;

    for (size_t i = 0; i < op->batch_len; i++)
        room += 2 * strlen(op->batch[i].name) + SQL_OWNER_MAX + 24;
    text = malloc(room);
    for (size_t i = 0; text && i < op->batch_len; i++) {
        const pawl_renewal *item = items[i];

        for (const char *c = item->name; *c; c++)
            used += (size_t)snprintf(text + used, room - used, "%02x", (unsigned char)*c);
        sql_owner(owner, item->owner.client, item->owner.seq);
        used += (size_t)snprintf(text + used, room - used, " %s %lld ", owner,
                                 (long long)sql_lease(item->lease_ms));
    }
    return text;
}

static void fill_renew(const sql_call *call, sql_params *p)
{
    const pawl_op *op = call->about;

    sql_add_text(p, op->engine[1]);
}

static bool answer_renew(sql_call *call, const sql_reply *reply)
{
    pawl_op *op = call->about;
    pawl_renewal **items = op->engine[2];
    const char *text = reply->cell(reply, 0, 0);
    static const int codes[] = {PAWL_ENOTHELD, 0, PAWL_ECONN}; /* ECONN: the row is locked */
    long long now;
    int used = 0;

    if (!text || sscanf(text, "%lld %n", &now, &used) != 1 ||
        strlen(text + used) != op->batch_len || strspn(text + used, "012") != op->batch_len)
        return false;
    kit_clock_set(&call->on->sql->clock, now, call->sent);
    for (size_t i = 0; i < op->batch_len; i++)
        items[i]->code = codes[text[(size_t)used + i] - '0'];
    op->lease_from = call->sent;
    if (strspn(text + used, "2") == op->batch_len)
        sql_done(op, PAWL_ECONN, "somebody's transaction has this name's row locked");
    else
        sql_done(op, 0, NULL);
    return true;
}

static void renew(sql *q, pawl_op *op)
{
    static const sql_call_type type = {.statement = SQL_RENEW, .urgent = true, .fill = fill_renew,
        .answer = answer_renew, .failed = op_failed};

    if (!op->batch_len) {
        sql_done(op, 0, NULL);
        return;
    }
    op->engine[2] = in_order(op);
    op->engine[1] = op->engine[2] ? batch_text(op, op->engine[2]) : NULL;
    if (!op->engine[1])
        sql_done(op, PAWL_ENOMEM, "out of memory");
    else
        sql_start(q, op, &type);
}

/* ---- submit ---------------------------------------------------------------------------------- */

void sql_simple(sql *q, pawl_op *op)
{
    static const sql_call_type release = {.statement = SQL_RELEASE, .urgent = true,
        .fill = fill_release, .answer = answer_release, .failed = op_failed};
    static const sql_call_type breaks = {.statement = SQL_BREAK, .fill = fill_break,
        .answer = answer_break, .failed = op_failed};
    static const sql_call_type latch = {.statement = SQL_LATCH, .fill = fill_latch,
        .answer = answer_latch, .failed = op_failed};

    switch (op->kind) {
    case PAWL_OP_RELEASE:
        sql_start(q, op, &release);
        break;
    case PAWL_OP_RENEW:
        renew(q, op);
        break;
    case PAWL_OP_BREAK:
        sql_start(q, op, &breaks);
        break;
    case PAWL_OP_LATCH_SET:
        if (op->count < 1) {
            sql_done(op, PAWL_EINVAL, "a latch is set to 1 or more");
            break;
        }
        sql_start(q, op, &latch);
        break;
    case PAWL_OP_LATCH_DOWN:
        sql_start(q, op, &latch);
        break;
    default:
        sql_done(op, PAWL_ENOTSUP, "this engine has no such operation");
    }
}
