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
    redis_call *call; /* the pending acquire or cancel, or NULL */
    redis_link *on;   /* the link that was asked last, or NULL */
    redis_call *overtaken; /* LEAVING: the pending acquire, sent before the cancel, or NULL */
    bool nothing;     /* LEAVING: the acquire was refused, the server has no entry of the waiter */
    pawl_timer timer;
    uint64_t secret;  /* messages to the waiter must repeat this number */
    int64_t asked;    /* when the op was submitted */
    int64_t gone_by;  /* LEAVING: by then place and lease have expired on the server */
    uint32_t rechecks; /* in a row, of a lock that should be free or is a stranger's */
    int trouble;      /* the last error code of the server; op->err has the text */
    uint8_t state;    /* enum redis_waiter_state */
    bool unsure;      /* an answer was lost, and none came since */

    /* replicas=: granted, but not proven yet, while proof.link is in a link's list. */
    redis_proof proof;
    uint64_t token;
    int64_t ntokens, from, granted_ms;
    bool waited;

    /* Copied from the op, which may end before the waiter: */
    uint8_t mode, lock_kind;
    uint32_t permits;
    int64_t held;     /* how often the owner holds the lock already */
    int64_t lease_ms;

    /* Used by some layouts only: */
    redis_channel *channel; /* the channel that the waiter listens on */
    struct list in_channel;
    int64_t fair_wait;
    char round[REDIS_ROUND_MAX]; /* of the latch */
    char name[PAWL_NAME_MAX + 1];
};

/* waiters_table.c. Make a waiter for this op and add the waiter to the table; NULL: no memory. */
redis_waiter *redis_waiter_new(redis *r, pawl_op *op);
/* Remove the waiter from the table, withdraw its calls, clear its timer. The op is not touched. */
void redis_waiter_free(redis_waiter *w);

/* Send the acquire (again). */
void redis_waiter_ask(redis_waiter *w);
void redis_waiter_finish(redis_waiter *w, int code);
/* The server refuses a right that the waiter needs: leave the queue and end the op with `code`. */
void redis_waiter_end(redis_waiter *w, int code, const char *words);
/* The lock was granted at the instant `from`, for `ms`. */
void redis_waiter_granted(redis_waiter *w, redis_call *call, uint64_t token, int64_t ntokens,
                          int64_t from, int64_t ms); /* call: NULL if by a message */
/* Set the timer for the next acquire. left: ms until the lock should be free, -1 unknown. */
void redis_waiter_plan(redis_waiter *w, bool watches, int64_t left, bool stranger);
redis_waiter *redis_waiter_find(redis *r, uint64_t seq);

/* ---- channels.c ------------------------------------------------------------------------------ */

/* Listen on a channel. True: the waiter or its subscription is new; the waiter must ask again. */
bool redis_listen(redis_waiter *w, const char *channel);
void redis_unlisten(redis_waiter *w); /* only if w->channel */
/* Is the waiter the first one that listens on its channel? */
bool redis_listens_first(const redis_waiter *w);
void redis_channels_ready(redis *r, redis_link *link);
/* Slots have moved: subscribe at the nodes that have the slots now. */
void redis_channels_move(redis *r);
/* The server has ended our subscription to the channel. */
void redis_channel_ended(redis_link *link, const char *channel, size_t length);
/* The waiter's channel may stay silent, and no other waiter rechecks: the waiter must do so. */
bool redis_is_deaf(const redis_waiter *w);
/* Wake at most `wake` of the waiters that listen on the channel. */
void redis_channel_wake(redis *r, const char *channel, size_t length, int64_t wake);

#endif
