/* SPDX-License-Identifier: Apache-2.0
 *
 * hold_end.c - how holds end: released, lost, or abandoned by their owner. hold.h has the table of
 * states and events.
 *
 * If at_least_ms is used with an engine that can't let a lock linger (no PAWL_CAP_LINGER), the
 * client keeps the lock as a finished hold and releases the lock when the time has passed. A client
 * that closes waits up to its timeout, and then releases the lock. If the lease ends before
 * at_least_ms have passed, a closing client leaves the lock to its lease.
 */
#include "core.h"

static void release_answered(struct request *request, int code);

/* ---- releases without an asker --------------------------------------------------------------- */

static void prepare_release(struct hold *hold)
{
    struct request *r = &hold->request;

    pawl__request_init(r, hold->client, release_answered);
    r->op.kind = PAWL_OP_RELEASE;
    r->op.mode = hold->terms.mode;
    r->op.lock_kind = hold->terms.kind;
    r->op.name = hold->name_state->name;
    r->op.owner = hold->owner;
    r->op.count = hold->permits;
    r->op.lease_ms = pawl__lease_wanted(hold, pawl__now(hold->client));
}

static void mark_finished(struct hold *hold)
{
    hold->finished = true;
    hold->lock = NULL;
    hold->sem = NULL;
}

void pawl__hold_release_unowned(struct hold *hold)
{
    struct request *r = &hold->request;
    pawl_client *client = hold->client;
    int64_t lease = r->op.lease_ms;

    hold->state = HOLD_RELEASING;
    mark_finished(hold);
    pawl__timers_clear(&client->timers, &hold->wait_timer);
    prepare_release(hold);
    pawl__request_start(r, pawl__now(client) + lease * PAWL_NS_PER_MS);
}

void pawl__hold_release_leftover(const struct hold *hold, int64_t lease_ms)
{
    struct hold *finished = pawl__hold_new(hold->client, hold->name_state);

    if (!finished)
        return;
    finished->terms = hold->terms;
    finished->owner = hold->owner;
    finished->permits = hold->permits;
    finished->request.op.lease_ms = lease_ms;
    pawl__hold_release_unowned(finished);
}

/* May the service keep the grant although the lease has ended? */
static bool outlasts_lease(const struct hold *hold)
{
    uint32_t caps = hold->client->caps;
    struct hold *reads;

    if (hold->terms.mode == PAWL_MODE_PERMITS)
        return caps & (PAWL_CAP_SESSION_LEASE | PAWL_CAP_LASTING);
    if (!(caps & PAWL_CAP_COUNTS) || hold->terms.mode != PAWL_MODE_EXCLUSIVE)
        return caps & (PAWL_CAP_SESSION_LEASE | PAWL_CAP_OUTLASTS);
    reads = pawl__hold_find(hold->name_state, hold->owner.holder, PAWL_MODE_SHARED);
    return reads && reads->state == HOLD_HELD; /* one entry in the service: see PAWL_OP_ACQUIRE */
}

/* ---- releasing ------------------------------------------------------------------------------- */

static int release_lost(struct hold *hold, const struct asker *asker)
{
    pawl__hold_set_asker(hold, asker);
    pawl__hold_report(hold, PAWL_ELOST);
    if (--hold->count <= 0)
        pawl__hold_over(hold);
    return 0;
}

static void linger_over(pawl_timer *timer)
{
    struct hold *hold = timer->arg;

    hold->terms.at_least_ms = 0;
    pawl__hold_release(hold, 0, NULL, NULL);
}

/* The engine can't let a lock linger: the process keeps the lock until at_least_ms have passed. The
 * hold belongs to no thread from now on: if its thread has ended, the lease is renewed again. */
static void begin_linger(struct hold *hold, int64_t until)
{
    pawl_client *client = hold->client;
    int64_t most = pawl__now(client) + client->env.timeout_ms * PAWL_NS_PER_MS;

    if (client->state != CLIENT_OPEN) {
        until = until < most ? until : most;
        if (until > client->closing.linger_until)
            client->closing.linger_until = until;
    }
    pawl__hold_report(hold, 0);
    mark_finished(hold);
    hold->lost_cb.fn = NULL;
    if (hold->orphan)
        pawl__lease_renew_again(hold);
    pawl__timers_clear(&client->timers, &hold->wait_timer); /* abandoned while the lock lingers */
    hold->wait_timer = (pawl_timer){.fire = linger_over, .arg = hold};
    pawl__timers_set(&client->timers, &hold->wait_timer, until);
}

