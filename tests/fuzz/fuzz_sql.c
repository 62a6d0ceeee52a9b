/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_sql.c - the engines on SQL servers without their drivers, with servers that answer with any
 * rows: wrong types, too few and too many columns, NULL, huge numbers, any messages, any errors.
 *
 * A script (world.h) begins with a digit: 0 tables, with messages that the server pushes (as
 * PostgreSQL), 1 tables, with a listener (as MariaDB), 2 layout=advisory, 3 a pooler. Then, besides
 * ops:
 *
 *     0ROWS ... 7ROWS   the server of that connection answers with these rows: cells end with '|',
 *                       rows with a newline; a cell that is just '_' is NULL
 *     E3TEXT            the server of the first connection refuses: enum sql_sense, and a text
 *     MTEXT             a message
 *     @                 every server answers its requests as a correct server would, and grants
 *                       acquires. &: the same, but acquires are queued
 *     !                 the first server hangs up         +   100 ms pass       *   5 s pass
 *     ^0 ... ^9         cancel that op
 */
#include "postgres/advisory.h"
#include "postgres/postgres.h"
#include "world.h"

enum { CONNS = 64, CELLS = 4096, BACKEND = 1 };

/* A driver's connection. */
typedef struct conn {
    sql_link *link;
    bool opening, asked;
    char text[64];             /* the latest text sent */
    char owner[SQL_OWNER_MAX]; /* the owner in the latest call */
    bool says;                 /* the latest statement is a text, not prepared: layout=advisory */
} conn;

static conn *conns[CONNS];
static size_t nconns;

/* ---- the driver ------------------------------------------------------------------------------ */

static int driver_start(sql_link *link, const char *address)
{
    conn *c = nconns < CONNS ? calloc(1, sizeof *c) : NULL;

    DEMAND(!address);
    if (!c)
        return PAWL_ENOMEM;
    *c = (conn){.link = link, .opening = true};
    link->conn = c;
    conns[nconns++] = c;
    return 0;
}

static void driver_end(sql_link *link)
{
    size_t i = 0;

    while (conns[i] != link->conn)
        i++;
    free(conns[i]);
    memmove(conns + i, conns + i + 1, (--nconns - i) * sizeof *conns);
}

static void driver_ready(sql_link *link, int events)
{
    (void)link;
    (void)events;
    abort(); /* this driver watches no descriptor */
}

static int driver_query(sql_link *link, const char *text)
{
    conn *c = link->conn;

    c->asked = true;
    snprintf(c->text, sizeof c->text, "%s", text);
    return 0;
}

static int driver_send(sql_link *link, sql_call *call)
{
    conn *c = link->conn;
    sql_params params = {.n = 0};
    int out = 0;

    for (struct list *l = link->calls.next; l != &link->calls; l = l->next)
        out++;
    if (out > (link->sql->driver->own_listener ? 1 : 4))
        return 1;
    call->type->fill(call, &params);
    DEMAND(params.n <= SQL_PARAMS_MAX);
    for (int i = 0; i < params.n; i++)
        DEMAND(params.list[i].type == SQL_INT || params.list[i].text);
    snprintf(c->text, sizeof c->text, "%s", params.text ? params.text : "");
    snprintf(c->owner, sizeof c->owner, "%s",
             params.n > 1 && params.list[1].type == SQL_TEXT ? params.list[1].text : "");
    c->says = params.text != NULL;
    return 0;
}

int pg_backend(const sql_link *link)
{
    (void)link;
    return BACKEND;
}

static bool tables_greeted(sql_link *link, const sql_reply *reply)
{
    const char *name = reply->cell(reply, 0, 0);

    return !sql_set_schema(link->sql, name && strlen(name) < SQL_SCHEMA_MAX ? name : "", "'s'");
}

static const char *const statements[SQL_STATEMENTS] = {"@_acquire", "@_release", "@_renew",
    "@_break", "@_latch", "@_entry", "@_look", "@_hear"};
static const char *const greeting[] = {"greet", NULL, "second", NULL};

#define DRIVER                                                                                     \
    .scheme = "postgres", .product = "SQL", .port = 1, .can_pool = true, .resolves = true,         \
    .start = driver_start, .ready = driver_ready, .query = driver_query, .send = driver_send,      \
    .end = driver_end
