/* SPDX-License-Identifier: Apache-2.0
 *
 * bid.c - ACQUIRE: one ballot after the other, until one wins or nobody wants it any more.
 *
 *     TRY    all nodes are asked at once, not queued. Decided at the majority, for or against; but
 *            one node, the gate, has a veto. It is the first node that is up and not much slower
 *            than the rest; so all have the same, as long as they see the same nodes.
 *     WAIT   nothing is held; the bid stands in the gate's queue.
 *     CLAIM  the gate was granted: the others are asked, queued now, and the gate once more.
 *     PAUSE  nothing is held, nothing is out.
 *     END    the answer is certain; what was got is being given back.
 *
 *     (new) -> TRY -> won
 *              TRY -> lost, not queued -> END; or PAUSE and TRY, if it may be that nobody got it
 *              TRY -> lost, the gate got -> CLAIM;  not got -> WAIT
 *              WAIT -> granted -> CLAIM;  the gate is down -> PAUSE -> TRY
 *              CLAIM -> won;  too long nothing -> everything back, PAUSE -> TRY
 *              any -> cancel -> END
 *
 * THE VETO keeps the order: whoever waits stands in the gate's queue, and while somebody does, the
 * gate grants nothing past it. So a try overtakes nobody, though the other nodes would grant it. A
 * gate that keeps a majority waiting for too long (node.c) loses its veto, and is no gate until it
 * answers. Order is all that it decides; exclusion rests on the majority alone.
 *
 * A STALE GRANT at the gate (of a client that ended, or whose release was lost there) must not hold
 * up a majority that is free. During a hand-over the others are free for a moment while the gate is
 * not; so a bid overrules the gate only if a majority without the gate was free twice, BRIEF apart.
 * A bid in TRY tries a second time after BRIEF. A bid in WAIT keeps its place in the gate's queue
 * and looks (INSPECT) at the nodes BRIEF after a try that found them free, else every one to two
 * time-outs; if it finds them free twice it goes on to CLAIM without the gate. So a stale grant
 * holds a waiter up for two time-outs and two BRIEFs at most, not for the rest of its lease.
 *
 * NO MAJORITY. The gate says nothing about the other nodes. So each look also counts the nodes that
 * answer, and sets what the bid ends with at its limit: PAWL_EQUORUM, if they are too few. The last
 * look goes out three eighths of a time-out before the limit.
 *
 * WHY SOMEBODY ALWAYS GETS IT. Only one bid per gate is in CLAIM, and only in CLAIM does a bid
 * hold something while it waits. A bid in TRY lets go as soon as it knows that it has no majority,
 * which is bounded by the nodes' patience. So if all have one gate, who has the gate meets only
 * holders, who leave or whose lease ends, and others' tries, which end; it stands in all queues,
 * and behind it nobody is granted there: it wins. Waiting costs the service one place in one
 * queue, and a hand-over one message to one waiter; nobody polls.
 * If nodes come and go there may be several gates, and their owners may each have a minority. Then
 * each gives everything back after a time that is random and doubles with every failure, and
 * pauses likewise. A claim among free nodes takes a bounded time; as soon as the times are larger
 * than that, there is a fixed chance in every round that one owner claims while all others pause.
 * So with probability one somebody wins.
 */
#include <stdlib.h>

#include "quorum.h"

#define TRIES_MOST 5 /* of an ACQUIRE that is not queued */

static void bid_run(quorum_task *task);

/* Longer than a hand-over or a release takes to reach all nodes. */
static int64_t brief(const quorum *q)
{
    int64_t least = q->env->timeout_ms * PAWL_NS_PER_MS / 8, usual = 4 * quorum_pace(q);

    return usual > least ? usual : least;
}

int64_t quorum_random(quorum *q, int64_t most)
{
    return most > 0 ? (int64_t)(q->env->random(q->env) % (uint64_t)(most + 1)) : 0;
}

/* ---- phases ---------------------------------------------------------------------------------- */

static void timer_fired(pawl_timer *timer)
{
    quorum_bid *bid = timer->arg;

    bid->over = true;
    quorum_later(bid->quorum, &bid->task);
    quorum_pump(bid->quorum);
}

