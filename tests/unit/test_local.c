/* SPDX-License-Identifier: Apache-2.0
 *
 * test_local.c - the engine local: alone, driven through the engine door by a loop of its own, so
 * that processes can be killed and stopped at every instruction of it.
 *
 * The hammer: several processes take, share, queue, cancel and release a few names as fast as they
 * can; a parent kills one of them with SIGKILL every millisecond or so, thousands of times, and
 * stops and continues others. Beside the locks each process writes down in plain shared memory what
 * it believes to hold. Whoever enters looks there: a mark of somebody else is a crime unless that
 * process has been sent SIGKILL.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "engine.h"

static int number, failures;
static const char *sentence;
static bool sentence_ok;
static char folder[64];

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            printf("# %s:%d: %s\n", __FILE__, __LINE__, #cond);                                    \
            sentence_ok = false;                                                                   \
        }                                                                                          \
    } while (0)

static void begin(const char *text)
{
    sentence = text;
    sentence_ok = true;
}

static void end(void)
{
    printf("%s %d - %s\n", sentence_ok ? "ok" : "not ok", ++number, sentence);
    fflush(stdout);
    failures += !sentence_ok;
}

/* ---- a client: the engine, a loop, timers ---------------------------------------------------- */

#define MS INT64_C(1000000)
#define SECOND (1000 * MS)

struct client {
    pawl_env env;
    uv_loop_t loop;
    pawl_timer *timers;
    void *self;
    uint64_t seq;
};

static int64_t clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

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
    uint64_t value = 0;

    (void)env;
    (void)!getrandom(&value, sizeof value, 0);
    return value;
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

static void env_set(pawl_env *env, pawl_timer *timer, int64_t due)
{
    struct client *c = (struct client *)(void *)env;

    env_clear(env, timer);
    timer->due = due;
    timer->armed = true;
    timer->next = c->timers;
    c->timers = timer;
}

static int client_open_url(struct client *c, const char *rest, pawl_param *params, size_t nparams,
                           pawl_error *err)
{
    char scheme[] = "local";
    pawl_url url = {.scheme = scheme, .rest = (char *)(uintptr_t)rest, .params = params,
                    .nparams = nparams};

    *c = (struct client){.env = {.now = env_now, .wall_ms = env_wall, .random = env_random,
                                 .timer_set = env_set, .timer_clear = env_clear, .label = "test"}};
    uv_loop_init(&c->loop);
    c->env.loop = &c->loop;
    c->env.client_id = env_random(&c->env);
    c->self = calloc(1, pawl_engine_local.state_size);
    return pawl_engine_local.open(c->self, &c->env, &url, err);
}

static int client_open(struct client *c)
{
    pawl_error err;
    int code = client_open_url(c, folder, NULL, 0, &err);

    if (code)
        printf("# %s\n", err.text);
    return code;
}

static void client_close(struct client *c)
{
    pawl_engine_local.close(c->self);
    while (uv_loop_close(&c->loop) == UV_EBUSY)
        uv_run(&c->loop, UV_RUN_ONCE);
    free(c->self);
}

static void run_loop(struct client *c)
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

/* Sleep until something happens. libuv tells the kernel what to watch only in run_loop. */
static void sleep_until(struct client *c, int64_t due)
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

static void op_done(pawl_op *op)
{
    op->arg = op;
}

static pawl_op op_of(struct client *c, int kind, const char *name)
{
    return (pawl_op){.kind = (uint8_t)kind, .name = name, .done = op_done, .tokens = 1,
                     .permits = 1, .lease_ms = 30000,
                     .owner = {.client = c->env.client_id, .seq = ++c->seq}};
}

static void start(struct client *c, pawl_op *op)
{
    pawl_engine_local.submit(c->self, op);
}

/* True if the op was done in time. */
static bool await(struct client *c, pawl_op *op, int64_t ns)
{
    int64_t until = clock_now() + ns;

    for (;;) {
        run_loop(c);
        if (op->arg || clock_now() >= until)
            return op->arg != NULL;
        sleep_until(c, until);
    }
}

static int finish(struct client *c, pawl_op *op, int64_t ns)
{
    if (!await(c, op, ns))
        pawl_engine_local.cancel(c->self, op);
    return op->arg ? op->code : PAWL_EUNKNOWN;
}

static int simple(struct client *c, int kind, const char *name)
{
    pawl_op op = op_of(c, kind, name);

    start(c, &op);
    return op.arg ? op.code : PAWL_EUNKNOWN;
}

