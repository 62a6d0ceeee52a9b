/* SPDX-License-Identifier: Apache-2.0
 *
 * callbacks.c - user callbacks (`done`, `on_lost`).
 *
 * Callbacks are queued under the client's mutex and run in order, one at a time, with no mutex
 * held: by the background thread, or in pawl_client_process once pawl_client_fd was called. A
 * caller's thread never runs callbacks, because the caller may hold locks of its own that the
 * callback wants.
 *
 * `dispatching` is set by the one thread that runs callbacks, and cleared by that thread.
 */
#include "core.h"

#define DISPATCH_MAX 1000

_Thread_local struct callback_thread pawl__callback_thread;

void pawl__callback_queue(pawl_client *client, struct callback *callback, int code)
{
    callback->pending = true;
    callback->code = code;
    list_append(&client->driver.callbacks, &callback->queued);
    pawl__tell(client);
}

/* Run one callback. The user's function may start the next operation of the same hold, which can
 * queue the same callback again while the function runs. Returns false if the function forked: this
 * is then the child, and the mutex is not locked. */
static bool run_callback(pawl_client *client, struct callback *callback)
{
    pawl_done_fn *fn = callback->fn;
    pawl_lock *lock = callback->lock;
    pawl_semaphore *sem = callback->sem;
    void *arg = callback->arg;
    int code = callback->code;
    const struct hold *hold = callback->hold; /* the next operation may change callback->hold */

    callback->fn = NULL;
    callback->pending = false;
    if (fn) {
        callback->running = true;
        pawl__unlock(client);
        pawl__callback_thread.depth++;
        pawl__callback_thread.acting = hold;
        fn(arg, lock, code);
        pawl__callback_thread.acting = NULL;
        pawl__callback_thread.depth--;
        if (client->generation != pawl__fork_generation())
            return false;
        pawl__lock(client);
        callback->running = false;
    }
    if (lock)
        pawl__lock_unref(lock);
    if (sem)
        pawl__semaphore_unref(sem);
    callback->gone(callback);
    return true;
}

int pawl__dispatch(pawl_client *client, bool by_background)
{
    struct driver *d = &client->driver;
    struct list *link;
    int n = 0;

    if (d->dispatching)
        return 0;
    d->dispatching = true;
    while (n < DISPATCH_MAX && !(by_background && d->fd_mode) &&
           (link = list_take(&d->callbacks))) {
        if (!run_callback(client, list_entry(link, struct callback, queued)))
            return PAWL_EFORK;
        n++;
    }
    d->dispatching = false;
    if (!list_empty(&d->callbacks))
        pawl__tell(client); /* callbacks that start new work must not hold a foreign loop here */
    pthread_cond_broadcast(&client->idle);
    return n;
}
