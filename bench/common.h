/* SPDX-License-Identifier: Apache-2.0
 *
 * common.h - helpers of the benchmarks: a stopwatch, quantiles, two sides that run in turns, and
 * locks as the measurements see them. Each figure is compared with another one that was measured
 * in the same run on the same machine, because a figure alone means little.
 */
#ifndef PAWL_BENCH_COMMON_H
#define PAWL_BENCH_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "pawl.h"

int64_t bench_ns(void);
void bench_nap(int64_t ns);
void bench_die(const char *what);                               /* with the text of errno */
void bench_must(int code, const char *what, const pawl_error *err); /* exits unless code is 0 */
void *bench_share(size_t size);                                 /* zeroed, shared with children */
pid_t bench_fork(void);                                         /* flushes first */
void bench_wait(pid_t child);                                   /* exits if the child failed */

/* Sorts; returns the value at `share` (0.5: median). */
int64_t bench_quantile(int64_t *values, size_t n, double share);
double bench_median(double *values, size_t n);

/* One more lock of a new client at `url`. */
pawl_lock *bench_lock(pawl_client **client, const char *url, const char *name, uint64_t kind);

/* ---- two sides in turns ---------------------------------------------------------------------- */

/* Noise of the machine comes in phases, so the sides take turns in short slices, and a ratio
 * compares two neighbouring slices. The result is the median of all slices. */
typedef double bench_slice_fn(void *arg); /* runs for a slice, returns its figure */

struct bench_versus {
    double mine, theirs; /* medians */
    double ratio;        /* median of mine / theirs */
    double low, high;    /* quartiles of the ratio */
};

#define BENCH_SLICES_MAX 64
struct bench_versus bench_versus(int slices, bench_slice_fn *mine, void *my_arg,
                                 bench_slice_fn *theirs, void *their_arg);

/* ---- a lock as the measurements see it ------------------------------------------------------- */

struct subject {
    const char *name;
    void *(*open)(void);
    void (*acquire)(void *);
    void (*release)(void *);
};

/* The time from a release on one side to the return of the waiting acquire on the other side. */
struct bench_gaps {
    int64_t gaps[20000];
    volatile size_t n;
    volatile int64_t released; /* when the holder began to release */
    int rounds;                /* for each of the two sides */
    int64_t hold_ns, pause_ns; /* between acquire and release; after the release */
};

/* One of the two sides. A gap counts if this side began to wait before the other side's release. */
void bench_alternate(const struct subject *s, struct bench_gaps *gaps);
/* Both sides, each in a process of its own. */
void bench_handover(const struct subject *s, struct bench_gaps *gaps);

/* acquire and release through Pawl; `open` returns a pawl_lock. */
void bench_pawl_acquire(void *lock);
void bench_pawl_release(void *lock);
void bench_process(pawl_client *client); /* pawl_client_process, which must work */

#endif
