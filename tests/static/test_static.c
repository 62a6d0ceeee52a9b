/* SPDX-License-Identifier: Apache-2.0
 *
 * test_static.c - a program with all engines linked in: test_static SCHEME... No module can be
 * loaded here ($PAWL_ENGINE_DIR has none), so a scheme that can be opened is linked in.
 */
#include "check.h"
#include "pawl.h"

#include <stdio.h>

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
