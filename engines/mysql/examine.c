/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - the query of EXAMINE for MariaDB and MySQL. MariaDB runs the text in comments that
 * begin with M!, MySQL runs the text in comments with a version number; MariaDB ignores comments
 * with version numbers of MySQL 5.7 and newer. (An at sign stands for the tables' prefix, so system
 * variables are read from a view.)
 */
#include "mysql.h"
#include "userlock.h"

#define ROW(level, id, what, why, remedy)                                                          \
    "SELECT " level ", '" id "', " what ", '" why "', '" remedy "' "
#define VARIABLES                                                                                  \
    "FROM /*M! information_schema.global_variables */ "                                            \
    "/*!50700 performance_schema.global_variables */ AS v "
#define STATUS                                                                                     \
    "/*M! information_schema.global_status */ /*!50700 performance_schema.global_status */ AS s "
#define OURS                                                                                       \
    "t.table_schema = $SCHEMA AND t.table_name IN ('$TABLE', '$TABLE_member', '$TABLE_client', "   \
    "'$TABLE_mail')"

#define FACTS                                                                                      \
    ROW("0", "server", "VERSION()", "", "")                                                        \
    "UNION ALL " ROW("0", "clock", "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', "                \
        "UTC_TIMESTAMP(6)) DIV 1000 AS CHAR)", "", "")

#define CONNECTIONS                                                                                \
    "UNION ALL " ROW("2", "sql-connections", "CONCAT(s.variable_value, ' of ', v.variable_value, " \
        "' connections are in use')",                                                              \
        "When none is left, clients that reconnect can''t renew their leases, and lose their "     \
        "locks.", "Raise max_connections.")                                                        \
    VARIABLES "JOIN " STATUS "ON s.variable_name = 'threads_connected' "                           \
    "WHERE v.variable_name = 'max_connections' AND s.variable_value * 10 > v.variable_value * 9 "

/* MariaDB tells the number of replicas to everybody. On MySQL each replica has a session. */
#define REPLICAS                                                                                   \
    "UNION ALL " ROW("2", "sql-standby", "CONCAT('the server has ', n.replicas, ' replica(s), "    \
        "and none is semi-synchronous')",                                                          \
        "If a replica takes over, grants that it has not received are forgotten: locks are "       \
        "granted twice.",                                                                          \
        "Turn semi-synchronous replication on, with the wait point AFTER_SYNC and a long "         \
        "time-out (rpl_semi_sync_...), so that a commit waits for a replica.")                     \
    "FROM (SELECT /*M! (SELECT s.variable_value FROM information_schema.global_status AS s "       \
    "WHERE s.variable_name = 'slaves_connected') */ /*!50700 (SELECT COUNT(*) FROM "               \
    "information_schema.processlist AS p WHERE p.command LIKE 'Binlog Dump%') */ AS replicas) "    \
    "AS n WHERE n.replicas > 0 AND NOT EXISTS (SELECT 1 FROM " STATUS "WHERE s.variable_name IN "  \
    "('rpl_semi_sync_master_status', 'rpl_semi_sync_source_status') AND s.variable_value = 'ON') " \
    "/*!50700 UNION ALL " ROW("1", "sql-standby", "'replicas were not looked for'", "",            \
        "The check needs the right PROCESS.")                                                      \
    "FROM (SELECT 1) AS one WHERE NOT EXISTS (SELECT 1 FROM information_schema.user_privileges "   \
    "AS p WHERE p.privilege_type = 'PROCESS') AND NOT EXISTS (SELECT 1 FROM "                      \
    "information_schema.processlist AS p WHERE p.user <> SUBSTRING_INDEX(USER(), 0x40, 1)) */ "

