/* SPDX-License-Identifier: Apache-2.0
 *
 * pawl.c - Pawl itself; the address is a URL. Threads own the locks, as in most programs.
 */
#include "pawl.h"
#include "worker.h"

static void must(int code, const char *what, const pawl_error *err)
{
    if (code)
        die(what, err->text);
}

static void *open_client(const char *url)
{
    pawl_client *client;
    pawl_error err = {0};

    must(pawl_open(&client, url, NULL, &err), "pawl_open", &err);
    return client;
}

static void *new_lock(void *client, const char *name)
{
    pawl_lock *lock;
    pawl_error err = {0};

    must(pawl_lock_new(&lock, client, name, NULL, &err), "pawl_lock_new", &err);
    return lock;
}

static void acquire(void *lock)
{
    pawl_error err = {0};

    must(pawl_lock_acquire(lock, PAWL_FOREVER, &err), "pawl_lock_acquire", &err);
}

static void release(void *lock)
{
    pawl_error err = {0};

    must(pawl_lock_release(lock, &err), "pawl_lock_release", &err);
}

static void close_client(void *client)
{
    pawl_close(client);
}

const struct library library_pawl = {"pawl", open_client, new_lock, acquire, release, close_client,
                                     NULL};
