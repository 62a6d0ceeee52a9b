/* SPDX-License-Identifier: Apache-2.0
 *
 * sql.h - the locks that are the same on every SQL server: a row locked by SELECT ... FOR UPDATE,
 * and the parts of a lock that is a row (insert the row, try again after 5 ms).
 */
#ifndef PAWL_COMPARE_SQL_H
#define PAWL_COMPARE_SQL_H

#include "worker.h"

/* Carry out a statement. Returns how many rows were changed, or the number in the first cell. */
typedef int sql_run_fn(void *client, const char *text);

struct sql_lock {
    void *client;
    sql_run_fn *run;
    int number;
};

/* Names end in the number of the lock. */
struct sql_lock *sql_lock_new(void *client, const char *name, enum kind kind, sql_run_fn *run);
/* Carry out a statement with the number of the lock between its two parts. */
int sql_run_numbered(const struct sql_lock *lock, const char *before, const char *behind);

void sql_row_acquire(void *lock);
void sql_row_release(void *lock);
/* The statement inserts the row of the lock, or changes nothing. */
void sql_insert_poll(const struct sql_lock *lock, const char *before, const char *behind);

#endif
