/* SPDX-License-Identifier: Apache-2.0
 *
 * channels.c - channels that waiters listen on, in layouts where a message is not for one client.
 *
 * A channel exists, and is subscribed, while a waiter listens on the channel. After a reconnect the
 * client subscribes again before any other request. SUBSCRIBE is sent before the acquire that
 * follows, on the same connection, so that no message in between is missed. A message says how
 * many waiters to wake; the first ones, in order of arrival, ask again.
 *
 *     NONE --subscribe--> ASKED --confirmed--> HEARD
 *       ^                   | refused, lost       | the server ends it (its slot has moved), lost
 *       +-------------------+---------------------+
 *
 * `on` is the link of the subscription; answers of other links are ignored. A channel leaves NONE
 * at once when the server has ended the subscription, when the slot has moved to another node, or
 * when there is a new connection; after a refusal, with the next answer to one of its waiters, but
 * not within RETRY_MS. While the channel is not HEARD, its first waiter asks every second
 * (redis_is_deaf), so that a lost subscription delays a waiter by a second at most. A user without
 * the right to sharded channels listens to a plain channel, to which users with that right send
 * nothing: this counts as not heard, too.
 *
 * Only the first waiter of a channel watches the holder's lease. When the first waiter leaves,
 * granted or not, the next waiter asks: the release that woke the first waiter may now be for the
 * next waiter, which must also learn the lease.
 */
#include <stdlib.h>

#include "kit/hash.h"
#include "waiters.h"

#define RETRY_MS 1000

enum { NONE, ASKED, HEARD };

struct redis_channel {
    struct list link;  /* in its bucket */
    struct list waiters; /* by their in_channel */
    redis *redis;
    redis_link *on;    /* the link of the last subscription, or NULL */
    int state;
    int64_t retry;     /* NONE: don't subscribe before this instant */
    size_t length;
    char name[];
};

static struct list *bucket_of(redis *r, const char *name, size_t length)
{
    return &r->channels[kit_hash(name, length) % REDIS_CHANNEL_BUCKETS];
}

static redis_channel *find(redis *r, const char *name, size_t length)
{
    struct list *bucket = bucket_of(r, name, length);

    list_each(redis_channel, channel, bucket, link) {
        if (channel->length == length && !memcmp(channel->name, name, length))
            return channel;
    }
    return NULL;
}

/* ---- subscribing ----------------------------------------------------------------------------- */

/* A call's own copy of the channel: the channel may be freed before the call is answered. */
struct subscription {
    redis *redis;
    bool leave, sharded;
    size_t length;
    char name[];
};

static const char *word_of(const struct subscription *s)
{
    if (s->leave)
        return s->sharded ? "sunsubscribe" : "unsubscribe";
    return s->sharded ? "ssubscribe" : "subscribe";
}

static int write_subscription(redis_call *call, resp_buf *out)
{
    const struct subscription *s = call->about;
    resp_command c = resp_begin(out, 2);

    resp_add_text(&c, word_of(s));
    resp_add(&c, s->name, s->length);
    return resp_end(&c);
}

static bool by_push(const redis_call *call, const resp_node *push)
{
    const struct subscription *s = call->about;

    return redis_push_is(push, word_of(s), s->name, s->length);
}

/* The channel of the call, if the channel still waits for this answer. */
static redis_channel *channel_asked(const redis_call *call)
{
    const struct subscription *s = call->about;
    redis_channel *channel = s->leave ? NULL : find(s->redis, s->name, s->length);

    return channel && channel->on == call->on && channel->state == ASKED ? channel : NULL;
}

static bool subscription_confirmed(redis_call *call, const resp_node *reply)
{
    redis_channel *channel = channel_asked(call);

    (void)reply;
    if (channel)
        channel->state = HEARD;
    free(call->about);
    call->about = NULL;
    return true;
}

static void subscribe(redis_channel *channel, bool leave);

/* The user has no right to listen: end the channel's waiters. A waiter that ends leaves the
 * channel, and the last waiter frees the channel. */
static void refuse_waiters(const struct subscription *s, const char *words)
{
    redis_channel *channel;

    while ((channel = find(s->redis, s->name, s->length)) && !list_empty(&channel->waiters))
        redis_waiter_end(list_entry(channel->waiters.next, redis_waiter, in_channel), PAWL_EAUTH,
                         words);
}

/* Without the right to unsubscribe, channels would pile up: make the link mute. */
static void refuse_link(redis_link *link, const char *words)
{
    snprintf(link->mute, sizeof link->mute, "%s", words);
}

