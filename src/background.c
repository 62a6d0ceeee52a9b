/* SPDX-License-Identifier: Apache-2.0
 *
 * background.c - the background thread: drives the loop when no caller does (driver.c has the
 * rules), and runs user callbacks unless a foreign loop does.
 *
 *     RESTS   in poll() on rest_fd and tell_fd: callers drive, or have just done so
 *     DRIVES  in poll() on the outer descriptor and tell_fd
 *     WATCHES a foreign loop, on a condition with a time-out: the background thread steps in when
 *             a timer is overdue
 *
 * The background thread wakes up when another thread calls pawl__tell (a callback is queued, an
 * operation is under way that no caller waits for, a caller wants to drive, close), when a timer is
 * due, and goes from RESTS to DRIVES when no caller has driven since the rest began. The client's
 * mutex guards all state.
 */
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "core.h"

#define LATE (20 * PAWL_NS_PER_MS)

/* Wait until `fd` is readable or another thread calls pawl__tell. */
static void background_poll(pawl_client *client, int fd)
{
    struct driver *d = &client->driver;
    struct background *b = &client->driver.background;
    struct pollfd fds[2] = {{fd, POLLIN, 0}, {d->tell_fd, POLLIN, 0}};
    uint64_t count;

    b->polls = true;
    pawl__unlock(client);
    poll(fds, 2, -1);
    pawl__lock(client);
    b->polls = false;
    if (!d->fd_mode) /* else the foreign loop reads tell_fd */
        (void)!read(d->tell_fd, &count, sizeof count);
}

static void background_drive(pawl_client *client)
{
    struct driver *d = &client->driver;

    d->thread = DRIVER_BACKGROUND;
    background_poll(client, d->epoll_fd);
    if (d->thread == DRIVER_BACKGROUND)
        d->thread = NULL;
    pawl__forget(client);
    pawl__turn(client);
    pawl__arm(client);
}

/* Sleep until the condition is signalled or `until` (PAWL_NEVER: no limit) has passed. */
static void background_sleep(pawl_client *client, int64_t until)
{
    struct background *b = &client->driver.background;
    struct timespec at;
    int64_t left;

    if (client->log.lines) {
        pawl__unlock(client);
        pawl__lock(client);
        return; /* the caller checks its state again */
    }
    if (until == PAWL_NEVER) {
        pthread_cond_wait(&b->wake, &client->mu);
        return;
    }
    left = until - pawl__now(client);
    if (left <= 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (at.tv_nsec + left) / 1000000000;
    at.tv_nsec = (at.tv_nsec + left) % 1000000000;
    pthread_cond_timedwait(&b->wake, &client->mu, &at);
}

/* A foreign loop drives. Step in only when a timer is overdue, and then drive until the foreign
 * loop calls pawl_client_process again or all requests are answered. */
static void background_back_up(pawl_client *client)
{
    struct background *b = &client->driver.background;
    struct pollfd fd = {client->driver.epoll_fd, POLLIN, 0};
    int64_t due = pawl__timers_next(&client->timers);

    if (!b->stepped_in && due > pawl__now(client) - LATE) {
        b->backs_up = due;
        background_sleep(client, due < PAWL_NEVER - LATE ? due + LATE : PAWL_NEVER);
        return;
    }
    b->stepped_in = true;
    pawl__forget(client);
    pawl__turn(client);
    pawl__arm(client);
    if (list_empty(&client->requests.all)) {
        b->stepped_in = false;
        return;
    }
    pawl__unlock(client);
    poll(&fd, 1, LATE / PAWL_NS_PER_MS);
    pawl__lock(client);
}

static void background_rest(pawl_client *client)
{
    struct background *b = &client->driver.background;
    uint64_t count;

    b->rests = true;
    if (!client->driver.thread)
        pawl__rest_end(client);
    background_poll(client, b->rest_fd);
    b->rests = false;
    if (read(b->rest_fd, &count, sizeof count) > 0)
        b->rest_until = PAWL_NEVER;
}

/* May the background thread rest? *seen is the value of `activity` at the last call. */
static bool background_may_rest(pawl_client *client, uint64_t *seen)
{
    struct driver *d = &client->driver;
    bool active = d->activity != *seen;

    *seen = d->activity;
    if (d->thread)
        return true;
    return active && !(d->background.needed && !list_empty(&client->requests.all)) &&
           pawl__timers_next(&client->timers) > pawl__now(client);
}

static void *background_main(void *arg)
{
    pawl_client *client = arg;
    struct driver *d = &client->driver;
    struct background *b = &client->driver.background;
    uint64_t seen = 0;

    pawl__lock(client);
    while (!b->stops) {
        if (!list_empty(&d->callbacks) && !d->fd_mode && !d->dispatching) {
            if (pawl__dispatch(client, true) < 0)
                return NULL; /* this is a forked child, whose only thread ends here */
        } else if (d->fd_mode) {
            background_back_up(client);
        } else if (background_may_rest(client, &seen)) {
            background_rest(client);
        } else {
            b->needed = false;
            pawl__before_unlock(client);
            if (list_empty(&d->callbacks) || d->dispatching)
                background_drive(client);
        }
    }
    pawl__unlock(client);
    return NULL;
}

int pawl__background_start(pawl_client *client)
{
    struct background *b = &client->driver.background;
    sigset_t all, before;
    int failed;

    if (b->runs || client->world)
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&b->thread, NULL, background_main, client);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return PAWL_ENOMEM;
    b->runs = true;
    return 0;
}

void pawl__background_stop(pawl_client *client)
{
    struct background *b = &client->driver.background;

    if (!b->runs)
        return;
    b->stops = true;
    pthread_cond_signal(&b->wake);
    pawl__tell(client);
    pawl__unlock(client);
    pthread_join(b->thread, NULL);
    pawl__lock(client);
    b->runs = false;
}
