/* SPDX-License-Identifier: Apache-2.0
 *
 * redisson.c - the layout of Redisson 3.x and 4.x: names, owners and requests.
 *
 * The scripts are our own (scripts/redisson); keys, values and messages are Redisson's. An owner is
 * "UUID:NUMBER". In Redisson UUID and NUMBER are a client and a thread. In Pawl the number is the
 * acquire's, so that a late request of an earlier acquire can't affect a later one, and the UUID is
 * made from the client's id in a way that identifies Pawl's owners (redisson_client_of).
 *
 * A waiter listens on the channel on which Redisson announces releases. The waiter asks again after
 * a message, when the holder's lease should have ended, and every REFRESH_MS, in case a message was
 * lost. A client also listens on a channel of its own, on which break notifies Pawl's holders.
 */
#include <inttypes.h>

#include "waiters.h"

#define NAME_MAX_BYTES (REDIS_K_MAX + 128)
#define REFRESH_MS 4500     /* less than half of ALIVE_MS in acquire.lua */
#define FAIR_WAIT_MS 300000 /* how long a waiter without a limit counts as alive */

enum { COMMON_KEYS = 5, COMMON_ARGS = 7 };

/* ---- names ----------------------------------------------------------------------------------- */

struct names {
    char n[REDIS_K_MAX + 1];
    bool braces; /* the name has a '{': Redisson's own test */
};

static void names_of(struct names *names, const redis *r, const char *name)
{
    snprintf(names->n, sizeof names->n, "%s%s", r->settings.prefix, name);
    names->braces = strchr(names->n, '{') != NULL;
}

static void prefixed(char out[NAME_MAX_BYTES], const char *prefix, const struct names *names)
{
    snprintf(out, NAME_MAX_BYTES, names->braces ? "%s:%s" : "%s:{%s}", prefix, names->n);
}

static void base_of(char out[NAME_MAX_BYTES], const struct names *names)
{
    snprintf(out, NAME_MAX_BYTES, names->braces ? "%s" : "{%s}", names->n);
}

static void channel_of(char out[NAME_MAX_BYTES], const struct names *names, char mode)
{
    switch (mode) {
    case 'r':
    case 'w':
        prefixed(out, "redisson_rwlock", names);
        break;
    case 'p':
    case 'c':
        prefixed(out, "redisson_sc", names);
        break;
    case 'l':
        snprintf(out, NAME_MAX_BYTES, "redisson_countdownlatch__channel__{%s}", names->n);
        break;
    default:
        prefixed(out, "redisson_lock__channel", names);
    }
}

/* ---- owners ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x7fb5d329728ea185);
    x ^= x >> 27;
    x *= UINT64_C(0x81dadef4bc2dd44d);
    return x ^ x >> 33;
}

/* A UUID of version 4: 60 bits of the client's id, and a hash of these bits. */
static void uuid_of(char out[40], uint64_t client)
{
    uint64_t check = mix(client | 15);

    snprintf(out, 40, "%08x-%04x-4%03x-8%03x-%012" PRIx64, (unsigned)(client >> 32),
             (unsigned)(client >> 16 & 0xffff), (unsigned)(client >> 4 & 0xfff),
             (unsigned)(check >> 48 & 0xfff), check & UINT64_C(0xffffffffffff));
}

bool redisson_client_of(const char *owner, uint64_t *client)
{
    unsigned a, b, c;
    char uuid[40];

    if (sscanf(owner, "%8x-%4x-4%3x-", &a, &b, &c) != 3)
        return false;
    *client = (uint64_t)a << 32 | (uint64_t)b << 16 | (uint64_t)c << 4;
    uuid_of(uuid, *client);
    return !strncmp(owner, uuid, strlen(uuid));
}

static void owner_text(char out[64], uint64_t client, uint64_t seq)
{
    char uuid[40];

    uuid_of(uuid, client);
    snprintf(out, 64, "%s:%" PRIu64, uuid, seq);
}

