/* SPDX-License-Identifier: Apache-2.0
 *
 * actors.h - who takes part in a test: threads, events between them, and peer processes.
 *
 * Tests wait for events, not for time: an event is a counter that threads raise and await, and a
 * peer is a process at the other end of a socket. Neither wait has a limit of its own, since the
 * case as a whole has one.
 */
#ifndef PAWL_TEST_ACTORS_H
#define PAWL_TEST_ACTORS_H

#include <pthread.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- Time ------------------------------------------------------------------------------------ */

int64_t now_ms(void);        /* monotonic */
void pause_ms(int64_t ms);   /* only where time itself is under test */

/* ---- Events ---------------------------------------------------------------------------------- */

typedef struct event {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    int count;
} event;

#define EVENT_INIT {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0}

void event_init(event *e);
void event_raise(event *e);
void event_await(event *e, int count); /* until it was raised so many times in all */
int event_count(event *e);

/* ---- Threads --------------------------------------------------------------------------------- */

typedef struct actor {
    pthread_t id;
    void (*run)(void *arg);
    void *arg;
} actor;

void actor_start(actor *a, void (*run)(void *arg), void *arg);
void actor_join(actor *a);

/* ---- Peer processes -------------------------------------------------------------------------- */

typedef struct peer {
    pid_t pid; /* the peer's; in the peer itself: its parent's */
    int fd;
} peer;

typedef void peer_fn(peer *parent, void *arg);

/* Fork a process that runs fn and ends. Only while this process has opened no client. */
void peer_start(peer *p, peer_fn *fn, void *arg);
void peer_send(peer *p, uint64_t value);
uint64_t peer_recv(peer *p);  /* waits; the case fails if the other side ended instead */
void peer_signal(peer *p, int number);
void peer_join(peer *p);      /* waits for its end, which must be a good one */
void peer_kill(peer *p);      /* SIGKILL; returns when it is gone */

/* Run fn in a forked child of this process, clients or not, and return its exit status. */
int in_child(int (*fn)(void *arg), void *arg);

/* ---- Files ----------------------------------------------------------------------------------- */

/* A new folder that only this user can enter; the string is the caller's to free. */
char *temp_dir(void);
void remove_tree(const char *path);

#endif
