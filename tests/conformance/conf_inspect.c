/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_inspect.c - showing holders, waiters and names in use; and breaking a lock.
 */
#include "conf.h"

#include <unistd.h>

CASE("a name that nobody uses has one summary row without holders")
{
    const char *name = check_name("i");
    static rows all;

    inspect_rows(client_open(NULL), name, &all);
    CHECK_EQ(all.n, 1);
    CHECK_EQ(all.row[0].info.role, PAWL_ROLE_SUMMARY);
    CHECK_STR(all.row[0].name, name);
    CHECK_EQ(all.row[0].info.holders, 0);
    CHECK_EQ(all.row[0].info.waiters, 0);
}

CASE("the holder is shown with pid, program, label, token, age and lease")
{
    const char *name = check_name("i");
    pawl_lock *lock = lock_new(client_open(CLIENT_OPTIONS(.label = "till 7")), name,
                               LOCK_OPTIONS(.lease_ms = 50000));
    static rows all;
    row *r = all.row;
    char host[256] = "";

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    inspect_rows(client_open(NULL), name, &all);
    CHECK_EQ(all.n, 2);
    CHECK_EQ(r[0].info.role, PAWL_ROLE_SUMMARY);
    CHECK_EQ(r[0].info.holders, 1);
    CHECK_EQ(r[0].info.token, pawl_lock_token(lock));
    CHECK_EQ(r[0].info.pid, getpid());
    CHECK_EQ(r[1].info.role, PAWL_ROLE_HOLDER);
    CHECK_EQ(r[1].info.type, PAWL_TYPE_LOCK);
    CHECK_STR(r[1].name, name);
    CHECK_EQ(r[1].info.shared, 0);
    CHECK_EQ(r[1].info.pid, getpid());
    CHECK_EQ(r[1].info.token, pawl_lock_token(lock));
    CHECK(strstr(r[1].program, "conformance"));
    CHECK_STR(r[1].label, "till 7");
    CHECK(!gethostname(host, sizeof host - 1));
    CHECK(!strncmp(r[1].host, host, 40)); /* some services cut the name */
    CHECK(r[1].host[0] && r[1].owner[0]);
    if (can(PAWL_CAN_DETAIL)) /* else the time of the acquire is not stored */
        CHECK(r[1].info.since_ms >= 0 && r[1].info.since_ms < 50000);
    CHECK(r[1].info.lease_ms > 0 && r[1].info.lease_ms <= 50000);
}

CASE("waiters are shown in their order, each with its own owner and label")
{
    enum { N = 4 };
    static const char *const labels[N] = {"first", "second", "third", "fourth"};
    const char *name = check_name("i");
    pawl_client *mine = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, ORDERED);
    static rows all;
    int64_t oldest = -1;
    waiter w[N];

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    for (int i = 0; i < N; i++) {
        pawl_client *client = client_open(CLIENT_OPTIONS(.label = labels[i]));

        waiter_start(&w[i], lock_new(client, name, ORDERED), PAWL_FOREVER);
        await_queued(mine, name, (uint64_t)i + 1);
    }
    inspect_rows(mine, name, &all);
    CHECK_EQ(all.n, N + 2);
    CHECK_EQ(all.row[0].info.waiters, N);
    CHECK_EQ(all.row[1].info.role, PAWL_ROLE_HOLDER);
    for (int i = 0; i < N; i++) {
        CHECK_EQ(all.row[i + 2].info.role, PAWL_ROLE_WAITER);
        CHECK_STR(all.row[i + 2].label, labels[i]);
        CHECK_EQ(all.row[i + 2].info.pid, getpid());
        CHECK(strcmp(all.row[i + 2].owner, all.row[i + 1].owner));
        oldest = all.row[i + 2].info.since_ms > oldest ? all.row[i + 2].info.since_ms : oldest;
    }
    CHECK_EQ(all.row[0].info.lease_ms, all.row[1].info.lease_ms);
    CHECK_EQ(all.row[0].info.wait_ms, oldest);
    all.n = 0;
    CHECK_OK(pawl_list(mine, name, collect_row, &all, NULL));
    CHECK_EQ(all.n, 1);
    CHECK_EQ(all.row[0].info.waiters, N);
    CHECK(all.row[0].info.wait_ms >= oldest);
    CHECK_OK(pawl_lock_release(lock, NULL));
    for (int i = 0; i < N; i++)
        waiter_leave(&w[i]);
}

