/* SPDX-License-Identifier: Apache-2.0
 *
 * sql.h - what bench_sql wants of each server: the locks people make of it by hand, and a count.
 */
#ifndef PAWL_BENCH_SQL_H
#define PAWL_BENCH_SQL_H

#include "common.h"

extern const char *sql_url;

/* The locks beside Pawl's, up to one without a name. Each opens a connection of its own. */
extern const struct subject sql_subjects[];

/* Tables for them, before anything else. */
void sql_prepare(void);
/* How many statements clients have sent to the server until now. */
int64_t sql_statements(void);

#endif
