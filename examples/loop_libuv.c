/* SPDX-License-Identifier: Apache-2.0
 *
 * loop_libuv.c - Pawl in a program with a libuv loop.
 *
 * A uv_poll_t on pawl_client_fd() calls pawl_client_process(), which runs the callbacks. Three
 * tasks want the same lock; each task in turn acquires the lock, works until a timer fires, and
 * releases the lock. The locks belong to their handles (PAWL_OWNER_HANDLE), because in a loop all
 * tasks run in the same thread.
 *
 *     loop_libuv [URL]           the URL of the service, by default $PAWL_URL or local:
 */
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

enum { TASKS = 3 };

typedef struct task {
    int number;
    pawl_lock *lock;
    uv_timer_t timer;
} task;

static uv_poll_t watcher;
static int inside, finished, failed;

static void on_released(void *arg, pawl_lock *lock, int code)
{
    task *t = arg;

    printf("task %d is done\n", t->number);
    failed |= code;
    pawl_lock_free(lock);
    uv_close((uv_handle_t *)&t->timer, NULL);
    if (++finished == TASKS)
        uv_close((uv_handle_t *)&watcher, NULL); /* nothing is left: the loop ends */
}

static void on_work_done(uv_timer_t *timer)
{
    task *t = timer->data;

    inside--;
    failed |= pawl_lock_release_start(t->lock, on_released, t);
}

static void on_acquired(void *arg, pawl_lock *lock, int code)
{
    task *t = arg;

    printf("task %d: %s, token %llu\n", t->number, code ? pawl_strerror(code) : "has the lock",
           (unsigned long long)pawl_lock_token(lock));
    failed |= code || inside++;
    uv_timer_start(&t->timer, on_work_done, 5, 0);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)events;
    failed |= status || pawl_client_process(poll->data) < 0;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("PAWL_URL") ? getenv("PAWL_URL") : "local:";
    pawl_lock_options options = {.size = sizeof options, .owner = PAWL_OWNER_HANDLE};
    uv_loop_t *loop = uv_default_loop();
    task tasks[TASKS];
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, url, NULL, &err)) {
        fprintf(stderr, "loop_libuv: %s\n", err.text);
        return 1;
    }
    watcher.data = client;
    if (uv_poll_init(loop, &watcher, pawl_client_fd(client)) ||
        uv_poll_start(&watcher, UV_READABLE, on_readable))
        return 1;
    for (int i = 0; i < TASKS; i++) {
        tasks[i].number = i + 1;
        uv_timer_init(loop, &tasks[i].timer);
        tasks[i].timer.data = &tasks[i];
        if (pawl_lock_new(&tasks[i].lock, client, "printer", &options, &err) ||
            pawl_lock_acquire_start(tasks[i].lock, 10000, on_acquired, &tasks[i]))
            return 1;
    }
    uv_run(loop, UV_RUN_DEFAULT);
    if (uv_loop_close(loop) || pawl_close(client))
        failed = 1;
    return failed || finished != TASKS;
}
