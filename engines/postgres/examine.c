/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - the query of EXAMINE for PostgreSQL. Everything is read from the catalogs, so a user
 * without special rights may run the query. The greeting (error_text.c) checks the tables' own
 * rights and owners, and refuses the connection.
 */
#include "postgres.h"

#define ROW(level, id, what, why, remedy)                                                          \
    "SELECT " level ", '" id "', " what ", '" why "', '" remedy "' "
#define SETTING(name) "pg_catalog.current_setting('" name "')"

/* A standby that replays late, is silent although it was sent something, or was cut off for so long
 * that it reads old files. Programs that only receive the log (pg_receivewal) never replay, and are
 * no standbys that could take over. Without pg_read_all_stats all columns but the pid are null. */
#define LAG                                                                                        \
    "UNION ALL " ROW("2", "sql-lag", "CASE WHEN r.state = 'catchup' THEN pg_catalog.format("       \
        "'the standby %s is catching up', r.name) WHEN r.lag > r.most THEN pg_catalog.format('the "\
        "standby %s is %s s behind', r.name, pg_catalog.date_part('epoch', "                       \
        "r.lag)::pg_catalog.int8) ELSE pg_catalog.format('the standby %s has confirmed nothing "   \
        "for %s s (by its clock)', r.name, pg_catalog.date_part('epoch', "                         \
        "r.silence)::pg_catalog.int8) END",                                                        \
        "If this standby takes over, grants that it has not received are granted again, and no "   \
        "lock can be taken until it has replayed the rest.",                                       \
        "Find out what keeps the standby: its load, its disk, the network, a paused replay.")      \
    "FROM (SELECT coalesce(nullif(s.application_name, ''), s.client_addr::pg_catalog.text, '?') "  \
    "AS name, s.state, s.replay_lag AS lag, CASE WHEN s.sent_lsn > s.flush_lsn THEN "              \
    "pg_catalog.clock_timestamp() - s.reply_time END AS silence, "                                 \
    "pg_catalog.make_interval(secs => 3) AS most FROM pg_catalog.pg_stat_replication s "           \
    "WHERE s.replay_lsn IS NOT NULL) AS r "                                                        \
    "WHERE r.state = 'catchup' OR r.lag > r.most OR r.silence > r.most "                           \
    "UNION ALL " ROW("1", "sql-lag", "'the lag of the standbys was not checked'", "",              \
        "The check needs GRANT pg_read_all_stats.")                                                \
    "FROM pg_catalog.pg_stat_replication s "                                                       \
    "HAVING pg_catalog.count(*) > pg_catalog.count(s.state) "

#define SERVER                                                                                     \
    ROW("0", "server", "'PostgreSQL ' || " SETTING("server_version"), "", "")                      \
    "UNION ALL " ROW("0", "clock", "pg_catalog.floor(pg_catalog.date_part('epoch', "               \
        "pg_catalog.clock_timestamp()) * 1000)::pg_catalog.int8::pg_catalog.text", "", "")         \
    "UNION ALL " ROW("3", "sql-fsync", "'fsync is off'",                                           \
        "After a power failure the database may be damaged, and the latest grants are forgotten: " \
        "locks are granted twice.",                                                                \
        "Set fsync = on in postgresql.conf, and reload the server.")                               \
    "WHERE " SETTING("fsync") " = 'off' "                                                          \
    "UNION ALL " ROW("3", "sql-commit", "'synchronous_commit is off'",                             \
        "A grant is answered before it is on disk. After a crash of the server the latest grants " \
        "are forgotten: locks are granted twice, and tokens repeat.",                              \
        "ALTER DATABASE or ALTER ROLE ... SET synchronous_commit = on.")                           \
    "WHERE " SETTING("synchronous_commit") " = 'off' "                                             \
    "UNION ALL " ROW("2", "sql-standby", "pg_catalog.format('the server has %s standby(s), and "   \
        "none is synchronous', pg_catalog.count(*))",                                              \
        "If a standby takes over, grants that it had not received are forgotten: locks are "       \
        "granted twice.",                                                                          \
        "Set synchronous_standby_names, so that a commit waits for a standby.")                    \
    "FROM pg_catalog.pg_stat_replication HAVING pg_catalog.count(*) > 0 AND "                      \
    SETTING("synchronous_standby_names") " = '' " LAG                                              \
    "UNION ALL " ROW("2", "sql-connections", "pg_catalog.format('%s of %s connections are in "     \
        "use', pg_catalog.count(*), " SETTING("max_connections") ")",                              \
        "When none is left, clients that reconnect can''t renew their leases, and lose their "     \
        "locks.", "Raise max_connections, or use a pooler for other programs.")                    \
    "FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend' "                      \
    "HAVING pg_catalog.count(*) * 10 > " SETTING("max_connections") "::pg_catalog.int4 * 9"

const char advisory_examine[] = SERVER;

#define TABLES                                                                                     \
    "pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "              \
    "AND n.nspname = $SCHEMA"
#define OURS "c.relname IN ('$TABLE', '$TABLE_member', '$TABLE_client')"

#define COLUMNS                                                                                    \
    "(SELECT pg_catalog.string_agg(a.attname, ',' ORDER BY k.i) FROM "                             \
    "pg_catalog.unnest(x.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k (attnum, i) JOIN "        \
    "pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum)"

const char pg_examine[] =
    SERVER
    " UNION ALL " ROW("3", "sql-unlogged", "pg_catalog.format('the table %s is unlogged', "
        "c.relname)",
        "A crash of the server empties the table: all locks are forgotten and granted again.",
        "ALTER TABLE ... SET LOGGED.")
    "FROM " TABLES " WHERE " OURS " AND c.relpersistence <> 'p' "
    "UNION ALL " ROW("3", "sql-index", "pg_catalog.format('the table %s has no valid unique index "
        "on (%s)', e.name, e.columns)",
        "Without it a name can have two rows, so that two clients hold the same lock; and every "
        "request reads the whole table.",
        "Create the index again, as in share/pawl/postgres.sql (REINDEX if it is invalid).")
    "FROM (VALUES ('$TABLE', 'name'), ('$TABLE_member', 'name,owner'), "
    "('$TABLE_member', 'name,role,id'), ('$TABLE_client', 'client')) AS e (name, columns) JOIN "
    TABLES " ON c.relname = e.name "
    "WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_index x WHERE x.indrelid = c.oid AND "
    "x.indisunique AND x.indisvalid AND " COLUMNS " = e.columns) "
    "UNION ALL " ROW("2", "sql-autovacuum", "pg_catalog.format('autovacuum is off for the table "
        "%s', c.relname)",
        "Each grant leaves a dead row. Nobody removes them, so the table grows and every request "
        "gets slower.",
        "Set autovacuum = on in postgresql.conf; ALTER TABLE ... RESET (autovacuum_enabled).")
    "FROM " TABLES " WHERE " OURS " AND (" SETTING("autovacuum") " = 'off' OR "
    "'autovacuum_enabled=false' = ANY (c.reloptions) OR "
    "'autovacuum_enabled=off' = ANY (c.reloptions)) "
    "UNION ALL " ROW("2", "sql-bloat", "pg_catalog.format('the table %s has %s dead rows', "
        "c.relname, s.n_dead_tup)",
        "Vacuum does not keep up, or an old transaction holds it back. Every request gets slower.",
        "VACUUM the table. Look for old transactions in pg_stat_activity (xact_start).")
    "FROM " TABLES " JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid "
    "WHERE " OURS " AND s.n_dead_tup > 50000";
