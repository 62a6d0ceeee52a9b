/* SPDX-License-Identifier: Apache-2.0
 *
 * waiter.h - parts of a waiter in a server's queue: the table of waiters by sequence number, the
 * server's time mapped to local time, pauses between attempts.
 */
#ifndef PAWL_KIT_WAITER_H
#define PAWL_KIT_WAITER_H

#include <stdlib.h>

#include "engine.h"

/* ---- waiters by sequence number ------------------------------------------------------------- */

/* A part of each waiter. */
typedef struct kit_seq {
    struct kit_seq *next; /* in the same bucket */
    uint64_t seq;         /* owner.seq */
} kit_seq;

/* Sequence numbers count up, so their lowest bits are the best hash. Zeroed before first use. */
typedef struct kit_seqs {
    kit_seq **buckets;
    size_t room, n;
} kit_seqs;

static inline kit_seq *kit_seqs_find(const kit_seqs *t, uint64_t seq)
{
    kit_seq *s = t->room ? t->buckets[seq & (t->room - 1)] : NULL;

    while (s && s->seq != seq)
        s = s->next;
    return s;
}

static inline void kit_seqs_link(kit_seqs *t, kit_seq *s)
{
    kit_seq **bucket = &t->buckets[s->seq & (t->room - 1)];

    s->next = *bucket;
    *bucket = s;
}

/* Add a waiter; seq must be set. False: no memory. (Without memory for more buckets the chains
 * become longer.) */
static inline bool kit_seqs_add(kit_seqs *t, kit_seq *s)
{
    size_t room = t->room ? t->room * 2 : 64;
    kit_seq **buckets = t->n < t->room ? NULL : calloc(room, sizeof *buckets);

    if (buckets) {
        kit_seqs old = *t;

        t->buckets = buckets;
        t->room = room;
        for (size_t i = 0; i < old.room; i++)
            for (kit_seq *at = old.buckets[i], *next; at; at = next) {
                next = at->next;
                kit_seqs_link(t, at);
            }
        free(old.buckets);
    }
    if (!t->room)
        return false;
    kit_seqs_link(t, s);
    t->n++;
    return true;
}

static inline void kit_seqs_remove(kit_seqs *t, kit_seq *s)
{
    kit_seq **at = &t->buckets[s->seq & (t->room - 1)];

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    t->n--;
}

static inline void kit_seqs_free(kit_seqs *t)
{
    free(t->buckets);
    *t = (kit_seqs){0};
}

/* ---- the server's clock ---------------------------------------------------------------------- */

/* The server's time `server` (ms) was not before the local instant `local` (ns; 0: not known). */
typedef struct kit_clock {
    int64_t server, local;
} kit_clock;

/* The answer to a request that was sent at `sent` carries the server's time. */
static inline void kit_clock_set(kit_clock *c, int64_t server_ms, int64_t sent)
{
    if (server_ms >= 0) /* the difference to a negative time may overflow */
        *c = (kit_clock){server_ms, sent};
}

/* A local instant not after the server's time server_ms. The distance to `server` is taken, minus a
 * thousandth for clocks that run at different speeds, minus 1 ms for rounding. A server's clock
 * that was set forward must not put the instant into the future. */
static inline int64_t kit_clock_since(const kit_clock *c, pawl_env *env, int64_t server_ms)
{
    const int64_t year = INT64_C(1000) * 86400 * 365;
    int64_t now = env->now(env), since;
    int64_t d = server_ms < 0 || !c->local ? INT64_MIN : server_ms - c->server;

    if (d > year || d < -year)
        return now - year * PAWL_NS_PER_MS;
    d -= (d < 0 ? -d : d) / 1000 + 1;
    since = c->local + d * PAWL_NS_PER_MS;
    return since < now ? since : now;
}

/* ---- time ------------------------------------------------------------------------------------ */

static inline void kit_timer_ms(pawl_env *env, pawl_timer *timer, int64_t ms)
{
    env->timer_set(env, timer, env->now(env) + ms * PAWL_NS_PER_MS);
}

/* A pause of `least` to `most` ms that doubles with every try; half of the pause is random. */
static inline int64_t kit_pause_ms(pawl_env *env, uint32_t *tries, int64_t least, int64_t most)
{
    int64_t ms = least << (*tries < 6 ? *tries : 6);

    ++*tries;
    ms = ms < most ? ms : most;
    return ms / 2 + (int64_t)(env->random(env) % (uint64_t)(ms / 2 + 1));
}

#endif
