/* SPDX-License-Identifier: Apache-2.0
 *
 * leases.c - leases: granted, kept alive, fenced, revoked.
 *
 *     WANTED --> GRANTING --> READY --connection lost--> STALE --> CHECKING --> FENCING --> READY
 *
 * A client has one lease for each length that its locks ask for (or one lease of the length given
 * in the URL), in whole seconds, because etcd counts in seconds. All leases are kept alive on one
 * stream, each after a third of its time; a lease that no lock has used for a minute is revoked. A
 * lease is valid until `from` + `ttl`, where `from` is an instant before the last confirmed renewal
 * was sent. An answer with a time of 0 means that the lease is gone, with all its keys.
 *
 * The fence is written by FENCING alone, and only one such write is out at a time: a second write
 * would fail every request that names the first one's revision, each of which would then write the
 * fence again, without end. A request whose condition failed names the revision it was sent with
 * (etcd_lease_unfenced). If the lease has another fence by now, or is writing one, the request only
 * has to be sent again.
 *
 * A STORE THAT WENT BACK (a restored backup, a disk that lost its last writes) may know our leases
 * but not our keys, or may know keys that we have long deleted. The fence detects such a store: a
 * write normally has a larger revision than every answer that came before the write was sent. If
 * not, all leases are given up: holders are told, waiters queue again under a new lease, and the
 * store's keys under the old leases end with the leases. A store that has passed the last revision
 * that we saw, by the time we reconnect, can't be distinguished from one that never went back.
 */
#include <stdlib.h>

#include "etcd.h"

#define IDLE_NS (INT64_C(60000) * PAWL_NS_PER_MS)
#define RETRY_NS (INT64_C(500) * PAWL_NS_PER_MS)
#define NS_PER_S INT64_C(1000000000)
#define TTL_MAX (INT64_C(10) * 366 * 24 * 3600)

static void timer_fired(pawl_timer *timer);
static void keep_alive(etcd_lease *lease);
static void write_fence(etcd_lease *lease);

static int64_t now_of(const etcd_lease *lease)
{
    return lease->e->env->now(lease->e->env);
}

static void set_timer(etcd_lease *lease, int64_t due)
{
    lease->e->env->timer_set(lease->e->env, &lease->timer, due);
}

/* A call about the lease may be outstanding; ignore the answer. */
static void forget_calls(etcd_lease *lease)
{
    struct list *calls = &lease->e->link.calls;

    list_each(etcd_call, l, calls, link)
        if (l->about == lease)
            l->about = NULL;
}

/* For waiters that were to move to the lease, or may have moved: a rewrite shows where the key
 * is. */
static void forget_moves(const etcd_lease *lease)
{
    struct list *waiters = &lease->e->waiters;

    list_each(etcd_waiter, w, waiters, link) {
        if (w->moving == lease && w->state != WAITER_LEAVES) {
            w->rewrite = true;
            w->key_is = KEY_MOVED;
        }
        w->moving = w->moving == lease ? NULL : w->moving;
        w->target = w->target == lease ? NULL : w->target;
    }
}

void etcd_lease_free(etcd_lease *lease)
{
    forget_calls(lease);
    forget_moves(lease);
    list_remove(&lease->link);
    lease->e->env->timer_clear(lease->e->env, &lease->timer);
    free(lease);
}

/* Wake the waiters and jobs that waited for the lease. */
static void became_ready(etcd_lease *lease)
{
    etcd *e = lease->e;

    lease->state = LEASE_READY;
    etcd_renewals_check(e);
    etcd_waiters_step(e);
    etcd_jobs_start(e);
}

/* The lease can't be granted or fenced now: acquires that were not sent yet fail, the others
 * wait. */
static void refused(etcd_lease *lease, enum etcd_lease_state state, int code, const char *words)
{
    lease->state = state;
    set_timer(lease, now_of(lease) + RETRY_NS);
    if (code == PAWL_ECANCELED || code == PAWL_EUNKNOWN || code == PAWL_ECONN)
        return;
    etcd_waiters_refuse(lease->e, code, words);
    etcd_jobs_refuse(lease->e, code, words);
}

/* ---- granting -------------------------------------------------------------------------------- */

