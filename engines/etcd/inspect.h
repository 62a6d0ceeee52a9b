/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.h - the keys of one name (rows.c), for the ops that read (inspect.c).
 */
#ifndef PAWL_ETCD_INSPECT_H
#define PAWL_ETCD_INSPECT_H

#include "etcd.h"

typedef struct etcd_inspect_entry {
    enum etcd_section section; /* LOCKS, PERMITS or READS */
    int64_t created, modified, lease;
    int64_t lease_ms; /* time left; -1 unknown */
    bool holder;
    etcd_value value;
    char tail[64];    /* the part of the key after the name; the end of it, if long */
} etcd_inspect_entry;

typedef struct etcd_inspect_name {
    char name[PAWL_NAME_MAX + 1];
    int type;            /* enum pawl_type; -1: not in use */
    int64_t count;       /* a semaphore's capacity, a latch's count */
    int64_t used;        /* permits held */
    size_t holders, waiters;
    bool too_many;       /* more keys than are kept */
    etcd_inspect_entry *entries; /* when complete: in the order of creation */
    size_t n, room;
} etcd_inspect_name;

#define INSPECT_KEYS_MAX 20000 /* of one name */

/* Add a key of the name, unless there are too many. False: out of memory. */
bool etcd_inspect_add(etcd_inspect_name *n, const etcd_kv *kv, pb_span tail);
/* All keys were added: sort them, and find the holders. */
void etcd_inspect_complete(etcd_inspect_name *n);
void etcd_inspect_clear(etcd_inspect_name *n);
/* Report the summary row, and if `all`, each entry. */
int etcd_inspect_show(etcd *e, pawl_op *op, const etcd_inspect_name *n, bool all);

#endif
