/* SPDX-License-Identifier: Apache-2.0
 *
 * feed.h - the thread of `pawl top` that talks to the service, so that the screen never waits.
 *
 * One question at a time. States: IDLE, the main thread's: it writes the question and calls
 * feed_ask. ASKED, the thread's: it reads the question, writes the answer and makes `event`
 * readable. After feed_take has returned true the feed is IDLE again, and the answer belongs to the
 * main thread. `asked` and `answered` change under `mutex`; question and answer need no lock of
 * their own, because only the thread that the state names touches them.
 */
#ifndef PAWL_FEED_H
#define PAWL_FEED_H

#include <pthread.h>

#include "table.h"

enum question { ASK_LIST, ASK_LOCK, ASK_VICTIM, ASK_BREAK };

typedef struct feed {
    pawl_client *client;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    int event;             /* eventfd: an answer is there */
    bool busy;             /* the main thread's: not IDLE */
    bool asked, answered, quit;

    enum question question;
    char name[256];        /* the lock; of ASK_LIST the pattern, or "" */
    uint64_t token;        /* ASK_BREAK: of the hold that the user was shown; */
    char owner[128];       /* likewise: some layouts have no tokens */

    rows rows;             /* ASK_LIST: a row for each name; else as pawl_inspect reports */
    pawl_error err;
} feed;

/* Returns 0 or an errno. The feed closes the client. */
int feed_open(feed *, pawl_client *);

/* While not busy. `victim`: of ASK_BREAK, the summary that the user was shown; the lock is broken
 * only if token and first owner are still the same. The rows are from just before the
 * break. */
void feed_ask(feed *, enum question, const char *name, const pawl_info *victim);

/* Has the answer come? Then rows and err are the caller's. */
bool feed_take(feed *);

/* Ends the thread and closes the client, and returns true. If a question is still under way: leaves
 * both alone and returns false, because the answer may take as long as the service's time-out. */
bool feed_close(feed *);

#endif