static void subscription_failed(redis_call *call, int code, const char *words)
{
    struct subscription *s = call->about;
    redis_channel *channel = channel_asked(call);
    redis *r = s->redis;
    bool sharded = s->sharded;

    call->about = NULL;
    if (code == PAWL_EAUTH && (s->leave || !sharded)) {
        if (s->leave)
            refuse_link(call->on, words);
        else if (channel)
            refuse_waiters(s, words);
        free(s);
        return;
    }
    if (code != PAWL_EUNKNOWN && code != PAWL_ECANCELED && code != PAWL_ECONN && !s->leave &&
        !sharded)
        r->env->log(r->env, PAWL_LOG_WARNING, "no messages from '%s', so waits take longer: %s",
                    s->name, words);
    free(s);
    if (channel) {
        channel->state = NONE;
        channel->retry = r->env->now(r->env) + RETRY_MS * PAWL_NS_PER_MS;
    }
    if (code == PAWL_ECONN && r->settings.service == REDIS_CLUSTER) /* the slot may have moved */
        redis_cluster_refresh(r);
    if (sharded && code == PAWL_EAUTH) {
        redis_shards_refused(call->on, words);
        if (channel)
            subscribe(channel, false);
    }
}

static redis_link *link_of(const redis_channel *channel)
{
    bool slots = channel->redis->settings.service == REDIS_CLUSTER;

    return redis_link_at(channel->redis, slots ? redis_slot(channel->name, channel->length) : 0);
}

static void subscribe(redis_channel *channel, bool leave)
{
    static const redis_call_type type = {.write = write_subscription,
                                         .answer = subscription_confirmed,
                                         .failed = subscription_failed,
                                         .by_push = by_push};
    redis_link *link = link_of(channel);
    struct subscription *s;
    redis_call *call;

    channel->on = link;
    channel->state = NONE;
    channel->retry = 0;
    if (link->state != LINK_READY)
        return; /* redis_channels_ready will subscribe */
    s = malloc(sizeof *s + channel->length + 1);
    call = s ? redis_call_new(link, &type, s, 0) : NULL;
    if (!call) {
        free(s);
        return; /* the waiters' timers lead to a retry */
    }
    *s = (struct subscription){.redis = channel->redis, .leave = leave, .length = channel->length,
                               .sharded = link->sharded && !link->plain};
    memcpy(s->name, channel->name, channel->length + 1);
    channel->state = ASKED;
    redis_link_send(link, call);
}

bool redis_listen(redis_waiter *w, const char *name)
{
    redis *r = w->redis;
    size_t length = strlen(name);
    redis_channel *channel = find(r, name, length);
    bool is_new = !channel;

    if (w->channel && (channel->state != NONE || r->env->now(r->env) < channel->retry))
        return false;
    if (w->channel) {
        subscribe(channel, false);
        return true;
    }
    if (is_new) {
        channel = calloc(1, sizeof *channel + length + 1);
        if (!channel)
            return false;
        channel->redis = r;
        channel->length = length;
        memcpy(channel->name, name, length);
        list_init(&channel->waiters);
        list_append(bucket_of(r, name, length), &channel->link);
    }
    w->channel = channel;
    list_append(&channel->waiters, &w->in_channel);
    if (is_new)
        subscribe(channel, false);
    return true;
}

bool redis_listens_first(const redis_waiter *w)
{
    return w->channel && w->channel->waiters.next == &w->in_channel;
}

bool redis_is_deaf(const redis_waiter *w)
{
    return w->channel && redis_listens_first(w) &&
           (w->channel->state != HEARD || w->channel->on->plain);
}

static void wake_first(redis_channel *channel, int64_t n)
{
    for (struct list *l = channel->waiters.next, *next; l != &channel->waiters && n > 0; l = next) {
        redis_waiter *w = list_entry(l, redis_waiter, in_channel);

        next = l->next;
        n--;
        redis_waiter_ask(w);
    }
}

void redis_unlisten(redis_waiter *w)
{
    redis_channel *channel = w->channel;
    bool first = redis_listens_first(w);

    w->channel = NULL;
    list_remove(&w->in_channel);
    if (list_empty(&channel->waiters)) {
        subscribe(channel, true);
        list_remove(&channel->link);
        free(channel);
    } else if (first) {
        wake_first(channel, 1);
    }
}

void redis_channels_ready(redis *r, redis_link *link)
{
    for (size_t i = 0; i < REDIS_CHANNEL_BUCKETS; i++)
        list_each(redis_channel, l, &r->channels[i], link)
            if (link_of(l) == link)
                subscribe(l, false);
}

void redis_channels_move(redis *r)
{
    for (size_t i = 0; i < REDIS_CHANNEL_BUCKETS; i++)
        list_each(redis_channel, channel, &r->channels[i], link) {
            if (link_of(channel) != channel->on)
                subscribe(channel, false);
        }
}

void redis_channel_ended(redis_link *link, const char *name, size_t length)
{
    redis_channel *channel = find(link->redis, name, length);

    if (channel && channel->on == link)
        subscribe(channel, false);
}

void redis_channel_wake(redis *r, const char *name, size_t length, int64_t wake)
{
    redis_channel *channel = find(r, name, length);

    if (channel)
        wake_first(channel, wake);
}
