/* SPDX-License-Identifier: Apache-2.0
 *
 * query.c - calls that ask about a lock of the caller: held, valid for how long, token, reason of a
 * loss. The answers come from the hold and the current time, without I/O.
 */
#include "core.h"

/* The number of ns for which the hold is certainly valid; 0: not held, or the deadline has
 * passed. */
static int64_t valid_ns(const pawl_lock *lock, const struct hold *hold)
{
    int64_t now;

    if (!hold || hold->state != HOLD_HELD)
        return 0;
    now = pawl__now(lock->client);
    return hold->deadline > now ? hold->deadline - now : 0;
}

int64_t pawl_lock_valid_ms(const pawl_lock *lock)
{
    int64_t ns;

    if (!lock)
        return 0;
    if (lock->multi)
        return pawl__multi_valid_ms(lock);
    if (pawl__enter(lock->client, false, NULL))
        return 0;
    ns = valid_ns(lock, pawl__lock_hold(lock));
    pawl__leave(lock->client);
    return ns / PAWL_NS_PER_MS;
}

int pawl_lock_held(const pawl_lock *lock)
{
    int64_t ns;

    if (!lock)
        return 0;
    if (lock->multi)
        return pawl__multi_valid_ms(lock) > 0;
    if (pawl__enter(lock->client, false, NULL))
        return 0;
    ns = valid_ns(lock, pawl__lock_hold(lock));
    pawl__leave(lock->client);
    return ns > 0;
}

int pawl_lock_hold_count(const pawl_lock *lock)
{
    const struct hold *hold;
    int count;

    if (!lock)
        return 0;
    if (lock->multi)
        return pawl__multi_hold_count(lock);
    if (pawl__enter(lock->client, false, NULL))
        return 0;
    hold = pawl__lock_hold(lock);
    count = valid_ns(lock, hold) > 0 ? hold->count : 0;
    pawl__leave(lock->client);
    return count;
}

uint64_t pawl_lock_token(const pawl_lock *lock)
{
    const struct hold *hold;
    uint64_t token;

    if (!lock || lock->multi || pawl__enter(lock->client, false, NULL))
        return 0;
    hold = pawl__lock_hold(lock);
    token = hold && (hold->state == HOLD_HELD || hold->state == HOLD_LOST) ? hold->token : 0;
    pawl__leave(lock->client);
    return token;
}

/* Why the lock was lost (enum pawl_lost_reason), or 0. If `cause` is not NULL, the function also
 * writes the cause there. */
int pawl__lost_reason(const pawl_lock *lock, char *cause)
{
    struct hold *hold;
    int why = 0;

    if (pawl__enter(lock->client, false, NULL))
        return 0;
    hold = pawl__lock_hold(lock);
    if (hold && hold->state == HOLD_HELD && pawl__now(lock->client) >= hold->deadline)
        pawl__hold_lost(hold, 0);
    if (hold && hold->state == HOLD_LOST) {
        why = hold->why;
        if (cause)
            (void)pawl__hold_lost_cause(hold, cause);
    }
    pawl__leave(lock->client);
    return why;
}

int pawl_lock_lost_reason(const pawl_lock *lock)
{
    if (!lock)
        return 0;
    return lock->multi ? pawl__multi_lost_reason(lock, NULL) : pawl__lost_reason(lock, NULL);
}

const char *pawl_lock_lost_cause(const pawl_lock *lock, char *text, size_t size)
{
    char cause[LOST_CAUSE_MAX] = "";

    if (lock && lock->multi)
        (void)pawl__multi_lost_reason(lock, cause);
    else if (lock)
        (void)pawl__lost_reason(lock, cause);
    if (size)
        snprintf(text, size, "%s", cause);
    return text;
}

const char *pawl_lock_name(const pawl_lock *lock)
{
    if (!lock)
        return "";
    return lock->name_state->name;
}
