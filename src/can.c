/* SPDX-License-Identifier: Apache-2.0
 *
 * can.c - pawl_client_can: answers the questions of enum pawl_can from the engine's capabilities.
 *
 * The capabilities and the lease are fixed when the client is opened, so both functions read them
 * without the mutex.
 */
#include "core.h"

static bool can(uint32_t caps, int what)
{
    switch (what) {
    case PAWL_CAN_FENCE:
        return caps & PAWL_CAP_FENCE;
    case PAWL_CAN_READ:
        return caps & PAWL_CAP_SHARED;
    case PAWL_CAN_FAIR:
        return caps & PAWL_CAP_QUEUE;
    case PAWL_CAN_QUEUE:
        return (caps & PAWL_CAP_QUEUE) && !(caps & PAWL_CAP_FAIR_ONLY);
    case PAWL_CAN_HAND_OVER:
        return caps & PAWL_CAP_RANGE;
    case PAWL_CAN_SEMAPHORE:
        return caps & PAWL_CAP_PERMITS;
    case PAWL_CAN_LATCH:
        return caps & PAWL_CAP_LATCH;
    case PAWL_CAN_LIST:
        return caps & PAWL_CAP_LIST;
    case PAWL_CAN_DETAIL:
        return !(caps & PAWL_CAP_FAIR_ONLY);
    case PAWL_CAN_LEASE:
        return !(caps & PAWL_CAP_SESSION_LEASE);
    case PAWL_CAN_LINGER:
        return caps & PAWL_CAP_LINGER;
    case PAWL_CAN_LINGER_CLOSED:
        return caps & (PAWL_CAP_LINGER | PAWL_CAP_LINGER_CLOSING);
    case PAWL_CAN_BREAK_AT_ONCE:
        return !(caps & PAWL_CAP_BREAKS_LATE);
    case PAWL_CAN_TELL_BROKEN:
        return !(caps & PAWL_CAP_BREAKS_UNSEEN);
    case PAWL_CAN_NAME_BREAKER:
        return !(caps & (PAWL_CAP_BREAKS_UNSEEN | PAWL_CAP_BREAKER_UNNAMED));
    case PAWL_CAN_SHARE:
        return !(caps & PAWL_CAP_PRIVATE);
    default:
        return !(caps & PAWL_CAP_HERE); /* PAWL_CAN_BE_DOWN */
    }
}

int pawl_client_can(const pawl_client *client, int what)
{
    if (!client || what < PAWL_CAN_FENCE || what > PAWL_CAN_NAME_BREAKER)
        return PAWL_EINVAL;
    return can(client->caps, what);
}

int64_t pawl_client_lease_ms(const pawl_client *client)
{
    return client ? client->env.watchdog_ms : PAWL_EINVAL;
}