static void enter(quorum_bid *bid, enum quorum_phase phase, int64_t due)
{
    quorum *q = bid->quorum;

    if (bid->phase == BID_WAIT)
        quorum_node_unwait(&q->nodes[bid->gate]);
    if (bid->look)
        quorum_look_forget(bid->look);
    bid->look = NULL;
    bid->phase = phase;
    bid->over = bid->gate_left = false;
    if (due == PAWL_NEVER)
        q->env->timer_clear(q->env, &bid->timer);
    else
        q->env->timer_set(q->env, &bid->timer, due);
}

static void drop_ballot(quorum_bid *bid)
{
    if (!bid->ballot)
        return;
    bid->ballot->bid = NULL;
    quorum_void(bid->ballot);
    bid->ballot = NULL;
}

/* Answer, and be gone. */
static void finish(quorum_bid *bid, int code)
{
    pawl_op *op = bid->op;

    enter(bid, BID_END, PAWL_NEVER);
    quorum_forget_task(&bid->task);
    list_remove(&bid->link);
    if (code && code != PAWL_ECANCELED)
        pawl_error_set(op->err, code, "%s", bid->words.text);
    free(bid);
    pawl_op_finish(op, code);
}

/* The answer is certain. It waits a moment for what was got to be given back; who only tried, and
 * stands in no queue, not for slow nodes. */
static void end(quorum_bid *bid, int code)
{
    int64_t wait = bid->quorum->env->timeout_ms * PAWL_NS_PER_MS / 20;
    int64_t pace = quorum_pace(bid->quorum);

    if (bid->phase == BID_TRY && pace && 2 * (pace + PAWL_NS_PER_MS) < wait)
        wait = 2 * (pace + PAWL_NS_PER_MS);
    bid->code = code;
    bid->whole = bid->phase == BID_TRY || bid->phase == BID_CLAIM;
    if (!bid->ballot) {
        finish(bid, code);
        return;
    }
    enter(bid, BID_END, quorum_now(bid->quorum) + wait);
    quorum_void(bid->ballot);
}

static void end_now(quorum_bid *bid)
{
    quorum_ballot *b = bid->ballot;

    if (b && bid->whole)
        quorum_ballot_words(b, &bid->words, bid->code); /* those that were cancelled say why */
    if (b)
        b->bid = NULL;
    bid->ballot = NULL;
    finish(bid, bid->code);
}

void quorum_bid_clear(quorum_bid *bid)
{
    end_now(bid);
}

static void no_memory(quorum_bid *bid)
{
    pawl_error_set(&bid->words, PAWL_ENOMEM, "out of memory");
    finish(bid, PAWL_ENOMEM);
}

static void pause_bid(quorum_bid *bid)
{
    quorum *q = bid->quorum;
    uint32_t doublings = bid->tries < 8 ? bid->tries : 8;
    int64_t most = (4 * quorum_pace(q) + PAWL_NS_PER_MS) << doublings;
    int64_t limit = q->env->timeout_ms * PAWL_NS_PER_MS;

    drop_ballot(bid);
    enter(bid, BID_PAUSE, quorum_now(q) + 1 + quorum_random(q, most < limit ? most : limit));
}

/* The gate alone refuses: once more, when that must have a reason that does not pass soon. */
static void try_later(quorum_bid *bid, int64_t due)
{
    drop_ballot(bid);
    enter(bid, BID_PAUSE, due);
}

static bool open_ballot(quorum_bid *bid)
{
    drop_ballot(bid);
    bid->ballot = quorum_ballot_new(bid);
    if (!bid->ballot) {
        no_memory(bid);
        return false;
    }
    bid->ballot->floor = quorum_floor(bid->quorum);
    return true;
}

/* ---- TRY ------------------------------------------------------------------------------------- */

static void try_all(quorum_bid *bid)
{
    quorum *q = bid->quorum;

    if (!open_ballot(bid))
        return;
    bid->tries++;
    bid->sure = 0;
    bid->gate = quorum_gate(q);
    enter(bid, BID_TRY, PAWL_NEVER);
    for (size_t i = 0; i < q->n; i++)
        quorum_ballot_ask(bid->ballot, i, false, bid->ballot->floor);
    quorum_later(q, &bid->task);
}

/* ---- WAIT and CLAIM -------------------------------------------------------------------------- */

