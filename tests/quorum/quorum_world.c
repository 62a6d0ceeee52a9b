/* SPDX-License-Identifier: Apache-2.0
 *
 * quorum_world.c - time, clients and their ops. See the header.
 */
#include "quorum_world.h"
#include "registry.h"

#include <stdlib.h>

int64_t world_now;
uint64_t world_seed;
client one, two, three;
const char *const world_url = "settle=10000|node:0|node:1|node:2|node:3|node:4";

static pawl_timer *timers; /* by due time; `child` is the env */

uint64_t world_random(uint64_t below)
{
    world_seed ^= world_seed << 13;
    world_seed ^= world_seed >> 7;
    world_seed ^= world_seed << 17;
    return world_seed % below;
}

/* ---- env ------------------------------------------------------------------------------------- */

static int64_t env_now(pawl_env *env)
{
    (void)env;
    return world_now;
}

static int64_t env_wall_ms(pawl_env *env)
{
    return world_now / MS - ((client *)(void *)env)->late_ms;
}

static uint64_t env_random(pawl_env *env)
{
    (void)env;
    return world_random(UINT64_MAX);
}

void world_timer_clear(pawl_env *env, pawl_timer *timer)
{
    (void)env;
    for (pawl_timer **at = &timers; timer->armed && *at; at = &(*at)->next)
        if (*at == timer) {
            *at = timer->next;
            timer->armed = false;
            return;
        }
}

void world_timer_set(pawl_env *env, pawl_timer *timer, int64_t due)
{
    pawl_timer **at = &timers;

    world_timer_clear(env, timer);
    while (*at && (*at)->due <= due)
        at = &(*at)->next;
    timer->due = due;
    timer->child = (pawl_timer *)(void *)env;
    timer->next = *at;
    timer->armed = true;
    *at = timer;
}

static void env_nothing(pawl_env *env)
{
    (void)env;
}

__attribute__((format(printf, 3, 4)))
static void env_log(pawl_env *env, int level, const char *format, ...)
{
    (void)env;
    (void)level;
    (void)format;
}

/* ---- the world ------------------------------------------------------------------------------- */

void world_begin(uint64_t seed)
{
    world_seed = seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du;
    world_now = 1000000000000;
    memset(stores, 0, sizeof stores);
    for (int i = 0; i < STORES; i++)
        stores[i].delay = MS / 2;
}

/* The end of the first lease that a client waits for, at any store. */
static int64_t first_expiry(void)
{
    int64_t first = PAWL_NEVER;

    for (int k = 0; k < STORES; k++)
        for (int i = 0; i < NAMES; i++) {
            const name_state *n = &stores[k].names[i];

            for (size_t h = 0; n->nqueue && h < n->nholders; h++)
                if (n->holders[h].ends < first)
                    first = n->holders[h].ends;
        }
    return first;
}

static bool step(int64_t until)
{
    int64_t due = timers ? timers->due : PAWL_NEVER, expiry = first_expiry();
    pawl_timer *timer = timers;

    if ((due < expiry ? due : expiry) > until)
        return false;
    if (expiry < due) {
        world_now = expiry > world_now ? expiry : world_now;
        for (int k = 0; k < STORES; k++)
            for (int i = 0; i < NAMES; i++)
                world_admit(&stores[k], &stores[k].names[i]);
        return true;
    }
    timers = timer->next;
    timer->armed = false;
    world_now = due > world_now ? due : world_now;
    timer->fire(timer);
    return true;
}

void world_run(int64_t ms)
{
    int64_t until = world_now + ms * MS;

    while (step(until))
        ;
    world_now = until;
}

bool world_run_until(const ask *a, int64_t ms)
{
    int64_t until = world_now + ms * MS;

    while (!a->done && step(until))
        ;
    if (!a->done)
        world_now = until;
    return a->done > 0;
}

void world_restart(int k)
{
    stores[k].restarted = true;
    stores[k].born = world_now;
    for (int i = 0; i < NAMES; i++) {
        stores[k].names[i].nholders = 0;
        stores[k].names[i].counter = 0;
        world_admit(&stores[k], &stores[k].names[i]);
    }
}

size_t world_requests(int kind)
{
    size_t n = 0;

    for (int k = 0; k < STORES; k++)
        n += stores[k].requests[kind];
    return n;
}

size_t world_held(int name)
{
    size_t n = 0;

    for (int k = 0; k < STORES; k++) {
        world_expire(&stores[k].names[name]);
        n += stores[k].names[name].nholders > 0;
    }
    return n;
}

size_t world_waits(int name)
{
    size_t n = 0;

    for (int k = 0; k < STORES; k++)
        n += stores[k].names[name].nqueue;
    return n;
}

bool world_has(int k, int name, const client *c)
{
    const name_state *n = &stores[k].names[name];

    for (size_t i = 0; i < n->nholders; i++)
        if (n->holders[i].owner.client == c->env.client_id && n->holders[i].ends > world_now)
            return true;
    return false;
}

/* ---- clients --------------------------------------------------------------------------------- */

