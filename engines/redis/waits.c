/* SPDX-License-Identifier: Apache-2.0
 *
 * waits.c - acquire: the ops that may wait. How it is asked, and what messages say, is the
 * layout's.
 *
 *     ASKING --GRANTED, BUSY ...--> op done
 *       | QUEUED
 *       v
 *     QUEUED --a message that grants--> op done
 *       |    --timer, or a message to look--> the same acquire again; its answer as above
 *       |
 *     cancel: LEAVING (the cancel script is out) --answer--> op done, or was done CANCEL_MS ago
 *
 * QUEUED means that the server has or may have something of it: a place, or by now the lock. So it
 * is also what becomes of an acquire whose answer was lost; ASKING is one that was not carried out,
 * or is out for the first time.
 *
 * The server keeps a place for REDIS_PLACE_MS; it is asked again long before. The front asks again
 * when what is in its way should be over; behind a stranger, who sends no messages, also before.
 *
 * A wait outlives its connection: whatever has no call out is sent again on the next one, which is
 * harmless because the same owner gets the same answer. So an acquire whose answer was lost is
 * resolved here, as long as the core waits for it; only one that is given up before that is
 * "unknown". A wait that was given up stays (without its op) until the server has confirmed that it
 * is gone, so that no grant is left behind for nobody; at the latest until place and lease must be
 * over.
 */
#include <stdlib.h>

#include "waits.h"

#define REFRESH_MS 20000
#define CANCEL_MS 100       /* so long the answer to a cancel is waited for */
#define STRANGER_MIN_MS 20  /* how often a stranger's lock is looked at, at first */
#define STRANGER_MAX_MS 250
#define SPARE_MAX 256
#define PERMITS_MAX 10000   /* each has an id of its own there */

/* ---- the table ------------------------------------------------------------------------------- */

static redis_wait **bucket_of(redis *r, uint64_t seq)
{
    return &r->table[seq & (r->table_room - 1)]; /* seq counts up: no hash does better */
}

static bool grow(redis *r)
{
    size_t room = r->table_room ? r->table_room * 2 : 64;
    redis_wait **old = r->table, **table = calloc(room, sizeof *table);
    size_t old_room = r->table_room;

    if (!table)
        return old != NULL; /* longer chains, no harm */
    r->table = table;
    r->table_room = room;
    for (size_t i = 0; i < old_room; i++)
        while (old[i]) {
            redis_wait *w = old[i];

            old[i] = w->next;
            w->next = *bucket_of(r, w->seq);
            *bucket_of(r, w->seq) = w;
        }
    free(old);
    return true;
}

redis_wait *redis_wait_find(redis *r, uint64_t seq)
{
    redis_wait *w = r->table ? *bucket_of(r, seq) : NULL;

    while (w && w->seq != seq)
        w = w->next;
    return w;
}

static void timer_fired(pawl_timer *timer);

static redis_wait *wait_new(redis *r, pawl_op *op)
{
    struct list *spare = list_take(&r->spare_waits);
    redis_wait *w = spare ? list_entry(spare, redis_wait, link) : malloc(sizeof *w);

    r->nspare_waits -= spare != NULL;
    if (!w)
        return NULL;
    if (r->nwaits >= r->table_room && !grow(r)) {
        free(w);
        return NULL;
    }
    w->redis = r;
    w->op = op;
    w->call = w->overtaken = NULL;
    w->timer = (pawl_timer){.fire = timer_fired, .arg = w};
    w->seq = op->owner.seq;
    w->looks = 0;
    w->trouble = 0;
    w->unsure = w->nothing = false;
    w->state = WAIT_ASKING;
    w->asked = r->env->now(r->env);
    w->mode = op->mode;
    w->lock_kind = op->lock_kind;
    w->permits = op->permits;
    w->held = op->mode == PAWL_MODE_PERMITS ? 0 : op->count;
    w->lease_ms = op->lease_ms;
    w->channel = NULL;
    list_init(&w->in_channel);
    w->fair_wait = 0;
    w->round[0] = 0;
    strcpy(w->name, op->name);
    w->next = *bucket_of(r, w->seq);
    *bucket_of(r, w->seq) = w;
    list_append(&r->waits, &w->link);
    r->nwaits++;
    return w;
}

