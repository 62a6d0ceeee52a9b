/* SPDX-License-Identifier: Apache-2.0
 *
 * mysql.c - the locks of MariaDB and MySQL themselves: GET_LOCK, SELECT ... FOR UPDATE, and the
 * usual home-made lock (insert a row, retry after 5 ms). The address is
 * mysql://USER@HOST:PORT/DATABASE. None of these locks has a lease or a token.
 */
#include <mysql.h>
#include <stdio.h>
#include <stdlib.h>

#include "sql.h"
#include "worker.h"

enum { DEADLOCK = 1213 };

static void *open_client(const char *address)
{
    char user[64] = "", host[128] = "", db[64] = "";
    unsigned port = 3306, tcp = MYSQL_PROTOCOL_TCP;
    MYSQL *c = mysql_init(NULL);

    sscanf(address, "mysql://%63[^@]@%127[^:]:%u/%63[^?]", user, host, &port, db);
    mysql_optionsv(c, MYSQL_OPT_PROTOCOL, &tcp);
    if (!mysql_real_connect(c, host, user, NULL, db, port, NULL, 0))
        die("MySQL", mysql_error(c));
    return c;
}

static void close_client(void *client)
{
    mysql_close(client);
}

/* The number in the first cell, or how many rows were changed; 0 after a deadlock. */
static int run(void *client, const char *text)
{
    MYSQL *c = client;
    MYSQL_RES *result;
    MYSQL_ROW row;
    int n;

    if (mysql_query(c, text)) {
        if (mysql_errno(c) != DEADLOCK)
            die("MySQL", mysql_error(c));
        return 0;
    }
    result = mysql_store_result(c);
    if (!result)
        return (int)mysql_affected_rows(c);
    row = mysql_fetch_row(result);
    n = row && row[0] ? atoi(row[0]) : 0;
    mysql_free_result(result);
    return n;
}

static void prepare(const char *address)
{
    MYSQL *c = open_client(address);
    char text[100];

    run(c, "DROP TABLE IF EXISTS bench_row, bench_poll");
    run(c, "CREATE TABLE bench_row (id INTEGER PRIMARY KEY) ENGINE=InnoDB");
    run(c, "CREATE TABLE bench_poll (id INTEGER PRIMARY KEY) ENGINE=InnoDB");
    run(c, "BEGIN");
    for (int i = 0; i < 512; i++) {
        snprintf(text, sizeof text, "INSERT INTO bench_row VALUES (%d)", i);
        run(c, text);
    }
    run(c, "COMMIT");
    mysql_close(c);
}

static void *new_lock(void *client, const char *name, enum kind kind)
{
    return sql_lock_new(client, name, kind, run);
}

static void user_acquire(void *lock)
{
    if (sql_run_numbered(lock, "SELECT GET_LOCK('bench-", "', 100)") != 1)
        die("GET_LOCK", "no lock within 100 s");
}

static void user_release(void *lock)
{
    sql_run_numbered(lock, "SELECT RELEASE_LOCK('bench-", "')");
}

static void poll_acquire(void *lock)
{
    sql_insert_poll(lock, "INSERT IGNORE INTO bench_poll VALUES (", ")");
}

static void poll_release(void *lock)
{
    while (!sql_run_numbered(lock, "DELETE FROM bench_poll WHERE id = ", ""))
        ; /* a deadlock: nothing was changed */
}

const struct library library_get_lock = {
    .name = "get_lock", .open = open_client, .lock = new_lock, .acquire = user_acquire,
    .release = user_release, .close = close_client, .one_thread = true};
const struct library library_my_row = {
    .name = "my_for_update", .open = open_client, .lock = new_lock, .acquire = sql_row_acquire,
    .release = sql_row_release, .close = close_client, .prepare = prepare, .one_thread = true};
const struct library library_my_poll = {
    .name = "my_insert_poll", .open = open_client, .lock = new_lock, .acquire = poll_acquire,
    .release = poll_release, .close = close_client, .prepare = prepare, .one_thread = true};
