/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c - the answer to CLUSTER SLOTS: an array with for each range of slots its first, its last,
 * and its nodes, each an array that begins with host, port and id; the first is the master.
 *
 * A host that is empty, unknown or null means the one that was asked. An answer that makes no sense
 * anywhere changes nothing.
 */
#include <stdlib.h>

#include "redis.h"

static bool read_host(char host[NET_HOST_MAX], const resp_node *node, const redis_link *from)
{
    if (node->type == RESP_NULL || (resp_is_text(node) && !node->length) ||
        resp_equal(node, "?", 1)) {
        strcpy(host, from->host);
        return true;
    }
    if (!resp_is_text(node) || node->length >= NET_HOST_MAX)
        return false;
    memcpy(host, node->text, node->length);
    host[node->length] = 0;
    return strlen(host) == node->length && redis_is_host(host);
}

/* One range. */
static bool read_range(redis *r, const redis_link *from, const resp_node *range, redis_link **map)
{
    const resp_node *first = resp_child(range, 0), *last = resp_child(range, 1);
    const resp_node *master = resp_child(range, 2);
    const resp_node *host = master ? resp_child(master, 0) : NULL;
    const resp_node *port = master ? resp_child(master, 1) : NULL;
    const resp_node *id = master ? resp_child(master, 2) : NULL;
    char name[NET_HOST_MAX];
    int64_t a, b, number;
    redis_link *node;

    if (!first || !last || !host || !port || !resp_integer(first, &a) || !resp_integer(last, &b) ||
        !resp_integer(port, &number) || a < 0 || b < a || b >= REDIS_SLOTS || number < 1 ||
        number > 65535 || !read_host(name, host, from))
        return false;
    node = redis_cluster_node(r, name, (uint16_t)number);
    if (node && id && resp_is_text(id) && id->length >= sizeof node->id - 1)
        snprintf(node->id, sizeof node->id, "%.*s", (int)sizeof node->id - 1, id->text);
    for (; node && a <= b; a++)
        map[a] = node;
    return true; /* without memory: not known */
}

static uint16_t index_of(const redis_cluster *c, const redis_link *node)
{
    for (size_t i = 0; node && i < c->nnodes; i++)
        if (c->nodes[i] == node)
            return (uint16_t)(i + 1);
    return 0;
}

/* Slots that a node which is gone has left, or that are with one that had none before. */
static void note_moves(redis *r, redis_link *const *map)
{
    redis_cluster *c = &r->cluster;

    for (size_t slot = 0; slot < REDIS_SLOTS; slot++) {
        const redis_link *old = c->slots[slot] ? c->nodes[c->slots[slot] - 1] : NULL;

        if (old && map[slot] && old != map[slot] && !map[slot]->moved &&
            (old->state != LINK_READY || !map[slot]->had))
            redis_cluster_taken(map[slot]);
    }
}

static void use(redis *r, redis_link *const *map)
{
    redis_cluster *c = &r->cluster;
    const redis_link *last = NULL;
    uint16_t index = 0;

    for (size_t i = 0; i < c->nnodes; i++) {
        c->nodes[i]->had = c->nodes[i]->nslots;
        c->nodes[i]->nslots = 0;
    }
    for (size_t slot = 0; slot < REDIS_SLOTS; slot++)
        if (map[slot])
            map[slot]->nslots++;
    note_moves(r, map);
    for (size_t slot = 0; slot < REDIS_SLOTS; slot++) {
        if (map[slot] != last)
            index = index_of(c, map[slot]);
        last = map[slot];
        c->slots[slot] = last ? index : 0;
    }
    for (size_t i = 0; i < c->nnodes; i++)
        if (c->nodes[i]->nslots)
            c->nodes[i]->served = r->env->now(r->env);
}

bool redis_slots_read(redis *r, const redis_link *from, const resp_node *reply)
{
    redis_link **map;
    const resp_node *range = reply + 1;
    bool good = reply->type == RESP_ARRAY;

    if (!good)
        return false;
    map = calloc(REDIS_SLOTS, sizeof *map);
    if (!map)
        return true; /* the old one is kept for now */
    for (uint32_t i = 0; good && i < reply->count; i++, range += range->span)
        good = range->type == RESP_ARRAY && read_range(r, from, range, map);
    if (good)
        use(r, map);
    free(map);
    return good;
}