CASE("readers are shown as shared holders")
{
    const char *name = check_name("i");
    pawl_client *mine = client_open(NULL);
    const pawl_lock_options *read = LOCK_OPTIONS(.kind = PAWL_READ);
    pawl_lock *a = lock_new(mine, name, read), *b = lock_new(client_open(NULL), name, read);
    static rows all;
    waiter w;

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    waiter_start(&w, lock_new(client_open(NULL), name, ORDERED), PAWL_FOREVER);
    await_queued(mine, name, 1);
    inspect_rows(mine, name, &all);
    CHECK_EQ(all.n, 4);
    CHECK_EQ(all.row[0].info.holders, 2);
    CHECK_EQ(all.row[0].info.shared, 1);
    if (can(PAWL_CAN_DETAIL)) /* else readers' tokens are not stored */
        CHECK_EQ(all.row[0].info.token, pawl_lock_token(b));
    CHECK_EQ(all.row[1].info.shared, 1);
    CHECK_EQ(all.row[2].info.shared, 1);
    CHECK_EQ(all.row[3].info.role, PAWL_ROLE_WAITER);
    CHECK_EQ(all.row[3].info.shared, 0);
    CHECK_OK(pawl_lock_release(a, NULL));
    CHECK_OK(pawl_lock_release(b, NULL));
    waiter_leave(&w);
}

CASE("a semaphore is shown with its capacity, its free permits and who holds how many")
{
    const char *name = check_name("i");
    pawl_client *mine = client_open(NULL);
    pawl_semaphore *sem = sem_new(mine, name, SEM_OPTIONS(.permits = 5));
    static rows all;

    need(PAWL_CAN_DETAIL, "each permit is a holder of its own");
    CHECK_OK(pawl_semaphore_acquire(sem, 3, 0, NULL));
    inspect_rows(mine, name, &all);
    CHECK_EQ(all.n, 2);
    CHECK_EQ(all.row[0].info.type, PAWL_TYPE_SEMAPHORE);
    CHECK_EQ(all.row[0].info.count, 5);
    CHECK_EQ(all.row[0].info.available, 2);
    CHECK_EQ(all.row[0].info.holders, 1);
    CHECK_EQ(all.row[1].info.permits, 3);
    CHECK_EQ(all.row[1].info.token, pawl_semaphore_token(sem));
}

CASE("a latch is shown with its count")
{
    const char *name = check_name("i");
    pawl_client *mine = client_open(NULL);
    pawl_latch *latch = latch_new(mine, name);
    static rows all;

    need(PAWL_CAN_DETAIL, "a latch is a number like any other");
    CHECK_OK(pawl_latch_set(latch, 4, NULL));
    CHECK_OK(pawl_latch_count_down(latch, NULL));
    inspect_rows(mine, name, &all);
    CHECK_EQ(all.row[0].info.type, PAWL_TYPE_LATCH);
    CHECK_EQ(all.row[0].info.count, 3);
    for (int i = 0; i < 3; i++)
        CHECK_OK(pawl_latch_count_down(latch, NULL));
}

static int stop_at_second(void *arg, const pawl_info *info)
{
    (void)info;
    return ++*(int *)arg == 2 ? 4711 : 0;
}

CASE("a row callback ends the listing by its result")
{
    const char *name = check_name("i");
    pawl_client *mine = client_open(NULL);
    pawl_lock *lock = lock_new(mine, name, NULL);
    int seen = 0;
    waiter w;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    waiter_start(&w, lock_new(client_open(NULL), name, NULL), PAWL_FOREVER);
    await_waiters(mine, name, 1);
    CHECK_EQ(pawl_inspect(mine, name, stop_at_second, &seen, NULL), 4711);
    CHECK_EQ(seen, 2);
    CHECK_OK(pawl_lock_release(lock, NULL));
    waiter_leave(&w);
}

static size_t listed(pawl_client *client, const char *pattern, const char *name)
{
    static rows all;
    size_t found = 0;

    all.n = 0;
    CHECK_OK(pawl_list(client, pattern, collect_row, &all, NULL));
    for (size_t i = 0; i < all.n; i++) {
        CHECK_EQ(all.row[i].info.role, PAWL_ROLE_SUMMARY);
        found += !name || !strcmp(all.row[i].name, name);
    }
    return found;
}

static const char *pattern_of(const char *tail)
{
    static char pattern[128];

    snprintf(pattern, sizeof pattern, "%s%s", check_name("i"), tail);
    return pattern;
}

