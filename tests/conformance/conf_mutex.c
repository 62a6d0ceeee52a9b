/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_mutex.c - mutual exclusion, and tokens that rise.
 */
#include "conf.h"

#include <sched.h>

CASE("a free lock is acquired at the first try")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("m"), NULL);

    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_EQ(pawl_lock_held(lock), 1);
    CHECK(newer(pawl_lock_token(lock), 0));
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_EQ(pawl_lock_token(lock), 0);
}

CASE("a held lock is busy for a try by another client, and free for it after the release")
{
    const char *name = check_name("m");
    pawl_lock *mine = lock_new(client_open(NULL), name, NULL);
    pawl_lock *yours = lock_new(client_open(NULL), name, NULL);

    CHECK_OK(pawl_lock_acquire(mine, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(yours, 0, NULL), PAWL_EBUSY);
    CHECK_EQ(pawl_lock_held(yours), 0);
    CHECK_EQ(pawl_lock_held(mine), 1);
    CHECK_OK(pawl_lock_release(mine, NULL));
    CHECK_OK(pawl_lock_acquire(yours, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(mine, 0, NULL), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(yours, NULL));
}

CASE("a held lock is busy for another thread of the same client")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("m"), NULL);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(try_in_thread(lock), PAWL_EBUSY);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(try_in_thread(lock));
}

CASE("different names do not exclude each other")
{
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, check_name("a"), NULL);
    pawl_lock *b = lock_new(client, check_name("b"), NULL);

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    CHECK_OK(try_as_stranger(check_name("c"), PAWL_MUTEX));
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_EQ(pawl_lock_held(b), 1);
    CHECK_OK(pawl_lock_release(b, NULL));
}

CASE("names of any allowed bytes are kept apart: case, length, spaces, slashes, globs, UTF-8")
{
    enum { N = 14 };
    static char names[N][256];
    const char *tails[N] = {"a",  "A",  "a ",         "a/b", "a//b", "a*", "a?",
                            "%61", "a#1", "\xc3\xa4", "[a]", "{a}", "a:b", NULL};
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *held[N];

    for (int i = 0; i < N; i++) {
        const char *tail = tails[i] ? tails[i] : "";
        size_t used = (size_t)snprintf(names[i], sizeof names[i], "%s%s", check_name("n"), tail);

        if (!tails[i])
            memset(names[i] + used, 'x', 255 - used); /* the longest valid name */
        held[i] = lock_new(mine, names[i], NULL);
        CHECK_STR(pawl_lock_name(held[i]), names[i]);
        CHECK_OK(pawl_lock_acquire(held[i], 0, NULL));
    }
    for (int i = 0; i < N; i++) {
        pawl_lock *lock = lock_new(yours, names[i], NULL);

        CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_EBUSY);
        CHECK_OK(pawl_lock_release(held[i], NULL));
        CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    }
}

CASE("every exclusive kind excludes every other")
{
    static const uint64_t kinds[] = {PAWL_MUTEX, PAWL_FAIR, PAWL_WRITE, PAWL_SPIN};
    const char *name = check_name("m");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);

    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            if (!can(PAWL_CAN_FAIR) && (kinds[i] == PAWL_FAIR || kinds[k] == PAWL_FAIR))
                continue;
            pawl_lock *a = lock_new(mine, name, LOCK_OPTIONS(.kind = kinds[i]));
            pawl_lock *b = lock_new(yours, name, LOCK_OPTIONS(.kind = kinds[k]));

            CHECK_OK(pawl_lock_acquire(a, 0, NULL));
            CHECK_CODE(pawl_lock_acquire(b, 0, NULL), PAWL_EBUSY);
            CHECK_OK(pawl_lock_release(a, NULL));
            CHECK_OK(pawl_lock_acquire(b, 0, NULL));
            CHECK_OK(pawl_lock_release(b, NULL));
        }
}

CASE("a lock is taken and given back a thousand times, each time with a larger token")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("m"), NULL);
    uint64_t last = 0;

    for (int i = 0; i < 1000; i++) {
        CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
        CHECK(newer(pawl_lock_token(lock), last));
        last = pawl_lock_token(lock);
        CHECK_OK(pawl_lock_release(lock, NULL));
    }
}

CASE("tokens rise from client to client, and when a client comes back")
{
    const char *name = check_name("m");
    uint64_t last = 0;

    for (int i = 0; i < 20; i++) {
        pawl_client *client = client_open(NULL);
        pawl_lock *lock = lock_new(client, name, NULL);

        CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
        CHECK(newer(pawl_lock_token(lock), last));
        last = pawl_lock_token(lock);
        if (i % 2)
            CHECK_OK(pawl_lock_release(lock, NULL));
        lock_free(lock);
        client_close(client);
    }
}

/* ---- Many threads at once -------------------------------------------------------------------- */

/* A counter and the last token. If two threads hold the lock at once, the counter loses increments,
 * or the token falls. */
typedef struct tally {
    atomic_llong value;
    atomic_ullong token;
} tally;

typedef struct worker {
    actor actor;
    pawl_lock *lock;
    tally *tally;
    int rounds;
} worker;

static void add_one(tally *t, pawl_lock *lock)
{
    long long seen = atomic_load_explicit(&t->value, memory_order_relaxed);
    uint64_t token = pawl_lock_token(lock);

    CHECK(newer(token, atomic_load_explicit(&t->token, memory_order_relaxed)));
    atomic_store_explicit(&t->token, token, memory_order_relaxed);
    sched_yield();
    CHECK_EQ(pawl_lock_held(lock), 1);
    atomic_store_explicit(&t->value, seen + 1, memory_order_relaxed);
}

static void work(void *arg)
{
    worker *w = arg;

    for (int i = 0; i < w->rounds; i++) {
        CHECK_OK(pawl_lock_acquire(w->lock, PAWL_FOREVER, NULL));
        add_one(w->tally, w->lock);
        CHECK_OK(pawl_lock_release(w->lock, NULL));
    }
}

/* Eight threads, which use the clients in turn. */
static void race(pawl_client **clients, int nclients, uint64_t kind)
{
    enum { THREADS = 8, ROUNDS = 150 };
    tally shared = {0, 0};
    worker workers[THREADS];
    const char *name = check_name("m");

    for (int i = 0; i < THREADS; i++)
        workers[i] = (worker){
            .lock = lock_new(clients[i % nclients], name, LOCK_OPTIONS(.kind = kind)),
            .tally = &shared,
            .rounds = ROUNDS,
        };
    for (int i = 0; i < THREADS; i++)
        actor_start(&workers[i].actor, work, &workers[i]);
    for (int i = 0; i < THREADS; i++)
        actor_join(&workers[i].actor);
    CHECK_EQ(atomic_load(&shared.value), THREADS * ROUNDS);
}

CASE("eight threads of one client lose no increment and see tokens rise")
{
    pawl_client *client = client_open(NULL);

    race(&client, 1, PAWL_MUTEX);
}

CASE("eight threads of four clients lose no increment and see tokens rise")
{
    pawl_client *clients[4];

    for (int i = 0; i < 4; i++)
        clients[i] = client_open(NULL);
    race(clients, 4, PAWL_MUTEX);
}

CASE("eight threads of four clients lose no increment under a fair lock")
{
    pawl_client *clients[4];

    for (int i = 0; i < 4; i++)
        clients[i] = client_open(NULL);
    race(clients, 4, PAWL_FAIR);
}

CASE("eight threads of two clients lose no increment under a write lock")
{
    pawl_client *clients[2] = {client_open(NULL), client_open(NULL)};

    race(clients, 2, PAWL_WRITE);
}
