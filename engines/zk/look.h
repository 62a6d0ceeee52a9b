/* SPDX-License-Identifier: Apache-2.0
 *
 * look.h - what look.c and rows.c share.
 */
#ifndef PAWL_ZK_LOOK_H
#define PAWL_ZK_LOOK_H

#include "zk.h"

/* A node of a contender, or of a permit. */
typedef struct look_node {
    char *name;
    zk_child child;
    bool holder, known; /* known: it has been read */
    uint32_t permits;   /* leases of one owner count together */
    zk_who who;
    zk_stat stat;
    char text[64]; /* what stands in it, if it is not Pawl's */
} look_node;

/* One name. */
typedef struct look_name {
    char *name;
    bool latch, semaphore; /* semaphore: only has been, maybe */
    bool locks;            /* contenders for a lock */
    bool queue;            /* contenders for permits */
    bool too_many;         /* more nodes than are kept */
    int64_t capacity, in_use, count;
    look_node *nodes;
    size_t nnodes, room;
} look_name;

typedef struct look {
    zk_task task;
    pawl_op *op;
    uint8_t step;
    bool sent; /* a BREAK's deletes were */
    int code;
    char words[ZK_WORDS];
    size_t deleted;
    size_t from;      /* the first of the names that are being looked at */
    look_name *names;
    size_t nnames, room;
} look;

#define LOOK_NODES_MAX 20000 /* of one name */

/* Count the leases of one owner together. */
void look_merge(look_name *n);
/* Put holders and waiters in their order and say which is which. */
void zk_inspect_sort(look_name *n);
/* Tell the rows: the summary, or everything. */
int zk_inspect_show(const look *k, const look_name *n, bool all);

#endif
