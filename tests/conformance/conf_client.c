/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_client.c - opening and closing clients, handles after the close, refused arguments.
 */
#include "conf.h"

/* ---- URLs and options ------------------------------------------------------------------------ */

static int open_code(const char *url, const pawl_client_options *options, pawl_error *err)
{
    pawl_client *const untouched = (pawl_client *)&conf_url;
    pawl_client *client = untouched;
    int code = pawl_open(&client, url, options, err);

    if (code == 0)
        CHECK_OK(pawl_close(client));
    else
        CHECK(client == untouched);
    return code;
}

CASE("an unknown URL parameter is refused by its name")
{
    char url[1024];
    pawl_error err = {0};

    snprintf(url, sizeof url, "%s%cwatchdogg=5000", conf_url, strchr(conf_url, '?') ? '&' : '?');
    CHECK_CODE(open_code(url, NULL, &err), PAWL_EINVAL);
    CHECK_CODE(err.code, PAWL_EINVAL);
    CHECK(strstr(err.text, "watchdogg"));
}

CASE("URL parameters with impossible values are refused")
{
    static const char *const parameters[] = {"watchdog=", "watchdog=abc", "watchdog=-5",
                                             "timeout=soon", "cohort=x", "watchdog=5x",
                                             "watchdog=99999999999999999999999"};
    char url[1024];

    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++) {
        pawl_error err = {0};

        snprintf(url, sizeof url, "%s%c%s", conf_url, strchr(conf_url, '?') ? '&' : '?',
                 parameters[i]);
        check_note("%s", url);
        CHECK_CODE(open_code(url, NULL, &err), PAWL_EINVAL);
        CHECK(err.text[0]);
    }
}

CASE("malformed URLs are invalid, unknown schemes not supported, and the text says so")
{
    static const char *const malformed[] = {"", "memory", ":", ":x", "mem ory:", "?watchdog=1"};
    pawl_error err = {0};

    for (size_t i = 0; i < sizeof malformed / sizeof malformed[0]; i++) {
        check_note("'%s'", malformed[i]);
        memset(&err, 0, sizeof err);
        CHECK_CODE(open_code(malformed[i], NULL, &err), PAWL_EINVAL);
        CHECK(err.text[0]);
    }
    CHECK_CODE(open_code(NULL, NULL, &err), PAWL_EINVAL);
    CHECK_CODE(open_code("nosuchengine:x", NULL, &err), PAWL_ENOTSUP);
    CHECK(strstr(err.text, "nosuchengine"));
}

CASE("client options with a wrong size, unknown fields or negative times are refused")
{
    struct {
        pawl_client_options known;
        uint64_t later[2];
    } longer = {.known = {.size = sizeof longer}};

    CHECK_CODE(open_code(conf_url, &(pawl_client_options){.size = 0}, NULL), PAWL_EINVAL);
    CHECK_CODE(open_code(conf_url, &(pawl_client_options){.size = 4}, NULL), PAWL_EINVAL);
    CHECK_CODE(open_code(conf_url, CLIENT_OPTIONS(.watchdog_ms = -1), NULL), PAWL_EINVAL);
    CHECK_CODE(open_code(conf_url, CLIENT_OPTIONS(.timeout_ms = -1), NULL), PAWL_EINVAL);
    CHECK_OK(open_code(conf_url, &longer.known, NULL)); /* unknown fields may be 0 */
    longer.later[1] = 1;
    CHECK_CODE(open_code(conf_url, &longer.known, NULL), PAWL_EINVAL);
}

CASE("times that no clock can reach are refused")
{
    pawl_client *client = client_open(NULL);
    pawl_semaphore *sem;
    pawl_lock *lock;

    CHECK_CODE(open_code(conf_url, CLIENT_OPTIONS(.watchdog_ms = INT64_MAX), NULL), PAWL_EINVAL);
    CHECK_CODE(open_code(conf_url, CLIENT_OPTIONS(.timeout_ms = INT64_MAX), NULL), PAWL_EINVAL);
    CHECK_CODE(pawl_semaphore_new(&sem, client, check_name("s"),
                                  SEM_OPTIONS(.permits = 1, .lease_ms = INT64_MAX), NULL),
               PAWL_EINVAL);
    CHECK_CODE(pawl_lock_new(&lock, client, check_name("k"), LOCK_OPTIONS(.lease_ms = INT64_MAX),
                             NULL), PAWL_EINVAL);
}

