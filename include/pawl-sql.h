/* SPDX-License-Identifier: Apache-2.0
 *
 * pawl-sql.h - the transaction form: a lock on a row of your own, in a transaction of your own.
 *
 * If all the work is in one SQL database, a row lock of that database is the better lock: the lock
 * ends with the transaction, needs no lease and no token, and a process that was stopped finds its
 * transaction gone instead of writing late. The functions here build the statement for each server
 * and classify its errors; your program connects, sends and commits. No library is needed.
 *
 *     char limit[64], text[256];
 *
 *     pawl_sql_limit(limit, sizeof limit, PAWL_SQL_POSTGRES, 500);
 *     pawl_sql_for_update(text, sizeof text, PAWL_SQL_POSTGRES,
 *                         "SELECT pieces FROM stock WHERE item = $1", 500);
 *     // BEGIN; run `limit` unless it is ""; run `text`; UPDATE ...; COMMIT
 */
#ifndef PAWL_SQL_HEADER
#define PAWL_SQL_HEADER

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Transaction form ------------------------------------------------------------------------ */

/* These functions need no library and no connection: the program sends the statements itself,
 * inside a transaction. A wait_ms is a limit in milliseconds, or one of these: */
#define PAWL_SQL_FOREVER (-1) /* as long as the server allows */
#define PAWL_SQL_NOWAIT 0     /* refused at once if another transaction has one of the rows */
#define PAWL_SQL_SKIP (-2)    /* leave out rows that others have locked: for work queues */

enum pawl_sql_dialect { PAWL_SQL_POSTGRES, PAWL_SQL_MARIADB, PAWL_SQL_MYSQL };

/* The result of a statement, by the caller's next step. */
enum pawl_sql_outcome {
    PAWL_SQL_DONE = 0,
    PAWL_SQL_TAKEN = 1,    /* another transaction kept the row: roll back, or try again */
    PAWL_SQL_DEADLOCK = 2, /* given up for another transaction: roll back, begin again at once */
    PAWL_SQL_LOST = 3,     /* the connection and its transaction are gone; if COMMIT was sent,
                              the outcome is unknown: check whether your change is there */
    PAWL_SQL_FAILED = 4    /* anything else */
};

/* The statement to run first inside the transaction so that a wait ends after wait_ms: "" if none
 * is needed. Returns 0, or -1 if the text doesn't fit. */
static inline int pawl_sql_limit(char *ret, size_t size, enum pawl_sql_dialect dialect,
                                 int64_t wait_ms)
{
    int n = 0;

    if (size)
        ret[0] = 0;
    if (wait_ms > 0 && dialect == PAWL_SQL_POSTGRES)
        n = snprintf(ret, size, "SET LOCAL lock_timeout = %lld", (long long)wait_ms);
    else if (wait_ms > 0 && dialect == PAWL_SQL_MYSQL) /* whole seconds, and for the session */
        n = snprintf(ret, size, "SET SESSION innodb_lock_wait_timeout = %lld",
                     (long long)((wait_ms + 999) / 1000));
    return size && n >= 0 && (size_t)n < size ? 0 : -1;
}

/* `select` with an addition that locks the rows found until the transaction ends. Returns 0, or -1
 * if the text doesn't fit. */
static inline int pawl_sql_for_update(char *ret, size_t size, enum pawl_sql_dialect dialect,
                                      const char *select, int64_t wait_ms)
{
    char end[40] = "";
    int n;

    if (wait_ms == PAWL_SQL_NOWAIT)
        strcpy(end, " NOWAIT");
    else if (wait_ms == PAWL_SQL_SKIP)
        strcpy(end, " SKIP LOCKED");
    else if (wait_ms > 0 && dialect == PAWL_SQL_MARIADB) /* whole seconds */
        snprintf(end, sizeof end, " WAIT %lld", (long long)((wait_ms + 999) / 1000));
    n = snprintf(ret, size, "%s FOR UPDATE%s", select, end);
    return n >= 0 && (size_t)n < size ? 0 : -1;
}

/* Classify a SQLSTATE of PostgreSQL (PQresultErrorField, PG_DIAG_SQLSTATE; NULL or "": no error).
 * Call PQstatus() first: without a connection there is no SQLSTATE. */
static inline enum pawl_sql_outcome pawl_sql_postgres_outcome(const char *sqlstate)
{
    if (!sqlstate || !*sqlstate || !strncmp(sqlstate, "00", 2))
        return PAWL_SQL_DONE;
    if (!strcmp(sqlstate, "55P03"))
        return PAWL_SQL_TAKEN;
    if (!strcmp(sqlstate, "40P01") || !strcmp(sqlstate, "40001"))
        return PAWL_SQL_DEADLOCK;
    if (!strncmp(sqlstate, "08", 2) || !strncmp(sqlstate, "57P", 3))
        return PAWL_SQL_LOST;
    return PAWL_SQL_FAILED;
}

/* Classify an error number of MariaDB or MySQL (mysql_errno; 0: no error). After TAKEN the
 * transaction is still open, without the refused statement. */
static inline enum pawl_sql_outcome pawl_sql_mysql_outcome(unsigned error)
{
    switch (error) {
    case 0:
        return PAWL_SQL_DONE;
    case 1205: /* lock wait time-out; NOWAIT on MariaDB */
    case 3572: /* NOWAIT on MySQL */
        return PAWL_SQL_TAKEN;
    case 1213:
        return PAWL_SQL_DEADLOCK;
    case 1053: /* shutdown */
    case 1927: /* killed */
    case 2006: /* gone away */
    case 2013: /* lost during the query */
    case 2055:
    case 4031: /* idle for too long */
        return PAWL_SQL_LOST;
    default:
        return PAWL_SQL_FAILED;
    }
}

#ifdef __cplusplus
}
#endif
#endif
