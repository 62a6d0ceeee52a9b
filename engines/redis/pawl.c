/* SPDX-License-Identifier: Apache-2.0
 *
 * pawl.c - the layout `pawl`: what is sent to the scripts, and what their messages say. The keys
 * and the scripts are described in docs/redis.md.
 *
 * A grant by message counts from the server's time in it (redis_since), not from its arrival: it
 * may be old. One that is over by now is asked for again. So is one that came over another node of
 * a cluster than the one that sent it: that one may not know that anybody heard.
 */
#include "waits.h"

#define CLAIM_MAX_MS 60000
#define REMEMBER_MS 60000 /* latch requests that may be repeated */

static void add_owner(resp_command *c, const pawl_owner *owner)
{
    char text[REDIS_OWNER_MAX];
    size_t length = redis_owner(text, owner->client, owner->seq);

    resp_add(c, text, length);
}

/* ---- what is sent ---------------------------------------------------------------------------- */

static int write_acquire(redis_call *call, resp_buf *out)
{
    static const char *const modes[] = {"x", "s", "p", "l"};
    redis_wait *w = call->about;
    redis *r = w->redis;
    const pawl_op *op = w->op;
    resp_command c = redis_begin(call, &redis_script_acquire, out, 5, 11);
    char owner[REDIS_OWNER_MAX], with[REDIS_OWNER_MAX] = "", channel[REDIS_CHANNEL_MAX];
    redis_keys keys;

    redis_keys_make(&keys, r->settings.prefix, w->name);
    redis_owner(owner, op->owner.client, op->owner.seq);
    if (op->with_seq)
        redis_owner(with, op->owner.client, op->with_seq);
    redis_add_keys(&c, &keys);
    resp_add_text(&c, owner);
    resp_add_text(&c, modes[op->mode]);
    resp_add_int(&c, op->lease_ms);
    resp_add_int(&c, op->queue ? REDIS_PLACE_MS : 0);
    resp_add_uint(&c, op->tokens);
    redis_shard_channel(channel, call);
    resp_add_text(&c, channel);
    resp_add_uint(&c, op->permits);
    resp_add_int(&c, op->count);
    resp_add_text(&c, with);
    resp_add_uint(&c, op->floor);
    resp_add_text(&c, w->round);
    return resp_end(&c);
}

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

static int write_release(redis_call *call, resp_buf *out)
{
    const pawl_op *op = call->about;
    resp_command c = redis_begin(call, &redis_script_release, out, 5, 3);
    redis_keys keys;

    redis_keys_make(&keys, call->on->settings->prefix, op->name);
    redis_add_keys(&c, &keys);
    add_owner(&c, &op->owner);
    resp_add_uint(&c, op->mode == PAWL_MODE_PERMITS ? op->permits : 0);
    resp_add_int(&c, op->linger_ms);
    return resp_end(&c);
}

static void add_renew_keys(resp_command *c, const redis_call *call, const pawl_renewal *item)
{
    redis_keys keys;

    redis_keys_make(&keys, call->on->settings->prefix, item->name);
    resp_add(c, keys.k, keys.k_length);
    if (call->tag == REDIS_ASK_THREE) {
        redis_add_helper(c, &keys, ":rec");
        redis_add_helper(c, &keys, ":hold");
    }
}

static int write_renew(redis_call *call, resp_buf *out)
{
    const redis_part *part = call->about;
    size_t step = (size_t)call->tag;
    resp_command c = redis_begin(call, &redis_script_renew, out, part->n * step, 1 + 2 * part->n);

    for (size_t i = 0; i < part->n; i++)
        add_renew_keys(&c, call, part->items[i]);
    resp_add_uint(&c, step);
    for (size_t i = 0; i < part->n; i++) {
        add_owner(&c, &part->items[i]->owner);
        resp_add_int(&c, part->items[i]->lease_ms);
    }
    return resp_end(&c);
}