static void look_later(quorum_bid *bid)
{
    quorum *q = bid->quorum;
    int64_t now = quorum_now(q), usual = q->env->timeout_ms * PAWL_NS_PER_MS;
    int64_t due = bid->free_since ? now + brief(q) : now + usual + quorum_random(q, usual);
    int64_t last = bid->op->deadline - usual * 3 / 8;

    bid->over = false;
    q->env->timer_set(q->env, &bid->timer, last > now && last < due ? last : due);
}

static void wait_at_gate(quorum_bid *bid)
{
    quorum *q = bid->quorum;
    size_t gate = quorum_gate(q);

    bid->waited = true;
    if (gate == q->n) {
        pause_bid(bid);
        return;
    }
    if (!open_ballot(bid))
        return;
    enter(bid, BID_WAIT, PAWL_NEVER);
    bid->gate = gate;
    quorum_node_wait(&q->nodes[gate], bid->ballot->name);
    look_later(bid);
    quorum_ballot_ask(bid->ballot, gate, true, bid->ballot->floor);
    quorum_later(q, &bid->task);
}

/* What is ours already is asked again: so its lease is whole, and its counter at the floor that
 * the others' tokens will begin at. */
static void claim(quorum_bid *bid)
{
    quorum *q = bid->quorum;
    quorum_ballot *b = bid->ballot;
    uint32_t doublings = bid->failed < 5 ? bid->failed : 5;
    int64_t least = q->env->timeout_ms * PAWL_NS_PER_MS / 20;
    int64_t usual = 20 * quorum_pace(q), patience = (usual > least ? usual : least) << doublings;

    enter(bid, BID_CLAIM, quorum_now(q) + patience / 2 + quorum_random(q, patience / 2));
    bid->waited = true;
    b->floor = quorum_floor(q);
    for (size_t i = 0; i < q->n; i++)
        if (!b->slots[i].out && !b->slots[i].ours)
            quorum_ballot_ask(b, i, true, b->floor);
    for (size_t i = 0; i < q->n && q->fences; i++)
        if (!b->slots[i].out && b->slots[i].ours && b->slots[i].mark < b->floor + b->tokens)
            quorum_ballot_ask(b, i, false, b->floor + b->tokens);
    quorum_later(q, &bid->task);
}

/* ---- what happened --------------------------------------------------------------------------- */

static void win(quorum_bid *bid)
{
    quorum_ballot *b = bid->ballot;
    pawl_op *op = bid->op;
    int64_t last = 0;

    op->waited = bid->waited;
    b->bid = NULL;
    b->state = BALLOT_HELD;
    if (op->ntokens)
        b->tokens = op->ntokens; /* what a majority reserved */
    quorum_held_add(b);
    for (size_t i = 0; i < bid->quorum->n; i++)
        if (b->slots[i].ours && b->slots[i].end > last)
            last = b->slots[i].end;
    quorum_hold_until(b, last);
    bid->ballot = NULL;
    finish(bid, 0);
}

static bool vetoed(const quorum_bid *bid)
{
    const quorum_slot *s = &bid->ballot->slots[bid->gate];

    return bid->gate < bid->quorum->n && !s->out && !s->ours && s->said == PAWL_EBUSY;
}

/* Somebody else has it, or tries, and a majority is there. Else too few nodes are there, whatever
 * they say. */
static bool is_busy(const quorum_bid *bid, const quorum_tally *t)
{
    return t->busy && t->busy + t->votes >= bid->quorum->majority;
}

/* The gate has refused for long while a majority was free: nobody stands behind the gate. */
static bool overrules(const quorum_bid *bid, int64_t now)
{
    return bid->free_since && now - bid->free_since >= brief(bid->quorum);
}

/* Why the ballot failed, for whoever gives up next. */
static void note_failure(quorum_bid *bid, const quorum_tally *t)
{
    bid->code = is_busy(bid, t) ? PAWL_EBUSY : PAWL_EQUORUM;
    if (bid->code == PAWL_EBUSY)
        pawl_op_waits(bid->op);
    quorum_ballot_words(bid->ballot, &bid->words, bid->code);
}

