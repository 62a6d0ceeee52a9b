/* SPDX-License-Identifier: Apache-2.0
 *
 * loop_libevent.c - Pawl in a program with a libevent loop.
 *
 * A persistent read event on pawl_client_fd() calls pawl_client_process(), which runs the
 * callbacks. Three tasks want the same lock; each task in turn acquires the lock, works until a
 * timer fires, and releases the lock. The locks belong to their handles (PAWL_OWNER_HANDLE),
 * because in a loop all tasks run in the same thread.
 *
 *     loop_libevent [URL]        the URL of the service, by default $PAWL_URL or local:
 */
#include <event2/event.h>
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>

enum { TASKS = 3 };

typedef struct task {
    int number;
    pawl_lock *lock;
    struct event *timer;
} task;

static struct event_base *base;
static int inside, finished, failed;

static void on_released(void *arg, pawl_lock *lock, int code)
{
    task *t = arg;

    printf("task %d is done\n", t->number);
    failed |= code;
    pawl_lock_free(lock);
    event_free(t->timer);
    if (++finished == TASKS)
        event_base_loopbreak(base);
}

static void on_work_done(evutil_socket_t fd, short what, void *arg)
{
    task *t = arg;

    (void)fd;
    (void)what;
    inside--;
    failed |= pawl_lock_release_start(t->lock, on_released, t);
}

static void on_acquired(void *arg, pawl_lock *lock, int code)
{
    const struct timeval soon = {.tv_usec = 5000};
    task *t = arg;

    printf("task %d: %s, token %llu\n", t->number, code ? pawl_strerror(code) : "has the lock",
           (unsigned long long)pawl_lock_token(lock));
    failed |= code || inside++;
    evtimer_add(t->timer, &soon);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    failed |= pawl_client_process(arg) < 0;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("PAWL_URL") ? getenv("PAWL_URL") : "local:";
    pawl_lock_options options = {.size = sizeof options, .owner = PAWL_OWNER_HANDLE};
    struct event *readable;
    task tasks[TASKS];
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, url, NULL, &err)) {
        fprintf(stderr, "loop_libevent: %s\n", err.text);
        return 1;
    }
    base = event_base_new();
    readable = event_new(base, pawl_client_fd(client), EV_READ | EV_PERSIST, on_readable, client);
    if (!readable || event_add(readable, NULL))
        return 1;
    for (int i = 0; i < TASKS; i++) {
        tasks[i].number = i + 1;
        tasks[i].timer = evtimer_new(base, on_work_done, &tasks[i]);
        if (!tasks[i].timer || pawl_lock_new(&tasks[i].lock, client, "printer", &options, &err) ||
            pawl_lock_acquire_start(tasks[i].lock, 10000, on_acquired, &tasks[i]))
            return 1;
    }
    event_base_dispatch(base);
    event_free(readable);
    event_base_free(base);
    if (pawl_close(client))
        failed = 1;
    return failed || finished != TASKS;
}
