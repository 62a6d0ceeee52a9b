/* SPDX-License-Identifier: Apache-2.0
 *
 * hold.c - holds from the acquire to the grant. hold.h has the table of states and events.
 */
#include <stdlib.h>

#include "core.h"

static void acquire_answered(struct request *request, int code);
static void reentry_answered(struct request *request, int code);
static void prepare_acquire(struct hold *hold, int64_t now);

/* ---- memory ---------------------------------------------------------------------------------- */

static void callback_gone(struct callback *callback);

struct hold *pawl__hold_new(pawl_client *client, struct name_state *name_state)
{
    struct list *link = list_take(&client->holds.spare);
    struct hold *hold = link ? list_entry(link, struct hold, in_client) : calloc(1, sizeof *hold);

    if (!hold)
        return NULL;
    if (link)
        *hold = (struct hold){0};
    list_init(&hold->in_queue);
    list_init(&hold->request.deferred);
    list_init(&hold->request.all);
    hold->renew_timer.arg = hold;
    hold->done_cb.gone = hold->lost_cb.gone = callback_gone;
    hold->done_cb.hold = hold->lost_cb.hold = hold;
    hold->id = ++client->holds.last_id;
    hold->client = client;
    hold->name_state = name_state;
    hold->state = HOLD_WAITING;
    client->holds.live++;
    name_state->refs++;
    list_append(&client->holds.all, &hold->in_client);
    list_append(&name_state->holds, &hold->in_name);
    return hold;
}

/* Does anything refer to the hold, or is a result still to be delivered? */
static bool needed(const struct hold *hold)
{
    return hold->request.phase != REQUEST_IDLE || hold->thread || hold->done_cb.fn ||
           hold->done_cb.pending || hold->done_cb.running || hold->lost_cb.pending ||
           hold->lost_cb.running;
}

void pawl__hold_over(struct hold *hold)
{
    pawl_client *client = hold->client;

    if (hold->state != HOLD_OVER) {
        hold->state = HOLD_OVER;
        client->holds.live--;
        if (client->closing.thread)
            pawl__close_check(client);
    }
    if (needed(hold) || list_empty(&hold->in_name))
        return;
    list_remove(&hold->in_queue);
    list_remove(&hold->in_name);
    list_remove(&hold->in_client);
    list_append(&client->holds.spare, &hold->in_client);
    free(hold->by);
    hold->by = NULL;
    pawl__name_put(client, hold->name_state);
}

static void callback_gone(struct callback *callback)
{
    struct hold *hold = (struct hold *)(uintptr_t)callback->hold;

    if (hold->state == HOLD_OVER)
        pawl__hold_over(hold);
}

struct hold *pawl__hold_find(struct name_state *name_state, uint64_t holder, int mode)
{
    for (struct list *l = name_state->holds.next; l != &name_state->holds; l = l->next) {
        struct hold *hold = list_entry(l, struct hold, in_name);

        if (hold->owner.holder == holder && hold->terms.mode == mode && !hold->finished &&
            hold->state != HOLD_OVER)
            return hold;
    }
    return NULL;
}

static void error_text(const struct hold *hold, int code, pawl_error *err)
{
    if (code == PAWL_ELOST)
        pawl__hold_error_lost(hold, err);
    else if (hold->request.err.text[0] && hold->request.op.code == code)
        pawl__error_about(err, code, hold->name_state->name, hold->request.err.text);
    else
        pawl__error_about(err, code, hold->name_state->name, NULL);
}

void pawl__hold_report(struct hold *hold, int code)
{
    struct waiter_thread *thread = hold->thread;

    hold->thread = NULL;
    if (thread) {
        if (code)
            error_text(hold, code, thread->err);
        pawl__wait_done(hold->client, thread, code);
    } else if (hold->done_cb.fn && !hold->done_cb.pending) {
        if (code && hold->request.err.text[0] && hold->request.op.code == code)
            pawl__log(hold->client, PAWL_LOG_WARNING, "'%s': %s", SHOWN(hold->name_state->name),
                      hold->request.err.text); /* a callback receives only the code, not the text */
        pawl__callback_queue(hold->client, &hold->done_cb, code);
    }
}

