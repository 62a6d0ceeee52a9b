/* SPDX-License-Identifier: Apache-2.0
 *
 * sql_stock_postgres.c - the stock in PostgreSQL.
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

#include "sql_stock.h"

stock *stock_open(const char *url)
{
    PGconn *conn = PQconnectdb(url);

    if (PQstatus(conn) == CONNECTION_OK)
        return (stock *)conn;
    fprintf(stderr, "%s", PQerrorMessage(conn));
    PQfinish(conn);
    return NULL;
}

void stock_close(stock *s)
{
    PQfinish((PGconn *)s);
}

/* The number in the first cell, or of the rows that were changed; -1: failed, -2: no row. */
static int64_t run(stock *s, const char *text, int64_t first, int64_t second)
{
    char a[24], b[24];
    const char *values[] = {a, b};
    int n = second >= 0 ? 2 : first >= 0 ? 1 : 0;
    int64_t number = -1;
    PGresult *result;

    snprintf(a, sizeof a, "%lld", (long long)first);
    snprintf(b, sizeof b, "%lld", (long long)second);
    result = PQexecParams((PGconn *)s, text, n, NULL, values, NULL, NULL, 0);
    if (PQresultStatus(result) == PGRES_TUPLES_OK)
        number = PQntuples(result) ? atoll(PQgetvalue(result, 0, 0)) : -2;
    else if (PQresultStatus(result) == PGRES_COMMAND_OK)
        number = atoll(PQcmdTuples(result));
    else
        fprintf(stderr, "%s", PQresultErrorMessage(result));
    PQclear(result);
    return number;
}

int stock_fill(stock *s, int64_t pieces)
{
    run(s, "SET client_min_messages = warning", -1, -1);
    if (run(s, "DROP TABLE IF EXISTS pawl_stock", -1, -1) < 0 ||
        run(s, "CREATE TABLE pawl_stock (item integer PRIMARY KEY, pieces bigint, token bigint)",
            -1, -1) < 0)
        return -1;
    return run(s, "INSERT INTO pawl_stock VALUES (1, $1::bigint, 0)", pieces, -1) == 1 ? 0 : -1;
}

int64_t stock_read(stock *s)
{
    return run(s, "SELECT pieces FROM pawl_stock WHERE item = 1", -1, -1);
}

int stock_write(stock *s, int64_t pieces)
{
    return (int)run(s, "UPDATE pawl_stock SET pieces = $1::bigint WHERE item = 1", pieces, -1);
}

int64_t stock_read_fenced(stock *s, uint64_t token)
{
    return run(s, "UPDATE pawl_stock SET token = $1::bigint WHERE item = 1 AND token <= $1::bigint "
                  "RETURNING pieces", (int64_t)token, -1);
}

int stock_write_fenced(stock *s, int64_t pieces, uint64_t token)
{
    return (int)run(s, "UPDATE pawl_stock SET pieces = $1::bigint WHERE item = 1 AND "
                       "token = $2::bigint RETURNING 1", pieces, (int64_t)token);
}
