/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_misc.c - counters, stripes, and error texts.
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
    pawl_lock *lock = lock_new(mine, name, NULL), *other = lock_new(yours, name, NULL);
    pawl_stats s = stats_of(mine);
    waiter w;

    CHECK_EQ(s.acquired + s.waited + s.released + s.held + s.waiting + s.lost, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
        CHECK_EQ(stats_of(mine).held, 1);
        CHECK_OK(pawl_lock_release(lock, NULL));
    }
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(other, 0, NULL), PAWL_EBUSY); /* `yours` is connected */
    waiter_start(&w, other, PAWL_FOREVER);
    await_waiting(yours, 1);
    await_waiters(yours, name, 1); /* `yours` gets this answer after the answer to the acquire */
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
