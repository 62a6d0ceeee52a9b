/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster.c - which node serves a slot.
 *
 * The map has the node of each slot, as far as known; map_link.c describes how the map is read.
 * Each master in the map has a link of its own, which sleeps until this client uses one of the
 * master's slots: so a map costs no connections, and passwords are sent only to nodes that are
 * needed. Calls about slots without a known node are sent on the map link, and the node there
 * redirects the calls.
 *
 * MOVED and ASK prove that the call was not carried out: the call is redirected, at most HOPS
 * times. After that, MOVED and ASK are "not now" errors like TRYAGAIN and CLUSTERDOWN. After a
 * MOVED the client asks the named node for the map, since other nodes may not know of the move yet.
 * After a CLUSTERDOWN the client asks other nodes: the node that says so may be cut off or removed.
 *
 * When a slot has a new node, unsent calls and waiters move to the new node (redis_waiters_move).
 * If the slot was in use, and the old node is gone or the new node had no slots before, the new
 * node has taken over, and every lease is verified as soon as the new node is connected. A
 * take-over counts as a fail-over unless the new node had slots within STALE_MS: for some seconds
 * after a change the maps of different nodes differ.
 */
#include <stdlib.h>

#include "waiters.h"

#define HOPS 5
#define STALE_MS INT64_C(10000) /* how long some node may still have an old map */
#define LINKS_MAX (2 * REDIS_NODES_MAX) /* the links of the old map and of the new map */

/* ---- the map --------------------------------------------------------------------------------- */

uint16_t redis_cluster_slot(const redis *r, const char *name)
{
    char k[REDIS_K_MAX + 1];
    size_t length = redis_key(k, r->settings.prefix, name);

    return redis_slot(k, length);
}

