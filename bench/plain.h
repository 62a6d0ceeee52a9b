/* SPDX-License-Identifier: Apache-2.0
 *
 * plain.h - a minimal blocking Redis client, which shows the cost without Pawl: one send, one
 * recv, no loop, no thread, no time-out, no allocation. Any error ends the program. Requests of
 * the lock scripts are formatted once, and only the owner's number is changed each time, so that
 * the client does no work that a faster client could leave out.
 */
#ifndef PAWL_BENCH_PLAIN_H
#define PAWL_BENCH_PLAIN_H

#include <stddef.h>
#include <stdint.h>

struct plain {
    int fd;
    size_t at, end; /* the unread part of `in` */
    char in[64 * 1024];
};

/* The server's address: a port of 127.0.0.1, or the path of a socket if port is 0. */
struct plain_server {
    const char *path;
    int port;
};

struct plain *plain_open(const struct plain_server *server);
void plain_close(struct plain *c);

void plain_send(struct plain *c, const char *data, size_t len);
/* Wait for one reply. The reply (length: *len) is valid until the next call. */
const char *plain_reply(struct plain *c, size_t *len);
/* Does a complete reply arrive within timeout_ms (-1: no limit)? */
int plain_ready(struct plain *c, int timeout_ms);

/* ---- requests -------------------------------------------------------------------------------- */

struct plain_request {
    size_t len;
    size_t number; /* where the owner's 8 hex digits are */
    char data[1000];
};

void plain_begin(struct plain_request *r, int args);
void plain_arg(struct plain_request *r, const char *arg);
void plain_command(struct plain_request *r, int args, const char *const *arg); /* all */
/* Send a command that is not measured; returns the reply as plain_reply does. */
const char *plain_do(struct plain *c, int args, const char *const *arg, size_t *len);
/* SCRIPT LOAD; the digest is for EVALSHA. */
void plain_script(struct plain *c, const char *script, char digest[41]);
/* A number of INFO, for example "memory" "used_memory:"; 0 if INFO does not have the number. */
double plain_info(struct plain *c, const char *section, const char *field);
uint64_t plain_scripts_run(struct plain *c); /* number of EVALSHA and EVAL commands of the server */

/* ---- the lock's scripts ---------------------------------------------------------------------- */

/* acquire and release of docs/redis.md for one lock, as Pawl sends them. */
struct plain_lock {
    uint64_t number; /* of the last acquire */
    struct plain_request acquire, release;
};

/* wait_ms: how long the place in the queue is kept; 0: a single try. */
void plain_lock_init(struct plain_lock *lock, const char *name, uint64_t client, int wait_ms);
void plain_lock_next(struct plain_lock *lock); /* set the number in both requests */
void plain_locks_load(struct plain *c);
/* The keys of a name: K and its helpers :fence :queue :rec :hold. */
void plain_keys(struct plain_request *r, const char *name);

void plain_granted(struct plain *c);  /* wait for the reply GRANTED */
void plain_released(struct plain *c); /* ... OK */

extern const char *const plain_acquire_sha;
#define PLAIN_SECRET "0123456789abcdef" /* of a waiter */

#endif
