/* SPDX-License-Identifier: Apache-2.0
 *
 * test_line.c - a long queue of asynchronous requests inside one process, on the engines that keep
 * their locks on shelves: the work of a hand-over must not grow with the length of the queue. Work
 * is counted in edits of a shelf: each one begins with lockstate_sweep, which is wrapped here.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "actors.h"
#include "check.h"
#include "shelf/lockstate.h"
#include "pawl.h"

enum { WAITERS = 400, PER_HAND_OVER = 20 }; /* 3 to 5 are needed; with a check of each waiter 200 */

static atomic_int edits;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int served, released, failed;

void __real_lockstate_sweep(lockstate_edit *edit);
void __wrap_lockstate_sweep(lockstate_edit *edit);

void __wrap_lockstate_sweep(lockstate_edit *edit)
{
    atomic_fetch_add(&edits, 1);
    __real_lockstate_sweep(edit);
}

static void on_released(void *arg, pawl_lock *lock, int code)
{
    (void)arg;
    pthread_mutex_lock(&mutex);
    failed += code != 0;
    released++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&mutex);
    pawl_lock_free(lock);
}

/* arg: the place in the queue. */
static void on_acquired(void *arg, pawl_lock *lock, int code)
{
    pthread_mutex_lock(&mutex);
    failed += code || served++ != (int)(intptr_t)arg;
    pthread_mutex_unlock(&mutex);
    if (pawl_lock_release_start(lock, on_released, NULL))
        on_released(NULL, lock, PAWL_ESTATE);
}

static pawl_lock *new_lock(pawl_client *client)
{
    pawl_lock_options options = {.size = sizeof options, .kind = PAWL_FAIR,
                                 .owner = PAWL_OWNER_HANDLE};
    pawl_lock *lock;

    CHECK_OK(pawl_lock_new(&lock, client, "x", &options, NULL));
    return lock;
}

/* The places in the queue go to the clients in turn, two in a row each, so that a hand-over also
 * notifies the holder and the front of another client. */
static void serve(const char *url, int nclients)
{
    pawl_client *clients[2];
    pawl_lock *first;

    for (int i = 0; i < nclients; i++)
        CHECK_OK(pawl_open(&clients[i], url, NULL, NULL));
    first = new_lock(clients[0]);
    CHECK_OK(pawl_lock_acquire(first, 0, NULL));
    for (int i = 0; i < WAITERS; i++) {
        pawl_lock *lock = new_lock(clients[i / 2 % nclients]);

        CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, on_acquired, (void *)(intptr_t)i));
    }
    atomic_store(&edits, 0);
    CHECK_OK(pawl_lock_release(first, NULL));
    pthread_mutex_lock(&mutex);
    while (released < WAITERS)
        pthread_cond_wait(&changed, &mutex);
    CHECK_EQ(failed, 0);
    pthread_mutex_unlock(&mutex);
    check_note("%d waiters, %d edits", WAITERS, atomic_load(&edits));
    CHECK(atomic_load(&edits) >= 2 * WAITERS); /* the edits are counted */
    CHECK(atomic_load(&edits) <= PER_HAND_OVER * WAITERS);
    pawl_lock_free(first);
    for (int i = 0; i < nclients; i++)
        CHECK_OK(pawl_close(clients[i]));
}

CASE("memory: a hand-over inside one client costs the same however many of its owners wait")
{
    serve("memory:line", 1);
}

CASE("memory: the same between two clients")
{
    serve("memory:line", 2);
}

static void serve_local(int nclients)
{
    char *folder = temp_dir(), url[256];

    snprintf(url, sizeof url, "local:%s", folder);
    serve(url, nclients);
    remove_tree(folder);
    free(folder);
}

CASE("local: a hand-over inside one client costs the same however many of its owners wait")
{
    serve_local(1);
}

CASE("local: the same between two clients")
{
    serve_local(2);
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
