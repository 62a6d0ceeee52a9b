/* SPDX-License-Identifier: Apache-2.0
 *
 * sql.h - what bench_sql needs for each server: home-made locks, and a count of statements.
 */
#ifndef PAWL_BENCH_SQL_H
#define PAWL_BENCH_SQL_H

#include "common.h"

extern const char *sql_url;

/* The locks to compare with Pawl's; an entry without a name ends the list. Each lock opens its own
 * connection. */
extern const struct subject sql_subjects[];

/* Create the tables of these locks; called first. */
void sql_prepare(void);
/* How many statements clients have sent to the server until now. */
int64_t sql_statements(void);

#endif
