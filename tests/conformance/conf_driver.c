/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_driver.c - a client always has a driver: leases are renewed and callbacks run, whichever
 * threads are inside calls, return from calls, or never call.
 */
#include "conf.h"

#include <poll.h>

static const pawl_lock_options handle_owned = {.size = sizeof(pawl_lock_options),
                                               .owner = PAWL_OWNER_HANDLE};

/* ---- Leases ---------------------------------------------------------------------------------- */

typedef struct latch_waiter {
    actor actor;
    pawl_latch *latch;
} latch_waiter;

static void wait_for_latch(void *arg)
{
    CHECK_OK(pawl_latch_wait(((latch_waiter *)arg)->latch, PAWL_FOREVER, NULL));
}

CASE("leases are renewed after two calls of one client have ended together")
{
    const char *kept = check_name("kept"), *go = check_name("go");
    static listener e = {.line = "> acquire"};
    pawl_client *mine = client_open_heard(NULL, &e, CLIENT_OPTIONS(.watchdog_ms = DEATH_LEASE));
    pawl_client *yours = client_open(NULL);
    pawl_lock *lock = lock_new(mine, kept, NULL);
    pawl_latch *latch = latch_new(yours, go);
    latch_waiter waiters[2];

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    event_init(&e.heard);
    CHECK_OK(pawl_latch_set(latch, 1, NULL));
    for (int i = 0; i < 2; i++) {
        waiters[i].latch = latch_new(mine, go);
        actor_start(&waiters[i].actor, wait_for_latch, &waiters[i]);
    }
    await_latch_waiters(yours, go, 2, &e);
    CHECK_OK(pawl_latch_count_down(latch, NULL));
    for (int i = 0; i < 2; i++)
        actor_join(&waiters[i].actor);
    for (int i = 0; i < 2; i++)
        await_renewal(yours, kept);
}

CASE("leases are renewed while the program's loop stands still, also when a timer has rung unheard")
{
    static calls got = CALLS_INIT;
    const char *kept = check_name("kept"), *busy = check_name("busy");
    pawl_client *mine = client_open(CLIENT_OPTIONS(.watchdog_ms = DEATH_LEASE));
    pawl_client *yours = client_open(NULL);
    pawl_lock *lock = lock_new(mine, kept, NULL), *waits = lock_new(mine, busy, &handle_owned);
    pawl_lock *taken = lock_new(yours, busy, NULL);

    CHECK(pawl_client_fd(mine) >= 0);
    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    CHECK_OK(pawl_lock_acquire_start(waits, 20, count_call, &got));
    await_waiters(yours, busy, 0);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    for (int i = 0; i < 2; i++)
        await_renewal(yours, kept);
    CHECK_EQ(event_count(&got.event), 0);
}

/* ---- Callbacks while another thread blocks --------------------------------------------------- */

CASE("a program's loop is woken for its callbacks while another thread blocks in the same client")
{
    static calls got = CALLS_INIT, gone = CALLS_INIT;
    const char *busy = check_name("busy"), *name = check_name("x");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *taken = lock_new(yours, busy, NULL), *other = lock_new(yours, name, NULL);
    pawl_lock *lock = lock_new(mine, name, &handle_owned);
    struct pollfd p = {.fd = pawl_client_fd(mine), .events = POLLIN};
    waiter blocked;

    CHECK_OK(pawl_lock_acquire(taken, 0, NULL));
    waiter_start(&blocked, lock_new(mine, busy, NULL), PAWL_FOREVER);
    await_waiting(mine, 1);
    for (int i = 1; i <= 40; i++) {
        CHECK_OK(pawl_lock_acquire(other, PAWL_FOREVER, NULL));
        CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_call, &got));
        await_waiting(mine, 2);
        while (poll(&p, 1, 0) > 0)
            CHECK_EQ(pawl_client_process(mine), 0);
        CHECK_OK(pawl_lock_release(other, NULL));
        for (; event_count(&got.event) < i; CHECK(pawl_client_process(mine) >= 0))
            CHECK(poll(&p, 1, -1) == 1);
        CHECK_OK(pawl_lock_release_start(lock, count_call, &gone));
        for (; event_count(&gone.event) < i; CHECK(pawl_client_process(mine) >= 0))
            CHECK(poll(&p, 1, -1) == 1);
    }
    CHECK_OK(pawl_lock_release(taken, NULL));
    waiter_leave(&blocked);
}

typedef struct usher {
    actor actor;
    pawl_lock *gate; /* handle-owned: acquired by the case, released by this thread */
    calls got;
    event go, opened;
    int rounds;
} usher;

static void open_gate(void *arg)
{
    usher *u = arg;

    for (int i = 1; i <= u->rounds; i++) {
        event_await(&u->go, i);
        event_await(&u->got.event, i);
        CHECK_OK(pawl_lock_release(u->gate, NULL));
        event_raise(&u->opened);
    }
}

