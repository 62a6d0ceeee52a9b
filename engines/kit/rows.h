/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h - rows of INSPECT and LIST, the answer of COUNT, and refusals that several engines share.
 *
 * An engine describes one holder or waiter at a time (kit_row_fn). The summary is computed from
 * these rows; an engine that knows better numbers (because it did not read all rows) replaces the
 * numbers of the summary before kit_rows_show.
 */
#ifndef PAWL_KIT_ROWS_H
#define PAWL_KIT_ROWS_H

#include "engine.h"

#define KIT_ID_MAX 24

/* Describe holder or waiter number i of `of`. The caller has set name, type and unknown values. Set
 * `role` to HOLDER or WAITER: any other row is neither counted nor shown. `id` is room for a text
 * of `row->owner`. The texts must last until the next call. Returns false if the row is counted,
 * but not shown. */
typedef bool kit_row_fn(void *of, size_t i, pawl_info *row, char id[KIT_ID_MAX]);

static inline pawl_info kit_row(const char *name, uint64_t type)
{
    return (pawl_info){.size = sizeof(pawl_info), .name = name, .role = PAWL_ROLE_SUMMARY,
                       .type = type, .since_ms = -1, .lease_ms = -1, .wait_ms = -1, .host = "",
                       .program = "", .label = "", .owner = ""};
}

static inline void kit_copy_owner(pawl_info *to, const pawl_info *from)
{
    to->pid = from->pid;
    to->host = from->host;
    to->program = from->program;
    to->label = from->label;
    to->owner = from->owner;
}

static inline void kit_add_row(pawl_info *sum, const pawl_info *row)
{
    if (row->role == PAWL_ROLE_WAITER) {
        sum->waiters++;
        sum->wait_ms = row->since_ms > sum->wait_ms ? row->since_ms : sum->wait_ms;
    } else if (row->role == PAWL_ROLE_HOLDER) {
        sum->shared = row->shared && (sum->shared || !sum->holders);
        sum->holders++;
        sum->token = row->token > sum->token ? row->token : sum->token;
        sum->since_ms = row->since_ms > sum->since_ms ? row->since_ms : sum->since_ms;
    }
}

/* The summary of n rows, which names the first holder. `count`: a semaphore's capacity, a latch's
 * count. `id` must last as long as the summary. */
static inline pawl_info kit_summary(const char *name, uint64_t type, int64_t count,
                                    kit_row_fn *fill, void *of, size_t n, char id[KIT_ID_MAX])
{
    pawl_info sum = kit_row(name, type), row;
    size_t first = n;
    int64_t used = 0;

    for (size_t i = 0; i < n; i++) {
        row = kit_row(name, type);
        fill(of, i, &row, id);
        kit_add_row(&sum, &row);
        if (row.role != PAWL_ROLE_HOLDER)
            continue;
        first = first < n ? first : i;
        used += (int64_t)row.permits;
    }
    if (first < n) { /* fill again, since later rows may have overwritten the texts */
        row = kit_row(name, type);
        fill(of, first, &row, id);
        kit_copy_owner(&sum, &row);
        sum.lease_ms = row.lease_ms;
    }
    sum.count = count;
    if (type == PAWL_TYPE_SEMAPHORE)
        sum.available = count > used ? count - used : 0;
    return sum;
}

/* Show the summary and n rows. Returns the first code other than 0 that op->row returns. */
static inline int kit_rows_show(pawl_op *op, const pawl_info *sum, kit_row_fn *fill, void *of,
                                size_t n)
{
    int code = op->row(op->row_arg, sum);

    for (size_t i = 0; i < n && !code; i++) {
        char id[KIT_ID_MAX];
        pawl_info row = kit_row(sum->name, sum->type);

        if (fill(of, i, &row, id) && row.role != PAWL_ROLE_SUMMARY)
            code = op->row(op->row_arg, &row);
    }
    return code;
}

/* A text that distinguishes owners, but can't be used to release their locks. */
static inline char *kit_owner_id(char id[KIT_ID_MAX], uint64_t client, uint64_t seq)
{
    uint64_t h = (client ^ seq * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);

    snprintf(id, KIT_ID_MAX, "%08x", (unsigned)(h >> 32));
    return id;
}

/* The text of a refused ACQUIRE or COUNT: PAWL_ESTATE or PAWL_EINVAL. Returns the code. */
static inline int kit_refusal(const pawl_op *op, int code)
{
    if (code == PAWL_ESTATE && op->kind == PAWL_OP_ACQUIRE && op->mode == PAWL_MODE_PERMITS)
        pawl_error_set(op->err, code, "\"%s\" is in use with another capacity or as something "
                       "else, or has no capacity yet", op->name);
    else if (code == PAWL_ESTATE)
        pawl_error_set(op->err, code, "\"%s\" is in use as something else", op->name);
    else if (code == PAWL_EINVAL)
        pawl_error_set(op->err, code, "\"%s\": more permits than its capacity", op->name);
    return code;
}

/* The answer of COUNT for a name of this type (-1: not in use) with this value. */
static inline int kit_count(pawl_op *op, int type, int64_t value)
{
    int wanted = op->mode == PAWL_MODE_PERMITS ? PAWL_TYPE_SEMAPHORE : PAWL_TYPE_LATCH;

    if (type != -1 && type != wanted)
        return kit_refusal(op, PAWL_ESTATE);
    if (type == -1 && wanted == PAWL_TYPE_SEMAPHORE && op->count <= 0)
        return pawl_error_set(op->err, PAWL_ESTATE, "\"%s\" is not in use, so it has no capacity",
                              op->name);
    op->value = type != -1 ? value : wanted == PAWL_TYPE_LATCH ? 0 : op->count;
    return 0;
}

#endif
