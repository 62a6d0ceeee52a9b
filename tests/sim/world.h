/* SPDX-License-Identifier: Apache-2.0
 *
 * world.h - virtual time and seeded chance for the simulator: several clients in one thread, over
 * "fault:" around "memory:". No thread sleeps; when no client has work to do, the clock jumps.
 */
#ifndef PAWL_SIM_WORLD_H
#define PAWL_SIM_WORLD_H

#include "core.h"

#define SIM_CLIENTS 4

struct world {
    struct pawl_world hooks;
    int64_t now;
    uint64_t chance;    /* state of the random source */
    uint64_t trace;     /* hash of everything that happened: equal for equal seeds */
    pawl_client *client[SIM_CLIENTS];
    int64_t stopped_until[SIM_CLIENTS]; /* a "SIGSTOPped" client does nothing until then */
    size_t nclients;
};

void world_begin(struct world *w, uint64_t seed);
uint64_t world_draw(struct world *w, uint64_t n); /* 0 .. n-1 */
void world_note(struct world *w, uint64_t a, uint64_t b);

/* Let every client that is not stopped do its due work; advance to the next due time, but at most
 * to `until`. */
void world_run(struct world *w, int64_t until);

#endif