static void wait_free(redis_wait *w)
{
    redis *r = w->redis;
    redis_wait **at = bucket_of(r, w->seq);

    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    r->nwaits--;
    list_remove(&w->link);
    r->env->timer_clear(r->env, &w->timer);
    if (w->call && !redis_call_withdraw(w->call))
        w->call->about = NULL;
    if (w->overtaken)
        w->overtaken->about = NULL;
    redis_unlisten(w);
    if (r->nspare_waits >= SPARE_MAX) {
        free(w);
        return;
    }
    list_append(&r->spare_waits, &w->link);
    r->nspare_waits++;
}

/* The op is done; the wait, too. */
void redis_wait_finish(redis_wait *w, int code)
{
    pawl_op *op = w->op;

    wait_free(w);
    if (op)
        pawl_op_finish(op, code);
}

static void set_timer(redis_wait *w, int64_t ms)
{
    pawl_env *env = w->redis->env;

    env->timer_set(env, &w->timer, env->now(env) + ms * PAWL_NS_PER_MS);
}

static void send_call(redis_wait *w, const redis_call_type *type)
{
    redis_link *link = redis_link_for(w->redis, w->name);

    w->call = redis_call_new(link, type, w, 0);
    if (w->call)
        redis_link_send(link, w->call);
    else
        set_timer(w, STRANGER_MAX_MS); /* no memory now */
}

/* ---- asking ---------------------------------------------------------------------------------- */

static bool integer_at(const resp_node *reply, uint32_t i, int64_t *ret)
{
    const resp_node *node = resp_child(reply, i);

    return node && resp_integer(node, ret);
}

void redis_wait_granted(redis_wait *w, uint64_t token, int64_t ntokens, int64_t from, int64_t ms)
{
    pawl_op *op = w->op;

    op->token = token;
    op->ntokens = (uint32_t)ntokens;
    op->lease_from = from;
    op->granted_ms = ms < op->lease_ms ? ms : 0;
    op->waited = w->state == WAIT_QUEUED;
    redis_wait_finish(w, 0);
}

static bool answer_granted(redis_call *call, redis_wait *w, const resp_node *reply)
{
    int64_t token, ntokens, ms, now;

    if (!integer_at(reply, 2, &token) || !integer_at(reply, 3, &ntokens) ||
        !integer_at(reply, 4, &ms) || !integer_at(reply, 5, &now) || ntokens > UINT32_MAX)
        return false;
    if (w->op->mode != PAWL_MODE_LATCH && (token < 1 || ntokens < 1 || ms < 1))
        return false;
    redis_clock_set(call, now);
    redis_wait_granted(w, (uint64_t)token, ntokens, call->sent, ms);
    return true;
}

/* A pause that grows with every look in vain, half of it by chance. */
static int64_t pause_ms(redis_wait *w)
{
    pawl_env *env = w->redis->env;
    int64_t ms = (int64_t)STRANGER_MIN_MS << (w->looks < 6 ? w->looks : 6);

    w->looks++;
    ms = ms < STRANGER_MAX_MS ? ms : STRANGER_MAX_MS;
    return ms / 2 + (int64_t)(env->random(env) % (uint64_t)(ms / 2 + 1));
}

void redis_wait_plan(redis_wait *w, bool front, int64_t left, bool stranger)
{
    pawl_env *env = w->redis->env;
    int64_t ms = REFRESH_MS - (int64_t)(env->random(env) % (REFRESH_MS / 8));

    if (!front || (left > 0 && !stranger))
        w->looks = 0;
    if (front && left >= 0 && left < ms)
        ms = left + 1;
    if (front && (stranger || left == 0)) {
        int64_t pause = pause_ms(w);

        ms = stranger && left > 0 && left < pause ? left + 1 : pause;
    }
    set_timer(w, ms);
}

static bool answer_queued(redis_call *call, redis_wait *w, const resp_node *reply)
{
    const resp_node *round = resp_child(reply, 6);
    int64_t position, left, stranger, now;
    bool listens, front;

    if (!integer_at(reply, 2, &position) || !integer_at(reply, 3, &left) ||
        !integer_at(reply, 4, &stranger) || !integer_at(reply, 5, &now) || !w->op->queue)
        return false;
    redis_clock_set(call, now);
    w->state = WAIT_QUEUED;
    w->unsure = false;
    w->trouble = 0;
    if (round && resp_is_text(round) && round->length < REDIS_ROUND_MAX && !w->round[0]) {
        memcpy(w->round, round->text, round->length);
        w->round[round->length] = 0;
    }
    listens = w->redis->layout->listen && w->redis->layout->listen(w);
    front = position == 0 && w->op->mode != PAWL_MODE_LATCH &&
            (!w->channel || redis_listens_first(w));
    redis_wait_plan(w, front, left, stranger != 0);
    if (listens)
        redis_wait_ask(w);
    return true;
}

