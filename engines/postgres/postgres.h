/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres.h - what the parts of the module for PostgreSQL know of each other.
 */
#ifndef PAWL_POSTGRES_H
#define PAWL_POSTGRES_H

#include "sql/sql.h"

/* The server's process as the protocol's first messages told it; a pooler makes one up. */
int pg_backend(const sql_link *link);

/* words.c */
extern const char *const pg_statements[SQL_STATEMENTS];
extern const char *const pg_greeting[], *const pg_pooled_greeting[];
extern const char pg_check[];

#endif
