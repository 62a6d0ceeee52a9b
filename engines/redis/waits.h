/* SPDX-License-Identifier: Apache-2.0
 *
 * waits.h - a wait, for waits.c, the layouts and channels.c. The states are drawn in waits.c.
 */
#ifndef PAWL_REDIS_WAITS_H
#define PAWL_REDIS_WAITS_H

#include "redis.h"

#define REDIS_PLACE_MS 60000
#define REDIS_ROUND_MAX 64

enum wait_state { WAIT_ASKING, WAIT_QUEUED, WAIT_LEAVING };

typedef struct redis_channel redis_channel;

struct redis_wait {
    struct list link;
    redis_wait *next; /* in its bucket of the table */
    redis *redis;
    pawl_op *op;      /* NULL: given up */
    redis_call *call; /* the acquire or cancel that is out, or NULL */
    redis_link *on;   /* where it asked last, or NULL */
    redis_call *overtaken; /* LEAVING: the acquire that is out before the cancel, or NULL */
    bool nothing;     /* LEAVING: it was refused, the server has nothing of it */
    pawl_timer timer;
    uint64_t seq;
    uint64_t secret;  /* that messages to it must repeat */
    int64_t asked;    /* when the op was submitted */
    int64_t gone_by;  /* LEAVING: by then nothing can be left of it */
    uint32_t looks;   /* in a row at a lock that should be free, or is a stranger's */
    int trouble;      /* what the server said last instead of an answer; op->err has the words */
    uint8_t state;    /* enum wait_state */
    bool unsure;      /* an answer was lost, and none came since */

    /* replicas=: granted, but not proven yet, while it is in a link's list. */
    redis_proof proof;
    uint64_t token;
    int64_t ntokens, from, granted_ms;
    bool waited;

    /* Of the op, which may be gone before the wait is: */
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

/* waits_table.c. A new one for this op, in the table; NULL: no memory. */
redis_wait *redis_wait_new(redis *r, pawl_op *op);
/* Out of it, with its calls and its timer; its op is not touched. */
void redis_wait_free(redis_wait *w);

/* Ask (again). */
void redis_wait_ask(redis_wait *w);
void redis_wait_finish(redis_wait *w, int code);
/* The server refuses a right that it needs: it leaves the queue, and its op ends with this. */
void redis_wait_end(redis_wait *w, int code, const char *words);
/* It was granted: since when, and for how long. */
void redis_wait_granted(redis_wait *w, redis_call *call, uint64_t token, int64_t ntokens,
                        int64_t from, int64_t ms); /* call: NULL if by a message */
/* When to ask again. left: ms until what is in the way should be over, -1 unknown. */
void redis_wait_plan(redis_wait *w, bool watches, int64_t left, bool stranger);
redis_wait *redis_wait_find(redis *r, uint64_t seq);

/* ---- channels.c ------------------------------------------------------------------------------ */

/* Listen on a channel. True: it did not before, so it must ask once more. */
bool redis_listen(redis_wait *w, const char *channel);
void redis_unlisten(redis_wait *w);
/* Is it the first of those who listen there? */
bool redis_listens_first(const redis_wait *w);
void redis_channels_ready(redis *r, redis_link *link);
/* Slots have moved: listen where they are now. */
void redis_channels_move(redis *r);
/* The server listens no more on our behalf. */
void redis_channel_ended(redis_link *link, const char *channel, size_t length);
/* Its channel may stay silent, and nobody else asks: it must ask again soon. */
bool redis_is_deaf(const redis_wait *w);
/* Wake so many of those who listen on the channel. */
void redis_channel_wake(redis *r, const char *channel, size_t length, int64_t wake);

#endif
