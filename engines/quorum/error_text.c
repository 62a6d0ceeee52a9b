/* SPDX-License-Identifier: Apache-2.0
 *
 * error_text.c - the answers of the nodes, in one line: "2 of 5: node 1 ok, 2 ok, 3 busy, 4 h:6379:
 * Connection refused, 5 too young (12 of 30 s)". All nodes have equal room.
 */
#include "quorum.h"

static void add(const quorum *q, pawl_error *err, size_t node, const char *error)
{
    size_t room = sizeof err->text / q->n, most = room > 20 ? room - 9 : 11, used;

    if (!err)
        return;
    used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, "%s %zu %.*s", node ? "," : "", node + 1,
             (int)most, error);
}

static int young(const quorum_node *node, int64_t now, char *text, size_t room)
{
    return snprintf(text, room, "too young (%lld of %lld s)",
                    (long long)((now - node->born) / PAWL_NS_PER_MS / 1000),
                    (long long)((quorum_settle_ms(node->quorum) + 999) / 1000));
}

static int describe(const quorum_attempt *a, size_t i, int64_t now, char *text, size_t room)
{
    const quorum_node_state *s = &a->node_states[i];
    const quorum_node *node = &a->quorum->nodes[i];

    if (s->said == 0 && quorum_node_young(node, now))
        return young(node, now, text, room);
    if (s->said == 0)
        return snprintf(text, room, "ok");
    if (s->said == PAWL_EBUSY)
        return snprintf(text, room, "busy");
    if (s->said == QUORUM_SILENT || s->said == PAWL_ECANCELED || s->said == PAWL_EUNKNOWN)
        return snprintf(text, room, "%s", node->why[0] ? node->why : "no answer");
    return snprintf(text, room, "%s", s->err.text[0] ? s->err.text : pawl_strerror(s->said));
}

void quorum_attempt_error(const quorum_attempt *a, pawl_error *err, int code)
{
    int64_t now = quorum_now(a->quorum);
    size_t n = a->quorum->n, ok = 0;
    char part[sizeof err->text];

    for (size_t i = 0; i < n; i++)
        ok += a->node_states[i].said == 0 && !quorum_node_young(&a->quorum->nodes[i], now);
    pawl_error_set(err, code, "%zu of %zu: node", ok, n);
    for (size_t i = 0; i < n; i++) {
        describe(a, i, now, part, sizeof part);
        add(a->quorum, err, i, part);
    }
}

/* Describe a node's answer to a broadcast. The answer to a peek (acquire.c) says whether the node
 * has a holder. */
static int describe_answer(const quorum_broadcast *b, size_t i, char *text, size_t room)
{
    const quorum_answer *answer = &b->answers[i];
    const quorum_node *node = &b->quorum->nodes[i];
    int64_t now = quorum_now(b->quorum);

    if (answer->code == 0 && answer->held)
        return snprintf(text, room, "busy");
    if (answer->code == 0 && b->is_peek && quorum_node_young(node, now))
        return young(node, now, text, room);
    if (answer->code == 0 || answer->code == PAWL_ENOTHELD)
        return snprintf(text, room, "ok");
    if (answer->code == QUORUM_SILENT || answer->code == PAWL_ECANCELED ||
        answer->code == PAWL_EUNKNOWN)
        return snprintf(text, room, "%s", node->why[0] ? node->why : "no answer");
    return snprintf(text, room, "%s",
                    answer->err.text[0] ? answer->err.text : pawl_strerror(answer->code));
}

void quorum_broadcast_error(const quorum_broadcast *b, pawl_error *err, int code)
{
    size_t n = b->quorum->n, ok = 0;
    char part[sizeof err->text];

    for (size_t i = 0; i < n; i++)
        ok += b->answers[i].code == 0 || b->answers[i].code == PAWL_ENOTHELD;
    if (b->is_peek)
        ok = quorum_peek_vacant(b, n);
    pawl_error_set(err, code, "%zu of %zu: node", ok, n);
    for (size_t i = 0; i < n; i++) {
        describe_answer(b, i, part, sizeof part);
        add(b->quorum, err, i, part);
    }
}
