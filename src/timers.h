/* SPDX-License-Identifier: Apache-2.0
 *
 * timers.h - timers in order of time: a pairing heap whose links live inside pawl_timer, so that
 * setting a timer never allocates. Set and clear at any time; equal times fire in no set order.
 */
#ifndef PAWL_TIMERS_H
#define PAWL_TIMERS_H

#include "engine.h"

struct timers {
    pawl_timer *root;
};

void pawl__timers_set(struct timers *timers, pawl_timer *timer, int64_t due);
void pawl__timers_clear(struct timers *timers, pawl_timer *timer);

/* When the earliest is due; PAWL_NEVER if none is set. */
int64_t pawl__timers_next(const struct timers *timers);

/* Take out the earliest if it is due by `now`; NULL otherwise. The caller fires it. */
pawl_timer *pawl__timers_take(struct timers *timers, int64_t now);

#endif
