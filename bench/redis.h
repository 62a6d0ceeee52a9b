/* SPDX-License-Identifier: Apache-2.0
 *
 * redis.h - the parts of bench_redis. Each runs in a process of its own, prints lines that begin
 * with its name, and leaves nothing held.
 */
#ifndef PAWL_BENCH_REDIS_H
#define PAWL_BENCH_REDIS_H

#include "common.h"
#include "plain.h"

struct bench_setup {
    char tcp[600], socket[600];          /* URLs for Pawl */
    struct plain_server by_tcp, by_socket; /* the same server for the plain client */
    int count;   /* -n: how many locks are held, how many waiters; 0: the usual number */
    int seconds; /* -s: how long the locks are held */
    int figures; /* -f: print names and numbers for compare.py, one on each line */
};

extern struct bench_setup setup;

void bench_figure(const char *name, double value); /* with -f only */

void bench_pair(void);     /* one thread, one lock */
void bench_threads(void);  /* 64 threads, 64 locks */
void bench_async(void);    /* 1000 locks in flight */
void bench_crowd(void);    /* processes that want one lock */
void bench_latency(void);  /* from release to acquire */
void bench_held(void);     /* 100,000 locks (-n) for a minute (-s) */
void bench_waiters(void);  /* 10,000 waiters (-n) of one lock */

/* Subscribe-and-retry over TCP: with the commands of Redisson, and with as few as possible. */
extern const struct subject bench_redisson, bench_retry;

#endif
