/* SPDX-License-Identifier: Apache-2.0
 *
 * redis.c - the functions of the engine, and the client information.
 *
 * The client information is a hash that describes a client (host, pid, program, label, start time),
 * for programs that inspect locks. The hash is kept for 90 s and written again every 22 to 30 s,
 * which also shows whether an idle connection still works; the hash is deleted when the client
 * closes. A script writes the hash, so that no hash is ever left without a time to live. An
 * inspection should always find the client information of a holder: on one server the hash is
 * written before anything else; in a cluster, where another node may store the hash, the first
 * acquires wait until it is written.
 */
#include <stdlib.h>
#include <unistd.h>

#include "kit/ops.h"
#include "redis.h"

#define CLIENT_INFO_KEPT_MS 90000
#define CLIENT_INFO_WRITE_MS 30000

/* ---- the client information ------------------------------------------------------------------ */

#define CLIENT_INFO_KEY_MAX (REDIS_PREFIX_MAX + 40)

static size_t client_info_key(char key[CLIENT_INFO_KEY_MAX], const redis *r, uint64_t client)
{
    if (r->settings.redisson) /* an owner's name has only 60 bits of the client id */
        return (size_t)snprintf(key, CLIENT_INFO_KEY_MAX, "{pawl@%015llx}:client",
                                (unsigned long long)client >> 4);
    return (size_t)snprintf(key, CLIENT_INFO_KEY_MAX, "{%s@%016llx}:client", r->settings.prefix,
                            (unsigned long long)client);
}

void redis_add_client_info_key(resp_command *c, const redis *r, uint64_t client)
{
    char key[CLIENT_INFO_KEY_MAX];
    size_t length = client_info_key(key, r, client);

    resp_add(c, key, length);
}

uint16_t redis_client_info_slot(const redis *r, uint64_t client)
{
    char key[CLIENT_INFO_KEY_MAX];
    size_t length;

    if (r->settings.service != REDIS_CLUSTER)
        return 0;
    length = client_info_key(key, r, client);
    return redis_slot(key, length);
}

static int write_client_info(redis_call *call, resp_buf *out)
{
    const redis *r = call->about;
    const pawl_env *env = r->env;
    resp_command c = redis_begin(call, &redis_script_entry, out, 1, 11);

    redis_add_client_info_key(&c, r, env->client_id);
    resp_add_int(&c, CLIENT_INFO_KEPT_MS);
    resp_add_text(&c, "host");
    resp_add_text(&c, env->host);
    resp_add_text(&c, "pid");
    resp_add_int(&c, getpid());
    resp_add_text(&c, "program");
    resp_add_text(&c, env->program);
    resp_add_text(&c, "started");
    resp_add_int(&c, r->started);
    resp_add_text(&c, "label");
    resp_add_text(&c, env->label);
    return resp_end(&c);
}

void redis_client_info_over(redis *r)
{
    if (r->client_info_over)
        return;
    r->client_info_over = true;
    redis_waiters_resend(r, NULL);
}

static bool client_info_written(redis_call *call, const resp_node *reply)
{
    (void)reply;
    redis_client_info_over(call->about);
    return true;
}

static void client_info_failed(redis_call *call, int code, const char *words)
{
    redis *r = call->about;

    redis_client_info_over(r);
    if (code != PAWL_ECANCELED && code != PAWL_EUNKNOWN)
        r->env->log(r->env, PAWL_LOG_INFO, "others can't be shown who this client is: %s", words);
}

void redis_client_info_keep(redis *r)
{
    static const redis_call_type type = {.write = write_client_info, .answer = client_info_written,
        .failed = client_info_failed};
    int64_t spread = (int64_t)(r->env->random(r->env) % (CLIENT_INFO_WRITE_MS / 4));
    bool ready = redis_link_at(r, r->client_info_slot)->state == LINK_READY;
    redis_call *call = ready ? redis_call_about(r, r->client_info_slot, &type, r, 0) : NULL;

    if (call)
        redis_call_send(call);
    kit_timer_ms(r->env, &r->client_info_timer, CLIENT_INFO_WRITE_MS - spread);
}

static void client_info_due(pawl_timer *timer)
{
    redis *r = timer->arg;

    redis_client_info_keep(r);
    if (r->settings.service == REDIS_SENTINEL)
        redis_sentinel_ask(r); /* is the master still the same? */
}

static void remove_client_info(redis *r)
{
    redis_link *link = redis_link_at(r, r->client_info_slot);
    resp_command c;

    if (link->state != LINK_READY)
        return;
    c = resp_begin(&link->out, 2);
    resp_add_text(&c, "DEL");
    redis_add_client_info_key(&c, r, r->env->client_id);
    resp_end(&c);
}

/* ---- events of the link ---------------------------------------------------------------------- */