#define TABLES                                                                                     \
    .statements = statements, .greeting = greeting, .pooled_greeting = greeting,                   \
    .listener_greeting = greeting, .version = "version", .lock = "lock", .unlock = "unlock",       \
    .here = "here", .check = "check", .schema = "make @\n;;\nmake $TABLE", .greeted = tables_greeted

static const sql_driver tables = {DRIVER, TABLES, .messages_are_hints = true};
static const sql_driver tables_listener = {DRIVER, TABLES, .own_listener = true};
const sql_driver advisory_driver = {DRIVER, .greeting = advisory_greeting,
    .greeted = advisory_greeted};

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct rows {
    char *cells[CELLS]; /* row by row; NULL after the last cell */
    size_t n, first[CELLS];
} rows;

static const char *cell(const sql_reply *reply, size_t row, int column)
{
    const rows *r = reply->data;
    size_t at, end;

    if (row >= reply->rows)
        return NULL;
    at = r->first[row] + (size_t)column;
    end = row + 1 < reply->rows ? r->first[row + 1] : r->n;
    return at < end ? r->cells[at] : NULL;
}

/* Each cell is in a block of exactly its length, so that a read after the end is detected. */
static void add_cell(rows *r, const char *text, size_t length)
{
    char *copy = NULL;

    if (r->n == CELLS)
        return;
    if (length != 1 || text[0] != '_') {
        copy = malloc(length + 1);
        DEMAND(copy);
        memcpy(copy, text, length);
        copy[length] = 0;
        copy[strlen(copy)] = 0;
    }
    r->cells[r->n++] = copy;
}

static size_t read_rows(rows *r, const char *text, size_t length)
{
    size_t n = 0, begin = 0;

    r->n = 0;
    for (size_t i = 0; i < length && r->n < CELLS; i++) {
        if (i == 0 || (text[i - 1] == '\n' && n < CELLS))
            r->first[n++] = r->n;
        if (text[i] == '|' || text[i] == '\n' || i + 1 == length) {
            size_t end = text[i] == '|' || text[i] == '\n' ? i : i + 1;

            add_cell(r, text + begin, end - begin);
            begin = i + 1;
        }
    }
    return n;
}

static void deliver(conn *c, const sql_reply *reply, const sql_fault *fault)
{
    sql_link *link = c->link;

    if (c->opening)
        return;
    if (link->state == LINK_GREETING && c->asked) {
        c->asked = false;
        sql_link_greeted(link, reply, fault);
    } else if (link->state == LINK_READY && !list_empty(&link->calls)) {
        sql_link_answered(link, reply, fault);
    }
}

static void say(conn *c, const char *text, size_t length)
{
    static rows r;
    sql_reply reply = {.cell = cell, .data = &r, .rows = read_rows(&r, text, length)};

    deliver(c, &reply, NULL);
    while (r.n)
        free(r.cells[--r.n]);
}

static void refuse(conn *c, const world_step *step)
{
    static const int codes[] = {PAWL_EBACKEND, PAWL_EAUTH, PAWL_EINVAL, PAWL_ENOTSUP};
    sql_fault fault = {.sense = SQL_REFUSED, .code = PAWL_EBACKEND};
    char kind = step->length ? step->text[0] : '0';

    fault.sense = (enum sql_sense)((unsigned char)kind % SQL_BROKEN);
    fault.code = codes[step->length % 4];
    snprintf(fault.words, sizeof fault.words, "%.*s", (int)step->length, step->text);
    deliver(c, NULL, &fault);
}

/* ---- what a good server says ----------------------------------------------------------------- */

static void answer_greeting(conn *c)
{
    const char *text = c->text;

    if (!strcmp(text, "version"))
        say(c, "2", 1);
    else if (!strcmp(text, "greet"))
        say(c, "here", 4);
    else if (strstr(text, "SET statement_timeout"))
        say(c, "1|000000010000000000000001", 26);
    else
        say(c, "", 0);
}

