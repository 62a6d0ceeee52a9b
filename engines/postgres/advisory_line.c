/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory_line.c - acquires that wait in the client: for a session, or for their turn to queue.
 *
 * The server serves waiters in the order in which its processes began to wait, which may differ
 * from the order in which statements were sent on different connections. So of several acquires for
 * one name the next is sent only when the previous one has an answer, or is seen waiting in
 * pg_locks. This check costs a statement for each acquire that comes while others of the same
 * client wait already.
 *
 * The idle session that was used last is taken first, so that unneeded sessions can be closed; a
 * free session is taken next.
 */
#include <stdlib.h>

#include "advisory.h"

#define CHECK_MIN_MS 1
#define CHECK_MAX_MS 32

/* op->engine[1], freed when the op is done. */
struct place {
    struct list link;
    pawl_op *op;
    advisory_key key;
};

static advisory_session *take_session(advisory *adv)
{
    advisory_session *idle = NULL, *free_one = NULL;

    for (int i = 0; i < adv->nsessions; i++) {
        advisory_session *s = &adv->sessions[i];

        if (advisory_session_idle(s) && (!idle || s->turn > idle->turn))
            idle = s;
        else if (s->link.state == LINK_CLOSED && !s->op && !free_one)
            free_one = s;
    }
    return idle ? idle : free_one;
}

/* ---- does the statement wait in the server? -------------------------------------------------- */

static void check_later(advisory_session *s)
{
    pawl_env *env = s->link.env;

    s->check_ms = s->check_ms ? s->check_ms * 2 : CHECK_MIN_MS;
    if (s->check_ms > CHECK_MAX_MS)
        s->check_ms = CHECK_MAX_MS;
    env->timer_set(env, &s->timer, env->now(env) + s->check_ms * PAWL_NS_PER_MS);
}

static void fill_check(const sql_call *call, sql_params *p)
{
    advisory_say_waits(call->about, p);
}

static bool answer_check(sql_call *call, const sql_reply *reply)
{
    advisory_session *s = call->about;
    const char *text = reply->cell(reply, 0, 0);

    s->check = NULL;
    s->waits = text && text[0] == 't';
    if (s->waits && s->op)
        pawl_op_waits(s->op);
    if (s->waits)
        advisory_serve(s->adv);
    else if (s->call)
        check_later(s);
    return true;
}

static void check_failed(sql_call *call, int code, const char *words)
{
    advisory_session *s = call->about;

    (void)code;
    (void)words;
    s->check = NULL;
    if (s->call)
        check_later(s);
}

void advisory_session_check_waiting(advisory_session *s)
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
    link = advisory_link(s->adv);
    s->check = sql_call_new(link, &type, s);
    if (s->check)
        sql_link_send(link, s->check);
    else
        check_later(s);
}

/* ---- the order of the acquires --------------------------------------------------------------- */

/* The session with a statement not yet seen in the server's queue for this key, or NULL. */
static advisory_session *ahead_on_session(advisory *adv, advisory_key key)
{
    for (int i = 0; i < adv->nsessions; i++) {
        advisory_session *s = &adv->sessions[i];

        if (s->call && s->op->queue && !s->waits && advisory_key_equal(s->key, key))
            return s;
    }
    return NULL;
}

static bool ahead_in_line(const advisory *adv, const struct place *p)
{
    for (const struct list *l = adv->line.next; l != &p->link; l = l->next)
        if (advisory_key_equal(list_entry(l, const struct place, link)->key, p->key))
            return true;
    return false;
}

/* May this acquire be sent? If only an acquire that was sent is ahead, check whether that one
 * waits. */
static bool is_next(advisory *adv, const struct place *p)
{
    advisory_session *ahead;

    if (ahead_in_line(adv, p))
        return false;
    ahead = ahead_on_session(adv, p->key);
    if (ahead && !ahead->timer.armed)
        advisory_session_check_waiting(ahead);
    return !ahead;
}

void advisory_serve(advisory *adv)
{
    advisory_session *s;

    if (adv->serving || adv->sql.closing)
        return;
    adv->serving = true;
    list_each_safe(struct place, p, &adv->line, link) {
        s = take_session(adv);
        if (!s)
            break;
        if (!is_next(adv, p))
            continue;
        list_remove(&p->link);
        advisory_session_acquire(s, p->op);
    }
    adv->serving = false;
}

void advisory_line_refused(advisory *adv, advisory_key key)
{
    list_each(struct place, p, &adv->line, link)
        if (advisory_key_equal(p->key, key))
            pawl_op_waits(p->op);
    for (int i = 0; i < adv->nsessions; i++) {
        advisory_session *s = &adv->sessions[i];

        if (s->call && s->op->queue && advisory_key_equal(s->key, key))
            pawl_op_waits(s->op);
    }
}

/* Does a session of this client have the lock, or wait in the server's queue? Then the server has
 * already said that a new acquire must wait. */
static bool is_refused(const advisory *adv, const struct place *p)
{
    for (int i = 0; i < adv->nsessions; i++) {
        const advisory_session *s = &adv->sessions[i];

        if (s->link.state != LINK_READY || !advisory_key_equal(s->key, p->key))
            continue;
        if ((s->call && s->tried) || s->seq[PAWL_MODE_EXCLUSIVE] ||
            (p->op->mode == PAWL_MODE_EXCLUSIVE && advisory_session_holds(s)))
            return true;
    }
    return false;
}

void advisory_line_enter(advisory *adv, pawl_op *op)
{
    struct place *p = malloc(sizeof *p);

    if (!p) {
        sql_done(op, PAWL_ENOMEM, "out of memory");
        return;
    }
    *p = (struct place){.op = op, .key = advisory_key_of(op->name)};
    op->engine[0] = NULL;
    op->engine[1] = p;
    list_append(&adv->line, &p->link);
    if (is_refused(adv, p))
        pawl_op_waits(op);
    advisory_serve(adv);
}

void advisory_line_leave(pawl_op *op)
{
    struct place *p = op->engine[1];

    list_remove(&p->link);
}

bool advisory_line_pass(advisory *adv, pawl_op *op)
{
    advisory_session *s = take_session(adv);

    if (s)
        advisory_session_acquire(s, op);
    return s;
}
