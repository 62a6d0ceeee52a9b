/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - who holds and who waits, in order, and what the user is shown of it.
 *
 * Of a lock the first node holds it; if that is a reader, all readers up to the first writer; and a
 * reader with a writer's own sequence holds it together with that. Of a semaphore each lease is
 * held. A node that is not Pawl's is shown with what stands in it as its owner (Curator: an
 * address), or with its name.
 */
#include <stdlib.h>

#include "look.h"

/* ---- order ----------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    const look_node *x = a, *y = b;
    bool lease_x = x->child.sort == ZK_LEASE, lease_y = y->child.sort == ZK_LEASE;

    if (lease_x != lease_y)
        return lease_x ? -1 : 1;
    if (x->child.sequence != y->child.sequence)
        return zk_before(x->child.sequence, y->child.sequence) ? -1 : 1;
    return (int)x->child.sort - (int)y->child.sort;
}

/* Leases in the order of their names: those of one owner beside each other. */
static int by_owner(const void *a, const void *b)
{
    const look_node *x = a, *y = b;
    bool lease_x = x->child.sort == ZK_LEASE, lease_y = y->child.sort == ZK_LEASE;

    if (lease_x != lease_y)
        return lease_x ? -1 : 1;
    return lease_x ? strcmp(x->name, y->name) : 0;
}

/* Permits of one owner have the same id in front of their sequence. */
static bool same_owner(const look_node *a, const look_node *b)
{
    size_t length = strlen(a->name);

    return a->child.sort == ZK_LEASE && b->child.sort == ZK_LEASE && length > 10 &&
           length == strlen(b->name) && !strncmp(a->name, "_c_", 3) &&
           !memcmp(a->name, b->name, length - 10);
}

void look_merge(look_name *n)
{
    size_t kept = 0;

    if (n->nnodes)
        qsort(n->nodes, n->nnodes, sizeof *n->nodes, by_owner);
    for (size_t i = 0; i < n->nnodes; i++) {
        look_node *node = &n->nodes[i], *last = kept ? &n->nodes[kept - 1] : NULL;

        if (!last || !same_owner(last, node)) {
            n->nodes[kept++] = *node;
            continue;
        }
        last->permits++;
        free(node->name);
    }
    n->nnodes = kept;
}

void zk_inspect_sort(look_name *n)
{
    bool open = true; /* may the next one hold it, too? */

    if (n->nnodes)
        qsort(n->nodes, n->nnodes, sizeof *n->nodes, by_place);
    for (size_t i = 0; i < n->nnodes; i++) {
        look_node *node = &n->nodes[i];
        const look_node *first = &n->nodes[0];

        if (node->child.sort == ZK_LEASE) {
            node->holder = true;
        } else if (node->child.sort == ZK_EXCLUSIVE) {
            node->holder = i == 0;
            open = false;
        } else if (node->child.sort == ZK_SHARED) {
            node->holder = open || (first->child.sort == ZK_EXCLUSIVE &&
                                    first->child.sequence == node->child.sequence);
        }
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void describe(pawl_info *info, const look_node *node, char id[16])
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (const char *c = node->name; *c; c++)
        h = (h ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    snprintf(id, 16, "%08x", (unsigned)(h >> 32));
    info->owner = node->who.pawl ? id : node->text[0] ? node->text : node->name;
    info->host = node->who.host;
    info->program = node->who.program;
    info->label = node->who.label;
    info->pid = node->who.pid;
}

static int64_t since(const look *k, const look_node *node)
{
    int64_t now = k->task.zk->env->wall_ms(k->task.zk->env), ctime = node->stat.ctime;

    return !node->known ? -1 : ctime > 0 && ctime < now ? now - ctime : 0;
}

static int show_summary(const look *k, const look_name *n, int type)
{
    pawl_info info = {.size = sizeof info, .name = n->name, .role = PAWL_ROLE_SUMMARY,
                      .type = (uint64_t)type, .since_ms = -1, .lease_ms = -1,
                      .count = n->latch ? n->count : n->capacity, .host = "", .program = "",
                      .label = "", .owner = ""};
    char id[16];

    if (type == PAWL_TYPE_SEMAPHORE && n->capacity > n->in_use)
        info.available = n->capacity - n->in_use;
    if (n->latch && n->count < 0)
        info.count = 0;
    for (size_t i = 0; i < n->nnodes; i++) {
        const look_node *node = &n->nodes[i];

        info.waiters += !node->holder;
        if (!node->holder)
            continue;
        info.shared = node->child.sort == ZK_SHARED && (info.shared || !info.holders);
        info.holders++;
        if ((uint64_t)node->stat.czxid > info.token)
            info.token = (uint64_t)node->stat.czxid;
        info.since_ms = since(k, node) > info.since_ms ? since(k, node) : info.since_ms;
    }
    if (info.holders)
        describe(&info, &n->nodes[0], id);
    return k->op->row(k->op->row_arg, &info);
}

static int show_node(const look *k, const look_name *n, const look_node *node, int type)
{
    char id[16];
    pawl_info info = {.size = sizeof info, .name = n->name, .type = (uint64_t)type,
                      .role = node->holder ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER,
                      .shared = node->child.sort == ZK_SHARED, .since_ms = since(k, node),
                      .token = node->holder ? (uint64_t)node->stat.czxid : 0,
                      .lease_ms = node->holder ? node->who.lease_ms : -1};

    if (type == PAWL_TYPE_SEMAPHORE)
        info.permits = node->holder ? node->permits : (uint64_t)node->who.want;
    describe(&info, node, id);
    return k->op->row(k->op->row_arg, &info);
}

int zk_inspect_show(const look *k, const look_name *n, bool all)
{
    int type = n->latch ? PAWL_TYPE_LATCH
               : n->semaphore && (n->in_use || (n->nnodes && n->nodes[0].child.sort == ZK_WAITER))
                   ? PAWL_TYPE_SEMAPHORE : PAWL_TYPE_LOCK;
    int code = show_summary(k, n, type);

    for (size_t i = 0; all && !code && i < n->nnodes; i++)
        if (n->nodes[i].known) /* else it is gone by now */
            code = show_node(k, n, &n->nodes[i], type);
    return code;
}
