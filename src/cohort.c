/* SPDX-License-Identifier: Apache-2.0
 *
 * cohort.c - holds of one name inside one process.
 *
 * A site is one name in one client. Threads that want the same mutex queue here; only the front one
 * (site->front) goes to the engine. It stays the front while it waits there, holds, and until its
 * release is on its way. A release with somebody in the queue hands the engine's grant on inside
 * the process: the next hold takes over the lease and the next token of the range that the grant
 * reserved; the engine sees nothing. At most client->cohort grants in a row are used so, then the
 * lock goes back to the engine, where others may be queued, and the next hold queues there too.
 *
 * A range is reserved only where threads have met before (site->contended): a token is not wasted
 * on names that one thread uses.
 *
 * Kinds other than the plain mutex, fixed leases, and engines that can't reserve a range have no
 * cohort: each of their holds goes to the engine itself.
 */
#include <stdlib.h>

#include "core.h"

/* ---- sites ----------------------------------------------------------------------------------- */

static uint64_t hash_name(const char *name)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash;
}

static void grow(pawl_client *client)
{
    size_t room = client->site_room ? client->site_room * 2 : 64;
    struct site **table = calloc(room, sizeof *table);

    if (!table)
        return; /* longer chains, no harm */
    for (size_t i = 0; i < client->site_room; i++)
        while (client->sites[i]) {
            struct site *site = client->sites[i];

            client->sites[i] = site->next;
            site->next = table[site->hash & (room - 1)];
            table[site->hash & (room - 1)] = site;
        }
    free(client->sites);
    client->sites = table;
    client->site_room = room;
}

struct site *pawl__site_get(pawl_client *client, const char *name)
{
    uint64_t hash = hash_name(name);
    size_t length = strlen(name) + 1;
    struct site *site;

    if (client->nsites >= client->site_room)
        grow(client);
    if (!client->sites)
        return NULL;
    for (site = client->sites[hash & (client->site_room - 1)]; site; site = site->next)
        if (site->hash == hash && !strcmp(site->name, name)) {
            site->refs++;
            return site;
        }
    site = calloc(1, sizeof *site + length);
    if (!site)
        return NULL;
    memcpy(site->name, name, length);
    list_init(&site->holds);
    list_init(&site->queue);
    site->hash = hash;
    site->series = pawl__series_of(client, name);
    site->refs = 1;
    site->next = client->sites[hash & (client->site_room - 1)];
    client->sites[hash & (client->site_room - 1)] = site;
    client->nsites++;
    return site;
}

void pawl__site_put(pawl_client *client, struct site *site)
{
    struct site **at;

    if (--site->refs)
        return;
    at = &client->sites[site->hash & (client->site_room - 1)];
    while (*at != site)
        at = &(*at)->next;
    *at = site->next;
    client->nsites--;
    free(site);
}

void pawl__sites_free(pawl_client *client)
{
    free(client->sites);
    client->sites = NULL;
    client->site_room = 0;
}

/* ---- the queue inside the process ------------------------------------------------------------ */

uint32_t pawl__cohort_tokens(const struct hold *hold)
{
    return hold->terms.cohort && hold->site->contended ? (uint32_t)hold->client->cohort : 1;
}

/* "Busy" is an answer of the service, or of who has the grant in this process. */
static void waited_too_long(pawl_timer *timer)
{
    struct hold *hold = timer->arg;
    int64_t ms = (pawl__now(hold->client) - hold->asked) / PAWL_NS_PER_MS;

    if (pawl__site_held(hold->site)) {
        pawl__hold_cancel(hold, PAWL_ETIMEDOUT);
        return;
    }
    pawl_error_set(&hold->request.err, PAWL_ECONN, "no answer within %lld ms", (long long)ms);
    hold->request.op.code = PAWL_ECONN;
    pawl__hold_cancel(hold, PAWL_ECONN);
}

bool pawl__site_held(const struct site *site)
{
    const struct hold *front = site->front;

    return front && (front->state != HOLD_ACQUIRING || pawl__request_heard_held(&front->request));
}

bool pawl__cohort_enter(struct hold *hold)
{
    struct site *site = hold->site;

    if (!hold->terms.cohort)
        return true;
    if (!site->front) {
        site->front = hold;
        hold->is_front = true;
        return true;
    }
    site->contended = true;
    hold->state = HOLD_WAITING;
    if (hold->call)
        hold->call->local = true;
    list_append(&site->queue, &hold->in_queue);
    hold->wait_timer = (pawl_timer){.fire = waited_too_long, .arg = hold};
    if (hold->wait_until != PAWL_NEVER)
        pawl__timers_set(&hold->client->timers, &hold->wait_timer, hold->wait_until);
    return false;
}

static struct hold *next_in_queue(struct site *site)
{
    struct list *link = list_take(&site->queue);
    struct hold *next;

    if (!link)
        return NULL;
    next = list_entry(link, struct hold, in_queue);
    pawl__timers_clear(&next->client->timers, &next->wait_timer);
    next->waited = true;
    site->front = next;
    next->is_front = true;
    return next;
}

void pawl__cohort_leave(struct hold *hold)
{
    struct site *site = hold->site;
    struct hold *next;

    if (!hold->is_front)
        return;
    hold->is_front = false;
    site->front = NULL;
    next = next_in_queue(site);
    if (!next)
        return;
    if (next->call)
        pawl__call_drive(next->call);
    pawl__hold_start(next);
}

bool pawl__cohort_pass(struct hold *hold)
{
    struct site *site = hold->site;
    int64_t now = pawl__now(hold->client);
    struct hold *next;

    if (!hold->is_front || list_empty(&site->queue) || hold->orphan ||
        hold->client->state != CLIENT_OPEN) /* who waits while it closes is cancelled */
        return false;
    if (hold->token + 1 >= hold->token_end || hold->deadline - now < hold->lease_len / 2)
        return false;
    hold->is_front = false;
    next = next_in_queue(site);
    next->owner.seq = hold->owner.seq;
    next->token = hold->token + 1;
    next->token_end = hold->token_end;
    pawl__keeper_move(hold, next);
    site->series->stats.handed_over++;
    pawl__hold_granted(next);
    return true;
}
