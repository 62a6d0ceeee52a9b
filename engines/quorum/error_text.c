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

static int describe(const quorum_attempt *b, size_t i, int64_t now, char *text, size_t room)
{
    const quorum_node_state *s = &b->node_states[i];
    const quorum_node *node = &b->quorum->nodes[i];

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

void quorum_attempt_error(const quorum_attempt *b, pawl_error *err, int code)
{
    int64_t now = quorum_now(b->quorum);
    size_t n = b->quorum->n, ok = 0;
    char part[sizeof err->text];

    for (size_t i = 0; i < n; i++)
        ok += b->node_states[i].said == 0 && !quorum_node_young(&b->quorum->nodes[i], now);
    pawl_error_set(err, code, "%zu of %zu: node", ok, n);
    for (size_t i = 0; i < n; i++) {
        describe(b, i, now, part, sizeof part);
        add(b->quorum, err, i, part);
    }
}

/* Describe a node's answer to a broadcast. The answer to a peek (acquire.c) says whether the node
 * has a holder. */
static int describe_answer(const quorum_broadcast *s, size_t i, char *text, size_t room)
{
    const quorum_answer *a = &s->answers[i];
    const quorum_node *node = &s->quorum->nodes[i];
    int64_t now = quorum_now(s->quorum);

    if (a->code == 0 && a->held)
        return snprintf(text, room, "busy");
    if (a->code == 0 && s->is_peek && quorum_node_young(node, now))
        return young(node, now, text, room);
    if (a->code == 0 || a->code == PAWL_ENOTHELD)
        return snprintf(text, room, "ok");
    if (a->code == QUORUM_SILENT || a->code == PAWL_ECANCELED || a->code == PAWL_EUNKNOWN)
        return snprintf(text, room, "%s", node->why[0] ? node->why : "no answer");
    return snprintf(text, room, "%s", a->err.text[0] ? a->err.text : pawl_strerror(a->code));
}

void quorum_broadcast_error(const quorum_broadcast *s, pawl_error *err, int code)
{
    size_t n = s->quorum->n, ok = 0;
    char part[sizeof err->text];

    for (size_t i = 0; i < n; i++)
        ok += s->answers[i].code == 0 || s->answers[i].code == PAWL_ENOTHELD;
    if (s->is_peek)
        ok = quorum_peek_vacant(s, n);
    pawl_error_set(err, code, "%zu of %zu: node", ok, n);
    for (size_t i = 0; i < n; i++) {
        describe_answer(s, i, part, sizeof part);
        add(s->quorum, err, i, part);
    }
}
