/* SPDX-License-Identifier: Apache-2.0
 *
 * conf.c - helpers of the conformance cases.
 *
 * One table lists all objects that helpers make; the objects are freed when the case ends. A mutex
 * guards the table, because threads of a case make objects, too.
 */
#include "conf.h"
#include "pawl-observe.h"

#include <unistd.h>

enum thing_type { THING_NONE, THING_LOCK, THING_MULTI, THING_SEMAPHORE, THING_LATCH, THING_CLIENT };

typedef struct thing {
    void *object;
    enum thing_type type;
} thing;

static thing things[1024];
static pthread_mutex_t things_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int turns;

/* ---- Making objects -------------------------------------------------------------------------- */

static void *note(void *object, enum thing_type type)
{
    size_t i = 0;

    pthread_mutex_lock(&things_mutex);
    while (things[i].type != THING_NONE)
        CHECK(++i < sizeof things / sizeof things[0]);
    things[i] = (thing){object, type};
    pthread_mutex_unlock(&things_mutex);
    return object;
}

void forget(void *object)
{
    pthread_mutex_lock(&things_mutex);
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++)
        if (things[i].object == object)
            things[i] = (thing){NULL, THING_NONE};
    pthread_mutex_unlock(&things_mutex);
}

static void end_all(enum thing_type type)
{
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++) {
        void *object = things[i].object;

        if (things[i].type != type)
            continue;
        if (type == THING_LOCK || type == THING_MULTI)
            pawl_lock_free(object);
        else if (type == THING_SEMAPHORE)
            pawl_semaphore_free(object);
        else if (type == THING_LATCH)
            pawl_latch_free(object);
        else
            CHECK_OK(pawl_close(object));
        things[i] = (thing){NULL, THING_NONE};
    }
}

/* Multi-locks are freed before their members, handles before clients. */
void end_everything(void)
{
    end_all(THING_MULTI);
    end_all(THING_LOCK);
    end_all(THING_SEMAPHORE);
    end_all(THING_LATCH);
    end_all(THING_CLIENT);
}

static pawl_client *open_url(const char *url, const pawl_client_options *options)
{
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, url, options, &err))
        check_fail(__FILE__, __LINE__, "pawl_open %s: %s", url, err.text);
    return note(client, THING_CLIENT);
}

pawl_client *client_open(const pawl_client_options *options)
{
    return open_url(conf_url, options);
}

pawl_client *client_open_with(const char *parameter)
{
    char url[1024];

    snprintf(url, sizeof url, "%s%c%s", conf_url, strchr(conf_url, '?') ? '&' : '?', parameter);
    return open_url(url, NULL);
}

static void listen(void *arg, int level, const char *text)
{
    listener *e = arg;

    (void)level;
    if (!strncmp(text, e->line, strlen(e->line)))
        event_raise(&e->heard);
}

pawl_client *client_open_heard(const char *faults, listener *e, const pawl_client_options *options)
{
    pawl_client_options all = options ? *options : (pawl_client_options){.size = sizeof all};
    char url[1024];

    event_init(&e->heard);
    all.log = listen;
    all.log_arg = e;
    all.log_level = PAWL_LOG_DEBUG;
    snprintf(url, sizeof url, "trace:%s%s%s%s", faults ? "fault:" : "", faults ? faults : "",
             faults ? ";" : "", conf_url);
    return open_url(url, &all);
}

pawl_lock *lock_new(pawl_client *client, const char *name, const pawl_lock_options *options)
{
    pawl_lock *lock;
    pawl_error err;

    if (options && options->kind == PAWL_READ)
        need(PAWL_CAN_READ, "it has no shared locks");
    if (options && options->kind == PAWL_FAIR)
        need(PAWL_CAN_FAIR, "it has no fair locks");
    if (pawl_lock_new(&lock, client, name, options, &err))
        check_fail(__FILE__, __LINE__, "pawl_lock_new %s: %s", name, err.text);
    return note(lock, THING_LOCK);
}

pawl_lock *multi_new(pawl_lock *a, pawl_lock *b, pawl_lock *c)
{
    pawl_lock *members[3] = {a, b, c}, *multi;

    CHECK_OK(pawl_multi_new(&multi, members, c ? 3 : b ? 2 : 1, NULL));
    return note(multi, THING_MULTI);
}

pawl_semaphore *sem_new(pawl_client *client, const char *name,
                        const pawl_semaphore_options *options)
{
    pawl_semaphore *sem;

    need(PAWL_CAN_SEMAPHORE, "it has no semaphores");
    CHECK_OK(pawl_semaphore_new(&sem, client, name, options, NULL));
    return note(sem, THING_SEMAPHORE);
}

pawl_latch *latch_new(pawl_client *client, const char *name)
{
    pawl_latch *latch;

    need(PAWL_CAN_LATCH, "it has no latches");
    CHECK_OK(pawl_latch_new(&latch, client, name, NULL));
    return note(latch, THING_LATCH);
}

void client_close(pawl_client *client)
{
    forget(client);
    CHECK_OK(pawl_close(client));
}

void lock_free(pawl_lock *lock)
{
    forget(lock);
    pawl_lock_free(lock);
}

void sem_free(pawl_semaphore *sem)
{
    forget(sem);
    pawl_semaphore_free(sem);
}

void latch_free(pawl_latch *latch)
{
    forget(latch);
    pawl_latch_free(latch);
}

