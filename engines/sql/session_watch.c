/* SPDX-License-Identifier: Apache-2.0
 *
 * session_watch.c - waits whose connection has died silently.
 *
 * A statement that waits for a lock has no time limit, so its connection alone never shows that a
 * firewall has forgotten the connection, or that the server's machine is gone: nothing is sent on
 * the connection until the lock is granted. So while statements wait, Pawl asks over the other
 * connection every WATCH_MS which sessions wait in the server.
 *
 *     seen --a check does not find the wait--> missing --the next check finds the wait--> seen
 *                                                 | not found for env->timeout_ms
 *                                                 v
 *                                    the connection is dropped, and the core asks again
 *
 * A wait that is over in the server is missing until its answer arrives, which env->timeout_ms
 * allows for, as for every other answer. If the answer was a grant, the lock becomes free when the
 * lease ends, because the server ends the idle session then. A check without an answer says
 * nothing about the waits.
 */
#include <stdlib.h>

#include "session.h"

#define WATCH_MS INT64_C(5000)

static bool waits(const sql_session *s)
{
    return s->call && s->tried;
}

static bool is_listed(const sql_session *s, const sql_reply *reply)
{
    for (size_t i = 0; i < reply->rows; i++) {
        const char *id = reply->cell(reply, i, 0);

        if (id && strtoll(id, NULL, 10) == s->backend)
            return true;
    }
    return false;
}

static void fill(const sql_call *call, sql_params *p)
{
    const sql_sessions *pool = call->about;

    p->text = pool->sql.layout->waiting;
}

/* Statements that were sent after the check are not expected in the list. */
static bool answer(sql_call *call, const sql_reply *reply)
{
    sql_sessions *pool = call->about;
    int64_t limit = pool->sql.env->timeout_ms * PAWL_NS_PER_MS;

    pool->watching = NULL;
    for (int i = 0; i < pool->nsessions; i++) {
        sql_session *s = &pool->sessions[i];

        if (!waits(s) || !s->call->sent || s->call->sent > call->sent)
            continue;
        if (is_listed(s, reply))
            s->missing = 0;
        else if (!s->missing)
            s->missing = call->sent;
        else if (call->sent - s->missing >= limit)
            sql_link_drop(&s->link, PAWL_ECONN, "the wait is over in the server, and no answer "
                                                "came");
    }
    return true;
}

static void failed(sql_call *call, int code, const char *words)
{
    sql_sessions *pool = call->about;

    (void)code;
    (void)words;
    pool->watching = NULL;
}

static void check(sql_sessions *pool)
{
    static const sql_call_type type = {.fill = fill, .answer = answer, .failed = failed};
    sql_link *link = sql_sessions_link(pool);

    if (pool->watching)
        return;
    pool->watching = sql_call_new(link, &type, pool);
    if (pool->watching)
        sql_link_send(link, pool->watching);
}

static void fired(pawl_timer *timer)
{
    sql_sessions *pool = timer->arg;
    bool any = false;

    for (int i = 0; i < pool->nsessions; i++)
        any = any || waits(&pool->sessions[i]);
    if (any) {
        kit_timer_ms(pool->sql.env, &pool->watch, WATCH_MS);
        check(pool);
    } else if (pool->watching && sql_call_withdraw(pool->watching)) {
        pool->watching = NULL; /* so that the link can be closed while the server is down */
    }
}

void sql_sessions_watch(sql_sessions *pool)
{
    if (!pool->watch.armed)
        kit_timer_ms(pool->sql.env, &pool->watch, WATCH_MS);
}

void sql_sessions_watch_init(sql_sessions *pool)
{
    pool->watch = (pawl_timer){.fire = fired, .arg = pool};
}
