/* SPDX-License-Identifier: Apache-2.0
 *
 * local_client.c - a loop, a clock and timers for the engine local, see local_client.h.
 */
#include "local_client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "actors.h"
#include "check.h"
#include "registry.h"

static char root[64]; /* made and removed by the runner, so that failed cases leave nothing */

int64_t clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

uint64_t random_number(void)
{
    uint64_t value = 0;

    (void)!getrandom(&value, sizeof value, 0);
    return value;
}

/* ---- the env --------------------------------------------------------------------------------- */

static int64_t env_now(pawl_env *env)
{
    (void)env;
    return clock_now();
}

static int64_t env_wall(pawl_env *env)
{
    struct timespec t;

    (void)env;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / MS;
}

static uint64_t env_random(pawl_env *env)
{
    (void)env;
    return random_number();
}

static void env_clear(pawl_env *env, pawl_timer *timer)
{
    struct client *c = (struct client *)(void *)env;

    for (pawl_timer **at = &c->timers; *at; at = &(*at)->next)
        if (*at == timer) {
            *at = timer->next;
            break;
        }
    timer->armed = false;
}

/* Nothing to do: the tests run the loop themselves. */
static void env_loop_changed(pawl_env *env)
{
    (void)env;
}

static void env_set(pawl_env *env, pawl_timer *timer, int64_t due)
{
    struct client *c = (struct client *)(void *)env;

    env_clear(env, timer);
    timer->due = due;
    timer->armed = true;
    timer->next = c->timers;
    c->timers = timer;
}

/* ---- open, run, close ------------------------------------------------------------------------ */

/* The first process of the case that gets here creates the folder. */
const char *client_folder(void)
{
    static char folder[128];

    if (!folder[0]) {
        snprintf(folder, sizeof folder, "%s/%s", root, check_name("f"));
        CHECK(!mkdir(folder, 0700) || errno == EEXIST);
        if (getenv("LOCAL_MODE"))
            CHECK(!chmod(folder, (mode_t)strtoul(getenv("LOCAL_MODE"), NULL, 8)));
    }
    return folder;
}

int client_open_url(struct client *c, const char *rest, pawl_param *params, size_t nparams,
                    pawl_error *err)
{
    char scheme[] = "local";
    pawl_url url = {.scheme = scheme, .rest = (char *)(uintptr_t)rest, .params = params,
                    .nparams = nparams};

    *c = (struct client){.env = {.now = env_now, .wall_ms = env_wall, .random = env_random,
                                 .timer_set = env_set, .timer_clear = env_clear,
                                 .loop_changed = env_loop_changed, .host = "here",
                                 .program = "unit", .label = "test"}};
    uv_loop_init(&c->loop);
    c->env.loop = &c->loop;
    c->env.client_id = random_number();
    c->self = calloc(1, pawl_engine_local.state_size);
    return pawl_engine_local.open(c->self, &c->env, &url, err);
}

int client_open(struct client *c)
{
    pawl_error err;
    int code = client_open_url(c, client_folder(), NULL, 0, &err);

    if (code)
        check_note("%s", err.text);
    return code;
}

void client_close(struct client *c)
{
    pawl_engine_local.close(c->self);
    while (uv_loop_close(&c->loop) == UV_EBUSY)
        uv_run(&c->loop, UV_RUN_ONCE);
    free(c->self);
}

void client_run(struct client *c)
{
    int64_t now;

    uv_run(&c->loop, UV_RUN_NOWAIT);
    now = clock_now();
    for (pawl_timer *t = c->timers, *next; t; t = next) {
        next = t->next;
        if (t->due <= now) {
            env_clear(&c->env, t);
            t->fire(t);
            next = c->timers;
        }
    }
}

/* libuv registers its descriptors with the kernel only in client_run. */
void client_sleep(struct client *c, int64_t due)
{
    struct pollfd p = {.fd = uv_backend_fd(&c->loop), .events = POLLIN};
    int64_t now = clock_now();
    struct timespec wait;

    for (pawl_timer *t = c->timers; t; t = t->next)
        due = t->due < due ? t->due : due;
    due = due > now ? due - now : 0;
    wait.tv_sec = due / SECOND;
    wait.tv_nsec = due % SECOND;
    ppoll(&p, 1, &wait, NULL);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void op_done(pawl_op *op)
{
    op->arg = op;
}

pawl_op op_of(struct client *c, int kind, const char *name)
{
    return (pawl_op){.kind = (uint8_t)kind, .name = name, .done = op_done, .tokens = 1,
                     .permits = 1, .lease_ms = 30000,
                     .owner = {.client = c->env.client_id, .seq = ++c->seq}};
}

pawl_op op_acquire(struct client *c, const char *name, int mode, bool queue)
{
    pawl_op op = op_of(c, PAWL_OP_ACQUIRE, name);

    op.mode = (uint8_t)mode;
    op.queue = queue;
    return op;
}

void client_start(struct client *c, pawl_op *op)
{
    pawl_engine_local.submit(c->self, op);
}

bool client_await(struct client *c, pawl_op *op, int64_t ns)
{
    int64_t until = clock_now() + ns;

    for (;;) {
        client_run(c);
        if (op->arg || clock_now() >= until)
            return op->arg != NULL;
        client_sleep(c, until);
    }
}

int client_finish(struct client *c, pawl_op *op, int64_t ns)
{
    if (!client_await(c, op, ns))
        pawl_engine_local.cancel(c->self, op);
    return op->arg ? op->code : PAWL_EUNKNOWN;
}

int client_simple(struct client *c, int kind, const char *name)
{
    pawl_op op = op_of(c, kind, name);

    client_start(c, &op);
    return op.arg ? op.code : PAWL_EUNKNOWN;
}

int client_release(struct client *c, const pawl_op *acquired)
{
    pawl_op op = op_of(c, PAWL_OP_RELEASE, acquired->name);

    op.owner = acquired->owner;
    op.mode = acquired->mode;
    op.permits = 0;
    client_start(c, &op);
    return op.code;
}

int client_main(int argc, char **argv)
{
    int status;

    snprintf(root, sizeof root, "%s/pawl-test-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(root))
        return EXIT_FAILURE;
    status = check_main(argc, argv);
    remove_tree(root);
    return access(root, F_OK) ? status : EXIT_FAILURE;
}