uint64_t all_waiting(void)
{
    uint64_t n = 0;

    pthread_mutex_lock(&things_mutex);
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++)
        if (things[i].type == THING_CLIENT)
            n += stats_of(things[i].object).waiting;
    pthread_mutex_unlock(&things_mutex);
    return n;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void waiter_main(void *arg)
{
    waiter *w = arg;

    w->code = pawl_lock_acquire(w->lock, w->wait_ms, NULL);
    if (w->code == 0) {
        w->turn = atomic_fetch_add(&turns, 1) + 1;
        w->token = pawl_lock_token(w->lock);
    }
    w->at_ms = now_ms();
    event_raise(&w->decided);
    if (w->code)
        return;
    if (!w->brief)
        event_await(&w->leave, 1);
    w->release_code = pawl_lock_release(w->lock, NULL);
}

static void waiter_begin(waiter *w, pawl_lock *lock, int64_t wait_ms, bool brief)
{
    *w = (waiter){.lock = lock, .wait_ms = wait_ms, .brief = brief};
    event_init(&w->decided);
    event_init(&w->leave);
    actor_start(&w->actor, waiter_main, w);
}

void waiter_start(waiter *w, pawl_lock *lock, int64_t wait_ms)
{
    waiter_begin(w, lock, wait_ms, false);
}

void waiter_start_brief(waiter *w, pawl_lock *lock, int64_t wait_ms)
{
    waiter_begin(w, lock, wait_ms, true);
}

int waiter_code(waiter *w)
{
    event_await(&w->decided, 1);
    return w->code;
}

void waiter_join(waiter *w)
{
    event_raise(&w->leave);
    actor_join(&w->actor);
}

void waiter_leave(waiter *w)
{
    waiter_join(w);
    CHECK_OK(w->code);
    CHECK_OK(w->release_code);
}

typedef struct errand {
    int (*fn)(void *arg);
    void *arg;
    int result;
} errand;

static void run_errand(void *arg)
{
    errand *e = arg;

    e->result = e->fn(e->arg);
}

int in_thread(int (*fn)(void *arg), void *arg)
{
    errand e = {.fn = fn, .arg = arg};
    actor a;

    actor_start(&a, run_errand, &e);
    actor_join(&a);
    return e.result;
}

static int acquire_once(void *arg)
{
    return pawl_lock_acquire(arg, 0, NULL);
}

static int try_once(void *arg)
{
    int code = pawl_lock_acquire(arg, 0, NULL);

    if (code == 0)
        CHECK_OK(pawl_lock_release(arg, NULL));
    return code;
}

static int release_once(void *arg)
{
    return pawl_lock_release(arg, NULL);
}

int acquire_in_thread(pawl_lock *lock)
{
    return in_thread(acquire_once, lock);
}

typedef struct start {
    pawl_lock *lock;
    pawl_done_fn *done;
    void *arg;
} start;

static int start_once(void *arg)
{
    start *s = arg;

    return pawl_lock_acquire_start(s->lock, PAWL_FOREVER, s->done, s->arg);
}

int start_in_thread(pawl_lock *lock, pawl_done_fn *done, void *arg)
{
    start s = {lock, done, arg};

    return in_thread(start_once, &s);
}

int try_in_thread(pawl_lock *lock)
{
    return in_thread(try_once, lock);
}

int release_in_thread(pawl_lock *lock)
{
    return in_thread(release_once, lock);
}

void check_held(const pawl_lock *lock)
{
    char cause[512];

    if (pawl_lock_held(lock) != 1)
        check_fail(__FILE__, __LINE__, "the lock is not held: %s",
                   pawl_lock_lost_cause(lock, cause, sizeof cause));
}

int try_as_stranger(const char *name, uint64_t kind)
{
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, LOCK_OPTIONS(.kind = kind));
    int code = try_in_thread(lock);

    lock_free(lock);
    client_close(client);
    return code;
}

/* ---- Callbacks and rows ---------------------------------------------------------------------- */

/* The callbacks of two clients may run at the same time. */
void count_call(void *arg, pawl_lock *lock, int code)
{
    calls *c = arg;
    int held = lock ? pawl_lock_held(lock) : -1;
    uint64_t token = lock ? pawl_lock_token(lock) : 0;

    pthread_mutex_lock(&c->event.mutex);
    c->lock = lock;
    c->code = code;
    c->thread = pthread_self();
    c->held = held;
    c->token = token;
    pthread_mutex_unlock(&c->event.mutex);
    event_raise(&c->event);
}

int collect_row(void *arg, const pawl_info *info)
{
    rows *all = arg;
    row *r = &all->row[all->n];

    CHECK(all->n < sizeof all->row / sizeof all->row[0]);
    all->n++;
    r->info = *info;
    snprintf(r->name, sizeof r->name, "%s", info->name);
    snprintf(r->host, sizeof r->host, "%s", info->host);
    snprintf(r->program, sizeof r->program, "%s", info->program);
    snprintf(r->label, sizeof r->label, "%s", info->label);
    snprintf(r->owner, sizeof r->owner, "%s", info->owner);
    return 0;
}

void inspect_rows(pawl_client *client, const char *name, rows *ret)
{
    ret->n = 0;
    CHECK_OK(pawl_inspect(client, name, collect_row, ret, NULL));
}

/* ---- Peers ----------------------------------------------------------------------------------- */

void hold_until_told(peer *parent, void *arg)
{
    pawl_lock *lock = lock_new(client_open(CLIENT_OPTIONS(.watchdog_ms = DEATH_LEASE)),
                               check_name("p"), LOCK_OPTIONS(.kind = *(uint64_t *)arg));

    peer_recv(parent);
    CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
    peer_send(parent, pawl_lock_token(lock));
    peer_recv(parent);
    CHECK_OK(pawl_lock_release(lock, NULL));
}
