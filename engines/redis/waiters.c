/* SPDX-License-Identifier: Apache-2.0
 *
 * waiters.c - acquire: the ops that may wait. The layout writes the requests and reads the
 * messages.
 *
 *     ASKING --GRANTED, BUSY ...--> op done
 *       | QUEUED
 *       v
 *     QUEUED --a message that grants--> op done
 *       |    --timer, or a message to recheck--> the same acquire again; answers as above
 *       |
 *     cancel: LEAVING (the cancel script is out) --answer--> op done, or was done CANCEL_MS ago
 *
 * QUEUED means that the server has or may have an entry of the waiter: a place in the queue, or by
 * now the lock. An acquire whose answer was lost is therefore QUEUED, too. ASKING is an acquire
 * that was not carried out, or that was sent for the first time.
 *
 * The server keeps a place for REDIS_PLACE_MS; the waiter asks again long before. One waiter of a
 * name is the watcher: the watcher asks again when the lease of the holder should have ended, and
 * earlier if the holder is a stranger (another program's lock, which sends no messages). All other
 * waiters ask again every refresh_ms (of the layout), so that a watcher that died, or is stale
 * (stale.c), delays nobody for longer.
 *
 * A waiter outlives its connection: every waiter without a pending call is sent again on the next
 * connection. Repeating is harmless because the same owner gets the same answer. A lost answer is
 * therefore resolved here as long as the core waits; only an acquire that is given up before that
 * is "unknown". A waiter that was given up stays (without its op) until the server has confirmed
 * its removal, so that no grant is left without an owner, but not longer than place and lease last.
 */
#include <stdlib.h>

#include "kit/rows.h"
#include "waiters.h"

#define CANCEL_MS 100       /* how long an op waits for the answer to its cancel */
#define STRANGER_MIN_MS 20  /* the first pause before a stranger's lock is rechecked */
#define STRANGER_MAX_MS 250
#define DEAF_MS 1000        /* the recheck interval while the waiter's channel is not subscribed */
#define PERMITS_MAX 10000   /* layout redisson: each permit has an id of its own */

static void timer_fired(pawl_timer *timer);

/* End the waiter and finish its op. */
void redis_waiter_finish(redis_waiter *w, int code)
{
    pawl_op *op = w->op;

    redis_waiter_free(w);
    if (op)
        pawl_op_finish(op, code);
}

static void set_timer(redis_waiter *w, int64_t ms)
{
    kit_timer_ms(w->redis->env, &w->timer, ms);
}

static void send_call(redis_waiter *w, const redis_call_type *type)
{
    w->call = redis_call_about(w->redis, redis_slot_of(w->redis, w->name), type, w, 0);
    if (w->call) {
        w->on = w->call->on;
        redis_call_send(w->call);
    } else {
        set_timer(w, STRANGER_MAX_MS); /* no memory now */
    }
}

/* ---- asking ---------------------------------------------------------------------------------- */

static bool integer_at(const resp_node *reply, uint32_t i, int64_t *ret)
{
    const resp_node *node = resp_child(reply, i);

    return node && resp_integer(node, ret);
}

static void hand_over(redis_waiter *w)
{
    pawl_op *op = w->op;
    redis *r = w->redis;

    op->token = w->token;
    op->ntokens = (uint32_t)w->ntokens;
    op->lease_from = w->from;
    op->granted_ms = w->granted_ms < op->lease_ms ? w->granted_ms : 0;
    op->waited = w->waited;
    op->value = r->wants_age ? redis_age_ms(redis_link_for(r, w->name)) : 0;
    redis_waiter_finish(w, 0);
}

void redis_waiter_granted(redis_waiter *w, redis_call *call, uint64_t token, int64_t ntokens,
                          int64_t from, int64_t ms)
{
    w->token = token;
    w->ntokens = ntokens;
    w->from = from;
    w->granted_ms = ms;
    w->waited = w->state == WAITER_QUEUED;
    if (!w->redis->settings.replicas || w->mode == PAWL_MODE_LATCH) {
        hand_over(w);
        return;
    }
    w->state = WAITER_QUEUED; /* the server has an entry of the waiter */
    if (!call) { /* granted by a message: no WAIT on this connection covers such a grant */
        redis_waiter_ask(w);
        return;
    }
    w->redis->env->timer_clear(w->redis->env, &w->timer);
    redis_prove(call, &w->proof);
}

