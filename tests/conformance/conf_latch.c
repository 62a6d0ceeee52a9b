/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_latch.c - the count-down latch; and a name has one type only.
 */
#include "conf.h"

static int64_t count_of(pawl_latch *latch)
{
    int64_t n = -1;

    CHECK_OK(pawl_latch_count(latch, &n, NULL));
    return n;
}

typedef struct latch_waiter {
    actor actor;
    pawl_latch *latch;
    event decided;
    int code;
} latch_waiter;

static void wait_for_latch(void *arg)
{
    latch_waiter *w = arg;

    w->code = pawl_latch_wait(w->latch, PAWL_FOREVER, NULL);
    event_raise(&w->decided);
}

static void latch_waiter_start(latch_waiter *w, pawl_latch *latch)
{
    *w = (latch_waiter){.latch = latch};
    event_init(&w->decided);
    actor_start(&w->actor, wait_for_latch, w);
}

CASE("a latch that is not set has the count 0, and waits return at once")
{
    pawl_latch *latch = latch_new(client_open(NULL), check_name("c"));

    CHECK_EQ(count_of(latch), 0);
    CHECK_OK(pawl_latch_wait(latch, 0, NULL));
    CHECK_OK(pawl_latch_wait(latch, PAWL_FOREVER, NULL));
    CHECK_OK(pawl_latch_count_down(latch, NULL));
    CHECK_EQ(count_of(latch), 0);
}

CASE("a latch counts down to 0, stays there, and can be set again")
{
    const char *name = check_name("c");
    pawl_latch *a = latch_new(client_open(NULL), name), *b = latch_new(client_open(NULL), name);

    for (int round = 0; round < 3; round++) {
        CHECK_OK(pawl_latch_set(a, 2, NULL));
        CHECK_EQ(count_of(b), 2);
        CHECK_CODE(pawl_latch_wait(b, 0, NULL), PAWL_EBUSY);
        CHECK_OK(pawl_latch_count_down(b, NULL));
        CHECK_EQ(count_of(a), 1);
        CHECK_CODE(pawl_latch_wait(a, 0, NULL), PAWL_EBUSY);
        CHECK_OK(pawl_latch_count_down(a, NULL));
        CHECK_EQ(count_of(b), 0);
        CHECK_OK(pawl_latch_wait(b, 0, NULL));
        CHECK_OK(pawl_latch_count_down(b, NULL));
        CHECK_EQ(count_of(a), 0);
    }
}

