/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - the query of EXAMINE for PostgreSQL. Everything is read from the catalogs, so a user
 * without special rights may run the query. The greeting (statements.c) checks the tables' own
 * rights and owners, and refuses the connection.
 */
#include "postgres.h"

#define ROW(level, id, what, why, remedy)                                                          \
    "SELECT " level ", '" id "', " what ", '" why "', '" remedy "' "
#define SETTING(name) "pg_catalog.current_setting('" name "')"

/* A standby that replays late, is silent although it was sent something, or was cut off for so long
 * that it reads old files. Programs that only receive the log (pg_receivewal) never replay, and are
 * no standbys that could take over. Without pg_read_all_stats all columns but the pid are null. */
#define LAG_TEXT                                                                                   \
    "CASE WHEN r.state" PG_EQ "'catchup' THEN pg_catalog.format('the standby %s is catching up', " \
    "r.name) WHEN r.lag" PG_OP(">") "r.most THEN pg_catalog.format('the standby %s is %s s "       \
    "behind', r.name, pg_catalog.date_part('epoch', r.lag)::bigint) ELSE "                         \
    "pg_catalog.format('the standby %s has confirmed nothing for %s s (by its clock)', r.name, "   \
    "pg_catalog.date_part('epoch', r.silence)::bigint) END"
#define LAG                                                                                        \
    "UNION ALL " ROW("2", "sql-lag", LAG_TEXT,                                                     \
        "If this standby takes over, grants that it has not received are granted again, and no "   \
        "lock can be taken until it has replayed the rest.",                                       \
        "Find out what keeps the standby: its load, its disk, the network, a paused replay.")      \
    "FROM (SELECT coalesce(CASE WHEN s.application_name" PG_NE "'' THEN s.application_name END, "  \
    "s.client_addr::pg_catalog.text, '?') AS name, s.state, s.replay_lag AS lag, "                 \
    "CASE WHEN s.sent_lsn" PG_OP(">") "s.flush_lsn THEN "                                          \
    "pg_catalog.clock_timestamp()" PG_OP("-") "s.reply_time END AS silence, "                      \
    "pg_catalog.make_interval(secs => 3) AS most FROM pg_catalog.pg_stat_replication s "           \
    "WHERE s.replay_lsn IS NOT NULL) AS r WHERE r.state" PG_EQ "'catchup' "                        \
    "OR r.lag" PG_OP(">") "r.most OR r.silence" PG_OP(">") "r.most "                               \
    "UNION ALL " ROW("1", "sql-lag", "'the lag of the standbys was not checked'", "",              \
        "The check needs GRANT pg_read_all_stats.")                                                \
    "FROM pg_catalog.pg_stat_replication s "                                                       \
    "HAVING pg_catalog.count(*)" PG_OP(">") "pg_catalog.count(s.state) "

#define SERVER                                                                                     \
    ROW("0", "server", "pg_catalog.concat('PostgreSQL ', " SETTING("server_version") ")", "", "")  \
    "UNION ALL " ROW("0", "clock", "pg_catalog.floor(pg_catalog.date_part('epoch', "               \
        "pg_catalog.clock_timestamp())" PG_OP("*") "1000)::bigint::pg_catalog.text", "", "")       \
    "UNION ALL " ROW("3", "sql-fsync", "'fsync is off'",                                           \
        "After a power failure the database may be damaged, and the latest grants are forgotten: " \
        "locks are granted twice.",                                                                \
        "Set fsync = on in postgresql.conf, and reload the server.")                               \
    "WHERE " SETTING("fsync") PG_EQ "'off' "                                                       \
    "UNION ALL " ROW("3", "sql-commit", "'synchronous_commit is off'",                             \
        "A grant is answered before it is on disk. After a crash of the server the latest grants " \
        "are forgotten: locks are granted twice, and tokens repeat.",                              \
        "ALTER DATABASE or ALTER ROLE ... SET synchronous_commit = on.")                           \
    "WHERE " SETTING("synchronous_commit") PG_EQ "'off' "                                          \
    "UNION ALL " ROW("2", "sql-standby", "pg_catalog.format('the server has %s standby(s), and "   \
        "none is synchronous', pg_catalog.count(*))",                                              \
        "If a standby takes over, grants that it had not received are forgotten: locks are "       \
        "granted twice.",                                                                          \
        "Set synchronous_standby_names, so that a commit waits for a standby.")                    \
    "FROM pg_catalog.pg_stat_replication HAVING pg_catalog.count(*)" PG_OP(">") "0 AND "           \
    SETTING("synchronous_standby_names") PG_EQ "'' " LAG                                           \
    "UNION ALL " ROW("2", "sql-connections", "pg_catalog.format('%s of %s connections are in "     \
        "use', pg_catalog.count(*), " SETTING("max_connections") ")",                              \
        "When none is left, clients that reconnect can''t renew their leases, and lose their "     \
        "locks.", "Raise max_connections, or use a pooler for other programs.")                    \
    "FROM pg_catalog.pg_stat_activity WHERE backend_type" PG_EQ "'client backend' HAVING "         \
    "(pg_catalog.count(*)" PG_OP("*") "10)" PG_OP(">") "(" SETTING("max_connections") "::int"      \
    PG_OP("*") "9)"

