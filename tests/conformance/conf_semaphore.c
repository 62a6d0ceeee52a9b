/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_semaphore.c - semaphores: capacity, several permits at once, order, leases.
 */
#include "conf.h"

static int64_t available(pawl_semaphore *sem)
{
    int64_t n = -1;

    CHECK_OK(pawl_semaphore_available(sem, &n, NULL));
    return n;
}

CASE("a semaphore gives as many permits as its capacity and no more")
{
    const char *name = check_name("s");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_semaphore *a = sem_new(mine, name, SEM_OPTIONS(.permits = 3));
    pawl_semaphore *b = sem_new(yours, name, SEM_OPTIONS(.permits = 3));

    CHECK_OK(pawl_semaphore_acquire(a, 1, 0, NULL));
    CHECK_OK(pawl_semaphore_acquire(b, 1, 0, NULL));
    CHECK_OK(pawl_semaphore_acquire(a, 1, 0, NULL));
    CHECK_CODE(pawl_semaphore_acquire(b, 1, 0, NULL), PAWL_EBUSY);
    CHECK_CODE(pawl_semaphore_acquire(a, 1, 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_semaphore_release(b, 1, NULL));
    CHECK_OK(pawl_semaphore_acquire(a, 1, 0, NULL));
    CHECK_OK(pawl_semaphore_release(a, 3, NULL));
    CHECK_EQ(available(a), 3);
}

CASE("several permits are taken at once or not at all, and given back in parts")
{
    const char *name = check_name("s");
    pawl_semaphore *a = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 5));
    pawl_semaphore *b = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 5));

    CHECK_OK(pawl_semaphore_acquire(a, 3, 0, NULL));
    CHECK_EQ(available(b), 2);
    CHECK_CODE(pawl_semaphore_acquire(b, 3, 0, NULL), PAWL_EBUSY);
    CHECK_EQ(available(b), 2);
    CHECK_OK(pawl_semaphore_release(a, 1, NULL));
    CHECK_EQ(available(b), 3);
    CHECK_OK(pawl_semaphore_acquire(b, 3, 0, NULL));
    CHECK_EQ(available(a), 0);
    CHECK_OK(pawl_semaphore_release(a, 2, NULL));
    CHECK_OK(pawl_semaphore_release(b, 3, NULL));
    CHECK_EQ(available(a), 5);
}

CASE("a release spans several acquires, the newest first")
{
    pawl_semaphore *sem =
        sem_new(client_open(NULL), check_name("s"), SEM_OPTIONS(.permits = 6));
    uint64_t first, second;

    CHECK_OK(pawl_semaphore_acquire(sem, 2, 0, NULL));
    first = pawl_semaphore_token(sem);
    CHECK_OK(pawl_semaphore_acquire(sem, 2, 0, NULL));
    second = pawl_semaphore_token(sem);
    CHECK(second > first);
    CHECK_OK(pawl_semaphore_acquire(sem, 2, 0, NULL));
    CHECK_OK(pawl_semaphore_release(sem, 3, NULL));
    CHECK_EQ(available(sem), 3);
    CHECK_EQ(pawl_semaphore_token(sem), second);
    CHECK_OK(pawl_semaphore_release(sem, 1, NULL));
    CHECK_EQ(pawl_semaphore_token(sem), first);
    CHECK_OK(pawl_semaphore_release(sem, 2, NULL));
    CHECK_EQ(pawl_semaphore_token(sem), 0);
    CHECK_EQ(available(sem), 6);
}

CASE("a release of more permits than the handle holds is refused and changes nothing")
{
    const char *name = check_name("s");
    pawl_client *client = client_open(NULL);
    pawl_semaphore *a = sem_new(client, name, SEM_OPTIONS(.permits = 4));
    pawl_semaphore *b = sem_new(client, name, SEM_OPTIONS(.permits = 4));

    CHECK_CODE(pawl_semaphore_release(a, 1, NULL), PAWL_ENOTHELD);
    CHECK_OK(pawl_semaphore_acquire(a, 2, 0, NULL));
    CHECK_CODE(pawl_semaphore_release(a, 3, NULL), PAWL_ENOTHELD);
    CHECK_CODE(pawl_semaphore_release(b, 1, NULL), PAWL_ENOTHELD);
    CHECK_EQ(available(a), 2);
    CHECK(pawl_semaphore_valid_ms(a) > 0);
    CHECK_OK(pawl_semaphore_release(a, 2, NULL));
}

typedef struct giver {
    actor actor;
    pawl_semaphore *sem;
} giver;

