/* SPDX-License-Identifier: Apache-2.0
 *
 * plain.c - the usual home-made lock on Redis: SET NX PX, and a script that deletes the key if the
 * key is still ours; if the lock is taken, the client retries after 5 ms. No queue, no token, no
 * renewal. The address is HOST:PORT, and the host is 127.0.0.1.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../plain.h"
#include "worker.h"

struct plain_mutex {
    struct plain *client;
    struct plain_request acquire, release;
};

static void *open_client(const char *address)
{
    const char *colon = strrchr(address, ':');
    struct plain_server server = {.port = colon ? atoi(colon + 1) : 0};

    return plain_open(&server);
}

static void *new_lock(void *client, const char *name)
{
    static const char script[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                                 "return redis.call('DEL', KEYS[1]) end return 0";
    struct plain_mutex *m = calloc(1, sizeof *m);
    char digest[41], owner[32];

    if (!m)
        die("calloc", "failed");
    m->client = client;
    snprintf(owner, sizeof owner, "%d:%p", (int)getpid(), (void *)m);
    plain_script(client, script, digest);
    plain_command(&m->acquire, 6, (const char *[]){"SET", name, owner, "NX", "PX", "30000"});
    plain_command(&m->release, 5, (const char *[]){"EVALSHA", digest, "1", name, owner});
    return m;
}

static bool done(struct plain_mutex *m, const struct plain_request *r, char expected)
{
    size_t len;

    plain_send(m->client, r->data, r->len);
    return plain_reply(m->client, &len)[0] == expected;
}

static void acquire(void *lock)
{
    struct plain_mutex *m = lock;

    while (!done(m, &m->acquire, '+'))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void release(void *lock)
{
    struct plain_mutex *m = lock;

    if (!done(m, &m->release, ':'))
        die("EVALSHA", "refused");
}

static void close_client(void *client)
{
    plain_close(client);
}

const struct library library_plain = {"plain", open_client, new_lock, acquire, release,
                                      close_client, NULL};
