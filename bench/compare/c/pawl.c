/* SPDX-License-Identifier: Apache-2.0
 *
 * pawl.c - Pawl itself; the address is a URL. Threads own the locks, as in most programs; with many
 * locks in flight from one thread, the handles own them, and the thread runs Pawl's loop itself.
 */
#include "pawl.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "flight.h"
#include "worker.h"

/* One of the two is NULL. */
struct handle {
    pawl_lock *lock;
    pawl_semaphore *semaphore;
};

static void must(int code, const char *what, const pawl_error *err)
{
    if (code)
        die(what, err ? err->text : pawl_strerror(code));
}

static void *open_client(const char *url)
{
    pawl_client *client;
    pawl_error err = {0};

    must(pawl_open(&client, url, NULL, &err), "pawl_open", &err);
    return client;
}

static void *new_lock(void *client, const char *name, enum kind kind)
{
    static const uint64_t kinds[] = {PAWL_MUTEX, PAWL_READ, PAWL_WRITE};
    pawl_semaphore_options permits = {.size = sizeof permits, .permits = PERMITS};
    struct handle *h = calloc(1, sizeof *h);
    pawl_error err = {0};

    if (!h)
        die("calloc", "failed");
    if (kind == PERMIT) {
        must(pawl_semaphore_new(&h->semaphore, client, name, &permits, &err), "semaphore", &err);
    } else {
        pawl_lock_options options = {.size = sizeof options, .kind = kinds[kind]};

        must(pawl_lock_new(&h->lock, client, name, &options, &err), "pawl_lock_new", &err);
    }
    return h;
}

static void acquire(void *handle)
{
    struct handle *h = handle;
    pawl_error err = {0};

    must(h->lock ? pawl_lock_acquire(h->lock, PAWL_FOREVER, &err)
                 : pawl_semaphore_acquire(h->semaphore, 1, PAWL_FOREVER, &err), "acquire", &err);
}

static void release(void *handle)
{
    struct handle *h = handle;
    pawl_error err = {0};

    must(h->lock ? pawl_lock_release(h->lock, &err) : pawl_semaphore_release(h->semaphore, 1, &err),
         "release", &err);
}

static void close_client(void *client)
{
    pawl_close(client);
}

/* ---- many in flight -------------------------------------------------------------------------- */

struct pilot {
    struct flight *flight;
    pawl_lock *locks[FLIGHT_MAX];
    int flying;
};

struct seat {
    struct pilot *pilot;
    int number;
};

static pawl_done_fn acquired, released;

static void start(struct seat *seat)
{
    pawl_lock *lock = seat->pilot->locks[seat->number];

    must(pawl_lock_acquire_start(lock, PAWL_FOREVER, acquired, seat), "acquire_start", NULL);
}

static void acquired(void *arg, pawl_lock *lock, int code)
{
    must(code, "acquire_start", NULL);
    must(pawl_lock_release_start(lock, released, arg), "release_start", NULL);
}

static void released(void *arg, pawl_lock *lock, int code)
{
    struct seat *seat = arg;

    (void)lock;
    must(code, "release_start", NULL);
    if (flight_landed(seat->pilot->flight, seat->number))
        start(seat);
    else
        seat->pilot->flying--;
}

static void fly(const char *url, struct flight *flight)
{
    pawl_lock_options options = {.size = sizeof options, .owner = PAWL_OWNER_HANDLE};
    static struct pilot pilot;
    static struct seat seats[FLIGHT_MAX];
    pawl_client *client = open_client(url);
    struct pollfd p = {pawl_client_fd(client), POLLIN, 0};
    pawl_error err = {0};
    char name[40];

    pilot.flight = flight;
    for (int i = 0; i < flight->locks; i++) {
        snprintf(name, sizeof name, "async-%d", i);
        must(pawl_lock_new(&pilot.locks[i], client, name, &options, &err), "pawl_lock_new", &err);
        seats[i] = (struct seat){&pilot, i};
    }
    flight_begin(flight);
    for (pilot.flying = 0; pilot.flying < flight->locks; pilot.flying++) {
        flight->began[pilot.flying] = now_ns();
        start(&seats[pilot.flying]);
    }
    while (pilot.flying) {
        poll(&p, 1, 1000);
        if (pawl_client_process(client) < 0)
            die("pawl_client_process", "failed");
    }
    pawl_close(client);
}

const struct library library_pawl = {.name = "pawl", .open = open_client, .lock = new_lock,
                                     .acquire = acquire, .release = release,
                                     .close = close_client, .fly = fly};