static void give_one(void *arg)
{
    CHECK_OK(pawl_semaphore_release(((giver *)arg)->sem, 1, NULL));
}

CASE("two threads give back parts of one acquire at the same time")
{
    static listener e = {.line = "> release"};
    pawl_client *client = client_open_heard("delay=100,only=release", &e, NULL);
    giver g = {.sem = sem_new(client, check_name("s"), SEM_OPTIONS(.permits = 4))};

    CHECK_OK(pawl_semaphore_acquire(g.sem, 4, 0, NULL));
    for (int i = 0; i < 2; i++) {
        int before = event_count(&e.heard);

        actor_start(&g.actor, give_one, &g);
        event_await(&e.heard, before + 1);
        CHECK_OK(pawl_semaphore_release(g.sem, 1, NULL));
        actor_join(&g.actor);
    }
    CHECK_EQ(available(g.sem), 4);
    CHECK_CODE(pawl_semaphore_release(g.sem, 1, NULL), PAWL_ENOTHELD);
}

CASE("an acquire with another capacity is refused while permits are held")
{
    const char *name = check_name("s");
    pawl_semaphore *a = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 2));
    pawl_semaphore *b = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 3));

    need(PAWL_CAN_DETAIL, "the capacity is not stored");
    CHECK_OK(pawl_semaphore_acquire(a, 1, 0, NULL));
    CHECK_CODE(pawl_semaphore_acquire(b, 1, 0, NULL), PAWL_ESTATE);
    CHECK_EQ(available(a), 1);
    CHECK_OK(pawl_semaphore_release(a, 1, NULL));
    CHECK_OK(pawl_semaphore_acquire(b, 3, 0, NULL));
    CHECK_CODE(pawl_semaphore_acquire(a, 1, 0, NULL), PAWL_ESTATE);
}

CASE("without a capacity of its own a handle uses the one in force, and fails if there is none")
{
    const char *name = check_name("s");
    pawl_semaphore *a = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 2));
    pawl_semaphore *b = sem_new(client_open(NULL), name, NULL);
    int64_t n;

    CHECK_CODE(pawl_semaphore_acquire(b, 1, 0, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_semaphore_available(b, &n, NULL), PAWL_ESTATE);
    CHECK_EQ(available(a), 2);
    CHECK_OK(pawl_semaphore_acquire(a, 1, 0, NULL));
    CHECK_EQ(available(b), 1);
    CHECK_OK(pawl_semaphore_acquire(b, 1, 0, NULL));
    CHECK_CODE(pawl_semaphore_acquire(b, 1, 0, NULL), PAWL_EBUSY);
}

CASE("more permits than the capacity are refused as an invalid wish")
{
    pawl_semaphore *sem = sem_new(client_open(NULL), check_name("s"), SEM_OPTIONS(.permits = 2));

    CHECK_CODE(pawl_semaphore_acquire(sem, 3, 0, NULL), PAWL_EINVAL);
    CHECK_CODE(pawl_semaphore_acquire(sem, 3, PAWL_FOREVER, NULL), PAWL_EINVAL);
    CHECK_OK(pawl_semaphore_acquire(sem, 1, 0, NULL));
    CHECK_CODE(pawl_semaphore_acquire(sem, 3, PAWL_FOREVER, NULL), PAWL_EINVAL);
    CHECK_EQ(available(sem), 1);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

typedef struct taker {
    actor actor;
    pawl_semaphore *sem;
    uint32_t permits;
    event decided, leave;
    int code;
} taker;

static void take(void *arg)
{
    taker *t = arg;

    t->code = pawl_semaphore_acquire(t->sem, t->permits, PAWL_FOREVER, NULL);
    event_raise(&t->decided);
    if (t->code)
        return;
    event_await(&t->leave, 1);
    CHECK_OK(pawl_semaphore_release(t->sem, t->permits, NULL));
}

static void taker_start(taker *t, pawl_semaphore *sem, uint32_t permits)
{
    *t = (taker){.sem = sem, .permits = permits};
    event_init(&t->decided);
    event_init(&t->leave);
    actor_start(&t->actor, take, t);
}

static int taker_code(taker *t)
{
    event_await(&t->decided, 1);
    return t->code;
}

static void taker_leave(taker *t)
{
    event_raise(&t->leave);
    actor_join(&t->actor);
}

CASE("a big request is not starved by small ones that come later")
{
    const char *name = check_name("s");
    pawl_client *mine = client_open(NULL);
    const pawl_semaphore_options *three = SEM_OPTIONS(.permits = 3);
    pawl_semaphore *a = sem_new(mine, name, three);
    pawl_semaphore *third = sem_new(client_open(NULL), name, three);
    taker big, small;

    need_order();
    CHECK_OK(pawl_semaphore_acquire(a, 1, 0, NULL));
    taker_start(&big, sem_new(client_open(NULL), name, three), 3);
    await_waiters(mine, name, 1);
    CHECK_CODE(pawl_semaphore_acquire(third, 1, 0, NULL), PAWL_EBUSY);
    taker_start(&small, third, 1);
    await_waiters(mine, name, 2);
    CHECK_OK(pawl_semaphore_release(a, 1, NULL));
    CHECK_OK(taker_code(&big));
    CHECK_EQ(event_count(&small.decided), 0);
    taker_leave(&big);
    CHECK_OK(taker_code(&small));
    taker_leave(&small);
}

CASE("a released permit goes to a waiter")
{
    const char *name = check_name("s");
    pawl_client *mine = client_open(NULL);
    pawl_semaphore *a = sem_new(mine, name, SEM_OPTIONS(.permits = 2));
    taker t, u;

    CHECK_OK(pawl_semaphore_acquire(a, 2, 0, NULL));
    taker_start(&t, sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 2)), 1);
    taker_start(&u, a, 1);
    await_waiters(mine, name, 2);
    CHECK_OK(pawl_semaphore_release(a, 2, NULL));
    CHECK_OK(taker_code(&t));
    CHECK_OK(taker_code(&u));
    CHECK_CODE(pawl_semaphore_acquire(a, 1, 0, NULL), PAWL_EBUSY);
    taker_leave(&t);
    taker_leave(&u);
}

