/* SPDX-License-Identifier: Apache-2.0
 *
 * loop_epoll.c - Pawl in a program with its own epoll loop.
 *
 * One descriptor, pawl_client_fd(), goes into the loop. When the descriptor is readable,
 * pawl_client_process() runs the callbacks, in this thread only, so the program needs no mutexes.
 * In a loop the lock belongs to its handle (PAWL_OWNER_HANDLE), not to the thread. Three tasks want
 * the same lock; each task in turn acquires the lock, works for a tick of the loop's timer, and
 * releases the lock.
 *
 *     loop_epoll [URL]           the URL of the service, by default $PAWL_URL or local:
 */
#include <pawl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { TASKS = 3 };

static pawl_lock *working; /* the lock of the task whose turn it is */
static int inside, finished, failed;

static void on_released(void *arg, pawl_lock *lock, int code)
{
    (void)lock;
    printf("task %d is done\n", *(int *)arg);
    finished++;
    failed |= code;
}

static void on_acquired(void *arg, pawl_lock *lock, int code)
{
    printf("task %d: %s, token %llu\n", *(int *)arg, code ? pawl_strerror(code) : "has the lock",
           (unsigned long long)pawl_lock_token(lock));
    failed |= code || inside++;
    if (code)
        finished++;
    else
        working = lock;
}

/* The work of a task ends with the next tick. */
static void on_tick(int timer, int *numbers, pawl_lock *const *locks)
{
    uint64_t ticks;

    if (read(timer, &ticks, sizeof ticks) < 0 || !working)
        return;
    for (int i = 0; i < TASKS; i++)
        if (locks[i] == working) {
            working = NULL;
            inside--;
            failed |= pawl_lock_release_start(locks[i], on_released, &numbers[i]);
            return;
        }
}

static int run(pawl_client *client)
{
    pawl_lock_options options = {.size = sizeof options, .owner = PAWL_OWNER_HANDLE};
    struct itimerspec often = {{0, 5000000}, {0, 5000000}};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ours = {.events = EPOLLIN, .data.fd = pawl_client_fd(client)};
    struct epoll_event tick = {.events = EPOLLIN, .data.fd = timer};
    pawl_lock *locks[TASKS];
    int numbers[TASKS];

    if (epoll_ctl(loop, EPOLL_CTL_ADD, ours.data.fd, &ours) ||
        epoll_ctl(loop, EPOLL_CTL_ADD, timer, &tick) || timerfd_settime(timer, 0, &often, NULL))
        return 1;
    for (int i = 0; i < TASKS; i++) {
        numbers[i] = i + 1;
        if (pawl_lock_new(&locks[i], client, "printer", &options, NULL) ||
            pawl_lock_acquire_start(locks[i], 10000, on_acquired, &numbers[i]))
            return 1;
    }
    while (finished < TASKS && !failed) {
        struct epoll_event event;

        if (epoll_wait(loop, &event, 1, -1) < 1)
            continue;
        if (event.data.fd == timer)
            on_tick(timer, numbers, locks);
        else if (pawl_client_process(client) < 0)
            return 1;
    }
    for (int i = 0; i < TASKS; i++)
        pawl_lock_free(locks[i]);
    close(timer);
    close(loop);
    return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
    const char *url = argc > 1 ? argv[1] : getenv("PAWL_URL") ? getenv("PAWL_URL") : "local:";
    pawl_client *client;
    pawl_error err;
    int status;

    if (pawl_open(&client, url, NULL, &err)) {
        fprintf(stderr, "loop_epoll: %s\n", err.text);
        return 1;
    }
    status = run(client);
    return pawl_close(client) ? 1 : status;
}
