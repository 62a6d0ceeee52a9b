/* SPDX-License-Identifier: Apache-2.0
 *
 * feed.h - the thread of `pawl top` that talks to the service, so that the screen never waits.
 *
 * There is one question at a time. In the state IDLE the main thread owns the feed: the main thread
 * writes the question and calls feed_ask. In the state ASKED the feed's thread reads the question,
 * writes the answer and makes `event` readable. After feed_take has returned true the feed is IDLE
 * again, and the answer belongs to the main thread. `asked` and `answered` change under `mutex`;
 * question and answer need no lock of their own, because only the thread that owns the feed in the
 * current state accesses them.
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
    int event;             /* eventfd: an answer is ready */
    bool busy;             /* not IDLE; used by the main thread only */
    bool asked, answered, quit;

    enum question question;
    char name[256];        /* the lock; for ASK_LIST the pattern, or "" */
    uint64_t token;        /* ASK_BREAK: the token of the hold that the user was shown; */
    char owner[128];       /* its owner, because some layouts have no tokens */

    rows rows;             /* ASK_LIST: a row for each name; else the rows of pawl_inspect */
    pawl_error err;
} feed;

/* Start the thread. The feed closes the client. Returns 0 or an errno. */
int feed_open(feed *, pawl_client *);

/* Ask a question, while the feed is not busy. `victim` is for ASK_BREAK: the summary that the user
 * was shown. The lock is broken only if the token and the first owner are still the same. The rows
 * of the answer are from just before the break. */
void feed_ask(feed *, enum question, const char *name, const pawl_info *victim);

/* Has the answer come? Then rows and err belong to the caller. */
bool feed_take(feed *);

/* Ends the thread and closes the client, and returns true. If a question is still under way: does
 * neither and returns false, because the answer may take as long as the service's timeout. */
bool feed_close(feed *);

#endif
