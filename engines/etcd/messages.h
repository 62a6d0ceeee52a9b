/* SPDX-License-Identifier: Apache-2.0
 *
 * messages.h - the messages of etcd's API v3 that the engine sends and reads (etcd 3.4 and later).
 *
 * Answers are read in place: a returned span is valid as long as the message. The etcd_read_...
 * functions check the whole message; iterating over the parts afterwards can't fail.
 */
#ifndef PAWL_ETCD_MESSAGES_H
#define PAWL_ETCD_MESSAGES_H

#include "proto.h"

/* A range of keys: one key if `end` is empty. */
typedef struct etcd_range {
    pb_span key, end;
} etcd_range;

/* ---- requests -------------------------------------------------------------------------------- */

enum etcd_order { ETCD_BY_KEY = 0, ETCD_OLDEST_FIRST = 1, ETCD_NEWEST_FIRST = 2 };

typedef struct etcd_query {
    etcd_range range;
    int64_t limit;        /* 0: all */
    enum etcd_order order; /* by creation */
    bool keys_only;
    int64_t older_than;   /* only keys created before this revision; 0: all */
} etcd_query;

void etcd_put_range(pb_buf *b, const etcd_query *q);

/* The parts of a transaction: conditions, operations if all conditions hold, operations if not. */
enum etcd_branch { ETCD_THEN = 2, ETCD_ELSE = 3 };
void etcd_if_created(pb_buf *b, const etcd_range *range, int64_t revision); /* 0: no such key */
void etcd_if_modified(pb_buf *b, const etcd_range *range, int64_t revision);
void etcd_if_exists(pb_buf *b, const etcd_range *range);
void etcd_do_range(pb_buf *b, enum etcd_branch branch, const etcd_query *q);
void etcd_do_put(pb_buf *b, enum etcd_branch branch, pb_span key, pb_span value, int64_t lease);
void etcd_do_touch(pb_buf *b, enum etcd_branch branch, pb_span key); /* put the same value again */
void etcd_do_delete(pb_buf *b, enum etcd_branch branch, const etcd_range *range);

/* ---- answers --------------------------------------------------------------------------------- */

typedef struct etcd_kv {
    pb_span key, value;
    int64_t created, modified, version, lease;
} etcd_kv;

typedef struct etcd_kvs {
    int64_t revision, count;
    size_t n; /* number of keys in this answer */
    bool more;
    pb_span rest;
} etcd_kvs;

#define ETCD_TXN_PARTS 8

typedef struct etcd_txn {
    int64_t revision;
    bool succeeded;
    size_t n;
    pb_span part[ETCD_TXN_PARTS]; /* the answers of range, put or delete */
} etcd_txn;

typedef struct etcd_lease_answer {
    int64_t id, ttl;
} etcd_lease_answer;

typedef struct etcd_event {
    bool deleted;
    etcd_kv kv;
} etcd_event;

typedef struct etcd_watch_answer {
    int64_t revision, id, compacted;
    bool created, canceled;
    pb_span reason, rest;
} etcd_watch_answer;

/* The revision in the header of any answer; 0: none. */
int64_t etcd_read_header(pb_span data);
bool etcd_read_range(pb_span data, etcd_kvs *ret);
bool etcd_next_kv(etcd_kvs *kvs, etcd_kv *ret);
bool etcd_read_txn(pb_span data, etcd_txn *ret);
/* Read an answer with more parts than ETCD_TXN_PARTS: only the first parts. */
bool etcd_read_txn_short(pb_span data, etcd_txn *ret);
/* Part i of the answer, as the answer of a range; false: no such part, or malformed. */
bool etcd_txn_range(const etcd_txn *txn, size_t i, etcd_kvs *ret);
bool etcd_read_deleted(pb_span data, int64_t *ret);
bool etcd_read_lease(pb_span data, etcd_lease_answer *ret);
bool etcd_read_watch(pb_span data, etcd_watch_answer *ret);
bool etcd_next_event(etcd_watch_answer *answer, etcd_event *ret);
bool etcd_read_token(pb_span data, pb_span *ret);

/* The state of a member: the answer of Maintenance.Status. */
typedef struct etcd_status {
    char version[24], errors[200]; /* of the errors: the first */
    uint64_t db_size, leader, quota;
    bool learner;
} etcd_status;

bool etcd_read_status(pb_span data, etcd_status *ret);

#endif
