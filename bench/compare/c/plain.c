/* SPDX-License-Identifier: Apache-2.0
 *
 * plain.c - the usual home-made lock on Redis: SET NX PX, and a script that deletes the key if the
 * key is still ours; if the lock is taken, the client retries after 5 ms. No queue, no token, no
 * renewal. The address is HOST:PORT, and the host is 127.0.0.1.
 *
 * With many locks in flight the client pipelines: each reply is followed by the lock's next
 * request, and requests are sent together as soon as no more replies are there. `plain` uses one
 * connection, `plain-many` spreads the locks over up to 50 connections, the default of
 * redis-benchmark.
 *
 * `scripts` sends the scripts that Pawl sends, with the same keys and arguments: the difference to
 * Pawl is the cost of the library. The client does not wait for a lock that is taken.
 *
 * `ping` is the round trip alone: the acquire is a PING, the release does nothing.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../plain.h"
#include "flight.h"
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

static void *new_lock(void *client, const char *name, enum kind kind)
{
    static const char script[] = "if redis.call('GET', KEYS[1]) == ARGV[1] then "
                                 "return redis.call('DEL', KEYS[1]) end return 0";
    struct plain_mutex *m = calloc(1, sizeof *m);
    char digest[41], owner[32];

    if (!m)
        die("calloc", "failed");
    if (kind != EXCLUSIVE)
        return NULL;
    m->client = client;
    snprintf(owner, sizeof owner, "%d:%p", (int)getpid(), (void *)m);
    plain_script(client, script, digest);
    plain_command(&m->acquire, 6, (const char *[]){"SET", name, owner, "NX", "PX", "30000"});
    plain_command(&m->release, 5, (const char *[]){"EVALSHA", digest, "1", name, owner});
    return m;
}

static bool done(struct plain_mutex *m, const struct plain_request *r, const char *expected)
{
    size_t len;

    plain_send(m->client, r->data, r->len);
    return !memcmp(plain_reply(m->client, &len), expected, 2);
}

static void acquire(void *lock)
{
    struct plain_mutex *m = lock;

    while (!done(m, &m->acquire, "+O"))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static void release(void *lock)
{
    struct plain_mutex *m = lock;

    if (!done(m, &m->release, ":1"))
        die("plain", "the lock was lost before its release");
}

static void close_client(void *client)
{
    plain_close(client);
}

/* ---- many in flight -------------------------------------------------------------------------- */

enum { CONNECTIONS = 50, BATCH = 64 * 1024 };

/* Replies come in the order of the requests, so the locks of a connection take turns: `next` is the
 * lock of the next reply. Locks that have landed are left out. */
struct pipe {
    struct plain *client;
    int first, locks, next, flying;
    size_t len;
    char out[BATCH];
};

static struct plain_mutex *mutexes[FLIGHT_MAX];
static bool held[FLIGHT_MAX], landed[FLIGHT_MAX];

static void flush(struct pipe *p)
{
    plain_send(p->client, p->out, p->len);
    p->len = 0;
}

static void put(struct pipe *p, const struct plain_request *r)
{
    if (p->len + r->len > sizeof p->out)
        flush(p);
    memcpy(p->out + p->len, r->data, r->len);
    p->len += r->len;
}

/* Read one reply, and put the next request of its lock. */
static void take(struct pipe *p, struct flight *flight)
{
    size_t len;
    const char *got = plain_reply(p->client, &len);
    int lock;

    while (landed[p->first + p->next])
        p->next = (p->next + 1) % p->locks;
    lock = p->first + p->next;
    p->next = (p->next + 1) % p->locks;
    if (memcmp(got, held[lock] ? ":1" : "+O", 2))
        die("plain", "a lock was not granted or not released");
    held[lock] = !held[lock];
    if (held[lock]) {
        put(p, &mutexes[lock]->release);
    } else if (flight_landed(flight, lock)) {
        put(p, &mutexes[lock]->acquire);
    } else {
        landed[lock] = true;
        p->flying--;
    }
}

static struct pipe *new_pipe(const char *address, int first, int locks)
{
    struct pipe *p = calloc(1, sizeof *p);
    char name[40];

