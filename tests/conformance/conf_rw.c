/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_rw.c - the read-write lock: readers share, a writer is alone, and no waiter starves.
 */
#include "conf.h"

static pawl_lock *reader(pawl_client *client, const char *name)
{
    return lock_new(client, name, LOCK_OPTIONS(.kind = PAWL_READ));
}

static pawl_lock *writer(pawl_client *client, const char *name)
{
    return lock_new(client, name, LOCK_OPTIONS(.kind = PAWL_WRITE));
}

CASE("readers of several clients hold a lock together, and a writer gets it after the last")
{
    const char *name = check_name("rw");
    pawl_client *third = client_open(NULL);
    pawl_lock *a = reader(client_open(NULL), name), *b = reader(client_open(NULL), name);
    pawl_lock *c = reader(third, name), *w = writer(third, name);

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    CHECK_OK(pawl_lock_acquire(c, 0, NULL));
    CHECK_EQ(pawl_lock_held(a) + pawl_lock_held(b) + pawl_lock_held(c), 3);
    CHECK_OK(pawl_lock_release(c, NULL));
    CHECK_CODE(pawl_lock_acquire(w, 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_CODE(pawl_lock_acquire(w, 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(b, NULL));
    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
}

CASE("readers in several threads of one client hold a lock together")
{
    const char *name = check_name("rw");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = reader(client, name);
    waiter a, b;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    waiter_start(&a, lock, 0);
    waiter_start(&b, lock, 0);
    CHECK_OK(waiter_code(&a));
    CHECK_OK(waiter_code(&b));
    CHECK_OK(pawl_lock_release(lock, NULL));
    waiter_leave(&a);
    CHECK_CODE(try_as_stranger(name, PAWL_WRITE), PAWL_EBUSY);
    waiter_leave(&b);
    CHECK_OK(try_as_stranger(name, PAWL_WRITE));
}

CASE("a writer keeps readers and writers out")
{
    const char *name = check_name("rw");
    pawl_client *client = client_open(NULL);
    pawl_lock *w = writer(client, name);

    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
    CHECK_CODE(try_in_thread(reader(client, name)), PAWL_EBUSY);
    CHECK_CODE(try_as_stranger(name, PAWL_READ), PAWL_EBUSY);
    CHECK_CODE(try_as_stranger(name, PAWL_WRITE), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(w, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_READ));
}

CASE("a mutex and a reader of the same name exclude each other")
{
    const char *name = check_name("rw");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *mutex = lock_new(mine, name, NULL), *r = reader(yours, name);

    CHECK_OK(pawl_lock_acquire(mutex, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(r, 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(mutex, NULL));
    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(mutex, 0, NULL), PAWL_EBUSY);
    CHECK_CODE(try_as_stranger(name, PAWL_FAIR), PAWL_EBUSY);
    CHECK_CODE(try_as_stranger(name, PAWL_SPIN), PAWL_EBUSY);
}

CASE("a waiting writer is not starved by readers that come later")
{
    const char *name = check_name("rw");
    pawl_client *mine = client_open(NULL);
    pawl_lock *r = reader(mine, name);
    waiter w, late;

    need_order();
    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    waiter_start(&w, writer(client_open(NULL), name), PAWL_FOREVER);
    await_waiters(mine, name, 1);
    CHECK_CODE(try_as_stranger(name, PAWL_READ), PAWL_EBUSY);
    waiter_start(&late, reader(client_open(NULL), name), PAWL_FOREVER);
    await_waiters(mine, name, 2);
    CHECK_OK(pawl_lock_release(r, NULL));
    CHECK_OK(waiter_code(&w));
    CHECK_EQ(event_count(&late.decided), 0);
    waiter_leave(&w);
    CHECK_OK(waiter_code(&late));
    waiter_leave(&late);
    CHECK(w.turn < late.turn);
}

CASE("a waiting writer is not starved by readers of its own client that come later")
{
    const char *name = check_name("rw");
    pawl_client *client = client_open(NULL);
    pawl_lock *r = reader(client, name);
    waiter w;

    need_order();
    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    waiter_start(&w, writer(client, name), PAWL_FOREVER);
    await_waiters(client, name, 1);
    CHECK_CODE(try_in_thread(r), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(r, NULL));
    CHECK_OK(waiter_code(&w));
    waiter_leave(&w);
}

CASE("readers that wait behind a writer are let in together")
{
    const char *name = check_name("rw");
    pawl_client *mine = client_open(NULL);
    pawl_lock *w = writer(mine, name);
    waiter a, b;

    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
    waiter_start(&a, reader(client_open(NULL), name), PAWL_FOREVER);
    await_waiters(mine, name, 1);
    waiter_start(&b, reader(client_open(NULL), name), PAWL_FOREVER);
    await_waiters(mine, name, 2);
    CHECK_OK(pawl_lock_release(w, NULL));
    CHECK_OK(waiter_code(&a)); /* neither releases before both have the lock */
    CHECK_OK(waiter_code(&b));
    waiter_leave(&a);
    waiter_leave(&b);
}

CASE("a waiting writer that gives up lets the readers behind it in")
{
    const char *name = check_name("rw");
    pawl_client *mine = client_open(NULL);
    pawl_lock *r = reader(mine, name), *lock = writer(client_open(NULL), name);
    waiter w, late;

    need_order();
    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    waiter_start(&w, lock, PAWL_FOREVER);
    await_waiters(mine, name, 1);
    waiter_start(&late, reader(client_open(NULL), name), PAWL_FOREVER);
    await_waiters(mine, name, 2);
    CHECK_EQ(pawl_lock_cancel(lock), 1);
    CHECK_CODE(waiter_code(&w), PAWL_ECANCELED);
    CHECK_OK(waiter_code(&late)); /* while the first reader still reads */
    waiter_leave(&late);
    waiter_join(&w);
    CHECK_OK(pawl_lock_release(r, NULL));
}

CASE("a writer can read too, and goes on reading when it stops writing")
{
    const char *name = check_name("rw");
    pawl_client *client = client_open(NULL);
    pawl_lock *w = writer(client, name), *r = reader(client, name);

    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    CHECK_CODE(try_as_stranger(name, PAWL_READ), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(w, NULL));
    CHECK_EQ(pawl_lock_held(w), 0);
    CHECK_EQ(pawl_lock_held(r), 1);
    CHECK_OK(try_as_stranger(name, PAWL_READ));
    CHECK_CODE(try_as_stranger(name, PAWL_WRITE), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(r, NULL));
    CHECK_OK(try_as_stranger(name, PAWL_WRITE));
}

CASE("a writer that also reads enters either once more")
{
    const char *name = check_name("rw");
    pawl_client *client = client_open(NULL);
    pawl_lock *writes = writer(client, name), *reads = reader(client, name);

    CHECK_OK(pawl_lock_acquire(writes, 0, NULL));
    CHECK_OK(pawl_lock_acquire(reads, 0, NULL));
    CHECK_OK(pawl_lock_acquire(writes, 0, NULL));
    CHECK_OK(pawl_lock_acquire(reads, 0, NULL));
    CHECK_EQ(pawl_lock_hold_count(writes), 2);
    CHECK_EQ(pawl_lock_hold_count(reads), 2);
}

CASE("a writer becomes a reader at once even if a writer waits")
{
    const char *name = check_name("rw");
    pawl_client *client = client_open(NULL);
    pawl_lock *w = writer(client, name), *r = reader(client, name);
    waiter next;

    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
    waiter_start(&next, writer(client_open(NULL), name), PAWL_FOREVER);
    await_waiters(client, name, 1);
    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    CHECK_OK(pawl_lock_release(w, NULL));
    CHECK_EQ(event_count(&next.decided), 0);
    CHECK_OK(pawl_lock_release(r, NULL));
    CHECK_OK(waiter_code(&next));
    waiter_leave(&next);
}

CASE("a reader that asks to write is told that it would wait for itself, and goes on reading")
{
    const char *name = check_name("rw");
    pawl_client *client = client_open(NULL);
    pawl_lock *r = reader(client, name);
    static const uint64_t kinds[] = {PAWL_WRITE, PAWL_MUTEX, PAWL_FAIR};

    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    for (int i = 0; i < 3; i++) {
        pawl_lock *w = lock_new(client, name, LOCK_OPTIONS(.kind = kinds[i]));

        CHECK_CODE(pawl_lock_acquire(w, PAWL_FOREVER, NULL), PAWL_EDEADLK);
        CHECK_CODE(pawl_lock_acquire(w, 0, NULL), PAWL_EDEADLK);
        CHECK_EQ(pawl_lock_held(w), 0);
    }
    CHECK_EQ(pawl_lock_held(r), 1);
    CHECK_OK(try_as_stranger(name, PAWL_READ));
    CHECK_OK(pawl_lock_release(r, NULL));
}

CASE("a reader reads again at once even if a writer waits")
{
    const char *name = check_name("rw");
    pawl_client *client = client_open(NULL);
    pawl_lock *r = reader(client, name);
    uint64_t token;
    waiter w;

    CHECK_OK(pawl_lock_acquire(r, 0, NULL));
    token = pawl_lock_token(r);
    waiter_start(&w, writer(client_open(NULL), name), PAWL_FOREVER);
    await_waiters(client, name, 1);
    CHECK_OK(pawl_lock_acquire(r, PAWL_FOREVER, NULL));
    CHECK_EQ(pawl_lock_hold_count(r), 2);
    CHECK_EQ(pawl_lock_token(r), token);
    CHECK_OK(pawl_lock_release(r, NULL));
    CHECK_EQ(event_count(&w.decided), 0);
    CHECK_OK(pawl_lock_release(r, NULL));
    CHECK_OK(waiter_code(&w));
    waiter_leave(&w);
}

CASE("tokens rise across readers and writers")
{
    const char *name = check_name("rw");
    pawl_client *client = client_open(NULL);
    pawl_lock *a = reader(client_open(NULL), name), *b = reader(client_open(NULL), name);
    pawl_lock *w = writer(client, name);
    uint64_t first, second;

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    first = pawl_lock_token(a);
    second = pawl_lock_token(b);
    CHECK(first > 0 && second > first);
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_OK(pawl_lock_release(b, NULL));
    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
    CHECK(newer(pawl_lock_token(w), second));
    first = pawl_lock_token(w);
    CHECK_OK(pawl_lock_release(w, NULL));
    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK(newer(pawl_lock_token(a), first));
}

CASE("release by a reader does not end the others' reading")
{
    const char *name = check_name("rw");
    pawl_client *mine = client_open(NULL);
    pawl_lock *a = reader(mine, name), *b = reader(client_open(NULL), name);

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_CODE(pawl_lock_release(b, NULL), PAWL_ENOTHELD);
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_CODE(pawl_lock_release(a, NULL), PAWL_ENOTHELD);
    CHECK_EQ(pawl_lock_held(b), 1);
    CHECK_CODE(try_as_stranger(name, PAWL_WRITE), PAWL_EBUSY);
}

CASE("a reader's lease ends by itself and the other reader keeps its own")
{
    static calls lost = CALLS_INIT;
    const char *name = check_name("rw");
    pawl_client *mine = client_open(NULL);
    pawl_lock *a = lock_new(mine, name,
                            LOCK_OPTIONS(.kind = PAWL_READ, .lease_ms = SHORT_LEASE,
                                         .on_lost = count_call, .arg = &lost));
    pawl_lock *b = reader(client_open(NULL), name);
    waiter w;

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    waiter_start(&w, writer(client_open(NULL), name), PAWL_FOREVER);
    event_await(&lost.event, 1);
    CHECK_EQ(pawl_lock_held(a), 0);
    CHECK_EQ(pawl_lock_held(b), 1);
    CHECK_EQ(event_count(&w.decided), 0);
    CHECK_OK(pawl_lock_release(b, NULL));
    CHECK_OK(waiter_code(&w));
    CHECK_CODE(pawl_lock_release(a, NULL), PAWL_ELOST);
    waiter_leave(&w);
}

CASE("two handle owners read together inside one thread")
{
    const char *name = check_name("rw");
    pawl_client *client = client_open(NULL);
    const pawl_lock_options *options =
        LOCK_OPTIONS(.kind = PAWL_READ, .owner = PAWL_OWNER_HANDLE);
    pawl_lock *a = lock_new(client, name, options), *b = lock_new(client, name, options);

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    CHECK_EQ(pawl_lock_hold_count(a), 1);
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_EQ(pawl_lock_held(b), 1);
    CHECK_OK(pawl_lock_release(b, NULL));
}

/* ---- Many threads at once -------------------------------------------------------------------- */

typedef struct crowd {
    const char *name;
    atomic_int reading, writing;
} crowd;

typedef struct guest {
    actor actor;
    crowd *crowd;
    pawl_lock *reads, *writes;
    unsigned seed;
} guest;

static void come_and_go(void *arg)
{
    guest *g = arg;

    for (int i = 0; i < 80; i++) {
        bool writes = rand_r(&g->seed) % 3 == 0;
        pawl_lock *lock = writes ? g->writes : g->reads;
        atomic_int *inside = writes ? &g->crowd->writing : &g->crowd->reading;

        CHECK_OK(pawl_lock_acquire(lock, PAWL_FOREVER, NULL));
        CHECK(atomic_fetch_add(inside, 1) == 0 || !writes);
        CHECK_EQ(atomic_load(writes ? &g->crowd->reading : &g->crowd->writing), 0);
        atomic_fetch_sub(inside, 1);
        CHECK_OK(pawl_lock_release(lock, NULL));
    }
}

CASE("among six threads of three clients no reader ever meets a writer")
{
    enum { N = 6 };
    crowd all = {.name = check_name("rw")};
    pawl_client *clients[3] = {client_open(NULL), client_open(NULL), client_open(NULL)};
    guest guests[N];

    for (int i = 0; i < N; i++)
        guests[i] = (guest){.crowd = &all, .seed = (unsigned)i,
                            .reads = reader(clients[i % 3], all.name),
                            .writes = writer(clients[i % 3], all.name)};
    for (int i = 0; i < N; i++)
        actor_start(&guests[i].actor, come_and_go, &guests[i]);
    for (int i = 0; i < N; i++)
        actor_join(&guests[i].actor);
}