/* The client closes, and the lease ends by itself before at_least_ms is over: don't send a
 * release. */
static void leave_to_lease(struct hold *hold)
{
    pawl__hold_ends(hold, 0);
    pawl__timers_clear(&hold->client->timers, &hold->wait_timer);
    pawl__lease_end(hold);
    pawl__hold_report(hold, 0);
    pawl__cohort_leave(hold);
    pawl__hold_over(hold);
}

static void submit_release(struct hold *hold, uint32_t keep, int64_t linger)
{
    struct request *r = &hold->request;
    pawl_client *client = hold->client;

    prepare_release(hold);
    if (keep && hold->deadline != PAWL_NEVER) { /* pawl_lock_renew may have set a later deadline */
        int64_t left = (hold->deadline - pawl__now(client)) / PAWL_NS_PER_MS + 1;

        r->op.lease_ms = left > r->op.lease_ms ? left : r->op.lease_ms;
    }
    r->op.permits = keep;
    r->op.linger_ms = linger > 0 ? (linger + PAWL_NS_PER_MS - 1) / PAWL_NS_PER_MS : 0;
    pawl__defer_begin(client); /* submit the release before the next acquire */
    pawl__request_start(r, pawl__now(client) + client->env.timeout_ms * PAWL_NS_PER_MS);
    if (!hold->partial)
        pawl__cohort_leave(hold);
    pawl__defer_end(client);
    pawl__requests_flush(client);
}

static void release_whole(struct hold *hold)
{
    pawl_client *client = hold->client;
    int64_t now = pawl__now(client);
    int64_t linger = hold->since + hold->terms.at_least_ms * PAWL_NS_PER_MS - now;
    uint32_t lingers = client->state == CLIENT_OPEN ? PAWL_CAP_LINGER
                                                    : PAWL_CAP_LINGER | PAWL_CAP_LINGER_CLOSING;

    if (hold->terms.at_least_ms && linger > 0 && !(client->caps & lingers)) {
        if (client->state == CLIENT_OPEN || hold->lease_from + hold->lease_len > now + linger)
            begin_linger(hold, now + linger);
        else
            leave_to_lease(hold);
        return;
    }
    pawl__timers_clear(&client->timers, &hold->wait_timer); /* set if the lock has lingered */
    pawl__hold_ends(hold, 0);
    hold->name_state->series->stats.released++;
    if (linger <= 0 && pawl__cohort_pass(hold)) {
        pawl__hold_report(hold, 0);
        pawl__hold_over(hold);
        return;
    }
    pawl__lease_end(hold);
    hold->state = HOLD_RELEASING;
    submit_release(hold, 0, hold->terms.at_least_ms ? linger : 0);
}

int pawl__hold_release(struct hold *hold, uint32_t keep, const struct asker *asker, pawl_error *err)
{
    if (hold->state == HOLD_HELD && pawl__now(hold->client) >= hold->deadline)
        pawl__hold_lost(hold, 0);
    if (hold->partial || (asker && hold->done_cb.pending) ||
        (hold->state != HOLD_HELD && hold->state != HOLD_LOST && hold->state != HOLD_UNRELEASED))
        return pawl_error_set(err, PAWL_ESTATE, "'%s': this owner's last call is still under way",
                              SHOWN(hold->name_state->name));
    if (hold->state == HOLD_LOST)
        return release_lost(hold, asker);
    pawl__hold_set_asker(hold, asker);
    if (hold->state == HOLD_UNRELEASED) {
        pawl__timers_clear(&hold->client->timers, &hold->wait_timer);
        hold->state = HOLD_RELEASING;
        submit_release(hold, 0, 0);
        return 0;
    }
    if (hold->count > 1 && (hold->client->caps & PAWL_CAP_COUNTS))
        keep = (uint32_t)hold->count - 1;
    if (hold->count > 1 && !keep) {
        hold->count--;
        pawl__hold_report(hold, 0);
    } else if (keep) {
        hold->partial = true;
        hold->keep = keep;
        submit_release(hold, keep, 0);
    } else {
        release_whole(hold);
    }
    return 0;
}