const char advisory_examine[] =
    SERVER
    " UNION ALL " ROW("1", "sql-sessions", "'sessions of other users can''t be seen'",
        "pawl show and pawl ls show locks of other users without names, leases and labels.",
        "GRANT pg_read_all_stats TO this user.")
    "WHERE NOT pg_catalog.pg_has_role('pg_read_all_stats'::pg_catalog.name, 'USAGE')";

#define TABLES                                                                                     \
    "pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid" PG_EQ "c.relnamespace "        \
    "AND n.nspname" PG_EQ "$SCHEMA"
#define OURS "c.relname" PG_EQ "ANY ('{$TABLE,$TABLE_member,$TABLE_client}'::pg_catalog.name[])"

#define COLUMNS                                                                                    \
    "(SELECT pg_catalog.string_agg(a.attname, ',' ORDER BY k.i) FROM "                             \
    "pg_catalog.unnest(x.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k (attnum, i) JOIN "        \
    "pg_catalog.pg_attribute a ON a.attrelid" PG_EQ "c.oid AND a.attnum" PG_EQ "k.attnum)"

const char pg_examine[] =
    SERVER
    " UNION ALL " ROW("3", "sql-unlogged", "pg_catalog.format('the table %s is unlogged', "
        "c.relname)",
        "A crash of the server empties the table: all locks are forgotten and granted again.",
        "ALTER TABLE ... SET LOGGED.")
    "FROM " TABLES " WHERE " OURS " AND c.relpersistence" PG_NE "'p' "
    "UNION ALL " ROW("3", "sql-index", "pg_catalog.format('the table %s has no valid unique index "
        "on (%s)', e.name, e.columns)",
        "Without it a name can have two rows, so that two clients hold the same lock; and every "
        "request reads the whole table.",
        "Create the index again, as in share/pawl/postgres.sql (REINDEX if it is invalid).")
    "FROM (VALUES ('$TABLE', 'name'), ('$TABLE_member', 'name,owner'), "
    "('$TABLE_member', 'name,role,id'), ('$TABLE_client', 'client')) AS e (name, columns) JOIN "
    TABLES " ON c.relname" PG_EQ "e.name "
    "WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_index x WHERE x.indrelid" PG_EQ "c.oid AND "
    "x.indisunique AND x.indisvalid AND " COLUMNS PG_EQ "e.columns) "
    "UNION ALL " ROW("2", "sql-autovacuum", "pg_catalog.format('autovacuum is off for the table "
        "%s', c.relname)",
        "Each grant leaves a dead row. Nobody removes them, so the table grows and every request "
        "gets slower.",
        "Set autovacuum = on in postgresql.conf; ALTER TABLE ... RESET (autovacuum_enabled).")
    "FROM " TABLES " WHERE " OURS " AND (" SETTING("autovacuum") PG_EQ "'off' OR "
    "'autovacuum_enabled=false'" PG_EQ "ANY (c.reloptions) OR "
    "'autovacuum_enabled=off'" PG_EQ "ANY (c.reloptions)) "
    "UNION ALL " ROW("2", "sql-bloat", "pg_catalog.format('the table %s has %s dead rows', "
        "c.relname, s.n_dead_tup)",
        "Vacuum does not keep up, or an old transaction holds it back. Every request gets slower.",
        "VACUUM the table. Look for old transactions in pg_stat_activity (xact_start).")
    "FROM " TABLES " JOIN pg_catalog.pg_stat_all_tables s ON s.relid" PG_EQ "c.oid "
    "WHERE " OURS " AND s.n_dead_tup" PG_OP(">") "50000";