int client_try_open(client *c, const char *rest, pawl_error *err)
{
    pawl_url url = {.scheme = (char[]){"quorum"}, .rest = strdup(rest)};
    static int number;
    uint32_t caps = c->caps;
    int code;

    *c = (client){.number = ++number, .caps = caps};
    if (!caps)
        c->caps = PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_RANGE | PAWL_CAP_SHARED |
                  PAWL_CAP_LIST | PAWL_CAP_FLOOR | PAWL_CAP_PERMITS | PAWL_CAP_LATCH;
    c->env = (pawl_env){.client_id = (uint64_t)number * 1000, .timeout_ms = TIMEOUT_MS,
                        .now = env_now, .wall_ms = env_wall_ms, .random = env_random,
                        .timer_set = world_timer_set, .timer_clear = world_timer_clear,
                        .loop_changed = env_nothing, .log = env_log,
                        .instance_open = world_instance_open,
                        .instance_close = world_instance_close};
    c->engine.engine = &pawl_engine_quorum;
    c->engine.state = calloc(1, pawl_engine_quorum.state_size);
    code = c->engine.engine->open(c->engine.state, &c->env, &url, err);
    free(url.rest);
    return code;
}

void client_open(client *c, const char *url)
{
    c->caps = 0;
    CHECK_OK(client_try_open(c, url, NULL));
}

void client_close(client *c)
{
    c->engine.engine->close(c->engine.state);
    for (const pawl_timer *t = timers; t; t = t->next)
        CHECK((void *)t->child != (void *)&c->env);
    free(c->engine.state);
    c->engine.state = NULL;
}

void begin_three(void)
{
    world_begin(1);
    client_open(&one, world_url);
    client_open(&two, world_url);
    client_open(&three, world_url);
}

void end_three(void)
{
    client_close(&one);
    client_close(&two);
    client_close(&three);
}

/* ---- ops ------------------------------------------------------------------------------------- */

static void asked(pawl_op *op)
{
    ask *a = op->arg;

    a->done++;
    a->at = world_now;
    CHECK_EQ(a->done, 1);
}

static void prepare(client *c, ask *a, uint8_t kind, int name, uint64_t seq)
{
    *a = (ask){.name = {(char)('a' + name)}};
    a->op = (pawl_op){.kind = kind, .tokens = 1, .name = a->name,
                      .owner = {c->env.client_id, 1, seq}, .deadline = PAWL_NEVER, .err = &a->err,
                      .done = asked, .arg = a};
}

void ask_submit(client *c, ask *a, uint8_t kind, int name)
{
    pawl_info_fn *row = a->op.row;
    void *arg = a->op.row_arg;

    prepare(c, a, kind, name, 0);
    a->op.row = row;
    a->op.row_arg = arg;
    c->engine.engine->submit(c->engine.state, &a->op);
}

void ask_acquire(client *c, ask *a, int name, uint64_t seq, bool queue, int64_t lease_ms,
                 int64_t wait_ms)
{
    uint8_t mode = a->op.mode, kind = a->op.lock_kind;
    uint32_t tokens = a->op.tokens;
    uint64_t with_seq = a->op.with_seq;

    prepare(c, a, PAWL_OP_ACQUIRE, name, seq);
    a->op.mode = mode;
    a->op.lock_kind = kind;
    a->op.with_seq = with_seq;
    a->op.tokens = tokens ? tokens : 1;
    a->op.queue = queue;
    a->op.lease_ms = lease_ms;
    a->op.deadline = world_now + wait_ms * MS;
    c->engine.engine->submit(c->engine.state, &a->op);
}

void ask_release(client *c, ask *a, int name, uint64_t seq, uint8_t mode)
{
    prepare(c, a, PAWL_OP_RELEASE, name, seq);
    a->op.mode = mode;
    a->op.lease_ms = 1000;
    c->engine.engine->submit(c->engine.state, &a->op);
}

void ask_renew(client *c, ask *a, int name, uint64_t seq, int64_t lease_ms)
{
    prepare(c, a, PAWL_OP_RENEW, name, seq);
    a->item = (pawl_renewal){.name = a->name, .owner = a->op.owner, .lease_ms = lease_ms,
                             .mode = PAWL_MODE_EXCLUSIVE};
    a->op.batch = &a->item;
    a->op.batch_len = 1;
    c->engine.engine->submit(c->engine.state, &a->op);
}

void ask_cancel(client *c, ask *a)
{
    if (!a->done)
        c->engine.engine->cancel(c->engine.state, &a->op);
}

void ask_take(client *c, ask *a, int name, uint64_t seq)
{
    ask_acquire(c, a, name, seq, true, LEASE, 60000);
    CHECK(world_run_until(a, 60000));
    CHECK_CODE(a->op.code, 0);
}

void ask_give(client *c, int name, uint64_t seq)
{
    static ask r;

    ask_release(c, &r, name, seq, PAWL_MODE_EXCLUSIVE);
    CHECK(world_run_until(&r, 60000));
    CHECK_CODE(r.op.code, 0);
}

int ask_try(client *c, ask *a, int name, uint64_t seq)
{
    ask_acquire(c, a, name, seq, false, LEASE, TIMEOUT_MS);
    CHECK(world_run_until(a, TIMEOUT_MS));
    return a->op.code;
}
