/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd.c - the functions of the engine, and closing.
 *
 * A client that closes has released all locks, but the server still knows the client's leases. The
 * client revokes these leases, except leases on which released locks linger (move.c). The answers
 * are awaited in the loop that the core runs until everything is closed, but no longer than the
 * timeout: a lease also ends by itself.
 */
#include <stdlib.h>

#include "etcd.h"
#include "kit/ops.h"

#define HOLDERS_MS 50   /* a holder's key is watched after this time, */
#define WAITERS_MS 1000 /* and a waiter's key after this time */

/* ---- events of the link ---------------------------------------------------------------------- */

void etcd_connected(etcd *e)
{
    if (e->link.epochs > 1)
        pawl_events_report(&e->events, PAWL_EVENT_RECONNECT, 0);
    etcd_leases_connected(e);
    etcd_watches_connected(e);
    etcd_waiters_step(e);
    etcd_jobs_start(e);
}

void etcd_dropped(etcd *e, int code, const char *words, bool refused)
{
    etcd_leases_dropped(e);
    etcd_watches_dropped(e);
    if (!refused)
        return;
    etcd_waiters_refuse(e, code, words);
    etcd_jobs_refuse(e, code, words);
}

int etcd_no_answer(const etcd *e, pawl_error *err, int code)
{
    const etcd_link *link = &e->link;

    if (!etcd_link_ready(link) && link->last_code)
        return pawl_error_set(err, code, "%s", link->words);
    return pawl_error_set(err, code, "%s: no answer in time",
                          e->settings.endpoints.list[link->endpoint].where);
}

/* ---- closing --------------------------------------------------------------------------------- */

/* Accepts the state after a failed open. */
static void take_down(etcd *e)
{
    etcd_link_close(&e->link);
    if (e->prepared && !uv_is_closing((uv_handle_t *)&e->prepare))
        uv_close((uv_handle_t *)&e->prepare, NULL);
    e->prepared = false;
    if (e->closing && !uv_is_closing((uv_handle_t *)&e->close_timer))
        uv_close((uv_handle_t *)&e->close_timer, NULL);
    etcd_jobs_free(e);
    etcd_waiters_free(e);
    etcd_leases_free(e);
    e->env->timer_clear(e->env, &e->unwatched_holders.timer);
    e->env->timer_clear(e->env, &e->unwatched_waiters.timer);
    etcd_settings_free(&e->settings);
    e->env = NULL;
}

static void end_of_patience(uv_timer_t *timer)
{
    take_down(timer->data);
}

static void engine_close(void *self)
{
    etcd *e = self;

    if (!e->env)
        return;
    pawl_events_end(&e->events);
    if (etcd_link_ready(&e->link) && e->prepared)
        e->revokes_out = etcd_leases_revoke(e);
    if (!e->revokes_out || uv_timer_init(e->env->loop, &e->close_timer)) {
        take_down(e);
        return;
    }
    e->closing = true;
    e->close_timer.data = e;
    uv_update_time(e->env->loop); /* the clock of an idle loop stands still */
    uv_timer_start(&e->close_timer, end_of_patience, (uint64_t)e->env->timeout_ms, 0);
    etcd_link_flush(&e->link);
}

/* ---- the functions --------------------------------------------------------------------------- */

static void engine_flush(void *self)
{
    etcd *e = self;

    etcd_link_flush(&e->link);
}

static void before_poll(uv_prepare_t *prepare)
{
    etcd *e = prepare->data;

    etcd_link_flush(&e->link);
    if (e->closing && (!e->revokes_out || e->link.state != LINK_READY))
        take_down(e);
}

static int engine_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    etcd *e = self;
    int code;

    e->env = env;
    list_init(&e->leases);
    list_init(&e->waiters);
    list_init(&e->jobs);
    for (size_t i = 0; i < ETCD_WATCH_BUCKETS; i++)
        list_init(&e->watches[i]);
    for (size_t i = 0; i < ETCD_ASKING_BUCKETS; i++)
        list_init(&e->asking[i]);
    etcd_soon_init(&e->unwatched_holders, HOLDERS_MS);
    etcd_soon_init(&e->unwatched_waiters, WAITERS_MS);
    if (!env->loop)
        return pawl_error_set(err, PAWL_ENOTSUP, "etcd needs a real event loop");
    code = etcd_settings_read(&e->settings, env, url, err);
    if (code)
        return code;
    uv_prepare_init(env->loop, &e->prepare);
    e->prepare.data = e;
    e->prepared = true;
    uv_prepare_start(&e->prepare, before_poll);
    return etcd_link_open(&e->link, e, err);
}

/* The functions that begin and cancel each op. */
KIT_OPS(etcd,
        [PAWL_OP_ACQUIRE] = {etcd_acquire, etcd_acquire_cancel},
        [PAWL_OP_RELEASE] = {etcd_release, etcd_release_cancel},
        [PAWL_OP_RENEW] = {etcd_renew, etcd_renew_cancel},
        [PAWL_OP_BREAK] = {etcd_inspect, etcd_job_cancel},
        [PAWL_OP_INSPECT] = {etcd_inspect, etcd_job_cancel},
        [PAWL_OP_LIST] = {etcd_inspect, etcd_job_cancel},
        [PAWL_OP_COUNT] = {etcd_inspect, etcd_job_cancel},
        [PAWL_OP_LATCH_SET] = {etcd_latch, etcd_job_cancel},
        [PAWL_OP_LATCH_DOWN] = {etcd_latch, etcd_job_cancel},
        [PAWL_OP_EXAMINE] = {etcd_examine, etcd_job_cancel});

static int engine_identity(void *self, char *ret, size_t size)
{
    const etcd_settings *s = &((const etcd *)self)->settings;

    return net_identity(ret, size, "etcd", &s->endpoints, s->prefix);
}

static const char *engine_libraries(void)
{
    static char text[32]; /* protected by the loader's mutex */

    snprintf(text, sizeof text, "nghttp2 %.20s", nghttp2_version(0)->version_str);
    return text;
}

const pawl_engine pawl_engine_etcd = {
    .abi = PAWL_ENGINE_ABI,
    .caps = PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_SHARED | PAWL_CAP_PERMITS | PAWL_CAP_LATCH |
            PAWL_CAP_SESSION_LEASE | PAWL_CAP_LINGER | PAWL_CAP_LIST | PAWL_CAP_EXAMINE |
            PAWL_CAP_BREAKER_UNNAMED,
    .scheme = "etcd",
    .state_size = sizeof(etcd),
    .open = engine_open,
    .close = engine_close,
    .submit = engine_submit,
    .cancel = engine_cancel,
    .flush = engine_flush,
    .identity = engine_identity,
    .libraries = engine_libraries,
};
