/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c - the driver: the thread that runs the loop.
 *
 * All state is under the client's mutex, so any thread may submit ops and turn the loop; a turn
 * never blocks. Only the waiting must be shared out. One outer epoll descriptor contains libuv's
 * own descriptor, a timer descriptor on CLOCK_BOOTTIME (armed for the earliest timer; this clock
 * also counts the time that a machine sleeps) and an event descriptor (the kick). The driver is the
 * thread in epoll_wait on the outer descriptor, without the mutex:
 *
 *   - A caller whose op is not done becomes the driver if no other caller is the driver. So a
 *     program with one thread pays for no thread switch.
 *   - Other callers sleep, each on a condition of its own. The driver wakes the callers whose op is
 *     done. When the driver's own op is done, the driver wakes one of them to drive on. Callers
 *     that only wait for another thread of the process (the cohort) never drive.
 *   - The background thread drives when no caller does. A caller that needs the role takes it from
 *     the background thread, which then rests. The background thread takes the role back at once
 *     if an operation is under way that no caller waits for, else only when no caller has driven
 *     for a while: so a program in a loop of calls need not compete with the background thread for
 *     every answer. The rest has no end while a caller drives; the caller that drives last sets
 *     the end, on a timer descriptor, which wakes no thread now.
 *   - A foreign loop polls the same descriptor and calls pawl_client_process. The background thread
 *     then only steps in when a timer is overdue, until the foreign loop comes round again.
 *
 * Two threads in epoll_wait at once are harmless, because both check under the mutex what is ready.
 * But an event that one of the threads consumes is not seen by the other. So the background thread
 * and the foreign loop are woken by a descriptor of their own (tell_fd), which callers neither wait
 * for nor read. A foreign loop's descriptor is another epoll over the same four.
 *
 * A server on the same machine answers sooner than a sleeping thread gets a CPU again. So a driver
 * that has just sent a request spins for a moment before it sleeps. Failed spins back off, for
 * answers that take longer and CPUs that are busy. A client whose last acquire had to wait does not
 * spin at all, because on a machine with few CPUs the spinning would delay the holder. (No
 * sched_yield: the kernel takes sched_yield for a wish to wait for long.)
 *
 * User callbacks are queued and run in order, one at a time, with no mutex held: by the background
 * thread, or in pawl_client_process once pawl_client_fd was called. A caller's thread never runs
 * callbacks, because the caller may hold locks of its own that the callback wants.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core.h"

#define LOOP_FDS 8
#define REST (20 * PAWL_NS_PER_MS)
#define DISPATCH_MAX 1000
#define TURNS_MAX 8
#define SPIN 50000        /* ns */
#define SPIN_VAIN 4       /* so many in vain cost nothing yet */
#define SPIN_REST_MAX 256 /* waits without one, at most, before the next */

static _Thread_local int callback_depth;
static _Thread_local const struct hold *acting;

const struct hold *pawl__acting(void)
{
    return acting;
}

bool pawl__in_callback(void)
{
    return callback_depth > 0;
}

/* ---- setting up ------------------------------------------------------------------------------ */

