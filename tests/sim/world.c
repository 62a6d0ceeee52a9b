/* SPDX-License-Identifier: Apache-2.0
 *
 * world.c - see world.h.
 *
 * A blocking call inside the simulation (semaphores, renewal, pawl_close) returns here through
 * hooks.idle: all clients do their work, and the clock advances.
 */
#include "world.h"

uint64_t world_draw(struct world *w, uint64_t n)
{
    uint64_t z = w->chance += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return n ? z % n : z;
}

void world_note(struct world *w, uint64_t a, uint64_t b)
{
    w->trace = (w->trace ^ a) * 1099511628211u;
    w->trace = (w->trace ^ b ^ (uint64_t)w->now) * 1099511628211u;
}

/* Let a client that is not stopped do its due work. */
static void process(struct world *w, size_t i)
{
    pawl_client *client = w->client[i];

    if (client && w->now >= w->stopped_until[i])
        pawl_client_process(client);
}

/* The instant at which a client next has work to do. */
static int64_t due(struct world *w, size_t i)
{
    pawl_client *client = w->client[i];
    int64_t at;

    if (!client)
        return PAWL_NEVER;
    at = pawl__timers_next(&client->timers);
    if (atomic_load(&client->driver.woken) || !list_empty(&client->driver.callbacks))
        at = w->now;
    return at < w->stopped_until[i] ? w->stopped_until[i] : at;
}

/* Advance the clock to the next due instant, but never back and not past `until`. */
static void advance(struct world *w, int64_t until)
{
    int64_t next = until;

    for (size_t i = 0; i < w->nclients; i++)
        if (due(w, i) < next)
            next = due(w, i);
    if (next > w->now)
        w->now = next;
}

void world_run(struct world *w, int64_t until)
{
    while (w->now < until) {
        for (size_t i = 0; i < w->nclients; i++)
            process(w, i);
        advance(w, until);
    }
}

static int64_t hook_now(void *arg)
{
    return ((struct world *)arg)->now;
}

static uint64_t hook_random(void *arg)
{
    return world_draw(arg, 0);
}

static void hook_idle(void *arg)
{
    struct world *w = arg;

    for (size_t i = 0; i < w->nclients; i++)
        process(w, i);
    advance(w, w->now + 1000 * (int64_t)PAWL_NS_PER_MS);
}

void world_begin(struct world *w, uint64_t seed)
{
    *w = (struct world){.now = 1000000000, .chance = seed, .trace = 14695981039346656037u};
    w->hooks = (struct pawl_world){hook_now, hook_random, hook_idle, w};
}
