/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.h - declarations that inspect.c and rows.c share.
 */
#ifndef PAWL_ZK_INSPECT_H
#define PAWL_ZK_INSPECT_H

#include "zk.h"

/* A node of a contender, or of a permit. */
typedef struct zk_inspect_node {
    char *name;
    zk_child child;
    bool holder, known; /* known: the node's data has been read */
    uint32_t permits;   /* leases of one owner are one row */
    zk_client_info client_info;
    zk_stat stat;
    char text[64]; /* the data, if not written by Pawl */
} zk_inspect_node;

/* One name. */
typedef struct zk_inspect_name {
    char *name;
    bool latch, semaphore; /* semaphore: perhaps a former one */
    bool locks;            /* contenders for a lock */
    bool queue;            /* contenders for permits */
    bool too_many;         /* more nodes than are kept */
    int64_t capacity, in_use, count;
    zk_inspect_node *nodes;
    size_t nnodes, room;
} zk_inspect_name;

typedef struct zk_inspection {
    zk_task task;
    pawl_op *op;
    uint8_t step;
    bool sent; /* the deletes of a BREAK were sent */
    int code;
    char words[ZK_WORDS];
    size_t deleted;
    size_t from;      /* index of the first name of the current chunk */
    zk_inspect_name *names;
    size_t nnames, room;
} zk_inspection;

#define INSPECT_NODES_MAX 20000 /* of one name */

/* Merge the leases of one owner into one row. */
void zk_inspect_merge(zk_inspect_name *n);
/* Sort the nodes, and mark the holders. */
void zk_inspect_sort(zk_inspect_name *n);
/* Report the rows: the summary, or all of them. */
int zk_inspect_show(const zk_inspection *k, const zk_inspect_name *n, bool all);

#endif
