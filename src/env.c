/* SPDX-License-Identifier: Apache-2.0
 *
 * env.c - pawl_env, the services that the core offers to engines: clock, random numbers, timers,
 * wakes, log, inner engines. In the simulator, struct pawl_world supplies clock and random numbers.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#include "core.h"

static pawl_client *client_of(pawl_env *env)
{
    return (pawl_client *)(void *)env;
}

int64_t pawl__clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t env_now(pawl_env *env)
{
    const struct pawl_world *world = client_of(env)->world;

    return world ? world->now(world->arg) : pawl__clock_ns();
}

static int64_t env_wall_ms(pawl_env *env)
{
    const struct pawl_world *world = client_of(env)->world;
    struct timespec t;

    if (world)
        return world->now(world->arg) / PAWL_NS_PER_MS;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / PAWL_NS_PER_MS;
}

static uint64_t env_random(pawl_env *env)
{
    const struct pawl_world *world = client_of(env)->world;
    uint64_t value;

    if (world)
        return world->random(world->arg);
    if (getrandom(&value, sizeof value, 0) != sizeof value)
        value = (uint64_t)pawl__clock_ns() * 0x9e3779b97f4a7c15u; /* good enough for jitter */
    return value;
}

static void env_timer_set(pawl_env *env, pawl_timer *timer, int64_t due)
{
    pawl__timers_set(&client_of(env)->timers, timer, due);
}

static void env_timer_clear(pawl_env *env, pawl_timer *timer)
{
    pawl__timers_clear(&client_of(env)->timers, timer);
}

/* ---- wakes: one flag per wake and one for the client, set by any thread ---------------------- */

static void env_wake_begin(pawl_env *env, pawl_wake *wake)
{
    pawl_client *client = client_of(env);

    wake->env = env;
    atomic_init(&wake->sent, false);
    wake->next = client->driver.wakes;
    client->driver.wakes = wake;
}

static void env_wake_end(pawl_env *env, pawl_wake *wake)
{
    for (pawl_wake **at = &client_of(env)->driver.wakes; *at; at = &(*at)->next)
        if (*at == wake) {
            *at = wake->next;
            break;
        }
}

static void env_wake_send(pawl_wake *wake)
{
    pawl_client *client = client_of(wake->env);

    atomic_store(&wake->sent, true);
    if (!atomic_exchange(&client->driver.woken, true))
        pawl__kick(client);
}

void pawl__wakes_run(pawl_client *client)
{
    if (!atomic_exchange(&client->driver.woken, false))
        return;
    for (pawl_wake *wake = client->driver.wakes, *next; wake; wake = next) {
        next = wake->next;
        if (atomic_exchange(&wake->sent, false))
            wake->fn(wake);
    }
}

/* ---- log ------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4)))
static void env_log(pawl_env *env, int level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    pawl__log_args(client_of(env), level, format, args);
    va_end(args);
}

/* ---- engines --------------------------------------------------------------------------------- */

/* The state of an engine is freed with the client, because the loop closes the engine's handles
 * later than the engine. */
struct state_box {
    struct state_box *next;
    max_align_t state[];
};

static void *state_new(pawl_client *client, size_t size)
{
    struct state_box *box = calloc(1, sizeof *box + size);

    if (!box)
        return NULL;
    box->next = client->states;
    client->states = box;
    return box->state;
}

void pawl__states_free(pawl_client *client)
{
    while (client->states) {
        struct state_box *box = client->states;

        client->states = box->next;
        free(box);
    }
}

int pawl__instance_open(pawl_env *env, pawl_instance *ret, const pawl_url *url, pawl_error *err)
{
    const pawl_engine *engine;
    void *state;
    int code = pawl__engine_find(&engine, url->scheme, err);

    if (code)
        return code;
    state = state_new(client_of(env), engine->state_size);
    if (!state)
        return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    code = engine->open(state, env, url, err);
    if (!code)
        code = pawl__url_all_used(url, err);
    ret->engine = engine;
    ret->state = state;
    return code;
}

static int env_instance_open(pawl_env *env, pawl_instance *ret, const char *text, pawl_error *err)
{
    pawl_url url;
    int code = pawl__url_parse(&url, text, err);

    *ret = (pawl_instance){0};
    if (code)
        return code;
    code = pawl__url_options(client_of(env), &url, err);
    if (!code)
        code = pawl__instance_open(env, ret, &url, err);
    pawl__url_free(&url);
    return code;
}

static void env_instance_close(pawl_instance *instance)
{
    if (instance->engine)
        instance->engine->close(instance->state);
}

static void env_loop_changed(pawl_env *env)
{
    pawl_client *client = client_of(env);

    if (!client->requests.in_submit) /* else pawl__before_unlock flushes */
        client->driver.dirty = true;
}

int pawl__env_init(pawl_client *client)
{
    pawl_env *env = &client->env;

    env->now = env_now;
    env->wall_ms = env_wall_ms;
    env->random = env_random;
    env->timer_set = env_timer_set;
    env->timer_clear = env_timer_clear;
    env->wake_begin = env_wake_begin;
    env->wake_end = env_wake_end;
    env->wake_send = env_wake_send;
    env->loop_changed = env_loop_changed;
    env->log = env_log;
    env->instance_open = env_instance_open;
    env->instance_close = env_instance_close;
    env->fork_guard_add = pawl__fork_guard_add;
    env->fork_guard_remove = pawl__fork_guard_remove;
    env->fork_mutex_add = pawl__fork_mutex_add;
    if (client->world) {
        env->client_id = env_random(env);
        return 0;
    }
    /* No fallback: two clients with the same id would treat each other's locks as their own. */
    return getrandom(&env->client_id, sizeof env->client_id, 0) == sizeof env->client_id ? 0 : -1;
}
