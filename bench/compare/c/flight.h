/* SPDX-License-Identifier: Apache-2.0
 *
 * flight.h - the measurement `async`: one thread keeps N locks in flight. Each lock is acquired,
 * then released, then acquired again. The library drives the locks and calls the functions below.
 *
 *     fly:  open clients and locks; flight_begin(); start all locks;
 *           for each lock that was released: flight_landed(), and if that returns true, start the
 *           lock again; return when no lock is in flight any more
 */
#ifndef PAWL_COMPARE_FLIGHT_H
#define PAWL_COMPARE_FLIGHT_H

#include <stdbool.h>
#include <stdint.h>

enum { FLIGHT_MAX = 10000 };

struct flight {
    int locks;                  /* 1 to FLIGHT_MAX */
    int64_t began[FLIGHT_MAX];  /* when each lock was last started */
    void *contender;            /* of contend.c */
};

/* Everything is open: wait until all contenders may begin. */
void flight_begin(struct flight *flight);
/* The lock's release is done, so that one more pair counts. Returns whether to start it again. */
bool flight_landed(struct flight *flight, int lock);

#endif
