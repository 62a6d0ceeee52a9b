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

/* Opens a connection; NULL: the reason was printed. */
stock *stock_open(const char *url);
void stock_close(stock *s);
/* Creates the table again, with `pieces` pieces. Returns 0 or -1. */
int stock_fill(stock *s, int64_t pieces);
/* Returns how many pieces are left, or -1. */
int64_t stock_read(stock *s);
int stock_write(stock *s, int64_t pieces); /* 1: written, -1 */

/* The same with a token: the row stores the largest token so far, and refuses smaller ones. Reads
 * raise the token, too, else an old write could come between the read and the write of a newer
 * holder. -2: refused. */
int64_t stock_read_fenced(stock *s, uint64_t token);
int stock_write_fenced(stock *s, int64_t pieces, uint64_t token); /* 1, -2, -1 */

#endif