static int release(struct client *c, const pawl_op *acquired)
{
    pawl_op op = op_of(c, PAWL_OP_RELEASE, acquired->name);

    op.owner = acquired->owner;
    op.mode = acquired->mode;
    op.permits = 0;
    start(c, &op);
    return op.code;
}

static pawl_op acquire_op(struct client *c, const char *name, int mode, bool queue)
{
    pawl_op op = op_of(c, PAWL_OP_ACQUIRE, name);

    op.mode = (uint8_t)mode;
    op.queue = queue;
    return op;
}

/* ---- folders --------------------------------------------------------------------------------- */

static int try_open(const char *path, pawl_param *params, size_t nparams, pawl_error *err)
{
    struct client c;
    int code;

    err->text[0] = 0;
    code = client_open_url(&c, path, params, nparams, err);
    client_close(&c);
    return code;
}

static void test_folders(void)
{
    char path[128], key[] = "others", value[] = "allow";
    pawl_param allow = {.key = key, .value = value};
    pawl_error err;
    int fd;

    begin("a folder that everybody can write to is refused unless asked for");
    snprintf(path, sizeof path, "%s/open", folder);
    CHECK(!mkdir(path, 0777) && !chmod(path, 0777));
    CHECK(try_open(path, NULL, 0, &err) == PAWL_EAUTH && strstr(err.text, "others=allow"));
    CHECK(try_open(path, &allow, 1, &err) == 0 && allow.used);
    value[0] = 'x';
    CHECK(try_open(path, &allow, 1, &err) == PAWL_EINVAL);
    end();

    begin("what is no folder, or has no folder above it, is refused in words");
    snprintf(path, sizeof path, "%s/file", folder);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    close(fd);
    CHECK(try_open(path, NULL, 0, &err) == PAWL_EINVAL && strstr(err.text, "name a folder"));
    snprintf(path, sizeof path, "%s/no/where", folder);
    CHECK(try_open(path, NULL, 0, &err) == PAWL_EINVAL && strstr(err.text, "first"));
    CHECK(try_open("%4", NULL, 0, &err) == PAWL_EINVAL);
    end();

    begin("a missing folder is made for this user alone, and a file that is no table is refused");
    {
        char command[256], inner[128];
        struct stat st;

        snprintf(path, sizeof path, "%s/my%%20own", folder);
        snprintf(inner, sizeof inner, "%s/my own", folder);
        CHECK(try_open(path, NULL, 0, &err) == 0);
        CHECK(!stat(inner, &st) && (st.st_mode & 07777) == 0700);
        snprintf(command, sizeof command, "for t in '%s'/table-*; do : > \"$t\"; done", inner);
        CHECK(!system(command) && try_open(path, NULL, 0, &err) == PAWL_EBACKEND);
        CHECK(strstr(err.text, "no lock table"));
    }
    end();
}

/* ---- two clients ----------------------------------------------------------------------------- */

static int count_rows(void *arg, const pawl_info *row)
{
    *(int *)arg += row->role != PAWL_ROLE_SUMMARY;
    return row->role == PAWL_ROLE_HOLDER &&
           (row->pid != getpid() || strcmp(row->label, "test") || row->lease_ms <= 0);
}

static void test_pair(void)
{
    struct client a, b;
    pawl_op one, two, event, look;
    int rows = 0;

    begin("a lock passes from one client to the one that waits, with a larger token");
    CHECK(!client_open(&a) && !client_open(&b));
    one = acquire_op(&a, "x", PAWL_MODE_EXCLUSIVE, false);
    two = acquire_op(&b, "x", PAWL_MODE_EXCLUSIVE, true);
    start(&a, &one);
    start(&b, &two);
    CHECK(one.arg && one.code == 0 && one.token && one.lease_from && !two.arg);
    look = op_of(&b, PAWL_OP_INSPECT, "x");
    look.row = count_rows;
    look.row_arg = &rows;
    start(&b, &look);
    CHECK(look.code == 0 && rows == 2);
    CHECK(release(&a, &one) == 0 && release(&a, &one) == PAWL_ENOTHELD);
    CHECK(await(&b, &two, 20 * SECOND) && two.code == 0 && two.token > one.token);
    end();

    begin("break passes it on and tells the holder");
    event = op_of(&b, PAWL_OP_EVENT, NULL);
    start(&b, &event);
    CHECK(simple(&a, PAWL_OP_BREAK, "x") == 0 && simple(&a, PAWL_OP_BREAK, "x") == PAWL_ENOTHELD);
    CHECK(await(&b, &event, 20 * SECOND) && event.code == 0 && event.event == PAWL_EVENT_VERIFY);
    CHECK(release(&b, &two) == PAWL_ENOTHELD);
    end();

    begin("a client that is closed leaves nothing that is in the way");
    one = acquire_op(&a, "x", PAWL_MODE_EXCLUSIVE, false);
    start(&a, &one);
    two = acquire_op(&b, "x", PAWL_MODE_EXCLUSIVE, true);
    start(&b, &two);
    CHECK(one.code == 0 && !two.arg);
    client_close(&a);
    CHECK(await(&b, &two, 20 * SECOND) && two.code == 0 && release(&b, &two) == 0);
    client_close(&b);
    end();
}

