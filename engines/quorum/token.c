/* SPDX-License-Identifier: Apache-2.0
 *
 * token.c - whether an attempt has won: its token, and its lease.
 *
 * Node j granted with token t(j), so all tokens that node j knew before are smaller. The node's
 * counter was at least at mark(j) >= t(j) + tokens - 1 while the grant was ours, without a gap
 * since t(j) was granted. The attempt's token T needs a majority R with t(j) <= T and
 * mark(j) >= T + tokens - 1 for each j in R. Two attempts that won with T1 and T2, both exclusive,
 * have a node j in common in their R1 and R2. Node j granted one of the two first, say attempt 1.
 * The mark of attempt 1 was reached while attempt 1 had the grant, so before attempt 2 was granted;
 * so t2(j) > T1 + tokens - 1, and T2 >= t2(j). So T2 > T1: tokens of winners are different, and
 * rise in the order in which node j served them, which is the order in real time if attempt 1 had
 * won before attempt 2 began. (proof/models/quorum.pml; without the mark the model finds two
 * winners with falling tokens.) Shared attempts: the same holds between attempts that do not
 * overlap, and between a shared and an exclusive attempt; two readers that overlap may have equal
 * tokens if both needed the second round trip.
 *
 * Usually one round trip is enough: all nodes are asked with a floor (the client's clock plus a
 * second) that is above their counters, so all grant the same token. If not, nodes with a smaller
 * token are asked again, with a floor that raises them: the node repeats the same grant, if the
 * grant still exists, else makes a new grant with a new token.
 */
#include "quorum.h"

#define SLACK_US 1000000u           /* requests may be slow, and clocks differ a little */
#define WALL_MOST 4102444800000000u /* the year 2100, us: beyond that the client's clock is wrong */

/* ---- the token ------------------------------------------------------------------------------- */

uint64_t quorum_floor(const quorum *q)
{
    uint64_t wall = (uint64_t)q->env->wall_ms(q->env) * 1000;

    return wall < WALL_MOST ? wall + SLACK_US : 1;
}

/* Returns how many nodes support this token. *ntokens: how many tokens from this one on all of them
 * have reserved. */
static size_t stand_for(const quorum_attempt *a, uint64_t token, int64_t now, uint32_t *ntokens)
{
    size_t n = 0;

    *ntokens = a->tokens;
    for (size_t i = 0; i < a->quorum->n; i++) {
        const quorum_node_state *s = &a->node_states[i];

        if (!quorum_attempt_votes(a, i, now) || s->token > token || s->mark < token)
            continue;
        n++;
        if (s->mark - token + 1 < *ntokens)
            *ntokens = (uint32_t)(s->mark - token + 1);
    }
    return n;
}

static bool find_token(quorum_attempt *a, int64_t now, uint32_t *ntokens)
{
    const quorum *q = a->quorum;

    for (size_t i = 0; i < q->n; i++) {
        uint64_t token = a->node_states[i].token;

        if (quorum_attempt_votes(a, i, now) && stand_for(a, token, now, ntokens) >= q->majority) {
            a->token = token;
            return true;
        }
    }
    return false;
}

/* The token to which nodes are raised: the earlier goal, as long as a majority can still reach it,
 * else the largest token. */
static uint64_t goal(quorum_attempt *a, int64_t now)
{
    const quorum *q = a->quorum;
    size_t within = 0;
    uint64_t top = 0;

    for (size_t i = 0; i < q->n; i++) {
        const quorum_node_state *s = &a->node_states[i];

        if (!quorum_attempt_votes(a, i, now))
            continue;
        within += s->token <= a->goal;
        top = s->token > top ? s->token : top;
    }
    if (within >= q->majority)
        return a->goal;
    a->goal = top;
    return top;
}

void quorum_attempt_raise(quorum_attempt *a, int64_t now)
{
    const quorum *q = a->quorum;
    uint64_t token;

    if (!q->fences || quorum_attempt_count(a, now).votes < q->majority)
        return;
    token = goal(a, now);
    for (size_t i = 0; i < q->n; i++) {
        const quorum_node_state *s = &a->node_states[i];

        if (quorum_attempt_votes(a, i, now) && !s->out && s->token <= token &&
            s->mark < token + a->tokens - 1)
            quorum_attempt_ask(a, i, false, token + a->tokens - 1);
    }
}

/* ---- the lease ------------------------------------------------------------------------------- */

/* The lease lasts until the first lease of the best majority ends. */
static void set_lease(const quorum_attempt *a, int64_t now, pawl_op *op)
{
    const quorum_node_state *best[QUORUM_MOST];
    size_t n = 0, k;
    int64_t end;

    for (size_t i = 0; i < a->quorum->n; i++) {
        if (!quorum_attempt_votes(a, i, now))
            continue;
        for (k = n++; k > 0 && best[k - 1]->end < a->node_states[i].end; k--)
            best[k] = best[k - 1];
        best[k] = &a->node_states[i];
    }
    end = best[a->quorum->majority - 1]->end;
    op->lease_from = PAWL_NEVER;
    for (k = 0; k < a->quorum->majority; k++)
        if (best[k]->from < op->lease_from)
            op->lease_from = best[k]->from;
    op->granted_ms = (end - op->lease_from) / PAWL_NS_PER_MS;
    if (op->granted_ms >= a->lease_ms || end == PAWL_NEVER)
        op->granted_ms = 0;
}

bool quorum_attempt_won(quorum_attempt *a, int64_t now, pawl_op *op)
{
    quorum *q = a->quorum;
    uint32_t ntokens = 1;

    if (quorum_attempt_count(a, now).votes < q->majority)
        return false;
    if (q->fences && !find_token(a, now, &ntokens))
        return false;
    op->token = a->token;
    op->ntokens = q->fences ? ntokens : 0;
    op->value = 0;
    set_lease(a, now, op);
    return true;
}
