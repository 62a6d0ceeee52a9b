/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_misc.c - counters, stripes, texts, fork: what belongs to no primitive.
 */
#include "conf.h"

static uint64_t sum(const uint64_t *buckets)
{
    uint64_t n = 0;

    for (int i = 0; i < PAWL_BUCKETS; i++)
        n += buckets[i];
    return n;
}

CASE("the counters tell what a client did")
{
    const char *name = check_name("n");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, NULL);
    pawl_stats s = stats_of(mine);
    waiter w;

    CHECK_EQ(s.acquired + s.waited + s.released + s.held + s.waiting + s.lost, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
        CHECK_EQ(stats_of(mine).held, 1);
        CHECK_OK(pawl_lock_release(lock, NULL));
    }
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    waiter_start(&w, lock_new(yours, name, NULL), PAWL_FOREVER);
    await_waiting(yours, 1);
    await_waiters(mine, name, 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
    waiter_leave(&w);
    s = stats_of(mine);
    CHECK_EQ(s.acquired, 4);
    CHECK_EQ(s.released, 4);
    CHECK_EQ(s.waited, 0);
    CHECK_EQ(s.held, 0);
    CHECK_EQ(sum(s.wait_us), 4);
    CHECK_EQ(sum(s.hold_us), 4);
    s = stats_of(yours);
    CHECK_EQ(s.acquired, 1);
    CHECK_EQ(s.waited, 1);
    CHECK_EQ(s.released, 1);
    CHECK_EQ(s.waiting, 0);
    CHECK_EQ(sum(s.wait_us), 1);
}

CASE("a long wait and a long hold are in their buckets")
{
    const char *name = check_name("n");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, NULL);
    uint64_t held = 0, waited = 0;
    pawl_stats s;
    waiter w;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    waiter_start(&w, lock_new(yours, name, NULL), PAWL_FOREVER);
    await_waiters(mine, name, 1);
    pause_ms(20);
    CHECK_OK(pawl_lock_release(lock, NULL));
    waiter_leave(&w);
    s = stats_of(mine);
    for (int i = 14; i < PAWL_BUCKETS; i++) /* 2^14 us are 16 ms */
        held += s.hold_us[i];
    s = stats_of(yours);
    for (int i = 14; i < PAWL_BUCKETS; i++)
        waited += s.wait_us[i];
    CHECK_EQ(held, 1);
    CHECK_EQ(waited, 1);
}

CASE("counters are refused to a struct of no size, and given in part to a short one")
{
    pawl_client *client = client_open(NULL);
    pawl_stats s = {.size = 0};

    CHECK_CODE(pawl_client_stats(client, &s), PAWL_EINVAL);
    s.size = 16;
    s.waited = 4711;
    CHECK_OK(pawl_client_stats(client, &s));
    CHECK_EQ(s.waited, 4711);
}

/* ---- Stripes --------------------------------------------------------------------------------- */

CASE("a key belongs to the same stripe always, and keys spread over all stripes")
{
    char name[64], again[64];
    int used[8] = {0};

    for (int i = 0; i < 400; i++) {
        char key[16];
        int stripe = -1;

        snprintf(key, sizeof key, "item %d", i);
        CHECK_OK(pawl_stripe(name, sizeof name, "stock", key, strlen(key), 8));
        CHECK_OK(pawl_stripe(again, sizeof again, "stock", key, strlen(key), 8));
        CHECK_STR(again, name);
        CHECK_EQ(sscanf(name, "stock#%d", &stripe), 1);
        CHECK(stripe >= 0 && stripe < 8);
        used[stripe]++;
    }
    for (int i = 0; i < 8; i++)
        CHECK(used[i] > 20);
}

CASE("stripes are the same in every version")
{
    static const struct {
        const char *key, *stripe;
    } known[] = {{"", "stock#458"}, {"a", "stock#429"}, {"item 42", "stock#967"},
                 {"4711", "stock#306"}, {"\xc3\xa4pfel", "stock#597"}};
    char name[64];

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        CHECK_OK(pawl_stripe(name, sizeof name, "stock", known[i].key, strlen(known[i].key),
                             1000));
        CHECK_STR(name, known[i].stripe);
    }
}

CASE("no stripes and no room are refused, and keys may be any bytes or none")
{
    char name[16];

    CHECK_CODE(pawl_stripe(name, sizeof name, "a", "k", 1, 0), PAWL_EINVAL);
    CHECK_CODE(pawl_stripe(name, 3, "a", "k", 1, 1), PAWL_EINVAL);
    CHECK_OK(pawl_stripe(name, 4, "a", "k", 1, 1));
    CHECK_STR(name, "a#0");
    CHECK_OK(pawl_stripe(name, sizeof name, "", "\0\n", 2, 1));
    CHECK_STR(name, "#0");
    CHECK_OK(pawl_stripe(name, sizeof name, "a", "", 0, 1));
    CHECK_STR(name, "a#0");
}