const char my_examine[] =
    FACTS
    "UNION ALL " ROW("IF(v.variable_value = 0, 3, 2)", "sql-commit",
        "CONCAT('innodb_flush_log_at_trx_commit is ', v.variable_value)",
        "A grant is answered before it is on disk. After a power failure the latest grants are "
        "forgotten: locks are granted twice, and tokens repeat.",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1, and the same in my.cnf.")
    VARIABLES "WHERE v.variable_name = 'innodb_flush_log_at_trx_commit' AND v.variable_value <> 1 "
    "UNION ALL " ROW("2", "sql-binlog", "CONCAT('the binary log is on, and sync_binlog is ', "
        "v.variable_value)",
        "After a power failure the binary log lacks the latest grants: replicas do not know them, "
        "and grant these locks again if they take over.",
        "SET GLOBAL sync_binlog = 1, and the same in my.cnf.")
    VARIABLES "WHERE v.variable_name = 'sync_binlog' AND v.variable_value <> 1 AND EXISTS "
    "(SELECT 1 " VARIABLES "WHERE v.variable_name = 'log_bin' AND v.variable_value = 'ON') "
    REPLICAS CONNECTIONS
    "UNION ALL " ROW("3", "sql-engine", "CONCAT('the table ', t.table_name, ' is of the storage "
        "engine ', t.engine)",
        "Only InnoDB locks single rows and survives a crash: with another engine two clients can "
        "get the same lock.", "ALTER TABLE ... ENGINE=InnoDB.")
    "FROM information_schema.tables AS t WHERE " OURS " AND t.engine <> 'InnoDB' "
    "UNION ALL " ROW("3", "sql-index", "CONCAT('the table ', e.name, ' has no unique index on (', "
        "e.columns, ')')",
        "Without it a name can have two rows, so that two clients hold the same lock; and every "
        "request reads and locks the whole table.",
        "Create the index again, as in share/pawl/mysql.sql.")
    "FROM (SELECT '$TABLE' AS name, 'name' AS columns UNION ALL SELECT '$TABLE_member', "
    "'name,owner' UNION ALL SELECT '$TABLE_member', 'name,role,id' UNION ALL SELECT "
    "'$TABLE_client', 'client' UNION ALL SELECT '$TABLE_mail', 'client,id') AS e "
    "WHERE NOT EXISTS (SELECT 1 FROM information_schema.statistics AS t WHERE t.table_schema = "
    "$SCHEMA AND t.table_name = e.name AND t.non_unique = 0 GROUP BY t.index_name HAVING "
    "GROUP_CONCAT(t.column_name ORDER BY t.seq_in_index) = e.columns)";

/* layout=session: a lock lasts only as long as the server, so only the tokens are on the disk. */
const char my_session_examine[] =
    FACTS CONNECTIONS
    "UNION ALL " ROW("1", "sql-sessions", "'sessions of other users can''t be seen'",
        "pawl show does not show waiters of other users.", "GRANT PROCESS ON *.* TO this user.")
    "FROM (SELECT 1) AS one WHERE " MY_SESSIONS_HIDDEN " "
    "UNION ALL " ROW("3", "sql-engine", "CONCAT('the table ', t.table_name, ' is of the storage "
        "engine ', t.engine)",
        "Only InnoDB survives a crash: with another engine tokens may repeat.",
        "ALTER TABLE ... ENGINE=InnoDB.")
    "FROM information_schema.tables AS t WHERE t.table_schema = $SCHEMA AND t.table_name = "
    "'$TABLE_session' AND t.engine <> 'InnoDB' "
    "UNION ALL " ROW("3", "sql-index", "CONCAT('the table ', t.table_name, ' has no unique index "
        "on (lock_name)')",
        "Without it a name can have two rows, so that tokens repeat.",
        "Create the index again, as in share/pawl/mysql-session.sql.")
    "FROM information_schema.tables AS t WHERE t.table_schema = $SCHEMA AND t.table_name = "
    "'$TABLE_session' AND NOT EXISTS (SELECT 1 FROM information_schema.statistics AS x WHERE "
    "x.table_schema = t.table_schema AND x.table_name = t.table_name AND x.non_unique = 0 "
    "GROUP BY x.index_name HAVING GROUP_CONCAT(x.column_name ORDER BY x.seq_in_index) = "
    "'lock_name')";