static void test_sizes(void)
{
    enum { NAMES = 3000, READERS = 900 };
    static pawl_op ops[NAMES];
    static char names[NAMES][24];
    struct client a, b;
    int held = 0;

    begin("thousands of names, and hundreds of owners of one, fit");
    CHECK(!client_open(&a) && !client_open(&b));
    for (int i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof names[i], "name-%d", i);
        ops[i] = acquire_op(&a, names[i], PAWL_MODE_EXCLUSIVE, false);
        start(&a, &ops[i]);
        held += ops[i].arg && ops[i].code == 0;
    }
    CHECK(held == NAMES && simple(&b, PAWL_OP_BREAK, names[7]) == 0);
    for (int i = 0; i < NAMES; i++)
        held -= release(&a, &ops[i]) == 0;
    CHECK(held == 1);
    for (int i = held = 0; i < READERS; i++) {
        ops[i] = acquire_op(i % 2 ? &a : &b, "crowd", PAWL_MODE_SHARED, true);
        start(i % 2 ? &a : &b, &ops[i]);
        held += ops[i].arg && ops[i].code == 0;
    }
    CHECK(held == READERS);
    for (int i = 0; i < READERS; i++)
        held -= release(i % 2 ? &a : &b, &ops[i]) == 0;
    CHECK(held == 0);
    client_close(&a);
    client_close(&b);
    end();
}

static uint64_t one_token(void)
{
    struct client c;
    pawl_op op;

    if (client_open(&c))
        return 0;
    op = acquire_op(&c, "x", PAWL_MODE_EXCLUSIVE, false);
    start(&c, &op);
    client_close(&c);
    return op.code ? 0 : op.token;
}

static void test_table(void)
{
    struct client c;
    pawl_op op, event, renew;
    pawl_renewal item = {.name = "x", .lease_ms = 30000};
    char command[256];
    uint64_t before, after;

    begin("tokens go on from the table of an earlier boot, which is then removed");
    before = one_token();
    snprintf(command, sizeof command, "mv %s/table-* %s/table-of-another-boot", folder, folder);
    CHECK(!system(command));
    after = one_token();
    CHECK(before && after > before + 1000000);
    snprintf(command, sizeof command, "test ! -e %s/table-of-another-boot", folder);
    CHECK(!system(command));
    end();

    begin("a client whose table was removed by hand says that all is lost");
    CHECK(!client_open(&c));
    op = acquire_op(&c, "x", PAWL_MODE_EXCLUSIVE, false);
    event = op_of(&c, PAWL_OP_EVENT, NULL);
    renew = op_of(&c, PAWL_OP_RENEW, NULL);
    start(&c, &op);
    start(&c, &event);
    snprintf(command, sizeof command, "rm %s/table-*", folder);
    CHECK(op.code == 0 && !event.arg && !system(command));
    item.owner = op.owner;
    renew.batch = &item;
    renew.batch_len = 1;
    start(&c, &renew);
    CHECK(renew.arg && renew.code == 0 && item.code == PAWL_ENOTHELD);
    CHECK(event.arg && event.event == PAWL_EVENT_LOST);
    client_close(&c);
    end();

    begin("a folder may have a longer name than a socket");
    snprintf(command, sizeof command, "%s/%0120d", folder, 7);
    {
        struct client a, b;
        pawl_op two;
        pawl_error err;

        CHECK(!client_open_url(&a, command, NULL, 0, &err));
        CHECK(!client_open_url(&b, command, NULL, 0, &err));
        op = acquire_op(&a, "x", PAWL_MODE_EXCLUSIVE, false);
        two = acquire_op(&b, "x", PAWL_MODE_EXCLUSIVE, true);
        start(&a, &op);
        start(&b, &two);
        CHECK(op.code == 0 && !two.arg && release(&a, &op) == 0);
        CHECK(await(&b, &two, 20 * SECOND) && two.code == 0);
        client_close(&a);
        client_close(&b);
    }
    end();
}

