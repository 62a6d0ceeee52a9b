/* SPDX-License-Identifier: Apache-2.0
 *
 * shards.c - the client's channels in a cluster.
 *
 * A plain message would be passed on to every node. So a client has a sharded channel for each slot
 * that the client uses, {N}P@C with a number N of that slot, and listens there from the first
 * acquire on: SSUBSCRIBE is sent before the acquire on the same connection. The server ends the
 * subscription when the slot moves away; the waiters then ask, and are redirected to the new node.
 *
 * Every link listens to the plain channel P@C as well (hello.c). The scripts send to P@C if nobody
 * received the sharded message, so that a waiter keeps its turn just after its slot has moved. But
 * other nodes pass messages on (a sharded message is passed on by the replicas of a master, perhaps
 * a former master), so each message names the sending node (tell.lua, pawl.c).
 *
 * If the user may not use sharded channels, the log says so, and the connection uses the plain
 * channel (link->plain). A refusal of SSUBSCRIBE shows when the command is sent. SPUBLISH is sent
 * by scripts only; a message to a channel of our own on every new connection shows its refusal.
 */
#include <stdlib.h>

#include "waiters.h"

/* The name of the slot's channel, with the prefix `how`. */
static void channel_of(char text[REDIS_CHANNEL_MAX], const char *how, const redis *r, uint16_t slot)
{
    char tag[12];

    redis_slot_tag(tag, slot);
    snprintf(text, REDIS_CHANNEL_MAX, "%s{%s}%s", how, tag, r->channel + 1);
}

const char *redis_shard_channel(char text[REDIS_CHANNEL_MAX], const redis_call *call)
{
    channel_of(text, "s", call->on->redis, call->slot);
    return text;
}

static int write_listen(redis_call *call, resp_buf *out)
{
    char channel[REDIS_CHANNEL_MAX];
    resp_command c = resp_begin(out, 2);

    channel_of(channel, "", call->on->redis, call->slot);
    resp_add_text(&c, "SSUBSCRIBE");
    resp_add_text(&c, channel);
    return resp_end(&c);
}

bool redis_push_is(const resp_node *push, const char *word, const char *channel, size_t length)
{
    const resp_node *first = resp_child(push, 0), *second = resp_child(push, 1);

    return first && second && resp_equal(first, word, strlen(word)) &&
           resp_equal(second, channel, length);
}

static bool by_push(const redis_call *call, const resp_node *push)
{
    char channel[REDIS_CHANNEL_MAX];

    channel_of(channel, "", call->on->redis, call->slot);
    return redis_push_is(push, "ssubscribe", channel, strlen(channel));
}

static bool confirmed(redis_call *call, const resp_node *reply)
{
    (void)call;
    (void)reply;
    return true;
}

static void forget(redis_link *link, uint16_t slot)
{
    if (link->listens)
        link->listens[slot / 8] &= (uint8_t)~(1u << slot % 8);
}

void redis_shards_refused(redis_link *link, const char *words)
{
    if (!link->plain)
        link->env->log(link->env, PAWL_LOG_WARNING, "%s: sharded messages are refused, so messages "
                       "go to all nodes of the cluster: %s", link->where, words);
    link->plain = true;
}

/* The slot has most likely moved: the acquire that follows is redirected, and subscribes there. */
static void refused(redis_call *call, int code, const char *words)
{
    forget(call->on, call->slot);
    if (code == PAWL_EAUTH)
        redis_shards_refused(call->on, words);
}

void redis_shard_listen(redis_call *about)
{
    static const redis_call_type type = {.write = write_listen, .answer = confirmed,
        .failed = refused, .by_push = by_push};
    redis_link *link = about->on;
    redis_call *call;

    if (link->plain || !link->channel)
        return;
    if (!link->listens)
        link->listens = calloc(REDIS_SLOTS / 8, 1);
    if (!link->listens || (link->listens[about->slot / 8] >> about->slot % 8 & 1))
        return;
    call = redis_call_new(link, &type, link, 0);
    if (!call)
        return; /* the plain channel remains */
    call->slot = about->slot;
    call->asking = about->asking;
    link->listens[about->slot / 8] |= (uint8_t)(1u << about->slot % 8);
    redis_link_send(link, call);
}

void redis_shard_ended(redis_link *link, const resp_node *channel)
{
    uint16_t slot = redis_slot(channel->text, channel->length);

    forget(link, slot);
    redis_channel_ended(link, channel->text, channel->length);
    redis_waiters_ask(link->redis, slot);
}

/* ---- the right to send sharded messages ------------------------------------------------------ */

static int write_probe(redis_call *call, resp_buf *out)
{
    const redis *r = call->on->redis;
    char channel[REDIS_CHANNEL_MAX];
    resp_command c = resp_begin(out, 3);

    if (r->layout->own_channel)
        channel_of(channel, "", r, 0);
    else
        snprintf(channel, sizeof channel, "%s?", r->channel + 1);
    resp_add_text(&c, "SPUBLISH");
    resp_add_text(&c, channel);
    resp_add_text(&c, "");
    return resp_end(&c);
}

/* MOVED means that another node has the slot, and that the right is there. */
static void probe_failed(redis_call *call, int code, const char *words)
{
    if (code == PAWL_EAUTH)
        redis_shards_refused(call->on, words);
}

void redis_shard_probe(redis_link *link)
{
    static const redis_call_type type = {.write = write_probe, .answer = confirmed,
        .failed = probe_failed};
    redis_call *call;

    link->plain = false;
    call = link->sharded ? redis_call_new(link, &type, link, 0) : NULL;
    if (call)
        redis_link_send(link, call);
}
