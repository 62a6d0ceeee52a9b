/* SPDX-License-Identifier: Apache-2.0
 *
 * lease.c - leases of HELD holds: renewal, deadline, loss.
 *
 * A HELD hold has two timers. `lost_timer` is set to the deadline. The deadline moves only when the
 * engine has confirmed a lease: deadline = (an instant before the request was sent) + lease, less
 * 1 % for clocks of different speed, less 2 ms. `renew_timer` (watchdog leases only) is set to a
 * third of the lease, in client->leases.due. When the first renewal is due, all renewals that are
 * due within the next tenth of the lease go into one RENEW op, a batch.
 *
 * A grant may begin as a claim, which is shorter than the requested lease (op->granted_ms). The
 * holder soon renews a claim to the whole lease. A fixed lease that began as a claim is renewed in
 * this way, too, and still ends at the time that counts from the grant (hold->ends). With session
 * leases the service may never grant the whole lease; a fixed lease is then confirmed repeatedly
 * until its end.
 *
 * A hold that is released or lost removes its item from the batch (item.arg = NULL), so that a late
 * answer changes nothing. A batch without an answer is not repeated as a whole: its holds soon go
 * into another batch, until their deadlines.
 */
#include <stdlib.h>

#include "core.h"

#define BATCH_MAX 512
#define MARGIN (2 * PAWL_NS_PER_MS)
#define SOON 10 /* a claim is renewed after 1/SOON of its length */
#define LATE (100 * PAWL_NS_PER_MS) /* a timer that is later by more: the process was stopped */

struct batch {
    struct request request;
    size_t n;
    pawl_renewal items[];
};

int64_t pawl__valid_until(int64_t from, int64_t lease_ms)
{
    int64_t lease, margin;

    if (lease_ms > (PAWL_NEVER - from) / PAWL_NS_PER_MS)
        return PAWL_NEVER;
    lease = lease_ms * PAWL_NS_PER_MS;
    margin = lease / 10 < MARGIN ? lease / 10 : MARGIN;
    return from + lease - lease / 100 - margin;
}

int64_t pawl__lease_wanted(const struct hold *hold, int64_t now)
{
    int64_t lease = hold->terms.lease_ms ? hold->terms.lease_ms : hold->client->env.watchdog_ms;
    int64_t since = hold->state == HOLD_HELD ? hold->since : now;

    if (hold->terms.max_hold_ms) {
        int64_t left = hold->terms.max_hold_ms - (now - since) / PAWL_NS_PER_MS;

        if (left < lease)
            lease = left;
    }
    return lease;
}

static void plan(pawl_client *client)
{
    int64_t due = pawl__timers_next(&client->leases.due);

    if (due == PAWL_NEVER)
        pawl__timers_clear(&client->timers, &client->leases.timer);
    else if (!client->leases.timer.armed || client->leases.timer.due > due)
        pawl__timers_set(&client->timers, &client->leases.timer, due);
}

static void renew_at(struct hold *hold, int64_t due)
{
    pawl__timers_set(&hold->client->leases.due, &hold->renew_timer, due);
    plan(hold->client);
}

static void deadline_reached(pawl_timer *timer)
{
    pawl__hold_lost(timer->arg, 0);
}

/* Why the deadline has passed. If a timer of this hold fired late (at the deadline, or before the
 * latest renewal), the process was stopped. Otherwise the renewals were sent in time, and the
 * service did not answer. */
int pawl__lease_lost_why(const struct hold *hold, int64_t now)
{
    int64_t late = hold->lease_len / 10 > LATE ? hold->lease_len / 10 : LATE;
    bool fixed = hold->terms.lease_ms && !hold->claim;

    if (fixed || hold->orphan)
        return PAWL_LOST_ENDED;
    if (hold->terms.max_hold_ms &&
        now - hold->since >= hold->terms.max_hold_ms * PAWL_NS_PER_MS - late)
        return PAWL_LOST_ENDED;
    if (now - hold->deadline > late || hold->renewal_late > late)
        return PAWL_LOST_STOPPED;
    return PAWL_LOST_SILENCE;
}

