/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - holders and waiters in order, and the rows that users see.
 *
 * The first node of a lock is the holder. If the first node is a reader, all readers up to the
 * first writer hold the lock; a reader with a writer's own sequence holds the lock together with
 * that writer. Each lease of a semaphore is a holder. A node that Pawl did not create is shown with
 * its data as the owner (Curator: an address), or with its name.
 */
#include <stdlib.h>

#include "inspect.h"
#include "kit/hash.h"
#include "kit/rows.h"

/* ---- order ----------------------------------------------------------------------------------- */

static int by_position(const void *a, const void *b)
{
    const zk_inspect_node *x = a, *y = b;
    bool lease_x = x->child.sort == ZK_LEASE, lease_y = y->child.sort == ZK_LEASE;

    if (lease_x != lease_y)
        return lease_x ? -1 : 1;
    if (x->child.sequence != y->child.sequence)
        return zk_before(x->child.sequence, y->child.sequence) ? -1 : 1;
    return (int)x->child.sort - (int)y->child.sort;
}

/* Sort leases by name, so that the leases of one owner are neighbors. */
static int by_owner(const void *a, const void *b)
{
    const zk_inspect_node *x = a, *y = b;
    bool lease_x = x->child.sort == ZK_LEASE, lease_y = y->child.sort == ZK_LEASE;

    if (lease_x != lease_y)
        return lease_x ? -1 : 1;
    return lease_x ? strcmp(x->name, y->name) : 0;
}

/* Permits of one owner have the same id in front of their sequence. */
static bool same_owner(const zk_inspect_node *a, const zk_inspect_node *b)
{
    size_t length = strlen(a->name);

    return a->child.sort == ZK_LEASE && b->child.sort == ZK_LEASE && length > 10 &&
           length == strlen(b->name) && !strncmp(a->name, "_c_", 3) &&
           !memcmp(a->name, b->name, length - 10);
}

void zk_inspect_merge(zk_inspect_name *n)
{
    size_t kept = 0;

    if (n->nnodes)
        qsort(n->nodes, n->nnodes, sizeof *n->nodes, by_owner);
    for (size_t i = 0; i < n->nnodes; i++) {
        zk_inspect_node *node = &n->nodes[i], *last = kept ? &n->nodes[kept - 1] : NULL;

        if (!last || !same_owner(last, node)) {
            n->nodes[kept++] = *node;
            continue;
        }
        last->permits++;
        free(node->name);
    }
    n->nnodes = kept;
}

void zk_inspect_sort(zk_inspect_name *n)
{
    bool open = true; /* may the next reader hold the lock, too? */

    if (n->nnodes)
        qsort(n->nodes, n->nnodes, sizeof *n->nodes, by_position);
    for (size_t i = 0; i < n->nnodes; i++) {
        zk_inspect_node *node = &n->nodes[i];
        const zk_inspect_node *first = &n->nodes[0];

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

static int64_t since(int64_t now, const zk_inspect_node *node)
{
    int64_t ctime = node->stat.ctime;

    return !node->known ? -1 : ctime > 0 && ctime < now ? now - ctime : 0;
}

struct shown {
    int64_t now; /* the same for all rows, so that the summary agrees with them */
    const zk_inspect_name *n;
};

static bool fill_row(void *of, size_t i, pawl_info *info, char id[KIT_ID_MAX])
{
    const struct shown *s = of;
    const zk_inspect_node *node = &s->n->nodes[i];

    snprintf(id, KIT_ID_MAX, "%08x", (unsigned)(kit_hash_text(node->name) >> 32));
    info->role = node->holder ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER;
    info->shared = node->child.sort == ZK_SHARED;
    info->since_ms = since(s->now, node);
    info->token = node->holder ? (uint64_t)node->stat.czxid : 0;
    info->lease_ms = node->holder && node->known ? node->client_info.lease_ms : -1;
    if (info->type == PAWL_TYPE_SEMAPHORE)
        info->permits = node->holder ? node->permits : (uint64_t)node->client_info.want;
    info->owner = node->client_info.pawl ? id : node->text[0] ? node->text : node->name;
    info->host = node->client_info.host;
    info->program = node->client_info.program;
    info->label = node->client_info.label;
    info->pid = node->client_info.pid;
    return node->known; /* else the node has gone by now */
}

int zk_inspect_show(const zk_inspection *k, const zk_inspect_name *n, bool all)
{
    int type = n->latch ? PAWL_TYPE_LATCH
               : n->semaphore && (n->in_use || (n->nnodes && n->nodes[0].child.sort == ZK_WAITER))
                   ? PAWL_TYPE_SEMAPHORE : PAWL_TYPE_LOCK;
    int64_t count = !n->latch ? n->capacity : n->count > 0 ? n->count : 0;
    char id[KIT_ID_MAX];
    struct shown s = {k->task.zk->env->wall_ms(k->task.zk->env), n};
    pawl_info sum = kit_summary(n->name, (uint64_t)type, count, fill_row, &s, n->nnodes, id);

    if (type == PAWL_TYPE_SEMAPHORE) /* count also leases beyond INSPECT_NODES_MAX */
        sum.available = count > n->in_use ? count - n->in_use : 0;
    return kit_rows_show(k->op, &sum, fill_row, &s, all ? n->nnodes : 0);
}
