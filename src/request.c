/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c - one op with its time limit and its retries.
 *
 *   IDLE --start--> DUE/OUT --answer--> finish, or PAUSED --timer--> DUE/OUT ...
 *
 * RETRIES. PAWL_EUNKNOWN from the engine means that the op may have been carried out. The request
 * then submits the same op again (the engine makes repetition harmless) until an answer comes or
 * the deadline passes. Only at the deadline finish() receives PAWL_EUNKNOWN. The request retries
 * after PAWL_ECONN (certainly not sent) in the same way.
 *
 * TIME LIMIT. PAWL_ETIMEDOUT means that another owner had the lock during the whole wait. So a
 * request ends with this code at its deadline only if the service has said so (`held`: a
 * PAWL_EBUSY, or op->waited). Without any answer the code is PAWL_ECONN if the op can't have been
 * carried out, else PAWL_EUNKNOWN.
 *
 * CANCEL. An acquire that its caller cancels ends with PAWL_ECANCELED, also if the service doesn't
 * answer: the caller does not hold the lock, and because of r->unknown the hold releases a grant
 * that may still be made.
 *
 * DEFERRING. The engine is never called from inside op->done. While an engine function is on the
 * stack (requests.deferring), submits and cancels are deferred: the requests wait in
 * requests.deferred until the engine function has returned and pawl__requests_flush carries them
 * out.
 */
#include "core.h"

#define PAUSE_MIN (1 * PAWL_NS_PER_MS)
#define POLL_MAX (50 * PAWL_NS_PER_MS)
#define RETRY_MIN (10 * PAWL_NS_PER_MS)
#define RETRY_MAX (1000LL * PAWL_NS_PER_MS)

static void answered(pawl_op *op);
static void limit_reached(pawl_timer *timer);
static void pause_over(pawl_timer *timer);

void pawl__requests_init(struct requests *requests)
{
    list_init(&requests->all);
    list_init(&requests->deferred);
}

void pawl__request_init(struct request *r, pawl_client *client,
                        void (*finish)(struct request *, int code))
{
    memset(&r->op, 0, sizeof r->op);
    r->op.done = answered;
    r->op.arg = r;
    r->op.err = &r->err;
    r->op.tokens = 1;
    r->client = client;
    list_init(&r->deferred);
    list_init(&r->all);
    r->owner = NULL;
    r->handle = NULL;
    r->pause = (pawl_timer){.fire = pause_over, .arg = r};
    r->limit = (pawl_timer){.fire = limit_reached, .arg = r};
    r->started = r->first_sent = r->sent = 0;
    r->phase = REQUEST_IDLE;
    r->once = r->poll = r->unknown = r->held = r->cancel_due = false;
    r->giving_up = 0;
    r->attempts = 0;
    r->finish = finish;
}

static void end(struct request *r, int code)
{
    pawl_client *client = r->client;

    pawl__timers_clear(&r->client->timers, &r->pause);
    pawl__timers_clear(&r->client->timers, &r->limit);
    list_remove(&r->deferred);
    list_remove(&r->all);
    r->phase = REQUEST_IDLE;
    if (r->unknown && code == PAWL_ECONN) /* an attempt before the last one was sent */
        r->op.code = code = PAWL_EUNKNOWN;
    r->finish(r, code);
    if (client->closing.thread)
        pawl__close_check(client);
}

static void submit(struct request *r)
{
    pawl_client *client = r->client;

    r->phase = REQUEST_OUT;
    r->sent = pawl__now(client);
    if (!r->first_sent)
        r->first_sent = r->sent;
    if (r->attempts++)
        client->counters.other.stats.repeated += !r->poll;
    r->err.code = 0;
    r->err.text[0] = 0;
    memset(r->op.engine, 0, sizeof r->op.engine);
    r->op.token = 0;
    r->op.lease_from = r->op.granted_ms = 0;
    r->op.waited = false;
    client->requests.submitting = r;
    pawl__defer_begin(client);
    client->requests.in_submit = true;
    client->engine.engine->submit(client->engine.state, &r->op);
    client->requests.in_submit = false;
    pawl__defer_end(client);
    if (client->requests.submitting == r) /* not answered yet; else the request may be freed */
        client->driver.unflushed = client->driver.spin.sent = true;
    client->requests.submitting = NULL;
}

/* pawl__requests_flush will submit or cancel the op. */
static void defer(struct request *r)
{
    if (list_empty(&r->deferred))
        list_append(&r->client->requests.deferred, &r->deferred);
}

static void defer_submit(struct request *r)
{
    r->phase = REQUEST_DUE;
    defer(r);
}

void pawl__requests_flush(pawl_client *client)
{
    struct list *link;

    if (client->requests.deferring)
        return;
    while ((link = list_take(&client->requests.deferred))) {
        struct request *r = list_entry(link, struct request, deferred);

        if (r->phase == REQUEST_DUE) {
            submit(r);
        } else if (r->phase == REQUEST_OUT && r->cancel_due) {
            r->cancel_due = false;
            pawl__defer_begin(client);
            client->requests.in_submit = true;
            client->engine.engine->cancel(client->engine.state, &r->op);
            client->requests.in_submit = false;
            pawl__defer_end(client);
            client->driver.unflushed = true;
        }
    }
}

