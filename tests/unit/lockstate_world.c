/* SPDX-License-Identifier: Apache-2.0
 *
 * lockstate_world.c - one shelf and its surroundings, see lockstate_world.h.
 */
#include "lockstate_world.h"

static _Alignas(8) unsigned char bytes[1 << 16];

struct world world;

static uint64_t draw(void *arg, uint32_t n)
{
    uint64_t first = world.fence + 1;

    (void)arg;
    world.fence += n;
    return first;
}

static bool is_dead(void *arg, const lockstate_entry *e)
{
    (void)arg;
    return world.dead[e->peer];
}

static void tell(void *arg, const lockstate_entry *e, enum lockstate_why why)
{
    (void)arg;
    if (world.ntold < TOLD)
        world.told[world.ntold++] = (struct told){e->client, e->seq, why};
}

void world_fresh(void)
{
    memset(bytes, 0xa5, sizeof bytes);
    world = (struct world){.shelf = {.bytes = bytes, .cap = sizeof bytes}, .now = 1000 * MS};
}

lockstate_edit world_edit(const char *name)
{
    world.ntold = 0;
    return (lockstate_edit){.shelf = &world.shelf, .name = name, .name_len = strlen(name),
                            .now = world.now, .fence = draw, .dead = is_dead, .tell = tell};
}

lockstate_entry world_person(uint64_t seq, uint8_t mode, uint32_t permits, int64_t lease_ms)
{
    return (lockstate_entry){.client = seq % PEERS, .seq = seq, .mode = mode, .permits = permits,
                             .lease_ms = lease_ms, .peer = (uint16_t)(seq % PEERS), .ntokens = 1};
}

bool was_told(uint64_t seq)
{
    for (size_t i = 0; i < world.ntold; i++)
        if (world.told[i].seq == seq)
            return true;
    return false;
}
