/* SPDX-License-Identifier: Apache-2.0
 *
 * waiters.c - acquire: the ops that may wait, and the messages that answer them.
 *
 *     ASKING --GRANTED, BUSY ...--> op done
 *       | QUEUED
 *       v
 *     QUEUED --a message that grants--> op done
 *       |    --timer, or a message to look--> the same acquire again; its answer as above
 *       |      (PostgreSQL: every message is one to look, see sql_driver.messages_are_hints)
 *       |
 *     cancel: LEAVING (the release that cancels is sent) --answer--> op done, or was done CANCEL_MS
 *             ago
 *
 * QUEUED: the server has a queue entry for the waiter, or has granted the lock meanwhile. The
 * server keeps the entry for PLACE_MS. The front of the queue asks again when the grants ahead
 * should have ended, the waiters behind the front up to BEHIND_MS later, and every waiter after
 * REFRESH_MS at the latest. So even if messages are lost or clients killed, a lock does not stay
 * free for longer while an owner waits. If messages don't arrive (no listener yet, or a pooler), a
 * waiter asks repeatedly, at growing intervals; the first acquire after the listener is ready tells
 * the server to send messages.
 *
 * A lost answer ends the op as unknown: the core submits the op again, and the same owner finds its
 * queue entry or its grant. An op that is cancelled while there is no connection is unknown, too:
 * the core then sends a release, which removes a queue entry as well as a grant. The caller does
 * not wait for a slow cancel: the waiter stays, without its op, until the server has confirmed the
 * cancel, or at the latest until queue entry and lease must have expired. A client that closes
 * waits for such cancels, up to its time-out (sql_waiters_leave): the server gives up the
 * statements of a connection that was closed, and the entry would stay in the queue.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "kit/rows.h"
#include "sql.h"

#define PLACE_MS 60000
#define REFRESH_MS 4000   /* every waiter asks again after this time */
#define BEHIND_MS 1000
#define CANCEL_MS 100     /* how long the caller waits for the answer to a cancel */
#define POLL_MIN_MS 20    /* interval of asking without messages */
#define POLL_MAX_MS 500
#define CLAIM_MAX_MS 2000 /* the largest claim that @_pass grants */
#define DAY_MS 86400000   /* the part of the lease that limits the retries of a cancel */

enum waiter_state { WAITER_ASKING, WAITER_QUEUED, WAITER_LEAVING };

struct sql_waiter {
    struct list link;
    kit_seq by_seq;
    sql *sql;
    pawl_op *op;      /* NULL: given up */
    sql_call *call;   /* the acquire or cancel without an answer, or NULL */
    pawl_timer timer;
    uint32_t polls;   /* in a row */
    uint8_t state;    /* enum waiter_state */
    bool pushed;      /* the server knows that messages arrive */
    bool early;       /* a message has overtaken the answer */
    int64_t gone_by;  /* LEAVING: when entry and lease must have expired */
    char round[SQL_OWNER_MAX]; /* LATCH: the round of the latch that the op waits for */
    char name[PAWL_NAME_MAX + 1];
};

/* ---- the table ------------------------------------------------------------------------------- */

static sql_waiter *find(sql *q, uint64_t seq)
{
    kit_seq *s = kit_seqs_find(&q->table, seq);

    return s ? list_entry(s, sql_waiter, by_seq) : NULL;
}

static void timer_fired(pawl_timer *timer);

static sql_waiter *waiter_new(sql *q, pawl_op *op)
{
    sql_waiter *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->by_seq.seq = op->owner.seq;
    if (!kit_seqs_add(&q->table, &w->by_seq)) {
        free(w);
        return NULL;
    }
    w->sql = q;
    w->op = op;
    strcpy(w->name, op->name);
    w->timer = (pawl_timer){.fire = timer_fired, .arg = w};
    list_append(&q->waiters, &w->link);
    return w;
}

/* Free the waiter, and complete its op unless the op was completed before. */
static void finish(sql_waiter *w, int code)
{
    pawl_op *op = w->op;
    sql *q = w->sql;

    kit_seqs_remove(&q->table, &w->by_seq);
    list_remove(&w->link);
    q->env->timer_clear(q->env, &w->timer);
    if (w->call && !sql_call_withdraw(w->call))
        w->call->about = NULL;
    free(w);
    if (op)
        pawl_op_finish(op, code);
}

