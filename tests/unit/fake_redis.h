/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_redis.h - a small server that gives the answers that a case wants. The server handles one
 * connection at a time, in a thread of its own; a client of Pawl has no more than one.
 */
#ifndef PAWL_TEST_FAKE_REDIS_H
#define PAWL_TEST_FAKE_REDIS_H

#include <stdbool.h>
#include <stddef.h>

#include "actors.h"

enum { FAKE_ARGS = 32 };

/* A request to the server. */
typedef struct fake_request {
    int connection; /* number of the connection, from 1 */
    int argc;
    char *argv[FAKE_ARGS]; /* as texts */
} fake_request;

typedef struct fake {
    /* Answer by fake_send. False: hang up. Called in the server's thread. */
    bool (*answer)(struct fake *f, const fake_request *q);
    actor thread;
    int listener, stop[2];
    int fd; /* the connection */
    char *dir;
    char url[160];
    event asked, acquires, inspects, cancels; /* raised at each such request */
} fake;

/* Start the server on a unix socket, or on a listening socket (then the caller sets f->url). */
void fake_start(fake *f, bool (*answer)(fake *, const fake_request *), int listener);
void fake_stop(fake *f);

__attribute__((format(printf, 2, 3)))
void fake_send(fake *f, const char *format, ...);

/* Answer the greeting of a connection. Returns false if the request is not a part of the
 * greeting. */
bool fake_greets(fake *f, const fake_request *q);
/* Is the request this script: "acquire", "cancel", "release", "inspect"? */
bool fake_is(const fake_request *q, const char *script);
/* Send correct answers to acquire, cancel and release, and :0 to any other request. */
void fake_grant(fake *f, const fake_request *q);
void fake_serve(fake *f, const fake_request *q);

#endif
