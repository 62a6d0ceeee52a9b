/* SPDX-License-Identifier: Apache-2.0
 *
 * session_leave.c - cancelling an acquire.
 *
 * A cancelled acquire is always followed by an unlock, on the same connection and so later in
 * order: a statement that was cancelled or failed may have got the lock before. Over the other
 * connection Pawl asks the server to end the wait (pg_cancel_backend, KILL QUERY). If the cancel
 * takes too long, Pawl closes the connection; the server ends the session at the latest at its next
 * check of the client connection. A session is not used again before both the unlock and the cancel
 * are answered: a late cancel would hit the wait of another owner.
 */
#include "session.h"

#define PATIENCE_MS 100 /* how long the caller waits for the cancel */

static void fill_undo(const sql_call *call, sql_params *p)
{
    const sql_session *s = sql_session_of(call);

    s->pool->sql.layout->say_release(s, call->about == &s->seq[1], p);
}

static void left(sql_session *s)
{
    s->leaving--;
    if (!s->leaving)
        sql_session_finish(s, PAWL_ECANCELED, NULL);
}

static bool answer_undo(sql_call *call, const sql_reply *reply)
{
    sql_session *s = sql_session_of(call);

    (void)reply;
    left(s);
    sql_session_check_idle(s);
    return true;
}

static void undo_failed(sql_call *call, int code, const char *words)
{
    sql_session *s = sql_session_of(call);

    (void)words;
    left(s);
    if (code != PAWL_EUNKNOWN && code != PAWL_ECANCELED)
        sql_link_drop(&s->link, PAWL_ECONN, "%s", words);
}

/* call->about is only used for the mode. */
void sql_session_undo(sql_session *s, int mode)
{
    static const sql_call_type type = {.fill = fill_undo, .answer = answer_undo,
        .failed = undo_failed};
    sql_call *call = sql_call_new(&s->link, &type, &s->seq[mode]);

    if (!call) {
        sql_link_drop(&s->link, PAWL_ENOMEM, "out of memory");
        return;
    }
    call->limit_ms = SQL_SESSION_WAIT_MS; /* the session's timer fires earlier */
    s->leaving++;
    sql_session_set_timer(s, PATIENCE_MS);
    sql_link_send(&s->link, call);
}

static void fill_cancel(const sql_call *call, sql_params *p)
{
    const sql_session *s = call->about;

    s->pool->sql.layout->say_cancel(s, p);
}

static bool answer_cancel(sql_call *call, const sql_reply *reply)
{
    sql_session *s = call->about;

    (void)reply;
    s->cancel = NULL;
    sql_session_check_idle(s);
    return true;
}

static void cancel_failed(sql_call *call, int code, const char *words)
{
    sql_session *s = call->about;

    (void)code;
    (void)words;
    s->cancel = NULL;
    sql_session_check_idle(s);
}

static void ask_to_cancel(sql_session *s)
{
    static const sql_call_type type = {.fill = fill_cancel, .answer = answer_cancel,
        .failed = cancel_failed};
    sql_link *link = sql_sessions_link(s->pool);

    s->cancel = sql_call_new(link, &type, s);
    if (s->cancel)
        sql_link_send(link, s->cancel);
}

void sql_session_cancel(sql_session *s)
{
    const sql_link *link = &s->link;

    if (!s->call) /* the undo was sent already */
        return;
    if (sql_call_withdraw(s->call)) { /* not sent yet */
        int code = link->state != LINK_READY && link->last_code ? link->last_code : PAWL_ECANCELED;

        sql_session_finish(s, code, code == PAWL_ECANCELED ? NULL : link->words);
        if (!sql_session_holds(s))
            sql_link_close(&s->link);
        sql_sessions_serve(s->pool);
        return;
    }
    s->call->about = NULL;
    s->call = NULL;
    sql_session_undo(s, s->op->mode);
    if (s->leaving && s->link.state == LINK_READY)
        ask_to_cancel(s);
}
