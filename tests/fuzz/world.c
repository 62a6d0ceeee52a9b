/* SPDX-License-Identifier: Apache-2.0
 *
 * world.c - see world.h.
 */
#include "world.h"

#include "core.h"

#define STEPS_MAX 20000 /* if more timers fire, the engine is in an endless loop */

static const char name[] = "a";

void (*world_turned)(world *w);
int (*world_instance_open)(pawl_env *env, pawl_instance *ret, const char *url, pawl_error *err);
void (*world_instance_close)(pawl_instance *instance);

/* ---- the env --------------------------------------------------------------------------------- */

static int64_t env_now(pawl_env *env)
{
    return ((world *)(void *)env)->now;
}

static int64_t env_wall(pawl_env *env)
{
    return env_now(env) / PAWL_NS_PER_MS;
}

/* Always the same number, so that scripts can contain values that are made from it. */
static uint64_t env_random(pawl_env *env)
{
    (void)env;
    return WORLD_RANDOM;
}

static void env_clear(pawl_env *env, pawl_timer *timer)
{
    world *w = (world *)(void *)env;

    for (pawl_timer **at = &w->timers; *at; at = &(*at)->next)
        if (*at == timer) {
            *at = timer->next;
            break;
        }
    timer->armed = false;
}

/* Timers are in order of time; timers with equal times are in the order in which they were set. */
static void env_set(pawl_env *env, pawl_timer *timer, int64_t due)
{
    world *w = (world *)(void *)env;
    pawl_timer **at = &w->timers;

    env_clear(env, timer);
    while (*at && (*at)->due <= due)
        at = &(*at)->next;
    timer->due = due;
    timer->armed = true;
    timer->next = *at;
    *at = timer;
}

static void env_loop_changed(pawl_env *env)
{
    (void)env;
}

__attribute__((format(printf, 3, 4)))
static void env_log(pawl_env *env, int level, const char *format, ...)
{
    char text[2048];
    va_list args;

    (void)env;
    DEMAND(level >= PAWL_LOG_ERROR && level <= PAWL_LOG_DEBUG);
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
}

static void no_fd(int fd)
{
    (void)fd;
}

static void no_mutex(pthread_mutex_t *mutex)
{
    (void)mutex;
}

static void wake_begin(pawl_env *env, pawl_wake *wake)
{
    (void)env;
    (void)wake;
}

static void wake_send(pawl_wake *wake)
{
    (void)wake;
}

static const pawl_env env_of_world = {.client_id = WORLD_CLIENT, .host = "world",
    .program = "replay", .label = "fuzz",
    .timeout_ms = WORLD_TIMEOUT_MS, .watchdog_ms = 30000, .now = env_now, .wall_ms = env_wall,
    .random = env_random, .timer_set = env_set, .timer_clear = env_clear,
    .wake_begin = wake_begin, .wake_end = wake_begin, .wake_send = wake_send,
    .loop_changed = env_loop_changed, .log = env_log, .fork_guard_add = no_fd,
    .fork_guard_remove = no_fd, .fork_mutex_add = no_mutex};

/* ---- time ------------------------------------------------------------------------------------ */

static void flush(world *w)
{
    if (w->engine->flush)
        w->engine->flush(w->self);
    if (world_turned)
        world_turned(w);
}

static void submit_event(world *w);

void world_turn(world *w)
{
    int steps = 0;

    submit_event(w);
    flush(w);
    while (w->timers && w->timers->due <= w->now) {
        pawl_timer *timer = w->timers;

        DEMAND(steps++ < STEPS_MAX);
        env_clear(&w->env, timer);
        timer->fire(timer);
        flush(w);
    }
    flush(w);
}

void world_pass(world *w, int64_t ms)
{
    int64_t until = w->now + ms * PAWL_NS_PER_MS;
    int steps = 0;

    world_turn(w);
    while (w->timers && w->timers->due <= until) {
        DEMAND(steps++ < STEPS_MAX);
        w->now = w->timers->due > w->now ? w->timers->due : w->now;
        world_turn(w);
    }
    w->now = until;
    world_turn(w);
}

/* ---- ops ------------------------------------------------------------------------------------- */

static void check_text(const char *text, size_t most)
{
    DEMAND(text && strlen(text) <= most);
}

