/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.c - INSPECT and LIST: the rows of all nodes, merged.
 *
 * A grant has the same owner at every node, so rows of one owner are merged into one row. An owner
 * is a holder if a majority reports it as a holder; nodes that did not answer count as such. Any
 * other owner is a waiter if it is in the queue of a node; else the owner only tries, and is not
 * shown. A holder's lease is the time that a majority has at least. The token is nearly always the
 * same at all nodes. If not, the attempt's token was the largest of the majority that decided, and
 * nodes that granted later mostly have a larger token: so the row shows the smallest token that a
 * majority does not exceed. The op waits for all nodes that are up; less than a majority is
 * PAWL_EQUORUM.
 */
#include <stdlib.h>

#include "kit/rows.h"
#include "quorum.h"

/* ---- collecting ------------------------------------------------------------------------------ */

static char *put(char **at, const char *text)
{
    char *ret = *at;

    *at = stpcpy(ret, text ? text : "") + 1;
    return ret;
}

static size_t length(const char *text)
{
    return text ? strlen(text) + 1 : 1;
}

static int collect(void *arg, const pawl_info *info)
{
    quorum_answer *answer = arg;
    quorum_row *row = malloc(sizeof *row + length(info->name) + length(info->host) +
                             length(info->program) + length(info->label) + length(info->owner));
    char *at;

    if (!row) {
        answer->broadcast->no_memory = true;
        return PAWL_ENOMEM;
    }
    row->next = NULL;
    row->info = *info;
    at = row->text;
    row->info.name = put(&at, info->name);
    row->info.host = put(&at, info->host);
    row->info.program = put(&at, info->program);
    row->info.label = put(&at, info->label);
    row->info.owner = put(&at, info->owner);
    *answer->rows_end = row;
    answer->rows_end = &row->next;
    return 0;
}

static void forget_rows(quorum_broadcast *b)
{
    for (size_t i = 0; i < b->quorum->n; i++)
        for (quorum_row *row = b->answers[i].rows, *next; row; row = next) {
            next = row->next;
            free(row);
        }
}

/* ---- merging --------------------------------------------------------------------------------- */

typedef struct entry {
    const pawl_info *info;
    size_t order; /* of arrival */
} entry;

typedef struct merged {
    pawl_info info;
    size_t order, holds;
    bool waits;
} merged;

typedef struct inspection {
    const quorum_broadcast *broadcast;
    entry *entries;
    merged *rows;
    size_t n, nrows, missing; /* missing: nodes that did not answer */
} inspection;

static int by_key(const void *one, const void *other)
{
    const entry *a = one, *b = other;
    int order = strcmp(a->info->name, b->info->name);

    if (!order)
        order = strcmp(a->info->owner, b->info->owner);
    if (!order)
        order = strcmp(a->info->host, b->info->host);
    return order ? order : a->order < b->order ? -1 : a->order > b->order;
}

static int by_name(const void *one, const void *other)
{
    const entry *a = one, *b = other;
    int order = strcmp(a->info->name, b->info->name);

    return order ? order : a->order < b->order ? -1 : a->order > b->order;
}

/* Holders first, the oldest in front; then waiters in order of arrival. */
static int by_rank(const void *one, const void *other)
{
    const merged *a = one, *b = other;

    if (a->info.role != b->info.role)
        return a->info.role < b->info.role ? -1 : 1;
    if (a->info.role == PAWL_ROLE_HOLDER && a->info.since_ms != b->info.since_ms)
        return a->info.since_ms > b->info.since_ms ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static bool holds(const pawl_info *info)
{
    return info->role == PAWL_ROLE_HOLDER || (info->role == PAWL_ROLE_SUMMARY && info->holders);
}

static uint64_t token_of(const inspection *v, const entry *first, size_t n)
{
    uint64_t best = 0, top = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t token = first[i].info->token;
        size_t within = 0;

        for (size_t k = 0; k < n; k++)
            within += holds(first[k].info) && first[k].info->token <= token;
        if (within >= v->broadcast->quorum->majority && (!best || token < best))
            best = token;
        top = token > top ? token : top;
    }
    return best ? best : top;
}

/* The lease that at least a majority of the nodes has; if fewer nodes have one, the shortest
 * lease. */
static int64_t lease_of(const inspection *v, const entry *first, size_t n)
{
    size_t want = v->broadcast->quorum->majority, have = 0;
    int64_t best = -1;

    for (size_t i = 0; i < n; i++)
        have += holds(first[i].info);
    if (want > have)
        want = have;
    for (size_t i = 0; i < n; i++) {
        size_t longer = 0;

        for (size_t k = 0; k < n; k++)
            longer += holds(first[k].info) && first[k].info->lease_ms >= first[i].info->lease_ms;
        if (holds(first[i].info) && longer >= want && first[i].info->lease_ms > best)
            best = first[i].info->lease_ms;
    }
    return best;
}

