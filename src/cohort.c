/* SPDX-License-Identifier: Apache-2.0
 *
 * cohort.c - holds of one name inside one process.
 *
 * A name state (struct name_state) is all state of one name in one client. Threads that want the
 * same mutex queue in the name state, and only the front hold (name_state->front) goes to the
 * engine. A hold stays the front while ACQUIRING and HELD, until its
 * release is submitted. If another hold is queued, a release passes the engine's grant on inside
 * the process: the next hold takes over the lease and the next token of the range that the grant
 * reserved, and the engine is not asked. At most client->cohort grants in a row are passed on. Then
 * the lock goes back to the engine, where other processes may be queued, and the next hold queues
 * at the engine too.
 *
 * A range of tokens is reserved only for names that several threads have wanted at the same time
 * (name_state->contended), so that names of a single thread waste no tokens.
 *
 * A grant is not passed on if its owner also has a read lock of the name (hold->with_seq): the
 * reader's token is larger than the range, and the reader may outlast the mutex. So a request to
 * read gives up the rest of the range, and the mutex goes back to the engine.
 *
 * A hold whose thread has ended is not the front: nothing tells this client when the service ends
 * the grant (its lease is no longer confirmed), so the next hold queues at the service.
 *
 * Kinds other than the plain mutex, fixed leases, and engines that can't reserve a range have no
 * cohort: each of their holds goes to the engine itself.
 */
#include <stdlib.h>

#include "core.h"

/* ---- names ----------------------------------------------------------------------------------- */

static uint64_t hash_name(const char *name)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash;
}

static void grow(pawl_client *client)
{
    size_t room = client->names.room ? client->names.room * 2 : 64;
    struct name_state **table = calloc(room, sizeof *table);

    if (!table)
        return; /* no memory: the chains get longer */
    for (size_t i = 0; i < client->names.room; i++)
        while (client->names.buckets[i]) {
            struct name_state *name_state = client->names.buckets[i];

            client->names.buckets[i] = name_state->next;
            name_state->next = table[name_state->hash & (room - 1)];
            table[name_state->hash & (room - 1)] = name_state;
        }
    free(client->names.buckets);
    client->names.buckets = table;
    client->names.room = room;
}

struct name_state *pawl__name_get(pawl_client *client, const char *name)
{
    uint64_t hash = hash_name(name);
    size_t length = strlen(name) + 1;
    struct name_state *name_state;

    if (client->names.n >= client->names.room)
        grow(client);
    if (!client->names.buckets)
        return NULL;
    for (name_state = client->names.buckets[hash & (client->names.room - 1)]; name_state;
         name_state = name_state->next)
        if (name_state->hash == hash && !strcmp(name_state->name, name)) {
            name_state->refs++;
            return name_state;
        }
    name_state = calloc(1, sizeof *name_state + length);
    if (!name_state)
        return NULL;
    memcpy(name_state->name, name, length);
    list_init(&name_state->holds);
    list_init(&name_state->queue);
    name_state->hash = hash;
    name_state->series = pawl__series_of(client, name);
    name_state->refs = 1;
    name_state->next = client->names.buckets[hash & (client->names.room - 1)];
    client->names.buckets[hash & (client->names.room - 1)] = name_state;
    client->names.n++;
    return name_state;
}

void pawl__name_put(pawl_client *client, struct name_state *name_state)
{
    struct name_state **at;

    if (--name_state->refs)
        return;
    at = &client->names.buckets[name_state->hash & (client->names.room - 1)];
    while (*at != name_state)
        at = &(*at)->next;
    *at = name_state->next;
    client->names.n--;
    free(name_state);
}

void pawl__names_free(pawl_client *client)
{
    free(client->names.buckets);
    client->names.buckets = NULL;
    client->names.room = 0;
}

/* ---- the queue inside the process ------------------------------------------------------------ */

