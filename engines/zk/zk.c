/* SPDX-License-Identifier: Apache-2.0
 *
 * zk.c - the functions of the engine.
 */
#include <stdlib.h>

#include "kit/ops.h"
#include "zk.h"

void zk_give_up(zk *z, pawl_op *op, bool sent)
{
    int code = sent ? PAWL_EUNKNOWN : PAWL_ECONN;

    if (z->link.state != LINK_READY && z->link.last_code) {
        code = sent ? PAWL_EUNKNOWN : z->link.last_code;
        pawl_error_set(op->err, code, "%s", z->link.words);
    } else {
        pawl_error_set(op->err, code, "%s: no answer in time",
                       z->settings.servers.list[z->link.server].where);
    }
    pawl_op_finish(op, code);
}

/* ---- the functions --------------------------------------------------------------------------- */

static void engine_flush(void *self)
{
    zk *z = self;

    if (kit_buf_length(&z->link.out) > 0)
        kit_wire_flush(&z->link.wire);
}

static void before_poll(uv_prepare_t *prepare)
{
    engine_flush(prepare->data);
}

static int engine_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    zk *z = self;
    int code;

    z->env = env;
    list_init(&z->tasks);
    list_init(&z->spare_calls);
    for (size_t i = 0; i < ZK_BUCKETS; i++) {
        list_init(&z->watches[i]);
        list_init(&z->waiters[i]);
    }
    if (!env->loop)
        return pawl_error_set(err, PAWL_ENOTSUP, "ZooKeeper needs a real event loop");
    code = zk_settings_read(&z->settings, env, url, err);
    if (!code && z->settings.tls)
        code = net_tls_context(&z->tls_context, env, &z->settings.tls_settings, err);
    if (code)
        return code;
    uv_prepare_init(env->loop, &z->prepare);
    z->prepare.data = z;
    z->prepared = true;
    uv_prepare_start(&z->prepare, before_poll);
    zk_session_open(z);
    zk_leftovers_open(z);
    zk_link_open(z);
    return 0;
}

static void engine_close(void *self)
{
    zk *z = self;
    struct list *l;

    if (!z->env)
        return;
    pawl_events_end(&z->events);
    zk_session_close(z);
    zk_link_close(z);
    zk_waiters_end(z);
    zk_leftovers_close(z);
    while ((l = list_take(&z->spare_calls)))
        free(list_entry(l, zk_call, link));
    if (z->prepared)
        uv_close((uv_handle_t *)&z->prepare, NULL);
    z->prepared = false;
    net_tls_context_free(z->tls_context);
    z->tls_context = NULL;
    explicit_bzero(z->session.password, sizeof z->session.password);
    zk_settings_free(&z->settings);
    z->env = NULL;
}

/* The functions that begin and cancel each op. */
KIT_OPS(zk,
        [PAWL_OP_ACQUIRE] = {zk_acquire, zk_acquire_cancel},
        [PAWL_OP_RELEASE] = {zk_release, zk_release_cancel},
        [PAWL_OP_RENEW] = {zk_renew, zk_renew_cancel},
        [PAWL_OP_BREAK] = {zk_inspect, zk_inspect_cancel},
        [PAWL_OP_INSPECT] = {zk_inspect, zk_inspect_cancel},
        [PAWL_OP_LIST] = {zk_inspect, zk_inspect_cancel},
        [PAWL_OP_COUNT] = {zk_inspect, zk_inspect_cancel},
        [PAWL_OP_LATCH_SET] = {zk_latch, zk_latch_cancel},
        [PAWL_OP_LATCH_DOWN] = {zk_latch, zk_latch_cancel},
        [PAWL_OP_EXAMINE] = {zk_examine, zk_examine_cancel});

static int engine_identity(void *self, char *ret, size_t size)
{
    const zk_settings *s = &((const zk *)self)->settings;

    return net_identity(ret, size, "zk", &s->servers, s->base);
}

const pawl_engine pawl_engine_zk = {
    .abi = PAWL_ENGINE_ABI,
    .caps = PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_SHARED | PAWL_CAP_PERMITS | PAWL_CAP_LATCH |
            PAWL_CAP_SESSION_LEASE | PAWL_CAP_LIST | PAWL_CAP_EXAMINE | PAWL_CAP_BREAKER_UNNAMED,
    .scheme = "zk",
    .state_size = sizeof(zk),
    .open = engine_open,
    .close = engine_close,
    .submit = engine_submit,
    .cancel = engine_cancel,
    .flush = engine_flush,
    .identity = engine_identity,
};
