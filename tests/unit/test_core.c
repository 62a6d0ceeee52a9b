/* SPDX-License-Identifier: Apache-2.0
 *
 * test_core.c - parts of the core that can be tested separately: timers, URLs, options, modules,
 * validity arithmetic, histograms.
 */
#include <stdlib.h>

#include "check.h"
#include "core.h"

/* ---- events of an engine --------------------------------------------------------------------- */

static int delivered;

static void count_delivery(pawl_op *op)
{
    (void)op;
    delivered++;
}

CASE("an event is kept until an EVENT op comes; the largest is delivered, with its reason, once")
{
    pawl_op op = {.kind = PAWL_OP_EVENT, .done = count_delivery};
    pawl_events e = {0};

    pawl_events_report(&e, PAWL_EVENT_VERIFY, PAWL_LOST_BROKEN);
    pawl_events_report(&e, PAWL_EVENT_RECONNECT, 0);
    pawl_events_report(&e, PAWL_EVENT_VERIFY, 0);
    CHECK_EQ(delivered, 0);
    pawl_events_submit(&e, &op);
    CHECK_EQ(delivered, 1);
    CHECK_OK(op.code);
    CHECK_EQ(op.event, PAWL_EVENT_RECONNECT);
    CHECK_EQ(op.reason, PAWL_LOST_BROKEN);
    pawl_events_submit(&e, &op);
    CHECK_EQ(delivered, 1);
    pawl_events_report(&e, PAWL_EVENT_FAILOVER, 0);
    CHECK_EQ(delivered, 2);
    CHECK_EQ(op.event, PAWL_EVENT_FAILOVER);
    CHECK_EQ(op.reason, 0);
}

CASE("the end of a session outweighs a break, before and after")
{
    pawl_op op = {.kind = PAWL_OP_EVENT, .done = count_delivery};
    pawl_events e = {0};

    pawl_events_report(&e, PAWL_EVENT_VERIFY, PAWL_LOST_BROKEN);
    pawl_events_report(&e, PAWL_EVENT_LOST, 0);
    pawl_events_report(&e, PAWL_EVENT_VERIFY, PAWL_LOST_BROKEN);
    pawl_events_submit(&e, &op);
    CHECK_EQ(op.event, PAWL_EVENT_LOST);
    CHECK_EQ(op.reason, 0);
    pawl_events_submit(&e, &op);
    pawl_events_end(&e);
    CHECK_CODE(op.code, PAWL_ECANCELED);
    CHECK(!e.op);
}

/* ---- timers ---------------------------------------------------------------------------------- */

static uint64_t chance = 7;

static uint64_t draw(uint64_t n)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance % n;
}

CASE("timers come out in order of time whatever order they are set and cleared in")
{
    enum { N = 400 };
    static pawl_timer timers[N];
    struct timers heap = {0};

    for (int round = 0; round < 50; round++) {
        int64_t last = 0;
        size_t set = 0, taken = 0;

        for (int i = 0; i < 3000; i++) {
            pawl_timer *t = &timers[draw(N)];

            if (draw(3))
                pawl__timers_set(&heap, t, (int64_t)draw(1000));
            else
                pawl__timers_clear(&heap, t);
        }
        for (int i = 0; i < N; i++)
            set += timers[i].armed;
        for (pawl_timer *t; (t = pawl__timers_take(&heap, 1000)); taken++) {
            CHECK(t->due >= last);
            CHECK(!t->armed);
            last = t->due;
        }
        CHECK_EQ(taken, set);
        CHECK_EQ(pawl__timers_next(&heap), PAWL_NEVER);
    }
}

CASE("a timer that is not due stays")
{
    struct timers heap = {0};
    pawl_timer t = {0};

    pawl__timers_set(&heap, &t, 100);
    CHECK(pawl__timers_take(&heap, 99) == NULL);
    CHECK(pawl__timers_take(&heap, 100) == &t);
}

/* ---- URLs ------------------------------------------------------------------------------------ */

static void check_bad_url(const char *text, const char *hint)
{
    pawl_url url;
    pawl_error err = {0};

    CHECK_CODE(pawl__url_parse(&url, text, &err), PAWL_EINVAL);
    if (!strstr(err.text, hint))
        check_fail(__FILE__, __LINE__, "'%s' does not say '%s'", err.text, hint);
}

CASE("a URL is taken apart into scheme, rest and decoded parameters")
{
    pawl_url url;

    CHECK_OK(pawl__url_parse(&url, "local:/a/b%20c?x=1%262&y=", NULL));
    CHECK_STR(url.scheme, "local");
    CHECK_STR(url.rest, "/a/b%20c");
    CHECK_EQ(url.nparams, 2);
    CHECK_STR(pawl_url_param(&url, "x"), "1&2");
    CHECK_STR(pawl_url_param(&url, "y"), "");
    CHECK(pawl_url_param(&url, "z") == NULL);
    CHECK_OK(pawl__url_all_used(&url, NULL));
    pawl__url_free(&url);
}

CASE("an engine around engines gets the inner URL whole")
{
    pawl_url url;

    CHECK_OK(pawl__url_parse(&url, "trace:redis://h/?prefix=a&x=b", NULL));
    CHECK_STR(url.rest, "redis://h/?prefix=a&x=b");
    CHECK_EQ(url.nparams, 0);
    pawl__url_free(&url);
}

