/* SPDX-License-Identifier: Apache-2.0
 *
 * semaphore.c - pawl_semaphore: leased permits. Each acquire is a hold of its own (hold.h), owned
 * by the handle. A release takes permits from the newest holds first, and may leave a hold with
 * some of its permits.
 */
#include <stdlib.h>

#include "core.h"

struct pawl_semaphore {
    pawl_client *client;
    struct name_state *name_state;
    struct terms terms;
    uint64_t handle;
    unsigned refs; /* one for the user, one for each queued on_lost */
};

int pawl_semaphore_new(pawl_semaphore **ret, pawl_client *client, const char *name,
                       const pawl_semaphore_options *given, pawl_error *err)
{
    pawl_semaphore_options options;
    pawl_semaphore *sem;
    int code;

    if (!ret || !client)
        return pawl_error_set(err, PAWL_EINVAL, "%s is NULL", ret ? "client" : "ret");
    if ((code = pawl__name_check(name, err)) ||
        (code = pawl__options_copy(&options, sizeof options, given, "pawl_semaphore_options",
                                   err)) ||
        (code = pawl__enter(client, false, err)))
        return code;
    sem = calloc(1, sizeof *sem);
    if (options.permits > INT32_MAX || pawl__bad_ms(options.lease_ms))
        code = pawl_error_set(err, PAWL_EINVAL, "pawl_semaphore_options: permits is at most %d, "
                              "lease_ms 0 to ten years", INT32_MAX);
    else if (!(client->caps & PAWL_CAP_PERMITS))
        code = pawl_error_set(err, PAWL_ENOTSUP, "this engine has no semaphores");
    else if (!sem || !(sem->name_state = pawl__name_get(client, name)))
        code = pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    if (code) {
        free(sem);
    } else {
        sem->refs = 1;
        sem->client = client;
        client->refs++;
        sem->terms = (struct terms){.mode = PAWL_MODE_PERMITS,
                                    .queue = client->caps & PAWL_CAP_QUEUE,
                                    .lease_ms = options.lease_ms,
                                    .count = options.permits,
                                    .on_lost = options.on_lost,
                                    .arg = options.arg};
        sem->handle = PAWL_HANDLE_BIT | ++client->last_handle;
        *ret = sem;
    }
    pawl__leave(client);
    return code;
}

int pawl_semaphore_acquire(pawl_semaphore *sem, uint32_t permits, int64_t wait_ms, pawl_error *err)
{
    struct waiter_thread thread;
    struct asker asker = {.sem = sem, .thread = &thread};
    int code;

    if (!sem || permits < 1 || wait_ms < PAWL_FOREVER)
        return pawl_error_set(err, PAWL_EINVAL, "%s", !sem ? "sem is NULL"
                              : permits < 1 ? "permits is 0; ask for 1 or more"
                                            : "wait_ms is negative; PAWL_FOREVER is -1");
    asker.holder = sem->handle;
    code = pawl__enter(sem->client, true, err);
    if (code)
        return code;
    pawl__wait_begin(&thread, err);
    code = pawl__hold_acquire(sem->client, sem->name_state, &sem->terms, &asker, permits, wait_ms,
                              err);
    if (code)
        pawl__wait_end(&thread);
    else
        code = pawl__wait(sem->client, &thread);
    pawl__leave(sem->client);
    return code;
}

/* ---- releasing ------------------------------------------------------------------------------- */

static bool is_ours(const pawl_semaphore *sem, const struct hold *hold)
{
    return hold->owner.holder == sem->handle && !hold->finished &&
           (hold->state == HOLD_HELD || hold->state == HOLD_LOST ||
            hold->state == HOLD_UNRELEASED);
}

/* The newest hold of this handle; NULL: none. */
static struct hold *newest(const pawl_semaphore *sem)
{
    for (struct list *l = sem->name_state->holds.prev; l != &sem->name_state->holds; l = l->prev)
        if (is_ours(sem, list_entry(l, struct hold, in_name)))
            return list_entry(l, struct hold, in_name);
    return NULL;
}