static bool proving(const redis_waiter *w)
{
    return !list_empty(&w->proof.link);
}

static void leave(redis_waiter *w);

/* `replicas` have the grant; -1: unknown. If too few have it, the grant is given back. */
static void wait_proven(redis_proof *proof, int64_t replicas)
{
    redis_waiter *w = list_entry(proof, redis_waiter, proof);
    char words[REDIS_WORDS];

    if (replicas >= w->redis->settings.replicas) {
        hand_over(w);
        return;
    }
    w->unsure = replicas < 0;
    if (replicas < 0) { /* ask again: the next connection, or the node that has the slot by then */
        set_timer(w, STRANGER_MIN_MS);
        return;
    }
    w->trouble = redis_proof_code(w->redis, replicas, words);
    pawl_error_set(w->op->err, w->trouble, "%s; the grant was given back", words);
    leave(w);
}

static bool answer_granted(redis_call *call, redis_waiter *w, const resp_node *reply)
{
    int64_t token, ntokens, ms, now;

    if (!integer_at(reply, 2, &token) || !integer_at(reply, 3, &ntokens) ||
        !integer_at(reply, 4, &ms) || !integer_at(reply, 5, &now) || ntokens > UINT32_MAX)
        return false;
    if (w->op->mode != PAWL_MODE_LATCH && (token < 1 || ntokens < 1 || ms < 1))
        return false;
    kit_clock_set(&call->on->clock, now, call->sent);
    redis_waiter_granted(w, call, (uint64_t)token, ntokens, call->sent, ms);
    return true;
}

static int64_t pause_ms(redis_waiter *w)
{
    return kit_pause_ms(w->redis->env, &w->rechecks, STRANGER_MIN_MS, STRANGER_MAX_MS);
}

void redis_waiter_plan(redis_waiter *w, bool watches, int64_t left, bool stranger)
{
    pawl_env *env = w->redis->env;
    int64_t refresh = w->redis->layout->refresh_ms;
    int64_t ms = refresh - (int64_t)(env->random(env) % (uint64_t)(refresh / 8));

    if (!watches || (left > 0 && !stranger))
        w->rechecks = 0;
    if (watches && left >= 0 && left < ms)
        ms = left + 1;
    if (watches && (stranger || left == 0)) {
        int64_t pause = pause_ms(w);

        ms = stranger && left > 0 && left < pause ? left + 1 : pause;
    }
    if (ms > DEAF_MS && redis_is_deaf(w))
        ms = DEAF_MS;
    set_timer(w, ms);
}

static bool answer_queued(redis_call *call, redis_waiter *w, const resp_node *reply)
{
    const resp_node *round = resp_child(reply, 6);
    int64_t behind, left, stranger, now;
    bool listens, watches;

    if (!integer_at(reply, 2, &behind) || !integer_at(reply, 3, &left) ||
        !integer_at(reply, 4, &stranger) || !integer_at(reply, 5, &now) || !w->op->queue)
        return false;
    kit_clock_set(&call->on->clock, now, call->sent);
    w->state = WAITER_QUEUED;
    pawl_op_waits(w->op);
    w->unsure = false;
    w->trouble = 0;
    if (round && resp_is_text(round) && round->length < REDIS_ROUND_MAX && !w->round[0]) {
        memcpy(w->round, round->text, round->length);
        w->round[round->length] = 0;
    }
    listens = w->redis->layout->listen && w->redis->layout->listen(w);
    watches = behind == 0 && w->op->mode != PAWL_MODE_LATCH &&
              (!w->channel || redis_listens_first(w));
    redis_waiter_plan(w, watches, left, stranger != 0);
    if (listens)
        redis_waiter_ask(w);
    return true;
}