static void refuse(redis_wait *w, int code)
{
    pawl_op *op = w->op;

    if (code == PAWL_ESTATE && op->mode == PAWL_MODE_PERMITS)
        pawl_error_set(op->err, code, "\"%s\" is in use with another capacity or as something "
                       "else, or has no capacity yet", w->name);
    else if (code == PAWL_ESTATE)
        pawl_error_set(op->err, code, "\"%s\" is in use as something else", w->name);
    else if (code == PAWL_EINVAL)
        pawl_error_set(op->err, code, "\"%s\": more permits than its capacity", w->name);
    redis_wait_finish(w, code);
}

static bool answer_acquire(redis_call *call, const resp_node *reply)
{
    redis_wait *w = call->about;
    const resp_node *word = resp_child(reply, 0);

    if (!word || !redis_is_owner(resp_child(reply, 1), w->redis->env->client_id, w->seq))
        return false;
    if (w->call == call)
        w->call = NULL;
    if (w->state == WAIT_LEAVING) {
        w->overtaken = NULL;
        return true; /* its cancel is behind it */
    }
    if (resp_equal(word, "GRANTED", 7))
        return answer_granted(call, w, reply);
    if (resp_equal(word, "QUEUED", 6))
        return answer_queued(call, w, reply);
    if (resp_equal(word, "BUSY", 4))
        redis_wait_finish(w, PAWL_EBUSY);
    else if (resp_equal(word, "STATE", 5))
        refuse(w, PAWL_ESTATE);
    else if (resp_equal(word, "INVAL", 5))
        refuse(w, PAWL_EINVAL);
    else if (resp_equal(word, "GONE", 4))
        redis_wait_finish(w, PAWL_ENOTHELD);
    else
        return false;
    return true;
}

/* PAWL_EUNKNOWN: sent again with the next connection. A server that does not serve now is asked
 * again in a while; one that can't, ends the wait, unless it has a place there. */
static void acquire_failed(redis_call *call, int code, const char *words)
{
    redis_wait *w = call->about;

    if (w->call == call)
        w->call = NULL;
    if (w->state == WAIT_LEAVING) {
        w->overtaken = NULL;
        w->nothing |= code != PAWL_EUNKNOWN && !w->unsure;
        w->unsure |= code == PAWL_EUNKNOWN;
        return;
    }
    if (code == PAWL_EUNKNOWN) {
        w->state = WAIT_QUEUED;
        w->unsure = true;
        return;
    }
    if (code != PAWL_ECANCELED && (w->state == WAIT_QUEUED || code == PAWL_ECONN)) {
        pawl_error_set(w->op->err, code, "%s", words);
        w->trouble = code;
        set_timer(w, pause_ms(w));
        return;
    }
    pawl_error_set(w->op->err, code, "%s", words);
    redis_wait_finish(w, code);
}

static int write_acquire(redis_call *call, resp_buf *out)
{
    const redis_wait *w = call->about;

    if (w->state == WAIT_LEAVING) /* the script was not known, and must not run after the cancel */
        return PAWL_ECANCELED;
    return call->on->redis->layout->write_acquire(call, out);
}

void redis_wait_ask(redis_wait *w)
{
    static const redis_call_type type = {.write = write_acquire, .answer = answer_acquire,
        .failed = acquire_failed};

    if (w->call)
        return;
    send_call(w, &type);
}

void redis_acquire(redis *r, pawl_op *op)
{
    redis_wait *w;

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
    w = wait_new(r, op);
    if (!w) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    op->engine[0] = w;
    redis_wait_ask(w);
}

/* ---- leaving --------------------------------------------------------------------------------- */

static bool answer_cancel(redis_call *call, const resp_node *reply)
{
    redis_wait *w = call->about;
    int64_t now;

    if (!redis_is_owner(resp_child(reply, 1), w->redis->env->client_id, w->seq) ||
        !integer_at(reply, 2, &now))
        return false;
    redis_clock_set(call, now);
    redis_wait_finish(w, w->trouble ? w->trouble : PAWL_ECANCELED);
    return true;
}

