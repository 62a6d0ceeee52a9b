/* SPDX-License-Identifier: Apache-2.0
 *
 * waits.c - acquire: the ops that may wait, and the messages for them.
 *
 *     ASKING --GRANTED, BUSY ...--> op done
 *       | QUEUED
 *       v
 *     QUEUED --g (granted), o (the latch opened)--> op done
 *       |    --timer, f (now the front)--> the same acquire again; its answer as above
 *       |
 *     cancel: LEAVING (the cancel script is out) --answer--> op done, or was done CANCEL_MS ago
 *
 * The server keeps a place for PLACE_MS; it is asked again long before. The front asks again when
 * what is in its way should be over; behind a stranger, who sends no messages, also in between.
 *
 * A wait outlives its connection: whatever has no call out is sent again on the next one, which is
 * harmless because the same owner gets the same answer. So an acquire whose answer was lost is
 * never "unknown" to the core: it is resolved here. A wait that was given up stays (without its op)
 * until the server has confirmed that it is gone, so that no grant is left behind for nobody; at
 * the latest until place and lease must be over.
 *
 * A grant by message counts from the server's time in it (redis_since), not from its arrival: it
 * may be old. One that is over by now is asked for again.
 */
#include <stdlib.h>

#include "redis.h"

#define PLACE_MS 60000
#define REFRESH_MS 20000
#define CANCEL_MS 100       /* so long the answer to a cancel is waited for */
#define STRANGER_MIN_MS 20  /* how often a stranger's lock is looked at, at first */
#define STRANGER_MAX_MS 250
#define CLAIM_MAX_MS 60000
#define SPARE_MAX 256
#define ROUND_MAX 64

enum wait_state { WAIT_ASKING, WAIT_QUEUED, WAIT_LEAVING };

struct redis_wait {
    struct list link;
    redis_wait *next; /* in its bucket of the table */
    redis *redis;
    pawl_op *op;      /* NULL: given up */
    redis_call *call; /* the acquire or cancel that is out, or NULL */
    pawl_timer timer;
    uint64_t seq;
    int64_t gone_by;  /* LEAVING: by then nothing can be left of it */
    uint32_t looks;   /* in a row at a lock that should be free, or is a stranger's */
    int trouble;      /* what the server said last instead of an answer; op->err has the words */
    uint8_t state;    /* enum wait_state */
    char round[ROUND_MAX]; /* of the latch */
    char name[PAWL_NAME_MAX + 1];
};

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

static redis_wait *find(redis *r, uint64_t seq)
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
    w->call = NULL;
    w->timer = (pawl_timer){.fire = timer_fired, .arg = w};
    w->seq = op->owner.seq;
    w->looks = 0;
    w->trouble = 0;
    w->state = WAIT_ASKING;
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
    if (w->call)
        w->call->about = NULL;
    if (r->nspare_waits >= SPARE_MAX) {
        free(w);
        return;
    }
    list_append(&r->spare_waits, &w->link);
    r->nspare_waits++;
}

/* The op is done; the wait, too. */
static void finish(redis_wait *w, int code)
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

static int write_acquire(redis_call *call, resp_buf *out)
{
    static const char *const modes[] = {"x", "s", "p", "l"};
    redis_wait *w = call->about;
    redis *r = w->redis;
    const pawl_op *op = w->op;
    resp_command c = redis_begin(call, &redis_script_acquire, out, 5, 11);
    char owner[REDIS_OWNER_MAX], with[REDIS_OWNER_MAX] = "";
    redis_keys keys;

    redis_keys_make(&keys, r->settings.prefix, w->name);
    redis_owner(owner, op->owner.client, op->owner.seq);
    if (op->with_seq)
        redis_owner(with, op->owner.client, op->with_seq);
    redis_add_keys(&c, &keys);
    resp_add_text(&c, owner);
    resp_add_text(&c, modes[op->mode]);
    resp_add_int(&c, op->lease_ms);
    resp_add_int(&c, op->queue ? PLACE_MS : 0);
    resp_add_uint(&c, op->tokens);
    resp_add_text(&c, r->channel);
    resp_add_uint(&c, op->permits);
    resp_add_int(&c, op->count);
    resp_add_text(&c, with);
    resp_add_uint(&c, op->floor);
    resp_add_text(&c, w->round);
    return resp_end(&c);
}

static bool integer_at(const resp_node *reply, uint32_t i, int64_t *ret)
{
    const resp_node *node = resp_child(reply, i);

    return node && resp_integer(node, ret);
}

