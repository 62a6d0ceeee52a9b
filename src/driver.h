/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.h - threads: the driver that waits for events, the callers that wait for results, the
 * background thread, and user callbacks.
 *
 * Every client has one struct driver. The client's mutex guards all of its fields, except for
 * `woken`, which is atomic. Functions here expect the mutex locked unless they say otherwise.
 */
#ifndef PAWL_DRIVER_H
#define PAWL_DRIVER_H

#include <pthread.h>
#include <uv.h>

#include "engine.h"
#include "list.h"

struct hold;

/* ---- driver.c -------------------------------------------------------------------------------- */

/* The waiter for one result; with `blocking`, a thread in a blocking call. */
struct waiter_thread {
    bool done;
    int code;
    /* blocking */
    bool blocking;
    bool local; /* waits for another thread of this process, not for the loop */
    struct list sleeping;
    pthread_cond_t wake;
    pawl_error *err;
};

#define DRIVER_BACKGROUND ((struct waiter_thread *)-1)

/* The background thread (background.c). */
struct background {
    pthread_t thread;
    pthread_cond_t wake;
    bool runs, stops;
    bool polls;         /* in poll(), not at the condition */
    bool rests;         /* lets callers drive */
    bool needed;        /* an operation is under way that no caller waits for */
    int rest_fd;        /* a timer descriptor: wakes the background thread after its rest */
    int64_t rest_until; /* when rest_fd fires, or PAWL_NEVER */
    bool stepped_in;    /* fd_mode: the foreign loop was late, the background thread drives */
    int64_t backs_up;   /* fd_mode: the background thread sleeps until shortly after this instant */
};

/* Whether a driver that has sent a request spins before it sleeps. */
struct spin {
    bool sent;       /* a request was sent since the last wait */
    bool contended;  /* the last acquire had to wait */
    unsigned failed; /* consecutive spins without an answer */
    unsigned skip;   /* number of waits to come without spinning (back-off) */
};

struct driver {
    uv_loop_t loop;
    bool loop_open;
    bool unflushed; /* an op was not completed inside submit, or was cancelled */
    bool dirty;     /* the loop must run before a thread waits */
    int epoll_fd;   /* the outer descriptor: contains the loop's, timer_fd and kick_fd */
    int timer_fd;
    int kick_fd;
    int tell_fd; /* wakes the thread that runs callbacks */
    int user_fd; /* the same three and tell_fd, for a foreign loop; -1 until requested */
    bool fd_mode;  /* a foreign loop drives (pawl_client_fd was called) */
    int64_t armed; /* when timer_fd fires, or PAWL_NEVER */
    struct waiter_thread *thread; /* the driver: a caller, DRIVER_BACKGROUND, or NULL: none */
    struct list sleepers;         /* callers that wait while another thread drives */
    uint64_t activity;            /* how many times callers have driven */
    struct spin spin;
    struct background background;

    pawl_wake *wakes;  /* env.c */
    atomic_bool woken; /* a wake was sent */

    struct list callbacks; /* queued */
    bool dispatching;      /* a thread runs callbacks */
};

void pawl__driver_init(pawl_client *client);
void pawl__driver_free(pawl_client *client);
/* Create and close the loop and the descriptors. */
int pawl__driver_open(pawl_client *client, pawl_error *err);
/* loop.c: uv_loop_init, but never aborts. Returns 0 or an errno. */
int pawl__loop_init(uv_loop_t *loop);
void pawl__driver_close(pawl_client *client);

/* Blocking calls: begin, start an operation that ends in pawl__wait_done, wait. */
void pawl__wait_begin(struct waiter_thread *thread, pawl_error *err);
void pawl__wait_done(pawl_client *client, struct waiter_thread *thread, int code);
/* From now on the call waits for the loop: its thread may become the driver. */
void pawl__wait_drive(struct waiter_thread *thread);
int pawl__wait(pawl_client *client, struct waiter_thread *thread);
/* Call this instead of pawl__wait if nothing was started. */
void pawl__wait_end(struct waiter_thread *thread);

/* Before unlocking the mutex: submit deferred requests and make sure that a thread will wake up for
 * the next event or timer. */
void pawl__before_unlock(pawl_client *client);
/* Run everything that is ready: loop, wakes, due timers. */
void pawl__turn(pawl_client *client);
/* Wake the driver from its epoll_wait. */
void pawl__kick(pawl_client *client);
/* Set the timer descriptor to fire no later than the earliest timer; it may fire too early. */
void pawl__arm(pawl_client *client);
/* Clear the signals that woke the outer epoll_wait. */
void pawl__forget(pawl_client *client);
/* As pawl__forget, in pawl_client_process: also clear tell_fd. */
void pawl__signals_forget(pawl_client *client);
int pawl__user_fd(pawl_client *client); /* the foreign loop's descriptor; -1: can't be created */

/* No thread drives: let the background thread take over after its rest, or when a timer is due. */
void pawl__rest_end(pawl_client *client);
/* An operation may be under way that no caller waits for: end the background thread's rest. */
void pawl__background_need(pawl_client *client);
/* Wake the thread that runs callbacks: a foreign loop, or the background thread. */
void pawl__tell(pawl_client *client);

/* ---- background.c ---------------------------------------------------------------------------- */

/* Start the background thread unless it runs; PAWL_ENOMEM if no thread can be created. */
int pawl__background_start(pawl_client *client);
void pawl__background_stop(pawl_client *client); /* unlocks and relocks the mutex */

/* ---- callbacks.c ----------------------------------------------------------------------------- */

/* A user callback that is queued or running; embedded in the hold that the callback reports. */
struct callback {
    struct list queued;
    bool pending, running;
    pawl_done_fn *fn; /* pawl_lost_fn has the same type; NULL: no callback */
    void *arg;
    pawl_lock *lock;     /* a reference, once the callback will certainly be queued: the callback */
    pawl_semaphore *sem; /* may use the handle even if another thread frees the handle meanwhile */
    int code;
    const struct hold *hold; /* the hold for queries inside the callback, or NULL */
    void (*gone)(struct callback *callback); /* called with the mutex, afterwards */
};

void pawl__callback_queue(pawl_client *client, struct callback *callback, int code);
/* Run queued callbacks. Returns their number, or PAWL_EFORK: a callback forked and this is the
 * child process, which must not touch the client any more. */
int pawl__dispatch(pawl_client *client, bool by_background);

/* The calling thread's user callback. Only callbacks.c changes this state. */
struct callback_thread {
    int depth; /* callbacks, one inside of the other */
    const struct hold *acting;
};

extern _Thread_local struct callback_thread pawl__callback_thread;

/* The hold that the callback on the calling thread reports; NULL outside callbacks. */
static inline const struct hold *pawl__acting(void)
{
    return pawl__callback_thread.acting;
}

/* Is the calling thread inside a user callback? */
static inline bool pawl__in_callback(void)
{
    return pawl__callback_thread.depth > 0;
}

#endif