/* Is the lease renewed automatically? Not a fixed lease, not after the owner's thread has ended,
 * not past max_hold_ms. */
static bool renewable(const struct hold *hold, int64_t now)
{
    if (hold->terms.lease_ms || hold->orphan)
        return false;
    return !hold->terms.max_hold_ms ||
           (hold->terms.max_hold_ms - (now - hold->since) / PAWL_NS_PER_MS) * PAWL_NS_PER_MS >
               hold->lease_from + hold->lease_len - now;
}

/* Store the text that names the breaker of this hold's lock, as the engine reported it; NULL:
 * unknown. Two different texts become "". */
static void set_by(struct hold *hold, const char *by)
{
    if (by && hold->by && strcmp(hold->by, by))
        by = "";
    else if (by && hold->by)
        return;
    free(hold->by);
    hold->by = by ? strdup(by) : NULL; /* if there is no memory, the breaker stays unknown */
}

/* Limit a lease to max_hold_ms. A renewal that the engine sent late, or again, counts from the
 * later time, but its length was computed for the earlier one. */
static int64_t within_max_hold(const struct hold *hold, int64_t from, int64_t lease_ms)
{
    int64_t left = hold->terms.max_hold_ms - (from - hold->since) / PAWL_NS_PER_MS;

    return hold->terms.max_hold_ms && left < lease_ms ? left : lease_ms;
}

void pawl__lease_confirm(struct hold *hold, int64_t from, int64_t lease_ms)
{
    pawl_client *client = hold->client;
    int64_t now = pawl__now(client);

    lease_ms = within_max_hold(hold, from, lease_ms);
    hold->claim = false;
    hold->renewal_late = 0;
    hold->verify_why = 0;
    set_by(hold, NULL);
    hold->lease_from = from;
    hold->lease_len = PAWL_NEVER;
    if (lease_ms < PAWL_NEVER / PAWL_NS_PER_MS)
        hold->lease_len = lease_ms * PAWL_NS_PER_MS;
    hold->deadline = pawl__valid_until(from, lease_ms);
    hold->lost_timer.fire = deadline_reached;
    hold->lost_timer.arg = hold;
    pawl__timers_set(&client->timers, &hold->lost_timer, hold->deadline);
    if (renewable(hold, now))
        renew_at(hold, from + hold->lease_len / 3);
}

/* Record that given_ms of the requested lease_ms were granted (0: all). A claim is renewed after
 * 1/part of its length. */
static void give(struct hold *hold, int64_t from, int64_t lease_ms, int64_t given_ms, int part)
{
    bool claim = given_ms && given_ms < lease_ms;

    pawl__lease_confirm(hold, from, claim ? given_ms : lease_ms);
    hold->claim = claim;
    if (claim && (part == SOON || (hold->terms.lease_ms && !hold->orphan)))
        renew_at(hold, from + given_ms * PAWL_NS_PER_MS / part);
}

void pawl__lease_extend(struct hold *hold, int64_t from, int64_t lease_ms, int64_t given_ms)
{
    hold->ends = from + lease_ms * PAWL_NS_PER_MS;
    give(hold, from, lease_ms, given_ms, 3);
}

void pawl__lease_begin(struct hold *hold)
{
    const struct request *r = &hold->request;
    int64_t from = r->op.lease_from ? r->op.lease_from : r->first_sent;

    hold->ends = from + r->op.lease_ms * PAWL_NS_PER_MS;
    give(hold, from, r->op.lease_ms, r->op.granted_ms, SOON); /* shorter holds need no renewal */
}

void pawl__lease_stop_renewing(struct hold *hold)
{
    pawl__timers_clear(&hold->client->leases.due, &hold->renew_timer);
    if (hold->renewing)
        hold->renewing->arg = NULL;
    hold->renewing = NULL;
    hold->verify = false;
}

