/* SPDX-License-Identifier: Apache-2.0
 *
 * sql_stock.h - the stock of sql_stock.c: a row in a table, by libpq or by libmariadb.
 *
 *     CREATE TABLE pawl_stock (item INTEGER PRIMARY KEY, pieces BIGINT, token BIGINT)
 */
#ifndef SQL_STOCK_H
#define SQL_STOCK_H

#include <stdint.h>

typedef struct stock stock;

/* A connection of its own; NULL: the reason was printed. */
stock *stock_open(const char *url);
void stock_close(stock *s);
/* The table anew, with so many pieces. 0 or -1. */
int stock_fill(stock *s, int64_t pieces);
/* How many are left, or -1. */
int64_t stock_read(stock *s);
int stock_write(stock *s, int64_t pieces); /* 1: written, -1 */

/* The same for who has a token: the row remembers the largest one it has seen, and refuses smaller
 * ones. Reading counts, too: else an old write could slip in between a newer holder's read and its
 * write. -2: refused. */
int64_t stock_read_fenced(stock *s, uint64_t token);
int stock_write_fenced(stock *s, int64_t pieces, uint64_t token); /* 1, -2, -1 */

#endif