    if (!p)
        die("calloc", "failed");
    p->client = open_client(address);
    p->first = first;
    p->locks = p->flying = locks;
    for (int i = first; i < first + locks; i++) {
        snprintf(name, sizeof name, "async-plain-%d", i);
        mutexes[i] = new_lock(p->client, name, EXCLUSIVE);
    }
    return p;
}

/* While the replies of one connection are read, the server has the requests of the others. */
static void fly_over(const char *address, struct flight *flight, int connections)
{
    struct pipe *pipes[CONNECTIONS];
    int flying = flight->locks;

    connections = connections < flying ? connections : flying;
    for (int i = 0; i < connections; i++) {
        int first = flying * i / connections, next = flying * (i + 1) / connections;

        pipes[i] = new_pipe(address, first, next - first);
    }
    flight_begin(flight);
    for (int i = 0; i < connections; i++) {
        for (int k = pipes[i]->first; k < pipes[i]->first + pipes[i]->locks; k++) {
            flight->began[k] = now_ns();
            put(pipes[i], &mutexes[k]->acquire);
        }
        flush(pipes[i]);
    }
    while (flying) {
        for (int i = 0; i < connections; i++) {
            struct pipe *p = pipes[i];
            int before = p->flying;

            while (p->flying && (p->len == 0 || plain_ready(p->client, 0)))
                take(p, flight);
            flush(p);
            flying -= before - p->flying;
        }
    }
}

static void fly(const char *address, struct flight *flight)
{
    fly_over(address, flight, 1);
}

static void fly_many(const char *address, struct flight *flight)
{
    fly_over(address, flight, CONNECTIONS);
}

/* ---- Pawl's scripts -------------------------------------------------------------------------- */

struct scripted {
    struct plain *client;
    struct plain_lock lock;
};

static void scripts_prepare(const char *address)
{
    struct plain *client = open_client(address);

    plain_locks_load(client);
    plain_close(client);
}

static void *scripts_lock(void *client, const char *name, enum kind kind)
{
    struct scripted *s = calloc(1, sizeof *s);

    if (!s)
        die("calloc", "failed");
    s->client = client;
    plain_lock_init(&s->lock, name, ((uint64_t)getpid() << 32) + (uintptr_t)s % UINT32_MAX, 60000);
    return kind == EXCLUSIVE ? s : NULL;
}

static void scripts_acquire(void *lock)
{
    struct scripted *s = lock;

    plain_lock_next(&s->lock);
    plain_send(s->client, s->lock.acquire.data, s->lock.acquire.len);
    plain_granted(s->client);
}

static void scripts_release(void *lock)
{
    struct scripted *s = lock;

    plain_send(s->client, s->lock.release.data, s->lock.release.len);
    plain_released(s->client);
}

/* ---- the round trip alone -------------------------------------------------------------------- */

static void *ping_lock(void *client, const char *name, enum kind kind)
{
    (void)name;
    (void)kind;
    return client;
}

static void ping(void *client)
{
    size_t len;

    plain_send(client, "PING\r\n", 6);
    if (plain_reply(client, &len)[0] != '+')
        die("PING", "refused");
}

static void nothing(void *client)
{
    (void)client;
}

const struct library library_plain = {.name = "plain", .open = open_client, .lock = new_lock,
                                      .acquire = acquire, .release = release,
                                      .close = close_client, .fly = fly, .one_thread = true};
const struct library library_plain_many = {.name = "plain-many", .open = open_client,
                                           .lock = new_lock, .acquire = acquire,
                                           .release = release, .close = close_client,
                                           .fly = fly_many, .one_thread = true};
const struct library library_scripts = {.name = "scripts", .open = open_client,
                                        .lock = scripts_lock, .acquire = scripts_acquire,
                                        .release = scripts_release, .close = close_client,
                                        .prepare = scripts_prepare, .one_thread = true};
const struct library library_ping = {.name = "ping", .open = open_client, .lock = ping_lock,
                                     .acquire = ping, .release = nothing,
                                     .close = close_client, .one_thread = true};