static int write_break(redis_call *call, resp_buf *out)
{
    const pawl_op *op = call->about;
    resp_command c = redis_begin(call, &redis_script_break, out, 5, 0);
    redis_keys keys;

    redis_keys_make(&keys, call->on->settings->prefix, op->name);
    redis_add_keys(&c, &keys);
    return resp_end(&c);
}

static int write_latch(redis_call *call, resp_buf *out)
{
    const pawl_op *op = call->about;
    resp_command c = redis_begin(call, &redis_script_latch, out, 4, 4);
    redis_keys keys;

    redis_keys_make(&keys, call->on->settings->prefix, op->name);
    resp_add(&c, keys.k, keys.k_length);
    redis_add_helper(&c, &keys, ":done");
    redis_add_helper(&c, &keys, ":queue");
    redis_add_helper(&c, &keys, ":rec");
    resp_add_text(&c, op->kind == PAWL_OP_LATCH_SET ? "set" : "down");
    add_owner(&c, &op->owner);
    resp_add_int(&c, op->count);
    resp_add_int(&c, REMEMBER_MS);
    return resp_end(&c);
}

static int write_inspect(const redis_call *call, const char *name, int mode, int64_t rows,
                         resp_buf *out)
{
    resp_command c = redis_begin(call, &redis_script_inspect, out, 5, 1);
    redis_keys keys;

    (void)mode;
    redis_keys_make(&keys, call->on->settings->prefix, name);
    redis_add_keys(&c, &keys);
    resp_add_int(&c, rows);
    return resp_end(&c);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Does it come from the server that sent it? In a cluster its last word says which that is. */
static bool first_hand(const redis_link *link, const char *text)
{
    const char *last = strrchr(text, ' ');

    return link->settings->service != REDIS_CLUSTER ||
           (link->id[0] && last && !strcmp(last + 1, link->id));
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
    if (!first_hand(link, text) || from + ms * PAWL_NS_PER_MS <= link->env->now(link->env))
        redis_wait_ask(w);
    else
        redis_wait_granted(w, NULL, (uint64_t)token, ntokens, from, ms);
}

static void message_watch(redis_wait *w, const char *text)
{
    long long left, stranger;

    if (w->state == WAIT_QUEUED && sscanf(text, "%lld %lld", &left, &stranger) == 2)
        redis_wait_plan(w, true, left, stranger != 0);
}

static void message(redis *r, redis_link *link, const resp_node *channel, const resp_node *node)
{
    size_t length = node->length;
    char copy[160];
    unsigned long long client, seq;
    redis_wait *w;
    int used = 0;

    (void)channel;
    if (length >= sizeof copy)
        return;
    memcpy(copy, node->text, length);
    copy[length] = 0;
    if (length < 2 || sscanf(copy + 1, " %16llx:%llx%n", &client, &seq, &used) != 2 ||
        client != r->env->client_id)
        return;
    if (copy[0] == 'e') {
        redis_broken(r);
        return;
    }
    w = redis_wait_find(r, seq);
    if (!w || !w->op || w->state == WAIT_LEAVING)
        return;
    if (copy[0] == 'g')
        message_granted(w, link, copy + 1 + used);
    else if (copy[0] == 'f')
        message_watch(w, copy + 1 + used);
    else if (copy[0] == 'o' && w->op->mode == PAWL_MODE_LATCH)
        redis_wait_finish(w, 0);
}

const redis_layout redis_layout_pawl = {
    .name = "pawl",
    .caps = PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_RANGE | PAWL_CAP_SHARED | PAWL_CAP_PERMITS |
            PAWL_CAP_LATCH | PAWL_CAP_LINGER | PAWL_CAP_LIST | PAWL_CAP_FLOOR,
    .own_channel = true,
    .exclusive_alone = true,
    .write_acquire = write_acquire,
    .write_cancel = write_cancel,
    .write_release = write_release,
    .write_renew = write_renew,
    .write_break = write_break,
    .write_latch = write_latch,
    .write_inspect = write_inspect,
    .message = message,
};
