/* SPDX-License-Identifier: Apache-2.0
 *
 * quorum.c - the cost of one lock at a URL, for special.py, which compares the figures.
 *
 *     bench_quorum pair SECONDS URL       acquire + release without contention, for SECONDS: median
 *                                         and 99th percentile of each
 *     bench_quorum handover ROUNDS URL [HOLD_US]
 *                                         from the release in one process to the return of acquire
 *                                         in another that waits: median and 99th percentile. The
 *                                         lock is held for HOLD_US each time (default: 0)
 *
 * The figures are microseconds, on one line.
 */
#include <string.h>

#include "common.h"

enum { MOST = 200000, WARM = 20 };

static const char *url;

static void print_quantiles(int64_t *values, size_t n)
{
    printf("%lld %lld ", (long long)bench_quantile(values, n, 0.5) / 1000,
           (long long)bench_quantile(values, n, 0.99) / 1000);
}

/* The first rounds make connections, send scripts and find out which node is slow. */
static void pairs(double seconds)
{
    static int64_t acquires[MOST], releases[MOST];
    pawl_client *client;
    pawl_lock *lock = bench_lock(&client, url, "pair", PAWL_MUTEX);
    int64_t end = INT64_MAX;
    size_t n = 0;
    pawl_error err;

    for (int warm = WARM; n < MOST && bench_ns() < end; warm--) {
        int64_t began = bench_ns(), got;

        bench_must(pawl_lock_acquire(lock, 10000, &err), "acquire", &err);
        got = bench_ns();
        bench_must(pawl_lock_release(lock, &err), "release", &err);
        if (warm == 1)
            end = bench_ns() + (int64_t)(seconds * 1e9);
        if (warm > 0)
            continue;
        acquires[n] = got - began;
        releases[n++] = bench_ns() - got;
    }
    print_quantiles(acquires, n);
    print_quantiles(releases, n);
    pawl_lock_free(lock);
    pawl_close(client);
}

static void *open_subject(void)
{
    pawl_client *client;

    return bench_lock(&client, url, "handover", PAWL_MUTEX);
}

static void handover(int rounds, int64_t hold_us)
{
    static const struct subject subject = {"pawl", open_subject, bench_pawl_acquire,
                                           bench_pawl_release};
    struct bench_gaps *gaps = bench_share(sizeof *gaps);

    gaps->rounds = rounds;
    gaps->hold_ns = hold_us * 1000;
    gaps->pause_ns = hold_us * 500;
    bench_handover(&subject, gaps);
    if (!gaps->n) {
        fprintf(stderr, "bench_quorum: nobody ever waited\n");
        exit(1);
    }
    print_quantiles(gaps->gaps, gaps->n);
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: bench_quorum pair|handover SECONDS|ROUNDS URL [HOLD_US]\n");
        return 64;
    }
    url = argv[3];
    if (!strcmp(argv[1], "pair"))
        pairs(atof(argv[2]));
    else
        handover(atoi(argv[2]), argc > 4 ? atoll(argv[4]) : 0);
    printf("\n");
    return 0;
}
