/* SPDX-License-Identifier: Apache-2.0
 *
 * sql_postgres.c - the locks that PostgreSQL itself offers, for sql.c.
 */
#include <libpq-fe.h>
#include <string.h>

#include "sql.h"

static void *open_connection(void)
{
    PGconn *conn = PQconnectdb(sql_url);

    if (PQstatus(conn) != CONNECTION_OK) {
        fprintf(stderr, "%s", PQerrorMessage(conn));
        exit(1);
    }
    return conn;
}

/* The number of rows returned or changed. */
static int run(void *conn, const char *text)
{
    PGresult *result = PQexecParams(conn, text, 0, NULL, NULL, NULL, NULL, 0);
    ExecStatusType status = PQresultStatus(result);
    int rows = status == PGRES_TUPLES_OK ? PQntuples(result) : atoi(PQcmdTuples(result));

    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
        fprintf(stderr, "%s", PQresultErrorMessage(result));
        exit(1);
    }
    PQclear(result);
    return rows;
}

/* Pawl on the same kind of lock. */
static void *open_layout(void)
{
    static char url[4096];
    pawl_client *client;

    snprintf(url, sizeof url, "%.4000s%clayout=advisory", sql_url,
             strchr(sql_url, '?') ? '&' : '?');
    return bench_lock(&client, url, "bench", PAWL_FAIR);
}

static void advisory_acquire(void *conn)
{
    run(conn, "SELECT pg_advisory_lock(4711)");
}

static void advisory_release(void *conn)
{
    run(conn, "SELECT pg_advisory_unlock(4711)");
}

static void row_acquire(void *conn)
{
    run(conn, "BEGIN");
    run(conn, "SELECT 1 FROM bench_row WHERE id = 1 FOR UPDATE");
}

static void row_release(void *conn)
{
    run(conn, "COMMIT");
}

static void poll_acquire(void *conn)
{
    while (!run(conn, "INSERT INTO bench_poll VALUES (1) ON CONFLICT DO NOTHING"))
        bench_nap(5000000);
}

static void poll_release(void *conn)
{
    run(conn, "DELETE FROM bench_poll WHERE id = 1");
}

const struct subject sql_subjects[] = {
    {"pawl advisory", open_layout, bench_pawl_acquire, bench_pawl_release},
    {"advisory", open_connection, advisory_acquire, advisory_release},
    {"FOR UPDATE", open_connection, row_acquire, row_release},
    {"insert+poll", open_connection, poll_acquire, poll_release},
    {0},
};

void sql_prepare(void)
{
    PGconn *conn = open_connection();

    run(conn, "CREATE EXTENSION pg_stat_statements");
    run(conn, "CREATE TABLE bench_row (id integer PRIMARY KEY)");
    run(conn, "INSERT INTO bench_row VALUES (1)");
    run(conn, "CREATE TABLE bench_poll (id integer PRIMARY KEY)");
    PQfinish(conn);
}

int64_t sql_statements(void)
{
    PGconn *conn = open_connection();
    PGresult *result = PQexec(conn, "SELECT sum(calls) FROM pg_stat_statements");
    int64_t n = atoll(PQgetvalue(result, 0, 0));

    PQclear(result);
    PQfinish(conn);
    return n;
}
