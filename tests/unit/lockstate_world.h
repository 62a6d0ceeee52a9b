/* SPDX-License-Identifier: Apache-2.0
 *
 * lockstate_world.h - one shelf and the environment of its rules: a clock that is a number, tokens,
 * which processes are dead, and a list of the owners that the latest edit notified.
 *
 * The owner number `seq` belongs to the client and the process seq % PEERS.
 */
#ifndef PAWL_TEST_LOCKSTATE_WORLD_H
#define PAWL_TEST_LOCKSTATE_WORLD_H

#include "shelf/lockstate.h"

#define MS INT64_C(1000000)
#define PEERS 8
#define TOLD 256

enum { X = PAWL_MODE_EXCLUSIVE, S = PAWL_MODE_SHARED, P = PAWL_MODE_PERMITS, L = PAWL_MODE_LATCH };

struct told {
    uint64_t client, seq;
    enum lockstate_why why;
};

extern struct world {
    lockstate_shelf shelf;
    int64_t now;
    uint64_t fence;    /* the last token given out */
    bool dead[PEERS];
    struct told told[TOLD];
    size_t ntold;
} world;

/* Start again with an empty shelf and no dead processes. The memory of the shelf is full of old
 * bytes. */
void world_fresh(void);

/* Begin an edit of this name at the present time; clears the list of notified owners. */
lockstate_edit world_edit(const char *name);

lockstate_entry world_person(uint64_t seq, uint8_t mode, uint32_t permits, int64_t lease_ms);

bool was_told(uint64_t seq);

#endif