static uint64_t permits_held(const pawl_semaphore *sem)
{
    uint64_t n = 0;

    for (struct list *l = sem->name_state->holds.next; l != &sem->name_state->holds; l = l->next) {
        const struct hold *hold = list_entry(l, struct hold, in_name);

        if (is_ours(sem, hold))
            n += hold->partial ? hold->keep : hold->permits;
    }
    return n;
}

/* The newest hold, after waiting until no other thread releases some of its permits. Unlocks the
 * mutex while waiting. */
static struct hold *newest_free(pawl_semaphore *sem)
{
    pawl_client *client = sem->client;
    struct hold *hold;

    while ((hold = newest(sem)) && hold->partial) {
        client->active++;
        pawl__before_unlock(client);
        pthread_cond_wait(&client->idle, &client->mu);
        client->active--;
        pawl__close_check(client);
    }
    return hold;
}

/* Release up to `permits` permits of the newest hold. *given receives the number. */
static int release_newest(pawl_semaphore *sem, uint32_t permits, uint32_t *given, pawl_error *err)
{
    struct hold *hold = newest_free(sem);
    struct waiter_thread thread;
    struct asker asker = {.sem = sem, .thread = &thread};
    uint32_t keep;
    int code;

    if (!hold) { /* another thread has released the permits */
        *given = permits;
        return pawl__error_about(err, PAWL_ENOTHELD, sem->name_state->name, NULL);
    }
    keep = hold->permits > permits ? hold->permits - permits : 0;
    *given = hold->permits - keep;
    if (hold->state == HOLD_LOST && keep) {
        hold->permits = keep;
        return pawl__hold_error_lost(hold, err);
    }
    if (hold->state == HOLD_UNRELEASED) /* the failed release was for all permits */
        keep = 0;
    pawl__wait_begin(&thread, err);
    code = pawl__hold_release(hold, keep, &asker, err);
    if (code)
        pawl__wait_end(&thread);
    else
        code = pawl__wait(sem->client, &thread);
    return code;
}

int pawl_semaphore_release(pawl_semaphore *sem, uint32_t permits, pawl_error *err)
{
    int code, first = 0;

    if (!sem || permits < 1)
        return pawl_error_set(err, PAWL_EINVAL, sem ? "permits is 0" : "sem is NULL");
    code = pawl__enter(sem->client, true, err);
    if (code)
        return code;
    if (permits_held(sem) < permits)
        first = pawl_error_set(err, PAWL_ENOTHELD, "'%s': this handle holds %llu permits, not %u",
                               SHOWN(sem->name_state->name),
                               (unsigned long long)permits_held(sem), permits);
    while (permits && first != PAWL_ENOTHELD) {
        uint32_t given = 0;

        code = release_newest(sem, permits, &given, first ? NULL : err);
        if (code && !first)
            first = code;
        permits -= given;
    }
    pawl__leave(sem->client);
    return first;
}

int pawl_semaphore_available(pawl_semaphore *sem, int64_t *ret, pawl_error *err)
{
    struct request r;
    int code;

    if (!sem || !ret)
        return pawl_error_set(err, PAWL_EINVAL, "%s is NULL", sem ? "ret" : "sem");
    code = pawl__enter(sem->client, true, err);
    if (code)
        return code;
    pawl__exchange_init(&r, sem->client, PAWL_OP_COUNT, PAWL_MODE_PERMITS, sem->name_state->name);
    r.op.count = (int64_t)sem->terms.count;
    code = pawl__exchange(&r, 0, err);
    if (!code)
        *ret = r.op.value;
    pawl__leave(sem->client);
    return code;
}

uint64_t pawl_semaphore_token(const pawl_semaphore *sem)
{
    const struct hold *hold;
    uint64_t token;

    if (!sem || pawl__enter(sem->client, false, NULL))
        return 0;
    hold = newest(sem);
    token = hold && hold->state != HOLD_UNRELEASED ? hold->token : 0;
    pawl__leave(sem->client);
    return token;
}