CASE("callbacks come while every thread of the program blocks in the same client")
{
    static usher u = {
        .got = CALLS_INIT, .go = EVENT_INIT, .opened = EVENT_INIT, .rounds = 200};
    static calls gone = CALLS_INIT;
    const char *busy = check_name("busy"), *name = check_name("x");
    pawl_client *mine = client_open(CLIENT_OPTIONS(.cohort = 1)), *yours = client_open(NULL);
    pawl_lock *gate = lock_new(mine, busy, NULL), *lock = lock_new(mine, name, &handle_owned);

    u.gate = lock_new(yours, busy, &handle_owned);
    actor_start(&u.actor, open_gate, &u);
    for (int i = 1; i <= u.rounds; i++) {
        CHECK_OK(pawl_lock_acquire(u.gate, PAWL_FOREVER, NULL));
        pause_ms(i % 3 * 2); /* so that the background thread drives by now, or has just slept */
        CHECK_OK(pawl_lock_acquire_start(lock, 0, count_call, &u.got));
        event_raise(&u.go);
        CHECK_OK(pawl_lock_acquire(gate, PAWL_FOREVER, NULL));
        CHECK_OK(pawl_lock_release(gate, NULL));
        CHECK_OK(pawl_lock_release_start(lock, count_call, &gone));
        event_await(&gone.event, i);
        event_await(&u.opened, i); /* the next owner may get the lock before the release returns */
    }
    actor_join(&u.actor);
}

/* ---- pawl_client_process without a loop ------------------------------------------------------ */

typedef struct processor {
    actor actor;
    pawl_client *client;
    atomic_bool stop;
} processor;

static void process_on(void *arg)
{
    processor *p = arg;

    while (!atomic_load(&p->stop) && pawl_client_process(p->client) >= 0)
        ;
}

typedef struct slow_calls {
    event event; /* a callback has begun */
    event ended;
    pawl_client *client;
} slow_calls;

/* Stay inside the callback until the other lock is granted, too; its callback is then queued. */
static void until_both_granted(void *arg, pawl_lock *lock, int code)
{
    slow_calls *s = arg;

    (void)lock;
    CHECK_OK(code);
    event_raise(&s->event);
    while (stats_of(s->client).acquired < 2)
        pause_ms(1);
    event_raise(&s->ended);
}

CASE("callbacks come one by one where one thread processes and another starts operations")
{
    for (int round = 0; round < 20; round++) {
        slow_calls s = {.event = EVENT_INIT, .ended = EVENT_INIT,
                        .client = client_open(NULL)};
        pawl_lock *a = lock_new(s.client, check_name("a"), &handle_owned);
        pawl_lock *b = lock_new(s.client, check_name("b"), &handle_owned);
        processor p = {.client = s.client};

        actor_start(&p.actor, process_on, &p);
        CHECK_OK(pawl_lock_acquire_start(a, PAWL_FOREVER, until_both_granted, &s));
        event_await(&s.event, 1);
        CHECK_OK(pawl_lock_acquire_start(b, PAWL_FOREVER, until_both_granted, &s));
        event_await(&s.ended, 2);
        atomic_store(&p.stop, true);
        actor_join(&p.actor);
        client_close(s.client);
        lock_free(a);
        lock_free(b);
    }
}

/* Stay inside the callback until the client is being closed. */
static void until_closed(void *arg, pawl_lock *lock, int code)
{
    slow_calls *s = arg;
    pawl_lock *probe;

    (void)lock;
    (void)code; /* the close may cancel the second acquire */
    event_raise(&s->event);
    while (pawl_lock_new(&probe, s->client, "probe", NULL, NULL) == 0) {
        pawl_lock_free(probe);
        pause_ms(1);
    }
}

CASE("a client is closed while another thread processes and is inside a callback")
{
    for (int round = 0; round < 20; round++) {
        slow_calls s = {.event = EVENT_INIT, .ended = EVENT_INIT,
                        .client = client_open(NULL)};
        pawl_lock *a = lock_new(s.client, check_name("a"), &handle_owned);
        pawl_lock *b = lock_new(s.client, check_name("b"), &handle_owned);
        processor p = {.client = s.client};

        actor_start(&p.actor, process_on, &p);
        CHECK_OK(pawl_lock_acquire_start(a, PAWL_FOREVER, until_closed, &s));
        CHECK_OK(pawl_lock_acquire_start(b, PAWL_FOREVER, until_closed, &s));
        event_await(&s.event, 1);
        client_close(s.client);
        CHECK_EQ(event_count(&s.event), 2);
        actor_join(&p.actor);
        lock_free(a); /* before, the processing thread may still use the client */
        lock_free(b);
    }
}
