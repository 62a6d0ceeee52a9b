/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - EXAMINE: the findings of each node, and facts that several nodes have in common. Two
 * nodes on one machine, or that are one server, fail together and vote twice. A machine is known by
 * its network address only, and this machine by all its addresses.
 *
 * Findings are passed on at once, marked with the node's number. The facts "run" (which process)
 * and "machine" are kept until all nodes have answered, and then compared. A node that forgets its
 * grants in a restart does not vote for a while (node.c), so findings about persistence are left
 * out.
 */
#include <stdlib.h>

#include "quorum.h"

static int fact_keep(quorum_answer *answer, const pawl_finding *f)
{
    size_t id = strlen(f->id) + 1, what = strlen(f->what) + 1;
    quorum_row *row = calloc(1, sizeof *row + id + what);

    if (!row) {
        answer->broadcast->no_memory = true;
        return PAWL_ENOMEM;
    }
    row->info.name = memcpy(row->text, f->id, id);
    row->info.label = memcpy(row->text + id, f->what, what);
    row->info.count = f->value;
    *answer->rows_end = row;
    answer->rows_end = &row->next;
    return 0;
}

static int note(void *arg, const pawl_finding *from)
{
    quorum_answer *answer = arg;
    quorum_broadcast *b = answer->broadcast;
    pawl_finding f = *from;
    char where[320];

    if (!b->outer || !strcmp(f.id, "redis-persistence") || !strcmp(f.id, "redis-fsync"))
        return 0;
    if (f.level == PAWL_FINDING_FACT && (!strcmp(f.id, "run") || !strcmp(f.id, "machine")))
        return fact_keep(answer, &f);
    snprintf(where, sizeof where, "node %zu: %.300s", (size_t)(answer - b->answers) + 1,
             from->where);
    f.where = where;
    return b->outer->finding(b->outer->row_arg, &f);
}

static void forget(quorum_broadcast *b)
{
    for (size_t i = 0; i < b->quorum->n; i++)
        for (quorum_row *row = b->answers[i].rows, *next; row; row = next) {
            next = row->next;
            free(row);
        }
}

static const pawl_info *fact_of(const quorum_broadcast *b, size_t i, const char *id)
{
    for (const quorum_row *row = b->answers[i].rows; row; row = row->next)
        if (!strcmp(row->info.name, id))
            return &row->info;
    return NULL;
}

static bool same_server(const quorum_broadcast *b, size_t i, size_t k)
{
    const pawl_info *one = fact_of(b, i, "run"), *other = fact_of(b, k, "run");

    return one && other && !strcmp(one->label, other->label);
}

/* The same address, or both are this machine's. */
static bool same_machine(const quorum_broadcast *b, size_t i, size_t k)
{
    const pawl_info *one = fact_of(b, i, "machine"), *other = fact_of(b, k, "machine");

    return one && other && ((one->count && other->count) || !strcmp(one->label, other->label));
}

typedef bool same_fn(const quorum_broadcast *b, size_t i, size_t k);

/* Is an earlier node the same as node i? */
static bool has_earlier(const quorum_broadcast *b, size_t i, same_fn *same)
{
    for (size_t k = 0; k < i; k++)
        if (same(b, k, i))
            return true;
    return false;
}

/* Find node i and the later nodes that are the same. Of nodes that are one server, only the first
 * counts as a node of its machine. Returns how many nodes these are. */
static size_t group_of(const quorum_broadcast *b, size_t i, same_fn *same,
                       size_t group[QUORUM_MOST])
{
    size_t n = 0;

    group[n++] = i;
    for (size_t k = i + 1; k < b->quorum->n; k++)
        if (same(b, i, k) && (same == same_server || !has_earlier(b, k, same_server)))
            group[n++] = k;
    return n;
}

/* Report that node i and later nodes are the same, if no earlier node is. */
static void compare(const quorum_broadcast *b, size_t i, same_fn *same, const pawl_finding *f)
{
    size_t group[QUORUM_MOST], n = has_earlier(b, i, same) ? 0 : group_of(b, i, same, group);
    char what[8 * QUORUM_MOST + 40] = "";
    size_t length = 0;

    if (n < 2)
        return;
    for (size_t k = 0; k < n; k++)
        length += (size_t)snprintf(what + length, sizeof what - length, "%s %zu",
                                   !k ? "nodes" : k < n - 1 ? "," : " and", group[k] + 1);
    snprintf(what + length, sizeof what - length, " are %s", f->what);
    pawl_op_found(b->outer, f->level, f->id, "", what, f->why, f->remedy);
}

static void compare_all(const quorum_broadcast *b)
{
    static const pawl_finding server = {.level = PAWL_FINDING_DANGER, .id = "quorum-same",
        .what = "the same server",
        .why = "One server votes more than once: when it fails or forgets, the majority may be "
               "gone or wrong.",
        .remedy = "Name each server once, and use servers of their own."},
        machine = {.level = PAWL_FINDING_WARNING, .id = "quorum-machine",
        .what = "on the same machine",
        .why = "They fail together, so the quorum survives fewer failures than it has nodes for.",
        .remedy = "Put each node on a machine of its own."};

    for (size_t i = 0; i < b->quorum->n; i++) {
        compare(b, i, same_server, &server);
        compare(b, i, same_machine, &machine);
    }
}

static void tell_failed(const quorum_broadcast *b, size_t i)
{
    const quorum_answer *answer = &b->answers[i];
    bool rights = answer->code == PAWL_EAUTH;
    char what[300];

    snprintf(what, sizeof what, "node %zu: %.250s", i + 1, answer->err.text[0] ? answer->err.text
             : answer->code == QUORUM_SILENT ? "no answer" : pawl_strerror(answer->code));
    pawl_op_found(b->outer, rights ? PAWL_FINDING_DANGER : PAWL_FINDING_WARNING,
                  rights ? "rights" : "quorum-node", "", what,
                  "The node does not vote: fewer other nodes may fail before no lock can be taken.",
                  rights ? "Grant the rights of docs/security.md on this node."
                         : "Bring the node back, or replace it.");
}

static void judge(quorum_broadcast *b, size_t pending)
{
    size_t n = b->quorum->n, answered = 0;
    pawl_op *op = b->outer;
    int code = 0;

    if (pending)
        return;
    for (size_t i = 0; i < n; i++)
        answered += b->answers[i].code == 0;
    if (!answered) {
        code = PAWL_EQUORUM;
        quorum_broadcast_error(b, op->err, code);
    }
    for (size_t i = 0; i < n && !code; i++)
        if (b->answers[i].code)
            tell_failed(b, i);
    if (!code)
        compare_all(b);
    b->outer = NULL;
    pawl_op_finish(op, code);
}

void quorum_examine(quorum *q, pawl_op *op)
{
    quorum_broadcast *b = quorum_broadcast_new(q, op, PAWL_OP_EXAMINE);

    if (!b)
        return;
    b->judge = judge;
    b->finding = note;
    b->forget = forget;
    quorum_broadcast_send(b);
}
