/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory_inspect.c - inspect, list and break, on the connection for these.
 *
 * pg_locks lists holders and waiters, of Pawl and of other programs. pg_stat_activity describes
 * their sessions: by the comment before the latest statement, if Pawl's user may see it, else by
 * application_name (advisory_say.c writes both). The rows are converted to the columns of
 * inspect.c. If no session reveals the name of a key, the key is shown as a number.
 */
#include <stdlib.h>

#include "advisory.h"

/* Columns of the answer. */
enum { CLASS, OBJECT, SUB, GRANTED, MODE, BACKEND, APPLICATION, QUERY, ADDRESS, IDLE, CHANGED, NOW,
    WAITED };

/* The number of columns of inspect.c. */
enum { COLUMNS = 14 };

typedef struct line {
    advisory_key key;
    bool named;
    char name[2 * PAWL_NAME_MAX + 1], owner[24], token[24], since[24], left[24], pid[24];
    char host[256], program[256], label[256];
    const char *column[COLUMNS];
} line;

static const char *text_at(const sql_reply *r, size_t row, int column)
{
    const char *text = r->cell(r, row, column);

    return text ? text : "";
}

static long long number_at(const sql_reply *r, size_t row, int column)
{
    return strtoll(text_at(r, row, column), NULL, 10);
}

static void set(char text[24], long long number)
{
    snprintf(text, 24, "%lld", number);
}

static void unhex(char *to, size_t room, const char *hex)
{
    size_t n = 0;
    unsigned byte;

    while (n + 1 < room && sscanf(hex, "%2x", &byte) == 1 && hex[0] != '-') {
        to[n++] = (char)byte;
        hex += hex[1] ? 2 : 1;
    }
    to[n] = 0;
}

/* Read the comment. False: there is none, or this user may not see it. */
static bool read_comment(line *l, const sql_reply *r, size_t row)
{
    long long lease, since, pid, changed = number_at(r, row, CHANGED);
    char name[2 * PAWL_NAME_MAX + 1], host[101], program[101], label[101];

    if (sscanf(text_at(r, row, QUERY), "/* pawl %510s %lld %lld %lld %100s %100s %100s", name,
               &lease, &since, &pid, host, program, label) != 7)
        return false;
    snprintf(l->name, sizeof l->name, "%s", name);
    unhex(l->host, sizeof l->host, host);
    unhex(l->program, sizeof l->program, program);
    unhex(l->label, sizeof l->label, label);
    set(l->pid, pid);
    l->named = true;
    if (text_at(r, row, IDLE)[0] != 't') /* a statement is under way */
        changed = 0;
    set(l->since, since ? number_at(r, row, NOW) - since : changed);
    set(l->left, lease > changed ? lease - changed : 0);
    return true;
}

static void read_application(line *l, const sql_reply *r, size_t row)
{
    const char *text = text_at(r, row, APPLICATION);
    long long token, pid;
    char host[64], program[64];

    if (sscanf(text, "pawl %lld %lld@%63s %63s", &token, &pid, host, program) < 3) {
        snprintf(l->program, sizeof l->program, "%s", text);
        snprintf(l->host, sizeof l->host, "%s", text_at(r, row, ADDRESS));
        return;
    }
    set(l->token, token);
    set(l->pid, pid);
    snprintf(l->host, sizeof l->host, "%s", host);
    snprintf(l->program, sizeof l->program, "%s", program);
}

