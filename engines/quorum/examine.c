/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - EXAMINE: the findings of each node, and facts that several nodes have in common. Two
 * nodes on one machine, or that are one server, fail together and vote twice.
 *
 * Findings are passed on at once, marked with the node's number. The facts "run" (which process)
 * and "machine" are kept until all nodes have answered, and then compared. A node that forgets its
 * grants in a restart does not vote for a while (node.c), so findings about persistence are left
 * out.
 */
#include <stdlib.h>

#include "quorum.h"

static int fact_keep(quorum_answer *a, const pawl_finding *f)
{
    size_t id = strlen(f->id) + 1, what = strlen(f->what) + 1;
    quorum_row *row = calloc(1, sizeof *row + id + what);

    if (!row) {
        a->broadcast->no_memory = true;
        return PAWL_ENOMEM;
    }
    row->info.name = memcpy(row->text, f->id, id);
    row->info.label = memcpy(row->text + id, f->what, what);
    *a->rows_end = row;
    a->rows_end = &row->next;
    return 0;
}

static int note(void *arg, const pawl_finding *from)
{
    quorum_answer *a = arg;
    quorum_broadcast *s = a->broadcast;
    pawl_finding f = *from;
    char where[320];

    if (!s->outer || !strcmp(f.id, "redis-persistence") || !strcmp(f.id, "redis-fsync"))
        return 0;
    if (f.level == PAWL_FINDING_FACT && (!strcmp(f.id, "run") || !strcmp(f.id, "machine")))
        return fact_keep(a, &f);
    snprintf(where, sizeof where, "node %zu: %.300s", (size_t)(a - s->answers) + 1, from->where);
    f.where = where;
    return s->outer->finding(s->outer->row_arg, &f);
}

static void forget(quorum_broadcast *s)
{
    for (size_t i = 0; i < s->quorum->n; i++)
        for (quorum_row *row = s->answers[i].rows, *next; row; row = next) {
            next = row->next;
            free(row);
        }
}

static const char *fact_of(const quorum_answer *a, const char *id)
{
    for (const quorum_row *row = a->rows; row; row = row->next)
        if (!strcmp(row->info.name, id))
            return row->info.label;
    return NULL;
}

static bool both(const quorum_broadcast *s, size_t i, size_t k, const char *id)
{
    const char *one = fact_of(&s->answers[i], id), *other = fact_of(&s->answers[k], id);

    return one && other && !strcmp(one, other);
}

static void compare(const quorum_broadcast *s, size_t i, size_t k)
{
    bool run = both(s, i, k, "run"), machine = both(s, i, k, "machine");
    char what[120];

    snprintf(what, sizeof what, "nodes %zu and %zu are %s", i + 1, k + 1,
             run ? "the same server" : "on the same machine");
    if (run)
        pawl_op_found(s->outer, PAWL_FINDING_DANGER, "quorum-same", "", what,
                      "One server votes twice: when it fails or forgets, the majority may be gone "
                      "or wrong.", "Name each server once, and use servers of their own.");
    else if (machine)
        pawl_op_found(s->outer, PAWL_FINDING_WARNING, "quorum-machine", "", what,
                      "Both fail together, so the quorum survives fewer failures than it has "
                      "nodes for.", "Put each node on a machine of its own.");
}

static void tell_failed(const quorum_broadcast *s, size_t i)
{
    const quorum_answer *a = &s->answers[i];
    bool rights = a->code == PAWL_EAUTH;
    char what[300];

    snprintf(what, sizeof what, "node %zu: %.250s", i + 1, a->err.text[0] ? a->err.text
             : a->code == QUORUM_SILENT ? "no answer" : pawl_strerror(a->code));
    pawl_op_found(s->outer, rights ? PAWL_FINDING_DANGER : PAWL_FINDING_WARNING,
                  rights ? "rights" : "quorum-node", "", what,
                  "The node does not vote: fewer other nodes may fail before no lock can be taken.",
                  rights ? "Grant the rights of docs/security.md on this node."
                         : "Bring the node back, or replace it.");
}

static void judge(quorum_broadcast *s, size_t pending)
{
    size_t n = s->quorum->n, answered = 0;
    pawl_op *op = s->outer;
    int code = 0;

    if (pending)
        return;
    for (size_t i = 0; i < n; i++)
        answered += s->answers[i].code == 0;
    if (!answered) {
        code = PAWL_EQUORUM;
        quorum_broadcast_error(s, op->err, code);
    }
    for (size_t i = 0; i < n && !code; i++) {
        if (s->answers[i].code)
            tell_failed(s, i);
        for (size_t k = i + 1; k < n; k++)
            compare(s, i, k);
    }
    s->outer = NULL;
    pawl_op_finish(op, code);
}

void quorum_examine(quorum *q, pawl_op *op)
{
    quorum_broadcast *s = quorum_broadcast_new(q, op, PAWL_OP_EXAMINE);

    if (!s)
        return;
    s->judge = judge;
    s->finding = note;
    s->forget = forget;
    quorum_broadcast_send(s);
}