CASE("a latch above 0 refuses to be set again, and a count below 1 is invalid")
{
    const char *name = check_name("c");
    pawl_latch *a = latch_new(client_open(NULL), name), *b = latch_new(client_open(NULL), name);

    CHECK_CODE(pawl_latch_set(a, 0, NULL), PAWL_EINVAL);
    CHECK_CODE(pawl_latch_set(a, -1, NULL), PAWL_EINVAL);
    CHECK_EQ(count_of(a), 0);
    CHECK_OK(pawl_latch_set(a, 3, NULL));
    CHECK_CODE(pawl_latch_set(b, 5, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_latch_set(a, 3, NULL), PAWL_ESTATE);
    CHECK_EQ(count_of(b), 3);
}

CASE("all waiters of a latch return when it reaches 0 and none before")
{
    enum { N = 12 };
    const char *name = check_name("c");
    static listener e = {.line = "> acquire"};
    pawl_client *clients[3] = {client_open_heard(NULL, &e, NULL),
                               client_open_heard(NULL, &e, NULL),
                               client_open_heard(NULL, &e, NULL)};
    pawl_latch *latch = latch_new(clients[0], name);
    latch_waiter w[N];

    CHECK_OK(pawl_latch_set(latch, 3, NULL));
    for (int i = 0; i < N; i++)
        latch_waiter_start(&w[i], latch_new(clients[i % 3], name));
    await_latch_waiters(clients[0], name, N, &e);
    CHECK_OK(pawl_latch_count_down(latch, NULL));
    CHECK_OK(pawl_latch_count_down(latch, NULL));
    for (int i = 0; i < N; i++)
        CHECK_EQ(event_count(&w[i].decided), 0);
    CHECK_OK(pawl_latch_count_down(latch, NULL));
    for (int i = 0; i < N; i++) {
        actor_join(&w[i].actor);
        CHECK_OK(w[i].code);
    }
}

CASE("a wait for a latch times out, not before its time")
{
    pawl_latch *latch = latch_new(client_open(NULL), check_name("c"));

    CHECK_OK(pawl_latch_set(latch, 1, NULL));
    CHECK_TIMES_OUT(pawl_latch_wait(latch, limit_ms, NULL));
    CHECK_EQ(count_of(latch), 1);
}

CASE("a wait for a latch is cancelled by its handle, and by closing its client")
{
    const char *name = check_name("c");
    static listener e = {.line = "> acquire"};
    pawl_client *mine = client_open_heard(NULL, &e, NULL);
    pawl_client *yours = client_open_heard(NULL, &e, NULL);
    pawl_latch *a = latch_new(mine, name), *b = latch_new(yours, name);
    latch_waiter first, second;

    CHECK_OK(pawl_latch_set(a, 1, NULL));
    latch_waiter_start(&first, a);
    latch_waiter_start(&second, b);
    await_latch_waiters(mine, name, 2, &e);
    CHECK_EQ(pawl_latch_cancel(a), 1);
    actor_join(&first.actor);
    CHECK_CODE(first.code, PAWL_ECANCELED);
    CHECK_EQ(event_count(&second.decided), 0);
    client_close(yours);
    actor_join(&second.actor);
    CHECK_CODE(second.code, PAWL_ECANCELED);
    CHECK_EQ(pawl_latch_cancel(a), 0);
    CHECK_EQ(count_of(a), 1);
}

static void count_down(void *arg)
{
    CHECK_OK(pawl_latch_count_down(((latch_waiter *)arg)->latch, NULL));
}

CASE("cancelling the waits of a latch does not cancel a count-down that is under way")
{
    static listener e = {.line = "> latch-down"};
    latch_waiter w = {.latch = latch_new(client_open_heard("delay=150,only=latch-down", &e, NULL),
                                         check_name("l"))};

    CHECK_OK(pawl_latch_set(w.latch, 3, NULL));
    actor_start(&w.actor, count_down, &w);
    event_await(&e.heard, 1);
    CHECK_EQ(pawl_latch_cancel(w.latch), 0);
    actor_join(&w.actor);
    CHECK_EQ(count_of(w.latch), 2);
}

CASE("a latch stays set when the client that set it is gone")
{
    const char *name = check_name("c");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_latch *a = latch_new(mine, name), *b = latch_new(yours, name);

    CHECK_OK(pawl_latch_set(a, 2, NULL));
    latch_free(a);
    client_close(mine);
    CHECK_EQ(count_of(b), 2);
    CHECK_OK(pawl_latch_count_down(b, NULL));
    CHECK_OK(pawl_latch_count_down(b, NULL));
}

typedef struct counter {
    actor actor;
    pawl_latch *latch;
} counter;

static void count_down_often(void *arg)
{
    counter *c = arg;

    for (int i = 0; i < 50; i++)
        CHECK_OK(pawl_latch_count_down(c->latch, NULL));
}

CASE("count-downs of many threads are each counted once")
{
    enum { N = 4 };
    const char *name = check_name("c");
    pawl_client *clients[2] = {client_open(NULL), client_open(NULL)};
    counter counters[N];
    pawl_latch *latch = latch_new(clients[0], name);

    CHECK_OK(pawl_latch_set(latch, N * 50 + 7, NULL));
    for (int i = 0; i < N; i++) {
        counters[i].latch = latch_new(clients[i % 2], name);
        actor_start(&counters[i].actor, count_down_often, &counters[i]);
    }
    for (int i = 0; i < N; i++)
        actor_join(&counters[i].actor);
    CHECK_EQ(count_of(latch), 7);
    for (int i = 0; i < 7; i++)
        CHECK_OK(pawl_latch_count_down(latch, NULL));
}

/* ---- One name, one type ---------------------------------------------------------------------- */

CASE("a name that is in use as a lock is refused as a semaphore and as a latch")
{
    const char *name = check_name("t");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, NULL);
    pawl_semaphore *sem = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 2));
    pawl_latch *latch = latch_new(client, name);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_semaphore_acquire(sem, 1, 0, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_semaphore_acquire(sem, 1, PAWL_FOREVER, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_latch_set(latch, 1, NULL), PAWL_ESTATE);
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
}

CASE("a name that is in use as a semaphore or a latch is refused as a lock")
{
    const char *name = check_name("t"), *other = check_name("u");
    pawl_client *client = client_open(NULL);
    pawl_semaphore *sem = sem_new(client, name, SEM_OPTIONS(.permits = 2));
    pawl_latch *latch = latch_new(client, other);

    CHECK_OK(pawl_semaphore_acquire(sem, 1, 0, NULL));
    CHECK_OK(pawl_latch_set(latch, 1, NULL));
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_ESTATE);
    CHECK_CODE(try_as_stranger(name, PAWL_READ), PAWL_ESTATE);
    CHECK_CODE(try_as_stranger(other, PAWL_MUTEX), PAWL_ESTATE);
    CHECK_OK(pawl_semaphore_release(sem, 1, NULL));
    CHECK_OK(pawl_latch_count_down(latch, NULL));
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX),
               can(PAWL_CAN_DETAIL) ? 0 : PAWL_ESTATE); /* else the number stays */
    CHECK_OK(try_as_stranger(other, PAWL_MUTEX));
}