static bool answer_acquire(redis_call *call, const resp_node *reply)
{
    redis_waiter *w = call->about;
    const resp_node *word = resp_child(reply, 0);

    if (!word || !redis_is_owner(resp_child(reply, 1), w->redis->env->client_id, w->by_seq.seq))
        return false;
    w->on = call->on;
    if (w->call == call)
        w->call = NULL;
    if (w->state == WAITER_LEAVING) {
        w->overtaken = NULL;
        return true; /* the cancel was sent after this acquire */
    }
    if (resp_equal(word, "GRANTED", 7))
        return answer_granted(call, w, reply);
    if (resp_equal(word, "QUEUED", 6))
        return answer_queued(call, w, reply);
    if (resp_equal(word, "BUSY", 4))
        redis_waiter_finish(w, PAWL_EBUSY);
    else if (resp_equal(word, "STATE", 5))
        redis_waiter_finish(w, kit_refusal(w->op, PAWL_ESTATE));
    else if (resp_equal(word, "INVAL", 5))
        redis_waiter_finish(w, kit_refusal(w->op, PAWL_EINVAL));
    else if (resp_equal(word, "GONE", 4))
        redis_waiter_finish(w, PAWL_ENOTHELD);
    else
        return false;
    return true;
}

/* The link is lost. Does another ready link serve the waiter's slot by now? */
static bool served_elsewhere(const redis_waiter *w, const redis_link *lost)
{
    const redis_link *link = redis_link_for(w->redis, w->name);

    return link != lost && link->state == LINK_READY;
}

/* PAWL_EUNKNOWN: the acquire is sent again on the next connection. PAWL_ECONN, and most errors if
 * the waiter has a place: the acquire is sent again after a pause. Other errors end the waiter. */
static void acquire_failed(redis_call *call, int code, const char *words)
{
    redis_waiter *w = call->about;

    if (w->call == call)
        w->call = NULL;
    if (w->state == WAITER_LEAVING) {
        w->overtaken = NULL;
        w->nothing |= code != PAWL_EUNKNOWN && !w->unsure;
        w->unsure |= code == PAWL_EUNKNOWN;
        return;
    }
    if (code == PAWL_EUNKNOWN) {
        w->state = WAITER_QUEUED;
        w->unsure = true;
        if (served_elsewhere(w, call->on))
            redis_waiter_ask(w);
        return;
    }
    if (code == PAWL_EAUTH && w->state == WAITER_QUEUED) {
        redis_waiter_end(w, code, words);
        return;
    }
    if (code != PAWL_ECANCELED && (w->state == WAITER_QUEUED || code == PAWL_ECONN)) {
        pawl_error_set(w->op->err, code, "%s", words);
        w->trouble = code;
        set_timer(w, pause_ms(w));
        return;
    }
    pawl_error_set(w->op->err, code, "%s", words);
    redis_waiter_finish(w, code);
}

static int write_acquire(redis_call *call, resp_buf *out)
{
    const redis_waiter *w = call->about;

    if (w->state == WAITER_LEAVING) /* NOSCRIPT: the acquire must not run after the cancel */
        return PAWL_ECANCELED;
    return call->on->redis->layout->write_acquire(call, out);
}

void redis_waiter_ask(redis_waiter *w)
{
    static const redis_call_type type = {.write = write_acquire, .answer = answer_acquire,
        .failed = acquire_failed, .proven = true, .tells = true, .before = redis_shard_listen};

    if (w->call || proving(w) || !w->redis->client_info_over)
        return;
    send_call(w, &type);
}

