/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h - a stopwatch and a way to print ratios. Figures stand beside something else that was
 * measured in the same run on the same machine; alone they mean little.
 */
#ifndef PAWL_BENCH_H
#define PAWL_BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline int64_t bench_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void bench_die(const char *what)
{
    perror(what);
    exit(1);
}

static int bench_compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

/* Sorts; returns the value at `share` (0.5: median). */
static inline int64_t bench_quantile(int64_t *values, size_t n, double share)
{
    qsort(values, n, sizeof *values, bench_compare);
    return values[(size_t)((double)(n - 1) * share)];
}

#endif
