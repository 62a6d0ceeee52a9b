/* SPDX-License-Identifier: Apache-2.0
 *
 * look.h - what is known of the keys of one name (rows.c), for those who look (look.c).
 */
#ifndef PAWL_ETCD_LOOK_H
#define PAWL_ETCD_LOOK_H

#include "etcd.h"

typedef struct look_entry {
    enum etcd_section section; /* LOCKS, PERMITS or READS */
    int64_t created, modified, lease;
    int64_t lease_ms; /* what is left; -1 unknown */
    bool holder;
    etcd_value value;
    char tail[64];    /* the key behind its name, as far as it goes */
} look_entry;

typedef struct look_name {
    char name[PAWL_NAME_MAX + 1];
    int type;            /* enum pawl_type; -1: not in use */
    int64_t count;       /* a semaphore's capacity, a latch's count */
    int64_t used;        /* permits that are held */
    size_t holders, waiters;
    bool too_many;       /* more keys than are kept */
    look_entry *entries; /* once settled: in the order of their creation */
    size_t n, room;
} look_name;

#define LOOK_KEYS_MAX 20000 /* of one name */

/* Add a key of the name, unless there are too many. False: no memory. */
bool look_add(look_name *n, const etcd_kv *kv, pb_span tail);
/* All are there: sort them, and see who holds. */
void look_settle(look_name *n);
void look_clear(look_name *n);
/* Tell the summary row, and if `all`, each entry. */
int etcd_inspect_show(etcd *e, pawl_op *op, const look_name *n, bool all);

#endif