/* The answer to a release of some permits, or of one of several counts. */
static void partial_release_answered(struct hold *hold, int code)
{
    bool permits = hold->terms.mode == PAWL_MODE_PERMITS;

    hold->partial = false;
    pthread_cond_broadcast(&hold->client->idle);
    if (code == PAWL_ENOTHELD)
        pawl__hold_lost(hold, PAWL_LOST_GONE);
    if (code == 0 && permits) {
        hold->permits = hold->keep;
        hold->name_state->series->stats.released++;
    }
    if (hold->state != HOLD_HELD) {
        if (code != PAWL_ENOTHELD) /* the service may keep the rest, with a new lease */
            pawl__hold_release_leftover(hold, hold->request.op.lease_ms);
        if (permits) /* the hold was lost: these permits are gone in any case */
            hold->permits = hold->keep;
        else
            hold->count--;
        code = PAWL_ELOST;
    } else if (code == 0 && !permits) {
        hold->count = (int)hold->keep;
    }
    pawl__hold_partial_answered(hold, code);
}

void pawl__hold_partial_answered(struct hold *hold, int code)
{
    pawl__hold_report(hold, code);
    if (hold->state == HOLD_OVER)
        pawl__hold_over(hold); /* the memory was needed for the request */
    else if (hold->abandoned && hold->state == HOLD_HELD)
        pawl__hold_release(hold, 0, NULL, NULL);
    else if (hold->releases_due)
        pawl__hold_release_times(hold, hold->releases_due);
}

/* Release `times` counts. As long as the hold stays HELD, no request is sent: a service that also
 * counts learns the count from the next request of the owner. */
void pawl__hold_release_times(struct hold *hold, unsigned times)
{
    unsigned count = hold->count > 0 ? (unsigned)hold->count : 1;

    hold->releases_due = hold->partial ? hold->releases_due + times : 0;
    if (hold->partial)
        return;
    if (hold->state == HOLD_HELD && times < count) {
        hold->count -= (int)times;
        return;
    }
    hold->count -= (int)(times < count ? times : count) - 1; /* all but the last one */
    pawl__hold_release(hold, 0, NULL, NULL);
}

static void unreleased_expired(pawl_timer *timer)
{
    struct hold *hold = timer->arg;

    if (outlasts_lease(hold))
        pawl__hold_release_unowned(hold);
    else
        pawl__hold_over(hold);
}

/* The release failed. The service may keep the lock for at most one more lease; during that time
 * the release can be repeated. */
static void release_failed(struct hold *hold, int code)
{
    pawl_client *client = hold->client;
    int64_t now = pawl__now(client), lease = hold->request.op.lease_ms;

    hold->state = HOLD_UNRELEASED;
    hold->wait_timer = (pawl_timer){.fire = unreleased_expired, .arg = hold};
    if (lease < (PAWL_NEVER - now) / PAWL_NS_PER_MS)
        pawl__timers_set(&client->timers, &hold->wait_timer, now + lease * PAWL_NS_PER_MS);
    if (!hold->thread && (!hold->done_cb.fn || hold->done_cb.pending)) /* no asker gets the code */
        pawl__log(client, PAWL_LOG_WARNING, "'%s' could not be released: %s",
                  SHOWN(hold->name_state->name),
                  hold->request.err.text[0] ? hold->request.err.text : pawl_strerror(code));
    pawl__hold_report(hold, code);
}