static bool answer_grant(etcd_call *call, pb_span message)
{
    etcd_lease *lease = call->about;
    etcd_lease_answer answer;

    if (!etcd_read_lease(message, &answer) || answer.id <= 0 || answer.ttl <= 0 ||
        answer.ttl > TTL_MAX)
        return false;
    lease->id = answer.id;
    lease->ttl = answer.ttl * NS_PER_S;
    lease->from = call->sent;
    lease->fence = 0; /* no earlier connection knew the lease */
    if (!lease->ends)
        set_timer(lease, lease->from + lease->ttl / 3);
    became_ready(lease);
    return true;
}

static void grant_failed(etcd_call *call, int code, const char *words)
{
    etcd_lease *lease = call->about;

    if (lease->ends && code != PAWL_ECANCELED && code != PAWL_EUNKNOWN && code != PAWL_ECONN)
        etcd_linger_refused(lease);
    else
        refused(call->about, LEASE_WANTED, code == ETCD_NO_LEASE ? PAWL_EBACKEND : code, words);
}

static void grant(etcd_lease *lease)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.Lease/LeaseGrant",
        .answer = answer_grant, .failed = grant_failed};
    etcd_call *call = etcd_call_new(lease->e, &type, lease);

    if (call)
        etcd_pb_uint(&call->body, 1, (uint64_t)lease->asked);
    if (call && etcd_call_send(call))
        lease->state = LEASE_GRANTING;
    else
        set_timer(lease, now_of(lease) + RETRY_NS);
}

/* Whole seconds. Long times are rounded up in steps of at most an eighth, to limit the number of
 * leases. */
static int64_t seconds(const etcd *e, int64_t lease_ms)
{
    int64_t ms = e->settings.session_ms ? e->settings.session_ms : lease_ms;
    int64_t s = ms / 1000 + (ms % 1000 > 0), step = 1;

    while (s / step >= 120)
        step *= 2;
    s = (s + step - 1) / step * step;
    return s < 1 ? 1 : s > TTL_MAX ? TTL_MAX : s;
}

static etcd_lease *lease_new(etcd *e, int64_t asked, bool ends)
{
    etcd_lease *lease = calloc(1, sizeof *lease);

    if (!lease)
        return NULL;
    lease->e = e;
    lease->asked = asked;
    lease->ends = ends;
    lease->timer = (pawl_timer){.fire = timer_fired, .arg = lease};
    lease->used = now_of(lease);
    list_init(&lease->waiters);
    list_append(&e->leases, &lease->link);
    if (etcd_link_ready(&e->link))
        grant(lease);
    return lease;
}

etcd_lease *etcd_lease_for(etcd *e, int64_t lease_ms)
{
    int64_t asked = seconds(e, lease_ms);

    list_each(etcd_lease, lease, &e->leases, link) {
        if (lease->asked == asked && !lease->ends) {
            lease->used = now_of(lease);
            return lease;
        }
    }
    return lease_new(e, asked, false);
}

etcd_lease *etcd_lease_that_ends(etcd *e, int64_t ms)
{
    int64_t s = ms / 1000 + (ms % 1000 > 0);

    return lease_new(e, s < TTL_MAX ? s : TTL_MAX, true);
}

bool etcd_lease_is_shorter(const etcd_lease *lease, int64_t lease_ms)
{
    return lease->asked < seconds(lease->e, lease_ms);
}

/* ---- keeping alive --------------------------------------------------------------------------- */

int64_t etcd_lease_left(const etcd_lease *lease, int64_t from)
{
    int64_t left = (lease->from + lease->ttl - from) / PAWL_NS_PER_MS;

    return left < 1 ? 1 : left;
}

bool etcd_lease_fresh(const etcd_lease *lease)
{
    return lease->state == LEASE_READY && now_of(lease) - lease->from < lease->ttl / 5 * 2;
}

void etcd_lease_poke(etcd_lease *lease)
{
    if (lease->id && !lease->ends && !lease->sent && etcd_link_ready(&lease->e->link))
        keep_alive(lease);
}

/* Let each waiter check whether the key ahead still exists, in case an event was lost. */
static void check_waiters(etcd_lease *lease)
{
    list_each_safe(etcd_waiter, w, &lease->waiters, in_lease) {
        if (w->state != WAITER_QUEUED || w->call || w->recheck)
            continue;
        w->recheck = w->ahead_is ? RECHECK_AHEAD : RECHECK_QUEUE;
        etcd_waiter_step(w);
    }
}

static void confirmed(etcd_lease *lease, int64_t ttl)
{
    lease->from = lease->sent;
    lease->sent = 0;
    lease->ttl = ttl * NS_PER_S;
    set_timer(lease, lease->from + lease->ttl / 3);
    if (lease->state == LEASE_CHECKING)
        write_fence(lease);
    else
        etcd_renewals_check(lease->e);
    if (lease->state == LEASE_READY && ++lease->confirmed % 3 == 0) /* once per lease length */
        check_waiters(lease);
}

