/* SPDX-License-Identifier: Apache-2.0
 *
 * steps.c - one statement, step by step, on libmariadb's non-blocking calls.
 *
 *     text:  QUERY --> RESULT --> MORE --> RESULT ... --> answered
 *     call:  [PREPARE] --> EXECUTE --> STORE --> NEXT --> STORE ... --> answered
 *
 * A step begins with the library's _start, and continues with _cont each time the socket is ready
 * for the events that the library waits for. CALL returns the procedure's rows and then its own
 * status; the first rows are the answer. A connection runs one statement at a time.
 */
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "mysql.h"

/* ---- rows ------------------------------------------------------------------------------------ */

void my_rows_free(my_rows *rows)
{
    free(rows->bytes);
    free(rows->at);
    *rows = (my_rows){0};
}

static bool room_for(my_rows *rows, size_t bytes)
{
    size_t room = rows->room ? rows->room : 256;
    char *more;

    while (room - rows->used < bytes)
        room *= 2;
    if (room != rows->room) {
        more = realloc(rows->bytes, room);
        if (!more)
            return false;
        rows->bytes = more;
        rows->room = room;
    }
    if (rows->cells == rows->cells_room) {
        size_t cells = rows->cells_room ? 2 * rows->cells_room : 16;
        size_t *at = realloc(rows->at, cells * sizeof *at);

        if (!at)
            return false;
        rows->at = at;
        rows->cells_room = cells;
    }
    return true;
}

/* Room for a cell of `length` bytes; NULL: no memory. */
static char *add_cell(my_rows *rows, size_t length, bool null)
{
    char *cell;

    if (!room_for(rows, length + 1)) {
        rows->no_memory = true;
        return NULL;
    }
    rows->at[rows->cells++] = null ? 0 : rows->used + 1;
    cell = rows->bytes + rows->used;
    cell[length] = 0;
    rows->used += length + 1;
    return cell;
}

static void copy_result(my *m)
{
    unsigned n = mysql_num_fields(m->result);
    MYSQL_ROW row;

    m->rows.columns = (int)n;
    m->rows.taken = true;
    while ((row = mysql_fetch_row(m->result))) {
        const unsigned long *lengths = mysql_fetch_lengths(m->result);

        for (unsigned i = 0; i < n; i++) {
            char *cell = add_cell(&m->rows, row[i] ? lengths[i] : 0, !row[i]);

            if (cell && row[i])
                memcpy(cell, row[i], lengths[i]);
        }
    }
}

/* Each cell is fetched twice: first the length, then the bytes. */
static void copy_cells(my *m, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned long length = 0;
        my_bool null = 0;
        MYSQL_BIND bind = {.buffer_type = MYSQL_TYPE_STRING, .length = &length, .is_null = &null};
        char *cell;

        mysql_stmt_fetch_column(m->stmt, &bind, i, 0);
        cell = add_cell(&m->rows, null ? 0 : length, null);
        bind.buffer = cell;
        bind.buffer_length = length;
        if (cell && !null)
            mysql_stmt_fetch_column(m->stmt, &bind, i, 0);
    }
}

static void copy_statement(my *m)
{
    unsigned n = mysql_stmt_field_count(m->stmt);
    MYSQL_BIND bind[16];
    unsigned long lengths[16];
    int result;

    memset(bind, 0, sizeof bind);
    for (unsigned i = 0; i < n && i < 16; i++) {
        bind[i].buffer_type = MYSQL_TYPE_STRING;
        bind[i].length = &lengths[i];
    }
    m->rows.columns = (int)n;
    m->rows.taken = true;
    if (n > 16 || mysql_stmt_bind_result(m->stmt, bind))
        return;
    while (!(result = mysql_stmt_fetch(m->stmt)) || result == MYSQL_DATA_TRUNCATED)
        copy_cells(m, n);
}

static const char *cell(const sql_reply *reply, size_t row, int column)
{
    const my_rows *rows = reply->data;
    size_t i = row * (size_t)rows->columns + (size_t)column;

    if (column >= rows->columns || i >= rows->cells || !rows->at[i])
        return NULL;
    return rows->bytes + rows->at[i] - 1;
}

/* ---- completing a statement ------------------------------------------------------------------ */