static void server_ready(redis_link *link)
{
    redis *r = link->redis;

    if (link->epochs > 1)
        pawl_events_report(&r->events,
                           r->moved ? PAWL_EVENT_FAILOVER : PAWL_EVENT_RECONNECT, 0);
    r->moved = false;
    redis_age_ready(r, link);
    redis_waiters_resend(r, link);
    redis_client_info_keep(r);
}

void redis_refused(redis_link *link, int code, const char *words)
{
    kit_link_fail(&link->kit, &link->backlog, code, words);
    redis_waiters_refuse(link->redis, link, code, words);
}

/* A push is a message or the end of a sharded channel. Other pushes (confirmations) are ignored. */
void redis_server_push(redis_link *link, const resp_node *push)
{
    redis *r = link->redis;
    const resp_node *channel = resp_child(push, 1), *text = resp_child(push, 2);

    if (push->count == 3 && resp_is_text(channel) && resp_equal(push + 1, "sunsubscribe", 12))
        redis_shard_ended(link, channel);
    else if (push->count == 3 && resp_is_text(channel) && resp_is_text(text) &&
        (resp_equal(push + 1, "message", 7) || resp_equal(push + 1, "smessage", 8)))
        r->layout->message(r, link, channel, text);
}

/* The sentinels are asked before each attempt: the master may have changed. */
static bool locate_master(redis_link *link)
{
    redis_sentinel_ask(link->redis);
    return false;
}

static bool master_lost(const redis_link *link, char words[REDIS_WORDS])
{
    const char *last = link->redis->sentinel.link.words;

    snprintf(words, REDIS_WORDS, "no sentinel says where it is; the last: %.180s", last);
    return last[0];
}

static const redis_role role_server = {.ready = server_ready, .refused = redis_refused,
    .push = redis_server_push};
static const redis_role role_master = {.locate = locate_master, .ready = server_ready,
    .refused = redis_refused, .push = redis_server_push, .lost = master_lost};

void redis_master_found(redis *r, const char *host, uint16_t port)
{
    redis_link *link = &r->link;
    bool same = !strcmp(link->host, host) && link->port == port;

    if (!same && link->state > LINK_LOCATING)
        redis_link_drop(link, PAWL_ECONN, "the master is %.100s:%u now", host, port);
    if (!same)
        r->moved = link->epochs > 0;
    redis_link_address(link, host, port);
    if (!same)
        kit_link_hurry(&link->kit);
    redis_link_located(link);
}

void redis_link_for_locks(redis_link *link, redis *r)
{
    link->user = r->settings.login.user;
    link->password = r->settings.login.password;
    link->db = r->settings.db;
    link->channel = r->layout->own_channel ? r->channel + 1 : NULL;
    link->channel2 = r->layout->own_channel ? NULL : r->channel + 1;
    link->tells = r->channel + 1;
}

static int open_link(redis *r, pawl_error *err)
{
    const redis_settings *s = &r->settings;
    redis_link *link = &r->link;

    redis_link_for_locks(link, r);
    if (s->service == REDIS_CLUSTER)
        return redis_cluster_open(r, err);
    if (s->path)
        snprintf(link->where, sizeof link->where, "%.107s", s->path);
    else if (s->service == REDIS_ONE)
        redis_link_address(link, s->at.list[0].host, s->at.list[0].port);
    else
        snprintf(link->where, sizeof link->where, "master '%.200s'", s->master);
    link->must_be_master = s->service == REDIS_SENTINEL;
    redis_link_open(link, r, s->service == REDIS_SENTINEL ? &role_master : &role_server);
    if (s->service == REDIS_SENTINEL)
        redis_sentinel_open(r);
    return 0;
}

/* ---- the functions of the engine ------------------------------------------------------------- */

static void flush_link(redis_link *link)
{
    if (link->proof_wanted)
        redis_proof_ask(link);
    if (kit_buf_length(&link->out) > 0)
        kit_wire_flush(&link->wire);
}

static void engine_flush(void *self)
{
    redis *r = self;

    flush_link(&r->link);
    if (r->settings.service == REDIS_SENTINEL)
        flush_link(&r->sentinel.link);
    for (size_t i = 0; i < r->cluster.nnodes; i++)
        flush_link(r->cluster.nodes[i]);
}

static void before_poll(uv_prepare_t *prepare)
{
    engine_flush(prepare->data);
}

/* All databases of a server share the channels, but two nodes of a quorum may be two databases of
 * one server: the channel's name includes the database. */
static void name_channel(redis *r)
{
    char db[24] = "";

    if (!r->layout->own_channel) { /* only for break (redisson.c): 60 bits of the id are enough */
        snprintf(r->channel, sizeof r->channel, "predisson_pawl:%015llx",
                 (unsigned long long)(r->env->client_id >> 4));
        return;
    }
    if (r->settings.db)
        snprintf(db, sizeof db, "/%lld", (long long)r->settings.db);
    snprintf(r->channel, sizeof r->channel, "%c%s@%016llx%s",
             r->settings.service == REDIS_CLUSTER ? 'c' : 'p', r->settings.prefix,
             (unsigned long long)r->env->client_id, db);
}

