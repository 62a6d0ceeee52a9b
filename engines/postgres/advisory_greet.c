/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory_greet.c - the greeting of a connection for session locks. The greeting checks the
 * server's version, sets up the session, and asks for the server's process and timeline.
 *
 * A pooler (for example PgBouncer) invents the process id in the protocol's first messages, because
 * the pooler has no server session yet. So Pawl notices a pooler, but not whether the pooler keeps
 * sessions: the URL must say so. If the URL is wrong, Pawl notices when the process id changes.
 */
#include <stdlib.h>

#include "advisory.h"
#include "postgres.h"

#define TIMELINE_SHIFT 47 /* lower bits: a transaction's number; above: 16 bits */

#define SERVER_VERSION "pg_catalog.current_setting('server_version_num')::int"

const char *const advisory_greeting[] = {
    "DO $$ BEGIN IF " SERVER_VERSION PG_OP("<") "140000 THEN "
    "RAISE EXCEPTION USING ERRCODE = 'PW001', MESSAGE = pg_catalog.concat("
    "'server too old: layout=advisory needs PostgreSQL 14 or newer, this is ', "
    "pg_catalog.current_setting('server_version'));"
    " END IF; IF pg_catalog.pg_is_in_recovery() THEN RAISE EXCEPTION USING ERRCODE = '25006', "
    "MESSAGE = 'this is a standby, and read only'; END IF; END $$",
    /* An acquire that fails after the grant has not set its lease, so a default is needed. */
    "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_session_timeout = 60000; "
    "SET client_connection_check_interval = 2000; SET jit = off; "
    "SELECT pg_catalog.set_config('transaction_timeout', '0', false) "
    "WHERE " SERVER_VERSION PG_OP(">=") "170000; "
    "SELECT pg_catalog.pg_backend_pid(), "
    "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn())",
    NULL, NULL};

bool advisory_greeted(sql_link *link, const sql_reply *reply)
{
    sql_sessions *pool = (sql_sessions *)(void *)link->sql;
    const char *backend = reply->cell(reply, 0, 0), *file = reply->cell(reply, 0, 1);
    unsigned timeline;
    sql_session *s = (sql_session *)(void *)link;

    if (!backend || link == &pool->sql.link)
        return true;
    if (atoi(backend) != pg_backend(link) && !pool->keeps_session) {
        sql_link_drop(link, PAWL_EINVAL, "a pooler is in between: if it keeps sessions, add "
                                         "pooler=session to the URL; else layout=advisory can't "
                                         "work");
        return false;
    }
    if (!file || sscanf(file, "%8x", &timeline) != 1 || timeline > 0xffff) {
        sql_link_drop(link, PAWL_EBACKEND, "the server tells no timeline");
        return false;
    }
    s->backend = atoi(backend);
    s->base = (uint64_t)timeline << TIMELINE_SHIFT;
    return true;
}
