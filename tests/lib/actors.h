/* SPDX-License-Identifier: Apache-2.0
 *
 * actors.h - threads, events between threads, and peer processes for tests.
 *
 * Tests wait for events, not for time: an event is a counter that threads raise and await, and a
 * peer is a process at the other end of a socket. These waits have no time limit, because the test
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
void event_await(event *e, int count); /* until `e` was raised `count` times in all */
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
    pid_t pid; /* of the peer; in the peer itself: of the parent */
    int fd;
} peer;

typedef void peer_fn(peer *parent, void *arg);

/* Fork a process that runs fn and exits. To be called before this process opens a client. */
void peer_start(peer *p, peer_fn *fn, void *arg);
void peer_send(peer *p, uint64_t value);
uint64_t peer_recv(peer *p);  /* waits; if the other side has ended, the case fails */
void peer_signal(peer *p, int number);
void peer_join(peer *p);      /* waits until the peer exits; the status must be 0 */
void peer_kill(peer *p);      /* SIGKILL; returns when the peer has ended */

/* Run fn in a forked child and return the child's exit status. This process may have clients. */
int in_child(int (*fn)(void *arg), void *arg);

/* ---- Files ----------------------------------------------------------------------------------- */

/* Make a folder that only this user can enter. The caller frees the string. */
char *temp_dir(void);
void remove_tree(const char *path);

#endif
