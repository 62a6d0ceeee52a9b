/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_redis.h - a server of a few lines that answers as a case wants. It has one connection at a
 * time, in a thread of its own; a client of Pawl's has no more.
 */
#ifndef PAWL_TEST_FAKE_REDIS_H
#define PAWL_TEST_FAKE_REDIS_H

#include <stdbool.h>
#include <stddef.h>

#include "actors.h"

enum { FAKE_ARGS = 32 };

/* A request to the server. */
typedef struct fake_request {
    int connection; /* from 1 */
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
    event asked, acquires, inspects, cancels; /* how often */
} fake;

/* On a unix socket, or on a socket that listens already (then f->url is the caller's business). */
void fake_start(fake *f, bool (*answer)(fake *, const fake_request *), int listener);
void fake_stop(fake *f);

__attribute__((format(printf, 2, 3)))
void fake_send(fake *f, const char *format, ...);

/* The first words of a connection. False: it is something else. */
bool fake_greets(fake *f, const fake_request *q);
/* Is it this script? "acquire", "cancel", "release", "inspect" */
bool fake_is(const fake_request *q, const char *script);
/* Good answers to acquire and to cancel and release; :0 to anything else. */
void fake_grant(fake *f, const fake_request *q);
void fake_serve(fake *f, const fake_request *q);

#endif