static int engine_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    redis *r = self;
    int code;

    r->env = env;
    list_init(&r->calls);
    list_init(&r->waiters);
    list_init(&r->spare_waiters);
    for (size_t i = 0; i < REDIS_CHANNEL_BUCKETS; i++)
        list_init(&r->channels[i]);
    if (!env->loop)
        return pawl_error_set(err, PAWL_ENOTSUP, "Redis needs a real event loop");
    code = redis_settings_read(&r->settings, env, url, err);
    if (!code && r->settings.tls)
        code = net_tls_context(&r->tls_context, env, &r->settings.tls_settings, err);
    if (code)
        return code;
    r->started = env->wall_ms(env);
    r->layout = r->settings.redisson ? &redis_layout_redisson : &redis_layout_pawl;
    name_channel(r);
    uv_prepare_init(env->loop, &r->prepare);
    r->prepare.data = r;
    r->prepared = true;
    uv_prepare_start(&r->prepare, before_poll);
    r->client_info_timer = (pawl_timer){.fire = client_info_due, .arg = r};
    r->client_info_slot = redis_client_info_slot(r, env->client_id);
    r->client_info_over = r->settings.service != REDIS_CLUSTER;
    return open_link(r, err);
}

static void engine_close(void *self)
{
    redis *r = self;
    struct list *l;

    if (!r->env)
        return;
    pawl_events_end(&r->events);
    if (r->client_info_timer.fire)
        r->env->timer_clear(r->env, &r->client_info_timer);
    if (r->settings.service != REDIS_CLUSTER || r->cluster.slots)
        remove_client_info(r);
    redis_sentinel_close(r);
    redis_link_close(&r->link);
    redis_cluster_close(r);
    redis_waiters_end(r);
    redis_cluster_free(r);
    while ((l = list_take(&r->calls)))
        free(list_entry(l, redis_call, link));
    if (r->prepared)
        uv_close((uv_handle_t *)&r->prepare, NULL);
    r->prepared = false;
    net_tls_context_free(r->tls_context);
    r->tls_context = NULL;
    redis_settings_free(&r->settings);
    r->env = NULL;
}

/* The functions that begin and cancel each op. */
KIT_OPS(redis,
        [PAWL_OP_ACQUIRE] = {redis_acquire, redis_acquire_cancel},
        [PAWL_OP_RELEASE] = {redis_simple, redis_simple_cancel},
        [PAWL_OP_RENEW] = {redis_renew, redis_renew_cancel},
        [PAWL_OP_BREAK] = {redis_simple, redis_simple_cancel},
        [PAWL_OP_INSPECT] = {redis_inspect, redis_inspect_cancel},
        [PAWL_OP_LIST] = {redis_inspect, redis_inspect_cancel},
        [PAWL_OP_COUNT] = {redis_inspect, redis_inspect_cancel},
        [PAWL_OP_LATCH_SET] = {redis_simple, redis_simple_cancel},
        [PAWL_OP_LATCH_DOWN] = {redis_simple, redis_simple_cancel},
        [PAWL_OP_EXAMINE] = {redis_examine, redis_examine_cancel});

static uint32_t engine_caps(void *self)
{
    const redis *r = self;

    return r->layout->caps | (r->settings.plain_semaphore ? PAWL_CAP_LASTING : 0);
}

/* TLS is not part of the identity: the same port is the same server, with and without TLS. */
static int engine_identity(void *self, char *ret, size_t size)
{
    const redis_settings *s = &((const redis *)self)->settings;
    char more[REDIS_MASTER_MAX + REDIS_PREFIX_MAX + 200];

    snprintf(more, sizeof more, "%s%s %lld %s %s", s->path ? s->path : "",
             s->master ? s->master : "", (long long)s->db, s->redisson ? "redisson" : "pawl",
             s->prefix);
    return net_identity(ret, size, "redis", &s->at, more);
}

#define ENGINE(name, text)                                                                         \
    const pawl_engine pawl_engine_##name = {                                                       \
        .abi = PAWL_ENGINE_ABI,                                                                    \
        .scheme = (text),                                                                          \
        .state_size = sizeof(redis),                                                               \
        .open = engine_open,                                                                       \
        .close = engine_close,                                                                     \
        .submit = engine_submit,                                                                   \
        .cancel = engine_cancel,                                                                   \
        .caps_of = engine_caps,                                                                    \
        .flush = engine_flush,                                                                     \
        .identity = engine_identity,                                                               \
        .libraries = net_tls_library,                                                              \
        .unfinished = redis_waiters_leave,                                                         \
    }
ENGINE(redis, "redis");
ENGINE(rediss, "rediss");
ENGINE(redis_unix, "redis+unix");
ENGINE(redis_sentinel, "redis+sentinel");
ENGINE(redis_cluster, "redis+cluster");
