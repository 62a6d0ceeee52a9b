/* SPDX-License-Identifier: Apache-2.0
 *
 * sql.c - see sql.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sql.h"
#include "worker.h"

struct sql_lock *sql_lock_new(void *client, const char *name, enum kind kind, sql_run_fn *run)
{
    struct sql_lock *lock = kind == EXCLUSIVE ? malloc(sizeof *lock) : NULL;

    if (kind != EXCLUSIVE)
        return NULL;
    if (!lock)
        die("malloc", "failed");
    *lock = (struct sql_lock){client, run, atoi(strrchr(name, '-') + 1)};
    return lock;
}

int sql_run_numbered(const struct sql_lock *lock, const char *before, const char *behind)
{
    char text[200];

    snprintf(text, sizeof text, "%s%d%s", before, lock->number, behind);
    return lock->run(lock->client, text);
}

void sql_row_acquire(void *arg)
{
    const struct sql_lock *lock = arg;

    lock->run(lock->client, "BEGIN");
    sql_run_numbered(lock, "SELECT id FROM bench_row WHERE id = ", " FOR UPDATE");
}

void sql_row_release(void *arg)
{
    const struct sql_lock *lock = arg;

    lock->run(lock->client, "COMMIT");
}

void sql_insert_poll(const struct sql_lock *lock, const char *before, const char *behind)
{
    while (!sql_run_numbered(lock, before, behind))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}