void pawl__hold_set_asker(struct hold *hold, const struct asker *asker)
{
    if (!asker)
        return;
    hold->thread = asker->thread;
    hold->done_cb.fn = asker->done;
    hold->done_cb.arg = asker->arg;
    hold->done_cb.lock = asker->lock;
    hold->acquires = false;
    if (asker->done && asker->lock)
        asker->lock->refs++; /* for the callback, even if the handle is freed before */
}

/* ---- acquiring ------------------------------------------------------------------------------- */

/* The owner already has a hold of this name. Sets *again if the acquire is a re-entry. */
static int check_own(struct hold *own, const struct terms *terms, struct hold **again,
                     pawl_error *err)
{
    const char *name = own->name_state->name;
    char cause[LOST_CAUSE_MAX];

    if (own->state == HOLD_HELD && pawl__now(own->client) >= own->deadline)
        pawl__hold_lost(own, 0);
    if (own->state == HOLD_UNRELEASED) {
        pawl__hold_release_unowned(own); /* before the acquire, which may wait for the release */
        return 0;
    }
    if (own->state == HOLD_LOST)
        return pawl_error_set(err, PAWL_ELOST, "'%s' was lost while this owner held it (%s); "
                              "release it first", SHOWN(name), pawl__hold_lost_cause(own, cause));
    if (own->state != HOLD_HELD || own->partial || own->done_cb.pending)
        return pawl_error_set(err, PAWL_ESTATE, "'%s': this owner's last call is still under way",
                              SHOWN(name));
    if (own->terms.mode == PAWL_MODE_SHARED && terms->mode == PAWL_MODE_EXCLUSIVE)
        return pawl_error_set(err, PAWL_EDEADLK,
                              "'%s': this owner reads it and would wait for itself to write; "
                              "release the read lock first", SHOWN(name));
    if (own->terms.mode != terms->mode)
        return 0; /* a writer acquires a read lock in addition */
    if (!terms->reentrant)
        return pawl_error_set(err, PAWL_ESTATE,
                              "'%s': this handle holds it already (handle-owned locks are not "
                              "re-entrant)", SHOWN(name));
    *again = own;
    return 0;
}

static int find_own(struct name_state *name_state, const struct terms *terms, uint64_t holder,
                        struct hold **again, uint64_t *with_seq, pawl_error *err)
{
    /* Look for a hold in the wanted mode first: a writer that also reads may re-enter either
     * lock. */
    const uint8_t other = terms->mode == PAWL_MODE_SHARED ? PAWL_MODE_EXCLUSIVE : PAWL_MODE_SHARED;
    const uint8_t modes[] = {terms->mode, other};

    for (size_t i = 0; i < 2 && terms->mode != PAWL_MODE_PERMITS && !*again; i++) {
        struct hold *own = pawl__hold_find(name_state, holder, modes[i]);
        int code = own ? check_own(own, terms, again, err) : 0;

        if (code)
            return code;
        if (own && own->state == HOLD_HELD && modes[i] == PAWL_MODE_EXCLUSIVE &&
            terms->mode == PAWL_MODE_SHARED) {
            *with_seq = own->owner.seq;
            own->token_end = own->token + 1; /* cohort.c: this grant is not passed on */
        }
    }
    return 0;
}

/* Tell a service that counts re-entries (PAWL_CAP_COUNTS) about this one. The owner has the lock,
 * so the request does not wait in a queue. */
static void submit_reentry(struct hold *hold)
{
    struct request *r = &hold->request;
    int64_t now = pawl__now(hold->client);

    hold->partial = true;
    prepare_acquire(hold, now);
    r->finish = reentry_answered;
    r->op.count = hold->count;
    pawl__request_start(r, now + hold->client->env.timeout_ms * PAWL_NS_PER_MS);
}

