/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.h - an inspection of locks: inspect, count, list. See inspect.c.
 */
#ifndef PAWL_REDIS_INSPECT_H
#define PAWL_REDIS_INSPECT_H

#include "redis.h"

#define INSPECT_ROWS 10000       /* most holders and waiters of one name, for inspect */
#define INSPECT_ROWS_LIST 64     /* the same for each name of a list */
#define INSPECT_NAMES (1024 * 1024) /* most names of a list */

/* A holder or waiter, from the script's answer. */
typedef struct redis_inspect_row {
    uint64_t client, seq;
    bool holder, shared, stranger;
    int64_t permits, token, since_ms, left_ms;
    char owner[64]; /* layout redisson: the owner as text; else "" */
} redis_inspect_row;

/* One name. */
typedef struct redis_inspect_name {
    char *name;
    int type;         /* enum pawl_type; -1: not in use; -2: not ours to show */
    int64_t count, used, holders, waiters;
    redis_inspect_row *rows;
    size_t nrows;
} redis_inspect_name;

/* Client information. */
typedef struct redis_inspect_client {
    uint64_t id;
    int64_t pid;
    char host[64], program[64], label[128];
} redis_inspect_client;

typedef struct redis_inspection {
    redis *redis;
    pawl_op *op;      /* NULL: finished or cancelled; further answers are ignored */
    size_t out;       /* number of pending calls */
    redis_inspect_name *names;
    size_t nnames, room;
    size_t from, to;  /* the names being inspected */
    redis_inspect_client *clients; /* the clients of these names' rows, and of earlier names */
    size_t nclients, known;        /* the first `known` clients have been asked, and are sorted by
                                      id; all are, before they are shown */
    int phase;
    bool single;      /* not a list */
    bool queues;      /* scan.c: the second round */
    size_t node;      /* scan.c: the next node of a cluster; `slot` is of the node before */
    uint16_t slot;
} redis_inspection;

/* scan.c: ask for the names, from this cursor on; then sort the names and remove duplicates. */
void redis_inspect_scan_begin(redis_inspection *k);
void redis_inspect_scan(redis_inspection *k, uint64_t cursor);
void redis_inspect_sort(redis_inspection *k);
/* Send a call about the inspection to the node that serves this slot. */
void redis_inspect_send(redis_inspection *k, const redis_call_type *type, uint16_t slot,
                        int64_t tag);
/* To be called at the end of every answer: counts the pending calls down; the last answer starts
 * the next step. May free the inspection. */
void redis_inspect_answered(redis_inspection *k);
void redis_inspect_failed(redis_call *call, int code, const char *words);
void redis_inspect_end(redis_inspection *k, int code, const char *words);

/* rows.c: read the script's answer into a redis_inspect_name. False: the answer makes no sense.
 * *code may become PAWL_ENOMEM. */
bool redis_inspect_read(const redis_inspection *k, redis_inspect_name *n, const resp_node *reply,
                        int *code);
/* Call op->row for one name: with the summary, and with all rows if `all`. */
int redis_inspect_show(const redis_inspection *k, const redis_inspect_name *n, bool all);
int redis_inspect_by_id(const void *a, const void *b); /* of redis_inspect_client */
redis_inspect_client *redis_inspect_client_of(const redis_inspection *k, uint64_t id);

#endif
