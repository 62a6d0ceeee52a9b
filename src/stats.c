/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.c - counters of a client, and durations in buckets that double.
 */
#include "core.h"

void pawl__histogram_add(uint64_t *buckets, int64_t ns)
{
    uint64_t us = ns > 0 ? (uint64_t)ns / 1000 : 0;
    int bucket = us ? 63 - __builtin_clzll(us) : 0;

    buckets[bucket < PAWL_BUCKETS ? bucket : PAWL_BUCKETS - 1]++;
}

int pawl_client_stats(pawl_client *client, pawl_stats *ret)
{
    uint64_t size;
    int code;

    if (!client || !ret || ret->size < sizeof ret->size || ret->size % 8)
        return PAWL_EINVAL;
    code = pawl__enter(client, false, NULL);
    if (code)
        return code;
    size = ret->size < sizeof client->stats ? ret->size : sizeof client->stats;
    client->stats.size = size;
    memcpy(ret, &client->stats, size);
    pawl__leave(client);
    return 0;
}
