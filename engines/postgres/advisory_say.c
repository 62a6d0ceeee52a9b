/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory_say.c - the statements.
 *
 * Each statement begins with a comment about the lock and the client. The server shows a session's
 * latest statement to its own user and to users with the right to see all sessions; there inspect
 * and list find the name, the lease and the client. So the statements are not prepared. All users
 * see application_name: "pawl TOKEN PID@HOST PROGRAM LABEL", cut to the server's 63 bytes.
 *
 *     comment: pawl NAME LEASE SINCE PID HOST PROGRAM LABEL
 *
 * Texts are in hex, empty texts "-". SINCE is the server's Unix time in ms, or 0: when the session
 * became idle.
 *
 * An acquire is one statement, or two: a try, and if the server refuses the try, a statement that
 * waits. The refusal proves that another owner has the lock; without a refusal, an acquire that
 * reaches its time limit would end with "no answer". CASE runs the parts of a statement in order,
 * and stops at the first part that decides: the lease, one try, the wait, then the parts after the
 * grant (token, time, a message to the WAL). A session-level lock stays if the statement fails
 * after the grant.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

#include "advisory.h"

#define FACT_MAX 40 /* bytes of each text but the name: the server shows 1024 of a statement */

static size_t add_hex(char *to, size_t room, const char *bytes, size_t most)
{
    size_t used = 0;

    for (size_t i = 0; i < most && bytes[i]; i++)
        used += (size_t)snprintf(to + used, room - used, "%02x", (unsigned char)bytes[i]);
    if (!used)
        used = (size_t)snprintf(to, room, "-");
    return used;
}

void advisory_who(advisory *adv)
{
    const char *label = adv->sql.env->label ? adv->sql.env->label : "";
    const char *program = program_invocation_short_name;
    char host[256] = "?";
    size_t used;

    if (gethostname(host, sizeof host - 1))
        snprintf(host, sizeof host, "?");
    used = (size_t)snprintf(adv->who, sizeof adv->who, "%lld ", (long long)getpid());
    used += add_hex(adv->who + used, sizeof adv->who - used, host, FACT_MAX);
    adv->who[used++] = ' ';
    used += add_hex(adv->who + used, sizeof adv->who - used, program, FACT_MAX);
    adv->who[used++] = ' ';
    add_hex(adv->who + used, sizeof adv->who - used, label, FACT_MAX);
    snprintf(adv->plain, sizeof adv->plain, " %lld@%s %s %s", (long long)getpid(), host, program,
             label);
    for (char *c = adv->plain; *c; c++)
        if (!isprint((unsigned char)*c))
            *c = '?';
}

/* Write the comment to adv->text, and return its length. */
static size_t comment(const advisory_session *s, int64_t lease_ms, int64_t since)
{
    char name[2 * PAWL_NAME_MAX + 1];

    add_hex(name, sizeof name, s->name, PAWL_NAME_MAX);
    return (size_t)snprintf(s->adv->text, ADVISORY_TEXT, "/* pawl %s %lld %lld %s */ ", name,
                            (long long)lease_ms, (long long)since, s->adv->who);
}

#define MS_OF(time) "(extract(epoch FROM " time ") * 1000)::bigint"

/* The result of a grant: "WAITED BACKEND TOKEN NOW TOOK", and two values that are not read. */
static void add_grant(char *text, size_t room, int waited, uint64_t base)
{
    snprintf(text, room, "concat_ws(' ', '%d', pg_backend_pid(), "
             "%" PRIu64 " + pg_current_xact_id()::text::bigint, " MS_OF("clock_timestamp()") ", "
             MS_OF("clock_timestamp() - statement_timestamp()") ", "
             "pg_logical_emit_message(true, 'pawl', ''), set_config('application_name', 'pawl ' || "
             "%" PRIu64 " + pg_current_xact_id()::text::bigint || $1::text, false))",
             waited, base, base);
}

