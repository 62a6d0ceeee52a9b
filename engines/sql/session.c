/* SPDX-License-Identifier: Apache-2.0
 *
 * session.c - one connection: acquire, release, loss. session_leave.c: cancel.
 *
 *     free --acquire--> asking --granted--> held --release--> idle --acquire, 10 s--> asking, free
 *                         | cancel, or refused by the server     ^
 *                         v                                      |
 *                       leaving: the unlock has no answer yet ---+
 *
 * A lost connection, at any time, frees the session; its holders are notified at once.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "session.h"

#define CLOSE_MS 2000     /* from a cancel without an answer to closing the connection */
#define IDLE_MS 10000     /* how long an unused connection stays open */
#define TIDY_MS INT64_C(60000)
#define NO_TRIES 1000     /* link.c must not retry the call */

void sql_session_set_timer(sql_session *s, int64_t ms)
{
    kit_timer_ms(s->link.env, &s->timer, ms);
}

bool sql_session_idle(const sql_session *s)
{
    return s->link.state == LINK_READY && !s->op && !sql_session_holds(s) && !s->leaving &&
           !s->releasing && !s->cancel && !s->check;
}

/* The server ends an idle session after timeout_ms. Pawl closes the connection earlier, so that the
 * server logs no error. */
void sql_session_check_idle(sql_session *s)
{
    int64_t ms = s->timeout_ms / 2 < IDLE_MS ? s->timeout_ms / 2 : IDLE_MS;

    if (!sql_session_idle(s))
        return;
    s->turn = ++s->pool->turns;
    sql_session_set_timer(s, ms);
    sql_sessions_serve(s->pool);
}

void sql_session_finish(sql_session *s, int code, const char *words)
{
    pawl_op *op = s->op;

    s->op = NULL;
    s->call = NULL;
    if (op)
        sql_done(op, code, words);
    sql_sessions_serve(s->pool);
}

/* ---- acquire --------------------------------------------------------------------------------- */

/* A second grant on the same session must not shorten the first one's lease. */
static int64_t lease_for(const sql_session *s, int64_t lease_ms)
{
    int64_t left = (s->promised - s->link.env->now(s->link.env)) / PAWL_NS_PER_MS + 1;
    int64_t most = s->pool->sql.layout->lease_max_ms;

    if (sql_session_holds(s) && left > lease_ms)
        lease_ms = left;
    return lease_ms < most ? lease_ms : most;
}

static void fill_acquire(const sql_call *call, sql_params *p)
{
    sql_session *s = call->about;

    s->timeout_ms = lease_for(s, s->op->lease_ms);
    s->pool->sql.layout->say_acquire(s, s->timeout_ms, p);
}

/* The grant was `took` ms after the statement began, by the server's clock, which may run a little
 * faster than the client's clock; in any case before now. */
static int64_t granted_at(const sql_session *s, const sql_call *call, int64_t took)
{
    int64_t now = s->link.env->now(s->link.env);

    took -= took / 1000 + 2;
    if (took > (now - call->sent) / PAWL_NS_PER_MS)
        return now;
    return call->sent + (took > 0 ? took : 0) * PAWL_NS_PER_MS;
}

static bool granted(sql_session *s, const sql_call *call, const char *text)
{
    pawl_op *op = s->op;
    long long waited, backend, token, now, took;

    if (sscanf(text, "%lld %lld %lld %lld %lld", &waited, &backend, &token, &now, &took) != 5 ||
        token < 1)
        return false;
    if (backend != s->backend) {
        sql_session_finish(s, PAWL_EINVAL,
                                "a pooler gives each transaction another session: no lock of a "
                                "session works there");
        sql_link_drop(&s->link, PAWL_ECONN, "not the session that it was");
        return true;
    }
    s->seq[op->mode] = op->owner.seq;
    s->token[op->mode] = op->token = (uint64_t)token;
    s->since = now;
    op->ntokens = 1;
    op->waited = waited;
    op->lease_from = granted_at(s, call, took);
    op->granted_ms = s->timeout_ms < op->lease_ms ? s->timeout_ms : 0;
    s->promised = op->lease_from + s->timeout_ms * PAWL_NS_PER_MS;
    sql_session_finish(s, 0, NULL);
    return true;
}