/* ---- Texts ----------------------------------------------------------------------------------- */

CASE("every code has a name and a text, unknown ones too")
{
#define CHECK_TEXTS(name, value, text)                                                             \
    CHECK_STR(pawl_errname(PAWL_##name), "PAWL_" #name);                                           \
    CHECK_STR(pawl_strerror(PAWL_##name), text);
    PAWL_ERRORS(CHECK_TEXTS)
#undef CHECK_TEXTS
    CHECK_STR(pawl_errname(0), "PAWL_OK");
    CHECK(pawl_strerror(0) && pawl_strerror(0)[0]);
    CHECK(pawl_errname(4711) && pawl_errname(4711)[0]);
    CHECK(pawl_strerror(-4711) && pawl_strerror(-4711)[0]);
}

CASE("the library's version is the header's")
{
    char version[32];

    snprintf(version, sizeof version, "%d.%d.%d", PAWL_VERSION_MAJOR, PAWL_VERSION_MINOR,
             PAWL_VERSION_PATCH);
    CHECK_STR(pawl_version(), version);
}

/* ---- Fork ------------------------------------------------------------------------------------ */

typedef struct family {
    pawl_client *client;
    pawl_lock *lock;
    pawl_semaphore *sem;
    pawl_latch *latch;
    calls *done;
} family;

static int call_as_child(void *arg)
{
    family *f = arg;
    pawl_lock *lock;
    int64_t n;

    CHECK_CODE(pawl_lock_release(f->lock, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_lock_acquire(f->lock, 0, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_lock_acquire(f->lock, PAWL_FOREVER, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_lock_renew(f->lock, 0, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_lock_break(f->lock, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_lock_acquire_start(f->lock, 0, count_call, f->done), PAWL_EFORK);
    CHECK_CODE(pawl_lock_release_start(f->lock, count_call, f->done), PAWL_EFORK);
    CHECK_CODE(pawl_lock_new(&lock, f->client, "x", NULL, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_semaphore_release(f->sem, 1, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_semaphore_acquire(f->sem, 1, 0, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_latch_count(f->latch, &n, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_latch_wait(f->latch, 0, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_list(f->client, NULL, collect_row, NULL, NULL), PAWL_EFORK);
    CHECK_CODE(pawl_client_process(f->client), PAWL_EFORK);
    CHECK_CODE(pawl_client_fd(f->client), PAWL_EFORK);
    CHECK_EQ(pawl_lock_held(f->lock), 0);
    CHECK_EQ(pawl_lock_valid_ms(f->lock), 0);
    CHECK_CODE(pawl_close(f->client), PAWL_EFORK);
    pawl_lock_free(f->lock);
    pawl_semaphore_free(f->sem);
    return 0;
}

CASE("a forked child's calls are refused, and the parent keeps its locks")
{
    static calls done = CALLS_INIT;
    const char *name = check_name("f");
    pawl_client *client = client_open(CLIENT_OPTIONS(.watchdog_ms = 1500));
    family f = {.client = client, .lock = lock_new(client, name, NULL),
                .sem = sem_new(client, check_name("s"), SEM_OPTIONS(.permits = 1)),
                .latch = latch_new(client, check_name("l")), .done = &done};
    uint64_t token;

    CHECK_OK(pawl_lock_acquire(f.lock, 0, NULL));
    CHECK_OK(pawl_semaphore_acquire(f.sem, 1, 0, NULL));
    token = pawl_lock_token(f.lock);
    CHECK_EQ(in_child(call_as_child, &f), 0);
    CHECK_EQ(pawl_lock_held(f.lock), 1);
    CHECK_EQ(pawl_lock_token(f.lock), token);
    CHECK(pawl_semaphore_valid_ms(f.sem) > 0);
    CHECK_CODE(try_as_stranger(name, PAWL_MUTEX), PAWL_EBUSY);
    pause_ms(2000); /* the parent's renewals go on */
    CHECK_EQ(pawl_lock_held(f.lock), 1);
    CHECK_OK(pawl_semaphore_release(f.sem, 1, NULL));
    CHECK_OK(pawl_lock_release(f.lock, NULL));
    CHECK_EQ(event_count(&done.event), 0);
}

static int open_as_child(void *arg)
{
    const char *name = arg;
    pawl_client *client;
    pawl_lock *lock;

    CHECK_OK(pawl_open(&client, conf_url, NULL, NULL));
    CHECK_OK(pawl_lock_new(&lock, client, name, NULL, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 20000, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
    return 0;
}

CASE("a forked child can open a client of its own")
{
    char name[64];
    pawl_lock *lock;

#ifdef __SANITIZE_THREAD__
    check_skip("ThreadSanitizer allows no new threads after such a fork");
#endif
    lock = lock_new(client_open(NULL), check_name("f"), NULL);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    snprintf(name, sizeof name, "%s", check_name("g"));
    CHECK_EQ(in_child(open_as_child, name), 0);
    CHECK_EQ(pawl_lock_held(lock), 1);
}