redis_link *redis_cluster_link(redis *r, uint16_t slot)
{
    uint16_t node = r->cluster.slots[slot];
    redis_link *link = node ? r->cluster.nodes[node - 1] : &r->link;

    r->cluster.used[slot / 8] |= (uint8_t)(1u << slot % 8);
    if (redis_link_sleeps(link))
        redis_link_wake(link);
    return link;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

void redis_cluster_taken(redis_link *node)
{
    int64_t now = node->env->now(node->env);

    node->moved = true;
    node->counts |= !node->served || now - node->served > STALE_MS * PAWL_NS_PER_MS;
}

static void tell_taken(redis_link *node)
{
    bool counts = node->counts;

    node->moved = node->counts = false;
    pawl_events_report(&node->redis->events,
                       counts ? PAWL_EVENT_FAILOVER : PAWL_EVENT_VERIFY, 0);
}

static void node_ready(redis_link *link)
{
    redis *r = link->redis;

    if (link->knows_better)
        redis_map_link_ask(link);
    if (link->moved)
        tell_taken(link);
    else if (link->epochs > 1)
        pawl_events_report(&r->events, PAWL_EVENT_RECONNECT, 0);
    redis_age_ready(r, link);
    redis_shard_probe(link);
    redis_waiters_resend(r, link);
    if (link == redis_link_at(r, r->client_info_slot))
        redis_client_info_keep(r);
}

static void node_dropped(redis_link *link)
{
    redis *r = link->redis;

    redis_cluster_refresh(r);
    if (link == redis_link_at(r, r->client_info_slot))
        redis_client_info_over(r);
}

static const redis_role role_node = {.ready = node_ready, .refused = redis_refused,
    .push = redis_server_push, .dropped = node_dropped};

static redis_link *unused_node(redis *r)
{
    redis_cluster *c = &r->cluster;

    for (size_t i = 0; i < c->nnodes; i++)
        if (c->nodes[i]->state == LINK_CLOSED) {
            *c->nodes[i] = (redis_link){.number = (uint16_t)(i + 1)};
            return c->nodes[i];
        }
    if (c->nnodes == LINKS_MAX)
        return NULL;
    if (c->nnodes == c->room) {
        size_t room = c->room ? 2 * c->room : 8;
        redis_link **nodes = realloc(c->nodes, room * sizeof *nodes);

        if (!nodes)
            return NULL;
        c->nodes = nodes;
        c->room = room;
    }
    c->nodes[c->nnodes] = calloc(1, sizeof *c->nodes[0]);
    if (!c->nodes[c->nnodes])
        return NULL;
    c->nodes[c->nnodes]->number = (uint16_t)(c->nnodes + 1);
    return c->nodes[c->nnodes++];
}

redis_link *redis_cluster_node(redis *r, const char *host, uint16_t port)
{
    redis_link *link;

    for (size_t i = 0; i < r->cluster.nnodes; i++) {
        link = r->cluster.nodes[i];
        if (link->state != LINK_CLOSED && link->port == port && !strcmp(link->host, host))
            return link;
    }
    link = unused_node(r);
    if (!link)
        return NULL;
    redis_link_address(link, host, port);
    redis_link_for_locks(link, r);
    redis_link_open(link, r, &role_node);
    redis_link_sleep(link);
    return link;
}

/* ---- a new map ------------------------------------------------------------------------------- */

/* Send the calls of the backlog again: another node may have their slot now. */
static void reroute(redis_link *link)
{
    struct list mine, *l;

    list_take_all(&mine, &link->backlog);
    while ((l = list_take(&mine))) {
        redis_call *call = list_entry(l, redis_call, link);

        if (call->routed)
            redis_call_send(call);
        else
            redis_link_send(link, call);
    }
}

void redis_cluster_changed(redis *r)
{
    redis_cluster *c = &r->cluster;

    for (size_t i = 0; i < c->nnodes; i++) {
        redis_link *link = c->nodes[i];

        if (link->state == LINK_CLOSED)
            continue;
        reroute(link);
        if (link->moved && link->state == LINK_READY)
            tell_taken(link);
        else if (link->moved)
            redis_link_wake(link);
    }
    reroute(&r->link);
    redis_waiters_move(r);
    if (redis_cluster_link(r, r->client_info_slot) == &r->link)
        redis_client_info_over(r);
    for (size_t i = 0; i < c->nnodes; i++)
        if (!c->nodes[i]->nslots && list_empty(&c->nodes[i]->calls) &&
            list_empty(&c->nodes[i]->backlog))
            redis_link_close(c->nodes[i]);
}

/* ---- life ------------------------------------------------------------------------------------ */

int redis_cluster_open(redis *r, pawl_error *err)
{
    r->cluster.slots = calloc(REDIS_SLOTS, sizeof *r->cluster.slots);
    r->cluster.used = calloc(REDIS_SLOTS / 8, 1);
    if (!r->cluster.slots || !r->cluster.used) {
        redis_cluster_free(r);
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    }
    redis_map_link_open(r);
    return 0;
}

/* Keeps the nodes: while calls fail, nodes are still looked up by slot. See redis_cluster_free. */
void redis_cluster_close(redis *r)
{
    redis_cluster *c = &r->cluster;

    redis_map_link_close(r);
    for (size_t i = 0; i < c->nnodes; i++)
        redis_link_close(c->nodes[i]);
}

void redis_cluster_free(redis *r)
{
    for (size_t i = 0; i < r->cluster.nnodes; i++)
        free(r->cluster.nodes[i]);
    free(r->cluster.nodes);
    free(r->cluster.slots);
    free(r->cluster.used);
    r->cluster = (redis_cluster){0};
}

/* ---- redirections ---------------------------------------------------------------------------- */

/* "MOVED 3999 host:port": the node, or NULL. Without a host: the host of this link. */
static redis_link *node_named(redis_link *link, const resp_node *reply, uint16_t *slot)
{
    char text[NET_HOST_MAX + 40], host[NET_HOST_MAX];
    unsigned number, port;
    char *colon;
    int used = 0;

    if (reply->length >= sizeof text)
        return NULL;
    memcpy(text, reply->text, reply->length);
    text[reply->length] = 0;
    colon = strrchr(text, ':');
    if (!colon || sscanf(colon, ":%u", &port) != 1 || port < 1 || port > 65535)
        return NULL;
    *colon = 0;
    if (sscanf(text, "%*s %u %n", &number, &used) != 1 || !used || number >= REDIS_SLOTS)
        return NULL;
    *slot = (uint16_t)number;
    snprintf(host, sizeof host, "%s", text[used] && text[used] != '?' ? text + used : link->host);
    if (!redis_is_host(host) || !redis_may_follow(link, host))
        return NULL;
    return redis_cluster_node(link->redis, host, (uint16_t)port);
}

/* The slot has moved to the node `to`. */
static void slot_moved(redis *r, uint16_t slot, redis_link *to)
{
    redis_link *from = redis_cluster_link(r, slot);

    if (from == to)
        return;
    if (!to->nslots && from != &r->link)
        redis_cluster_taken(to);
    from->nslots -= from->nslots > 0;
    to->nslots++;
    to->served = r->env->now(r->env);
    r->cluster.slots[slot] = to->number;
    redis_channels_move(r);
    to->knows_better = true;
    if (to->state != LINK_READY)
        return;
    if (to->moved)
        tell_taken(to);
    redis_map_link_ask(to);
}

bool redis_cluster_redirect(redis_link *link, redis_call *call, const resp_node *reply)
{
    bool moved = resp_error_is(reply, "MOVED"), asked = resp_error_is(reply, "ASK");
    redis *r = link->redis;
    redis_link *to;
    uint16_t slot;

    if (r->settings.service != REDIS_CLUSTER)
        return false;
    if (redis_error_is(reply, "CLUSTERDOWN"))
        redis_cluster_doubt(r);
    if ((!moved && !asked) || !call->routed || !call->about)
        return false;
    to = node_named(link, reply, &slot);
    if (!to || slot != call->slot || ++call->hops > HOPS) {
        redis_cluster_refresh(r);
        return false;
    }
    if (moved)
        slot_moved(r, slot, to);
    call->asking = asked;
    redis_link_send(to, call);
    if (moved)
        redis_waiters_move(r);
    return true;
}