static void granted(redis_wait *w, uint64_t token, int64_t ntokens, int64_t from, int64_t ms)
{
    pawl_op *op = w->op;

    op->token = token;
    op->ntokens = (uint32_t)ntokens;
    op->lease_from = from;
    op->granted_ms = ms < op->lease_ms ? ms : 0;
    op->waited = w->state == WAIT_QUEUED;
    finish(w, 0);
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
    granted(w, (uint64_t)token, ntokens, call->sent, ms);
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

/* When to ask again. left: ms until what is in the way should be over, -1 unknown. */
static void plan(redis_wait *w, bool front, int64_t left, bool stranger)
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

    if (!integer_at(reply, 2, &position) || !integer_at(reply, 3, &left) ||
        !integer_at(reply, 4, &stranger) || !integer_at(reply, 5, &now) || !w->op->queue)
        return false;
    redis_clock_set(call, now);
    w->state = WAIT_QUEUED;
    w->trouble = 0;
    if (round && resp_is_text(round) && round->length < ROUND_MAX && !w->round[0]) {
        memcpy(w->round, round->text, round->length);
        w->round[round->length] = 0;
    }
    plan(w, position == 0 && w->op->mode != PAWL_MODE_LATCH, left, stranger != 0);
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
    finish(w, code);
}

static bool answer_acquire(redis_call *call, const resp_node *reply)
{
    redis_wait *w = call->about;
    const resp_node *word = resp_child(reply, 0);

    if (!word || !redis_is_owner(resp_child(reply, 1), w->redis->env->client_id, w->seq))
        return false;
    if (w->call == call)
        w->call = NULL;
    if (w->state == WAIT_LEAVING)
        return true; /* its cancel is behind it */
    if (resp_equal(word, "GRANTED", 7))
        return answer_granted(call, w, reply);
    if (resp_equal(word, "QUEUED", 6))
        return answer_queued(call, w, reply);
    if (resp_equal(word, "BUSY", 4))
        finish(w, PAWL_EBUSY);
    else if (resp_equal(word, "STATE", 5))
        refuse(w, PAWL_ESTATE);
    else if (resp_equal(word, "INVAL", 5))
        refuse(w, PAWL_EINVAL);
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
    if (code == PAWL_EUNKNOWN || w->state == WAIT_LEAVING)
        return;
    if (code != PAWL_ECANCELED && (w->state == WAIT_QUEUED || code == PAWL_ECONN)) {
        pawl_error_set(w->op->err, code, "%s", words);
        w->trouble = code;
        set_timer(w, pause_ms(w));
        return;
    }
    pawl_error_set(w->op->err, code, "%s", words);
    finish(w, code);
}

static void send_acquire(redis_wait *w)
{
    static const redis_call_type type = {write_acquire, answer_acquire, acquire_failed};

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
    w = wait_new(r, op);
    if (!w) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    op->engine[0] = w;
    send_acquire(w);
}

/* ---- leaving --------------------------------------------------------------------------------- */

static int write_cancel(redis_call *call, resp_buf *out)
{
    redis_wait *w = call->about;
    resp_command c = redis_begin(call, &redis_script_cancel, out, 5, 1);
    char owner[REDIS_OWNER_MAX];
    redis_keys keys;

    redis_keys_make(&keys, w->redis->settings.prefix, w->name);
    redis_owner(owner, w->redis->env->client_id, w->seq);
    redis_add_keys(&c, &keys);
    resp_add_text(&c, owner);
    return resp_end(&c);
}

static bool answer_cancel(redis_call *call, const resp_node *reply)
{
    redis_wait *w = call->about;
    int64_t now;

    if (!redis_is_owner(resp_child(reply, 1), w->redis->env->client_id, w->seq) ||
        !integer_at(reply, 2, &now))
        return false;
    redis_clock_set(call, now);
    finish(w, w->trouble ? w->trouble : PAWL_ECANCELED);
    return true;
}

static void cancel_failed(redis_call *call, int code, const char *words)
{
    redis_wait *w = call->about;

    (void)words;
    w->call = NULL;
    if (code != PAWL_EUNKNOWN)
        set_timer(w, STRANGER_MAX_MS);
}

static void send_cancel(redis_wait *w)
{
    static const redis_call_type type = {write_cancel, answer_cancel, cancel_failed};

    if (w->call)
        w->call->about = NULL; /* its acquire, in front of this */
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
    pawl_op_finish(op, code);
}

