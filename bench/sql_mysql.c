/* SPDX-License-Identifier: Apache-2.0
 *
 * sql_mysql.c - the locks that MariaDB itself offers, for sql.c.
 */
#include <mysql.h>

#include "sql.h"

static void *open_connection(void)
{
    char user[64] = "", host[128] = "", db[64] = "";
    unsigned port = 3306, tcp = MYSQL_PROTOCOL_TCP;
    MYSQL *mysql = mysql_init(NULL);

    sscanf(sql_url, "mysql://%63[^@]@%127[^:]:%u/%63[^?]", user, host, &port, db);
    mysql_optionsv(mysql, MYSQL_OPT_PROTOCOL, &tcp);
    if (!mysql_real_connect(mysql, host, user, NULL, db, port, NULL, 0)) {
        fprintf(stderr, "%s\n", mysql_error(mysql));
        exit(1);
    }
    return mysql;
}

/* The number in the first cell, or how many rows changed. */
static int64_t run(void *mysql, const char *text)
{
    MYSQL_RES *result;
    MYSQL_ROW row;
    int64_t n;

    if (mysql_query(mysql, text) && mysql_errno(mysql) == 1213)
        return 0; /* a deadlock: nothing was changed */
    if (mysql_errno(mysql)) {
        fprintf(stderr, "%s\n", mysql_error(mysql));
        exit(1);
    }
    result = mysql_store_result(mysql);
    if (!result)
        return (int64_t)mysql_affected_rows(mysql);
    row = mysql_fetch_row(result);
    n = row && row[0] ? atoll(row[mysql_num_fields(result) - 1]) : 0;
    mysql_free_result(result);
    return n;
}

static void user_acquire(void *mysql)
{
    run(mysql, "SELECT GET_LOCK('bench', 100)");
}

static void user_release(void *mysql)
{
    run(mysql, "SELECT RELEASE_LOCK('bench')");
}

static void row_acquire(void *mysql)
{
    run(mysql, "BEGIN");
    run(mysql, "SELECT id FROM bench_row WHERE id = 1 FOR UPDATE");
}

static void row_release(void *mysql)
{
    run(mysql, "COMMIT");
}

static void poll_acquire(void *mysql)
{
    while (!run(mysql, "INSERT IGNORE INTO bench_poll VALUES (1)"))
        bench_nap(5000000);
}

static void poll_release(void *mysql)
{
    while (!run(mysql, "DELETE FROM bench_poll WHERE id = 1"))
        ;
}

const struct subject sql_subjects[] = {
    {"GET_LOCK", open_connection, user_acquire, user_release},
    {"FOR UPDATE", open_connection, row_acquire, row_release},
    {"insert+poll", open_connection, poll_acquire, poll_release},
    {0},
};

void sql_prepare(void)
{
    MYSQL *mysql = open_connection();

    run(mysql, "CREATE TABLE bench_row (id INTEGER PRIMARY KEY) ENGINE=InnoDB");
    run(mysql, "INSERT INTO bench_row VALUES (1)");
    run(mysql, "CREATE TABLE bench_poll (id INTEGER PRIMARY KEY) ENGINE=InnoDB");
    mysql_close(mysql);
}

int64_t sql_statements(void)
{
    MYSQL *mysql = open_connection();
    int64_t n = run(mysql, "SHOW GLOBAL STATUS LIKE 'Questions'");

    mysql_close(mysql);
    return n;
}
