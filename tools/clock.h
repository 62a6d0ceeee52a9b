/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h - the clock of `pawl run` and of its guardian, which leases are measured with.
 */
#ifndef PAWL_CLOCK_H
#define PAWL_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

/* Nanoseconds of CLOCK_BOOTTIME, which also counts while the machine sleeps. Async-signal-safe. */
static inline int64_t boot_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_BOOTTIME, &ts);
    return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

#endif
