/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.h - an inspection of locks: inspect, count, list. See inspect.c.
 */
#ifndef PAWL_REDIS_INSPECT_H
#define PAWL_REDIS_INSPECT_H

#include "redis.h"

#define INSPECT_ROWS 10000       /* holders and waiters that are shown of one name */
#define INSPECT_ROWS_LIST 64     /* and inspected in a list */
#define INSPECT_NAMES (1024 * 1024) /* in a list */

/* A holder or waiter, as the script tells. */
typedef struct redis_inspect_row {
    uint64_t client, seq;
    bool holder, shared, stranger;
    int64_t permits, token, since_ms, left_ms;
    char who[64]; /* a stranger's own name, if it has one */
} redis_inspect_row;

/* One name. */
typedef struct redis_inspect_name {
    char *name;
    int type;         /* enum pawl_type; -1: not in use; -2: not ours to show */
    int64_t count, used, holders, waiters;
    redis_inspect_row *rows;
    size_t nrows;
} redis_inspect_name;

/* A client's entry. */
typedef struct redis_inspect_client {
    uint64_t id;
    int64_t pid;
    char host[64], program[64], label[128];
} redis_inspect_client;

typedef struct redis_inspection {
    redis *redis;
    pawl_op *op;      /* NULL: over, or given up; the rest of the answers is dropped */
    size_t out;       /* calls under way */
    redis_inspect_name *names;
    size_t nnames, room;
    size_t from, to;  /* the names being inspected */
    redis_inspect_client *clients; /* of their rows, by id */
    size_t nclients;
    int phase;
    bool single;      /* not a list */
    bool queues;      /* scan.c: the second round */
    size_t node;      /* scan.c: the next one, of a cluster; and a slot of the one before it */
    uint16_t slot;
} redis_inspection;

/* scan.c: ask for the names, from this cursor on; then sort them, each once. */
void redis_inspect_scan_begin(redis_inspection *k);
void redis_inspect_scan(redis_inspection *k, uint64_t cursor);
void redis_inspect_sort(redis_inspection *k);
/* Send a call about the inspection, to whom serves this slot. */
void redis_inspect_send(redis_inspection *k, const redis_call_type *type, uint16_t slot,
                        int64_t tag);
/* The end of every answer: one less is out; the last one leads to the next step. The inspection may
 * be gone afterwards. */
void redis_inspect_answered(redis_inspection *k);
void redis_inspect_failed(redis_call *call, int code, const char *words);
void redis_inspect_end(redis_inspection *k, int code, const char *words);

/* rows.c: the script's answer into a redis_inspect_name; false: it makes no sense. PAWL_ENOMEM in
 * *code. */
bool redis_inspect_read(const redis_inspection *k, redis_inspect_name *n, const resp_node *reply,
                        int *code);
/* Tell op->row of one name: the summary, and all rows if `all`. */
int redis_inspect_show(const redis_inspection *k, const redis_inspect_name *n, bool all);
int redis_inspect_by_id(const void *a, const void *b); /* of redis_inspect_client */
redis_inspect_client *redis_inspect_client_of(const redis_inspection *k, uint64_t id);

#endif