static void complete(sql_link *link, const sql_fault *fault)
{
    my *m = link->conn;
    my_rows rows = m->rows;
    sql_reply reply = {.cell = cell, .data = &rows};
    sql_fault full = {.sense = SQL_REFUSED, .code = PAWL_ENOMEM, .words = "out of memory"};

    m->rows = (my_rows){0};
    m->from = -1;
    m->step = MY_IDLE;
    m->stmt = NULL;
    m->call = NULL;
    free(m->text);
    m->text = NULL;
    reply.rows = rows.columns ? rows.cells / (size_t)rows.columns : 0;
    if (rows.no_memory)
        fault = &full;
    sql_link_watch(link, (int)mysql_get_socket(m->mysql), UV_READABLE);
    if (link->conn != m)
        ;
    else if (link->state == LINK_GREETING)
        sql_link_greeted(link, &reply, fault);
    else
        sql_link_answered(link, &reply, fault);
    my_rows_free(&rows);
}

static void failed(sql_link *link)
{
    my *m = link->conn;
    bool stmt = m->step >= MY_PREPARE && m->stmt;
    unsigned error = stmt ? mysql_stmt_errno(m->stmt) : mysql_errno(m->mysql);
    sql_fault fault;

    my_fault(&fault, error, stmt ? mysql_stmt_error(m->stmt) : mysql_error(m->mysql));
    if (fault.sense == SQL_BROKEN) {
        sql_link_drop(link, PAWL_ECONN, "%s", fault.words);
        return;
    }
    if (stmt && (m->step == MY_PREPARE || error == 1243 || error == 1615))
        link->prepared[m->call->type->statement] = false;
    complete(link, &fault);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* events < 0: begin. Returns the events that the library waits for; 0: the step is over with result
 * *ret. */
static int advance(my *m, int events, int *ret)
{
    bool first = events < 0;
    MYSQL_RES *result = NULL;
    int status = 0;

    *ret = 0;
    switch (m->step) {
    case MY_QUERY:
        status = first ? mysql_real_query_start(ret, m->mysql, m->text, strlen(m->text))
                       : mysql_real_query_cont(ret, m->mysql, events);
        break;
    case MY_RESULT:
        status = first ? mysql_store_result_start(&result, m->mysql)
                       : mysql_store_result_cont(&result, m->mysql, events);
        m->result = status ? NULL : result;
        *ret = !status && !result && mysql_errno(m->mysql);
        break;
    case MY_MORE:
        status = first ? mysql_next_result_start(ret, m->mysql)
                       : mysql_next_result_cont(ret, m->mysql, events);
        break;
    case MY_PREPARE:
        status = first ? mysql_stmt_prepare_start(ret, m->stmt, m->text, strlen(m->text))
                       : mysql_stmt_prepare_cont(ret, m->stmt, events);
        break;
    case MY_EXECUTE:
        status = first ? mysql_stmt_execute_start(ret, m->stmt)
                       : mysql_stmt_execute_cont(ret, m->stmt, events);
        break;
    case MY_STORE:
        status = first ? mysql_stmt_store_result_start(ret, m->stmt)
                       : mysql_stmt_store_result_cont(ret, m->stmt, events);
        break;
    case MY_NEXT:
        status = first ? mysql_stmt_next_result_start(ret, m->stmt)
                       : mysql_stmt_next_result_cont(ret, m->stmt, events);
        break;
    default:
        break;
    }
    return status;
}

void my_hush(my_hushed *h)
{
    sigset_t pipe, pending;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    h->had = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &h->old);
}

void my_unhush(const my_hushed *h)
{
    const struct timespec none = {0};
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (!h->had)
        sigtimedwait(&pipe, NULL, &none);
    pthread_sigmask(SIG_SETMASK, &h->old, NULL);
}

static int advance_quietly(my *m, int events, int *ret)
{
    my_hushed hushed;
    int status;

    if (!mysql_get_ssl_cipher(m->mysql))
        return advance(m, events, ret);
    my_hush(&hushed);
    status = advance(m, events, ret);
    my_unhush(&hushed);
    return status;
}

/* The parameters are bound directly before sending, because the library does not copy them. A call
 * that was given up while its statement was prepared has no parameters any more, and is not
 * sent. */