static void merge_group(inspection *v, const entry *first, size_t n)
{
    merged *m = &v->rows[v->nrows++];

    *m = (merged){.info = *first->info, .order = first->order};
    for (size_t i = 0; i < n; i++) {
        const pawl_info *info = first[i].info;

        m->holds += holds(info);
        m->waits |= info->role == PAWL_ROLE_WAITER || info->waiters;
        if (info->holders > m->info.holders)
            m->info.holders = info->holders;
        if (info->waiters > m->info.waiters)
            m->info.waiters = info->waiters;
        if (info->since_ms > m->info.since_ms)
            m->info.since_ms = info->since_ms;
        if (info->wait_ms > m->info.wait_ms)
            m->info.wait_ms = info->wait_ms;
        if (!*m->info.owner && *info->owner) /* a summary that names a holder */
            kit_copy_owner(&m->info, info);
    }
    m->info.token = token_of(v, first, n);
    m->info.lease_ms = lease_of(v, first, n);
    if (m->holds && m->holds + v->missing >= v->broadcast->quorum->majority)
        return;
    if (m->info.role != PAWL_ROLE_SUMMARY)
        m->info.role = PAWL_ROLE_WAITER;
    m->info.holders = 0;
    m->info.token = 0;
    m->info.lease_ms = -1;
    v->nrows -= !m->waits;
}

/* Merge the rows of each owner, or (summaries) the summary rows of each name. */
static bool merge(inspection *v, bool summaries)
{
    const quorum *q = v->broadcast->quorum;
    size_t room = 0, end;

    for (size_t i = 0; i < q->n; i++)
        for (const quorum_row *row = v->broadcast->answers[i].rows; row; row = row->next)
            room++;
    v->entries = calloc(room + 1, sizeof *v->entries);
    v->rows = calloc(room + 1, sizeof *v->rows);
    if (!v->entries || !v->rows)
        return false;
    for (size_t i = 0; i < q->n; i++)
        for (const quorum_row *row = v->broadcast->answers[i].rows; row; row = row->next)
            if (v->broadcast->answers[i].code == 0 &&
                (row->info.role == PAWL_ROLE_SUMMARY) == summaries) {
                v->entries[v->n] = (entry){&row->info, v->n};
                v->n++;
            }
    qsort(v->entries, v->n, sizeof *v->entries, summaries ? by_name : by_key);
    for (size_t first = 0; first < v->n; first = end) {
        for (end = first + 1; end < v->n; end++)
            if (strcmp(v->entries[end].info->name, v->entries[first].info->name) ||
                (!summaries &&
                 (strcmp(v->entries[end].info->owner, v->entries[first].info->owner) ||
                  strcmp(v->entries[end].info->host, v->entries[first].info->host))))
                break;
        merge_group(v, v->entries + first, end - first);
    }
    qsort(v->rows, v->nrows, sizeof *v->rows, by_rank);
    return true;
}

/* ---- showing the rows ------------------------------------------------------------------------ */

static bool fill_row(void *of, size_t i, pawl_info *row, char id[KIT_ID_MAX])
{
    (void)id;
    *row = ((const inspection *)of)->rows[i].info;
    return true;
}

static int show_inspect(inspection *v, pawl_op *op)
{
    char id[KIT_ID_MAX];
    pawl_info sum = kit_summary(op->name, PAWL_TYPE_LOCK, 0, fill_row, v, v->nrows, id);

    return kit_rows_show(op, &sum, fill_row, v, v->nrows);
}

static int show_list(const inspection *v, pawl_op *op)
{
    int code = 0;

    for (size_t i = 0; i < v->nrows && !code; i++)
        if (v->rows[i].info.holders || v->rows[i].info.waiters)
            code = op->row(op->row_arg, &v->rows[i].info);
    return code;
}

static void judge_inspect(quorum_broadcast *b, size_t pending)
{
    inspection v = {.broadcast = b};
    pawl_op *op = b->outer;
    int code = 0;

    if (pending)
        return;
    for (size_t i = 0; i < b->quorum->n; i++)
        v.missing += b->answers[i].code != 0;
    b->outer = NULL;
    if (b->quorum->n - v.missing < b->quorum->majority) {
        code = PAWL_EQUORUM;
        quorum_broadcast_error(b, op->err, code);
    } else if (b->no_memory || !merge(&v, b->kind == PAWL_OP_LIST)) {
        code = pawl_error_set(op->err, PAWL_ENOMEM, "out of memory");
    } else {
        code = b->kind == PAWL_OP_LIST ? show_list(&v, op) : show_inspect(&v, op);
        code = code == PAWL_ENOMEM ? pawl_error_set(op->err, code, "out of memory") : 0;
    }
    free(v.entries);
    free(v.rows);
    pawl_op_finish(op, code);
}

void quorum_inspect(quorum *q, pawl_op *op)
{
    quorum_broadcast *b = quorum_broadcast_new(q, op, op->kind);

    if (!b)
        return;
    b->judge = judge_inspect;
    b->row = collect;
    b->forget = forget_rows;
    quorum_broadcast_send(b);
}
