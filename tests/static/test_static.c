/* SPDX-License-Identifier: Apache-2.0
 *
 * test_static.c - a program with all engines linked in: test_static SCHEME... No module can be
 * loaded here ($PAWL_ENGINE_DIR has none), so a scheme that can be opened is linked in.
 */
#include "check.h"
#include "pawl.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char **schemes;

static pawl_client *open_client(const char *url)
{
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, url, NULL, &err))
        check_fail(__FILE__, __LINE__, "%s: %s", url, err.text);
    return client;
}

CASE("a lock works in a program that is linked with all engines")
{
    pawl_client *client = open_client("trace:memory:");
    pawl_lock *lock;

    CHECK_OK(pawl_lock_new(&lock, client, "x", NULL, NULL));
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
}

/* Nobody listens on port 1. */
CASE("each engine that is a module elsewhere is part of the program, and works side by side")
{
    pawl_client *clients[16];
    size_t n = 0;
    char url[64];

    for (; schemes[n] && n < 16; n++) {
        snprintf(url, sizeof url, "%s://127.0.0.1:1?timeout=300", schemes[n]);
        clients[n] = open_client(url);
    }
    CHECK(n > 0);
    for (size_t i = 0; i < n; i++) {
        pawl_lock *lock;
        int code;

        check_note("%s", schemes[i]);
        CHECK_EQ(pawl_client_can(clients[i], PAWL_CAN_BE_DOWN), 1);
        CHECK_OK(pawl_lock_new(&lock, clients[i], "x", NULL, NULL));
        code = pawl_lock_acquire(lock, 0, NULL);
        CHECK(code == PAWL_ECONN || code == PAWL_EUNKNOWN || code == PAWL_EAUTH);
        pawl_lock_free(lock);
        pawl_close(clients[i]);
    }
}

/* ---- One service, several spellings ---------------------------------------------------------- */

typedef struct spelling {
    const char *scheme, *one, *two;
    bool same;
} spelling;

static bool linked(const char *scheme)
{
    for (size_t i = 0; schemes[i]; i++)
        if (!strcmp(schemes[i], scheme))
            return true;
    return false;
}

/* A name of the same service can't be a member of a multi-lock twice. */
static void check_spelling(const spelling *s)
{
    pawl_client *clients[2] = {open_client(s->one), open_client(s->two)};
    pawl_lock *members[2], *multi = NULL;

    check_note("%s and %s", s->one, s->two);
    for (int i = 0; i < 2; i++)
        CHECK_OK(pawl_lock_new(&members[i], clients[i], "x", NULL, NULL));
    CHECK_CODE(pawl_multi_new(&multi, members, 2, NULL), s->same ? PAWL_EINVAL : 0);
    pawl_lock_free(multi);
    for (int i = 0; i < 2; i++) {
        pawl_lock_free(members[i]);
        pawl_close(clients[i]);
    }
}

static void check_spellings(const spelling *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (linked(list[i].scheme))
            check_spelling(&list[i]);
}

#define CHECK_SPELLINGS(...)                                                                       \
    check_spellings((const spelling[]){__VA_ARGS__},                                               \
                    sizeof((const spelling[]){__VA_ARGS__}) / sizeof(spelling))

CASE("two spellings of one etcd or ZooKeeper are one service")
{
    CHECK_SPELLINGS(
        {"etcd", "etcd://127.0.0.1:1", "etcd://u:p@LOCALHOST:1/?prefix=pawl%2F&timeout=300", true},
        {"etcd", "etcd://localhost:1,127.0.0.2:1", "etcd://127.0.0.2:1,[::1]:1", true},
        {"etcd", "etcd://localhost:1", "etcd://localhost:1?session=5000", true},
        {"etcd", "etcd://localhost:1", "etcd://localhost:2", false},
        {"etcd", "etcd://localhost:1", "etcd://localhost:1?prefix=other%2F", false},
        {"zk", "zk://127.0.0.1:1", "zk://u:p@LOCALHOST:1/?session=5000", true},
        {"zk", "zk://localhost:1,127.0.0.2:1/app", "zk://127.0.0.2:1,[::1]:1/app/", true},
        {"zk", "zk://localhost:1/app/locks", "zk://localhost:1/%61pp?prefix=locks/", true},
        {"zk", "zk://localhost:1/app", "zk://localhost:1/other", false});
}

/* The variables of the environment that name another database or user. */
static void clear_defaults(void)
{
    unsetenv("PGDATABASE");
    unsetenv("PGUSER");
    unsetenv("PGSERVICE");
    setenv("PGSERVICEFILE", "/nowhere", 1);
}

CASE("two spellings of one PostgreSQL database are one service")
{
    clear_defaults();
    CHECK_SPELLINGS(
        {"postgres", "postgres://u@localhost:1", "postgresql://u@127.0.0.1:1/u", true},
        {"postgres", "postgres://u@localhost:1/", "postgres://v:p@LOCALHOST:1/u?sslmode=disable",
         true},
        {"postgres", "postgres://u@localhost:1", "postgres://u@localhost:1/app", false},
        {"postgres", "postgres://u@localhost:1", "postgres://v@localhost:1", false},
        {"postgres", "postgres://localhost:1,127.0.0.2:1/a", "postgres://127.0.0.2:1,[::1]:1/%61",
         true},
        {"postgres", "postgres://localhost:1/a", "postgres://localhost:1/a?prefix=other", false},
        {"postgres", "postgres://localhost:1/a", "postgres://localhost:1/a?layout=advisory",
         false},
        {"postgres", "postgres://u@localhost:1?layout=advisory",
         "postgres://localhost:1/u?layout=advisory&connections=4", true});
    setenv("PGDATABASE", "app", 1);
    CHECK_SPELLINGS({"postgres", "postgres://u@localhost:1", "postgres://localhost:1/app", true});
    setenv("PGDATABASE", "", 1);
    setenv("PGUSER", "shop", 1);
    CHECK_SPELLINGS({"postgres", "postgres://localhost:1", "postgres://localhost:1/shop", true});
}

CASE("two spellings of one MariaDB or MySQL database are one service")
{
    CHECK_SPELLINGS(
        {"mysql", "mysql://u@localhost:1/app", "mariadb://v:p@127.0.0.1:1/%61pp?timeout=300", true},
        {"mysql", "mysql://localhost:1,127.0.0.2:1/app", "mysql://127.0.0.2:1,[::1]:1/app", true},
        {"mysql", "mysql://localhost:1/app?prefix=x", "mysql://localhost:1/b?prefix=app.x", true},
        {"mysql", "mysql://localhost:1/app", "mysql://localhost:1/other", false},
        {"mysql", "mysql://localhost:1/app", "mysql://localhost:1/app?prefix=other", false},
        {"mysql", "mysql://localhost:1/app", "mysql://localhost:1/app?layout=session", false},
        {"mysql", "mysql://localhost:1/app?layout=session",
         "mysql://localhost:1/other?layout=session", true});
}

CASE("an engine that is neither linked in nor a module is refused")
{
    pawl_client *client;

    CHECK_CODE(pawl_open(&client, "nosuchengine:", NULL, NULL), PAWL_ENOTSUP);
}

int main(int argc, char **argv)
{
    (void)argc;
    schemes = argv + 1;
    return check_main(1, argv);
}
