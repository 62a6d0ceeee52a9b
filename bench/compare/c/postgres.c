/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres.c - what PostgreSQL itself offers: pg_advisory_lock, SELECT ... FOR UPDATE, and the lock
 * that everybody writes first (insert a row, try again after 5 ms). The address is a connection
 * string of libpq. None of them has a lease or a token.
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker.h"

struct sql_lock {
    PGconn *client;
    int number;
};

static void *open_client(const char *address)
{
    PGconn *c = PQconnectdb(address);

    if (PQstatus(c) != CONNECTION_OK)
        die("PostgreSQL", PQerrorMessage(c));
    return c;
}

static void close_client(void *client)
{
    PQfinish(client);
}

/* How many rows were changed. */
static int run(PGconn *c, const char *text)
{
    PGresult *r = PQexec(c, text);
    ExecStatusType status = PQresultStatus(r);
    int n = atoi(PQcmdTuples(r));

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        die("PostgreSQL", PQerrorMessage(c));
    PQclear(r);
    return n;
}

/* The number of the lock stands between the two. */
static int run_numbered(const struct sql_lock *l, const char *before, const char *behind)
{
    char text[200];

    snprintf(text, sizeof text, "%s%d%s", before, l->number, behind);
    return run(l->client, text);
}

static void prepare(const char *address)
{
    PGconn *c = open_client(address);

    run(c, "SET client_min_messages = warning");
    run(c, "DROP TABLE IF EXISTS bench_row, bench_poll");
    run(c, "CREATE TABLE bench_row (id INTEGER PRIMARY KEY)");
    run(c, "INSERT INTO bench_row SELECT generate_series(0, 511)");
    run(c, "CREATE TABLE bench_poll (id INTEGER PRIMARY KEY)");
    PQfinish(c);
}

/* Names end in the number of the lock. */
static void *new_lock(void *client, const char *name)
{
    struct sql_lock *l = malloc(sizeof *l);

    if (!l)
        die("malloc", "failed");
    *l = (struct sql_lock){client, atoi(strrchr(name, '-') + 1)};
    return l;
}

static void advisory_acquire(void *lock)
{
    run_numbered(lock, "SELECT pg_advisory_lock(", ")");
}

static void advisory_release(void *lock)
{
    run_numbered(lock, "SELECT pg_advisory_unlock(", ")");
}

static void row_acquire(void *lock)
{
    run(((struct sql_lock *)lock)->client, "BEGIN");
    run_numbered(lock, "SELECT id FROM bench_row WHERE id = ", " FOR UPDATE");
}

static void row_release(void *lock)
{
    run(((struct sql_lock *)lock)->client, "COMMIT");
}

static void poll_acquire(void *lock)
{
    while (!run_numbered(lock, "INSERT INTO bench_poll VALUES (", ") ON CONFLICT DO NOTHING"))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void poll_release(void *lock)
{
    if (run_numbered(lock, "DELETE FROM bench_poll WHERE id = ", "") != 1)
        die("PostgreSQL", "the row is gone");
}

const struct library library_pg_advisory = {"pg_advisory_lock", open_client, new_lock,
                                            advisory_acquire, advisory_release, close_client,
                                            NULL};
const struct library library_pg_row = {"pg_for_update", open_client, new_lock, row_acquire,
                                       row_release, close_client, prepare};
const struct library library_pg_poll = {"pg_insert_poll", open_client, new_lock, poll_acquire,
                                        poll_release, close_client, prepare};
