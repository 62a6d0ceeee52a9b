/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c - the driver: the thread that runs the loop.
 *
 * All state is under the client's mutex, so any thread may submit ops and run a turn of the loop; a
 * turn never blocks. Only waiting needs an agreement between threads. One outer epoll descriptor
 * contains libuv's own descriptor, a timer descriptor on CLOCK_BOOTTIME (armed for the earliest
 * timer; this clock also counts the time that a machine sleeps) and an event descriptor (the kick).
 * The driver is the thread in epoll_wait on the outer descriptor, without the mutex:
 *
 *   - A caller becomes the driver if its op is not done and no other caller is the driver. So a
 *     program with one thread pays for no thread switch.
 *   - Other callers sleep, each on a condition of its own. The driver wakes the callers of the ops
 *     that are done. When the driver's own op is done, the driver wakes another caller to drive
 *     on. Callers that only wait for another thread of the process (the cohort) never drive.
 *   - The background thread drives when no caller does. A caller that needs the role takes the role
 *     from the background thread, which then rests. The background thread takes the role back at
 *     once if an operation is under way that no caller waits for, else only when no caller has
 *     driven for a while: so a program in a loop of calls need not compete with the background
 *     thread for every answer. The rest has no end while a caller drives; the caller that drives
 *     last sets the end, on a timer descriptor, which wakes no thread now.
 *   - A foreign loop polls the same descriptor and calls pawl_client_process. The background thread
 *     then only steps in when a timer is overdue, until the foreign loop comes round again.
 *
 * Two threads may be in epoll_wait at the same time, because both handle events under the mutex.
 * But an event that one of the threads consumes is not seen by the other. So the background thread
 * and the foreign loop are woken by a descriptor of their own (tell_fd), which callers neither wait
 * for nor read. A foreign loop's descriptor is another epoll descriptor, over the same three
 * descriptors and tell_fd.
 *
 * A server on the same machine answers sooner than a sleeping thread gets a CPU again. So a driver
 * that has just sent a request spins for a moment before it sleeps. After failed spins (the answer
 * takes longer, or the CPUs are busy) the driver backs off and spins less often. A client does
 * not spin at all if its last acquire had to wait, because on a machine with few CPUs the spinning
 * would delay the holder. (The driver does not call sched_yield, after which the kernel may not run
 * the thread again for a long time.)
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core.h"

#define REST (20 * PAWL_NS_PER_MS)
#define TURNS_MAX 8
#define SPIN 50000        /* ns */
#define SPIN_FREE 4       /* this many failed spins in a row cause no back-off */
#define SPIN_SKIP_MAX 256 /* after more failures, at most this many waits without spinning */

/* ---- setting up ------------------------------------------------------------------------------ */

static int watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int watch_all(pawl_client *client, int epoll_fd)
{
    struct driver *d = &client->driver;

    return watch(epoll_fd, uv_backend_fd(&d->loop)) || watch(epoll_fd, d->timer_fd) ||
           watch(epoll_fd, d->kick_fd);
}

int pawl__user_fd(pawl_client *client)
{
    struct driver *d = &client->driver;

    if (d->user_fd < 0 && d->epoll_fd >= 0) {
        int fd = epoll_create1(EPOLL_CLOEXEC);

        if (fd >= 0 && (watch_all(client, fd) || watch(fd, d->tell_fd))) {
            close(fd);
            fd = -1;
        }
        d->user_fd = fd;
    }
    return d->user_fd;
}

void pawl__driver_init(pawl_client *client)
{
    struct driver *d = &client->driver;
    struct background *b = &client->driver.background;
    pthread_condattr_t attr;

    list_init(&d->sleepers);
    list_init(&d->callbacks);
    d->epoll_fd = d->timer_fd = d->kick_fd = d->tell_fd = d->user_fd = b->rest_fd = -1;
    d->armed = b->backs_up = b->rest_until = PAWL_NEVER;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&b->wake, &attr);
    pthread_condattr_destroy(&attr);
}