static void cancel_failed(redis_call *call, int code, const char *words)
{
    redis_wait *w = call->about;

    (void)words;
    w->call = NULL;
    if (code == PAWL_EUNKNOWN)
        w->unsure = true;
    else
        set_timer(w, STRANGER_MAX_MS);
}

static int write_cancel(redis_call *call, resp_buf *out)
{
    return call->on->redis->layout->write_cancel(call, out);
}

static void send_cancel(redis_wait *w)
{
    static const redis_call_type type = {.write = write_cancel, .answer = answer_cancel,
        .failed = cancel_failed};

    w->overtaken = w->call ? w->call : w->overtaken; /* its acquire, in front of this */
    send_call(w, &type);
}

/* The caller is told now; the server, when it can be reached. */
static void give_up(redis_wait *w)
{
    redis_link *link = redis_link_for(w->redis, w->name);
    pawl_op *op = w->op;
    int code = w->trouble ? w->trouble : PAWL_ECANCELED;

    w->op = NULL;
    if (link->state != LINK_READY && link->last_code)
        code = pawl_error_set(op->err, link->last_code, "%s", link->words);
    if (w->state == WAIT_LEAVING && !w->nothing && (w->unsure || link->state != LINK_READY))
        code = PAWL_EUNKNOWN;
    pawl_op_finish(op, code);
}

void redis_acquire_cancel(redis *r, pawl_op *op)
{
    redis_wait *w = op->engine[0];
    redis_link *link = redis_link_for(r, op->name);
    bool ready = link->state == LINK_READY;

    if (w->state == WAIT_ASKING && !(w->call && ready)) { /* the server has nothing of it */
        give_up(w);
        wait_free(w);
        return;
    }
    w->gone_by = r->env->now(r->env) + (REDIS_PLACE_MS + op->lease_ms) * PAWL_NS_PER_MS;
    w->state = WAIT_LEAVING;
    redis_unlisten(w);
    set_timer(w, CANCEL_MS);
    if (ready) {
        send_cancel(w);
        return;
    }
    if (w->call && !redis_call_withdraw(w->call))
        w->call->about = NULL;
    w->call = NULL;
    give_up(w);
}

/* ---- time, and what the link tells ----------------------------------------------------------- */

static void timer_fired(pawl_timer *timer)
{
    redis_wait *w = timer->arg;
    redis_link *link = redis_link_for(w->redis, w->name);

    if (w->state != WAIT_LEAVING) {
        if (link->state == LINK_READY)
            redis_wait_ask(w); /* else it is sent when the link is ready */
        return;
    }
    if (w->op)
        give_up(w);
    if (w->redis->env->now(w->redis->env) >= w->gone_by) {
        wait_free(w);
        return;
    }
    w->redis->env->timer_set(w->redis->env, &w->timer, w->gone_by);
    if (!w->call && link->state == LINK_READY)
        send_cancel(w); /* it may set the timer sooner */
}

void redis_waits_resend(redis *r, redis_link *link)
{
    (void)link;
    redis_channels_ready(r);
    for (struct list *l = r->waits.next, *next; l != &r->waits; l = next) {
        redis_wait *w = list_entry(l, redis_wait, link);

        next = l->next;
        if (w->call)
            continue;
        if (w->state == WAIT_LEAVING)
            send_cancel(w);
        else
            redis_wait_ask(w);
    }
}

void redis_waits_refuse(redis *r, int code, const char *words)
{
    for (struct list *l = r->waits.next, *next; l != &r->waits; l = next) {
        redis_wait *w = list_entry(l, redis_wait, link);

        next = l->next;
        if (w->state != WAIT_ASKING || w->call)
            continue;
        pawl_error_set(w->op->err, code, "%s", words);
        redis_wait_finish(w, code);
    }
}

void redis_waits_end(redis *r)
{
    struct list *l;

    while ((l = list_take(&r->waits)))
        redis_wait_finish(list_entry(l, redis_wait, link), PAWL_ECANCELED);
    while ((l = list_take(&r->spare_waits)))
        free(list_entry(l, redis_wait, link));
    free(r->table);
    r->table = NULL;
    r->table_room = 0;
}