uint32_t pawl__cohort_tokens(const struct hold *hold)
{
    return hold->terms.cohort && hold->name_state->contended ? (uint32_t)hold->client->cohort : 1;
}

/* The time limit of a queued hold has passed. The code is PAWL_ETIMEDOUT only if the service, or a
 * hold of this process, has said that the name is held. */
static void waited_too_long(pawl_timer *timer)
{
    struct hold *hold = timer->arg;
    int64_t ms = (pawl__now(hold->client) - hold->asked) / PAWL_NS_PER_MS;

    if (pawl__name_held(hold->name_state)) {
        pawl__hold_cancel(hold, PAWL_ETIMEDOUT);
        return;
    }
    pawl_error_set(&hold->request.err, PAWL_ECONN, "no answer within %lld ms", (long long)ms);
    hold->request.op.code = PAWL_ECONN;
    pawl__hold_cancel(hold, PAWL_ECONN);
}

bool pawl__name_held(const struct name_state *name_state)
{
    const struct hold *front = name_state->front;

    return front && (front->state != HOLD_ACQUIRING || pawl__request_heard_held(&front->request));
}

bool pawl__cohort_enter(struct hold *hold)
{
    struct name_state *name_state = hold->name_state;

    if (!hold->terms.cohort)
        return true;
    if (!name_state->front) {
        name_state->front = hold;
        hold->is_front = true;
        return true;
    }
    name_state->contended = true;
    hold->state = HOLD_WAITING;
    if (hold->thread)
        hold->thread->local = true;
    list_append(&name_state->queue, &hold->in_queue);
    hold->wait_timer = (pawl_timer){.fire = waited_too_long, .arg = hold};
    if (hold->wait_until != PAWL_NEVER)
        pawl__timers_set(&hold->client->timers, &hold->wait_timer, hold->wait_until);
    return false;
}

static struct hold *next_in_queue(struct name_state *name_state)
{
    struct list *link = list_take(&name_state->queue);
    struct hold *next;

    if (!link)
        return NULL;
    next = list_entry(link, struct hold, in_queue);
    pawl__timers_clear(&next->client->timers, &next->wait_timer);
    next->waited = true;
    name_state->front = next;
    next->is_front = true;
    return next;
}

void pawl__cohort_leave(struct hold *hold)
{
    struct name_state *name_state = hold->name_state;
    struct hold *next;

    if (!hold->is_front)
        return;
    hold->is_front = false;
    name_state->front = NULL;
    next = next_in_queue(name_state);
    if (!next)
        return;
    if (next->thread)
        pawl__wait_drive(next->thread);
    pawl__hold_start(next);
}

static void leave_now(pawl_timer *timer)
{
    pawl__cohort_leave(timer->arg);
}

/* The caller is a thread that ends: only the driver may submit the next acquire. */
void pawl__cohort_leave_soon(struct hold *hold)
{
    pawl_client *client = hold->client;

    if (!hold->is_front)
        return;
    hold->wait_timer = (pawl_timer){.fire = leave_now, .arg = hold};
    pawl__timers_set(&client->timers, &hold->wait_timer, pawl__now(client));
    pawl__arm(client);
}

bool pawl__cohort_pass(struct hold *hold)
{
    struct name_state *name_state = hold->name_state;
    int64_t now = pawl__now(hold->client);
    struct hold *next;

    if (!hold->is_front || list_empty(&name_state->queue) || hold->orphan ||
        hold->client->state != CLIENT_OPEN) /* closing cancels the waiters */
        return false;
    if (hold->token + 1 >= hold->token_end || hold->deadline - now < hold->lease_len / 2)
        return false;
    hold->is_front = false;
    next = next_in_queue(name_state);
    next->owner.seq = hold->owner.seq;
    next->token = hold->token + 1;
    next->token_end = hold->token_end;
    pawl__lease_move(hold, next);
    name_state->series->stats.handed_over++;
    pawl__hold_granted(next);
    return true;
}