static void answer_call(conn *c, bool queues)
{
    const sql_call *call = list_entry(c->link->calls.next, sql_call, link);
    char text[160];

    if (c->says)
        snprintf(text, sizeof text, "%s", strstr(c->text, "unlock") ? "t" : "0 1 7 1000000 0");
    else if (call->type->statement == SQL_ACQUIRE && queues)
        snprintf(text, sizeof text, "QUEUED %s 0 500 0 1000000", c->owner);
    else if (call->type->statement == SQL_ACQUIRE)
        snprintf(text, sizeof text, "GRANTED %s 7 1 30000 1000000", c->owner);
    else if (call->type->statement == SQL_RENEW)
        snprintf(text, sizeof text, "1000000 11");
    else if (call->type->statement == SQL_INSPECT || call->type->statement == SQL_HEAR)
        snprintf(text, sizeof text, "61|1|0|h|%016x:1|x|0|7|5|50|17|host|program|label",
                 (unsigned)WORLD_CLIENT);
    else
        snprintf(text, sizeof text, "OK %s 1000000", c->owner);
    if (call->type->statement == SQL_HEAR)
        text[0] = 0;
    say(c, text, strlen(text));
}

static void serve_all(world *w, bool queues)
{
    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < nconns; i++) {
            conn *c = conns[i];

            if (c->link->state == LINK_GREETING && c->asked)
                answer_greeting(c);
            else if (c->link->state == LINK_READY && !list_empty(&c->link->calls))
                answer_call(c, queues);
        }
        world_turn(w);
    }
}

/* ---- the engines ----------------------------------------------------------------------------- */

static int open_tables(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    return sql_open(self, &tables, env, url, err);
}

static int open_listener(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    return sql_open(self, &tables_listener, env, url, err);
}

static int open_advisory(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    advisory_key_init(env);
    return sql_sessions_open(self, &advisory_layout, env, url, err);
}

static void close_advisory(void *self)
{
    sql_sessions_close(self);
}

static void submit_advisory(void *self, pawl_op *op)
{
    sql_sessions_submit(self, op);
}

static void cancel_advisory(void *self, pawl_op *op)
{
    sql_sessions_cancel(self, op);
}

static const pawl_engine engines[] = {
    {.state_size = sizeof(sql), .open = open_tables, .close = sql_close, .submit = sql_submit,
     .cancel = sql_cancel},
    {.state_size = sizeof(sql), .open = open_listener, .close = sql_close, .submit = sql_submit,
     .cancel = sql_cancel},
    {.state_size = sizeof(sql_sessions), .open = open_advisory, .close = close_advisory,
     .submit = submit_advisory, .cancel = cancel_advisory},
    {.state_size = sizeof(sql), .open = open_tables, .close = sql_close, .submit = sql_submit,
     .cancel = sql_cancel},
};

/* Called at each turn: connections open at once. */
static void turned(world *w)
{
    (void)w;
    for (size_t i = 0; i < nconns; i++)
        if (conns[i]->opening) {
            conns[i]->opening = false;
            sql_link_connected(conns[i]->link);
            i = 0;
        }
}

static void message(world *w, const world_step *step)
{
    char text[1024];

    if (w->engine == &engines[2] || step->length >= sizeof text)
        return;
    memcpy(text, step->text, step->length);
    text[step->length] = 0;
    sql_message(w->self, text);
}

static void take(world *w, const world_step *step)
{
    conn *first = nconns ? conns[0] : NULL;

    if (step->letter >= '0' && step->letter <= '7' && nconns)
        say(conns[(size_t)(step->letter - '0') % nconns], step->text, step->length);
    else if (step->letter == 'E' && first)
        refuse(first, step);
    else if (step->letter == 'M')
        message(w, step);
    else if (step->letter == '@' || step->letter == '&')
        serve_all(w, step->letter == '&');
    else if (step->letter == '!' && first)
        sql_link_drop(first->link, PAWL_ECONN, "closed by the server");
    else
        world_do(w, step);
    world_turn(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"x://h?prefix=t", "x://h,h2", "x://h?connections=3",
                                       "x://h?pooler=transaction"};
    static world w;
    world_step step;
    size_t at = 1, n = size ? (uint8_t)(data[0] - '0') % 4 : 0;

    if (!size)
        return 0;
    world_turned = turned;
    DEMAND(world_open(&w, &engines[n], urls[n]));
    for (int i = 0; i < 64 && world_next(data, size, &at, &step); i++)
        take(&w, &step);
    world_close(&w);
    DEMAND(!nconns);
    return 0;
}
