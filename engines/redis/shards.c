/* SPDX-License-Identifier: Apache-2.0
 *
 * shards.c - the client's channels in a cluster.
 *
 * A plain message would be passed on to every node. So a client has a sharded channel for each slot
 * that it asks about, {N}P@C with a number N of that slot, and listens there from the first acquire
 * on: SSUBSCRIBE goes out before it on the same connection. The server ends that when the slot
 * moves away; the waits then ask, and are sent on to the new node.
 *
 * Every link listens to the plain channel P@C as well (hello.c). There the scripts turn if nobody
 * heard the sharded one: so a waiter keeps its turn whose slot has moved a moment ago. But messages
 * are passed on by other nodes, a sharded one by the replicas of a master, a former master among
 * them; so each says which node sent it (base.lua, pawl.c).
 */
#include <stdlib.h>

#include "waits.h"

void redis_shard_channel(char text[REDIS_CHANNEL_MAX], const redis_call *call)
{
    const redis *r = call->on->redis;
    char tag[12];

    if (!call->on->sharded) {
        strcpy(text, r->channel);
        return;
    }
    redis_slot_tag(tag, call->slot);
    snprintf(text, REDIS_CHANNEL_MAX, "s{%s}%s", tag, r->channel + 1);
}

static int write_listen(redis_call *call, resp_buf *out)
{
    char channel[REDIS_CHANNEL_MAX];
    resp_command c = resp_begin(out, 2);

    redis_shard_channel(channel, call);
    resp_add_text(&c, "SSUBSCRIBE");
    resp_add_text(&c, channel + 1);
    return resp_end(&c);
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

/* Moved, most likely: what follows it is sent on, and listens there. */
static void refused(redis_call *call, int code, const char *words)
{
    (void)code;
    (void)words;
    forget(call->on, call->slot);
}

void redis_shard_listen(redis_call *about)
{
    static const redis_call_type type = {.write = write_listen, .answer = confirmed,
        .failed = refused, .by_push = true};
    redis_link *link = about->on;
    redis_call *call;

    if (!link->sharded || !link->channel)
        return;
    if (!link->listens)
        link->listens = calloc(REDIS_SLOTS / 8, 1);
    if (!link->listens || (link->listens[about->slot / 8] >> about->slot % 8 & 1))
        return;
    call = redis_call_new(link, &type, link, 0);
    if (!call)
        return; /* the plain one is left */
    call->slot = about->slot;
    call->asking = about->asking;
    link->listens[about->slot / 8] |= (uint8_t)(1u << about->slot % 8);
    redis_link_send(link, call);
}

void redis_shard_ended(redis_link *link, const resp_node *channel)
{
    uint16_t slot = redis_slot(channel->text, channel->length);

    forget(link, slot);
    redis_waits_ask(link->redis, slot);
}
