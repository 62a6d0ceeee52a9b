/* SPDX-License-Identifier: Apache-2.0
 *
 * pawl.c - the layout `pawl`: the calls of the scripts, and the messages that the scripts send.
 * The keys and the scripts are described in docs/redis.md.
 *
 * A grant by message counts from the server's time in the message (kit_clock_since), not from the
 * arrival: the message may be old. If the grant has expired by now, the acquire is sent again. The
 * same goes for a message that came over another node of a cluster than the sending node: the
 * sending node may not know that the message has arrived.
 *
 * A message to a waiter repeats the waiter's secret, which is in its record: a user that may
 * publish but not read the keys can't forge a message. Messages about acquires that this client
 * does not know are answered by stale.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "waiters.h"

#define CLAIM_MS 2000      /* head.lua */
#define CLAIM_TOLD 1999
#define REFRESH_MS 4500
#define REMEMBER_MS 60000 /* how long the receipt of a latch request is kept */

static void add_owner(resp_command *c, const pawl_owner *owner)
{
    char text[REDIS_OWNER_MAX];
    size_t length = redis_owner(text, owner->client, owner->seq);

    resp_add(c, text, length);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static int write_acquire(redis_call *call, resp_buf *out)
{
    static const char *const modes[] = {"x", "s", "p", "l"};
    redis_waiter *w = call->about;
    redis *r = w->redis;
    const pawl_op *op = w->op;
    resp_command c = redis_begin(call, &redis_script_acquire, out, 5, 12);
    char owner[REDIS_OWNER_MAX], with[REDIS_OWNER_MAX] = "", text[REDIS_CHANNEL_MAX], secret[17];
    bool sharded = call->on->sharded && !call->on->plain;
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
    resp_add_text(&c, sharded ? redis_shard_channel(text, call) : r->channel);
    resp_add_uint(&c, op->permits);
    resp_add_int(&c, op->count);
    resp_add_text(&c, with);
    resp_add_uint(&c, op->floor);
    resp_add_text(&c, w->round);
    snprintf(secret, sizeof secret, "%" PRIx64, w->secret);
    resp_add_text(&c, secret);
    return resp_end(&c);
}

static int write_cancel(redis_call *call, resp_buf *out)
{
    redis_waiter *w = call->about;
    resp_command c = redis_begin(call, &redis_script_cancel, out, 5, 1);
    char owner[REDIS_OWNER_MAX];
    redis_keys keys;

    redis_keys_make(&keys, w->redis->settings.prefix, w->name);
    redis_owner(owner, w->redis->env->client_id, w->by_seq.seq);
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
    resp_command c = redis_begin(call, &redis_script_break, out, 5, 1);
    redis_keys keys;

    redis_keys_make(&keys, call->on->settings->prefix, op->name);
    redis_add_keys(&c, &keys);
    resp_add_text(&c, op->by ? op->by : "");
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

/* A message in parts: LETTER CLIENT:SEQ NUMBER ... SECRET K [NODE]. */
typedef struct message_parts {
    char letter;
    uint64_t client, seq;
    int64_t number[4];
    uint64_t secret;
    const char *name; /* K without the prefix */
    const char *node; /* in a cluster: the id of the sending node; else NULL */
} message_parts;

/* The number at *at, up to max, and one space. */
static bool take_number(char **at, int base, uint64_t max, uint64_t *ret)
{
    char *end;

    if (!strchr(base == 16 ? "0123456789abcdef" : "0123456789", **at) || !**at)
        return false;
    errno = 0;
    *ret = strtoull(*at, &end, base);
    if (errno || *ret > max || *end != ' ')
        return false;
    *at = end + 1;
    return true;
}

/* A number, or -1 (not known). */
static bool take_signed(char **at, int64_t *ret)
{
    uint64_t value;

    if (!strncmp(*at, "-1 ", 3)) {
        *ret = -1;
        *at += 3;
        return true;
    }
    if (!take_number(at, 10, UINT64_C(1) << 53, &value))
        return false;
    *ret = (int64_t)value;
    return true;
}

static bool take_owner(char **at, message_parts *m)
{
    char *colon = strchr(*at, ':');

    if (!colon || colon - *at != 16)
        return false;
    *colon = ' ';
    return take_number(at, 16, UINT64_MAX, &m->client) && take_number(at, 16, UINT64_MAX, &m->seq);
}

/* K, and in a cluster the node after K. */
static bool take_name(const redis *r, char *at, message_parts *m)
{
    size_t prefix = strlen(r->settings.prefix), length;
    char *space = r->settings.service == REDIS_CLUSTER ? strrchr(at, ' ') : NULL;

    if (r->settings.service == REDIS_CLUSTER && !space)
        return false;
    if (space)
        *space = 0;
    m->node = space ? space + 1 : NULL;
    length = strlen(at);
    m->name = at + prefix;
    return length > prefix && length - prefix <= PAWL_NAME_MAX &&
           !memcmp(at, r->settings.prefix, prefix);
}

static bool read_message(const redis *r, char *text, message_parts *m)
{
    static const char letters[] = "gfo";
    static const int numbers[] = {4, 3, 1};
    const char *letter = text[0] ? strchr(letters, text[0]) : NULL;
    char *at = text + 2;

    if (!letter || text[1] != ' ' || !take_owner(&at, m))
        return false;
    m->letter = *letter;
    for (int i = 0; i < numbers[letter - letters]; i++)
        if (!take_signed(&at, &m->number[i]))
            return false;
    return take_number(&at, 16, UINT64_MAX, &m->secret) && take_name(r, at, m);
}

/* Did the message arrive from the sending server? In a cluster its last word names that server. */
static bool first_hand(const redis_link *link, const message_parts *m)
{
    return !m->node || (link->id[0] && !strcmp(m->node, link->id));
}

/* TOKEN NTOKENS MS NOW. The claim is ours if the claim has not expired; else the same acquire is
 * sent again to find out. */
static void message_granted(redis_waiter *w, redis_link *link, const message_parts *m)
{
    int64_t token = m->number[0], ntokens = m->number[1], ms = m->number[2], from;

    if (w->op->mode == PAWL_MODE_LATCH || token < 1 || ntokens < 1 || ntokens > UINT32_MAX ||
        ms < 1 || ms > CLAIM_MS || ms > w->lease_ms)
        return;
    from = kit_clock_since(&link->clock, link->env, m->number[3]);
    w->state = WAITER_QUEUED;
    if (!first_hand(link, m) || from + ms * PAWL_NS_PER_MS <= link->env->now(link->env))
        redis_waiter_ask(w);
    else
        redis_waiter_granted(w, NULL, (uint64_t)token, ntokens, from, ms);
}

/* The message is about an acquire that has ended: this client has no such waiter. */
static void message_unknown(redis *r, redis_link *link, const message_parts *m)
{
    bool grant = m->letter == 'g';

    if (m->letter == 'o' || !first_hand(link, m) || (grant && m->number[2] < CLAIM_TOLD))
        return;
    redis_disown(r, m->name, m->seq, grant ? (uint64_t)m->number[0] : 0, m->number[grant ? 3 : 2]);
}

/* OWNER NOW BY, in a cluster followed by the node. The notice only makes the core verify leases,
 * so a forged notice is harmless. BY is text that another client has chosen. */
static void message_broken(redis *r, char *at)
{
    message_parts m = {0};
    uint64_t now;
    char *end;

    if (!take_owner(&at, &m) || m.client != r->env->client_id ||
        !take_number(&at, 10, UINT64_MAX, &now)) {
        pawl_events_broken(&r->events, 0, "", 0);
        return;
    }
    end = r->settings.service == REDIS_CLUSTER ? strrchr(at, ' ') : NULL;
    pawl_events_broken(&r->events, m.seq, at, end ? (size_t)(end - at) : strlen(at));
}

static void message(redis *r, redis_link *link, const resp_node *channel, const resp_node *node)
{
    char copy[REDIS_K_MAX + 192];
    message_parts m = {0};
    redis_waiter *w;

    (void)channel;
    if (node->length >= sizeof copy || node->length < 2)
        return;
    memcpy(copy, node->text, node->length);
    copy[node->length] = 0;
    if (copy[0] == 'e' && copy[1] == ' ') {
        message_broken(r, copy + 2);
        return;
    }
    if (!read_message(r, copy, &m) || m.client != r->env->client_id)
        return;
    w = redis_waiter_find(r, m.seq);
    if (!w)
        message_unknown(r, link, &m);
    else if (!w->op || w->state == WAITER_LEAVING || w->secret != m.secret)
        return;
    else if (m.letter == 'g')
        message_granted(w, link, &m);
    else if (m.letter == 'f' && w->state == WAITER_QUEUED)
        redis_waiter_plan(w, true, m.number[0], m.number[1] != 0);
    else if (m.letter == 'o' && w->op->mode == PAWL_MODE_LATCH)
        redis_waiter_finish(w, 0);
}

const redis_layout redis_layout_pawl = {
    .name = "pawl",
    .caps = PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_RANGE | PAWL_CAP_SHARED | PAWL_CAP_PERMITS |
            PAWL_CAP_LATCH | PAWL_CAP_LINGER | PAWL_CAP_LIST | PAWL_CAP_FLOOR |
            PAWL_CAP_EXAMINE,
    .own_channel = true,
    .exclusive_alone = true,
    .refresh_ms = REFRESH_MS,
    .write_acquire = write_acquire,
    .write_cancel = write_cancel,
    .write_release = write_release,
    .write_renew = write_renew,
    .write_break = write_break,
    .write_latch = write_latch,
    .write_inspect = write_inspect,
    .message = message,
};