static void set_timer(sql_waiter *w, int64_t ms)
{
    kit_timer_ms(w->sql->env, &w->timer, ms);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void granted(sql_waiter *w, uint64_t token, int64_t ntokens, int64_t from, int64_t ms)
{
    pawl_op *op = w->op;
    sql *q = w->sql;

    op->token = token;
    op->ntokens = (uint32_t)ntokens;
    op->lease_from = from;
    op->granted_ms = ms < op->lease_ms ? ms : 0;
    op->waited = w->state == WAITER_QUEUED;
    if (op->mode != PAWL_MODE_LATCH)
        q->held++;
    finish(w, 0);
    if (q->held)
        sql_want_listener(q);
}

static int64_t pause_ms(sql_waiter *w)
{
    return kit_pause_ms(w->sql->env, &w->polls, POLL_MIN_MS, POLL_MAX_MS);
}

/* Set the timer for asking again. left: ms until the grants ahead should have ended, -1 unknown. */
static void plan(sql_waiter *w, bool front, int64_t left)
{
    pawl_env *env = w->sql->env;
    int64_t ms = REFRESH_MS - (int64_t)(env->random(env) % (REFRESH_MS / 8));

    left = left < DAY_MS ? left : DAY_MS;
    if (front && left > 0 && left < ms)
        ms = left + 1;
    else if (!front && left >= 0 && left + BEHIND_MS < ms) /* holder and front may be dead */
        ms = left + BEHIND_MS - (int64_t)(env->random(env) % (BEHIND_MS / 2));
    if (w->pushed && !(front && left == 0))
        w->polls = 0;
    else
        ms = left > 0 && left < POLL_MIN_MS ? left + 1 : pause_ms(w);
    set_timer(w, ms);
}

static bool answer_granted(sql_call *call, sql_waiter *w, const char *text)
{
    long long token, ntokens, ms, now;

    if (sscanf(text, "%lld %lld %lld %lld", &token, &ntokens, &ms, &now) != 4)
        return false;
    if (w->op->mode != PAWL_MODE_LATCH &&
        (token < 1 || ntokens < 1 || ntokens > UINT32_MAX || ms < 1))
        return false;
    kit_clock_set(&w->sql->clock, now, call->sent);
    granted(w, (uint64_t)token, ntokens, call->sent, ms);
    return true;
}

static void ask(sql_waiter *w);

static bool answer_queued(sql_call *call, sql_waiter *w, const char *text)
{
    long long position, left, stranger, now;
    char round[SQL_OWNER_MAX] = "";

    if (sscanf(text, "%lld %lld %lld %lld %39s", &position, &left, &stranger, &now, round) < 4 ||
        !w->op->queue)
        return false;
    kit_clock_set(&w->sql->clock, now, call->sent);
    w->state = WAITER_QUEUED;
    pawl_op_waits(w->op);
    if (!w->round[0] && w->op->mode == PAWL_MODE_LATCH)
        strcpy(w->round, round);
    sql_want_listener(w->sql);
    if (w->early || (!w->pushed && sql_hears(w->sql)))
        ask(w); /* a message came early, or the listener is ready now */
    else
        plan(w, position == 0 && w->op->mode != PAWL_MODE_LATCH, left);
    return true;
}

static bool answer_acquire(sql_call *call, const sql_reply *reply)
{
    sql_waiter *w = call->about;
    const char *text = reply->cell(reply, 0, 0);
    uint64_t client, seq;
    char word[12];
    int used = 0;

    if (!text ||
        sscanf(text, "%11s %16" SCNx64 ":%" SCNx64 "%n", word, &client, &seq, &used) != 3 ||
        client != w->sql->env->client_id || seq != w->by_seq.seq)
        return false;
    w->call = NULL;
    if (!strcmp(word, "GRANTED"))
        return answer_granted(call, w, text + used);
    if (!strcmp(word, "QUEUED"))
        return answer_queued(call, w, text + used);
    if (!strcmp(word, "BUSY"))
        finish(w, PAWL_EBUSY);
    else if (!strcmp(word, "STATE"))
        finish(w, kit_refusal(w->op, PAWL_ESTATE));
    else if (!strcmp(word, "INVAL"))
        finish(w, kit_refusal(w->op, PAWL_EINVAL));
    else
        return false;
    return true;
}

/* A queued waiter asks again, after a pause or on the next connection, and keeps its entry. Other
 * ops fail, and the core retries. */
static void acquire_failed(sql_call *call, int code, const char *words)
{
    sql_waiter *w = call->about;

    w->call = NULL;
    if (w->state == WAITER_QUEUED && code == PAWL_EUNKNOWN)
        return; /* the connection is lost: sql_waiters_resend asks again */
    if (w->state == WAITER_QUEUED && code != PAWL_ECANCELED) {
        set_timer(w, pause_ms(w));
        return;
    }
    pawl_error_set(w->op->err, code, "%s", words);
    finish(w, code);
}

static void fill_acquire(const sql_call *call, sql_params *p)
{
    static const char *const modes[] = {"x", "s", "p", "l"};
    sql_waiter *w = call->about;
    const pawl_op *op = w->op;

    w->pushed = sql_hears(w->sql);
    sql_owner(p->owner, op->owner.client, op->owner.seq);
    p->other[0] = 0;
    if (op->with_seq)
        sql_owner(p->other, op->owner.client, op->with_seq);
    sql_add_bytes(p, op->name, strlen(op->name));
    sql_add_text(p, p->owner);
    sql_add_text(p, modes[op->mode]);
    sql_add_int(p, sql_lease(op->lease_ms));
    sql_add_int(p, op->queue ? PLACE_MS : 0);
    sql_add_int(p, op->tokens);
    sql_add_int(p, op->mode == PAWL_MODE_PERMITS ? op->permits : 0);
    sql_add_int(p, op->count);
    sql_add_text(p, p->other);
    sql_add_int(p, (int64_t)(op->floor < INT64_MAX ? op->floor : INT64_MAX));
    sql_add_text(p, w->round);
    sql_add_int(p, w->pushed);
    sql_add_int(p, sql_call_may_wait(call));
}

static void ask(sql_waiter *w)
{
    static const sql_call_type type = {.statement = SQL_ACQUIRE, .fill = fill_acquire,
        .answer = answer_acquire, .failed = acquire_failed};
    sql_link *link = &w->sql->link;

    if (w->call)
        return;
    w->early = false;
    w->call = sql_call_new(link, &type, w);
    if (w->call)
        sql_link_send(link, w->call);
    else
        set_timer(w, POLL_MAX_MS); /* no memory now */
}

void sql_acquire(sql *q, pawl_op *op)
{
    sql_waiter *w;

    if (op->mode != PAWL_MODE_LATCH && op->lease_ms <= 0) {
        sql_done(op, PAWL_EINVAL, "a lease must last longer than 0");
        return;
    }
    w = waiter_new(q, op);
    if (!w) {
        sql_done(op, PAWL_ENOMEM, "out of memory");
        return;
    }
    op->engine[0] = w;
    ask(w);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Send the same acquire again; its answer decides. An answer that is under way may be older than
 * the message. */
static void ask_again(sql_waiter *w)
{
    if (w->call)
        w->early = true;
    else
        ask(w);
}

/* The message grants a claim, unless the claim may have expired. */
static void message_granted(sql_waiter *w, const char *text)
{
    long long token, ntokens, ms, now;
    int64_t from;

    if (w->op->mode == PAWL_MODE_LATCH ||
        sscanf(text, "%lld %lld %lld %lld", &token, &ntokens, &ms, &now) != 4 || token < 1 ||
        ntokens < 1 || ntokens > UINT32_MAX || ms < 1 || ms > CLAIM_MAX_MS)
        return;
    from = kit_clock_since(&w->sql->clock, w->sql->env, now);
    if (from + ms * PAWL_NS_PER_MS <= w->sql->env->now(w->sql->env))
        ask_again(w);
    else
        granted(w, (uint64_t)token, ntokens, from, ms);
}

void sql_waiter_message(sql *q, uint64_t seq, char kind, const char *text)
{
    sql_waiter *w = find(q, seq);
    long long left;

    if (w && w->state == WAITER_ASKING)
        w->early = true;
    if (!w || w->state != WAITER_QUEUED)
        return; /* unknown, asking, or already cancelled */
    if (q->driver->messages_are_hints && (kind == 'g' || kind == 'o'))
        ask_again(w);
    else if (kind == 'g')
        message_granted(w, text);
    else if (kind == 'f' && sscanf(text, "%lld", &left) == 1)
        plan(w, true, left);
    else if (kind == 'o' && w->op->mode == PAWL_MODE_LATCH)
        finish(w, 0);
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void fill_cancel(const sql_call *call, sql_params *p)
{
    const sql_waiter *w = call->about;

    sql_owner(p->owner, w->sql->env->client_id, w->by_seq.seq);
    sql_add_bytes(p, w->name, strlen(w->name));
    sql_add_text(p, p->owner);
    sql_add_int(p, 0);
    sql_add_int(p, 0);
    sql_add_int(p, 1);
    sql_add_int(p, sql_call_may_wait(call));
}

static bool answer_cancel(sql_call *call, const sql_reply *reply)
{
    sql_waiter *w = call->about;

    if (!reply->cell(reply, 0, 0))
        return false;
    w->call = NULL;
    finish(w, PAWL_ECANCELED);
    return true;
}

/* The caller gets its answer now. The next connection sends the cancel, as long as the server keeps
 * the waiter's place. */
static void leave_later(sql_waiter *w, const char *words)
{
    pawl_env *env = w->sql->env;
    pawl_op *op = w->op;

    w->op = NULL;
    env->timer_set(env, &w->timer, w->gone_by);
    pawl_op_finish(op, pawl_error_set(op->err, PAWL_EUNKNOWN, "%s", words));
}

static void cancel_failed(sql_call *call, int code, const char *words)
{
    sql_waiter *w = call->about;

    w->call = NULL;
    if (w->op)
        leave_later(w, words);
    if (code != PAWL_EUNKNOWN) /* else the next connection sends the cancel */
        set_timer(w, POLL_MAX_MS);
}

static void send_cancel(sql_waiter *w)
{
    static const sql_call_type type = {.statement = SQL_RELEASE, .urgent = true,
        .fill = fill_cancel, .answer = answer_cancel, .failed = cancel_failed};
    sql_link *link = &w->sql->link;

    w->call = link->state == LINK_READY ? sql_call_new(link, &type, w) : NULL;
    if (w->call)
        sql_link_send(link, w->call);
}

/* Cancel an acquire that was never sent to the server. */
static void leave_unheard(sql_waiter *w)
{
    const sql_link *link = &w->sql->link;
    int code = PAWL_ECANCELED;

    if (link->state != LINK_READY && link->last_code)
        code = pawl_error_set(w->op->err, link->last_code, "%s", link->words);
    finish(w, code);
}

void sql_acquire_cancel(sql *q, pawl_op *op)
{
    sql_waiter *w = op->engine[0];

    if (w->call && sql_call_withdraw(w->call))
        w->call = NULL;
    if (w->state == WAITER_ASKING && !w->call) {
        leave_unheard(w);
        return;
    }
    if (w->call)
        w->call->about = NULL; /* answered before the cancel, because answers come in order */
    w->call = NULL;
    w->state = WAITER_LEAVING;
    w->gone_by = q->env->now(q->env) +
                 (PLACE_MS + (op->lease_ms < DAY_MS ? op->lease_ms : DAY_MS)) * PAWL_NS_PER_MS;
    if (q->link.state != LINK_READY) {
        leave_later(w, q->link.words);
        return;
    }
    set_timer(w, CANCEL_MS);
    send_cancel(w);
}

/* ---- timers, and events of the links --------------------------------------------------------- */

static void timer_fired(pawl_timer *timer)
{
    sql_waiter *w = timer->arg;
    pawl_env *env = w->sql->env;
    pawl_op *op = w->op;

    if (w->state != WAITER_LEAVING) {
        if (w->sql->link.state == LINK_READY)
            ask(w); /* else sql_waiters_resend asks when the link is ready */
        return;
    }
    if (env->now(env) >= w->gone_by) {
        finish(w, PAWL_EUNKNOWN);
        return;
    }
    w->op = NULL; /* the caller gets its answer now; the cancel is retried */
    env->timer_set(env, &w->timer, w->gone_by);
    if (!w->call)
        send_cancel(w);
    if (op)
        pawl_op_finish(op, PAWL_ECANCELED);
}

void sql_waiters_resend(sql *q)
{
    list_each_safe(sql_waiter, w, &q->waiters, link) {
        if (q->link.state != LINK_READY || w->call)
            continue;
        if (w->state == WAITER_QUEUED)
            ask(w);
        else if (w->state == WAITER_LEAVING)
            send_cancel(w);
    }
}

void sql_waiters_refuse(sql *q, int code, const char *words)
{
    list_each_safe(sql_waiter, w, &q->waiters, link) {
        if (w->call || !w->op)
            continue;
        pawl_error_set(w->op->err, code, "%s", words);
        finish(w, code);
    }
}

bool sql_waiters_leave(sql *q)
{
    list_each(const sql_waiter, w, &q->waiters, link) {
        if (w->state == WAITER_LEAVING && q->link.state == LINK_READY)
            return true;
    }
    return false;
}

void sql_waiters_end(sql *q)
{
    while (q->table.n)
        finish(list_entry(q->waiters.next, sql_waiter, link), PAWL_ECANCELED);
    kit_seqs_free(&q->table);
}