void redis_acquire(redis *r, pawl_op *op)
{
    redis_waiter *w;

    if (op->mode != PAWL_MODE_LATCH && op->lease_ms <= 0) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EINVAL, "a lease must last longer than 0"));
        return;
    }
    if (r->settings.redisson && op->mode == PAWL_MODE_PERMITS && op->permits > PERMITS_MAX) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EINVAL,
                                          "at most %d permits at once in the layout redisson",
                                          PERMITS_MAX));
        return;
    }
    w = redis_waiter_new(r, op);
    if (!w) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    w->timer = (pawl_timer){.fire = timer_fired, .arg = w};
    w->proof.proven = wait_proven;
    op->engine[0] = w;
    if (op->floor)
        redis_age_want(r, redis_link_for(r, op->name));
    redis_waiter_ask(w);
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void send_cancel(redis_waiter *w);

static bool answer_cancel(redis_call *call, const resp_node *reply)
{
    redis_waiter *w = call->about;
    int64_t now;

    if (!redis_is_owner(resp_child(reply, 1), w->redis->env->client_id, w->by_seq.seq) ||
        !integer_at(reply, 2, &now))
        return false;
    kit_clock_set(&call->on->clock, now, call->sent);
    redis_waiter_finish(w, w->trouble ? w->trouble : PAWL_ECANCELED);
    return true;
}

static void cancel_failed(redis_call *call, int code, const char *words)
{
    redis_waiter *w = call->about;

    w->call = NULL;
    if (code == PAWL_EAUTH && w->op) /* the waiter's entry on the server must expire */
        w->trouble = pawl_error_set(w->op->err, code, "%s", words);
    if (code != PAWL_EUNKNOWN) {
        set_timer(w, STRANGER_MAX_MS);
        return;
    }
    w->unsure = true;
    if (served_elsewhere(w, call->on))
        send_cancel(w);
}

static int write_cancel(redis_call *call, resp_buf *out)
{
    return call->on->redis->layout->write_cancel(call, out);
}

static void send_cancel(redis_waiter *w)
{
    static const redis_call_type type = {.write = write_cancel, .answer = answer_cancel,
        .failed = cancel_failed};

    send_call(w, &type);
}

/* Can calls be sent on this link? Not on a map link without a map, which only asks for the map. */
static bool serves(const redis_link *link)
{
    const redis *r = link->redis;

    return link->state == LINK_READY &&
           (r->settings.service != REDIS_CLUSTER || r->cluster.known || link != &r->link);
}

/* Finish the op now; the server gets the cancel as soon as the server can be reached. */
static void give_up(redis_waiter *w)
{
    redis_link *link = redis_link_for(w->redis, w->name);
    pawl_op *op = w->op;
    int code = w->trouble ? w->trouble : PAWL_ECANCELED;

    w->op = NULL;
    if (link->state != LINK_READY && link->last_code)
        code = pawl_error_set(op->err, link->last_code, "%s", link->words);
    else if (link->state == LINK_READY && !serves(link))
        code = pawl_error_set(op->err, PAWL_ECONN, "%s", link->words[0] ? link->words :
                              "no node of the cluster has sent its map yet");
    if (w->state == WAITER_LEAVING && !w->nothing && (w->unsure || link->state != LINK_READY))
        code = PAWL_EUNKNOWN;
    pawl_op_finish(op, code);
}

static void leave(redis_waiter *w)
{
    pawl_env *env = w->redis->env;

    w->gone_by = env->now(env) + (REDIS_PLACE_MS + w->lease_ms) * PAWL_NS_PER_MS;
    w->state = WAITER_LEAVING;
    w->overtaken = w->call; /* the cancel is sent after this acquire */
    list_remove(&w->proof.link);
    if (w->channel)
        redis_unlisten(w);
    set_timer(w, CANCEL_MS);
    if (redis_link_for(w->redis, w->name)->state == LINK_READY) {
        send_cancel(w);
        return;
    }
    if (w->call && !redis_call_withdraw(w->call))
        w->call->about = NULL;
    w->call = w->overtaken = NULL;
    give_up(w);
}

void redis_waiter_end(redis_waiter *w, int code, const char *words)
{
    if (w->state == WAITER_LEAVING)
        return;
    w->trouble = pawl_error_set(w->op->err, code, "%s", words);
    leave(w);
}

