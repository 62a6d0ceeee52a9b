/* SPDX-License-Identifier: Apache-2.0
 *
 * look.h - a look at locks: inspect, count, list. See look.c.
 */
#ifndef PAWL_REDIS_LOOK_H
#define PAWL_REDIS_LOOK_H

#include "redis.h"

#define LOOK_ROWS 10000          /* holders and waiters that are shown of one name */
#define LOOK_ROWS_LIST 64        /* and looked at in a list */
#define LOOK_NAMES (1024 * 1024) /* in a list */

/* A holder or waiter, as the script tells. */
typedef struct look_row {
    uint64_t client, seq;
    bool holder, shared, stranger;
    int64_t permits, token, since_ms, left_ms;
    char who[64]; /* a stranger's own name, if it has one */
} look_row;

/* One name. */
typedef struct look_name {
    char *name;
    int type;         /* enum pawl_type; -1: not in use; -2: not ours to show */
    int64_t count, used, holders, waiters;
    look_row *rows;
    size_t nrows;
} look_name;

/* A client's entry. */
typedef struct look_client {
    uint64_t id;
    int64_t pid;
    char host[64], program[64], label[128];
} look_client;

typedef struct look {
    redis *redis;
    pawl_op *op;      /* NULL: over, or given up; the rest of the answers is dropped */
    size_t out;       /* calls under way */
    look_name *names;
    size_t nnames, room;
    size_t from, to;  /* the names being looked at */
    look_client *clients; /* of their rows, by id */
    size_t nclients;
    int phase;
    bool single;      /* not a list */
    bool queues;      /* scan.c: the second round */
    size_t node;      /* scan.c: the next one, of a cluster; and a slot of the one before it */
    uint16_t slot;
} look;

/* scan.c: ask for the names, from this cursor on; then sort them, each once. */
void look_scan_begin(look *k);
void look_scan(look *k, uint64_t cursor);
void redis_inspect_sort(look *k);
/* Send a call about the look, to whom serves this slot. */
void look_send(look *k, const redis_call_type *type, uint16_t slot, int64_t tag);
/* The end of every answer: one less is out; the last one leads to the next step. The look may be
 * gone afterwards. */
void look_answered(look *k);
void look_failed(redis_call *call, int code, const char *words);
void look_end(look *k, int code, const char *words);

/* rows.c: the script's answer into a look_name; false: it makes no sense. PAWL_ENOMEM in *code. */
bool look_read(const look *k, look_name *n, const resp_node *reply, int *code);
/* Tell op->row of one name: the summary, and all rows if `all`. */
int redis_inspect_show(const look *k, const look_name *n, bool all);
look_client *look_client_of(const look *k, uint64_t id);

#endif
