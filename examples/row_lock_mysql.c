/* SPDX-License-Identifier: Apache-2.0
 *
 * row_lock_mysql.c - the transaction form on MariaDB: a row of your own, locked by your own
 * transaction. Two connections want the same row; the second one is told that the row is locked,
 * waits, and continues when the first has committed.
 *
 *     cc row_lock_mysql.c sql_stock_mysql.c $(pkg-config --cflags --libs pawl libmariadb)
 *     row_lock_mysql mysql://user@host:port/database
 */
#include <mysql.h>
#include <pawl-sql.h>
#include <stdio.h>

#include "sql_stock.h"

static enum pawl_sql_outcome run(MYSQL *mysql, const char *text)
{
    enum pawl_sql_outcome outcome;

    mysql_query(mysql, text);
    outcome = pawl_sql_mysql_outcome(mysql_errno(mysql));
    mysql_free_result(mysql_store_result(mysql));
    return outcome;
}

/* Begin, and lock the row. */
static enum pawl_sql_outcome take(MYSQL *mysql, int64_t wait_ms)
{
    char limit[64], text[128];
    enum pawl_sql_outcome outcome;

    pawl_sql_limit(limit, sizeof limit, PAWL_SQL_MARIADB, wait_ms);
    pawl_sql_for_update(text, sizeof text, PAWL_SQL_MARIADB,
                        "SELECT pieces FROM pawl_row WHERE item = 1", wait_ms);
    run(mysql, "BEGIN");
    if (*limit)
        run(mysql, limit);
    outcome = run(mysql, text);
    if (outcome != PAWL_SQL_DONE)
        run(mysql, "ROLLBACK");
    return outcome;
}

int main(int argc, char **argv)
{
    stock *s = stock_open(argc > 1 ? argv[1] : ""), *t = stock_open(argc > 1 ? argv[1] : "");
    MYSQL *a = (MYSQL *)s, *b = (MYSQL *)t;
    int good;

    if (!a || !b)
        return 1;
    run(a, "DROP TABLE IF EXISTS pawl_row");
    run(a, "CREATE TABLE pawl_row (item INTEGER PRIMARY KEY, pieces BIGINT) ENGINE=InnoDB");
    run(a, "INSERT INTO pawl_row VALUES (1, 10)");
    good = take(a, PAWL_SQL_FOREVER) == PAWL_SQL_DONE;
    good &= take(b, PAWL_SQL_NOWAIT) == PAWL_SQL_TAKEN;
    good &= take(b, 100) == PAWL_SQL_TAKEN;
    good &= run(a, "UPDATE pawl_row SET pieces = pieces - 1 WHERE item = 1") == PAWL_SQL_DONE;
    good &= run(a, "COMMIT") == PAWL_SQL_DONE;
    good &= take(b, PAWL_SQL_NOWAIT) == PAWL_SQL_DONE;
    good &= run(b, "COMMIT") == PAWL_SQL_DONE;
    run(a, "DROP TABLE pawl_row");
    stock_close(s);
    stock_close(t);
    printf("%s\n", good ? "taken, refused, and had in turn" : "that did not go as it should");
    return good ? 0 : 1;
}