static void release_answered(struct request *r, int code)
{
    struct hold *hold = list_entry(r, struct hold, request);

    /* The release was cancelled without an answer: the service may have the lock until the lease
     * ends. */
    if (code == PAWL_ETIMEDOUT || code == PAWL_ECANCELED)
        code = PAWL_EUNKNOWN;
    if (hold->partial) {
        partial_release_answered(hold, code);
        return;
    }
    hold->maybe_released |= r->unknown || code == PAWL_EUNKNOWN;
    /* A repeated release found no grant within the lease: an earlier attempt has succeeded. */
    if (code == PAWL_ENOTHELD && hold->maybe_released &&
        pawl__now(hold->client) < hold->deadline)
        code = 0;
    if (code == PAWL_ENOTHELD) {
        code = PAWL_ELOST;
        hold->why = PAWL_LOST_GONE;
        hold->name_state->series->stats.lost +=
            hold->thread || (hold->done_cb.fn && !hold->done_cb.pending);
    }
    if (code && code != PAWL_ELOST && hold->client->state == CLIENT_OPEN) {
        release_failed(hold, code);
        return;
    }
    if (code && code != PAWL_ELOST)
        pawl__close_failed(hold->client, code);
    pawl__hold_report(hold, code);
    pawl__hold_over(hold);
}

/* ---- losing ---------------------------------------------------------------------------------- */

const char *pawl__hold_lost_cause(const struct hold *hold, char cause[LOST_CAUSE_MAX])
{
    double silent = (double)(hold->deadline - hold->lease_from) / 1e9;

    if (hold->why == PAWL_LOST_SILENCE)
        snprintf(cause, LOST_CAUSE_MAX, "%s, %.1f s after the last contact",
                 pawl_lost_text(hold->why), silent);
    else if (hold->why == PAWL_LOST_BROKEN && hold->by && hold->by[0])
        snprintf(cause, LOST_CAUSE_MAX, "it was broken by %s", hold->by);
    else
        snprintf(cause, LOST_CAUSE_MAX, "%s", pawl_lost_text(hold->why));
    return cause;
}

int pawl__hold_error_lost(const struct hold *hold, pawl_error *err)
{
    char cause[LOST_CAUSE_MAX];

    return pawl_error_set(err, PAWL_ELOST, "'%s' was lost: %s",
                          SHOWN(hold->name_state->name), pawl__hold_lost_cause(hold, cause));
}

void pawl__hold_lost(struct hold *hold, int why)
{
    pawl_client *client = hold->client;
    char cause[LOST_CAUSE_MAX];

    if (hold->state != HOLD_HELD)
        return;
    hold->why = (uint8_t)(why ? why : pawl__lease_lost_why(hold, pawl__now(client)));
    pawl__lease_end(hold);
    pawl__timers_clear(&client->timers, &hold->wait_timer);
    hold->state = HOLD_LOST;
    pawl__hold_ends(hold, PAWL_ELOST);
    hold->name_state->series->stats.lost++;
    pawl__log(client, PAWL_LOG_WARNING, "lost '%s' (token %llu): %s",
              SHOWN(hold->name_state->name), (unsigned long long)hold->token,
              pawl__hold_lost_cause(hold, cause));
    if (hold->lost_cb.fn) {
        if (hold->lost_cb.lock)
            hold->lost_cb.lock->refs++;
        if (hold->lost_cb.sem)
            pawl__semaphore_ref(hold->lost_cb.sem);
        pawl__callback_queue(client, &hold->lost_cb, PAWL_ELOST);
    }
    if (outlasts_lease(hold))
        pawl__hold_release_leftover(hold, hold->lease_len / PAWL_NS_PER_MS);
    pawl__cohort_leave(hold);
    if (hold->orphan || (!hold->lock && !hold->sem))
        pawl__hold_over(hold); /* no owner is left that could release the hold */
}

void pawl__hold_abandon(struct hold *hold, bool forget)
{
    mark_finished(hold);
    if (forget)
        hold->lost_cb.fn = NULL;
    if (hold->acquires && hold->done_cb.pending && hold->done_cb.code == 0)
        hold->done_cb.code = PAWL_ECANCELED; /* the lock is no longer held when the callback runs */
    hold->abandoned = true;
    switch (hold->state) {
    case HOLD_WAITING:
    case HOLD_ACQUIRING:
        pawl__hold_cancel(hold, PAWL_ECANCELED);
        break;
    case HOLD_HELD:
        hold->count = 1;
        if (!hold->partial)
            pawl__hold_release(hold, 0, NULL, NULL);
        break;
    case HOLD_UNRELEASED:
        pawl__hold_release_unowned(hold);
        break;
    case HOLD_LOST:
        pawl__hold_over(hold);
        break;
    default:
        break; /* RELEASING, OVER */
    }
}