/* Permit ids are 16 bytes: client, number of the acquire, index. */
static void add_permit(resp_command *c, const pawl_owner *owner, uint32_t index)
{
    unsigned char id[16];

    for (int i = 0; i < 8; i++)
        id[i] = (unsigned char)(owner->client >> (56 - 8 * i));
    for (int i = 0; i < 6; i++)
        id[8 + i] = (unsigned char)(owner->seq >> (40 - 8 * i));
    id[14] = (unsigned char)(index >> 8);
    id[15] = (unsigned char)index;
    resp_add(c, id, sizeof id);
}

static char mode_of(const redis *r, int mode, int lock_kind)
{
    switch (mode) {
    case PAWL_MODE_SHARED:
        return 'r';
    case PAWL_MODE_PERMITS:
        return r->settings.plain_semaphore ? 'c' : 'p';
    case PAWL_MODE_LATCH:
        return 'l';
    default:
        return lock_kind == PAWL_WRITE ? 'w' : lock_kind == PAWL_FAIR ? 'f' : 'x';
    }
}

/* ---- keys and arguments of every script ------------------------------------------------------ */

struct request {
    const redis_call *call;
    const redis *redis;
    const char *name;
    char mode;
    pawl_owner owner;
    const char *receipt; /* the end of the receipt's key: which request of the owner */
};

static void receipt_of(char out[NAME_MAX_BYTES + 64], const struct names *names,
                       const pawl_owner *owner, const char *what)
{
    char tag[REDIS_OWNER_MAX];

    redis_owner(tag, owner->client, owner->seq);
    prefixed(out, "redisson_unlock_latch", names);
    snprintf(out + strlen(out), 64, ":%s%s", tag, what);
}

static resp_command begin(const struct request *q, const redis_script *script, resp_buf *out,
                          size_t nargs)
{
    resp_command c = redis_begin(q->call, script, out, COMMON_KEYS, COMMON_ARGS + nargs);
    char text[NAME_MAX_BYTES + 64], tag[REDIS_OWNER_MAX], owner[64];
    struct names names;

    names_of(&names, q->redis, q->name);
    redis_owner(tag, q->owner.client, q->owner.seq);
    owner_text(owner, q->owner.client, q->owner.seq);
    resp_add_text(&c, names.n);
    prefixed(text, "redisson_lock_token", &names);
    resp_add_text(&c, text);
    prefixed(text, "redisson_lock_queue", &names);
    resp_add_text(&c, text);
    prefixed(text, "redisson_lock_timeout", &names);
    resp_add_text(&c, text);
    base_of(text, &names);
    snprintf(text + strlen(text), 16, ":timeout");
    resp_add_text(&c, text);
    resp_add_text(&c, tag);
    resp_add(&c, &q->mode, 1);
    resp_add_text(&c, owner);
    resp_add_text(&c, q->call->on->sharded && !q->call->on->plain ? "SPUBLISH" : "PUBLISH");
    channel_of(text, &names, q->mode);
    resp_add_text(&c, text);
    base_of(text, &names);
    resp_add_text(&c, text);
    receipt_of(text, &names, &q->owner, q->receipt);
    resp_add_text(&c, text);
    return c;
}

static struct request about_op(const redis_call *call, const pawl_op *op)
{
    const redis *r = call->on->redis;

    return (struct request){.call = call, .redis = r, .name = op->name, .owner = op->owner,
                            .mode = mode_of(r, op->mode, op->lock_kind), .receipt = ""};
}

static struct request about_waiter(const redis_call *call, const redis_waiter *w)
{
    const redis *r = w->redis;

    return (struct request){.call = call, .redis = r, .name = w->name,
                            .owner = {.client = r->env->client_id, .seq = w->by_seq.seq},
                            .mode = mode_of(r, w->mode, w->lock_kind), .receipt = ":a"};
}

/* ---- the scripts ----------------------------------------------------------------------------- */

/* The waiter's time limit, like the wait time of Java's tryLock. */
static int64_t fair_wait(const redis_waiter *w)
{
    const pawl_op *op = w->op;
    int64_t left;

    if (!op || !op->queue)
        return 0;
    if (op->deadline == PAWL_NEVER)
        return FAIR_WAIT_MS;
    left = (op->deadline - w->asked) / PAWL_NS_PER_MS;
    return left > 1 ? left : 1;
}