static void reentry_answered(struct request *r, int code)
{
    struct hold *hold = list_entry(r, struct hold, request);

    hold->partial = false;
    pthread_cond_broadcast(&hold->client->idle);
    if (code == PAWL_ENOTHELD)
        pawl__hold_lost(hold, PAWL_LOST_GONE);
    if (hold->state != HOLD_HELD) {
        if (code != PAWL_ENOTHELD)
            pawl__hold_release_leftover(hold, r->op.lease_ms); /* it may have a new lease */
        code = PAWL_ELOST;
    } else if (code == 0) {
        int64_t from = r->op.lease_from ? r->op.lease_from : r->first_sent;

        hold->count++;
        if (pawl__valid_until(from, r->op.lease_ms) > hold->deadline) /* pawl_lock_renew: later */
            pawl__lease_confirm(hold, from, r->op.lease_ms);
    }
    pawl__hold_partial_answered(hold, code);
}

static void reenter(struct hold *hold, const struct asker *asker)
{
    pawl__hold_set_asker(hold, asker);
    hold->acquires = true;
    if (hold->client->caps & PAWL_CAP_COUNTS) {
        submit_reentry(hold);
        return;
    }
    hold->count++;
    pawl__hold_report(hold, 0);
}

static void fill_new(struct hold *hold, const struct terms *terms, const struct asker *asker,
                     uint32_t permits, int64_t wait_ms)
{
    pawl_client *client = hold->client;

    hold->terms = *terms;
    hold->lock = asker->lock;
    hold->sem = asker->sem;
    hold->group = asker->group;
    hold->owner = (pawl_owner){client->env.client_id, asker->holder, ++client->last_seq};
    hold->try_once = wait_ms == 0;
    hold->permits = permits;
    hold->asked = pawl__now(client);
    hold->wait_until = wait_ms < 0 || wait_ms > (PAWL_NEVER - hold->asked) / PAWL_NS_PER_MS
                           ? PAWL_NEVER
                           : hold->asked + wait_ms * PAWL_NS_PER_MS;
    hold->lost_cb.fn = terms->on_lost;
    hold->lost_cb.arg = terms->arg;
    hold->lost_cb.lock = asker->lock;
    hold->lost_cb.sem = asker->sem;
    pawl__hold_set_asker(hold, asker);
    hold->acquires = true;
}

int pawl__hold_acquire(pawl_client *client, struct name_state *name_state,
                       const struct terms *terms,
                       const struct asker *asker, uint32_t permits, int64_t wait_ms,
                       pawl_error *err)
{
    struct hold *hold, *again = NULL;
    uint64_t with_seq = 0;
    int code = find_own(name_state, terms, asker->holder, &again, &with_seq, err);

    if (code)
        return code;
    if (again) {
        reenter(again, asker);
        return 0;
    }
    if (asker->thread && terms->cohort && wait_ms == 0 && pawl__name_held(name_state))
        return pawl__error_about(err, PAWL_EBUSY, name_state->name, NULL);
    if (!client->driver.background.runs && pawl__background_start(client))
        return pawl_error_set(err, PAWL_ENOMEM, "can't start the background thread");
    hold = pawl__hold_new(client, name_state);
    if (!hold)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    fill_new(hold, terms, asker, permits, wait_ms);
    hold->with_seq = with_seq;
    if (with_seq && (client->caps & PAWL_CAP_COUNTS))
        hold->owner.seq = with_seq; /* such services have one owner for both grants */
    if (hold->try_once && name_state->front)
        hold->terms.cohort = false; /* not queued in the process: the engine answers PAWL_EBUSY */
    pawl__wait_begins(hold);
    if (pawl__cohort_enter(hold))
        pawl__hold_start(hold);
    if (client->slow.after_ns)
        pawl__slow_watch(hold);
    return 0;
}

static void prepare_acquire(struct hold *hold, int64_t now)
{
    struct request *r = &hold->request;

    pawl__request_init(r, hold->client, acquire_answered);
    r->op.kind = PAWL_OP_ACQUIRE;
    r->op.mode = hold->terms.mode;
    r->op.lock_kind = hold->terms.kind;
    r->op.name = hold->name_state->name;
    r->op.owner = hold->owner;
    r->op.with_seq = hold->with_seq;
    r->op.permits = hold->permits;
    r->op.count = (int64_t)hold->terms.count;
    r->op.lease_ms = pawl__lease_wanted(hold, now);
}