static bool bind_params(my *m, sql_params *params, MYSQL_BIND bind[SQL_PARAMS_MAX])
{
    if (!m->call->about)
        return false;
    memset(bind, 0, SQL_PARAMS_MAX * sizeof *bind);
    m->call->type->fill(m->call, params);
    for (int i = 0; i < params->n; i++) {
        sql_param *p = &params->list[i];

        bind[i].buffer_type = p->type == SQL_INT     ? MYSQL_TYPE_LONGLONG
                              : p->type == SQL_BYTES ? MYSQL_TYPE_BLOB
                                                     : MYSQL_TYPE_STRING;
        bind[i].buffer = p->type == SQL_INT ? (void *)&p->number : (void *)(uintptr_t)p->text;
        bind[i].buffer_length = p->length;
        bind[i].length = &bind[i].buffer_length;
    }
    return !mysql_stmt_bind_param(m->stmt, bind);
}

static enum my_step after(my *m, int ret)
{
    switch (m->step) {
    case MY_QUERY:
        return MY_RESULT;
    case MY_RESULT:
        if (m->result && !m->rows.taken)
            copy_result(m);
        mysql_free_result(m->result);
        m->result = NULL;
        return mysql_more_results(m->mysql) ? MY_MORE : MY_IDLE;
    case MY_MORE:
        return ret < 0 ? MY_IDLE : MY_RESULT;
    case MY_PREPARE:
        return MY_EXECUTE;
    case MY_EXECUTE:
    case MY_NEXT:
        if (m->step == MY_NEXT && ret < 0)
            return MY_IDLE;
        if (mysql_stmt_field_count(m->stmt))
            return MY_STORE;
        return mysql_stmt_more_results(m->stmt) ? MY_NEXT : MY_IDLE;
    case MY_STORE:
        if (!m->rows.taken)
            copy_statement(m);
        mysql_stmt_free_result(m->stmt);
        return mysql_stmt_more_results(m->stmt) ? MY_NEXT : MY_IDLE;
    default:
        return MY_IDLE;
    }
}

static int poll_events(int status)
{
    return (status & MYSQL_WAIT_READ ? UV_READABLE : 0) |
           (status & MYSQL_WAIT_WRITE ? UV_WRITABLE : 0);
}

/* Run one step. Returns the events that the library waits for; 0: the step is over with result
 * *ret. */
static int one_step(my *m, int events, int *ret)
{
    MYSQL_BIND bind[SQL_PARAMS_MAX];
    sql_params params = {.n = 0};

    if (m->step == MY_EXECUTE && events < 0 && !bind_params(m, &params, bind)) {
        *ret = 1;
        return 0;
    }
    return advance_quietly(m, events, ret);
}

static void watch(sql_link *link, int events)
{
    const my *m = link->conn;

    sql_link_watch(link, (int)mysql_get_socket(m->mysql), events);
}

/* A step is over: run the next steps. */
static void go_on(sql_link *link, int ret)
{
    my *m = link->conn;
    int status = 0;

    while (!status) {
        if (ret > 0) {
            failed(link);
            return;
        }
        m->step = after(m, ret);
        if (m->step == MY_IDLE) {
            complete(link, NULL);
            return;
        }
        status = one_step(m, -1, &ret);
    }
    watch(link, poll_events(status));
}

/* An answer that is there at once is processed in the next turn of the loop: the sender is not
 * ready for the answer yet, and processing the answer may send again. */
void my_begin(sql_link *link, enum my_step step)
{
    my *m = link->conn;
    int status;

    m->step = step;
    status = one_step(m, -1, &m->early);
    m->over = !status;
    watch(link, m->over ? UV_WRITABLE : poll_events(status));
}

void my_go_on(sql_link *link, int events)
{
    my *m = link->conn;
    int ret = m->early, status = 0;

    if (!m->over)
        status = one_step(m, (events & UV_READABLE ? MYSQL_WAIT_READ : 0) |
                                 (events & UV_WRITABLE ? MYSQL_WAIT_WRITE : 0), &ret);
    m->over = false;
    if (status)
        watch(link, poll_events(status));
    else
        go_on(link, ret);
}