static int watch(int epoll_fd, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int watch_all(pawl_client *client, int epoll_fd)
{
    return watch(epoll_fd, uv_backend_fd(&client->loop)) || watch(epoll_fd, client->timer_fd) ||
           watch(epoll_fd, client->kick_fd);
}

int pawl__user_fd(pawl_client *client)
{
    if (client->user_fd < 0 && client->epoll_fd >= 0) {
        int fd = epoll_create1(EPOLL_CLOEXEC);

        if (fd >= 0 && (watch_all(client, fd) || watch(fd, client->tell_fd))) {
            close(fd);
            fd = -1;
        }
        client->user_fd = fd;
    }
    return client->user_fd;
}

/* uv_loop_init opens up to LOOP_FDS descriptors (epoll, io_uring, the wake-up of worker threads and
 * the pipe of signal handlers), and aborts the process if it can't have one of the last. So see
 * first that there is room. Another thread may take it away in between; that can't be helped. */
static int room_for_loop(void)
{
    int fds[LOOP_FDS], n = 0, error = 0;

    while (n < LOOP_FDS && (fds[n] = eventfd(0, EFD_CLOEXEC)) >= 0)
        n++;
    if (n < LOOP_FDS)
        error = errno;
    while (n > 0)
        close(fds[--n]);
    return error;
}

int pawl__driver_init(pawl_client *client, pawl_error *err)
{
    int error;

    list_init(&client->sleepers);
    list_init(&client->callbacks);
    client->armed = client->backed_up = client->rest_until = PAWL_NEVER;
    if (client->world)
        return 0;
    client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    client->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    client->kick_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    client->tell_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    client->rest_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    if (client->epoll_fd < 0 || client->timer_fd < 0 || client->kick_fd < 0 ||
        client->tell_fd < 0 || client->rest_fd < 0)
        return pawl_error_set(err, PAWL_ENOMEM, "can't make an event loop: %s", strerror(errno));
    error = room_for_loop();
    if (error)
        return pawl_error_set(err, PAWL_ENOMEM, "can't make an event loop: %s", strerror(error));
    if (uv_loop_init(&client->loop))
        return pawl_error_set(err, PAWL_ENOMEM, "can't make an event loop: %s", strerror(errno));
    client->loop_open = true;
    client->env.loop = &client->loop;
    if (watch_all(client, client->epoll_fd))
        return pawl_error_set(err, PAWL_ENOMEM, "can't watch the loop: %s", strerror(errno));
    return 0;
}

void pawl__driver_end(pawl_client *client)
{
    int *fds[] = {&client->user_fd, &client->epoll_fd, &client->timer_fd, &client->kick_fd,
                  &client->tell_fd, &client->rest_fd};

    if (client->loop_open) {
        while (uv_loop_close(&client->loop) == UV_EBUSY)
            uv_run(&client->loop, UV_RUN_ONCE); /* what the engine closed */
        client->loop_open = false;
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
    uint64_t one = 1;

    if (client->kick_fd >= 0)
        (void)!write(client->kick_fd, &one, sizeof one);
}

void pawl__tell(pawl_client *client)
{
    uint64_t one = 1;

    if (client->fd_mode || client->background_polls)
        (void)!write(client->tell_fd, &one, sizeof one);
    if (!client->fd_mode && !client->background_polls)
        pthread_cond_signal(&client->background_wake);
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

/* Make the timer descriptor ring no later than the earliest timer. It may ring for nothing. */
void pawl__arm(pawl_client *client)
{
    int64_t due = pawl__timers_next(&client->timers);

    if (client->fd_mode && due < client->backed_up)
        pthread_cond_signal(&client->background_wake);
    if (due >= client->armed || client->timer_fd < 0)
        return;
    client->armed = due;
    ring_at(client->timer_fd, due);
}

static void flush_engine(pawl_client *client)
{
    const pawl_engine *engine = client->engine.engine;

    if (!client->unflushed)
        return;
    client->unflushed = false;
    if (!engine || !engine->flush) {
        client->dirty = true;
        return;
    }
    pawl__defer_begin(client);
    engine->flush(client->engine.state);
    pawl__defer_end(client);
}

static void turn_once(pawl_client *client)
{
    pawl_timer *timer;
    int64_t now;

    client->dirty = false;
    pawl__defer_begin(client);
    if (client->loop_open)
        uv_run(&client->loop, UV_RUN_NOWAIT);
    pawl__wakes_run(client);
    now = pawl__now(client);
    while ((timer = pawl__timers_take(&client->timers, now)))
        timer->fire(timer);
    pawl__defer_end(client);
    pawl__requests_flush(client);
    flush_engine(client);
    if (client->closing)
        pawl__close_check(client); /* the engine may have come to an end of its own work */
}

/* What a turn began (a watcher, bytes to write) reaches the system in the next one. */
void pawl__turn(pawl_client *client)
{
    for (int i = 0; i < TURNS_MAX && (i == 0 || client->dirty); i++)
        turn_once(client);
}

void pawl__before_unlock(pawl_client *client)
{
    pawl__requests_flush(client);
    flush_engine(client);
    if (client->dirty)
        pawl__turn(client);
    pawl__arm(client);
    if (client->dirty)
        pawl__kick(client); /* it goes on and on: who waits next must turn again */
}

static void forget_these(pawl_client *client, const struct epoll_event *events, int n)
{
    uint64_t count;

    for (int i = 0; i < n; i++) {
        int fd = events[i].data.fd;

        if (fd == client->timer_fd)
            client->armed = PAWL_NEVER;
        if (fd == client->timer_fd || fd == client->kick_fd)
            (void)!read(fd, &count, sizeof count);
        if (fd == client->kick_fd && client->driver && client->driver != DRIVER_BACKGROUND &&
            client->driver->done)
            pawl__kick(client); /* it was meant for the thread that drives by now */
    }
}

void pawl__forget(pawl_client *client)
{
    struct epoll_event events[4];

    if (client->epoll_fd >= 0)
        forget_these(client, events, epoll_wait(client->epoll_fd, events, 4, 0));
}

/* For a foreign loop: its descriptor is not to stay readable. */
void pawl__signals_forget(pawl_client *client)
{
    uint64_t count;

    if (client->fd_mode)
        (void)!read(client->tell_fd, &count, sizeof count);
    client->stepped_in = false;
    pawl__forget(client);
}

/* Without the mutex. Returns as epoll_wait does. */
static int spin(pawl_client *client, struct epoll_event *events, int room)
{
    int64_t end = pawl__now(client) + SPIN;
    int n;

    do {
        n = epoll_wait(client->epoll_fd, events, room, 0);
    } while (!n && pawl__now(client) < end);
    return n;
}

static bool may_spin(pawl_client *client)
{
    bool asked = client->asked;

    client->asked = false;
    if (!asked || client->contended)
        return false;
    if (!client->spin_rest)
        return true;
    client->spin_rest--;
    return false;
}

static void learn_from_spin(pawl_client *client, bool seen)
{
    client->in_vain = seen ? 0 : client->in_vain + 1;
    if (client->in_vain > SPIN_VAIN) {
        unsigned doubled = client->in_vain - SPIN_VAIN;

        client->spin_rest = doubled < 8 ? 1u << doubled : SPIN_REST_MAX;
    }
}

/* Wait, and do what there is: an event that was taken off the descriptor is this thread's to see
 * to, even if another one drives by now. */
static void wait_for_events(pawl_client *client, struct waiter_thread *me)
{
    bool spins = may_spin(client);
    struct epoll_event events[4];
    int seen, n;

    client->driver = me;
    pawl__unlock(client);
    seen = spins ? spin(client, events, 4) : 0;
    n = seen ? seen : epoll_wait(client->epoll_fd, events, 4, -1);
    pthread_mutex_lock(&client->mu);
    if (spins)
        learn_from_spin(client, seen > 0);
    if (client->driver == me)
        client->driver = NULL;
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
    if (client->driver == thread)
        pawl__kick(client);
    else
        pthread_cond_signal(&thread->wake);
}

void pawl__wait_drive(struct waiter_thread *thread)
{
    thread->local = false;
    pthread_cond_signal(&thread->wake);
}

/* Nobody drives: the background thread will when it has rested, or a timer is due. */
void pawl__rest_end(pawl_client *client)
{
    int64_t due = pawl__timers_next(&client->timers), until = pawl__now(client) + REST;

    if (due < until)
        until = due;
    if (until < client->rest_until) {
        client->rest_until = until;
        ring_at(client->rest_fd, until);
    }
}

/* A caller who sleeps and could drive, or NULL. */
static struct waiter_thread *next_driver(pawl_client *client)
{
    for (struct list *l = client->sleepers.next; l != &client->sleepers; l = l->next) {
        struct waiter_thread *next = list_entry(l, struct waiter_thread, sleeping);

        if (!next->local && !next->done)
            return next;
    }
    return NULL;
}

/* Nobody drives any more: somebody else must. */
static void hand_on_driving(pawl_client *client)
{
    struct waiter_thread *next;

    if (client->driver)
        return;
    next = next_driver(client);
    if (next)
        pthread_cond_signal(&next->wake);
    else if (client->background_rests)
        pawl__rest_end(client);
}

/* For calls that do not wait for what they began. The background thread may be just about to
 * rest. */
void pawl__background_need(pawl_client *client)
{
    if (client->driver || client->fd_mode || next_driver(client))
        return;
    if (!list_empty(&client->requests)) {
        client->background_needed = true;
        if (client->background_rests)
            pawl__tell(client);
    } else if (client->background_rests) {
        pawl__rest_end(client); /* a timer may have been set */
    }
}

static void drive_for(pawl_client *client, struct waiter_thread *thread)
{
    client->activity++;
    pawl__before_unlock(client);
    if (thread->done)
        return;
    if (client->world) {
        pawl__turn(client);
        if (thread->done)
            return;
        pawl__unlock(client);
        client->world->idle(client->world->arg);
        pthread_mutex_lock(&client->mu);
        return;
    }
    if (client->driver == DRIVER_BACKGROUND)
        pawl__tell(client); /* off the descriptor: this thread wants the answers itself */
    wait_for_events(client, thread);
}

static void sleep_for(pawl_client *client, struct waiter_thread *thread)
{
    pawl__before_unlock(client);
    if (thread->done)
        return;
    if (thread->local)
        hand_on_driving(client);
    if (client->log_lines) { /* not to be kept until another thread unlocks the mutex */
        pawl__unlock(client);
        pthread_mutex_lock(&client->mu);
        return;
    }
    list_append(&client->sleepers, &thread->sleeping);
    pthread_cond_wait(&thread->wake, &client->mu);
    list_remove(&thread->sleeping);
}

/* The call is on this thread's stack, and the driver, the engine and other threads point to it: so
 * the wait is no cancellation point (pthread_cancel takes effect after the call). */
int pawl__wait(pawl_client *client, struct waiter_thread *thread)
{
    int cancels;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels);
    client->active++;
    while (!thread->done) {
        bool others_drive = client->driver && client->driver != DRIVER_BACKGROUND;

        if (others_drive || (thread->local && client->background_runs && !client->fd_mode))
            sleep_for(client, thread);
        else
            drive_for(client, thread);
    }
    /* Also by who never drove: it may be the one that was woken to do so. */
    hand_on_driving(client);
    client->active--;
    pawl__close_check(client);
    pawl__wait_end(thread);
    pthread_setcancelstate(cancels, NULL);
    return thread->code;
}

void pawl__wait_end(struct waiter_thread *thread)
{
    pthread_cond_destroy(&thread->wake);
}

/* ---- callbacks ------------------------------------------------------------------------------- */

void pawl__callback_queue(pawl_client *client, struct callback *callback, int code)
{
    callback->pending = true;
    callback->code = code;
    list_append(&client->callbacks, &callback->queued);
    pawl__tell(client);
}

/* The callback may start the next operation of the same hold, and so be queued anew meanwhile.
 * False: it forked, and this is the child, without the mutex. */
static bool run_callback(pawl_client *client, struct callback *callback)
{
    pawl_done_fn *fn = callback->fn;
    pawl_lock *lock = callback->lock;
    void *arg = callback->arg;
    int code = callback->code;
    const struct hold *hold = callback->hold; /* the next operation may write it meanwhile */

    callback->fn = NULL;
    callback->pending = false;
    if (fn) {
        callback->running = true;
        pawl__unlock(client);
        callback_depth++;
        acting = hold;
        fn(arg, lock, code);
        acting = NULL;
        callback_depth--;
        if (client->generation != pawl__fork_generation())
            return false;
        pthread_mutex_lock(&client->mu);
        callback->running = false;
    }
    if (lock)
        pawl__lock_unref(lock);
    callback->gone(callback);
    return true;
}

int pawl__dispatch(pawl_client *client, bool by_background)
{
    struct list *link;
    int n = 0;

    if (client->dispatching)
        return 0;
    client->dispatching = true;
    while (n < DISPATCH_MAX && !(by_background && client->fd_mode) &&
           (link = list_take(&client->callbacks))) {
        if (!run_callback(client, list_entry(link, struct callback, queued)))
            return PAWL_EFORK;
        n++;
    }
    client->dispatching = false;
    if (!list_empty(&client->callbacks))
        pawl__tell(client); /* callbacks that start new work must not keep a foreign loop here */
    pthread_cond_broadcast(&client->idle);
    return n;
}