/* ---- death and standstill -------------------------------------------------------------------- */

/* A process that takes "x", says so, and waits for its end. */
static pid_t holder(int64_t lease_ms)
{
    int pipe_fd[2];
    char byte;
    pid_t pid;

    if (pipe(pipe_fd))
        return -1;
    pid = fork();
    if (pid == 0) {
        struct client c;
        pawl_op op;

        if (client_open(&c))
            _exit(1);
        op = acquire_op(&c, "x", PAWL_MODE_EXCLUSIVE, true);
        op.lease_ms = lease_ms;
        start(&c, &op);
        if (finish(&c, &op, 20 * SECOND) || write(pipe_fd[1], "x", 1) != 1)
            _exit(1);
        for (;;) {
            run_loop(&c);
            sleep_until(&c, clock_now() + SECOND);
        }
    }
    close(pipe_fd[1]);
    if (read(pipe_fd[0], &byte, 1) != 1)
        printf("# the holder did not get it\n");
    close(pipe_fd[0]);
    return pid;
}

static void test_death(void)
{
    struct client c;
    pawl_op op;
    pid_t pid;
    int64_t worst = 0;

    begin("a killed holder is followed at once, long before its lease ends");
    CHECK(!client_open(&c));
    for (int i = 0; i < 50; i++) {
        int64_t killed;

        pid = holder(600000);
        op = acquire_op(&c, "x", PAWL_MODE_EXCLUSIVE, true);
        start(&c, &op);
        CHECK(!op.arg);
        run_loop(&c);
        killed = clock_now();
        if (i % 2)
            kill(pid, SIGSTOP);
        kill(pid, SIGKILL);
        CHECK(await(&c, &op, 10 * SECOND) && op.code == 0);
        worst = clock_now() - killed > worst ? clock_now() - killed : worst;
        waitpid(pid, NULL, 0);
        CHECK(release(&c, &op) == 0);
    }
    printf("# at worst %lld us after kill -9\n", (long long)worst / 1000);
    end();

    begin("a dead holder that nobody waited for is no obstacle");
    pid = holder(600000);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    op = acquire_op(&c, "x", PAWL_MODE_EXCLUSIVE, false);
    start(&c, &op);
    CHECK(op.code == 0 && release(&c, &op) == 0);
    end();

    begin("a stopped holder loses the lock when its lease ends");
    pid = holder(200);
    kill(pid, SIGSTOP);
    op = acquire_op(&c, "x", PAWL_MODE_EXCLUSIVE, true);
    start(&c, &op);
    CHECK(await(&c, &op, 20 * SECOND) && op.code == 0 && release(&c, &op) == 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    client_close(&c);
    end();
}

/* The one who counts down dies between the change and the telling, or before, or after. */
static void test_latch(void)
{
    struct client c;
    pawl_op set, wait_op, look;
    int opened = 0;

    begin("a waiter sees a latch open although who opened it was killed before he could say so");
    CHECK(!client_open(&c));
    for (int i = 0; i < 400 && sentence_ok; i++) {
        pid_t pid;

        set = op_of(&c, PAWL_OP_LATCH_SET, "gate");
        set.count = 1;
        start(&c, &set);
        wait_op = acquire_op(&c, "gate", PAWL_MODE_LATCH, true);
        start(&c, &wait_op);
        CHECK(set.code == 0 && !wait_op.arg);
        pid = fork();
        if (pid == 0) {
            struct client child;

            if (!client_open(&child))
                simple(&child, PAWL_OP_LATCH_DOWN, "gate");
            for (;;)
                pause();
        }
        usleep((useconds_t)(env_random(&c.env) % 900));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        look = op_of(&c, PAWL_OP_COUNT, "gate");
        look.mode = PAWL_MODE_LATCH;
        start(&c, &look);
        if (look.value > 0)
            CHECK(simple(&c, PAWL_OP_LATCH_DOWN, "gate") == 0);
        else
            opened++;
        CHECK(await(&c, &wait_op, 10 * SECOND) && wait_op.code == 0);
    }
    printf("# opened %d of 400 times\n", opened);
    client_close(&c);
    end();
}

/* ---- the hammer ------------------------------------------------------------------------------ */

enum { WORKERS = 8, NAMES = 3, LIVES = 8192, PERMITS = 2 };

static const char *const names[NAMES] = {"a", "b", "c"};

static struct shared {
    atomic_bool killed[LIVES]; /* has been sent SIGKILL, or is about to be */
    _Atomic uint32_t writer[NAMES];
    _Atomic uint32_t reader[NAMES][WORKERS];
    _Atomic uint32_t permit[WORKERS]; /* how many this worker holds, in its life */
    _Atomic uint32_t permit_life[WORKERS];
    _Atomic uint64_t token[NAMES], writer_token[NAMES]; /* the largest of all, and of writers */
    _Atomic uint64_t grants, crimes, longest, late;
    atomic_bool finish;
} *shared;

struct worker {
    struct client client;
    uint32_t seat, life;
    uint64_t rng;
};

static uint64_t rnd(struct worker *w, uint64_t n)
{
    w->rng ^= w->rng << 13;
    w->rng ^= w->rng >> 7;
    w->rng ^= w->rng << 17;
    return w->rng % n;
}

static void crime(struct worker *w, const char *what, int name, uint32_t other)
{
    atomic_fetch_add(&shared->crimes, 1);
    printf("# life %u in seat %u: %s %d, other %u\n", w->life, w->seat, what, name, other);
    fflush(stdout);
}

static bool lives(uint32_t mark)
{
    return mark && !atomic_load(&shared->killed[mark - 1]);
}

static void enter(struct worker *w, int name, int mode, uint64_t token)
{
    uint64_t last = atomic_load(&shared->token[name]);

    /* Readers come in together, in any order, but after every writer before them. */
    if (token <= (mode == PAWL_MODE_EXCLUSIVE ? last : atomic_load(&shared->writer_token[name])))
        crime(w, "token not larger, name", name, (uint32_t)(last - token));
    while (token > last && !atomic_compare_exchange_weak(&shared->token[name], &last, token))
        ;
    if (mode == PAWL_MODE_EXCLUSIVE) {
        uint32_t before = atomic_exchange(&shared->writer[name], w->life + 1);

        atomic_store(&shared->writer_token[name], token);
        if (lives(before))
            crime(w, "two writers of", name, before - 1);
    } else {
        atomic_store(&shared->reader[name][w->seat], w->life + 1);
        if (lives(atomic_load(&shared->writer[name])))
            crime(w, "a writer beside a reader of", name, atomic_load(&shared->writer[name]) - 1);
    }
    for (uint32_t i = 0; mode == PAWL_MODE_EXCLUSIVE && i < WORKERS; i++) {
        uint32_t reader = atomic_load(&shared->reader[name][i]);

        if (lives(reader))
            crime(w, "a reader beside a writer of", name, reader - 1);
    }
}

static void leave(struct worker *w, int name, int mode)
{
    if (mode == PAWL_MODE_EXCLUSIVE)
        atomic_store(&shared->writer[name], 0);
    else
        atomic_store(&shared->reader[name][w->seat], 0);
}

static void linger_a_bit(struct worker *w)
{
    if (rnd(w, 8) == 0)
        usleep((useconds_t)rnd(w, 200));
}

/* The grant, or a code. Some are given up after a moment. */
static int get(struct worker *w, pawl_op *op)
{
    int64_t from = clock_now(), took;
    int code;

    start(&w->client, op);
    code = finish(&w->client, op, rnd(w, 6) ? 30 * SECOND : (int64_t)rnd(w, 300000));
    took = clock_now() - from;
    if (code == 0)
        atomic_fetch_add(&shared->grants, 1);
    if (took > (int64_t)atomic_load(&shared->longest))
        atomic_store(&shared->longest, (uint64_t)took);
    if (took > 10 * SECOND)
        atomic_fetch_add(&shared->late, 1);
    return code;
}

static void work_lock(struct worker *w)
{
    int name = (int)rnd(w, NAMES), mode = rnd(w, 3) ? PAWL_MODE_EXCLUSIVE : PAWL_MODE_SHARED;
    pawl_op op = acquire_op(&w->client, names[name], mode, rnd(w, 5) > 0);
    int code = get(w, &op);

    if (code) {
        if (code != PAWL_EBUSY && code != PAWL_ECANCELED)
            crime(w, "acquire says", code, 0);
        return;
    }
    enter(w, name, mode, op.token);
    linger_a_bit(w);
    if (rnd(w, 8) == 0) {
        pawl_renewal item = {.name = op.name, .owner = op.owner, .lease_ms = 30000};
        pawl_op renew = op_of(&w->client, PAWL_OP_RENEW, op.name);

        renew.batch = &item;
        renew.batch_len = 1;
        start(&w->client, &renew);
        if (item.code)
            crime(w, "renew says", item.code, 0);
    }
    leave(w, name, mode);
    code = release(&w->client, &op);
    if (code)
        crime(w, "release says", code, 0);
}

static void work_semaphore(struct worker *w)
{
    pawl_op op = acquire_op(&w->client, "s", PAWL_MODE_PERMITS, true);
    uint32_t sum = 0;
    int code;

    op.permits = 1 + (uint32_t)rnd(w, PERMITS);
    op.count = PERMITS;
    code = get(w, &op);
    if (code)
        return;
    atomic_store(&shared->permit_life[w->seat], w->life + 1);
    atomic_store(&shared->permit[w->seat], op.permits);
    for (uint32_t i = 0; i < WORKERS; i++)
        if (lives(atomic_load(&shared->permit_life[i])))
            sum += atomic_load(&shared->permit[i]);
    if (sum > PERMITS)
        crime(w, "permits", (int)sum, 0);
    linger_a_bit(w);
    atomic_store(&shared->permit[w->seat], 0);
    if (release(&w->client, &op))
        crime(w, "release of permits failed", 0, 0);
}

static void worker(uint32_t seat, uint32_t life)
{
    struct worker w = {.seat = seat, .life = life, .rng = 88172645463325252u + life * 7919u};

    if (client_open(&w.client))
        _exit(1);
    for (int more = 30; more > 0; more -= atomic_load(&shared->finish))
        rnd(&w, 4) ? work_lock(&w) : work_semaphore(&w);
    client_close(&w.client);
    _exit(0);
}

static int no_row(void *arg, const pawl_info *row)
{
    (void)arg;
    return !row->name || strlen(row->name) != 1;
}

static pid_t spawn(uint32_t seat, uint32_t *life)
{
    pid_t pid = fork();

    if (pid == 0)
        worker(seat, *life);
    ++*life;
    return pid;
}

static void test_hammer(int kills)
{
    pid_t pids[WORKERS];
    uint32_t lives_now[WORKERS], life = 0, unread = 0, stops = 0;
    struct client c;
    uint64_t rng = env_random(NULL);

    begin("killed and stopped at random, processes never leave a lock broken or stuck");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED && !client_open(&c));
    for (uint32_t i = 0; i < WORKERS; i++) {
        lives_now[i] = life;
        pids[i] = spawn(i, &life);
    }
    for (int k = 0; k < kills && life < LIVES - 1; k++) {
        uint32_t i;
        pawl_op look = op_of(&c, PAWL_OP_LIST, "?");

        rng = rng * 6364136223846793005u + 1442695040888963407u;
        i = (uint32_t)(rng >> 33) % WORKERS;
        usleep((useconds_t)(rng >> 40) % 2500);
        if (k % 7 == 0) {
            kill(pids[i], SIGSTOP);
            usleep((useconds_t)(rng >> 20) % 3000);
            if (k % 2)
                kill(pids[i], SIGCONT);
            stops++;
        }
        atomic_store(&shared->killed[lives_now[i]], true);
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
        atomic_store(&shared->permit[i], 0);
        lives_now[i] = life;
        pids[i] = spawn(i, &life);
        look.row = no_row;
        start(&c, &look);
        unread += look.code != 0;
    }
    atomic_store(&shared->finish, true);
    for (uint32_t i = 0; i < WORKERS; i++) {
        int status = 0;

        waitpid(pids[i], &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK(unread == 0 && shared->crimes == 0 && shared->late == 0);
    printf("# %d kills, %u stops, %llu grants, longest wait %llu ms\n", kills, stops,
           (unsigned long long)shared->grants, (unsigned long long)shared->longest / 1000000);
    for (int i = 0; i < NAMES; i++) {
        pawl_op op = acquire_op(&c, names[i], PAWL_MODE_EXCLUSIVE, false);

        start(&c, &op);
        CHECK(op.code == 0 && release(&c, &op) == 0);
    }
    client_close(&c);
    end();
}

int main(int argc, char **argv)
{
    char command[128];

    snprintf(folder, sizeof folder, "%s/pawl-test-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(folder))
        return 1;
    test_folders();
    test_pair();
    test_sizes();
    test_table();
    test_death();
    test_latch();
    test_hammer(argc > 1 ? atoi(argv[1]) : 2000);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command))
        failures++;
    printf("1..%d\n", number);
    return failures ? 1 : 0;
}
