/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_await.c - helpers of the conformance cases that wait for an event: until the service, or the
 * counters of a client, show the event.
 */
#include "conf.h"

static int note_waiters(void *arg, const pawl_info *info)
{
    if (info->role == PAWL_ROLE_SUMMARY)
        *(uint64_t *)arg = info->waiters;
    return 0;
}

static uint64_t shown_waiters(pawl_client *client, const char *name)
{
    uint64_t have = UINT64_MAX;

    CHECK_OK(pawl_inspect(client, name, note_waiters, &have, NULL));
    return have;
}

void await_queued(pawl_client *client, const char *name, uint64_t n)
{
    while (shown_waiters(client, name) != n)
        pause_ms(1);
}

void await_waiters(pawl_client *client, const char *name, uint64_t n)
{
    while (shown_waiters(client, name) != n && !(!can(PAWL_CAN_QUEUE) && all_waiting() == n))
        pause_ms(1);
}

void await_latch_waiters(pawl_client *client, const char *name, int n, listener *e)
{
    if (!can(PAWL_CAN_QUEUE))
        event_await(&e->heard, n);
    else
        await_queued(client, name, (uint64_t)n);
}

/* Note the number of holders, from the summary row, and the lease of the holder. */
static int note_lease(void *arg, const pawl_info *info)
{
    pawl_info *have = arg;

    if (info->role == PAWL_ROLE_SUMMARY)
        have->holders = info->holders;
    else if (info->role == PAWL_ROLE_HOLDER)
        have->lease_ms = info->lease_ms;
    return 0;
}

/* A session does not show its renewals. But a lock that outlasts its lease was renewed. */
void await_renewal(pawl_client *client, const char *name)
{
    pawl_info have = {.lease_ms = INT64_MAX};
    int64_t before, began = now_ms();

    do {
        before = have.lease_ms;
        pause_ms(5);
        CHECK_OK(pawl_inspect(client, name, note_lease, &have, NULL));
        CHECK_EQ(have.holders, 1);
    } while (can(PAWL_CAN_LEASE) ? have.lease_ms <= before
                                 : now_ms() - began < DEATH_LEASE + SHORT_LEASE);
}

void await_free(pawl_client *client, const char *name)
{
    pawl_info have = {.holders = 1};

    for (;; pause_ms(1)) {
        CHECK_OK(pawl_inspect(client, name, note_lease, &have, NULL));
        if (have.holders == 0)
            return;
    }
}

pawl_stats stats_of(pawl_client *client)
{
    pawl_stats stats = {.size = sizeof stats};

    CHECK_OK(pawl_client_stats(client, &stats));
    return stats;
}

void await_waiting(pawl_client *client, uint64_t n)
{
    while (stats_of(client).waiting != n)
        pause_ms(1);
}

void await_acquired(pawl_client *client, uint64_t n)
{
    while (stats_of(client).acquired < n)
        pause_ms(1);
}
