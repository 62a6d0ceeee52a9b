/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_callback.c - calls that are allowed inside callbacks, and calls that are refused there.
 */
#include <unistd.h>

#include "conf.h"
#include "pawl-observe.h"

typedef struct scene {
    event done;
    pawl_client *client;
    pawl_lock *lock, *other;
    pawl_semaphore *sem;
    pawl_latch *latch;
    int count;
} scene;

static int ignore_row(void *arg, const pawl_info *info)
{
    (void)arg;
    (void)info;
    return 0;
}

/* Every blocking call returns PAWL_EDEADLK and does nothing. */
static void call_what_blocks(scene *s)
{
    pawl_client *client;
    int64_t n;

    CHECK_CODE(pawl_lock_acquire(s->other, 0, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_lock_acquire(s->other, PAWL_FOREVER, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_lock_release(s->lock, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_lock_renew(s->lock, 0, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_lock_break(s->lock, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_semaphore_acquire(s->sem, 1, 0, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_semaphore_release(s->sem, 1, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_semaphore_available(s->sem, &n, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_latch_set(s->latch, 1, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_latch_count_down(s->latch, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_latch_count(s->latch, &n, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_latch_wait(s->latch, 0, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_inspect(s->client, "x", ignore_row, NULL, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_list(s->client, NULL, ignore_row, NULL, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_client_process(s->client), PAWL_EDEADLK);
    CHECK_CODE(pawl_open(&client, conf_url, NULL, NULL), PAWL_EDEADLK);
    CHECK_CODE(pawl_close(s->client), PAWL_EDEADLK);
}

static void on_done(void *arg, pawl_lock *lock, int code)
{
    scene *s = arg;

    CHECK_OK(code);
    CHECK(lock == s->lock);
    call_what_blocks(s);
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK(pawl_lock_valid_ms(lock) > 0);
    event_raise(&s->done);
}

static void set_scene(scene *s)
{
    event_init(&s->done);
    s->client = client_open(NULL);
    s->other = lock_new(s->client, check_name("other"), NULL);
    s->sem = sem_new(s->client, check_name("sem"), SEM_OPTIONS(.permits = 1));
    s->latch = latch_new(s->client, check_name("latch"));
}

CASE("blocking calls are refused in a done callback and have no effect")
{
    static scene s;
    int64_t n;

    set_scene(&s);
    s.lock = lock_new(s.client, check_name("x"), LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));
    CHECK_OK(pawl_lock_acquire_start(s.lock, 0, on_done, &s));
    event_await(&s.done, 1);
    CHECK_OK(try_as_stranger(check_name("other"), PAWL_MUTEX));
    CHECK_OK(pawl_latch_count(s.latch, &n, NULL));
    CHECK_EQ(n, 0);
    CHECK_EQ(pawl_lock_held(s.lock), 1);
    CHECK_OK(pawl_lock_release(s.lock, NULL)); /* the client is still open */
}

static void on_lost(void *arg, pawl_lock *lock, int code)
{
    scene *s = arg;

    CHECK_CODE(code, PAWL_ELOST);
    CHECK(lock == s->lock);
    call_what_blocks(s);
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_EQ(pawl_lock_valid_ms(lock), 0);
    event_raise(&s->done);
}

CASE("blocking calls are refused in on_lost and have no effect")
{
    static scene s;

    set_scene(&s);
    s.lock = lock_new(s.client, check_name("x"),
                      LOCK_OPTIONS(.lease_ms = SHORT_LEASE, .on_lost = on_lost, .arg = &s));
    CHECK_OK(pawl_lock_acquire(s.lock, 0, NULL));
    event_await(&s.done, 1);
    CHECK_OK(try_as_stranger(check_name("other"), PAWL_MUTEX));
    CHECK_CODE(pawl_lock_release(s.lock, NULL), PAWL_ELOST);
}

static int row_that_locks(void *arg, const pawl_info *info)
{
    scene *s = arg;

    (void)info;
    CHECK_OK(pawl_lock_acquire(s->other, 0, NULL));
    CHECK_OK(pawl_inspect(s->client, "x", ignore_row, NULL, NULL));
    CHECK_OK(pawl_lock_release(s->other, NULL));
    s->count++;
    return 0;
}

CASE("the row function of an inspection may make blocking calls")
{
    static scene s;

    set_scene(&s);
    CHECK_OK(pawl_inspect(s.client, check_name("x"), row_that_locks, &s, NULL));
    CHECK_EQ(s.count, 1);
}

static void cancel_other(void *arg, pawl_lock *lock, int code)
{
    scene *s = arg;

    (void)lock;
    CHECK_OK(code);
    s->count = pawl_lock_cancel(s->other);
    event_raise(&s->done);
}

CASE("a wait is cancelled from a callback")
{
    static scene s;
    const char *name = check_name("other");
    pawl_lock *taken = lock_new(client_open(NULL), name, NULL);
    waiter w;

    set_scene(&s);
    s.lock = lock_new(s.client, check_name("x"), LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));
    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    waiter_start(&w, s.other, PAWL_FOREVER);
    await_waiters(s.client, name, 1);
    CHECK_OK(pawl_lock_acquire_start(s.lock, 0, cancel_other, &s));
    CHECK_CODE(waiter_code(&w), PAWL_ECANCELED);
    event_await(&s.done, 1);
    CHECK_EQ(s.count, 1);
    waiter_join(&w);
}

static void second_done(void *arg, pawl_lock *lock, int code)
{
    CHECK_OK(code);
    CHECK_EQ(pawl_lock_held(lock), 1);
    event_raise(arg);
}

static void start_second(void *arg, pawl_lock *lock, int code)
{
    scene *s = arg;

    (void)lock;
    CHECK_OK(code);
    CHECK_OK(pawl_lock_acquire_start(s->other, PAWL_FOREVER, second_done, &s->done));
}

CASE("a callback starts the next operation")
{
    static scene s;

    set_scene(&s);
    s.lock = lock_new(s.client, check_name("x"), LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));
    s.other = lock_new(s.client, check_name("y"), LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));
    CHECK_OK(pawl_lock_acquire_start(s.lock, PAWL_FOREVER, start_second, &s));
    event_await(&s.done, 1);
    CHECK_EQ(pawl_lock_held(s.lock) + pawl_lock_held(s.other), 2);
}

static void make_and_free(void *arg, pawl_lock *lock, int code)
{
    scene *s = arg;
    pawl_lock *fresh;

    (void)lock;
    CHECK_OK(code);
    CHECK_OK(pawl_lock_new(&fresh, s->client, "any", NULL, NULL));
    CHECK_STR(pawl_lock_name(fresh), "any");
    pawl_lock_free(fresh);
    event_raise(&s->done);
}

CASE("a callback makes and frees handles")
{
    static scene s;

    set_scene(&s);
    s.lock = lock_new(s.client, check_name("x"), LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE));
    CHECK_OK(pawl_lock_acquire_start(s.lock, PAWL_FOREVER, make_and_free, &s));
    event_await(&s.done, 1);
}

CASE("on_lost is not called for a handle that was freed")
{
    static calls lost = CALLS_INIT;
    pawl_lock *lock = lock_new(
        client_open(NULL), check_name("x"),
        LOCK_OPTIONS(.lease_ms = SHORT_LEASE, .on_lost = count_call, .arg = &lost));

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    lock_free(lock);
    pause_ms(SHORT_LEASE + 200);
    CHECK_EQ(event_count(&lost.event), 0);
}

/* ---- The owner of the hold ------------------------------------------------------------------- */

CASE("inside the callback of a re-entry through a second handle the lock is held")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_client *client = client_open(NULL);
    pawl_lock *first = lock_new(client, name, NULL), *second = lock_new(client, name, NULL);

    CHECK_OK(pawl_lock_acquire(first, 0, NULL));
    CHECK_OK(pawl_lock_acquire_start(second, 0, count_call, &got));
    event_await(&got.event, 1);
    CHECK_OK(got.code);
    CHECK_EQ(got.held, 1);
    CHECK_EQ(got.token, pawl_lock_token(first));
}

CASE("a grant that was lost before its callback came is told once, and released after that")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_client *client = client_open(NULL), *other = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, LOCK_OPTIONS(.lease_ms = 50));
    pawl_lock *second = lock_new(client, name, LOCK_OPTIONS(.lease_ms = 50));
    rows seen;

    CHECK(pawl_client_fd(client) >= 0);
    CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_call, &got));
    while (stats_of(client).acquired < 1) /* a call that blocks drives, and runs no callbacks */
        inspect_rows(client, name, &seen);
    await_free(other, name);
    CHECK_CODE(pawl_lock_release(second, NULL), PAWL_ESTATE);
    CHECK_EQ(pawl_client_process(client), 1);
    CHECK_EQ(event_count(&got.event), 1);
    CHECK_OK(got.code);
    CHECK_EQ(got.held, 0);
    CHECK_CODE(pawl_lock_release(second, NULL), PAWL_ELOST);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ENOTHELD);
}

CASE("a grant to a thread that has ended is not renewed")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("x");
    pawl_client *mine = client_open(CLIENT_OPTIONS(.watchdog_ms = 200));
    pawl_client *yours = client_open(NULL);
    pawl_lock *taken = lock_new(yours, name, NULL);
    pawl_lock *lock = lock_new(mine, name, NULL);

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_OK(start_in_thread(lock, count_call, &got));
    await_waiters(yours, name, 1);
    CHECK_OK(pawl_lock_release(taken, NULL));
    event_await(&got.event, 1);
    CHECK_OK(got.code);
    CHECK_OK(pawl_lock_acquire(taken, 20000, NULL));
    CHECK_EQ(stats_of(mine).orphaned, 1);
}

/* ---- Handles freed before their callback ----------------------------------------------------- */

static void tell_code(void *arg, pawl_lock *lock, int code)
{
    calls *c = arg;

    (void)lock; /* freed meanwhile */
    c->code = code;
    event_raise(&c->event);
}

CASE("done of a waiting handle that is freed is never 0, also if the grant came first")
{
    static calls got = CALLS_INIT;
    const char *name = check_name("a");
    pawl_client *client = client_open(NULL);
    const pawl_lock_options *handle = LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE);

    CHECK(pawl_client_fd(client) >= 0); /* callbacks run only when this case calls process */
    for (int i = 1; i <= 20; i++) {
        pawl_lock *first = lock_new(client, name, handle), *second = lock_new(client, name, handle);

        CHECK_OK(pawl_lock_acquire(first, 20000, NULL));
        CHECK_OK(pawl_lock_acquire_start(second, PAWL_FOREVER, tell_code, &got));
        lock_free(first);
        lock_free(second);
        while (event_count(&got.event) < i)
            CHECK(pawl_client_process(client) >= 0);
        CHECK_CODE(got.code, PAWL_ECANCELED);
    }
}

/* ---- The reason of a loss -------------------------------------------------------------------- */

/* Check the text of a loss by a break: it names the client that broke the lock if the service tells
 * which client did. */
static void check_broken_cause(const char *cause)
{
    char by[64];

    snprintf(by, sizeof by, "it was broken by pid %d ", (int)getpid());
    if (can(PAWL_CAN_NAME_BREAKER))
        CHECK(!strncmp(cause, by, strlen(by)) && strstr(cause, "(an operator)"));
    else
        CHECK(!strcmp(cause, pawl_lost_text(broken_reason())));
}

CASE("a lock that is lost says why, until it is released")
{
    static calls lost = CALLS_INIT;
    const char *name = check_name("a");
    pawl_client *mine = client_open(NULL);
    pawl_client *yours = client_open(CLIENT_OPTIONS(.label = "an operator"));
    pawl_lock *lock = lock_new(mine, name, LOCK_OPTIONS(.on_lost = count_call, .arg = &lost));
    pawl_lock *brief = lock_new(mine, check_name("b"), LOCK_OPTIONS(.lease_ms = SHORT_LEASE));
    char cause[256] = "?";
    pawl_error err;
    int why;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_EQ(pawl_lock_lost_reason(lock), PAWL_LOST_NOT);
    CHECK_OK(pawl_lock_break(lock_new(yours, name, NULL), NULL));
    event_await(&lost.event, 1);
    why = pawl_lock_lost_reason(lock);
    CHECK_EQ(why, broken_reason());
    check_broken_cause(pawl_lock_lost_cause(lock, cause, sizeof cause));
    CHECK_CODE(pawl_lock_release(lock, &err), PAWL_ELOST);
    CHECK(strstr(err.text, cause));
    CHECK_EQ(pawl_lock_lost_reason(lock), PAWL_LOST_NOT);
    CHECK(!pawl_lock_lost_cause(lock, cause, sizeof cause)[0]);
    CHECK_OK(pawl_lock_acquire(brief, 0, NULL));
    while (pawl_lock_held(brief))
        pause_ms(10);
    CHECK_EQ(pawl_lock_lost_reason(brief), PAWL_LOST_ENDED);
    CHECK_CODE(pawl_lock_release(brief, &err), PAWL_ELOST);
    CHECK(strstr(err.text, pawl_lost_text(PAWL_LOST_ENDED)));
}

CASE("readers, a writer and permits that are broken say so")
{
    static calls lost = CALLS_INIT;
    const char *names[] = {check_name("r"), check_name("w"), check_name("s")};
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    static const uint64_t kinds[] = {PAWL_READ, PAWL_WRITE};
    pawl_semaphore *sem;
    int told = 0;

    for (size_t i = 0; i < 2; i++) {
        pawl_lock *lock = lock_new(mine, names[i], LOCK_OPTIONS(.kind = kinds[i], .arg = &lost,
                                                                .on_lost = count_call));

        CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
        CHECK_OK(pawl_lock_break(lock_new(yours, names[i], NULL), NULL));
        event_await(&lost.event, ++told);
        CHECK_EQ(pawl_lock_lost_reason(lock), broken_reason());
        CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    }
    if (!can(PAWL_CAN_SEMAPHORE))
        return;
    sem = sem_new(mine, names[2], SEM_OPTIONS(.permits = 3, .on_lost = count_call, .arg = &lost));
    CHECK_OK(pawl_semaphore_acquire(sem, 2, 0, NULL));
    CHECK_OK(pawl_lock_break(lock_new(yours, names[2], NULL), NULL));
    event_await(&lost.event, ++told);
    CHECK_EQ(pawl_semaphore_lost_reason(sem), broken_reason());
    CHECK_CODE(pawl_semaphore_release(sem, 2, NULL), PAWL_ELOST);
}

CASE("a lock that was waited for and is broken at once says so")
{
    static calls lost = CALLS_INIT, done = CALLS_INIT;
    const char *name = check_name("b");
    /* An engine without events learns of a break by its next renewal: here, within 3 s. */
    pawl_client *mine = client_open(CLIENT_OPTIONS(.watchdog_ms = 9000));
    pawl_lock *first = lock_new(mine, name, NULL);
    pawl_lock *second = lock_new(mine, name, LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE,
                                                          .on_lost = count_call, .arg = &lost));

    for (int i = 1; i <= 8; i++) { /* the engine may learn of the loss in two ways */
        CHECK_OK(pawl_lock_acquire(first, 20000, NULL));
        CHECK_OK(pawl_lock_acquire_start(second, PAWL_FOREVER, count_call, &done));
        CHECK_OK(pawl_lock_release(first, NULL));
        event_await(&done.event, i);
        CHECK_OK(pawl_lock_break(first, NULL));
        event_await(&lost.event, i);
        CHECK_EQ(pawl_lock_lost_reason(second), broken_reason());
        CHECK_CODE(pawl_lock_release(second, NULL), PAWL_ELOST);
    }
}