CASE("the error is written only on failure")
{
    pawl_client *client = client_open(NULL);
    pawl_error err, before;
    pawl_lock *lock;

    memset(&err, 0x5a, sizeof err);
    before = err;
    CHECK_OK(pawl_lock_new(&lock, client, check_name("k"), NULL, &err));
    CHECK_OK(pawl_lock_acquire(lock, 0, &err));
    CHECK_OK(pawl_lock_release(lock, &err));
    CHECK(!memcmp(&err, &before, sizeof err));
    CHECK_CODE(pawl_lock_release(lock, &err), PAWL_ENOTHELD);
    CHECK_CODE(err.code, PAWL_ENOTHELD);
    pawl_lock_free(lock);
}

/* ---- Names and lock options ------------------------------------------------------------------ */

static int lock_code(pawl_client *client, const char *name, const pawl_lock_options *options)
{
    pawl_lock *const untouched = (pawl_lock *)&conf_url;
    pawl_lock *lock = untouched;
    pawl_error err = {0};
    int code = pawl_lock_new(&lock, client, name, options, &err);

    if (code == 0) {
        pawl_lock_free(lock);
        return 0;
    }
    CHECK(lock == untouched);
    CHECK_CODE(err.code, code);
    CHECK(err.text[0]);
    CHECK(!strchr(err.text, '\n'));
    return code;
}

CASE("names that are empty, too long or hold control characters are refused with an error text")
{
    pawl_client *client = client_open(NULL);
    pawl_semaphore *sem;
    pawl_latch *latch;
    char name[257];

    memset(name, 'n', sizeof name);
    name[256] = '\0';
    CHECK_CODE(lock_code(client, name, NULL), PAWL_EINVAL);
    name[255] = '\0';
    CHECK_OK(lock_code(client, name, NULL));
    CHECK_CODE(lock_code(client, NULL, NULL), PAWL_EINVAL);
    CHECK_CODE(lock_code(client, "", NULL), PAWL_EINVAL);
    CHECK_CODE(lock_code(client, "a\nb", NULL), PAWL_EINVAL);
    CHECK_CODE(lock_code(client, "\x01", NULL), PAWL_EINVAL);
    CHECK_CODE(lock_code(client, "a\x7f", NULL), PAWL_EINVAL);
    CHECK_CODE(pawl_semaphore_new(&sem, client, "", SEM_OPTIONS(.permits = 1), NULL),
               PAWL_EINVAL);
    CHECK_CODE(pawl_latch_new(&latch, client, "\t", NULL), PAWL_EINVAL);
}

CASE("lock options with a wrong size, unknown kinds or negative times are refused")
{
    pawl_client *client = client_open(NULL);
    const char *name = check_name("k");
    struct {
        pawl_lock_options known;
        uint64_t later[2];
    } longer = {.known = {.size = sizeof longer}};

    CHECK_CODE(lock_code(client, name, &(pawl_lock_options){.size = 0}), PAWL_EINVAL);
    CHECK_CODE(lock_code(client, name, &(pawl_lock_options){.size = 7}), PAWL_EINVAL);
    CHECK_CODE(lock_code(client, name, LOCK_OPTIONS(.kind = 99)), PAWL_EINVAL);
    CHECK_CODE(lock_code(client, name, LOCK_OPTIONS(.owner = 2)), PAWL_EINVAL);
    CHECK_CODE(lock_code(client, name, LOCK_OPTIONS(.lease_ms = -1)), PAWL_EINVAL);
    CHECK_CODE(lock_code(client, name, LOCK_OPTIONS(.max_hold_ms = -1)), PAWL_EINVAL);
    CHECK_CODE(lock_code(client, name, LOCK_OPTIONS(.at_least_ms = -1)), PAWL_EINVAL);
    CHECK_OK(lock_code(client, name, &longer.known));
    longer.later[0] = 1;
    CHECK_CODE(lock_code(client, name, &longer.known), PAWL_EINVAL);
}