static bool answer_keepalive(etcd_call *call, pb_span message)
{
    etcd *e = call->about;
    etcd_lease_answer answer;

    if (!etcd_read_lease(message, &answer) || answer.ttl > TTL_MAX)
        return false;
    list_each(etcd_lease, lease, &e->leases, link) {
        if (lease->id != answer.id || !lease->sent)
            continue;
        if (answer.ttl > 0)
            confirmed(lease, answer.ttl);
        else
            etcd_lease_gone(lease);
        break;
    }
    return true;
}

static void keepalive_failed(etcd_call *call, int code, const char *words)
{
    etcd *e = call->about;

    (void)code;
    (void)words;
    e->keepalive = NULL;
}

static void keep_alive(etcd_lease *lease)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.Lease/LeaseKeepAlive",
        .streams = true, .answer = answer_keepalive, .failed = keepalive_failed};
    etcd *e = lease->e;
    int64_t now = now_of(lease);
    bool sent;

    if (e->keepalive) {
        etcd_pb_uint(etcd_call_begin(e->keepalive), 1, (uint64_t)lease->id);
        sent = etcd_call_more(e->keepalive);
    } else {
        e->keepalive = etcd_call_new(e, &type, e);
        if (e->keepalive)
            etcd_pb_uint(&e->keepalive->body, 1, (uint64_t)lease->id);
        sent = e->keepalive && etcd_call_send(e->keepalive);
        if (!sent)
            e->keepalive = NULL;
    }
    lease->sent = sent ? now : 0;
    if (sent && lease->state == LEASE_STALE)
        lease->state = LEASE_CHECKING;
    set_timer(lease, now + (sent ? e->env->timeout_ms * PAWL_NS_PER_MS : RETRY_NS));
}

/* ---- the fence ------------------------------------------------------------------------------- */

static bool is_fenced(const etcd_lease *lease)
{
    return lease->id && !lease->ends;
}

static etcd_lease *first_fenced(etcd *e)
{
    list_each(etcd_lease, l, &e->leases, link)
        if (is_fenced(l))
            return l;
    return NULL;
}

/* Give up all leases. The leases that replace them have no id yet. */
static void went_back(etcd *e, int64_t from, int64_t to)
{
    etcd_lease *lease;

    e->env->log(e->env, PAWL_LOG_ERROR, "etcd went back from revision %lld to %lld: a backup was "
                "restored, or data was lost", (long long)from, (long long)to);
    e->revision = to;
    while ((lease = first_fenced(e)))
        etcd_lease_gone(lease);
}

/* The tag is the largest revision that was known when the write was sent. */
static bool answer_fence(etcd_call *call, pb_span message)
{
    etcd_lease *lease = call->about;
    etcd_kvs answer;

    if (!etcd_read_range(message, &answer) || answer.revision <= 0)
        return false;
    if (answer.revision <= call->tag) {
        went_back(call->e, call->tag, answer.revision);
        return true;
    }
    lease->fence = answer.revision;
    became_ready(lease);
    return true;
}

static void fence_failed(etcd_call *call, int code, const char *words)
{
    etcd_lease *lease = call->about;

    if (code == ETCD_NO_LEASE)
        etcd_lease_gone(lease);
    else
        refused(lease, LEASE_STALE, code, words);
}

static void write_fence(etcd_lease *lease)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.KV/Put", .answer = answer_fence,
        .failed = fence_failed};
    etcd_call *call = etcd_call_new(lease->e, &type, lease);
    char key[ETCD_KEY_MAX];

    etcd_helper(key, lease->e, "fence", lease->id, 0);
    if (call) {
        call->tag = lease->e->revision;
        etcd_pb_bytes(&call->body, 1, key, strlen(key));
        etcd_pb_uint(&call->body, 3, (uint64_t)lease->id);
    }
    if (call && etcd_call_send(call))
        lease->state = LEASE_FENCING;
    else
        refused(lease, LEASE_STALE, PAWL_ECONN, "");
}

void etcd_lease_unfenced(etcd_lease *lease, int64_t fence)
{
    if (lease->state == LEASE_READY && lease->fence == fence)
        write_fence(lease);
}