static int row(void *arg, const pawl_info *info)
{
    (void)arg;
    DEMAND(info->size == sizeof *info && info->role <= PAWL_ROLE_SUMMARY);
    DEMAND(info->type <= PAWL_TYPE_LATCH);
    check_text(info->name, 2 * PAWL_NAME_MAX);
    check_text(info->host, SIZE_MAX);
    check_text(info->program, SIZE_MAX);
    check_text(info->label, SIZE_MAX);
    check_text(info->owner, SIZE_MAX);
    return 0;
}

static void check_grant(const world *w, const pawl_op *op)
{
    DEMAND(op->lease_from <= w->now);
    DEMAND(op->granted_ms >= 0 && op->granted_ms <= op->lease_ms);
    if (op->mode != PAWL_MODE_LATCH)
        DEMAND(!op->token || op->ntokens >= 1);
}

static void check_words(const pawl_error *err)
{
    DEMAND(memchr(err->text, 0, sizeof err->text));
    for (const char *c = err->text; *c; c++)
        DEMAND((unsigned char)*c >= ' ' && *c != 0x7f);
}

static void done(pawl_op *op)
{
    world_op *o = (world_op *)(void *)op;

    DEMAND(o->out);
    o->out = false;
    DEMAND(op->code <= 0);
    if (op->kind == PAWL_OP_ACQUIRE && !op->code)
        check_grant(op->arg, op);
    if (op->kind == PAWL_OP_EVENT && !op->code)
        DEMAND(op->event > PAWL_EVENT_NONE && op->event <= PAWL_EVENT_LOST);
    check_words(&o->err);
}

static int finding(void *arg, const pawl_finding *f)
{
    (void)arg;
    DEMAND(f->level <= PAWL_FINDING_DANGER && f->id[0] && f->where && f->what && f->why);
    DEMAND(strlen(f->what) < 10000 && strlen(f->remedy) < 10000);
    return 0;
}

static bool examines(const world *w)
{
    const pawl_instance self = {w->engine, w->self};

    return pawl_instance_caps(&self) & PAWL_CAP_EXAMINE;
}

static world_op *new_op(world *w, int kind)
{
    world_op *o = &w->ops[w->nops];

    o->op = (pawl_op){.kind = (uint8_t)kind, .name = name, .done = done, .arg = w, .err = &o->err,
                      .tokens = 1, .permits = 2, .lease_ms = 30000, .row = row,
                      .finding = finding,
                      .owner = {.client = WORLD_CLIENT, .holder = 1, .seq = w->nops++}};
    o->out = true;
    return o;
}

/* An EVENT op is always submitted, as in the core. */
static void submit_event(world *w)
{
    world_op *o = &w->ops[0];

    if (o->out || w->closing)
        return;
    o->op = (pawl_op){.kind = PAWL_OP_EVENT, .done = done, .arg = w, .err = &o->err};
    o->out = true;
    w->engine->submit(w->self, &o->op);
}

static void set_acquire(pawl_op *op, char letter)
{
    op->queue = letter != 'A';
    op->mode = letter == 's'   ? PAWL_MODE_SHARED
               : letter == 'p' ? PAWL_MODE_PERMITS
               : letter == 'o' ? PAWL_MODE_LATCH
                               : PAWL_MODE_EXCLUSIVE;
    op->count = letter == 'p' ? 3 : 0;
    op->lock_kind = letter == 's' ? PAWL_READ : PAWL_MUTEX;
    op->floor = letter == 'A';
}

/* The nth acquire from the end, or NULL. */
static const pawl_op *acquire_before(const world *w, int n)
{
    for (size_t i = w->nops; i-- > 1;)
        if (w->ops[i].op.kind == PAWL_OP_ACQUIRE && n-- == 0)
            return &w->ops[i].op;
    return NULL;
}

static void set_release(const world *w, pawl_op *op)
{
    const pawl_op *held = acquire_before(w, 0);

    if (!held)
        return;
    op->owner = held->owner;
    op->mode = held->mode;
    op->lock_kind = held->lock_kind;
}

static void set_renewal(const world *w, world_op *o)
{
    for (int i = 0; i < 2; i++) {
        const pawl_op *held = acquire_before(w, i);

        if (!held)
            break;
        o->items[i] = (pawl_renewal){.name = name, .owner = held->owner, .lease_ms = 30000,
            .permits = held->permits, .mode = held->mode, .lock_kind = held->lock_kind};
        o->op.batch_len++;
    }
    o->op.batch = o->items;
}

