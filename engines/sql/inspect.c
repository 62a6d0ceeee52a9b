/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.c - the ops that only read: inspect, count, list. One statement answers all of them with
 * a row for each holder and waiter of the names between two bounds, in order, with its client
 * information. A row without an owner stands for a latch, or for a name that has only a summary.
 *
 * Columns: name in hex, type, value, role, owner, mode, permits, token, since and left in ms, pid,
 * host, program, label.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>

#include "kit/rows.h"
#include "sql.h"

enum column { NAME, TYPE, VALUE, ROLE, OWNER, MODE, PERMITS, TOKEN, SINCE, LEFT, PID, HOST, PROGRAM,
    LABEL };

/* The names from `from` up to, but not including, `to`. */
struct bounds {
    char from[PAWL_NAME_MAX + 1], to[PAWL_NAME_MAX + 2];
    size_t from_length, to_length;
};

static const char *text_at(const sql_reply *r, size_t row, int column)
{
    const char *text = r->cell(r, row, column);

    return text ? text : "";
}

/* Permits are cut to 32 bits, so that the sum over all rows can't overflow. */
static int64_t number_at(const sql_reply *r, size_t row, int column)
{
    int64_t number = strtoll(text_at(r, row, column), NULL, 10);

    return column == PERMITS && number > UINT32_MAX ? UINT32_MAX : number;
}

/* The value of a hex digit. Any other character gives some value from 0 to 15. */
static unsigned hex(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10) & 15;
}

static void name_at(const sql_reply *r, size_t row, char name[PAWL_NAME_MAX + 1])
{
    const char *text = text_at(r, row, NAME);
    size_t n = 0;

    for (; text[0] && text[1] && n < PAWL_NAME_MAX; text += 2)
        name[n++] = (char)(hex(text[0]) << 4 | hex(text[1]));
    name[n] = 0;
}

/* ---- showing --------------------------------------------------------------------------------- */

struct shown {
    const sql_reply *r;
    size_t from; /* the first row of the name */
};

static bool fill_row(void *of, size_t i, pawl_info *info, char id[KIT_ID_MAX])
{
    const struct shown *s = of;
    const sql_reply *r = s->r;
    size_t row = s->from + i;
    const char *owner = text_at(r, row, OWNER);
    uint64_t client = 0, seq = 0;
    bool holder = text_at(r, row, ROLE)[0] == 'h';

    sscanf(owner + (owner[0] == 'z' ? 2 : 0), "%16" SCNx64 ":%" SCNx64, &client, &seq);
    if (holder || text_at(r, row, ROLE)[0] == 'w')
        info->role = holder ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER;
    info->shared = text_at(r, row, MODE)[0] == 's';
    if (info->type == PAWL_TYPE_SEMAPHORE)
        info->permits = (uint64_t)number_at(r, row, PERMITS);
    info->token = holder ? (uint64_t)number_at(r, row, TOKEN) : 0;
    info->since_ms = number_at(r, row, SINCE);
    info->lease_ms = holder ? number_at(r, row, LEFT) : -1;
    info->owner = kit_owner_id(id, client, seq);
    info->pid = number_at(r, row, PID);
    info->host = text_at(r, row, HOST);
    info->program = text_at(r, row, PROGRAM);
    info->label = text_at(r, row, LABEL);
    return owner[0] != 0;
}

/* The rows from s->from on and before `to` are about one name. */
static pawl_info summarize(struct shown *s, size_t to, const char *name, char id[KIT_ID_MAX])
{
    int64_t type = to > s->from ? number_at(s->r, s->from, TYPE) : 0;

    return kit_summary(name, type == 2   ? PAWL_TYPE_SEMAPHORE
                             : type == 3 ? PAWL_TYPE_LATCH : PAWL_TYPE_LOCK,
                       type > 1 ? number_at(s->r, s->from, VALUE) : 0, fill_row, s, to - s->from,
                       id);
}