static void ask(sql_session *s, int64_t limit_ms);
static void acquire_failed(sql_call *call, int code, const char *words);

static bool answer_acquire(sql_call *call, const sql_reply *reply)
{
    sql_session *s = call->about;
    const char *text = reply->cell(reply, 0, 0);

    if (text && !strcmp(text, "ENDED")) {
        acquire_failed(call, PAWL_ECONN, "an administrator has ended the wait");
        return true;
    }
    if (text)
        return granted(s, call, text);
    if (s->tried || sql_session_holds(s))
        return false;
    if (s->op->queue) {
        s->tried = true;
        sql_sessions_order_refused(s->pool, s->name);
        s->missing = 0;
        sql_sessions_link(s->pool); /* ready for a cancel */
        sql_sessions_watch(s->pool);
        ask(s, SQL_SESSION_WAIT_MS);
        return true;
    }
    sql_session_finish(s, PAWL_EBUSY, NULL);
    sql_session_check_idle(s);
    return true;
}

/* Without an answer: the session is gone, and the lock, if it was granted, ends with the session.
 * The undo comes first: a session with an undo is not given to the next acquire, because the undo
 * would unlock the next lock. */
static void acquire_failed(sql_call *call, int code, const char *words)
{
    sql_session *s = call->about;
    pawl_op *op = s->op;

    s->op = NULL;
    s->call = NULL;
    if (s->link.state == LINK_READY)
        sql_session_undo(s, op->mode);
    sql_done(op, code == PAWL_EUNKNOWN ? PAWL_ECONN : code, words);
    sql_sessions_serve(s->pool);
}

static void ask(sql_session *s, int64_t limit_ms)
{
    static const sql_call_type type = {.fill = fill_acquire, .answer = answer_acquire,
        .failed = acquire_failed};

    s->call = sql_call_new(&s->link, &type, s);
    if (!s->call) {
        sql_session_finish(s, PAWL_ENOMEM, "out of memory");
        return;
    }
    s->call->tries = NO_TRIES;
    s->call->limit_ms = limit_ms;
    sql_link_open(&s->link);
    sql_link_send(&s->link, s->call);
}

void sql_session_acquire(sql_session *s, pawl_op *op)
{
    s->link.env->timer_clear(s->link.env, &s->timer);
    op->engine[0] = s;
    s->op = op;
    snprintf(s->name, sizeof s->name, "%s", op->name);
    s->check_ms = 0;
    s->waits = s->tried = false;
    ask(s, sql_session_holds(s) ? SQL_SESSION_WAIT_MS : s->link.env->timeout_ms);
}

/* ---- release --------------------------------------------------------------------------------- */

static void fill_release(const sql_call *call, sql_params *p)
{
    const pawl_op *op = call->about;
    const sql_session *s = sql_session_of(call);

    s->pool->sql.layout->say_release(s, op->mode, p);
}

static void fill_optional(const sql_call *call, sql_params *p)
{
    sql_say *const *say = call->about;

    (*say)(sql_session_of(call), p);
}

static bool answer_optional(sql_call *call, const sql_reply *reply)
{
    (void)call;
    (void)reply;
    return true;
}

static void optional_failed(sql_call *call, int code, const char *words)
{
    (void)call;
    (void)code;
    (void)words;
}

void sql_session_send_optional(sql_session *s, sql_say *const *say)
{
    static const sql_call_type type = {.optional = true, .fill = fill_optional,
        .answer = answer_optional, .failed = optional_failed};
    sql_call *call = *say ? sql_call_new(&s->link, &type, (void *)(uintptr_t)say) : NULL;

    if (!call)
        return;
    call->tries = NO_TRIES;
    if (sql_session_holds(s)) /* a late answer must not cost the lock */
        call->limit_ms = SQL_SESSION_WAIT_MS;
    sql_link_send(&s->link, call);
}

/* Delete old rows, if the layout has a table, at times when a session is not needed. The next
 * client, or the next time, removes what is left. */
