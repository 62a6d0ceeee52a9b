/* SPDX-License-Identifier: Apache-2.0
 *
 * request.h - one op with its time limit and its retries.
 *
 * A request submits its op to the engine. While the outcome is unknown the request submits the op
 * again; at the deadline the request cancels the op. The client's mutex guards all requests.
 * Functions here expect the mutex locked.
 */
#ifndef PAWL_REQUEST_H
#define PAWL_REQUEST_H

#include "engine.h"
#include "list.h"

enum request_phase {
    REQUEST_IDLE,   /* not started, or finished */
    REQUEST_DUE,    /* deferred: pawl__requests_flush submits the op */
    REQUEST_OUT,    /* submitted: the engine has the op */
    REQUEST_PAUSED  /* waits before the op is submitted again */
};

struct request {
    pawl_op op;
    pawl_client *client;
    struct list deferred; /* in client->requests.deferred */
    pawl_timer pause, limit;
    int64_t started;    /* now() at the start */
    int64_t first_sent; /* now() before the first submit */
    int64_t sent;       /* now() before the latest submit */
    uint8_t phase;
    bool once;          /* don't repeat: finish with the first answer */
    bool poll;          /* retry after PAWL_EBUSY instead of finishing */
    bool unknown;       /* an earlier submit got no answer */
    bool held;          /* ACQUIRE: an answer said that another owner has the lock */
    bool cancel_due;    /* deferred: pawl__requests_flush cancels the op */
    int giving_up;      /* why the request was cancelled (PAWL_ETIMEDOUT, PAWL_ECANCELED), or 0 */
    uint32_t attempts;
    pawl_error err;
    void (*finish)(struct request *request, int code);
    struct list all;    /* in client->requests.all while the request is not IDLE */
    void *owner;        /* for the code that started the request */
    const void *handle; /* the handle whose cancel function cancels the request, or NULL */
};

/* The requests of one client. */
struct requests {
    struct list all;      /* every request that is not IDLE, except `event` */
    struct list deferred; /* to be submitted or cancelled by pawl__requests_flush */
    int deferring;        /* depth of pawl__defer_begin */
    bool in_submit;       /* the engine is inside submit or cancel; a flush follows */
    struct request *submitting; /* the request inside the engine's submit, until answered */
    struct request event; /* the standing EVENT op */
};

void pawl__requests_init(struct requests *requests);

/* Prepare a request; the caller then fills in op.kind and the other request fields of the op. */
void pawl__request_init(struct request *request, pawl_client *client,
                        void (*finish)(struct request *, int code));

/* Submit the op. finish() is called exactly once, possibly before this function returns. The
 * request is cancelled at `deadline` (PAWL_NEVER: no limit). */
void pawl__request_start(struct request *request, int64_t deadline);

/* Cancel before the deadline; finish() gets `why`, unless the answer comes first. */
void pawl__request_cancel(struct request *request, int why);

/* Has the service said that another owner has the lock? */
static inline bool pawl__request_heard_held(const struct request *request)
{
    return request->held || request->op.waited;
}

/* Submit and cancel the deferred requests, unless pawl__defer_begin (core.h) is in effect. Called
 * each time that the engine has returned. */
void pawl__requests_flush(pawl_client *client);

#endif