void redis_acquire_cancel(redis *r, pawl_op *op)
{
    redis_waiter *w = op->engine[0];
    redis_link *link = redis_link_for(r, op->name);
    bool ready = serves(link);

    if (w->state == WAITER_LEAVING) /* redis_waiter_end or wait_proven has sent a cancel already */
        return;
    if (w->state == WAITER_ASKING && !(w->call && ready)) { /* the server has no entry of it */
        give_up(w);
        redis_waiter_free(w);
        return;
    }
    leave(w);
}

/* ---- timer and link events ------------------------------------------------------------------- */

static void timer_fired(pawl_timer *timer)
{
    redis_waiter *w = timer->arg;
    redis_link *link = redis_link_for(w->redis, w->name);

    if (w->state != WAITER_LEAVING) {
        if (link->state == LINK_READY)
            redis_waiter_ask(w); /* else redis_waiters_resend asks when the link is ready */
        return;
    }
    if (w->op)
        give_up(w);
    if (w->redis->env->now(w->redis->env) >= w->gone_by) {
        redis_waiter_free(w);
        return;
    }
    w->redis->env->timer_set(w->redis->env, &w->timer, w->gone_by);
    if (!w->call && link->state == LINK_READY)
        send_cancel(w); /* may set an earlier timer */
}

/* The server refused the waiter: the waiter backs off, also if the connection or the map changes
 * meanwhile. */
static bool pauses(const redis_waiter *w)
{
    return w->state != WAITER_LEAVING && w->trouble && w->timer.armed;
}

static void ask_or_leave(redis_waiter *w)
{
    if (w->call || proving(w) || pauses(w))
        return;
    if (w->state == WAITER_LEAVING)
        send_cancel(w);
    else
        redis_waiter_ask(w);
}

void redis_waiters_resend(redis *r, redis_link *link)
{
    if (link)
        redis_channels_ready(r, link);
    list_each_safe(redis_waiter, w, &r->waiters, link) {
        if (!link || redis_link_for(r, w->name) == link)
            ask_or_leave(w);
    }
}

/* Ignore the answer of the node that the waiter has asked: the slot is elsewhere now. */
static void turn_away(redis_waiter *w)
{
    if (!redis_call_withdraw(w->call)) {
        w->call->about = NULL;
        w->unsure = true;
        if (w->state == WAITER_ASKING)
            w->state = WAITER_QUEUED;
    }
    w->call = NULL;
}

void redis_waiters_move(redis *r)
{
    redis_channels_move(r);
    list_each_safe(redis_waiter, w, &r->waiters, link) {
        const redis_link *on = w->call ? w->call->on : w->on;

        if (on == redis_link_for(r, w->name) || (w->call && on->state == LINK_READY))
            continue; /* a node that no longer has the slot redirects the call */
        if (w->call)
            turn_away(w);
        ask_or_leave(w);
    }
}

void redis_waiters_ask(redis *r, uint16_t slot)
{
    list_each_safe(redis_waiter, w, &r->waiters, link) {
        if (redis_slot_of(r, w->name) == slot)
            ask_or_leave(w);
    }
}

void redis_waiters_refuse(redis *r, redis_link *link, int code, const char *words)
{
    list_each_safe(redis_waiter, w, &r->waiters, link) {
        if (w->state != WAITER_ASKING || w->call || redis_link_for(r, w->name) != link)
            continue;
        pawl_error_set(w->op->err, code, "%s", words);
        redis_waiter_finish(w, code);
    }
}

bool redis_waiters_leave(void *self)
{
    redis *r = self;

    list_each(const redis_waiter, w, &r->waiters, link) {
        if (w->state == WAITER_LEAVING && redis_link_for(r, w->name)->state == LINK_READY)
            return true;
    }
    return false;
}

void redis_waiters_end(redis *r)
{
    struct list *l;

    while ((l = list_take(&r->waiters)))
        redis_waiter_finish(list_entry(l, redis_waiter, link), PAWL_ECANCELED);
    while ((l = list_take(&r->spare_waiters)))
        free(list_entry(l, redis_waiter, link));
    kit_seqs_free(&r->table);
}