static int write_acquire(redis_call *call, resp_buf *out)
{
    redis_waiter *w = call->about;
    const pawl_op *op = w->op;
    struct request q = about_waiter(call, w);
    uint32_t ids = q.mode == 'p' ? op->permits : 0;
    resp_command c = begin(&q, &redisson_script_acquire, out, 5 + ids);
    bool permits = op->mode == PAWL_MODE_PERMITS;

    w->fair_wait = fair_wait(w);
    resp_add_int(&c, op->lease_ms);
    resp_add_int(&c, w->fair_wait);
    resp_add_int(&c, permits ? 0 : op->count);
    resp_add_uint(&c, op->permits);
    resp_add_int(&c, permits ? op->count : 0);
    for (uint32_t i = 0; i < ids; i++)
        add_permit(&c, &q.owner, i);
    return resp_end(&c);
}

static int write_cancel(redis_call *call, resp_buf *out)
{
    redis_waiter *w = call->about;
    struct request q = about_waiter(call, w);
    uint32_t ids = q.mode == 'p' ? w->permits : 0;
    resp_command c = begin(&q, &redisson_script_release, out, 4 + ids);

    resp_add_text(&c, "leave");
    resp_add_int(&c, w->held);
    resp_add_int(&c, w->lease_ms);
    resp_add_int(&c, w->fair_wait);
    for (uint32_t i = 0; i < ids; i++)
        add_permit(&c, &q.owner, i);
    return resp_end(&c);
}

static int write_release(redis_call *call, resp_buf *out)
{
    const pawl_op *op = call->about;
    struct request q = about_op(call, op);
    uint32_t held = q.mode == 'p' ? (uint32_t)op->count : 0;
    uint32_t ids = held > op->permits ? held - op->permits : 0;
    uint32_t remains = q.mode == 'p' && op->permits > 0;
    resp_command c;

    q.receipt = ":a"; /* the receipt of the acquire */
    c = begin(&q, &redisson_script_release, out, 4 + remains + ids);
    resp_add_text(&c, "");
    resp_add_uint(&c, op->permits);
    resp_add_int(&c, op->lease_ms);
    resp_add_int(&c, op->linger_ms);
    if (remains)
        add_permit(&c, &op->owner, 0);
    for (uint32_t i = 0; i < ids; i++)
        add_permit(&c, &op->owner, op->permits + i);
    return resp_end(&c);
}

static int write_break(redis_call *call, resp_buf *out)
{
    const pawl_op *op = call->about;
    struct request q = about_op(call, op);
    resp_command c;

    q.mode = 'x';
    c = begin(&q, &redisson_script_break, out, 1);
    resp_add_text(&c, op->by ? op->by : "");
    return resp_end(&c);
}

static int write_latch(redis_call *call, resp_buf *out)
{
    const pawl_op *op = call->about;
    struct request q = about_op(call, op);
    resp_command c;

    q.mode = 'l';
    q.receipt = ":l";
    c = begin(&q, &redisson_script_latch, out, 2);
    resp_add_text(&c, op->kind == PAWL_OP_LATCH_SET ? "set" : "down");
    resp_add_int(&c, op->count);
    return resp_end(&c);
}

static int write_inspect(const redis_call *call, const char *name, int mode, int64_t rows,
                         resp_buf *out)
{
    const redis *r = call->on->redis;
    struct request q = {.call = call, .redis = r, .name = name, .receipt = "",
                        .mode = mode_of(r, mode, PAWL_MUTEX)};
    resp_command c = begin(&q, &redisson_script_inspect, out, 1);

    resp_add_int(&c, rows);
    return resp_end(&c);
}

static uint32_t renewal_ids(char mode, const pawl_renewal *item)
{
    return mode == 'p' ? item->permits : mode == 'c';
}

