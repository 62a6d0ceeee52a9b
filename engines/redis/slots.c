/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c - the node map: the cluster as one node describes it in its answer to CLUSTER SLOTS. The
 * answer is an array with an element for each range of slots: the first slot, the last slot, and
 * the nodes, each an array that begins with host, port and id. The first node is the master.
 *
 * Reading a node map changes nothing: no node is added and no connection is made until map_link.c
 * has accepted the node map and calls redis_node_map_use. A host that is empty, unknown or null
 * means the node that was asked. An answer with any part that makes no sense is refused as a whole.
 * So is an answer with more than REDIS_NODES_MAX masters, or with a host that is not allowed
 * (hosts.c): node_map->flaw then has the reason. Masters are found by a hash, so that the time to
 * read a node map is proportional to its length, even if a hostile node made the node map.
 */
#include <stdlib.h>

#include "kit/hash.h"
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

/* The index of this master in the node map, plus 1; a new master is added. 0: the node map has a
 * flaw. */
static uint16_t index_of(redis_node_map *node_map, const redis_link *from, const char *host,
                         uint16_t port)
{
    size_t at = (kit_hash_text(host) + port) % REDIS_NODE_MAP_BUCKETS;
    redis_node_map_node *node;

    for (; node_map->table[at]; at = (at + 1) % REDIS_NODE_MAP_BUCKETS) {
        node = &node_map->nodes[node_map->table[at] - 1];
        if (node->port == port && !strcmp(node->host, host))
            return node_map->table[at];
    }
    if (node_map->n == REDIS_NODES_MAX)
        snprintf(node_map->flaw, sizeof node_map->flaw, "it names more than %d masters",
                 REDIS_NODES_MAX);
    else if (!redis_may_follow(from, host))
        snprintf(node_map->flaw, sizeof node_map->flaw, "it names the host %.80s, which may not be "
                 "followed (see hosts=)", host);
    if (node_map->flaw[0])
        return 0;
    node = &node_map->nodes[node_map->n++];
    strcpy(node->host, host);
    node->port = port;
    node_map->table[at] = (uint16_t)node_map->n;
    return node_map->table[at];
}

/* Read one range. False: the range makes no sense. */
static bool read_range(redis_node_map *node_map, const redis_link *from, const resp_node *range)
{
    const resp_node *first = resp_child(range, 0), *last = resp_child(range, 1);
    const resp_node *master = resp_child(range, 2);
    const resp_node *host = master ? resp_child(master, 0) : NULL;
    const resp_node *port = master ? resp_child(master, 1) : NULL;
    const resp_node *id = master ? resp_child(master, 2) : NULL;
    char name[NET_HOST_MAX];
    int64_t a, b, number;
    uint16_t node;

    if (!first || !last || !host || !port || !resp_integer(first, &a) || !resp_integer(last, &b) ||
        !resp_integer(port, &number) || a < 0 || b < a || b >= REDIS_SLOTS || number < 1 ||
        number > 65535 || !read_host(name, host, from))
        return false;
    node_map->covered += (size_t)(b - a + 1);
    if (node_map->covered > 4 * REDIS_SLOTS) /* too many overlapping ranges */
        return false;
    node = index_of(node_map, from, name, (uint16_t)number);
    if (!node)
        return true;
    if (id && resp_is_text(id) && id->length >= REDIS_NODE_ID)
        memcpy(node_map->nodes[node - 1].id, id->text, REDIS_NODE_ID);
    for (; a <= b; a++)
        node_map->slots[a] = node;
    return true;
}

redis_node_map *redis_node_map_read(const redis_link *from, const resp_node *reply, bool *sense)
{
    redis_node_map *node_map = calloc(1, sizeof *node_map);
    const resp_node *range = reply + 1;

    *sense = reply->type == RESP_ARRAY;
    for (uint32_t i = 0; node_map && *sense && !node_map->flaw[0] && i < reply->count;
         i++, range += range->span)
        *sense = range->type == RESP_ARRAY && read_range(node_map, from, range);
    if (node_map && *sense && !node_map->flaw[0] && !node_map->n)
        snprintf(node_map->flaw, sizeof node_map->flaw,
                 "it knows of no master: was it removed from the "
                 "cluster?");
    if (node_map && !*sense) {
        free(node_map);
        node_map = NULL;
    }
    return node_map;
}

/* ---- the node map becomes the map ------------------------------------------------------------ */

/* Find the nodes that have taken slots in use over: the old node is gone, or the new node had no
 * slots before. */
static void note_moves(redis *r, redis_link *const *links, const redis_node_map *node_map)
{
    redis_cluster *c = &r->cluster;

    for (size_t slot = 0; slot < REDIS_SLOTS; slot++) {
        const redis_link *old = c->slots[slot] ? c->nodes[c->slots[slot] - 1] : NULL;
        redis_link *new = node_map->slots[slot] ? links[node_map->slots[slot] - 1] : NULL;

        if (old && new && old != new && !new->moved && (c->used[slot / 8] >> slot % 8 & 1) &&
            (old->state != LINK_READY || !new->had))
            redis_cluster_taken(new);
    }
}

static void count_slots(redis_cluster *c, redis_link *const *links, const redis_node_map *node_map)
{
    for (size_t i = 0; i < c->nnodes; i++) {
        c->nodes[i]->had = c->nodes[i]->nslots;
        c->nodes[i]->nslots = 0;
    }
    for (size_t slot = 0; slot < REDIS_SLOTS; slot++)
        if (node_map->slots[slot] && links[node_map->slots[slot] - 1])
            links[node_map->slots[slot] - 1]->nslots++;
}

void redis_node_map_use(redis *r, const redis_node_map *node_map)
{
    redis_cluster *c = &r->cluster;
    redis_link **links = calloc(node_map->n, sizeof *links);
    uint16_t *numbers = calloc(node_map->n, sizeof *numbers); /* in c->nodes, plus 1 */

    for (size_t i = 0; links && numbers && i < node_map->n; i++) {
        links[i] = redis_cluster_node(r, node_map->nodes[i].host, node_map->nodes[i].port);
        numbers[i] = links[i] ? links[i]->number : 0; /* no memory: the node is not known */
        if (links[i])
            memcpy(links[i]->id, node_map->nodes[i].id, sizeof links[i]->id);
    }
    if (links && numbers) { /* else the old map stays for now */
        count_slots(c, links, node_map);
        note_moves(r, links, node_map);
        for (size_t slot = 0; slot < REDIS_SLOTS; slot++)
            c->slots[slot] = node_map->slots[slot] ? numbers[node_map->slots[slot] - 1] : 0;
        for (size_t i = 0; i < c->nnodes; i++)
            if (c->nodes[i]->nslots)
                c->nodes[i]->served = r->env->now(r->env);
    }
    free(links);
    free(numbers);
}
