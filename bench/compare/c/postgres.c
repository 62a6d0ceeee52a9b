/* SPDX-License-Identifier: Apache-2.0
 *
 * postgres.c - the locks of PostgreSQL itself: pg_advisory_lock, SELECT ... FOR UPDATE, and the
 * usual home-made lock (insert a row, retry after 5 ms). The address is a connection string of
 * libpq. None of these locks has a lease or a token.
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>

#include "sql.h"
#include "worker.h"

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
static int run(void *client, const char *text)
{
    PGconn *c = client;
    PGresult *r = PQexec(c, text);
    ExecStatusType status = PQresultStatus(r);
    int n = atoi(PQcmdTuples(r));

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        die("PostgreSQL", PQerrorMessage(c));
    PQclear(r);
    return n;
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

static void *new_lock(void *client, const char *name, enum kind kind)
{
    return sql_lock_new(client, name, kind, run);
}

static void advisory_acquire(void *lock)
{
    sql_run_numbered(lock, "SELECT pg_advisory_lock(", ")");
}

static void advisory_release(void *lock)
{
    sql_run_numbered(lock, "SELECT pg_advisory_unlock(", ")");
}

static void poll_acquire(void *lock)
{
    sql_insert_poll(lock, "INSERT INTO bench_poll VALUES (", ") ON CONFLICT DO NOTHING");
}

static void poll_release(void *lock)
{
    if (sql_run_numbered(lock, "DELETE FROM bench_poll WHERE id = ", "") != 1)
        die("PostgreSQL", "the row is gone");
}

const struct library library_pg_advisory = {
    .name = "pg_advisory_lock", .open = open_client, .lock = new_lock, .acquire = advisory_acquire,
    .release = advisory_release, .close = close_client, .one_thread = true};
const struct library library_pg_row = {
    .name = "pg_for_update", .open = open_client, .lock = new_lock, .acquire = sql_row_acquire,
    .release = sql_row_release, .close = close_client, .prepare = prepare, .one_thread = true};
const struct library library_pg_poll = {
    .name = "pg_insert_poll", .open = open_client, .lock = new_lock, .acquire = poll_acquire,
    .release = poll_release, .close = close_client, .prepare = prepare, .one_thread = true};
