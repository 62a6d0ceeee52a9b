/* SPDX-License-Identifier: Apache-2.0
 *
 * test_late.c - answers that come late, or never: through the module "late:" (tests/module/late.c),
 * which keeps and loses the ops that a case chooses, and through "fault:".
 */
#include "actors.h"
#include "check.h"
#include "engine.h"

#define CLIENT_OPTIONS(...)                                                                        \
    (&(pawl_client_options){.size = sizeof(pawl_client_options), __VA_ARGS__})
#define LOCK_OPTIONS(...) (&(pawl_lock_options){.size = sizeof(pawl_lock_options), __VA_ARGS__})

/* Raised when the engine logs these words. */
static event kept = EVENT_INIT, let_go = EVENT_INIT, changed = EVENT_INIT;

static void listen(void *arg, int level, const char *text)
{
    (void)arg;
    (void)level;
    if (!strcmp(text, "late: kept"))
        event_raise(&kept);
    else if (!strcmp(text, "late: let go"))
        event_raise(&let_go);
    else if (!strcmp(text, "late: changed"))
        event_raise(&changed);
}

static pawl_client *open_client(const char *url, const pawl_client_options *options)
{
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, url, options, &err))
        check_fail(__FILE__, __LINE__, "%s: %s", url, err.text);
    return client;
}

/* ---- Renewals that are overtaken ------------------------------------------------------------- */

static void count_lost(void *arg, pawl_lock *lock, int code)
{
    (void)lock;
    (void)code;
    event_raise(arg);
}

/* pawl_lock_renew schedules the next renewal, which overtakes the renewal that is kept. */
CASE("a renewal that was overtaken by another one has no say about what is held later")
{
    pawl_stats stats = {.size = sizeof stats};
    event lost = EVENT_INIT;
    pawl_client *client = open_client("late:renew=500;memory:",
                                      CLIENT_OPTIONS(.watchdog_ms = 700, .log = listen));
    pawl_lock *x, *y;

    CHECK_OK(pawl_lock_new(&x, client, "x", NULL, NULL));
    CHECK_OK(pawl_lock_new(&y, client, "y",
                           LOCK_OPTIONS(.lease_ms = 60000, .on_lost = count_lost, .arg = &lost),
                           NULL));
    CHECK_OK(pawl_lock_acquire(x, 0, NULL));
    event_await(&kept, 1);
    CHECK_OK(pawl_lock_renew(x, 0, NULL));
    for (; stats.renewed < 2; pause_ms(1))
        CHECK_OK(pawl_client_stats(client, &stats));
    CHECK_OK(pawl_lock_release(x, NULL));
    CHECK_OK(pawl_lock_acquire(y, 0, NULL));
    event_await(&let_go, 1);
    CHECK_EQ(pawl_lock_held(y), 1);
    CHECK(pawl_lock_valid_ms(y) > 30000);
    CHECK_OK(pawl_lock_release(y, NULL));
    CHECK_EQ(event_count(&lost), 0);
    CHECK_OK(pawl_close(client));
    pawl_lock_free(x);
    pawl_lock_free(y);
}

/* Overwrite the memory that this thread has freed. */
static void scribble(void)
{
    void *blocks[64];

    for (size_t i = 0; i < 64; i++) {
        size_t size = 16 * (i + 1);

        blocks[i] = malloc(size);
        CHECK(blocks[i]);
        memset(blocks[i], '#', size);
    }
    for (size_t i = 0; i < 64; i++)
        free(blocks[i]);
}

