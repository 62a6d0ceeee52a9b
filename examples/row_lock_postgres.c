/* SPDX-License-Identifier: Apache-2.0
 *
 * row_lock_postgres.c - the transaction form on PostgreSQL: a row of your own, locked by your own
 * transaction. Two connections want the same row; the second one is told that the row is locked,
 * waits, and continues when the first has committed.
 *
 *     cc row_lock_postgres.c $(pkg-config --cflags --libs pawl libpq)
 *     row_lock_postgres postgres://user@host:port/database
 */
#include <libpq-fe.h>
#include <pawl-sql.h>
#include <stdio.h>

static enum pawl_sql_outcome run(PGconn *conn, const char *text)
{
    PGresult *result = PQexec(conn, text);
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    enum pawl_sql_outcome outcome = PQstatus(conn) == CONNECTION_OK
                                        ? pawl_sql_postgres_outcome(state) : PAWL_SQL_LOST;

    PQclear(result);
    return outcome;
}

/* Begin, and lock the row. */
static enum pawl_sql_outcome take(PGconn *conn, int64_t wait_ms)
{
    char limit[64], text[128];
    enum pawl_sql_outcome outcome;

    pawl_sql_limit(limit, sizeof limit, PAWL_SQL_POSTGRES, wait_ms);
    pawl_sql_for_update(text, sizeof text, PAWL_SQL_POSTGRES,
                        "SELECT pieces FROM pawl_row WHERE item = 1", wait_ms);
    run(conn, "BEGIN");
    if (*limit)
        run(conn, limit);
    outcome = run(conn, text);
    if (outcome != PAWL_SQL_DONE)
        run(conn, "ROLLBACK");
    return outcome;
}

int main(int argc, char **argv)
{
    PGconn *a = PQconnectdb(argc > 1 ? argv[1] : ""), *b = PQconnectdb(argc > 1 ? argv[1] : "");
    int good;

    run(a, "SET client_min_messages = warning");
    run(a, "DROP TABLE IF EXISTS pawl_row");
    run(a, "CREATE TABLE pawl_row (item integer PRIMARY KEY, pieces bigint)");
    run(a, "INSERT INTO pawl_row VALUES (1, 10)");
    good = take(a, PAWL_SQL_FOREVER) == PAWL_SQL_DONE;
    good &= take(b, PAWL_SQL_NOWAIT) == PAWL_SQL_TAKEN;
    good &= take(b, 100) == PAWL_SQL_TAKEN;
    good &= run(a, "UPDATE pawl_row SET pieces = pieces - 1 WHERE item = 1") == PAWL_SQL_DONE;
    good &= run(a, "COMMIT") == PAWL_SQL_DONE;
    good &= take(b, PAWL_SQL_NOWAIT) == PAWL_SQL_DONE;
    good &= run(b, "COMMIT") == PAWL_SQL_DONE;
    run(a, "DROP TABLE pawl_row");
    PQfinish(a);
    PQfinish(b);
    printf("%s\n", good ? "taken, refused, and had in turn" : "that did not go as it should");
    return good ? 0 : 1;
}