static void lost_try(quorum_bid *bid, const quorum_tally *t, int64_t now)
{
    quorum *q = bid->quorum;
    bool veto = vetoed(bid);
    /* Readers beside readers are refused for the sake of a writer that waits. */
    bool free = veto && t->votes >= q->majority && bid->op->mode == PAWL_MODE_EXCLUSIVE;

    if (!free)
        bid->free_since = 0;
    else if (!bid->free_since)
        bid->free_since = now;
    quorum_ballot_overdue(bid->ballot, now);
    note_failure(bid, t);
    if (t->hopeless > q->n - q->majority) {
        end(bid, t->reason);
    } else if (bid->op->queue && bid->gate < q->n && bid->ballot->slots[bid->gate].ours) {
        claim(bid);
    } else if (bid->op->queue && bid->code == PAWL_EBUSY) {
        wait_at_gate(bid);
    } else if (bid->op->queue) {
        pause_bid(bid);
    } else if (free) {
        try_later(bid, bid->free_since + brief(q));
    } else if (bid->code == PAWL_EBUSY && !veto && t->busy <= q->n - q->majority &&
               bid->tries < TRIES_MOST) {
        pause_bid(bid); /* several tried at once, and perhaps nobody got it */
    } else {
        end(bid, bid->code);
    }
}

/* A majority is ours. When the gate's answer is no longer waited for; 0: it has come, or won't. */
static int64_t gate_patience(quorum_bid *bid, int64_t now)
{
    const quorum *q = bid->quorum;
    const quorum_slot *s = &bid->ballot->slots[bid->gate];
    int64_t limit;

    if (bid->gate == q->n || !s->out || s->ours)
        return 0;
    if (!bid->sure)
        bid->sure = now;
    limit = quorum_gate_patience(q, s->sent, bid->sure);
    if (now >= limit)
        quorum_node_is_down(&q->nodes[bid->gate]);
    return limit;
}

static void run_try(quorum_bid *bid, int64_t now)
{
    quorum *q = bid->quorum;
    quorum_tally t = quorum_ballot_count(bid->ballot, now);
    int64_t due = quorum_ballot_patience(bid->ballot, now), gate;

    if ((t.possible < q->majority && (is_busy(bid, &t) || !t.pending)) ||
        (vetoed(bid) && t.votes >= q->majority && !overrules(bid, now))) {
        lost_try(bid, &t, now);
        return;
    }
    if (t.possible < q->majority || (vetoed(bid) && !overrules(bid, now))) {
        ; /* it is lost, but what is wrong is best said when all have spoken */
    } else if (quorum_ballot_won(bid->ballot, now, bid->op)) {
        gate = gate_patience(bid, now);
        if (now >= gate) {
            win(bid);
            return;
        }
        due = gate < due ? gate : due;
    } else {
        quorum_ballot_raise(bid->ballot, now);
        due = quorum_ballot_patience(bid->ballot, now);
    }
    if (due != PAWL_NEVER)
        q->env->timer_set(q->env, &bid->timer, due);
}

/* Whether a majority is there, for when the limit comes. */
static void note_look(quorum_bid *bid, const quorum_survey *look)
{
    bid->code = quorum_look_there(look) < bid->quorum->majority ? PAWL_EQUORUM : PAWL_EBUSY;
    if (bid->code == PAWL_EQUORUM)
        quorum_survey_words(look, &bid->words, bid->code);
}

static void looked(quorum_bid *bid, const quorum_survey *look)
{
    int64_t now = quorum_now(bid->quorum);
    bool free = quorum_look_vacant(look, bid->gate) >= bid->quorum->majority;

    if (bid->phase != BID_WAIT)
        return;
    note_look(bid, look);
    if (free && bid->free_since && now - bid->free_since >= brief(bid->quorum)) {
        bid->free_since = 0;
        claim(bid); /* its place in the gate's queue stays */
        return;
    }
    if (!free)
        bid->free_since = 0;
    else if (!bid->free_since)
        bid->free_since = now;
    look_later(bid);
}

static void look(quorum_bid *bid)
{
    bid->over = false;
    if (!bid->look)
        bid->look = quorum_look(bid->quorum, bid->ballot->name, looked, bid);
    if (!bid->look)
        look_later(bid);
}

static void run_wait(quorum_bid *bid)
{
    const quorum_slot *s = &bid->ballot->slots[bid->gate];

    if (s->ours)
        claim(bid);
    else if (!s->out || bid->gate_left)
        pause_bid(bid);
    else if (bid->over)
        look(bid);
}