static int show(pawl_op *op, const sql_reply *r, size_t from, size_t to, const char *name)
{
    char id[KIT_ID_MAX];
    struct shown s = {r, from};
    pawl_info sum = summarize(&s, to, name, id);

    return kit_rows_show(op, &sum, fill_row, &s, op->kind == PAWL_OP_INSPECT ? to - from : 0);
}

static size_t end_of_name(const sql_reply *r, size_t from)
{
    size_t to = from + 1;

    while (to < r->rows && !strcmp(text_at(r, from, NAME), text_at(r, to, NAME)))
        to++;
    return to;
}

static int list(pawl_op *op, const sql_reply *r)
{
    char name[PAWL_NAME_MAX + 1];
    int code = 0;

    for (size_t i = 0, to; i < r->rows && !code; i = to) {
        to = end_of_name(r, i);
        name_at(r, i, name);
        if (!op->name || !fnmatch(op->name, name, 0))
            code = show(op, r, i, to, name);
    }
    return code;
}

static int count(pawl_op *op, const sql_reply *r)
{
    char id[KIT_ID_MAX];
    struct shown s = {r, 0};
    pawl_info sum = summarize(&s, r->rows, op->name, id);

    return kit_count(op, r->rows && number_at(r, 0, TYPE) ? (int)sum.type : -1,
                     op->mode == PAWL_MODE_LATCH ? sum.count : sum.available);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* All names that match begin with the part of the pattern before its first special character. */
static void bounds_of(struct bounds *b, const pawl_op *op)
{
    const char *name = op->name ? op->name : "*";
    size_t n = op->kind == PAWL_OP_LIST ? strcspn(name, "*?[\\") : strlen(name);

    n = n < PAWL_NAME_MAX ? n : PAWL_NAME_MAX;
    memcpy(b->from, name, n);
    memcpy(b->to, name, n);
    b->from_length = n;
    if (op->kind != PAWL_OP_LIST) { /* name + "\0" sorts directly after name */
        b->to[n++] = 0;
    } else {
        while (n && (unsigned char)b->to[n - 1] == 0xff)
            n--;
        if (n)
            b->to[n - 1]++;
        else /* larger than every name */
            memset(b->to, 0xff, n = sizeof b->to);
    }
    b->to_length = n;
}

static void fill_inspect(const sql_call *call, sql_params *p)
{
    const pawl_op *op = call->about;
    const struct bounds *b = op->engine[1];

    for (int i = 0; i < 2; i++) { /* once for each part of the statement */
        sql_add_bytes(p, b->from, b->from_length);
        sql_add_bytes(p, b->to, b->to_length);
    }
}

int sql_show(pawl_op *op, const sql_reply *reply)
{
    return op->kind == PAWL_OP_LIST ? list(op, reply) : show(op, reply, 0, reply->rows, op->name);
}

static bool answer_inspect(sql_call *call, const sql_reply *reply)
{
    pawl_op *op = call->about;
    int code;

    if (sql_cut(reply)) {
        sql_done(op, PAWL_EBACKEND, SQL_CUT_TEXT);
        return true;
    }
    code = op->kind == PAWL_OP_COUNT ? count(op, reply) : sql_show(op, reply);
    sql_done(op, code, NULL);
    return true;
}

static void inspect_failed(sql_call *call, int code, const char *words)
{
    sql_done(call->about, code, words);
}

void sql_inspect(sql *q, pawl_op *op)
{
    static const sql_call_type type = {.statement = SQL_INSPECT, .fill = fill_inspect,
        .answer = answer_inspect, .failed = inspect_failed};
    struct bounds *b = malloc(sizeof *b);

    op->engine[1] = b;
    if (!b) {
        sql_done(op, PAWL_ENOMEM, "out of memory");
        return;
    }
    bounds_of(b, op);
    sql_start(q, op, &type);
}