void pawl__hold_start(struct hold *hold)
{
    struct request *r = &hold->request;
    pawl_client *client = hold->client;
    bool queue = hold->terms.queue && !hold->try_once;
    int64_t now = pawl__now(client);

    hold->state = HOLD_ACQUIRING;
    prepare_acquire(hold, now);
    r->op.queue = queue;
    r->op.tokens = pawl__cohort_tokens(hold);
    r->poll = !queue && !hold->try_once;
    pawl__request_start(r, hold->try_once ? now + client->env.timeout_ms * PAWL_NS_PER_MS
                                          : hold->wait_until);
}

void pawl__hold_granted(struct hold *hold)
{
    pawl_client *client = hold->client;
    int64_t now = pawl__now(client);

    hold->state = HOLD_HELD;
    hold->count = 1;
    hold->since = now;
    client->driver.spin.contended = hold->waited;
    pawl__wait_ends(hold, 0);
    pawl__hold_report(hold, 0);
    if (hold->orphan)
        pawl__cohort_leave(hold);
}

/* The acquire ended without a grant: report that, and let the next hold of the process acquire. */
static void not_acquired(struct hold *hold, int code)
{
    pawl__wait_ends(hold, code);
    pawl__hold_report(hold, code);
    pawl__cohort_leave(hold);
    pawl__hold_over(hold);
}

static void release_unwanted(struct hold *hold, int code)
{
    pawl__wait_ends(hold, code);
    pawl__hold_report(hold, code);
    pawl__defer_begin(hold->client); /* submit the release before the next acquire */
    pawl__hold_release_unowned(hold);
    pawl__cohort_leave(hold);
    pawl__defer_end(hold->client);
    pawl__requests_flush(hold->client);
}

/* The answer arrived after the end of its lease. Acquire again if there is time; the service may
 * still have the old grant, which must not block the new acquire. */
static void granted_too_late(struct hold *hold, int64_t now)
{
    bool with_other = hold->owner.seq == hold->with_seq; /* the other lease has ended, too */
    bool busy = hold->request.held;

    pawl__hold_release_leftover(hold, hold->request.op.lease_ms);
    hold->owner.seq = ++hold->client->last_seq;
    if (!with_other && !hold->try_once && now < hold->wait_until)
        pawl__hold_start(hold);
    else
        not_acquired(hold, busy ? PAWL_ETIMEDOUT : PAWL_ECONN);
}

static void acquire_answered(struct request *r, int code)
{
    struct hold *hold = list_entry(r, struct hold, request);
    int64_t now = pawl__now(hold->client);
    int64_t from = r->op.lease_from ? r->op.lease_from : r->first_sent;

    /* An earlier attempt without an answer may still be granted, whatever the last answer says. */
    if ((code && r->unknown) || (code == 0 && hold->abandoned)) {
        release_unwanted(hold, code ? code : PAWL_ECANCELED);
    } else if (code) {
        not_acquired(hold, code);
    } else if (pawl__valid_until(from, r->op.granted_ms ? r->op.granted_ms : r->op.lease_ms) <=
               now) {
        granted_too_late(hold, now);
    } else {
        hold->waited |= r->op.waited || (r->poll && r->attempts > 1);
        hold->token = r->op.token;
        hold->token_end = r->op.token + (r->op.ntokens ? r->op.ntokens : 1);
        hold->state = HOLD_HELD;
        hold->since = now;
        pawl__lease_begin(hold);
        pawl__hold_granted(hold);
    }
}

void pawl__hold_cancel(struct hold *hold, int why)
{
    if (hold->state == HOLD_WAITING) {
        pawl__timers_clear(&hold->client->timers, &hold->wait_timer);
        list_remove(&hold->in_queue);
        not_acquired(hold, why);
    } else if (hold->state == HOLD_ACQUIRING) {
        pawl__request_cancel(&hold->request, why);
    }
}