void advisory_say_acquire(const advisory_session *s, int64_t lease_ms, sql_params *p)
{
    const char *shared = s->op->mode == PAWL_MODE_SHARED ? "_shared" : "";
    char key[64], grant[600];
    size_t used = comment(s, lease_ms, 0);

    advisory_key_words(s->key, key);
    add_grant(grant, sizeof grant, 0, s->base);
    used += (size_t)snprintf(s->adv->text + used, ADVISORY_TEXT - used,
                             "SELECT CASE WHEN set_config('idle_session_timeout', '%lld', false) "
                             "IS NULL THEN NULL WHEN pg_try_advisory_lock%s(%s) THEN %s ",
                             (long long)lease_ms, shared, key, grant);
    add_grant(grant, sizeof grant, 1, s->base);
    if (s->tried || advisory_session_holds(s)) /* a holder's lock call is granted at once, its try
                                                  may fail */
        used += (size_t)snprintf(s->adv->text + used, ADVISORY_TEXT - used,
                                 "WHEN pg_advisory_lock%s(%s) IS NULL THEN NULL ELSE %s ", shared,
                                 key, grant);
    snprintf(s->adv->text + used, ADVISORY_TEXT - used, "END");
    p->text = s->adv->text;
    sql_add_text(p, s->adv->plain);
}

void advisory_say_release(const advisory_session *s, int mode, sql_params *p)
{
    char key[64];
    size_t used = comment(s, s->timeout_ms, s->since);

    advisory_key_words(s->key, key);
    snprintf(s->adv->text + used, ADVISORY_TEXT - used,
             "SELECT pg_advisory_unlock%s(%s), pg_backend_pid()",
             mode == PAWL_MODE_SHARED ? "_shared" : "", key);
    p->text = s->adv->text;
}

void advisory_say_renew(const advisory_session *s, int64_t lease_ms, sql_params *p)
{
    size_t used = comment(s, lease_ms, s->since);

    snprintf(s->adv->text + used, ADVISORY_TEXT - used,
             "SELECT pg_backend_pid(), set_config('idle_session_timeout', '%lld', false)",
             (long long)lease_ms);
    p->text = s->adv->text;
}

void advisory_say_waits(const advisory_session *s, sql_params *p)
{
    snprintf(s->adv->text, ADVISORY_TEXT, "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %d AND "
             "locktype = 'advisory' AND NOT granted)", s->backend);
    p->text = s->adv->text;
}

void advisory_say_cancel(const advisory_session *s, sql_params *p)
{
    snprintf(s->adv->text, ADVISORY_TEXT, "SELECT pg_cancel_backend(%d)", s->backend);
    p->text = s->adv->text;
}

#define OF_THIS_DATABASE                                                                           \
    "locktype = 'advisory' AND database = "                                                        \
    "(SELECT oid FROM pg_database WHERE datname = current_database())"

static void add_key(char words[160], const advisory_key *key)
{
    snprintf(words, 160, " AND classid::bigint = %u AND objid::bigint = %u AND objsubid = %d",
             (unsigned)key->high, (unsigned)key->low, key->pair ? 2 : 1);
}

/* The statement waits until each holder's session has ended: then the lock is free, or the next
 * waiter has it. */
void advisory_say_break(advisory *adv, advisory_key key, sql_params *p)
{
    char words[160];

    add_key(words, &key);
    snprintf(adv->text, ADVISORY_TEXT,
             "SELECT count(pg_terminate_backend(pid, %lld)) FROM (SELECT DISTINCT pid FROM "
             "pg_locks WHERE granted AND " OF_THIS_DATABASE "%s) AS h",
             (long long)(adv->sql.env->timeout_ms / 2 + 1), words);
    p->text = adv->text;
}

/* Leave out sessions of the other layout, which hold an advisory lock for their client (@_key). A
 * waiting session also has the application_name 'pawl', until the grant, and is kept. */
void advisory_say_inspect(advisory *adv, const advisory_key *key, sql_params *p)
{
    char words[160] = " AND (NOT granted OR a.application_name IS DISTINCT FROM 'pawl')";

    if (key)
        add_key(words, key);
    snprintf(adv->text, ADVISORY_TEXT,
             "SELECT classid::bigint, objid::bigint, objsubid, granted, mode, l.pid, "
             "application_name, query, host(client_addr), state = 'idle', "
             MS_OF("clock_timestamp() - state_change") ", "
             MS_OF("clock_timestamp()") ", " MS_OF("clock_timestamp() - waitstart")
             " FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid) WHERE " OF_THIS_DATABASE
             "%s ORDER BY 1, 2, 3, NOT granted, waitstart, l.pid, mode", words);
    p->text = adv->text;
}