static void run_claim(quorum_bid *bid, int64_t now)
{
    quorum_tally t = quorum_ballot_count(bid->ballot, now);

    if (quorum_ballot_won(bid->ballot, now, bid->op)) {
        win(bid);
        return;
    }
    if (bid->over || t.possible < bid->quorum->majority) {
        note_failure(bid, &t);
        bid->failed++;
        bid->tries++;
        pause_bid(bid);
        return;
    }
    quorum_ballot_raise(bid->ballot, now);
}

static void bid_run(quorum_task *task)
{
    quorum_bid *bid = list_entry(task, quorum_bid, task);
    int64_t now = quorum_now(bid->quorum);

    switch (bid->phase) {
    case BID_TRY:
        run_try(bid, now);
        break;
    case BID_WAIT:
        run_wait(bid);
        break;
    case BID_CLAIM:
        run_claim(bid, now);
        break;
    case BID_PAUSE:
        if (bid->over)
            try_all(bid);
        break;
    case BID_END:
        if (bid->over)
            end_now(bid);
        break;
    }
}

void quorum_bids_leave(quorum *q, const quorum_node *n)
{
    for (struct list *l = q->bids.next; l != &q->bids; l = l->next) {
        quorum_bid *bid = list_entry(l, quorum_bid, link);

        if (bid->phase == BID_WAIT && &q->nodes[bid->gate] == n) {
            bid->gate_left = true;
            quorum_later(q, &bid->task);
        }
    }
}

/* ---- the slots ------------------------------------------------------------------------------- */

static void begin(quorum_task *task)
{
    quorum_bid *bid = list_entry(task, quorum_bid, task);

    task->run = bid_run;
    try_all(bid);
}

void quorum_bid_start(quorum *q, pawl_op *op)
{
    quorum_bid *bid = calloc(1, sizeof *bid);

    if (!bid) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    bid->quorum = q;
    bid->op = op;
    bid->task.run = begin;
    bid->timer = (pawl_timer){.fire = timer_fired, .arg = bid};
    bid->phase = BID_PAUSE;
    list_init(&bid->task.link);
    list_append(&q->bids, &bid->link);
    op->engine[0] = bid;
    quorum_later(q, &bid->task);
}

void quorum_acquire(quorum *q, pawl_op *op)
{
    const quorum_ballot *b = quorum_held_find(q, op->owner.seq);

    if (op->mode != PAWL_MODE_EXCLUSIVE && op->mode != PAWL_MODE_SHARED)
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOTSUP,
                                          "a quorum has locks only: no majority can agree on a "
                                          "number of permits or the count of a latch"));
    else if (op->lease_ms <= 0)
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EINVAL, "a lease must be longer than 0"));
    else if (b && b->state == BALLOT_HELD)
        quorum_confirm(q, op, b);
    else
        quorum_bid_start(q, op);
}

/* The limit has come while nodes owe answers. Those count as missing that had some time for it, or
 * if nothing is known of an earlier try. */
static void note_at_limit(quorum_bid *bid, int64_t now)
{
    int64_t before = now - bid->quorum->env->timeout_ms * PAWL_NS_PER_MS / 4;

    if (bid->phase == BID_WAIT && bid->look && bid->look->sent && bid->look->sent <= before)
        note_look(bid, bid->look);
    if (bid->phase == BID_TRY || bid->phase == BID_CLAIM) {
        quorum_tally t = quorum_ballot_count(bid->ballot, now);

        if (is_busy(bid, &t) || (bid->phase == BID_TRY &&
                                 (!bid->code || bid->ballot->slots[0].sent <= before)))
            note_failure(bid, &t);
    }
}

void quorum_acquire_cancel(quorum *q, pawl_op *op)
{
    quorum_bid *bid = op->engine[0];

    if (quorum_now(q) >= op->deadline)
        note_at_limit(bid, quorum_now(q));
    if (bid->phase == BID_END)
        end_now(bid);
    else if (bid->code == PAWL_EQUORUM && quorum_now(q) >= op->deadline)
        end(bid, PAWL_EQUORUM);
    else
        end(bid, PAWL_ECANCELED);
}