CASE("the names in a renewal stay until it is answered, also if the handle is gone")
{
    pawl_client *client = open_client("late:renew=50;memory:",
                                      CLIENT_OPTIONS(.watchdog_ms = 300, .log = listen));
    pawl_lock *lock;

    CHECK_OK(pawl_lock_new(&lock, client, "a name of some length", NULL, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    event_await(&kept, 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
    scribble();
    while (event_count(&let_go) + event_count(&changed) < 1)
        pause_ms(1);
    CHECK_EQ(event_count(&changed), 0);
    CHECK_OK(pawl_close(client));
}

/* ---- Claims ---------------------------------------------------------------------------------- */

static void check_claim(int64_t lease_ms, int64_t max_hold_ms)
{
    pawl_client *client = open_client("late:claim=2000;memory:", NULL);
    pawl_lock *lock;

    CHECK_OK(pawl_lock_new(&lock, client, "x",
                           LOCK_OPTIONS(.lease_ms = lease_ms, .max_hold_ms = max_hold_ms), NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK(pawl_lock_valid_ms(lock) <= 2000);
    for (; pawl_lock_valid_ms(lock) <= 2000; pause_ms(1))
        CHECK(pawl_lock_held(lock));
    CHECK(pawl_lock_valid_ms(lock) <= (lease_ms ? lease_ms : 30000));
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(pawl_close(client));
    pawl_lock_free(lock);
}

CASE("a claim is made the whole lease, be it renewed by itself or fixed")
{
    check_claim(0, 0);
    check_claim(60000, 0);
    check_claim(60000, 20000);
    check_claim(0, 20000);
}

/* ---- Closing --------------------------------------------------------------------------------- */

CASE("closing does not wait for at_least_ms where the client itself would have to hold on")
{
    int64_t began = now_ms();
    char url[64];
    pawl_client *client;
    pawl_lock *x, *y;

    snprintf(url, sizeof url, "late:without=%d;memory:", PAWL_CAP_LINGER);
    client = open_client(url, CLIENT_OPTIONS(.timeout_ms = 100));
    CHECK_OK(pawl_lock_new(&x, client, "x", LOCK_OPTIONS(.at_least_ms = 600000), NULL));
    CHECK_OK(pawl_lock_new(&y, client, "y", LOCK_OPTIONS(.at_least_ms = 500000), NULL));
    CHECK_OK(pawl_lock_acquire(x, 0, NULL));
    CHECK_OK(pawl_lock_acquire(y, 0, NULL));
    CHECK_OK(pawl_lock_release(x, NULL));
    CHECK_OK(pawl_close(client));
    CHECK(now_ms() - began < 500000);
    pawl_lock_free(x);
    pawl_lock_free(y);
}

CASE("closing keeps a lock for at_least_ms, and no longer, where the client itself holds on")
{
    pawl_client *client, *other = open_client("memory:", NULL);
    pawl_lock *x, *next;
    char url[64];
    int64_t began;

    snprintf(url, sizeof url, "late:without=%d;memory:", PAWL_CAP_LINGER);
    client = open_client(url, NULL);
    CHECK_OK(pawl_lock_new(&x, client, "x", LOCK_OPTIONS(.at_least_ms = 300), NULL));
    CHECK_OK(pawl_lock_new(&next, other, "x", NULL, NULL));
    began = now_ms();
    CHECK_OK(pawl_lock_acquire(x, 0, NULL));
    CHECK_OK(pawl_lock_release(x, NULL));
    CHECK_OK(pawl_close(client));
    CHECK_OK(pawl_lock_acquire(next, 10000, NULL)); /* the lease is 30 s */
    CHECK(now_ms() - began >= 295);
    pawl_lock_free(x);
    pawl_lock_free(next);
    CHECK_OK(pawl_close(other));
}

/* ---- Releases that fail ---------------------------------------------------------------------- */

CASE("a release that was refused can be repeated")
{
    pawl_client *client = open_client("late:refuse=2;memory:", NULL);
    pawl_lock *lock;
    pawl_semaphore *sem;
    int64_t n;

    CHECK_OK(pawl_lock_new(&lock, client, "x", NULL, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_EBACKEND);
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_EBACKEND);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ENOTHELD);
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));

    client = open_client("late:refuse=1;memory:", NULL);
    CHECK_OK(pawl_semaphore_new(&sem, client, "s",
                                &(pawl_semaphore_options){.size = sizeof(pawl_semaphore_options),
                                                          .permits = 5}, NULL));
    CHECK_OK(pawl_semaphore_acquire(sem, 3, 0, NULL));
    CHECK_CODE(pawl_semaphore_release(sem, 3, NULL), PAWL_EBACKEND);
    CHECK_OK(pawl_semaphore_release(sem, 3, NULL));
    CHECK_OK(pawl_semaphore_available(sem, &n, NULL));
    CHECK_EQ(n, 5);
    pawl_semaphore_free(sem);
    CHECK_OK(pawl_close(client));
}

CASE("the owner of a lock whose release was refused may acquire it again")
{
    pawl_client *client = open_client("late:refuse=1;memory:", NULL);
    pawl_lock *lock;

    CHECK_OK(pawl_lock_new(&lock, client, "x", NULL, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_EBACKEND);
    CHECK_OK(pawl_lock_acquire(lock, 5000, NULL)); /* the old lease is 30 s */
    CHECK_EQ(pawl_lock_hold_count(lock), 1);
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
}

CASE("closing tries a refused release once more, and reports that the lock stays")
{
    pawl_client *client;
    pawl_lock *lock;

    for (int refused = 1; refused <= 9; refused += 8) {
        char url[64];

        snprintf(url, sizeof url, "late:refuse=%d;memory:%d", refused, refused);
        client = open_client(url, NULL);
        CHECK_OK(pawl_lock_new(&lock, client, "x", NULL, NULL));
        CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
        CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_EBACKEND);
        CHECK_CODE(pawl_close(client), refused == 1 ? 0 : PAWL_EBACKEND);
        pawl_lock_free(lock);
    }
    client = open_client("late:refuse=9;memory:", NULL);
    CHECK_OK(pawl_lock_new(&lock, client, "x", NULL, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_close(client), PAWL_EBACKEND);
    pawl_lock_free(lock);
}

static int wrong_releases, right_releases;

static void hear_releases(void *arg, int level, const char *text)
{
    (void)arg;
    (void)level;
    right_releases += !strcmp(text, "late: release 1");
    wrong_releases += !strcmp(text, "late: release 4");
}

/* Holds are reused; the hold that gives its permits back had four permits in its earlier use. */
CASE("a grant that came too late gives back as many permits as it took")
{
    pawl_client *client = open_client("late:grant=200;memory:",
                                      CLIENT_OPTIONS(.log = hear_releases));
    pawl_semaphore_options o = {.size = sizeof o, .permits = 10, .lease_ms = 60000};
    pawl_semaphore *big, *small;
    int before;

    CHECK_OK(pawl_semaphore_new(&big, client, "s", &o, NULL));
    o.lease_ms = 50;
    CHECK_OK(pawl_semaphore_new(&small, client, "s", &o, NULL));
    CHECK_OK(pawl_semaphore_acquire(big, 4, 0, NULL));
    CHECK_OK(pawl_semaphore_acquire(big, 4, 0, NULL));
    CHECK_OK(pawl_semaphore_release(big, 8, NULL));
    before = wrong_releases;
    CHECK(pawl_semaphore_acquire(small, 1, 0, NULL) != 0);
    pawl_semaphore_free(big);
    pawl_semaphore_free(small);
    pawl_close(client);
    CHECK_EQ(before, 2);
    CHECK_EQ(wrong_releases, 2);
    CHECK_EQ(right_releases, 1);
}

CASE("a renewal by hand without an answer is unknown, not a time-out")
{
    pawl_client *client = open_client("fault:delay=3600000,seed=1,only=renew;memory:",
                                      CLIENT_OPTIONS(.timeout_ms = 100));
    pawl_lock *lock;

    CHECK_OK(pawl_lock_new(&lock, client, "x", LOCK_OPTIONS(.lease_ms = 60000), NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_lock_renew(lock, 0, NULL), PAWL_EUNKNOWN);
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
}

/* ---- Threads that end ------------------------------------------------------------------------ */

static pthread_key_t late_key;
static pawl_lock *late_lock;

static void acquire_at_the_end(void *value)
{
    (void)value;
    CHECK_OK(pawl_lock_acquire(late_lock, 0, NULL));
}

static void end_with_a_lock(void *arg)
{
    (void)arg;
    CHECK_EQ(pawl_lock_held(late_lock), 0); /* this thread is known to Pawl before the key is set */
    CHECK_EQ(pthread_setspecific(late_key, &late_key), 0);
}

CASE("a lock acquired in a later destructor of an ending thread is no longer renewed")
{
    pawl_stats stats = {.size = sizeof stats};
    pawl_client *client = open_client("memory:", NULL);
    actor a;

    CHECK_OK(pawl_lock_new(&late_lock, client, "x", NULL, NULL));
    CHECK_EQ(pthread_key_create(&late_key, acquire_at_the_end), 0);
    actor_start(&a, end_with_a_lock, NULL);
    actor_join(&a);
    CHECK_OK(pawl_client_stats(client, &stats));
    CHECK_EQ(stats.acquired, 1);
    CHECK_EQ(stats.orphaned, 1);
    pawl_lock_free(late_lock);
    CHECK_OK(pawl_close(client));
}

/* ---- Why it was lost ------------------------------------------------------------------------- */

static void note_reason(void *arg, pawl_lock *lock, int code)
{
    (void)code;
    CHECK_EQ(pawl_lock_lost_reason(lock), PAWL_LOST_SILENCE);
    event_raise(arg);
}

CASE("a lock whose renewals are not answered is lost for that reason")
{
    event gone = EVENT_INIT;
    pawl_client *client = open_client("fault:drop=100,only=renew;memory:",
                                      CLIENT_OPTIONS(.watchdog_ms = 600));
    pawl_lock *lock;
    pawl_error err;

    CHECK_OK(pawl_lock_new(&lock, client, "x", LOCK_OPTIONS(.on_lost = note_reason, .arg = &gone),
                           NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_EQ(pawl_lock_lost_reason(lock), 0);
    event_await(&gone, 1);
    CHECK_EQ(pawl_lock_lost_reason(lock), PAWL_LOST_SILENCE);
    CHECK_CODE(pawl_lock_release(lock, &err), PAWL_ELOST);
    CHECK(strstr(err.text, pawl_lost_text(PAWL_LOST_SILENCE)));
    CHECK_EQ(pawl_lock_lost_reason(lock), 0);
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
}

/* ---- One service, several spellings ---------------------------------------------------------- */

static void check_same_service(const char *one, const char *two, bool same)
{
    pawl_client *a = open_client(one, NULL), *b = open_client(two, NULL);
    pawl_lock *members[2], *multi = NULL;

    CHECK_OK(pawl_lock_new(&members[0], a, "x", NULL, NULL));
    CHECK_OK(pawl_lock_new(&members[1], b, "x", NULL, NULL));
    CHECK_CODE(pawl_multi_new(&multi, members, 2, NULL), same ? PAWL_EINVAL : 0);
    pawl_lock_free(multi);
    pawl_lock_free(members[0]);
    pawl_lock_free(members[1]);
    pawl_close(a);
    pawl_close(b);
}

CASE("two spellings of one service are one: a name of both is a member twice")
{
    char *dir = temp_dir(), one[300], two[300];

    snprintf(one, sizeof one, "local:%s", dir);
    snprintf(two, sizeof two, "trace:local:%s/../%s/?timeout=1000", dir, strrchr(dir, '/') + 1);
    check_same_service(one, two, true);
    check_same_service("memory:a", "fault:drop=1;memory:a?watchdog=5000", true);
    check_same_service("memory:a", "memory:b", false);
    check_same_service("redis://localhost/0", "redis://u:p@LOCALHOST:6379?timeout=100", true);
    check_same_service("redis://127.0.0.1", "redis://localhost?db=0&prefix=pawl:", true);
    check_same_service("redis://localhost/0", "redis://localhost/1", false);
    check_same_service("redis://localhost", "redis://localhost:6380", false);
    check_same_service("redis://localhost", "redis://localhost?layout=redisson", false);
    check_same_service("redis+cluster://a:1,b:2", "redis+cluster://B:2,a:1", true);
    check_same_service("quorum:memory:a|memory:b|memory:c", "quorum:memory:c|memory:a|memory:b",
                       true);
    remove_tree(dir);
    free(dir);
}

/* ---- No answer ------------------------------------------------------------------------------- */

/* One lock is released by hand, the other by the close. */
static void check_unknown_releases(const char *url)
{
    pawl_client *client = open_client(url, CLIENT_OPTIONS(.timeout_ms = 100));
    pawl_lock *x, *y;

    CHECK_OK(pawl_lock_new(&x, client, "x", NULL, NULL));
    CHECK_OK(pawl_lock_new(&y, client, "y", NULL, NULL));
    CHECK_OK(pawl_lock_acquire(x, 0, NULL));
    CHECK_OK(pawl_lock_acquire(y, 0, NULL));
    CHECK_CODE(pawl_lock_release(x, NULL), PAWL_EUNKNOWN);
    CHECK_CODE(pawl_close(client), PAWL_EUNKNOWN);
    pawl_lock_free(x);
    pawl_lock_free(y);
}

CASE("a release without an answer is unknown, whether by hand or by closing")
{
    check_unknown_releases("fault:drop=100,only=release;memory:");
}

CASE("a release that was given up on its way is unknown, whether by hand or by closing")
{
    check_unknown_releases("fault:delay=3600000,seed=1,only=release;memory:");
}

static void note_code(void *arg, pawl_lock *lock, int code)
{
    (void)lock;
    CHECK_CODE(code, PAWL_ECANCELED);
    event_raise(arg);
}

static int note_held(void *arg, const pawl_info *info)
{
    *(bool *)arg |= info->role == PAWL_ROLE_HOLDER;
    return 0;
}

static void await_free(pawl_client *client, const char *name)
{
    bool held;

    do {
        held = false;
        CHECK_OK(pawl_inspect(client, name, note_held, &held, NULL));
    } while (held);
}

/* With the second URL the service has granted the lock: only the answer is lost. */
CASE("an acquire without an answer that is cancelled is cancelled, and its grant is given back")
{
    static const char *const urls[] = {"fault:delay=3600000,seed=1,only=acquire;memory:",
                                       "fault:lose=100,only=acquire;memory:"};

    for (int i = 0; i < 2; i++) {
        pawl_client *client = open_client(urls[i], NULL);
        event ended = EVENT_INIT;
        pawl_lock *lock;

        CHECK_OK(pawl_lock_new(&lock, client, "x", LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE), NULL));
        CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, note_code, &ended));
        CHECK_EQ(pawl_lock_cancel(lock), 1);
        event_await(&ended, 1);
        await_free(client, "x");
        pawl_lock_free(lock);
        CHECK_OK(pawl_close(client));
    }
}

CASE("a count-down whose first answer was lost is unknown when the second is given up")
{
    pawl_client *client = open_client("late:lose=down;memory:",
                                      CLIENT_OPTIONS(.timeout_ms = 200, .log = listen));
    pawl_latch *latch;
    int64_t n;

    CHECK_OK(pawl_latch_new(&latch, client, "l", NULL));
    CHECK_OK(pawl_latch_set(latch, 5, NULL));
    CHECK_CODE(pawl_latch_count_down(latch, NULL), PAWL_EUNKNOWN);
    CHECK_EQ(event_count(&kept), 1);
    CHECK_OK(pawl_latch_count(latch, &n, NULL));
    CHECK_EQ(n, 4);
    pawl_latch_free(latch);
    CHECK_OK(pawl_close(client));
}

/* ---- Listings that are asked for again ------------------------------------------------------- */

typedef struct remover {
    actor actor;
    pawl_lock *lock;
    event lost, removed;
} remover;

static void remove_when_lost(void *arg)
{
    remover *r = arg;

    event_await(&r->lost, 1);
    CHECK_OK(pawl_lock_release(r->lock, NULL));
    event_raise(&r->removed);
}

/* Runs in the thread that lists, with no mutex held. Returns when the lock has been removed. */
static void wait_until_removed(void *arg, int level, const char *text)
{
    remover *r = arg;

    (void)level;
    if (strcmp(text, "late: lost"))
        return;
    event_raise(&r->lost);
    event_await(&r->removed, 1);
}

static int count_row(void *arg, const pawl_info *info)
{
    (void)info;
    ++*(int *)arg;
    return 0;
}

CASE("rows of a listing whose answer was lost are forgotten, also if there are none the next time")
{
    remover r = {.lost = EVENT_INIT, .removed = EVENT_INIT};
    pawl_client *yours = open_client("memory:", NULL);
    pawl_client *mine = open_client("late:lose=list;memory:",
                                    CLIENT_OPTIONS(.log = wait_until_removed, .log_arg = &r));
    int n = 0;

    CHECK_OK(pawl_lock_new(&r.lock, yours, "gone", LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE), NULL));
    CHECK_OK(pawl_lock_acquire(r.lock, 0, NULL));
    actor_start(&r.actor, remove_when_lost, &r);
    CHECK_OK(pawl_list(mine, NULL, count_row, &n, NULL));
    actor_join(&r.actor);
    CHECK_EQ(n, 0);
    pawl_lock_free(r.lock);
    CHECK_OK(pawl_close(mine));
    CHECK_OK(pawl_close(yours));
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