static void tidy(sql_session *s)
{
    int64_t now = s->link.env->now(s->link.env);

    if (!sql_session_idle(s) ||
        (s->pool->tidied && now - s->pool->tidied < TIDY_MS * PAWL_NS_PER_MS))
        return;
    s->pool->tidied = now;
    sql_session_send_optional(s, &s->pool->sql.layout->say_tidy);
}

static void release_over(sql_session *s, const pawl_op *op)
{
    s->releasing--;
    s->seq[op->mode] = 0; /* not a loss, because the owner has released */
}

static bool answer_release(sql_call *call, const sql_reply *reply)
{
    sql_session *s = sql_session_of(call);
    pawl_op *op = call->about;
    const char *text = reply->cell(reply, 0, 0);

    if (!text)
        return false;
    release_over(s, op);
    sql_done(op, text[0] == 't' || call->tries ? 0 : PAWL_ENOTHELD, NULL);
    tidy(s);
    sql_session_check_idle(s);
    return true;
}

static void release_failed(sql_call *call, int code, const char *words)
{
    sql_session *s = sql_session_of(call);
    pawl_op *op = call->about;

    release_over(s, op);
    if (code == PAWL_EUNKNOWN)
        sql_sessions_unsure(s->pool, op->owner.seq, s->promised);
    sql_done(op, code, words);
    if (s->link.state == LINK_READY) /* refused: closing the connection ends the grant as well */
        sql_link_drop(&s->link, PAWL_ECONN, "%s", words);
}

void sql_session_release(sql_session *s, pawl_op *op)
{
    static const sql_call_type type = {.fill = fill_release, .answer = answer_release,
        .failed = release_failed};
    sql_call *call = sql_call_new(&s->link, &type, op);

    op->engine[0] = call;
    if (!call) {
        sql_done(op, PAWL_ENOMEM, "out of memory");
        return;
    }
    s->releasing++;
    sql_link_send(&s->link, call);
}

/* Close the connection, which ends the grant as well. */
void sql_session_release_cancel(pawl_op *op)
{
    sql_call *call = op->engine[0];
    sql_session *s = sql_session_of(call);

    call->about = NULL;
    release_over(s, op);
    sql_sessions_unsure(s->pool, op->owner.seq, s->promised);
    sql_done(op, PAWL_EUNKNOWN, "no answer in time");
    sql_link_drop(&s->link, PAWL_ECONN, "no answer to a release");
}

/* ---- timers, and events of the link ---------------------------------------------------------- */

static void timer_fired(pawl_timer *timer)
{
    sql_session *s = timer->arg;

    if (s->call)
        sql_session_check_waiting(s);
    if (!s->leaving && !sql_session_idle(s))
        return;
    if (s->leaving && s->op) {
        sql_session_set_timer(s, CLOSE_MS);
        sql_session_finish(s, PAWL_ECANCELED, NULL);
        return;
    }
    sql_link_close(&s->link);
    s->link.on_drop(&s->link, 0);
}

static void forget(sql_call **call)
{
    if (*call && !sql_call_withdraw(*call))
        (*call)->about = NULL;
    *call = NULL;
}

/* An acquire that was not sent yet stays with the session, and is sent on the next connection. */
static void dropped(sql_link *link, int refused)
{
    sql_session *s = (sql_session *)(void *)link;
    bool held = sql_session_holds(s);

    (void)refused;
    s->seq[0] = s->seq[1] = 0;
    link->env->timer_clear(link->env, &s->timer);
    forget(&s->cancel);
    forget(&s->check);
    if (!s->op)
        sql_link_close(link);
    if (held)
        pawl_events_report(&s->pool->sql.events, PAWL_EVENT_VERIFY, 0);
    if (!s->op)
        sql_sessions_serve(s->pool);
}

void sql_session_init(sql_session *s, sql_sessions *pool)
{
    s->pool = pool;
    sql_link_init(&s->link, &pool->sql, pool->sql.driver->greeting);
    s->link.on_drop = dropped;
    s->timer = (pawl_timer){.fire = timer_fired, .arg = s};
}