void pawl__lease_renew_again(struct hold *hold)
{
    int64_t now = pawl__now(hold->client);

    hold->orphan = false;
    if (renewable(hold, now) || hold->claim)
        renew_at(hold, now);
}

void pawl__lease_end(struct hold *hold)
{
    pawl__timers_clear(&hold->client->timers, &hold->lost_timer);
    pawl__lease_stop_renewing(hold);
}

void pawl__lease_move(struct hold *from, struct hold *to)
{
    int64_t due = from->renew_timer.armed ? from->renew_timer.due : from->lease_from;
    pawl_renewal *item = from->renewing;
    bool verify = from->verify;

    to->verify_why = from->verify_why;
    free(to->by);
    to->by = from->by;
    from->by = NULL;
    to->renewal_late = from->renewal_late;
    pawl__lease_end(from);
    to->lease_from = from->lease_from;
    to->lease_len = from->lease_len;
    to->deadline = from->deadline;
    to->claim = from->claim;
    to->lost_timer.fire = deadline_reached;
    to->lost_timer.arg = to;
    pawl__timers_set(&to->client->timers, &to->lost_timer, to->deadline);
    if (item) { /* the submitted renewal is for the same grant */
        to->renewing = item;
        to->verify = verify;
        item->arg = to;
    } else if (renewable(to, pawl__now(to->client))) {
        renew_at(to, due);
    }
}

/* ---- batches --------------------------------------------------------------------------------- */

static void renew_soon(struct hold *hold)
{
    int64_t pause = hold->lease_len / 30;

    if (pause > 1000LL * PAWL_NS_PER_MS)
        pause = 1000LL * PAWL_NS_PER_MS;
    renew_at(hold, pawl__now(hold->client) + pause);
}

static void renewed(struct hold *hold, const pawl_renewal *item, int code,
                    const struct request *r)
{
    int64_t sent = r->op.lease_from ? r->op.lease_from : r->first_sent;
    int64_t lease = item->lease_ms;
    bool again = hold->verify;
    uint8_t why = hold->verify_why;
    char *by = hold->by;

    if (hold->terms.lease_ms && (hold->ends - sent) / PAWL_NS_PER_MS < lease)
        lease = (hold->ends - sent) / PAWL_NS_PER_MS;
    hold->renewing = NULL;
    hold->verify = false;
    if (again)
        hold->by = NULL; /* kept for the renewal that follows */
    if (code == 0 && item->code == 0 && (hold->terms.lease_ms == 0 || hold->claim)) {
        hold->name_state->series->stats.renewed++;
        give(hold, sent, lease, r->op.granted_ms, 3);
    } else if (code == 0 && item->code == PAWL_ENOTHELD) {
        hold->by = by;
        pawl__hold_lost(hold, item->reason    ? item->reason
                              : hold->verify_why ? hold->verify_why
                                                 : PAWL_LOST_GONE);
        return;
    } else if (code != 0 || item->code != 0) {
        renew_soon(hold);
    }
    if (!again && code == 0 && item->code == 0) { /* of a fixed lease, too, which give() spares */
        hold->verify_why = 0;
        set_by(hold, NULL);
    } else if (again) {
        hold->verify_why = why;
        hold->by = by;
        renew_at(hold, 0);
    }
}

/* The engine reads an item's name until the answer. Hold and handle may be freed earlier, so the
 * item keeps a reference to the name state. */
static struct name_state *name_state_of(const pawl_renewal *item)
{
    return list_entry((uintptr_t)item->name, struct name_state, name);
}

/* After PAWL_ECONN and PAWL_EUNKNOWN no warning is needed: the engine has logged the cause. */
static void log_failure(const struct batch *batch, int code)
{
    bool known = code == PAWL_ECONN || code == PAWL_EUNKNOWN;

    pawl__log(batch->request.client, known ? PAWL_LOG_INFO : PAWL_LOG_WARNING,
              "%zu leases not renewed, will try again: %s", batch->n, pawl_strerror(code));
}