void redis_acquire_cancel(redis *r, pawl_op *op)
{
    redis_wait *w = op->engine[0];
    redis_link *link = redis_link_for(r, op->name);
    bool asked = w->state == WAIT_QUEUED || !w->call || link->state == LINK_READY;

    if (!asked) { /* never written */
        redis_call_withdraw(w->call);
        w->call = NULL;
        give_up(w);
        wait_free(w);
        return;
    }
    w->gone_by = r->env->now(r->env) + (PLACE_MS + op->lease_ms) * PAWL_NS_PER_MS;
    w->state = WAIT_LEAVING;
    set_timer(w, CANCEL_MS);
    if (link->state == LINK_READY) {
        send_cancel(w);
    } else {
        if (w->call)
            redis_call_withdraw(w->call);
        w->call = NULL;
        give_up(w);
    }
}

/* ---- time and messages ----------------------------------------------------------------------- */

static void timer_fired(pawl_timer *timer)
{
    redis_wait *w = timer->arg;
    redis_link *link = redis_link_for(w->redis, w->name);

    if (w->state != WAIT_LEAVING) {
        if (link->state == LINK_READY)
            send_acquire(w); /* else it is sent when the link is ready */
        return;
    }
    if (w->op)
        give_up(w);
    if (w->redis->env->now(w->redis->env) >= w->gone_by) {
        wait_free(w);
        return;
    }
    if (!w->call && link->state == LINK_READY)
        send_cancel(w);
    w->redis->env->timer_set(w->redis->env, &w->timer, w->gone_by);
}

void redis_waits_resend(redis *r, redis_link *link)
{
    (void)link;
    for (struct list *l = r->waits.next, *next; l != &r->waits; l = next) {
        redis_wait *w = list_entry(l, redis_wait, link);

        next = l->next;
        if (w->call)
            continue;
        if (w->state == WAIT_LEAVING)
            send_cancel(w);
        else
            send_acquire(w);
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
        finish(w, code);
    }
}

void redis_waits_end(redis *r)
{
    struct list *l;

    while ((l = list_take(&r->waits)))
        finish(list_entry(l, redis_wait, link), PAWL_ECANCELED);
    while ((l = list_take(&r->spare_waits)))
        free(list_entry(l, redis_wait, link));
    free(r->table);
    r->table = NULL;
    r->table_room = 0;
}

/* The claim is ours if it still lasts; else the same acquire finds out what has become of it. */
static void message_granted(redis_wait *w, redis_link *link, const char *text)
{
    long long token, ntokens, ms, now;
    int64_t from;

    if (w->op->mode == PAWL_MODE_LATCH ||
        sscanf(text, "%lld %lld %lld %lld", &token, &ntokens, &ms, &now) != 4 || token < 1 ||
        ntokens < 1 || ntokens > UINT32_MAX || ms < 1 || ms > CLAIM_MAX_MS)
        return;
    from = redis_since(link, now);
    w->state = WAIT_QUEUED;
    if (from + ms * PAWL_NS_PER_MS <= link->env->now(link->env))
        send_acquire(w);
    else
        granted(w, (uint64_t)token, ntokens, from, ms);
}

static void message_front(redis_wait *w, const char *text)
{
    long long left, stranger;

    if (w->state == WAIT_QUEUED && sscanf(text, "%lld %lld", &left, &stranger) == 2)
        plan(w, true, left, stranger != 0);
}

void redis_message(redis *r, redis_link *link, const char *text, size_t length)
{
    char copy[160];
    unsigned long long client, seq;
    redis_wait *w;
    int used = 0;

    if (length >= sizeof copy)
        return;
    memcpy(copy, text, length);
    copy[length] = 0;
    if (length < 2 || sscanf(copy + 1, " %16llx:%llx%n", &client, &seq, &used) != 2 ||
        client != r->env->client_id)
        return;
    if (copy[0] == 'e') {
        redis_event(r, PAWL_EVENT_VERIFY);
        return;
    }
    w = find(r, seq);
    if (!w || !w->op || w->state == WAIT_LEAVING)
        return;
    if (copy[0] == 'g')
        message_granted(w, link, copy + 1 + used);
    else if (copy[0] == 'f')
        message_front(w, copy + 1 + used);
    else if (copy[0] == 'o' && w->op->mode == PAWL_MODE_LATCH)
        finish(w, 0);
}
