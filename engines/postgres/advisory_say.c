/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory_say.c - the statements.
 *
 * Each statement begins with a comment about the lock and the client. The server shows a session's
 * latest statement to its own user and to users with the right to see all sessions; there inspect
 * and list find the name, the lease and the client. So the statements are not prepared. All users
 * see application_name: "pawl TOKEN PID@HOST PROGRAM LABEL", cut to the server's 63 bytes.
 *
 * SINCE in the comment (session_client_info.c) is 0 in an acquire: the time when the session became
 * idle.
 *
 * An acquire is one statement, or two: a try, and if the server refuses the try, a statement that
 * waits. The refusal proves that another owner has the lock; without a refusal, an acquire that
 * reaches its time limit would end with "no answer". CASE runs the parts of a statement in order,
 * and stops at the first part that decides: the lease, one try, the wait, then the parts after the
 * grant (token, time, a message to the WAL). A session-level lock stays if the statement fails
 * after the grant.
 */
#include <ctype.h>
#include <inttypes.h>

#include "advisory.h"
#include "postgres.h"

/* " PID@HOST PROGRAM LABEL" for application_name, in plain text. */
static void write_plain(sql_sessions *pool)
{
    char whole[24 + 4 * SQL_FACT_MAX];

    snprintf(whole, sizeof whole, " %lld@%s %s %s", pool->pid, pool->host, pool->program,
             pool->label);
    snprintf(pool->plain, sizeof pool->plain, "%.63s", whole);
    for (char *c = pool->plain; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
}

#define GRANT_TEXT 1000
#define MS_OF(time) "(extract(epoch FROM " time ")" PG_OP("*") "1000)::bigint"
#define MS_SINCE(time) MS_OF("(pg_catalog.clock_timestamp()" PG_OP("-") time ")")

/* The result of a grant: "WAITED BACKEND TOKEN NOW TOOK", and two values that are not read. */
static void add_grant(char *text, size_t room, int waited, uint64_t base)
{
    char token[120];

    snprintf(token, sizeof token, "(%" PRIu64 PG_OP("+")
             "pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint)", base);
    snprintf(text, room, "pg_catalog.concat_ws(' ', '%d', pg_catalog.pg_backend_pid(), %s, "
             MS_OF("pg_catalog.clock_timestamp()") ", "
             MS_SINCE("pg_catalog.statement_timestamp()") ", "
             "pg_catalog.pg_logical_emit_message(true, 'pawl', ''), "
             "pg_catalog.set_config('application_name', "
             "pg_catalog.concat('pawl ', %s, $1::pg_catalog.text), false))", waited, token, token);
}

static void say_acquire(const sql_session *s, int64_t lease_ms, sql_params *p)
{
    const char *shared = s->op->mode == PAWL_MODE_SHARED ? "_shared" : "";
    char key[64], grant[GRANT_TEXT];
    size_t used = sql_session_comment(s, lease_ms, 0);

    advisory_key_literals(advisory_key_of(s->name), key);
    add_grant(grant, sizeof grant, 0, s->base);
    used += (size_t)snprintf(s->pool->text + used, SQL_SESSION_TEXT - used,
                             "SELECT CASE WHEN pg_catalog.set_config('idle_session_timeout', "
                             "'%lld', false) IS NULL THEN NULL WHEN "
                             "pg_catalog.pg_try_advisory_lock%s(%s) THEN %s ",
                             (long long)lease_ms, shared, key, grant);
    add_grant(grant, sizeof grant, 1, s->base);
    if (s->tried || sql_session_holds(s)) /* a holder's lock call is granted at once, its try
                                                  may fail */
        used += (size_t)snprintf(s->pool->text + used, SQL_SESSION_TEXT - used,
                                 "WHEN pg_catalog.pg_advisory_lock%s(%s) IS NULL THEN NULL "
                                 "ELSE %s ", shared, key, grant);
    snprintf(s->pool->text + used, SQL_SESSION_TEXT - used, "END");
    p->text = s->pool->text;
    write_plain(s->pool);
    sql_add_text(p, s->pool->plain);
}

static void say_release(const sql_session *s, int mode, sql_params *p)
{
    char key[64];
    size_t used = sql_session_comment(s, s->timeout_ms, s->since);

    advisory_key_literals(advisory_key_of(s->name), key);
    snprintf(s->pool->text + used, SQL_SESSION_TEXT - used,
             "SELECT pg_catalog.pg_advisory_unlock%s(%s), pg_catalog.pg_backend_pid()",
             mode == PAWL_MODE_SHARED ? "_shared" : "", key);
    p->text = s->pool->text;
}

static void say_renew(const sql_session *s, int64_t lease_ms, sql_params *p)
{
    size_t used = sql_session_comment(s, lease_ms, s->since);

    snprintf(s->pool->text + used, SQL_SESSION_TEXT - used,
             "SELECT pg_catalog.pg_backend_pid(), "
             "pg_catalog.set_config('idle_session_timeout', '%lld', false)",
             (long long)lease_ms);
    p->text = s->pool->text;
}

static void say_waits(const sql_session *s, sql_params *p)
{
    snprintf(s->pool->text, SQL_SESSION_TEXT, "SELECT EXISTS (SELECT FROM "
             "pg_catalog.pg_locks WHERE pid" PG_EQ "%lld AND locktype" PG_EQ "'advisory' AND "
             "NOT granted)", (long long)s->backend);
    p->text = s->pool->text;
}

static void say_cancel(const sql_session *s, sql_params *p)
{
    snprintf(s->pool->text, SQL_SESSION_TEXT, "SELECT pg_catalog.pg_cancel_backend(%lld::int)",
             (long long)s->backend);
    p->text = s->pool->text;
}

#define OF_THIS_DATABASE                                                                           \
    "locktype" PG_EQ "'advisory' AND database" PG_EQ "(SELECT oid FROM pg_catalog.pg_database "    \
    "WHERE datname" PG_EQ "pg_catalog.current_database())"

static void add_key(char condition[240], const advisory_key *key)
{
    snprintf(condition, 240, " AND classid::bigint" PG_EQ "%u AND objid::bigint" PG_EQ "%u "
             "AND objsubid" PG_EQ "%d", (unsigned)key->high, (unsigned)key->low, key->pair ? 2 : 1);
}

/* The statement waits until each holder's session has ended: then the lock is free, or the next
 * waiter has it. */
void advisory_say_break(sql_sessions *pool, advisory_key key, sql_params *p)
{
    char condition[240];

    add_key(condition, &key);
    snprintf(pool->text, SQL_SESSION_TEXT,
             "SELECT pg_catalog.count(pg_catalog.pg_terminate_backend(pid, %lld::bigint)) FROM "
             "(SELECT DISTINCT pid FROM pg_catalog.pg_locks WHERE granted AND " OF_THIS_DATABASE
             "%s) AS h", (long long)(pool->sql.env->timeout_ms / 2 + 1), condition);
    p->text = pool->text;
}

/* Leave out sessions of the other layout, which hold an advisory lock for their client (@_key). A
 * waiting session also has the application_name 'pawl', until the grant, and is kept. */
void advisory_say_inspect(sql_sessions *pool, const advisory_key *key, sql_params *p)
{
    char condition[240] = " AND (NOT granted OR application_name IS NULL OR application_name" PG_NE
                          "'pawl')";

    if (key)
        add_key(condition, key);
    snprintf(pool->text, SQL_SESSION_TEXT,
             "SELECT classid::bigint, objid::bigint, objsubid, granted, mode, l.pid, "
             "application_name, pg_catalog.left(query, 1024), "
             "pg_catalog.host(client_addr), state" PG_EQ "'idle', "
             MS_SINCE("state_change") ", " MS_OF("pg_catalog.clock_timestamp()") ", "
             MS_SINCE("waitstart") " FROM pg_catalog.pg_locks l LEFT JOIN "
             "pg_catalog.pg_stat_activity a ON a.pid" PG_EQ "l.pid WHERE " OF_THIS_DATABASE
             "%s ORDER BY 1, 2, 3, NOT granted, waitstart, l.pid, mode LIMIT " SQL_ROWS_TEXT,
             condition);
    p->text = pool->text;
}

const sql_layout advisory_layout = {
    .driver = &advisory_driver,
    .name = "advisory",
    .kinds = "layout=advisory has neither semaphores nor latches",
    .caps = SQL_SESSION_CAPS | PAWL_CAP_SHARED,
    .lease_max_ms = INT64_C(2147483647),
    .say_acquire = say_acquire,
    .say_release = say_release,
    .say_renew = say_renew,
    .say_waits = say_waits,
    .waiting = "SELECT pid FROM pg_catalog.pg_locks WHERE locktype" PG_EQ "'advisory' AND NOT "
               "granted",
    .say_cancel = say_cancel,
    .inspection = &advisory_inspection,
    .breaks = &advisory_breaks,
};
