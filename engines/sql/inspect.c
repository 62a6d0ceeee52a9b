/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.c - the ops that only read: inspect, count, list. One statement answers all of them: a
 * row for each holder and waiter of the names between two bounds, in order, with what is known of
 * its client; a row without an owner for a latch, or for what only its summary tells of.
 *
 * Columns: name in hex, type, value, role, owner, mode, permits, token, since and left in ms, pid,
 * host, program, label.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>

#include "sql.h"

enum column { NAME, TYPE, VALUE, ROLE, OWNER, MODE, PERMITS, TOKEN, SINCE, LEFT, PID, HOST, PROGRAM,
    LABEL };

/* The names from `from` on and before `to`, or just `from`. */
struct bounds {
    char from[PAWL_NAME_MAX + 1], to[PAWL_NAME_MAX + 2];
    size_t from_length, to_length;
};

static const char *text_at(const sql_reply *r, size_t row, int column)
{
    const char *text = r->cell(r, row, column);

    return text ? text : "";
}

/* Sums of as many as there may be rows must not overflow. */
static int64_t number_at(const sql_reply *r, size_t row, int column)
{
    int64_t number = strtoll(text_at(r, row, column), NULL, 10);

    return column == PERMITS && number > UINT32_MAX ? UINT32_MAX : number;
}

/* Of what is no digit, something from 0 to 15 as well. */
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

static bool is_role(const sql_reply *r, size_t row, char role)
{
    return text_at(r, row, ROLE)[0] == role;
}

/* ---- showing --------------------------------------------------------------------------------- */

/* Tells owners apart without showing what a release would need. */
static void describe(const sql_reply *r, size_t row, pawl_info *info, char id[16])
{
    const char *owner = text_at(r, row, OWNER);
    uint64_t client = 0, seq = 0, h;

    sscanf(owner + (owner[0] == 'z' ? 2 : 0), "%16" SCNx64 ":%" SCNx64, &client, &seq);
    h = (client ^ seq * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);
    snprintf(id, 16, "%08x", (unsigned)(h >> 32));
    info->owner = id;
    info->pid = number_at(r, row, PID);
    info->host = text_at(r, row, HOST);
    info->program = text_at(r, row, PROGRAM);
    info->label = text_at(r, row, LABEL);
}

static int show_row(pawl_op *op, const sql_reply *r, size_t row, const char *name, uint64_t type)
{
    bool holder = is_role(r, row, 'h');
    char id[16];
    pawl_info info = {.size = sizeof info, .name = name, .type = type,
                      .role = holder ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER,
                      .shared = text_at(r, row, MODE)[0] == 's',
                      .permits = type == PAWL_TYPE_SEMAPHORE
                                     ? (uint64_t)number_at(r, row, PERMITS) : 0,
                      .token = holder ? (uint64_t)number_at(r, row, TOKEN) : 0,
                      .since_ms = number_at(r, row, SINCE),
                      .lease_ms = holder ? number_at(r, row, LEFT) : -1, .wait_ms = -1};

    describe(r, row, &info, id);
    return op->row(op->row_arg, &info);
}

/* The rows from `from` on and before `to` are about one name. */
static pawl_info summarize(const sql_reply *r, size_t from, size_t to, int64_t *used)
{
    pawl_info info = {.size = sizeof info, .role = PAWL_ROLE_SUMMARY, .since_ms = -1,
                      .lease_ms = -1, .wait_ms = -1, .host = "", .program = "", .label = "",
                      .owner = ""};
    int64_t type = to > from ? number_at(r, from, TYPE) : 0;
    bool shared = true;

    *used = 0;
    info.type = type == 2 ? PAWL_TYPE_SEMAPHORE : type == 3 ? PAWL_TYPE_LATCH : PAWL_TYPE_LOCK;
    info.count = type > 1 ? number_at(r, from, VALUE) : 0;
    for (size_t i = from; i < to; i++) {
        info.waiters += is_role(r, i, 'w');
        if (is_role(r, i, 'w') && number_at(r, i, SINCE) > info.wait_ms)
            info.wait_ms = number_at(r, i, SINCE);
        if (!is_role(r, i, 'h'))
            continue;
        info.holders++;
        shared &= text_at(r, i, MODE)[0] == 's';
        *used += number_at(r, i, PERMITS);
        if ((uint64_t)number_at(r, i, TOKEN) > info.token)
            info.token = (uint64_t)number_at(r, i, TOKEN);
        if (number_at(r, i, SINCE) > info.since_ms)
            info.since_ms = number_at(r, i, SINCE);
    }
    info.shared = shared && info.holders > 0;
    if (info.type == PAWL_TYPE_SEMAPHORE)
        info.available = info.count > *used ? info.count - *used : 0;
    return info;
}

static int show(pawl_op *op, const sql_reply *r, size_t from, size_t to, const char *name)
{
    char id[16];
    int64_t used;
    pawl_info info = summarize(r, from, to, &used);
    int code;

    info.name = name;
    if (info.holders) {
        info.lease_ms = number_at(r, from, LEFT);
        describe(r, from, &info, id);
    }
    code = op->row(op->row_arg, &info);
    if (op->kind == PAWL_OP_INSPECT)
        for (size_t i = from; i < to && !code; i++)
            if (text_at(r, i, OWNER)[0])
                code = show_row(op, r, i, name, info.type);
    return code;
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
    int64_t used, type = r->rows ? number_at(r, 0, TYPE) : 0;
    pawl_info info = summarize(r, 0, r->rows, &used);

    if (type && type != (op->mode == PAWL_MODE_PERMITS ? 2 : 3))
        return pawl_error_set(op->err, PAWL_ESTATE, "\"%s\" is in use as something else", op->name);
    if (op->mode == PAWL_MODE_LATCH) {
        op->value = type == 3 ? info.count : 0;
        return 0;
    }
    if (!type && op->count <= 0)
        return pawl_error_set(op->err, PAWL_ESTATE, "\"%s\" is not in use, so it has no capacity",
                              op->name);
    op->value = type ? info.available : op->count;
    return 0;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* All that can match begins as the pattern does, up to its first special character. */
static void bounds_of(struct bounds *b, const pawl_op *op)
{
    const char *name = op->name ? op->name : "*";
    size_t n = op->kind == PAWL_OP_LIST ? strcspn(name, "*?[\\") : strlen(name);

    n = n < PAWL_NAME_MAX ? n : PAWL_NAME_MAX;
    memcpy(b->from, name, n);
    memcpy(b->to, name, n);
    b->from_length = n;
    if (op->kind != PAWL_OP_LIST) { /* the next longer name is the first that is too much */
        b->to[n++] = 0;
    } else {
        while (n && (unsigned char)b->to[n - 1] == 0xff)
            n--;
        if (n)
            b->to[n - 1]++;
        else /* no name has so many of these */
            memset(b->to, 0xff, n = sizeof b->to);
    }
    b->to_length = n;
}

static void fill_inspect(const sql_call *call, sql_params *p)
{
    const pawl_op *op = call->about;
    const struct bounds *b = op->engine[1];

    for (int i = 0; i < 2; i++) { /* once for each of its two parts */
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
        sql_done(op, PAWL_EBACKEND, "more than " SQL_ROWS_TEXT " holders and waiters: ask for "
                                    "fewer names");
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