void pawl__request_start(struct request *r, int64_t deadline)
{
    r->op.deadline = deadline;
    r->started = pawl__now(r->client);
    if (r->op.kind != PAWL_OP_EVENT)
        list_append(&r->client->requests.all, &r->all);
    if (deadline != PAWL_NEVER)
        pawl__timers_set(&r->client->timers, &r->limit, deadline);
    defer_submit(r);
    pawl__requests_flush(r->client);
}

static void pause_over(pawl_timer *timer)
{
    struct request *r = timer->arg;

    defer_submit(r);
}

/* Back off: growing pauses with a random half, so that many waiters do not retry together. */
static void wait_and_repeat(struct request *r)
{
    pawl_client *client = r->client;
    uint32_t doublings = r->attempts < 16 ? r->attempts - 1 : 15;
    int64_t low = r->poll ? PAUSE_MIN : RETRY_MIN, high = r->poll ? POLL_MAX : RETRY_MAX;
    int64_t pause = low << doublings;

    if (pause > high)
        pause = high;
    pause = pause / 2 + (int64_t)(client->env.random(&client->env) % (uint64_t)(pause / 2 + 1));
    r->phase = REQUEST_PAUSED;
    pawl__timers_set(&client->timers, &r->pause, pawl__now(client) + pause);
}

static bool worth_repeating(struct request *r, int code)
{
    if (r->once || r->giving_up || r->client->state == CLIENT_CLOSED)
        return false;
    if (code != PAWL_EUNKNOWN && code != PAWL_ECONN && !(code == PAWL_EBUSY && r->poll))
        return false;
    return pawl__now(r->client) < r->op.deadline;
}

/* The result of a request that was cancelled and certainly not carried out. */
static int given_up(struct request *r)
{
    int64_t ms = (pawl__now(r->client) - r->started) / PAWL_NS_PER_MS;

    if (r->giving_up != PAWL_ETIMEDOUT || r->held)
        return r->giving_up;
    if (!r->err.text[0])
        pawl_error_set(&r->err, PAWL_ECONN, "no answer within %lld ms", (long long)ms);
    r->op.code = r->op.kind == PAWL_OP_RELEASE || r->op.kind == PAWL_OP_RENEW ? PAWL_EUNKNOWN
                                                                               : PAWL_ECONN;
    return r->op.code;
}

static bool acquire_cancelled(const struct request *r)
{
    return r->op.kind == PAWL_OP_ACQUIRE && r->giving_up == PAWL_ECANCELED;
}

static void answered(pawl_op *op)
{
    struct request *r = op->arg;
    int code = op->code;

    if (r->client->requests.submitting == r)
        r->client->requests.submitting = NULL;
    r->phase = REQUEST_IDLE;
    r->cancel_due = false;
    list_remove(&r->deferred);
    if (code == PAWL_EUNKNOWN) {
        r->client->counters.other.stats.unknown++;
        r->unknown = true;
    }
    r->held |= code == PAWL_EBUSY || op->waited;
    if (code == PAWL_EBUSY) /* no lease began before this attempt */
        r->first_sent = r->unknown ? r->sent : 0;
    if (worth_repeating(r, code))
        wait_and_repeat(r);
    else if (r->giving_up && code == PAWL_ECANCELED && r->unknown && r->op.kind != PAWL_OP_ACQUIRE)
        end(r, PAWL_EUNKNOWN); /* an earlier attempt may have been carried out */
    else if (r->giving_up && (code == PAWL_ECANCELED || code == PAWL_EBUSY ||
                              (code == PAWL_ECONN && r->giving_up == PAWL_ECANCELED) ||
                              (code == PAWL_EUNKNOWN && acquire_cancelled(r))))
        end(r, given_up(r));
    else if (code == PAWL_EBUSY && r->poll && pawl__now(r->client) >= r->op.deadline)
        end(r, PAWL_ETIMEDOUT); /* the answer came before the timer fired */
    else
        end(r, code);
}

/* Cancelled between two attempts: the PAWL_ECONN of the last attempt tells more than
 * PAWL_ETIMEDOUT. */
static void end_unsent(struct request *r)
{
    if (r->unknown && !acquire_cancelled(r))
        end(r, PAWL_EUNKNOWN);
    else if (r->giving_up == PAWL_ETIMEDOUT && r->op.code == PAWL_ECONN)
        end(r, PAWL_ECONN);
    else
        end(r, given_up(r));
}

void pawl__request_cancel(struct request *r, int why)
{
    if (r->phase == REQUEST_IDLE || r->giving_up)
        return;
    r->giving_up = why;
    pawl__timers_clear(&r->client->timers, &r->limit);
    if (r->phase != REQUEST_OUT) {
        end_unsent(r);
        return;
    }
    r->cancel_due = true;
    defer(r);
    pawl__requests_flush(r->client);
}

static void limit_reached(pawl_timer *timer)
{
    pawl__request_cancel(timer->arg, PAWL_ETIMEDOUT);
}