void pawl__driver_free(pawl_client *client)
{
    pthread_cond_destroy(&client->driver.background.wake);
}

int pawl__driver_open(pawl_client *client, pawl_error *err)
{
    struct driver *d = &client->driver;
    struct background *b = &client->driver.background;
    int error;

    if (client->world)
        return 0;
    d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    d->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    d->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    d->tell_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    b->rest_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (d->epoll_fd < 0 || d->timer_fd < 0 || d->kick_fd < 0 || d->tell_fd < 0 || b->rest_fd < 0)
        return pawl_error_set(err, PAWL_ENOMEM, "can't make an event loop: %s", strerror(errno));
    error = pawl__loop_init(&d->loop);
    if (error)
        return pawl_error_set(err, PAWL_ENOMEM, "can't make an event loop: %s", strerror(error));
    d->loop_open = true;
    client->env.loop = &d->loop;
    if (watch_all(client, d->epoll_fd))
        return pawl_error_set(err, PAWL_ENOMEM, "can't watch the loop: %s", strerror(errno));
    return 0;
}

void pawl__driver_close(pawl_client *client)
{
    struct driver *d = &client->driver;
    int *fds[] = {&d->user_fd, &d->epoll_fd, &d->timer_fd,
                  &d->kick_fd, &d->tell_fd,  &d->background.rest_fd};

    if (d->loop_open) {
        while (uv_loop_close(&d->loop) == UV_EBUSY)
            uv_run(&d->loop, UV_RUN_ONCE); /* run the close callbacks of the engine's handles */
        d->loop_open = false;
    }
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

/* ---- turning --------------------------------------------------------------------------------- */

void pawl__kick(pawl_client *client)
{
    struct driver *d = &client->driver;
    uint64_t one = 1;

    if (d->kick_fd >= 0)
        (void)!write(d->kick_fd, &one, sizeof one);
}

void pawl__tell(pawl_client *client)
{
    struct driver *d = &client->driver;
    struct background *b = &client->driver.background;
    uint64_t one = 1;

    if (d->fd_mode || b->polls)
        (void)!write(d->tell_fd, &one, sizeof one);
    if (!d->fd_mode && !b->polls)
        pthread_cond_signal(&b->wake);
}

static void ring_at(int timer_fd, int64_t when)
{
    struct itimerspec at = {0};

    if (when < 1)
        when = 1;
    at.it_value.tv_sec = when / 1000000000;
    at.it_value.tv_nsec = when % 1000000000;
    timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

void pawl__arm(pawl_client *client)
{
    struct driver *d = &client->driver;
    struct background *b = &client->driver.background;
    int64_t due = pawl__timers_next(&client->timers);

    if (d->fd_mode && due < b->backs_up)
        pthread_cond_signal(&b->wake);
    if (due >= d->armed || d->timer_fd < 0)
        return;
    d->armed = due;
    ring_at(d->timer_fd, due);
}

static void flush_engine(pawl_client *client)
{
    struct driver *d = &client->driver;
    const pawl_engine *engine = client->engine.engine;

    if (!d->unflushed)
        return;
    d->unflushed = false;
    if (!engine || !engine->flush) {
        d->dirty = true;
        return;
    }
    pawl__defer_begin(client);
    engine->flush(client->engine.state);
    pawl__defer_end(client);
}

static void turn_once(pawl_client *client)
{
    struct driver *d = &client->driver;
    pawl_timer *timer;
    int64_t now;

    d->dirty = false;
    pawl__defer_begin(client);
    if (d->loop_open)
        uv_run(&d->loop, UV_RUN_NOWAIT);
    if (atomic_load(&d->woken)) /* else the sender's kick leads to another turn */
        pawl__wakes_run(client);
    now = pawl__now(client);
    while ((timer = pawl__timers_take(&client->timers, now)))
        timer->fire(timer);
    pawl__defer_end(client);
    pawl__requests_flush(client);
    flush_engine(client);
    if (client->closing.thread)
        pawl__close_check(client); /* the engine may have finished its background work */
}

/* Run the loop until nothing is left to do, at most TURNS_MAX times: a watcher or a write that
 * begins in one turn reaches the kernel in the next turn. */
void pawl__turn(pawl_client *client)
{
    for (int i = 0; i < TURNS_MAX && (i == 0 || client->driver.dirty); i++)
        turn_once(client);
}

void pawl__before_unlock(pawl_client *client)
{
    struct driver *d = &client->driver;
    pawl__requests_flush(client);
    flush_engine(client);
    if (d->dirty)
        pawl__turn(client);
    pawl__arm(client);
    if (d->dirty)
        pawl__kick(client); /* still dirty after TURNS_MAX turns: the next driver continues */
}

static void forget_these(pawl_client *client, const struct epoll_event *events, int n)
{
    struct driver *d = &client->driver;
    uint64_t count;

    for (int i = 0; i < n; i++) {
        int fd = events[i].data.fd;

        if (fd == d->timer_fd)
            d->armed = PAWL_NEVER;
        if (fd == d->timer_fd || fd == d->kick_fd)
            (void)!read(fd, &count, sizeof count);
        if (fd == d->kick_fd && d->thread && d->thread != DRIVER_BACKGROUND && d->thread->done)
            pawl__kick(client); /* the kick was for the thread that is the driver now */
    }
}

void pawl__forget(pawl_client *client)
{
    struct driver *d = &client->driver;
    struct epoll_event events[4];

    if (d->epoll_fd >= 0)
        forget_these(client, events, epoll_wait(d->epoll_fd, events, 4, 0));
}

void pawl__signals_forget(pawl_client *client)
{
    struct driver *d = &client->driver;
    uint64_t count;

    if (d->fd_mode)
        (void)!read(d->tell_fd, &count, sizeof count);
    d->background.stepped_in = false;
    pawl__forget(client);
}

/* Poll for events without sleeping, for up to SPIN ns. Called without the mutex. Returns as
 * epoll_wait does. */
static int spin(pawl_client *client, struct epoll_event *events, int room)
{
    int64_t end = pawl__now(client) + SPIN;
    int n;

    do {
        n = epoll_wait(client->driver.epoll_fd, events, room, 0);
    } while (!n && pawl__now(client) < end);
    return n;
}

static bool may_spin(pawl_client *client)
{
    struct spin *spin = &client->driver.spin;
    bool sent = spin->sent;

    spin->sent = false;
    if (!sent || spin->contended)
        return false;
    if (!spin->skip)
        return true;
    spin->skip--;
    return false;
}

static void learn_from_spin(pawl_client *client, bool seen)
{
    struct spin *spin = &client->driver.spin;

    spin->failed = seen ? 0 : spin->failed + 1;
    if (spin->failed > SPIN_FREE) {
        unsigned doubled = spin->failed - SPIN_FREE;

        spin->skip = doubled < 8 ? 1u << doubled : SPIN_SKIP_MAX;
    }
}

/* Wait for events and handle them. A thread that has consumed an event must handle the event, even
 * if another thread is the driver by now. */
static void wait_for_events(pawl_client *client, struct waiter_thread *me)
{
    struct driver *d = &client->driver;
    bool spins = may_spin(client);
    struct epoll_event events[4];
    int seen, n;

    d->thread = me;
    pawl__unlock(client);
    seen = spins ? spin(client, events, 4) : 0;
    n = seen ? seen : epoll_wait(d->epoll_fd, events, 4, -1);
    pawl__lock(client);
    if (spins)
        learn_from_spin(client, seen > 0);
    if (d->thread == me)
        d->thread = NULL;
    forget_these(client, events, n);
    pawl__turn(client);
    pawl__arm(client);
}

/* ---- blocking callers ------------------------------------------------------------------------ */

void pawl__wait_begin(struct waiter_thread *thread, pawl_error *err)
{
    thread->done = false;
    thread->code = 0;
    thread->blocking = true;
    thread->local = false;
    thread->err = err;
    list_init(&thread->sleeping);
    pthread_cond_init(&thread->wake, NULL);
}

void pawl__wait_done(pawl_client *client, struct waiter_thread *thread, int code)
{
    thread->code = code;
    thread->done = true;
    if (!thread->blocking)
        return;
    if (client->driver.thread == thread)
        pawl__kick(client);
    else
        pthread_cond_signal(&thread->wake);
}

void pawl__wait_drive(struct waiter_thread *thread)
{
    thread->local = false;
    pthread_cond_signal(&thread->wake);
}

void pawl__rest_end(pawl_client *client)
{
    struct background *b = &client->driver.background;
    int64_t due = pawl__timers_next(&client->timers), until = pawl__now(client) + REST;

    if (due < until)
        until = due;
    if (until < b->rest_until) {
        b->rest_until = until;
        ring_at(b->rest_fd, until);
    }
}

/* A sleeping caller that could drive, or NULL. */
static struct waiter_thread *next_driver(pawl_client *client)
{
    struct driver *d = &client->driver;

    for (struct list *l = d->sleepers.next; l != &d->sleepers; l = l->next) {
        struct waiter_thread *next = list_entry(l, struct waiter_thread, sleeping);

        if (!next->local && !next->done)
            return next;
    }
    return NULL;
}

/* If no thread drives, wake one that will. */
static void hand_on_driving(pawl_client *client)
{
    struct driver *d = &client->driver;
    struct waiter_thread *next;

    if (d->thread)
        return;
    next = next_driver(client);
    if (next)
        pthread_cond_signal(&next->wake);
    else if (d->background.rests)
        pawl__rest_end(client);
}

/* Called by functions that don't wait for the operation that they began. `needed` also keeps a
 * background thread awake that is about to rest. */
void pawl__background_need(pawl_client *client)
{
    struct driver *d = &client->driver;
    struct background *b = &client->driver.background;

    if (d->thread || d->fd_mode || next_driver(client))
        return;
    if (!list_empty(&client->requests.all)) {
        b->needed = true;
        if (b->rests)
            pawl__tell(client);
    } else if (b->rests) {
        pawl__rest_end(client); /* a timer may have been set */
    }
}

static void drive_for(pawl_client *client, struct waiter_thread *thread)
{
    struct driver *d = &client->driver;

    d->activity++;
    pawl__before_unlock(client);
    if (thread->done)
        return;
    if (client->world) {
        pawl__turn(client);
        if (thread->done)
            return;
        pawl__unlock(client);
        client->world->idle(client->world->arg);
        pawl__lock(client);
        return;
    }
    if (d->thread == DRIVER_BACKGROUND)
        pawl__tell(client); /* end the poll of the background thread */
    wait_for_events(client, thread);
}

static void sleep_for(pawl_client *client, struct waiter_thread *thread)
{
    pawl__before_unlock(client);
    if (thread->done)
        return;
    if (thread->local)
        hand_on_driving(client);
    if (client->log.lines) { /* pthread_cond_wait delivers no log lines, so deliver them now */
        pawl__unlock(client);
        pawl__lock(client);
        return;
    }
    list_append(&client->driver.sleepers, &thread->sleeping);
    pthread_cond_wait(&thread->wake, &client->mu);
    list_remove(&thread->sleeping);
}

int pawl__wait(pawl_client *client, struct waiter_thread *thread)
{
    struct driver *d = &client->driver;

    client->active++;
    while (!thread->done) {
        bool others_drive = d->thread && d->thread != DRIVER_BACKGROUND;

        if (others_drive || (thread->local && d->background.runs && !d->fd_mode))
            sleep_for(client, thread);
        else
            drive_for(client, thread);
    }
    /* Needed even if this thread never drove: another thread may have woken it to drive. */
    hand_on_driving(client);
    client->active--;
    if (client->closing.thread)
        pawl__close_check(client);
    pawl__wait_end(thread);
    return thread->code;
}

void pawl__wait_end(struct waiter_thread *thread)
{
    pthread_cond_destroy(&thread->wake);
}