static void add_renewal(resp_command *c, const redis *r, const pawl_renewal *item)
{
    char mode = mode_of(r, item->mode, item->lock_kind), text[NAME_MAX_BYTES + 64];
    uint32_t ids = renewal_ids(mode, item);
    struct names names;

    names_of(&names, r, item->name);
    resp_add(c, &mode, 1);
    redis_owner(text, item->owner.client, item->owner.seq);
    resp_add_text(c, text);
    owner_text(text, item->owner.client, item->owner.seq);
    resp_add_text(c, text);
    base_of(text, &names);
    resp_add_text(c, text);
    resp_add_int(c, item->lease_ms);
    resp_add_uint(c, ids);
    if (mode == 'c') {
        receipt_of(text, &names, &item->owner, ":a");
        resp_add_text(c, text);
    }
    for (uint32_t i = 0; mode == 'p' && i < ids; i++)
        add_permit(c, &item->owner, i);
}

static int write_renew(redis_call *call, resp_buf *out)
{
    const redis *r = call->on->redis;
    const redis_part *part = call->about;
    size_t nargs = 1 + 6 * part->n;
    char text[NAME_MAX_BYTES + 16];
    struct names names;
    resp_command c;

    for (size_t i = 0; i < part->n; i++)
        nargs += renewal_ids(mode_of(r, part->items[i]->mode, 0), part->items[i]);
    c = redis_begin(call, &redisson_script_renew, out, 2 * part->n, nargs);
    for (size_t i = 0; i < part->n; i++) {
        names_of(&names, r, part->items[i]->name);
        resp_add_text(&c, names.n);
        base_of(text, &names);
        snprintf(text + strlen(text), 16, ":timeout");
        resp_add_text(&c, text);
    }
    resp_add_text(&c, "");
    for (size_t i = 0; i < part->n; i++)
        add_renewal(&c, r, part->items[i]);
    return resp_end(&c);
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool listen_for(redis_waiter *w)
{
    char channel[NAME_MAX_BYTES + 64], mode = mode_of(w->redis, w->mode, w->lock_kind);
    struct names names;

    names_of(&names, w->redis, w->name);
    channel_of(channel, &names, mode);
    if (mode == 'f') { /* each waiter of a fair lock has a channel of its own */
        size_t length = strlen(channel);

        channel[length] = ':';
        owner_text(channel + length + 1, w->redis->env->client_id, w->by_seq.seq);
    }
    return redis_listen(w, channel);
}

static bool begins(const resp_node *node, const char *text)
{
    size_t length = strlen(text);

    return node->length >= length && !memcmp(node->text, text, length);
}

/* The message of a lock is 0, wake one, or 1, wake all; of a semaphore, the number of permits; of a
 * latch, 0 when the latch opens, and 1 when the latch is set or deleted. A message of a read-write
 * lock wakes all waiters: any of them may get the lock. */
static void message(redis *r, redis_link *link, const resp_node *channel, const resp_node *text)
{
    int64_t number, wake;

    (void)link;
    if (begins(channel, "redisson_pawl:")) { /* one of our locks was broken; text: the breaker */
        pawl_events_broken(&r->events, 0, text->text, text->length);
        return;
    }
    if (!resp_integer(text, &number))
        return;
    if (begins(channel, "redisson_sc"))
        wake = number;
    else if (begins(channel, "redisson_countdownlatch"))
        wake = INT64_MAX;
    else
        wake = number || begins(channel, "redisson_rwlock") ? INT64_MAX : 1;
    redis_channel_wake(r, channel->text, channel->length, wake);
}

const redis_layout redis_layout_redisson = {
    .name = "redisson",
    .caps = PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_SHARED | PAWL_CAP_PERMITS | PAWL_CAP_LATCH |
            PAWL_CAP_LIST | PAWL_CAP_COUNTS | PAWL_CAP_LINGER_CLOSING | PAWL_CAP_FAIR_ONLY |
            PAWL_CAP_EXAMINE,
    .refresh_ms = REFRESH_MS,
    .write_acquire = write_acquire,
    .write_cancel = write_cancel,
    .write_release = write_release,
    .write_renew = write_renew,
    .write_break = write_break,
    .write_latch = write_latch,
    .write_inspect = write_inspect,
    .listen = listen_for,
    .message = message,
};