CASE("a wait for permits times out, not before its time, and is cancelled by its handle")
{
    const char *name = check_name("s");
    pawl_client *mine = client_open(NULL);
    pawl_semaphore *a = sem_new(mine, name, SEM_OPTIONS(.permits = 1));
    pawl_semaphore *b = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 1));
    taker t;

    CHECK_OK(pawl_semaphore_acquire(a, 1, 0, NULL));
    CHECK_CODE(pawl_semaphore_acquire(b, 1, 0, NULL), PAWL_EBUSY);
    CHECK_TIMES_OUT(pawl_semaphore_acquire(b, 1, limit_ms, NULL));
    CHECK_EQ(pawl_semaphore_cancel(b), 0);
    await_waiters(mine, name, 0); /* the server may still have the waiter that timed out */
    taker_start(&t, b, 1);
    await_waiters(mine, name, 1);
    CHECK_EQ(pawl_semaphore_cancel(b), 1);
    CHECK_CODE(taker_code(&t), PAWL_ECANCELED);
    taker_leave(&t);
    CHECK_OK(pawl_semaphore_release(a, 1, NULL));
    CHECK_OK(pawl_semaphore_acquire(b, 1, 0, NULL));
}

/* ---- Leases ---------------------------------------------------------------------------------- */

CASE("permits with a fixed lease come back by themselves, and the holder is told")
{
    static calls lost = CALLS_INIT;
    const char *name = check_name("s");
    pawl_semaphore *a = sem_new(client_open(NULL), name,
                                SEM_OPTIONS(.permits = 2, .lease_ms = SHORT_LEASE,
                                            .on_lost = count_call, .arg = &lost));
    pawl_semaphore *b = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 2));

    CHECK_OK(pawl_semaphore_acquire(a, 2, 0, NULL));
    CHECK(pawl_semaphore_valid_ms(a) > 0 && pawl_semaphore_valid_ms(a) <= SHORT_LEASE);
    CHECK_OK(pawl_semaphore_acquire(b, 1, PAWL_FOREVER, NULL));
    event_await(&lost.event, 1);
    CHECK_EQ(event_count(&lost.event), 1);
    CHECK(lost.lock == NULL);
    CHECK_CODE(lost.code, PAWL_ELOST);
    CHECK_EQ(pawl_semaphore_valid_ms(a), 0);
    CHECK_CODE(pawl_semaphore_release(a, 2, NULL), PAWL_ELOST);
    CHECK_CODE(pawl_semaphore_release(a, 2, NULL), PAWL_ENOTHELD);
    CHECK_EQ(available(b), 1);
}

struct freed_beside {
    pawl_semaphore *sem;
    event running, freed;
    int reason;
};

static void look_after_free(void *arg, pawl_lock *lock, int code)
{
    struct freed_beside *f = arg;

    (void)lock, (void)code;
    event_raise(&f->running);
    event_await(&f->freed, 1);
    f->reason = pawl_semaphore_lost_reason(f->sem);
    event_raise(&f->running);
}