void etcd_if_fenced(etcd_call *call, const etcd_lease *lease)
{
    char key[ETCD_KEY_MAX];
    etcd_range range = {0};

    etcd_helper(key, lease->e, "fence", lease->id, 0);
    range.key = etcd_span(key);
    call->fence = lease->fence;
    etcd_if_modified(&call->body, &range, lease->fence);
}

/* ---- losing and revoking leases -------------------------------------------------------------- */

void etcd_lease_gone(etcd_lease *lease)
{
    etcd *e = lease->e;
    struct list *l;
    bool had = !list_empty(&lease->waiters);

    e->env->log(e->env, PAWL_LOG_WARNING, "etcd has ended a lease of %lld s, with its locks",
                (long long)(lease->ttl / NS_PER_S));
    forget_calls(lease);
    list_remove(&lease->link); /* no waiter takes this lease any more */
    while ((l = list_take(&lease->waiters))) {
        etcd_waiter *w = list_entry(l, etcd_waiter, in_lease);

        w->lease = NULL;
        if (etcd_waiter_ended_with(w, lease))
            etcd_waiter_lost(w);
    }
    etcd_lease_free(lease);
    if (had)
        pawl_events_report(&e->events, PAWL_EVENT_VERIFY, 0);
    etcd_renewals_check(e);
    etcd_waiters_step(e);
    etcd_jobs_start(e);
}

static bool answer_revoke(etcd_call *call, pb_span message)
{
    etcd *e = call->about;

    (void)message;
    if (e->closing && e->revokes_out)
        e->revokes_out--;
    return true;
}

static void revoke_failed(etcd_call *call, int code, const char *words)
{
    (void)code;
    (void)words;
    answer_revoke(call, (pb_span){0});
}

static bool give_back(etcd_lease *lease)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.Lease/LeaseRevoke",
        .answer = answer_revoke, .failed = revoke_failed};
    etcd_call *call = etcd_call_new(lease->e, &type, lease->e);

    if (call)
        etcd_pb_uint(&call->body, 1, (uint64_t)lease->id);
    return call && etcd_call_send(call);
}

/* Leases of lingering locks must not be revoked. */
static bool in_use(const etcd_lease *lease)
{
    bool lingers = lease->ends;

    list_each(etcd_waiter, l, &lease->waiters, in_lease)
        lingers |= l->state == WAITER_LINGERS;
    return lingers;
}

size_t etcd_leases_revoke(etcd *e)
{
    size_t n = 0;

    list_each(etcd_lease, lease, &e->leases, link) {
        if (lease->id && !in_use(lease))
            n += give_back(lease);
    }
    return n;
}

static void timer_fired(pawl_timer *timer)
{
    etcd_lease *lease = timer->arg;
    int64_t now = now_of(lease);

    if (!etcd_link_ready(&lease->e->link))
        return; /* continues on the next connection */
    if (lease->sent) {
        if (now >= lease->sent + lease->e->env->timeout_ms * PAWL_NS_PER_MS)
            etcd_link_drop(&lease->e->link, PAWL_ECONN, "a lease was not confirmed within %lld ms",
                           (long long)lease->e->env->timeout_ms);
        return;
    }
    if (lease->state == LEASE_WANTED)
        grant(lease);
    else if (lease->ends)
        return;
    else if (list_empty(&lease->waiters) && lease->state == LEASE_READY &&
             now - lease->used > IDLE_NS) {
        give_back(lease);
        etcd_lease_free(lease);
    } else if (lease->id)
        keep_alive(lease);
}

/* ---- connections ----------------------------------------------------------------------------- */

void etcd_leases_connected(etcd *e)
{
    list_each_safe(etcd_lease, lease, &e->leases, link) {
        if (list_empty(&lease->waiters) && lease->id && !lease->ends &&
            now_of(lease) >= lease->from + lease->ttl)
            etcd_lease_free(lease); /* expired */
        else if (lease->state == LEASE_WANTED)
            grant(lease);
        else if (lease->ends)
            lease->state = LEASE_READY; /* earlier requests create nothing here */
        else
            keep_alive(lease);
    }
    if (!first_fenced(e))
        e->revision = 0; /* earlier revisions no longer matter */
}

void etcd_leases_dropped(etcd *e)
{
    list_each(etcd_lease, lease, &e->leases, link) {
        lease->sent = 0;
        lease->state = lease->id ? LEASE_STALE : LEASE_WANTED;
    }
}

void etcd_leases_free(etcd *e)
{
    while (!list_empty(&e->leases))
        etcd_lease_free(list_entry(e->leases.next, etcd_lease, link));
}