static void prepare(world *w, world_op *o, char letter)
{
    switch (o->op.kind) {
    case PAWL_OP_ACQUIRE:
        set_acquire(&o->op, letter);
        break;
    case PAWL_OP_RELEASE:
        set_release(w, &o->op);
        break;
    case PAWL_OP_RENEW:
        set_renewal(w, o);
        break;
    case PAWL_OP_LIST:
        o->op.name = "*";
        break;
    case PAWL_OP_COUNT:
        o->op.mode = letter == 'c' ? PAWL_MODE_PERMITS : PAWL_MODE_LATCH;
        break;
    default:
        o->op.count = 2;
    }
}

bool world_submit(world *w, char letter)
{
    static const char letters[] = "aAspornbdDiLcCX";
    static const uint8_t kinds[] = {PAWL_OP_ACQUIRE, PAWL_OP_ACQUIRE, PAWL_OP_ACQUIRE,
        PAWL_OP_ACQUIRE, PAWL_OP_ACQUIRE, PAWL_OP_RELEASE, PAWL_OP_RENEW, PAWL_OP_BREAK,
        PAWL_OP_LATCH_DOWN, PAWL_OP_LATCH_SET, PAWL_OP_INSPECT, PAWL_OP_LIST, PAWL_OP_COUNT,
        PAWL_OP_COUNT, PAWL_OP_EXAMINE};
    const char *at = letter ? strchr(letters, letter) : NULL;
    world_op *o;

    if (!at || w->nops == WORLD_OPS || (letter == 'X' && !examines(w)))
        return false;
    o = new_op(w, kinds[at - letters]);
    prepare(w, o, letter);
    if (o->op.kind == PAWL_OP_RENEW && !o->op.batch_len) {
        o->out = false;
        w->nops--;
        return true;
    }
    w->engine->submit(w->self, &o->op);
    world_turn(w);
    return true;
}

void world_cancel(world *w, size_t n)
{
    if (n < w->nops && w->ops[n].out)
        w->engine->cancel(w->self, &w->ops[n].op);
}

void world_do(world *w, const world_step *step)
{
    if (step->letter == '+' || step->letter == '*')
        world_pass(w, step->letter == '+' ? 100 : 5000);
    else if (step->letter == '^' && step->length)
        world_cancel(w, (size_t)(step->text[0] - '0') % 10);
    else
        world_submit(w, step->letter);
}

/* ---- life ------------------------------------------------------------------------------------ */

bool world_open(world *w, const pawl_engine *engine, const char *text)
{
    pawl_error err = {0};
    pawl_url url;
    int code;

    memset(w, 0, sizeof *w);
    DEMAND(!uv_loop_init(&w->loop));
    w->env = env_of_world;
    w->env.loop = &w->loop;
    w->env.instance_open = world_instance_open;
    w->env.instance_close = world_instance_close;
    w->engine = engine;
    w->now = INT64_C(1000000) * PAWL_NS_PER_MS;
    w->self = calloc(1, engine->state_size);
    DEMAND(w->self);
    code = pawl__url_parse(&url, text, &err);
    if (!code) {
        code = engine->open(w->self, &w->env, &url, &err);
        pawl__url_free(&url);
    }
    DEMAND(!code || (code < 0 && err.text[0]));
    check_words(&err);
    w->nops = 1;
    w->closing = code != 0;
    if (!code)
        world_turn(w);
    return !code;
}

static bool any_out(const world *w)
{
    for (size_t i = 1; i < w->nops; i++)
        if (w->ops[i].out)
            return true;
    return false;
}

void world_close(world *w)
{
    for (size_t i = w->nops; i-- > 1;)
        world_cancel(w, i);
    for (int i = 0; any_out(w); i++) {
        DEMAND(i < 60);
        world_pass(w, 1000);
    }
    w->closing = true;
    w->engine->close(w->self);
    DEMAND(!w->ops[0].out);
    DEMAND(!w->timers); /* timers would point to freed memory */
    for (int i = 0; uv_loop_close(&w->loop); i++) {
        DEMAND(i < 1000); /* a handle was not closed */
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    free(w->self);
}

bool world_next(const uint8_t *data, size_t size, size_t *at, world_step *step)
{
    const uint8_t *end;

    if (*at >= size)
        return false;
    end = memchr(data + *at, '~', size - *at);
    step->letter = (char)data[*at];
    step->text = (const char *)data + *at + 1;
    step->length = end > data + *at ? (size_t)(end - data) - *at - 1
                   : end            ? 0
                                    : size - *at - 1;
    if (end == data + *at)
        step->letter = 0;
    *at = end ? (size_t)(end - data) + 1 : size;
    return true;
}
