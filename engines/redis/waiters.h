/* SPDX-License-Identifier: Apache-2.0
 *
 * waiters.h - a waiter, for waiters.c, the layouts and channels.c. The states are drawn in
 * waiters.c.
 */
#ifndef PAWL_REDIS_WAITERS_H
#define PAWL_REDIS_WAITERS_H

#include "redis.h"

#define REDIS_PLACE_MS 60000
#define REDIS_ROUND_MAX 64

enum redis_waiter_state { WAITER_ASKING, WAITER_QUEUED, WAITER_LEAVING };

typedef struct redis_channel redis_channel;

struct redis_waiter {
    struct list link;
    kit_seq by_seq;
    redis *redis;
    pawl_op *op;      /* NULL: given up */
    redis_call *call; /* the acquire or cancel that is out, or NULL */
    redis_link *on;   /* where it asked last, or NULL */
    redis_call *overtaken; /* LEAVING: the acquire that is out before the cancel, or NULL */
    bool nothing;     /* LEAVING: it was refused, the server has nothing of it */
    pawl_timer timer;
    uint64_t secret;  /* that messages to it must repeat */
    int64_t asked;    /* when the op was submitted */
    int64_t gone_by;  /* LEAVING: by then nothing can be left of it */
    uint32_t rechecks; /* in a row at a lock that should be free, or is a stranger's */
    int trouble;      /* what the server said last instead of an answer; op->err has the words */
    uint8_t state;    /* enum redis_waiter_state */
    bool unsure;      /* an answer was lost, and none came since */

    /* replicas=: granted, but not proven yet, while it is in a link's list. */
    redis_proof proof;
    uint64_t token;
    int64_t ntokens, from, granted_ms;
    bool waited;

    /* Of the op, which may be gone before the waiter is: */
    uint8_t mode, lock_kind;
    uint32_t permits;
    int64_t held;     /* how often its owner holds it already */
    int64_t lease_ms;

    /* Some layouts': */
    redis_channel *channel; /* that it listens on */
    struct list in_channel;
    int64_t fair_wait;
    char round[REDIS_ROUND_MAX]; /* of the latch */
    char name[PAWL_NAME_MAX + 1];
};

/* waiters_table.c. A new one for this op, in the table; NULL: no memory. */
redis_waiter *redis_waiter_new(redis *r, pawl_op *op);
/* Out of it, with its calls and its timer; its op is not touched. */
void redis_waiter_free(redis_waiter *w);

/* Ask (again). */
void redis_waiter_ask(redis_waiter *w);
void redis_waiter_finish(redis_waiter *w, int code);
/* The server refuses a right that it needs: it leaves the queue, and its op ends with this. */
void redis_waiter_end(redis_waiter *w, int code, const char *words);
/* It was granted: since when, and for how long. */
void redis_waiter_granted(redis_waiter *w, redis_call *call, uint64_t token, int64_t ntokens,
                          int64_t from, int64_t ms); /* call: NULL if by a message */
/* When to ask again. left: ms until what is in the way should be over, -1 unknown. */
void redis_waiter_plan(redis_waiter *w, bool watches, int64_t left, bool stranger);
redis_waiter *redis_waiter_find(redis *r, uint64_t seq);

/* ---- channels.c ------------------------------------------------------------------------------ */

/* Listen on a channel. True: it did not before, so it must ask once more. */
bool redis_listen(redis_waiter *w, const char *channel);
void redis_unlisten(redis_waiter *w);
/* Is it the first of those who listen there? */
bool redis_listens_first(const redis_waiter *w);
void redis_channels_ready(redis *r, redis_link *link);
/* Slots have moved: listen where they are now. */
void redis_channels_move(redis *r);
/* The server listens no more on our behalf. */
void redis_channel_ended(redis_link *link, const char *channel, size_t length);
/* Its channel may stay silent, and nobody else asks: it must ask again soon. */
bool redis_is_deaf(const redis_waiter *w);
/* Wake so many of those who listen on the channel. */
void redis_channel_wake(redis *r, const char *channel, size_t length, int64_t wake);

#endif