CASE("on_lost may use a semaphore that another thread frees meanwhile")
{
    static struct freed_beside f = {.running = EVENT_INIT, .freed = EVENT_INIT, .reason = -1};

    f.sem = sem_new(client_open(NULL), check_name("s"),
                    SEM_OPTIONS(.permits = 2, .lease_ms = SHORT_LEASE, .on_lost = look_after_free,
                                .arg = &f));
    CHECK_OK(pawl_semaphore_acquire(f.sem, 2, 0, NULL));
    event_await(&f.running, 1);
    sem_free(f.sem);
    event_raise(&f.freed);
    event_await(&f.running, 2);
    CHECK_EQ(f.reason, 0); /* the freed handle has no permits any more */
}

CASE("the watchdog keeps permits past their lease")
{
    const char *name = check_name("s");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = RENEWED_LEASE));
    pawl_semaphore *a = sem_new(client, name, SEM_OPTIONS(.permits = 2));
    pawl_semaphore *b = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 2));

    CHECK_OK(pawl_semaphore_acquire(a, 2, 0, NULL));
    pause_ms(RENEWED_PAUSE);
    CHECK(pawl_semaphore_valid_ms(a) > 0);
    CHECK_CODE(pawl_semaphore_acquire(b, 1, 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_semaphore_release(a, 2, NULL));
}

CASE("freeing a semaphore handle and closing a client give permits back")
{
    const char *name = check_name("s");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_semaphore *a = sem_new(mine, name, SEM_OPTIONS(.permits = 4));
    pawl_semaphore *b = sem_new(yours, name, SEM_OPTIONS(.permits = 4));
    pawl_semaphore *c = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 4));

    CHECK_OK(pawl_semaphore_acquire(a, 2, 0, NULL));
    CHECK_OK(pawl_semaphore_acquire(b, 2, 0, NULL));
    sem_free(a);
    CHECK_OK(pawl_semaphore_acquire(c, 2, PAWL_FOREVER, NULL));
    client_close(yours);
    CHECK_OK(pawl_semaphore_acquire(c, 2, 0, NULL));
    CHECK_CODE(pawl_semaphore_release(b, 2, NULL), PAWL_ESTATE);
}

CASE("tokens of a semaphore rise from holder to holder")
{
    const char *name = check_name("s");
    pawl_semaphore *sems[3];
    uint64_t last = 0;

    for (int i = 0; i < 3; i++)
        sems[i] = sem_new(client_open(NULL), name, SEM_OPTIONS(.permits = 3));
    for (int i = 0; i < 9; i++) { /* the first three hold at once, then each replaces one */
        pawl_semaphore *sem = sems[i % 3];

        if (i >= 3)
            CHECK_OK(pawl_semaphore_release(sem, 1, NULL));
        CHECK_EQ(pawl_semaphore_token(sem), 0);
        CHECK_OK(pawl_semaphore_acquire(sem, 1, 0, NULL));
        CHECK(newer(pawl_semaphore_token(sem), last));
        last = pawl_semaphore_token(sem);
    }
}

/* ---- Many threads at once -------------------------------------------------------------------- */

typedef struct gate {
    actor actor;
    pawl_semaphore *sem;
    atomic_int *inside;
} gate;

static void pass_gate(void *arg)
{
    gate *g = arg;

    for (int i = 0; i < 60; i++) {
        CHECK_OK(pawl_semaphore_acquire(g->sem, 1, PAWL_FOREVER, NULL));
        CHECK(atomic_fetch_add(g->inside, 1) < 2);
        atomic_fetch_sub(g->inside, 1);
        CHECK_OK(pawl_semaphore_release(g->sem, 1, NULL));
    }
}

CASE("of six threads never more than two are inside a semaphore of two")
{
    enum { N = 6 };
    const char *name = check_name("s");
    pawl_client *clients[2] = {client_open(NULL), client_open(NULL)};
    atomic_int inside = 0;
    gate gates[N];

    for (int i = 0; i < N; i++)
        gates[i] = (gate){.inside = &inside,
                          .sem = sem_new(clients[i % 2], name, SEM_OPTIONS(.permits = 2))};
    for (int i = 0; i < N; i++)
        actor_start(&gates[i].actor, pass_gate, &gates[i]);
    for (int i = 0; i < N; i++)
        actor_join(&gates[i].actor);
    CHECK_EQ(available(gates[0].sem), 2);
}