int64_t pawl_semaphore_valid_ms(const pawl_semaphore *sem)
{
    int64_t least = PAWL_NEVER, now;

    if (!sem || pawl__enter(sem->client, false, NULL))
        return 0;
    now = pawl__now(sem->client);
    for (struct list *l = sem->name_state->holds.next; l != &sem->name_state->holds; l = l->next) {
        const struct hold *hold = list_entry(l, struct hold, in_name);
        int64_t left = hold->state == HOLD_HELD && hold->deadline > now ? hold->deadline - now : 0;

        if (is_ours(sem, hold) && hold->state != HOLD_UNRELEASED && left < least)
            least = left;
    }
    pawl__leave(sem->client);
    return least == PAWL_NEVER ? 0 : least / PAWL_NS_PER_MS;
}

static int lost_reason(const pawl_semaphore *sem, char *cause)
{
    int why = 0;

    if (!sem || pawl__enter(sem->client, false, NULL))
        return 0;
    for (struct list *l = sem->name_state->holds.prev; l != &sem->name_state->holds &&
         !why; l = l->prev) {
        const struct hold *hold = list_entry(l, struct hold, in_name);

        if (is_ours(sem, hold) && hold->state == HOLD_LOST) {
            why = hold->why;
            if (cause)
                (void)pawl__hold_lost_cause(hold, cause);
        }
    }
    pawl__leave(sem->client);
    return why;
}

int pawl_semaphore_lost_reason(const pawl_semaphore *sem)
{
    return lost_reason(sem, NULL);
}

const char *pawl_semaphore_lost_cause(const pawl_semaphore *sem, char *text, size_t size)
{
    char cause[LOST_CAUSE_MAX] = "";

    (void)lost_reason(sem, cause);
    if (size)
        snprintf(text, size, "%s", cause);
    return text;
}

/* Cancel or abandon every hold of the handle. Returns the number of cancelled ones. */
static int each_hold(pawl_semaphore *sem, bool abandon)
{
    int n = 0;

    pawl__defer_begin(sem->client); /* no hold ends during the walk over the list */
    for (struct list *l = sem->name_state->holds.next,
         *next; l != &sem->name_state->holds; l = next) {
        struct hold *hold = list_entry(l, struct hold, in_name);

        next = l->next;
        if (hold->owner.holder != sem->handle)
            continue;
        if (abandon)
            pawl__hold_abandon(hold, true);
        else if (hold->state == HOLD_ACQUIRING || hold->state == HOLD_WAITING)
            pawl__hold_cancel(hold, PAWL_ECANCELED), n++;
    }
    pawl__defer_end(sem->client);
    return n;
}

int pawl_semaphore_cancel(pawl_semaphore *sem)
{
    int n;

    if (!sem)
        return PAWL_EINVAL;
    n = pawl__enter(sem->client, false, NULL);
    if (n)
        return n;
    n = each_hold(sem, false);
    pawl__leave(sem->client);
    return n;
}

void pawl__semaphore_ref(pawl_semaphore *sem)
{
    sem->refs++;
}

void pawl__semaphore_unref(pawl_semaphore *sem)
{
    if (--sem->refs)
        return;
    sem->client->refs--;
    pawl__name_put(sem->client, sem->name_state);
    free(sem);
}

void pawl_semaphore_free(pawl_semaphore *sem)
{
    pawl_client *client;

    if (!sem || sem->client->generation != pawl__fork_generation())
        return;
    client = sem->client;
    pawl__cancellation_off();
    pawl__lock(client);
    client->refs++;
    each_hold(sem, true);
    if (client->state == CLIENT_OPEN) {
        pawl__before_unlock(client);
        pawl__background_need(client);
    }
    pawl__semaphore_unref(sem);
    pawl__unlock(client);
    pawl__client_unref(client);
    pawl__cancellation_back();
}
