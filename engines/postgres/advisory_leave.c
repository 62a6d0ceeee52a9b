/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory_leave.c - cancelling an acquire.
 *
 * A cancelled acquire is always followed by an unlock, on the same connection and so later in
 * order: a statement that was cancelled or failed may have got the lock before. Over the other
 * connection Pawl asks the server to end the wait (pg_cancel_backend). If the cancel takes too
 * long, Pawl closes the connection; the server ends the session at the latest at its next check of
 * the client connection. A session is not used again before both the unlock and the cancel are
 * answered: a late cancel would hit the wait of another owner.
 */
#include "advisory.h"

#define PATIENCE_MS 100 /* how long the caller waits for the cancel */

static void fill_undo(const sql_call *call, sql_params *p)
{
    const advisory_session *s = advisory_session_of(call);

    advisory_say_release(s, call->about == &s->seq[1], p);
}

static void left(advisory_session *s)
{
    s->leaving--;
    if (!s->leaving)
        advisory_session_finish(s, PAWL_ECANCELED, NULL);
}

static bool answer_undo(sql_call *call, const sql_reply *reply)
{
    advisory_session *s = advisory_session_of(call);

    (void)reply;
    left(s);
    advisory_session_check_idle(s);
    return true;
}

static void undo_failed(sql_call *call, int code, const char *words)
{
    advisory_session *s = advisory_session_of(call);

    (void)words;
    left(s);
    if (code != PAWL_EUNKNOWN && code != PAWL_ECANCELED)
        sql_link_drop(&s->link, PAWL_ECONN, "%s", words);
}

/* call->about is only used for the mode. */
void advisory_session_undo(advisory_session *s, int mode)
{
    static const sql_call_type type = {.fill = fill_undo, .answer = answer_undo,
        .failed = undo_failed};
    sql_call *call = sql_call_new(&s->link, &type, &s->seq[mode]);

    if (!call) {
        sql_link_drop(&s->link, PAWL_ENOMEM, "out of memory");
        return;
    }
    call->limit_ms = ADVISORY_WAIT_MS; /* the session's timer fires earlier */
    s->leaving++;
    advisory_session_set_timer(s, PATIENCE_MS);
    sql_link_send(&s->link, call);
}

static void fill_cancel(const sql_call *call, sql_params *p)
{
    advisory_say_cancel(call->about, p);
}

static bool answer_cancel(sql_call *call, const sql_reply *reply)
{
    advisory_session *s = call->about;

    (void)reply;
    s->cancel = NULL;
    advisory_session_check_idle(s);
    return true;
}

static void cancel_failed(sql_call *call, int code, const char *words)
{
    advisory_session *s = call->about;

    (void)code;
    (void)words;
    s->cancel = NULL;
    advisory_session_check_idle(s);
}

static void ask_to_cancel(advisory_session *s)
{
    static const sql_call_type type = {.fill = fill_cancel, .answer = answer_cancel,
        .failed = cancel_failed};
    sql_link *link = advisory_link(s->adv);

    s->cancel = sql_call_new(link, &type, s);
    if (s->cancel)
        sql_link_send(link, s->cancel);
}

void advisory_session_cancel(advisory_session *s)
{
    const sql_link *link = &s->link;

    if (!s->call) /* the undo was sent already */
        return;
    if (sql_call_withdraw(s->call)) { /* not sent yet */
        int code = link->state != LINK_READY && link->last_code ? link->last_code : PAWL_ECANCELED;

        advisory_session_finish(s, code, code == PAWL_ECANCELED ? NULL : link->words);
        if (!advisory_session_holds(s))
            sql_link_close(&s->link);
        advisory_serve(s->adv);
        return;
    }
    s->call->about = NULL;
    s->call = NULL;
    advisory_session_undo(s, s->op->mode);
    if (s->leaving && s->link.state == LINK_READY)
        ask_to_cancel(s);
}
