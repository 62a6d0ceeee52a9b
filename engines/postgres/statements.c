/* SPDX-License-Identifier: Apache-2.0
 *
 * statements.c - the statements for PostgreSQL: the greeting and the calls; and advice for refused
 * connections. The first statement, and those that are also used behind a pooler, don't rely on
 * search_path (postgres.h).
 */
#include "postgres.h"

const char *pg_connect_advice(const sql_link *link, const char *state, const char *words)
{
    bool plain = link->sql->settings.tls == SQL_TLS_DISABLE;

    if (strstr(words, "does not support SSL"))
        return "; turn TLS on there, or use sslmode=disable";
    if (!strncmp(state, "28P01", 5))
        return "; check PAWL_USER and PAWL_PASSWORD";
    if (!strncmp(state, "3D000", 5))
        return "; create the database, or correct the URL";
    if (!strncmp(state, "28000", 5) && plain) /* one text for all reasons to refuse a host */
        return "; if it demands TLS, remove sslmode=disable; else check PAWL_USER and pg_hba.conf";
    return !strncmp(state, "28000", 5) ? "; check PAWL_USER and pg_hba.conf" : "";
}

#define TEXT "pg_catalog.text"
#define CHAR "pg_catalog.\"char\""
#define BYTES "pg_catalog.bytea"
#define OF_BOUNDS(name, from, to)                                                                  \
    name PG_OP(">=") from "::" BYTES " AND " name PG_OP("<") to "::" BYTES
#define RUNNING(row) row ".expires" PG_OP(">") "t.now"

/* Other clients write the rows, and nothing limits their texts: owners, hosts, programs and labels
 * are cut. A name is at most 255 bytes long. */
const char *const pg_statements[SQL_STATEMENTS] = {
    [SQL_ACQUIRE] = "SELECT @_acquire($1::" BYTES ", $2::" TEXT ", $3::" CHAR ", $4::bigint, "
                    "$5::bigint, $6::integer, $7::bigint, $8::bigint, $9::" TEXT ", $10::bigint, "
                    "$11::" TEXT ", $12::boolean, $13::boolean)",
    [SQL_RELEASE] = "SELECT @_release($1::" BYTES ", $2::" TEXT ", $3::bigint, $4::bigint, "
                    "$5::boolean, $6::boolean)",
    [SQL_RENEW] = "SELECT @_renew($1::" TEXT ")",
    [SQL_BREAK] = "SELECT @_break($1::" BYTES ", $2::" TEXT ", $3::boolean)",
    [SQL_LATCH] = "SELECT @_latch($1::" BYTES ", $2::" TEXT ", $3::bigint, $4::boolean)",
    [SQL_CLIENT_INFO] = "SELECT @_entry($1::" TEXT ", $2::" TEXT ", $3::bigint, $4::" TEXT
                        ", $5::" TEXT ", $6::bigint)",
    [SQL_INSPECT] =
        "WITH t AS MATERIALIZED (SELECT @_now() AS now) "
        "SELECT pg_catalog.encode(u.name, 'hex'), u.type, u.value, u.role, "
        "pg_catalog.left(u.owner, 40), u.mode, u.permits, u.first, t.now" PG_OP("-") "u.since, "
        "u.expires" PG_OP("-") "t.now, c.pid, pg_catalog.left(c.host, 64), "
        "pg_catalog.left(c.program, 64), pg_catalog.left(c.label, 255) "
        "FROM t, LATERAL (SELECT l.name, l.type, l.value, "
        "CASE WHEN l.owner IS NOT NULL AND " RUNNING("l") " THEN 'h' ELSE '' END AS role, "
        "CASE WHEN " RUNNING("l") " THEN l.owner END AS owner, 'x' AS mode, 0 AS permits, "
        "l.first, l.since, l.expires, 0 AS id FROM @ l WHERE " OF_BOUNDS("l.name", "$1", "$2")
        " AND ((l.owner IS NOT NULL AND " RUNNING("l") ") "
        "OR (l.type" PG_EQ "3 AND l.value" PG_OP(">") "0)) "
        "UNION ALL SELECT l.name, l.type, l.value, m.role::" TEXT ", m.owner, m.mode::" TEXT ", "
        "m.permits, m.first, m.since, m.expires, m.id FROM @_member m JOIN @ l ON l.name" PG_EQ
        "m.name WHERE " OF_BOUNDS("m.name", "$3", "$4") " AND m.role" PG_EQ "ANY ('{h,w}'::" CHAR
        "[]) AND " RUNNING("m") ") u "
        "LEFT JOIN @_client c ON c.client" PG_EQ
        "pg_catalog.left(pg_catalog.replace(u.owner, 'z:', ''), 16) "
        "WHERE pg_catalog.octet_length(u.name)" PG_OP("<=") "255 "
        "ORDER BY u.name, u.role, u.id LIMIT $ROWS",
    [SQL_EXAMINE] = pg_examine,
};

/* The tables' schema, as an identifier and as a string. */
#define SCHEMA_NAME                                                                                \
    "coalesce((SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON "     \
    "n.oid" PG_EQ "c.relnamespace WHERE c.oid" PG_EQ                                               \
    "pg_catalog.to_regclass('$TABLE')::pg_catalog.oid), pg_catalog.current_schema())"

/* A schema with such a table that this user may not use; NULL: none. */
#define BARRED                                                                                     \
    "(SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace "  \
    "n ON n.oid" PG_EQ "c.relnamespace WHERE c.relname" PG_EQ "'$TABLE' AND NOT "                  \
    "pg_catalog.has_schema_privilege(n.oid, 'USAGE') LIMIT 1)"

/* Override settings of the server, the database or the role that would end the session, or would
 * cause functions of other users to be called. */
const char *const pg_greeting[] = {
    "SELECT pg_catalog.set_config('pawl.schema', " SCHEMA_NAME "::pg_catalog.text, false); "
    "SET search_path = pg_catalog, pg_temp; "
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', "
    "'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout'); "
    "SET default_transaction_isolation = 'read committed'; SET enable_seqscan = off; "
    "SET jit = off; LISTEN pawl_$CLIENT; "
    "SELECT pg_advisory_lock_shared(('x' || encode(substr(sha256(convert_to('$CLIENT', 'UTF8')), "
    "1, 8), 'hex'))::bit(64)::bigint); "
    "SELECT quote_ident(s), quote_literal(s), " BARRED " FROM current_setting('pawl.schema') AS s",
    NULL, NULL};
const char *const pg_pooled_greeting[] = {
    "SELECT pg_catalog.quote_ident(s), pg_catalog.quote_literal(s), " BARRED " FROM (SELECT "
    SCHEMA_NAME "::pg_catalog.text AS s) AS x", NULL, NULL};

bool pg_greeted(sql_link *link, const sql_reply *reply)
{
    const char *name = reply->cell(reply, 0, 0), *quoted = reply->cell(reply, 0, 1);
    const char *barred = reply->cell(reply, 0, 2);
    int code;

    if (barred && (!name || !strcmp(name, "\"\""))) {
        sql_link_drop(link, PAWL_EAUTH, "permission denied: GRANT USAGE ON SCHEMA %.60s TO this "
                      "user (security.md)", barred);
        return false;
    }
    if (!name || !quoted || !*name || !strcmp(name, "\"\"")) {
        sql_link_drop(link, PAWL_EINVAL, "search_path names no schema that is there: write "
                      "prefix=SCHEMA.%s", link->sql->settings.prefix);
        return false;
    }
    code = sql_set_schema(link->sql, name, quoted);
    if (code)
        sql_link_drop(link, code, "out of memory");
    return !code;
}