CASE("the names in use are listed by pattern, each once, and not after their release")
{
    static const char *const tails[] = {"-a1", "-a2", "-b1"};
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    pawl_lock *locks[3];

    need(PAWL_CAN_LIST, "it can't list names");
    for (int i = 0; i < 3; i++) {
        locks[i] = lock_new(mine, pattern_of(tails[i]), NULL);
        CHECK_OK(pawl_lock_acquire(locks[i], 0, NULL));
    }
    CHECK_EQ(listed(yours, pattern_of("-*"), NULL), 3);
    CHECK_EQ(listed(yours, pattern_of("-a*"), NULL), 2);
    CHECK_EQ(listed(yours, pattern_of("-?1"), NULL), 2);
    CHECK_EQ(listed(yours, pattern_of("-[b-z]1"), NULL), 1);
    CHECK_EQ(listed(yours, pattern_of("-a1"), pawl_lock_name(locks[0])), 1);
    CHECK_EQ(listed(yours, pattern_of("-c*"), NULL), 0);
    CHECK_OK(pawl_lock_release(locks[0], NULL));
    CHECK_EQ(listed(yours, pattern_of("-a*"), pawl_lock_name(locks[0])), 0);
    CHECK_EQ(listed(yours, pattern_of("-a*"), NULL), 1);
}

static int find_name(void *arg, const pawl_info *info)
{
    return !strcmp(info->name, arg);
}

CASE("without a pattern every name in use is listed")
{
    const char *name = check_name("i");
    char wanted[64];
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, NULL);

    need(PAWL_CAN_LIST, "it can't list names");
    snprintf(wanted, sizeof wanted, "%s", name);
    CHECK_EQ(pawl_list(client, NULL, find_name, wanted, NULL), 0);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_EQ(pawl_list(client, NULL, find_name, wanted, NULL), 1);
}

/* ---- Break ----------------------------------------------------------------------------------- */

CASE("breaking a lock tells its holder, and the next waiter gets it")
{
    static calls lost = CALLS_INIT;
    const char *name = check_name("i");
    pawl_client *mine = client_open(NULL), *admin = client_open(NULL);
    pawl_lock *lock =
        lock_new(mine, name, LOCK_OPTIONS(.on_lost = count_call, .arg = &lost));
    uint64_t token;
    waiter w;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    token = pawl_lock_token(lock);
    waiter_start(&w, lock_new(client_open(NULL), name, NULL), PAWL_FOREVER);
    await_waiters(admin, name, 1);
    CHECK_OK(pawl_lock_break(lock_new(admin, name, NULL), NULL));
    CHECK_OK(waiter_code(&w));
    CHECK(newer(w.token, token));
    event_await(&lost.event, 1);
    CHECK_CODE(lost.code, PAWL_ELOST);
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    CHECK(!can(PAWL_CAN_BREAK_AT_ONCE) || try_as_stranger(name, PAWL_MUTEX) == PAWL_EBUSY);
    waiter_join(&w);
    CHECK(w.release_code == PAWL_OK ||
          (!can(PAWL_CAN_BREAK_AT_ONCE) && w.release_code == PAWL_ELOST));
    CHECK_EQ(event_count(&lost.event), 1);
    CHECK_EQ(stats_of(mine).lost, 1);
}

CASE("breaking a lock that nobody holds is refused")
{
    pawl_lock *lock = lock_new(client_open(NULL), check_name("i"), NULL);

    CHECK_CODE(pawl_lock_break(lock, NULL), PAWL_ENOTHELD);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_CODE(pawl_lock_break(lock, NULL), PAWL_ENOTHELD);
}

CASE("breaking takes the lock from all readers")
{
    static calls lost = CALLS_INIT;
    const char *name = check_name("i");
    const pawl_lock_options *read =
        LOCK_OPTIONS(.kind = PAWL_READ, .on_lost = count_call, .arg = &lost);
    pawl_lock *a = lock_new(client_open(NULL), name, read);
    pawl_lock *b = lock_new(client_open(NULL), name, read);
    pawl_lock *w = lock_new(client_open(NULL), name, LOCK_OPTIONS(.kind = PAWL_WRITE));

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    CHECK_OK(pawl_lock_break(w, NULL));
    CHECK_OK(pawl_lock_acquire(w, 0, NULL));
    event_await(&lost.event, 2);
    CHECK_EQ(pawl_lock_held(a) + pawl_lock_held(b), 0);
    CHECK_EQ(pawl_lock_held(w), 1);
}

CASE("a lock can be broken by the client that holds it")
{
    static calls lost = CALLS_INIT;
    pawl_lock *lock = lock_new(client_open(NULL), check_name("i"),
                               LOCK_OPTIONS(.on_lost = count_call, .arg = &lost));

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_break(lock, NULL));
    event_await(&lost.event, 1);
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ELOST);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
}
