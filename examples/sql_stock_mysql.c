/* SPDX-License-Identifier: Apache-2.0
 *
 * sql_stock_mysql.c - the stock in MariaDB or MySQL.
 */
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>

#include "sql_stock.h"

/* mysql://user@host:port/database, without escapes and passwords: this is an example. */
stock *stock_open(const char *url)
{
    char user[64] = "", host[128] = "localhost", db[64] = "";
    unsigned port = 3306, tcp = MYSQL_PROTOCOL_TCP;
    MYSQL *mysql = mysql_init(NULL);

    if (sscanf(url, "mysql://%63[^@]@%127[^:]:%u/%63[^?]", user, host, &port, db) != 4) {
        fprintf(stderr, "write mysql://user@host:port/database\n");
        return NULL;
    }
    mysql_optionsv(mysql, MYSQL_OPT_PROTOCOL, &tcp);
    if (mysql_real_connect(mysql, host, user, NULL, db, port, NULL, CLIENT_FOUND_ROWS))
        return (stock *)mysql;
    fprintf(stderr, "%s\n", mysql_error(mysql));
    mysql_close(mysql);
    return NULL;
}

void stock_close(stock *s)
{
    mysql_close((MYSQL *)s);
}

/* Returns how many rows were found, or -1. */
static int64_t run(stock *s, const char *text)
{
    MYSQL *mysql = (MYSQL *)s;

    if (!mysql_query(mysql, text))
        return (int64_t)mysql_affected_rows(mysql);
    fprintf(stderr, "%s\n", mysql_error(mysql));
    return -1;
}

int stock_fill(stock *s, int64_t pieces)
{
    char text[128];

    snprintf(text, sizeof text, "INSERT INTO pawl_stock VALUES (1, %lld, 0)", (long long)pieces);
    if (run(s, "DROP TABLE IF EXISTS pawl_stock") < 0 ||
        run(s, "CREATE TABLE pawl_stock (item INTEGER PRIMARY KEY, pieces BIGINT, token BIGINT)") <
            0)
        return -1;
    return run(s, text) == 1 ? 0 : -1;
}

int64_t stock_read(stock *s)
{
    MYSQL *mysql = (MYSQL *)s;
    int64_t pieces = -1;
    MYSQL_RES *result;
    MYSQL_ROW row;

    if (mysql_query(mysql, "SELECT pieces FROM pawl_stock WHERE item = 1")) {
        fprintf(stderr, "%s\n", mysql_error(mysql));
        return -1;
    }
    result = mysql_store_result(mysql);
    row = result ? mysql_fetch_row(result) : NULL;
    if (row)
        pieces = atoll(row[0]);
    mysql_free_result(result);
    return pieces;
}

int stock_write(stock *s, int64_t pieces)
{
    char text[128];

    snprintf(text, sizeof text, "UPDATE pawl_stock SET pieces = %lld WHERE item = 1",
             (long long)pieces);
    return (int)run(s, text);
}

/* Raise the token, then read: if a larger token comes in between, our write fails. */
int64_t stock_read_fenced(stock *s, uint64_t token)
{
    char text[160];
    int64_t found;

    snprintf(text, sizeof text,
             "UPDATE pawl_stock SET token = %llu WHERE item = 1 AND token <= %llu",
             (unsigned long long)token, (unsigned long long)token);
    found = run(s, text);
    return found == 1 ? stock_read(s) : found == 0 ? -2 : -1;
}

int stock_write_fenced(stock *s, int64_t pieces, uint64_t token)
{
    char text[160];
    int64_t found;

    snprintf(text, sizeof text,
             "UPDATE pawl_stock SET pieces = %lld WHERE item = 1 AND token = %llu",
             (long long)pieces, (unsigned long long)token);
    found = run(s, text);
    return found == 1 ? 1 : found == 0 ? -2 : -1;
}