CASE("semaphore options with a wrong size, unknown fields or negative times are refused")
{
    pawl_client *client = client_open(NULL);
    const char *name = check_name("k");
    pawl_semaphore *sem;
    struct {
        pawl_semaphore_options known;
        uint64_t later[1];
    } longer = {.known = {.size = sizeof longer, .permits = 1}, .later = {1}};

    CHECK_CODE(pawl_semaphore_new(&sem, client, name, &(pawl_semaphore_options){.permits = 1},
                                  NULL), PAWL_EINVAL);
    CHECK_CODE(pawl_semaphore_new(&sem, client, name, SEM_OPTIONS(.lease_ms = -1), NULL),
               PAWL_EINVAL);
    CHECK_CODE(pawl_semaphore_new(&sem, client, name, &longer.known, NULL), PAWL_EINVAL);
}

/* ---- Closing --------------------------------------------------------------------------------- */

CASE("NULL is freed and closed without effect")
{
    pawl_lock_free(NULL);
    pawl_semaphore_free(NULL);
    pawl_latch_free(NULL);
    CHECK_OK(pawl_close(NULL));
}

CASE("closing a client releases its locks, also those that were acquired several times")
{
    const char *na = check_name("a"), *nb = check_name("b");
    pawl_client *client = client_open(NULL);
    pawl_lock *a = lock_new(client, na, NULL);
    pawl_lock *b = lock_new(client, nb, LOCK_OPTIONS(.kind = PAWL_READ));

    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(a, 0, NULL));
    CHECK_OK(pawl_lock_acquire(b, 0, NULL));
    client_close(client);
    CHECK_OK(try_as_stranger(na, PAWL_MUTEX));
    CHECK_OK(try_as_stranger(nb, PAWL_WRITE));
    CHECK_EQ(pawl_lock_held(a), 0);
}

CASE("closing a client passes its lock to another client's waiter")
{
    const char *name = check_name("k");
    pawl_client *mine = client_open(NULL), *yours = client_open(NULL);
    waiter w;

    CHECK_OK(pawl_lock_acquire(lock_new(mine, name, NULL), 0, NULL));
    waiter_start(&w, lock_new(yours, name, NULL), PAWL_FOREVER);
    await_waiters(yours, name, 1);
    client_close(mine);
    CHECK_OK(waiter_code(&w));
    waiter_leave(&w);
}

CASE("handles of a closed client refuse every call with ESTATE and can be freed")
{
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, check_name("a"), NULL);
    pawl_lock *multi = multi_new(lock, lock_new(client, check_name("b"), NULL), NULL);
    pawl_semaphore *sem = sem_new(client, check_name("c"), SEM_OPTIONS(.permits = 1));
    pawl_latch *latch = latch_new(client, check_name("d"));
    int64_t n;

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    client_close(client);
    CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_lock_release(lock, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_lock_renew(lock, 0, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_lock_break(lock, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_lock_acquire(multi, PAWL_FOREVER, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_semaphore_acquire(sem, 1, 0, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_semaphore_available(sem, &n, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_latch_set(latch, 1, NULL), PAWL_ESTATE);
    CHECK_CODE(pawl_latch_wait(latch, PAWL_FOREVER, NULL), PAWL_ESTATE);
    CHECK_EQ(pawl_lock_held(lock), 0);
    CHECK_EQ(pawl_lock_valid_ms(lock), 0);
    CHECK_EQ(pawl_lock_token(lock), 0);
    CHECK_STR(pawl_lock_name(lock), check_name("a"));
}

CASE("freeing a held lock releases it")
{
    const char *name = check_name("k");
    pawl_client *client = client_open(NULL);
    pawl_lock *lock = lock_new(client, name, NULL);
    pawl_lock *next = lock_new(client_open(NULL), name, NULL);

    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    lock_free(lock);
    CHECK_OK(pawl_lock_acquire(next, PAWL_FOREVER, NULL));
    CHECK_EQ(stats_of(client).held, 0);
}

CASE("clients are opened and closed a hundred times, in use or not")
{
    const char *name = check_name("k");

    for (int i = 0; i < 100; i++) {
        pawl_client *client = client_open(NULL);
        pawl_lock *lock = lock_new(client, name, NULL);

        if (i % 3)
            CHECK_OK(pawl_lock_acquire(lock, i % 2 ? 0 : PAWL_FOREVER, NULL));
        lock_free(lock);
        client_close(client);
    }
}
