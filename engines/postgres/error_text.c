/* SPDX-License-Identifier: Apache-2.0
 *
 * error_text.c - the statements for PostgreSQL: the greeting, the check of tables and functions,
 * and the calls; and advice for refused connections. No statement relies on the search_path that
 * the server, the database or the role has set.
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

const char *const pg_statements[SQL_STATEMENTS] = {
    [SQL_ACQUIRE] = "SELECT @_acquire($1::bytea, $2::text, $3::\"char\", $4::bigint, $5::bigint, "
                    "$6::integer, $7::bigint, $8::bigint, $9::text, $10::bigint, $11::text, "
                    "$12::boolean, $13::boolean)",
    [SQL_RELEASE] = "SELECT @_release($1::bytea, $2::text, $3::bigint, $4::bigint, $5::boolean, "
                    "$6::boolean)",
    [SQL_RENEW] = "SELECT @_renew($1::text)",
    [SQL_BREAK] = "SELECT @_break($1::bytea, $2::text, $3::boolean)",
    [SQL_LATCH] = "SELECT @_latch($1::bytea, $2::text, $3::bigint, $4::boolean)",
    [SQL_ENTRY] = "SELECT @_entry($1::text, $2::text, $3::bigint, $4::text, $5::text, $6::bigint)",
    [SQL_INSPECT] =
        "WITH t AS MATERIALIZED (SELECT @_now() AS now) "
        "SELECT pg_catalog.encode(u.name, 'hex'), u.type, u.value, u.role, u.owner, u.mode, "
        "u.permits, u.first, t.now - u.since, u.expires - t.now, c.pid, c.host, c.program, c.label "
        "FROM t, LATERAL (SELECT l.name, l.type, l.value, "
        "CASE WHEN l.owner IS NOT NULL AND l.expires > t.now THEN 'h' ELSE '' END AS role, "
        "CASE WHEN l.expires > t.now THEN l.owner END AS owner, 'x' AS mode, 0 AS permits, "
        "l.first, l.since, l.expires, 0 AS id FROM @ l WHERE l.name >= $1::bytea "
        "AND l.name < $2::bytea AND ((l.owner IS NOT NULL AND l.expires > t.now) "
        "OR (l.type = 3 AND l.value > 0)) "
        "UNION ALL SELECT l.name, l.type, l.value, m.role::text, m.owner, m.mode::text, m.permits, "
        "m.first, m.since, m.expires, m.id FROM @_member m JOIN @ l USING (name) "
        "WHERE m.name >= $3::bytea AND m.name < $4::bytea AND m.role IN ('h', 'w') "
        "AND m.expires > t.now) u "
        "LEFT JOIN @_client c ON c.client = "
        "pg_catalog.left(pg_catalog.replace(u.owner, 'z:', ''), 16) "
        "ORDER BY u.name, u.role, u.id LIMIT $ROWS",
    [SQL_EXAMINE] = pg_examine,
};

/* The tables' schema, as an identifier and as a string. */
#define SCHEMA_NAME                                                                                \
    "coalesce((SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON "     \
    "n.oid = c.relnamespace WHERE c.oid = pg_catalog.to_regclass('$TABLE')::pg_catalog.oid), "     \
    "pg_catalog.current_schema())"

/* A schema with such a table that this user may not use; NULL: none. */
#define BARRED                                                                                     \
    "(SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace "  \
    "n ON n.oid = c.relnamespace WHERE c.relname = '$TABLE' AND NOT "                              \
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

/* Checks the tables and functions before any of them is used: their owner can make them do anything
 * with the rights of their callers. */
#define OBJECTS                                                                                    \
    "(SELECT c.oid, c.relname AS name, c.relowner AS owner, true AS is_table "                     \
    "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "         \
    "WHERE n.nspname = $SCHEMA AND c.relname IN ('$TABLE', '$TABLE_member', '$TABLE_client') "     \
    "UNION ALL SELECT p.oid, p.proname, p.proowner, false FROM pg_catalog.pg_proc p "              \
    "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "                                    \
    "WHERE n.nspname = $SCHEMA AND p.proname IN ('$TABLE_acquire', '$TABLE_release', "             \
    "'$TABLE_renew', '$TABLE_break', '$TABLE_latch', '$TABLE_entry', '$TABLE_version', "           \
    "'$TABLE_now', '$TABLE_lock', '$TABLE_key', '$TABLE_tell', '$TABLE_left', '$TABLE_pass', "     \
    "'$TABLE_front', '$TABLE_unused', '$TABLE_sweep')) AS o"

const char pg_check[] =
    "SELECT pg_catalog.format('%s belongs to %s, and would run with your rights: "
    "let an administrator make the tables (sql.md), or trust owner=%s', "
    "o.name, r.rolname, r.rolname) AS problem FROM " OBJECTS
    " JOIN pg_catalog.pg_roles r ON r.oid = o.owner "
    "WHERE NOT r.rolsuper AND r.rolname <> current_user AND r.rolname <> '$OWNER'::pg_catalog.name "
    "AND r.oid <> (SELECT d.datdba FROM pg_catalog.pg_database d "
    "WHERE d.datname = pg_catalog.current_database()) "
    "UNION ALL SELECT pg_catalog.format('permission denied: GRANT %s ON %s TO this user "
    "(security.md)', k.privilege, o.name) FROM " OBJECTS
    ", (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS k (privilege) "
    "WHERE o.is_table AND NOT pg_catalog.has_table_privilege(o.oid, k.privilege) "
    "UNION ALL SELECT pg_catalog.format('permission denied: GRANT EXECUTE ON FUNCTION %s TO this "
    "user (security.md)', o.name) FROM " OBJECTS
    " WHERE NOT o.is_table AND NOT pg_catalog.has_function_privilege(o.oid, 'EXECUTE')";
