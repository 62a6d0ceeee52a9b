/* SPDX-License-Identifier: Apache-2.0
 *
 * test_can.c - the capabilities of a service, and which engine a URL means. The answers come from
 * the engine, never from words that happen to be in the URL. No server is needed, because pawl_open
 * does not wait for the connection.
 */
#include "actors.h"
#include "check.h"
#include "engine.h"
#include "registry.h"

#define LOCK_OPTIONS(...) (&(pawl_lock_options){.size = sizeof(pawl_lock_options), __VA_ARGS__})
#define QUESTIONS (PAWL_CAN_NAME_BREAKER + 1)

static pawl_client *open_client(const char *url)
{
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, url, NULL, &err))
        check_fail(__FILE__, __LINE__, "%s: %s", url, err.text);
    return client;
}

static int ask(const char *url, int what)
{
    pawl_client *client = open_client(url);
    int answer = pawl_client_can(client, what);

    pawl_close(client);
    return answer;
}

/* Check that both URLs give the same answers to all questions. */
static void same_answers(const char *one, const char *two)
{
    check_note("%s, %s", one, two);
    for (int i = 0; i < QUESTIONS; i++)
        CHECK_EQ(ask(one, i), ask(two, i));
}

CASE("words of other engines in a URL change no answer")
{
    same_answers("redis://zk:6379", "redis://localhost");
    same_answers("redis://etcd:6379", "redis://localhost");
    same_answers("redis://localhost?prefix=zk:", "redis://localhost");
    same_answers("redis://localhost?prefix=layout%3dadvisory:", "redis://localhost");
    same_answers("redis://layout:watchdog@memory:6379?prefix=local:", "redis://localhost");
    same_answers("memory:layout=redisson", "memory:");
    CHECK_EQ(ask("redis://zk:6379", PAWL_CAN_LINGER), 1);
    CHECK_EQ(ask("redis://zk:6379", PAWL_CAN_LEASE), 1);
    CHECK_EQ(ask("redis://local:6379", PAWL_CAN_BE_DOWN), 1);
    CHECK_EQ(ask("redis://etcd:6379", PAWL_CAN_NAME_BREAKER), 1);
}

CASE("an alias of a scheme is the same engine")
{
    same_answers("valkey://localhost", "redis://localhost");
    same_answers("valkeys://localhost", "rediss://localhost");
}

CASE("a wrapper can do what its inner engine can")
{
    same_answers("trace:memory:a", "memory:a");
    same_answers("fault:drop=1;memory:a", "memory:a");
    same_answers("trace:redis://localhost?layout=redisson", "redis://localhost?layout=redisson");
}

CASE("the layout decides, not the scheme alone")
{
    CHECK_EQ(ask("redis://localhost", PAWL_CAN_QUEUE), 1);
    CHECK_EQ(ask("redis://localhost?layout=redisson", PAWL_CAN_QUEUE), 0);
    CHECK_EQ(ask("redis://localhost?layout=redisson", PAWL_CAN_FAIR), 1);
    CHECK_EQ(ask("redis://localhost?layout=redisson", PAWL_CAN_DETAIL), 0);
    CHECK_EQ(ask("redis://localhost?layout=redisson", PAWL_CAN_LINGER), 0);
    CHECK_EQ(ask("redis://localhost?layout=redisson", PAWL_CAN_LINGER_CLOSED), 1);
}

CASE("a quorum can't do what one of its nodes can't, and breaks late")
{
    const char *url = "quorum:memory:a|memory:b|memory:c";

    CHECK_EQ(ask(url, PAWL_CAN_SEMAPHORE), 0);
    CHECK_EQ(ask(url, PAWL_CAN_BREAK_AT_ONCE), 0);
    CHECK_EQ(ask("memory:", PAWL_CAN_BREAK_AT_ONCE), 1);
    CHECK_EQ(ask(url, PAWL_CAN_SHARE), 0);
    CHECK_EQ(ask(url, PAWL_CAN_BE_DOWN), 0);
    url = "quorum:memory:a|redis://localhost|memory:c";
    CHECK_EQ(ask(url, PAWL_CAN_SHARE), 0);
    CHECK_EQ(ask(url, PAWL_CAN_BE_DOWN), 1);
}

