/* SPDX-License-Identifier: Apache-2.0
 *
 * timers.h - timers in order of time: a pairing heap with its links inside pawl_timer, so that
 * setting a timer never allocates. A timer may be set and cleared at any time; timers with equal
 * times fire in no set order.
 */
#ifndef PAWL_TIMERS_H
#define PAWL_TIMERS_H

#include "engine.h"

struct timers {
    pawl_timer *root;
};

void pawl__timers_set(struct timers *timers, pawl_timer *timer, int64_t due);
void pawl__timers_clear(struct timers *timers, pawl_timer *timer);

/* When the earliest timer is due; PAWL_NEVER if none is set. */
int64_t pawl__timers_next(const struct timers *timers);

/* Remove and return the earliest timer if it is due by `now`, else NULL. The caller calls fire. */
pawl_timer *pawl__timers_take(struct timers *timers, int64_t now);

#endif