static void batch_finished(struct request *request, int code)
{
    struct batch *batch = (struct batch *)(void *)request;

    if (code)
        log_failure(batch, code);
    for (size_t i = 0; i < batch->n; i++) {
        if (batch->items[i].arg)
            renewed(batch->items[i].arg, &batch->items[i], code, request);
        pawl__name_put(request->client, name_state_of(&batch->items[i]));
    }
    free(batch);
}

/* The rest of a fixed lease, in ms; for a claim, the rest of the requested lease. */
static int64_t left_of_fixed(const struct hold *hold, int64_t now)
{
    if (hold->claim)
        return (hold->ends - now) / PAWL_NS_PER_MS;
    return (hold->lease_from + hold->lease_len - now) / PAWL_NS_PER_MS;
}

static void add_item(struct batch *batch, struct hold *hold, int64_t now)
{
    pawl_renewal *item = &batch->items[batch->n++];
    int64_t lease = pawl__lease_wanted(hold, now);

    if (hold->renew_timer.due && now - hold->renew_timer.due > hold->renewal_late)
        hold->renewal_late = now - hold->renew_timer.due;
    if (hold->renewing) /* pawl_lock_renew has set a later lease: ignore the older batch */
        hold->renewing->arg = NULL;
    hold->name_state->refs++;
    if (hold->terms.lease_ms) /* only to confirm a fixed lease, not to make the lease longer */
        lease = left_of_fixed(hold, now);
    *item = (pawl_renewal){.name = hold->name_state->name,
                           .owner = hold->owner,
                           .lease_ms = lease < 1 ? 1 : lease,
                           .permits = hold->permits,
                           .mode = hold->terms.mode,
                           .lock_kind = hold->terms.kind,
                           .arg = hold};
    hold->renewing = item;
}

/* Submit one batch with all renewals due by `until`. False: no renewal is due. */
static bool send_batch(pawl_client *client, int64_t now, int64_t until)
{
    struct batch *batch;
    pawl_timer *timer;

    if (pawl__timers_next(&client->leases.due) > until)
        return false;
    batch = malloc(sizeof *batch + BATCH_MAX * sizeof batch->items[0]);
    if (!batch)
        return false; /* renewal_due sets the timer again */
    pawl__request_init(&batch->request, client, batch_finished);
    batch->n = 0;
    while (batch->n < BATCH_MAX && (timer = pawl__timers_take(&client->leases.due, until)))
        add_item(batch, timer->arg, now);
    batch->request.op.kind = PAWL_OP_RENEW;
    batch->request.op.batch = batch->items;
    batch->request.op.batch_len = batch->n;
    batch->request.once = true;
    pawl__request_start(&batch->request, now + client->env.timeout_ms * PAWL_NS_PER_MS);
    return true;
}

static void renewal_due(pawl_timer *timer)
{
    pawl_client *client = timer->arg;
    int64_t now = pawl__now(client);
    int64_t slack = client->env.watchdog_ms * PAWL_NS_PER_MS / 10;

    while (send_batch(client, now, now + slack))
        ;
    if (pawl__timers_next(&client->leases.due) <= now + slack)
        pawl__timers_set(&client->timers, timer, now + slack);
    else
        plan(client);
}

void pawl__leases_init(pawl_client *client)
{
    client->leases.timer = (pawl_timer){.fire = renewal_due, .arg = client};
}

/* An event of the service (a reconnect, for example): confirm every lease now, also fixed leases. A
 * renewal that is already submitted may have been answered before the event, so another renewal
 * follows. */
void pawl__leases_verify(pawl_client *client, const pawl_op *event)
{
    for (struct list *l = client->holds.all.next; l != &client->holds.all; l = l->next) {
        struct hold *hold = list_entry(l, struct hold, in_client);

        if (hold->state != HOLD_HELD || hold->orphan)
            continue;
        if (event->reason)
            hold->verify_why = event->reason;
        if (event->by && (!event->by_seq || event->by_seq == hold->owner.seq))
            set_by(hold, event->by);
        if (hold->renewing)
            hold->verify = true;
        else
            renew_at(hold, 0);
    }
}