CASE("a question that is unknown, or about no client, is invalid")
{
    pawl_client *client = open_client("memory:");

    CHECK_CODE(pawl_client_can(client, -1), PAWL_EINVAL);
    CHECK_CODE(pawl_client_can(client, QUESTIONS), PAWL_EINVAL);
    CHECK_CODE(pawl_client_can(NULL, PAWL_CAN_READ), PAWL_EINVAL);
    CHECK_EQ(pawl_client_lease_ms(NULL), PAWL_EINVAL);
    pawl_close(client);
}

CASE("the lease is the one of the options, the URL or the default, also inside a wrapper")
{
    pawl_client_options options = {.size = sizeof options, .watchdog_ms = 4000};
    const char *urls[] = {"memory:", "memory:?watchdog=7000", "trace:memory:?watchdog=7000",
                          "memory:watchdog=7000"};
    const int64_t leases[] = {30000, 7000, 7000, 30000};
    pawl_client *client;

    for (int i = 0; i < 4; i++) {
        client = open_client(urls[i]);
        CHECK_EQ(pawl_client_lease_ms(client), leases[i]);
        pawl_close(client);
    }
    CHECK_OK(pawl_open(&client, urls[1], &options, NULL));
    CHECK_EQ(pawl_client_lease_ms(client), 4000);
    pawl_close(client);
}

static int ignore(void *arg, const pawl_info *info)
{
    (void)arg;
    (void)info;
    return 0;
}

/* "late:" (tests/module) hides capabilities of its inner engine. */
CASE("without a queue there are no fair locks, without lists no list, and the rest works")
{
    pawl_lock *lock, *other;
    pawl_client *client;
    pawl_error err;
    char url[64];

    snprintf(url, sizeof url, "late:without=%d;memory:", PAWL_CAP_QUEUE | PAWL_CAP_LIST);
    client = open_client(url);
    CHECK_EQ(pawl_client_can(client, PAWL_CAN_FAIR), 0);
    CHECK_EQ(pawl_client_can(client, PAWL_CAN_LIST), 0);
    CHECK_CODE(pawl_lock_new(&lock, client, "x", LOCK_OPTIONS(.kind = PAWL_FAIR), &err),
               PAWL_ENOTSUP);
    CHECK(strstr(err.text, "fair"));
    CHECK_CODE(pawl_list(client, NULL, ignore, NULL, &err), PAWL_ENOTSUP);
    CHECK_OK(pawl_lock_new(&lock, client, "x", NULL, NULL));
    CHECK_OK(pawl_lock_new(&other, client, "x", LOCK_OPTIONS(.owner = PAWL_OWNER_HANDLE), NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_CODE(pawl_lock_acquire(other, 50, NULL), PAWL_ETIMEDOUT);
    CHECK_OK(pawl_lock_release(lock, NULL));
    CHECK_OK(pawl_lock_acquire(other, 10000, NULL));
    pawl_lock_free(lock);
    pawl_lock_free(other);
    pawl_close(client);
}

/* ---- The registry ---------------------------------------------------------------------------- */

CASE("every scheme and alias of the registry is found, and only in full")
{
#define FIND(scheme, alias, how, symbol) {scheme, alias},
    static const char *const names[][2] = {PAWL_ENGINES(FIND, FIND)};
#undef FIND

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int k = 0; k < 2; k++) {
            size_t length = names[i][k] ? strlen(names[i][k]) : 0;

            if (!length)
                continue;
            CHECK(pawl__registry_find(names[i][k], length));
            CHECK_STR(pawl__registry_find(names[i][k], length)->scheme, names[i][0]);
            CHECK(!pawl__registry_find(names[i][k], length - 1) ||
                  strcmp(pawl__registry_find(names[i][k], length - 1)->scheme, names[i][0]));
        }
    CHECK(!pawl__registry_find("", 0));
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
