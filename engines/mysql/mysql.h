/* SPDX-License-Identifier: Apache-2.0
 *
 * mysql.h - the driver for MariaDB and MySQL, inside.
 *
 *     mysql.c    the engine, statements, classifying errors
 *     steps.c    one statement, step by step, on libmariadb's non-blocking calls
 *     connect.c  connecting, in a thread of its own
 *     options.c  the options of a connection
 *     userlock.h layout=session
 */
#ifndef PAWL_MYSQL_DRIVER_H
#define PAWL_MYSQL_DRIVER_H

#include <mysql.h>
#include <pthread.h>
#include <signal.h>

#include "sql/sql.h"

/* The step that is under way on a connection. */
enum my_step { MY_IDLE, MY_CONNECT, MY_QUERY, MY_RESULT, MY_MORE, MY_PREPARE, MY_EXECUTE, MY_STORE,
    MY_NEXT };

/* Copied rows: cell i is the text at bytes + at[i] - 1; at[i] = 0: NULL. */
typedef struct my_rows {
    char *bytes;
    size_t used, room;
    size_t *at;
    size_t cells, cells_room;
    int columns;
    bool taken, no_memory;
} my_rows;

typedef struct my {
    MYSQL *mysql;
    MYSQL_STMT *stmts[SQL_STATEMENTS];
    MYSQL_STMT *stmt;  /* the statement under way */
    enum my_step step;
    bool over;         /* the step ended at once, with the result `early` */
    int early;
    sql_call *call;    /* the call under way; NULL: a text, or nothing */
    char *text;        /* the text of the query */
    MYSQL_RES *result;
    my_rows rows;
    int64_t from;      /* sql_link_within_limit */
    struct my_box *box; /* the connecting thread's data, while connecting */
    pthread_t thread;
    bool joined;
    pawl_wake wake;
} my;

/* ---- connect.c ------------------------------------------------------------------------------- */

/* Initialize libmariadb, once per process, before any other call. */
void my_library(pawl_env *env);
/* Begin to connect. Returns 0 if my_connected will be called, else a code. */
int my_connect(sql_link *link);
void my_connect_cancel(sql_link *link);
/* The connection was made, or failed with `error`. */
void my_connected(sql_link *link, MYSQL *mysql, unsigned error, const char *words);

/* ---- options.c ------------------------------------------------------------------------------- */

/* Set all options. Returns a descriptor to be closed after mysql_real_connect, or -1. */
int my_set_options(MYSQL *mysql, const sql_settings *s, unsigned seconds);

/* ---- steps.c --------------------------------------------------------------------------------- */

/* Begin or continue a step. May complete the call, or drop the link. */
void my_begin(sql_link *link, enum my_step step);
void my_go_on(sql_link *link, int events);
void my_rows_free(my_rows *rows);

/* TLS writes without MSG_NOSIGNAL: a SIGPIPE caused by such a write must not reach the program. */
typedef struct my_hushed {
    sigset_t old;
    bool had; /* a SIGPIPE was pending already */
} my_hushed;
void my_hush(my_hushed *h);
void my_unhush(const my_hushed *h);

/* ---- mysql.c --------------------------------------------------------------------------------- */

/* Global settings that guard against careless statements of people would refuse Pawl's, too. */
#define MY_NO_GUARDS "sql_safe_updates = 0, sql_big_selects = 1"

extern const char my_examine[], my_session_examine[]; /* examine.c */
extern const char my_probes[], my_session_probes[];   /* rights.c */

/* When all procedures exist: which one is invisible to this user, for lack of rights? Most
 * procedures are called by other procedures, some of them seldom, so that a refusal would come late
 * or be overlooked. */
#define MY_OR(name) " UNION ALL SELECT '$TABLE_" name "'"
#define MY_MAY_CALL                                                                                \
    "SELECT CONCAT('permission denied: GRANT EXECUTE ON PROCEDURE ', n.name, ' TO this user "      \
    "(security.md)') FROM (SELECT '$TABLE_now' AS name"                                            \
    MY_OR("lock") MY_OR("tell") MY_OR("ring") MY_OR("left") MY_OR("front") MY_OR("pass")           \
    MY_OR("take") MY_OR("acquire") MY_OR("release") MY_OR("renew") MY_OR("break")                  \
    MY_OR("count") MY_OR("latch") MY_OR("end") MY_OR("be") MY_OR("sweep") MY_OR("entry")           \
    MY_OR("hear") MY_OR("version")                                                                 \
    ") AS n WHERE NOT EXISTS (SELECT 1 FROM information_schema.routines AS r WHERE "               \
    "r.routine_schema = $SCHEMA AND r.routine_name = n.name)"

extern const sql_driver my_session_driver;
/* Refuse a server that is read only: the answer to SHOW GLOBAL VARIABLES LIKE 'read_only'. */
bool my_greeted(sql_link *link, const sql_reply *reply);
void my_fault(sql_fault *fault, unsigned error, const char *words);

#endif
