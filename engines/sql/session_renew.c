/* SPDX-License-Identifier: Apache-2.0
 *
 * session_renew.c - leases: one statement on each session of the batch, all at once.
 *
 * A lease that lasts long enough already is not renewed: a statement would make the lease longer,
 * because every statement restarts the server's timer. If a renewal gets no answer, the session is
 * kept until its lease must be over, because the session may still exist. If the connection is
 * lost, the owner holds nothing.
 *
 * op->engine[0] is the batch. The batch outlives a cancelled op, until the last answer.
 */
#include <stdlib.h>

#include "session.h"

typedef struct batch {
    pawl_op *op;  /* NULL: cancelled */
    size_t out;   /* statements without an answer, plus one during sending */
    int64_t lease_max_ms;
} batch;

typedef struct item {
    batch *batch;
    size_t index; /* in op->batch */
    int64_t lease_ms;
} item;

static void done(batch *b)
{
    pawl_op *op = b->op;

    if (--b->out)
        return;
    if (op)
        op->granted_ms = b->lease_max_ms;
    free(b);
    if (op)
        sql_done(op, 0, NULL);
}

static void item_done(item *i, int code)
{
    batch *b = i->batch;

    if (b->op)
        b->op->batch[i->index].code = code;
    free(i);
    done(b);
}

static void fill_renew(const sql_call *call, sql_params *p)
{
    const item *i = call->about;
    const sql_session *s = sql_session_of(call);

    s->pool->sql.layout->say_renew(s, i->lease_ms, p);
}

static bool answer_renew(sql_call *call, const sql_reply *reply)
{
    sql_session *s = sql_session_of(call);
    const char *backend = reply->cell(reply, 0, 0);
    item *i = call->about;
    bool changed;

    if (!backend || strtoll(backend, NULL, 10) != s->backend)
        return false;
    changed = s->timeout_ms != i->lease_ms;
    s->timeout_ms = i->lease_ms;
    s->promised = call->sent + i->lease_ms * PAWL_NS_PER_MS;
    if (changed)
        sql_session_send_optional(s, &s->pool->sql.layout->say_lease);
    item_done(i, 0);
    return true;
}

/* Either the server refused, and the lease is unchanged, or the connection is gone. */
static void renew_failed(sql_call *call, int code, const char *words)
{
    (void)words;
    item_done(call->about, code == PAWL_EUNKNOWN || code == PAWL_ECANCELED ? PAWL_ENOTHELD : code);
}

/* 0: the renewal was sent, or is not needed; else the item's code. */
static int renew(batch *b, sql_session *s, size_t index)
{
    static const sql_call_type type = {.fill = fill_renew, .answer = answer_renew,
        .failed = renew_failed};
    pawl_env *env = s->link.env;
    int64_t lease_ms = b->op->batch[index].lease_ms;
    int64_t left = (s->promised - env->now(env)) / PAWL_NS_PER_MS;
    int64_t most = s->pool->sql.layout->lease_max_ms;
    item *i;
    sql_call *call;

    lease_ms = lease_ms < most ? lease_ms : most;
    if (left >= lease_ms)
        return 0;
    i = calloc(1, sizeof *i);
    call = i ? sql_call_new(&s->link, &type, i) : NULL;
    if (!call) {
        free(i);
        return PAWL_ENOMEM;
    }
    *i = (item){b, index, lease_ms};
    call->limit_ms = left > call->limit_ms ? left : call->limit_ms;
    b->out++;
    sql_link_send(&s->link, call);
    return 0;
}

void sql_sessions_renew(sql_sessions *pool, pawl_op *op)
{
    batch *b = malloc(sizeof *b);

    if (!b) {
        sql_done(op, PAWL_ENOMEM, "out of memory");
        return;
    }
    *b = (batch){op, 1, pool->sql.layout->lease_max_ms};
    op->engine[0] = b;
    for (size_t i = 0; i < op->batch_len; i++)
        op->batch[i].code = 0;
    for (size_t i = 0; i < op->batch_len; i++) {
        sql_session *s = sql_session_find(pool, op->batch[i].owner.seq, op->batch[i].mode);
        int code = s ? renew(b, s, i) : PAWL_ENOTHELD;

        if (code)
            op->batch[i].code = code;
    }
    done(b);
}

void sql_sessions_renew_cancel(pawl_op *op)
{
    batch *b = op->engine[0];

    b->op = NULL;
    sql_done(op, PAWL_EUNKNOWN, "no answer in time");
}