static void read_line(line *l, const sql_reply *r, size_t row)
{
    bool granted = text_at(r, row, GRANTED)[0] == 't';
    char plain[32];
    size_t used = 0;

    l->key = (advisory_key){(uint32_t)number_at(r, row, CLASS), (uint32_t)number_at(r, row, OBJECT),
                            number_at(r, row, SUB) == 2};
    advisory_key_name(l->key, plain);
    for (const char *c = plain; *c; c++)
        used += (size_t)snprintf(l->name + used, sizeof l->name - used, "%02x", (unsigned char)*c);
    snprintf(l->owner, sizeof l->owner, "%016llx:%d", number_at(r, row, BACKEND), granted);
    set(l->since, -1);
    set(l->left, -1);
    read_application(l, r, row);
    read_comment(l, r, row);
    if (!granted)
        set(l->since, number_at(r, row, WAITED));
    memcpy(l->column, (const char *[COLUMNS]){l->name, "1", "0", granted ? "h" : "w", l->owner,
           strcmp(text_at(r, row, MODE), "ShareLock") ? "x" : "s", "0", l->token, l->since, l->left,
           l->pid, l->host, l->program, l->label}, sizeof l->column);
}

static const char *cell(const sql_reply *reply, size_t row, int column)
{
    const line *lines = reply->data;

    return row < reply->rows && column < COLUMNS ? lines[row].column[column] : NULL;
}

/* Copy a name that one session reveals to all other rows with the same key. */
static void share_names(line *lines, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (lines[i - 1].named && advisory_key_equal(lines[i].key, lines[i - 1].key))
            lines[i].column[0] = lines[i - 1].column[0], lines[i].named = true;
    for (size_t i = n; i-- > 1;)
        if (lines[i].named && advisory_key_equal(lines[i].key, lines[i - 1].key))
            lines[i - 1].column[0] = lines[i].column[0], lines[i - 1].named = true;
}

/* ---- the ops --------------------------------------------------------------------------------- */

static void fill_inspect(const sql_call *call, sql_params *p)
{
    const pawl_op *op = call->about;
    advisory_key key = {0};

    if (op->kind == PAWL_OP_INSPECT)
        key = advisory_key_of(op->name);
    advisory_say_inspect(sql_sessions_of(call), op->kind == PAWL_OP_INSPECT ? &key : NULL, p);
}

/* The server writes this text in place of a statement that this user may not see. */
static void tell_right(sql_sessions *pool, const sql_reply *reply)
{
    for (size_t i = 0; i < reply->rows; i++)
        if (!strcmp(text_at(reply, i, QUERY), "<insufficient privilege>"))
            sql_sessions_tell_right(pool, "pg_read_all_stats", "locks of other users are shown "
                                    "without names, leases and labels");
}

static bool answer_inspect(sql_call *call, const sql_reply *reply)
{
    pawl_op *op = call->about;
    line *lines = sql_cut(reply) ? NULL : calloc(reply->rows + 1, sizeof *lines);
    sql_reply shown = {.rows = reply->rows, .cell = cell, .data = lines};

    if (!lines) {
        sql_done(op, sql_cut(reply) ? PAWL_EBACKEND : PAWL_ENOMEM,
                 sql_cut(reply) ? SQL_CUT_TEXT : "out of memory");
        return true;
    }
    tell_right(sql_sessions_of(call), reply);
    for (size_t i = 0; i < reply->rows; i++)
        read_line(&lines[i], reply, i);
    share_names(lines, reply->rows);
    sql_done(op, sql_show(op, &shown), NULL);
    free(lines);
    return true;
}

static void fill_break(const sql_call *call, sql_params *p)
{
    const pawl_op *op = call->about;

    advisory_say_break(sql_sessions_of(call), advisory_key_of(op->name), p);
}

static bool answer_break(sql_call *call, const sql_reply *reply)
{
    const char *ended = reply->cell(reply, 0, 0);

    if (!ended)
        return false;
    sql_done(call->about, strcmp(ended, "0") ? 0 : PAWL_ENOTHELD, NULL);
    return true;
}

static void failed(sql_call *call, int code, const char *words)
{
    sql_done(call->about, code, words);
}

const sql_call_type advisory_inspection = {.fill = fill_inspect, .answer = answer_inspect,
    .failed = failed};
const sql_call_type advisory_breaks = {.fill = fill_break, .answer = answer_break,
    .failed = failed};