CASE("what is wrong with a URL is said")
{
    check_bad_url("", "not a URL");
    check_bad_url("/var/lock", "not a URL");
    check_bad_url("Local:", "not a URL");
    check_bad_url("local:?x", "key=value");
    check_bad_url("local:?=1", "key=value");
    check_bad_url("local:?x=%4", "escape");
    check_bad_url("local:?x=%zz", "escape");
    check_bad_url("local:?x=a%00b", "escape");
    check_bad_url("local:?x=%", "escape");
    check_bad_url("local:?x=1&x=2", "twice");
    CHECK_CODE(pawl__url_parse(NULL, NULL, NULL), PAWL_EINVAL);
}

CASE("a password in a URL that can't be understood is not repeated in the words about it")
{
    static const char *const urls[] = {"Redis://:hunter2@host", "redis//u:hunter2@h",
                                       "redis://h?password:hunter2", "local:?x=1&pass hunter2"};
    pawl_url url;
    pawl_error err;

    for (size_t i = 0; i < sizeof urls / sizeof urls[0]; i++) {
        CHECK_CODE(pawl__url_parse(&url, urls[i], &err), PAWL_EINVAL);
        CHECK(!strstr(err.text, "hunter2"));
    }
}

CASE("a parameter that nobody reads is refused by name")
{
    pawl_url url;
    pawl_error err;

    CHECK_OK(pawl__url_parse(&url, "local:?othres=allow", NULL));
    CHECK_CODE(pawl__url_all_used(&url, &err), PAWL_EINVAL);
    CHECK(strstr(err.text, "othres"));
    pawl__url_free(&url);
}

/* ---- options --------------------------------------------------------------------------------- */

CASE("an option struct of an older or newer header is read as far as it goes")
{
    struct {
        uint64_t size, a, b, c;
    } wide = {sizeof wide, 1, 2, 0};
    struct {
        uint64_t size, a, b;
    } mine;

    CHECK_OK(pawl__options_copy(&mine, sizeof mine, &wide, "o", NULL));
    CHECK_EQ(mine.b, 2);
    wide.c = 1;
    CHECK_CODE(pawl__options_copy(&mine, sizeof mine, &wide, "o", NULL), PAWL_EINVAL);
    wide.size = 16;
    CHECK_OK(pawl__options_copy(&mine, sizeof mine, &wide, "o", NULL));
    CHECK_EQ(mine.a, 1);
    CHECK_EQ(mine.b, 0);
    wide.size = 0;
    CHECK_CODE(pawl__options_copy(&mine, sizeof mine, &wide, "o", NULL), PAWL_EINVAL);
    CHECK_OK(pawl__options_copy(&mine, sizeof mine, NULL, "o", NULL));
}

/* ---- validity -------------------------------------------------------------------------------- */

CASE("validity ends before the lease, by a margin that fits it, and does not overflow")
{
    int64_t ms = PAWL_NS_PER_MS;

    CHECK_EQ(pawl__valid_until(1000 * ms, 30000), (1000 + 30000 - 300 - 2) * ms);
    CHECK(pawl__valid_until(0, 10) > 0);
    CHECK(pawl__valid_until(0, 10) < 10 * ms);
    CHECK(pawl__valid_until(0, 1) > 0);
    CHECK_EQ(pawl__valid_until(5, INT64_MAX / 2), PAWL_NEVER);
}

CASE("a duration is counted in the bucket of its power of two")
{
    uint64_t buckets[PAWL_BUCKETS] = {0};

    pawl__histogram_add(buckets, -5);
    pawl__histogram_add(buckets, 999);
    pawl__histogram_add(buckets, 1000);
    pawl__histogram_add(buckets, 2000);
    pawl__histogram_add(buckets, 1000000);
    pawl__histogram_add(buckets, INT64_MAX);
    CHECK_EQ(buckets[0], 3);
    CHECK_EQ(buckets[1], 1);
    CHECK_EQ(buckets[9], 1);
    CHECK_EQ(buckets[PAWL_BUCKETS - 1], 1);
}

/* ---- modules --------------------------------------------------------------------------------- */

static int is_free(void *arg, const pawl_info *info)
{
    *(int *)arg += info->role == PAWL_ROLE_SUMMARY;
    return 0;
}

CASE("an engine module is loaded by its scheme and serves")
{
    pawl_client *client;
    pawl_semaphore *sem = NULL;
    pawl_lock *lock = NULL;
    pawl_lock_options read = {.size = sizeof read, .kind = PAWL_READ};
    pawl_error err = {0};
    int64_t permits = 0;
    int rows = 0;

    if (pawl_open(&client, "testmod:", NULL, &err))
        check_fail(__FILE__, __LINE__, "%s", err.text);
    CHECK_OK(pawl_inspect(client, "x", is_free, &rows, NULL));
    CHECK_EQ(rows, 1);
    CHECK_OK(pawl_semaphore_new(&sem, client, "x", NULL, &err));
    CHECK_OK(pawl_semaphore_available(sem, &permits, &err));
    CHECK_EQ(permits, 42);
    CHECK_CODE(pawl_lock_new(&lock, client, "x", &read, &err), PAWL_ENOTSUP);
    pawl_semaphore_free(sem);
    CHECK_OK(pawl_close(client));
}

CASE("a module's failure to open is passed on and nothing is left")
{
    pawl_client *client = NULL;
    pawl_error err;

    CHECK_CODE(pawl_open(&client, "testmod:?fail=why", NULL, &err), PAWL_ECONN);
    CHECK(client == NULL);
    CHECK_CODE(pawl_open(&client, "testmod:?nonsense=1", NULL, &err), PAWL_EINVAL);
    CHECK(client == NULL);
}

CASE("a scheme without an engine is refused with what there is")
{
    pawl_client *client = NULL;
    pawl_error err;

    CHECK_CODE(pawl_open(&client, "nosuch://x", NULL, &err), PAWL_ENOTSUP);
    CHECK(strstr(err.text, "local"));
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
