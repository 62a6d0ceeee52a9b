/* SPDX-License-Identifier: Apache-2.0
 *
 * session_order.c - acquires that wait in the client: for a session, or for their turn to queue.
 *
 * The server serves waiters in the order in which its processes began to wait, which may differ
 * from the order in which statements were sent on different connections. So of several acquires for
 * one name the next is sent only when the previous one has an answer, or is seen waiting in the
 * server's list of sessions. This check costs a statement for each acquire that comes while others
 * of the same client wait already.
 *
 * The idle session that was used last is taken first, so that unneeded sessions can be closed; a
 * free session is taken next.
 */
#include <stdlib.h>

#include "session.h"

#define CHECK_MIN_MS 1
#define CHECK_MAX_MS 32

/* op->engine[1], freed when the op is done. */
struct waiter {
    struct list link;
    pawl_op *op;
};

static sql_session *take_session(sql_sessions *pool)
{
    sql_session *idle = NULL, *free_one = NULL;

    for (int i = 0; i < pool->nsessions; i++) {
        sql_session *s = &pool->sessions[i];

        if (sql_session_idle(s) && (!idle || s->turn > idle->turn))
            idle = s;
        else if (s->link.state == LINK_CLOSED && !s->op && !free_one)
            free_one = s;
    }
    return idle ? idle : free_one;
}

/* ---- does the statement wait in the server? -------------------------------------------------- */

static void check_later(sql_session *s)
{
    pawl_env *env = s->link.env;

    s->check_ms = s->check_ms ? s->check_ms * 2 : CHECK_MIN_MS;
    if (s->check_ms > CHECK_MAX_MS)
        s->check_ms = CHECK_MAX_MS;
    env->timer_set(env, &s->timer, env->now(env) + s->check_ms * PAWL_NS_PER_MS);
}

static void fill_check(const sql_call *call, sql_params *p)
{
    const sql_session *s = call->about;

    s->pool->sql.layout->say_waits(s, p);
}

static bool answer_check(sql_call *call, const sql_reply *reply)
{
    sql_session *s = call->about;
    const char *text = reply->cell(reply, 0, 0);

    s->check = NULL;
    s->waits = text && text[0] == 't';
    if (s->waits && s->op)
        pawl_op_waits(s->op);
    if (s->waits)
        sql_sessions_serve(s->pool);
    else if (s->call)
        check_later(s);
    return true;
}

static void check_failed(sql_call *call, int code, const char *words)
{
    sql_session *s = call->about;

    (void)code;
    (void)words;
    s->check = NULL;
    if (s->call)
        check_later(s);
}

void sql_session_check_waiting(sql_session *s)
{
    static const sql_call_type type = {.fill = fill_check, .answer = answer_check,
        .failed = check_failed};
    sql_link *link;

    if (s->check || s->waits)
        return;
    if (!s->call->sent) {
        check_later(s);
        return;
    }
    link = sql_sessions_link(s->pool);
    s->check = sql_call_new(link, &type, s);
    if (s->check)
        sql_link_send(link, s->check);
    else
        check_later(s);
}

/* ---- the order of the acquires --------------------------------------------------------------- */

/* The session with a statement not yet seen in the server's queue for this name, or NULL. */
static sql_session *ahead_on_session(sql_sessions *pool, const char *name)
{
    for (int i = 0; i < pool->nsessions; i++) {
        sql_session *s = &pool->sessions[i];

        if (s->call && s->op->queue && !s->waits && !strcmp(s->name, name))
            return s;
    }
    return NULL;
}

static bool ahead_in_order(const sql_sessions *pool, const struct waiter *w)
{
    for (const struct list *l = pool->order.next; l != &w->link; l = l->next)
        if (!strcmp(list_entry(l, const struct waiter, link)->op->name, w->op->name))
            return true;
    return false;
}

/* May this acquire be sent? If only an acquire that was sent is ahead, check whether that one
 * waits. */
static bool is_next(sql_sessions *pool, const struct waiter *w)
{
    sql_session *ahead;

    if (ahead_in_order(pool, w))
        return false;
    ahead = ahead_on_session(pool, w->op->name);
    if (ahead && !ahead->timer.armed)
        sql_session_check_waiting(ahead);
    return !ahead;
}

void sql_sessions_serve(sql_sessions *pool)
{
    sql_session *s;

    if (pool->serving || pool->sql.closing)
        return;
    pool->serving = true;
    list_each_safe(struct waiter, w, &pool->order, link) {
        s = take_session(pool);
        if (!s)
            break;
        if (!is_next(pool, w))
            continue;
        list_remove(&w->link);
        sql_session_acquire(s, w->op);
    }
    pool->serving = false;
}

void sql_sessions_order_refused(sql_sessions *pool, const char *name)
{
    list_each(struct waiter, w, &pool->order, link)
        if (!strcmp(w->op->name, name))
            pawl_op_waits(w->op);
    for (int i = 0; i < pool->nsessions; i++) {
        sql_session *s = &pool->sessions[i];

        if (s->call && s->op->queue && !strcmp(s->name, name))
            pawl_op_waits(s->op);
    }
}

/* Does a session of this client have the lock, or wait in the server's queue? Then the server has
 * already said that a new acquire must wait. */
static bool is_refused(const sql_sessions *pool, const struct waiter *w)
{
    for (int i = 0; i < pool->nsessions; i++) {
        const sql_session *s = &pool->sessions[i];

        if (s->link.state != LINK_READY || strcmp(s->name, w->op->name))
            continue;
        if ((s->call && s->tried) || s->seq[PAWL_MODE_EXCLUSIVE] ||
            (w->op->mode == PAWL_MODE_EXCLUSIVE && sql_session_holds(s)))
            return true;
    }
    return false;
}

void sql_sessions_order_enter(sql_sessions *pool, pawl_op *op)
{
    struct waiter *w = malloc(sizeof *w);

    if (!w) {
        sql_done(op, PAWL_ENOMEM, "out of memory");
        return;
    }
    *w = (struct waiter){.op = op};
    op->engine[0] = NULL;
    op->engine[1] = w;
    list_append(&pool->order, &w->link);
    if (is_refused(pool, w))
        pawl_op_waits(op);
    sql_sessions_serve(pool);
}

void sql_sessions_order_leave(pawl_op *op)
{
    struct waiter *w = op->engine[1];

    list_remove(&w->link);
}

bool sql_sessions_order_pass(sql_sessions *pool, pawl_op *op)
{
    sql_session *s = take_session(pool);

    if (s)
        sql_session_acquire(s, op);
    return s;
}
