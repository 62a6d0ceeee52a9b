/* SPDX-License-Identifier: Apache-2.0
 *
 * etcd.c - bench_etcd URL own|same CLIENTS MILLISECONDS: acquire and release in a loop. Each client
 * has its own connection and thread; clients use one name each (own) or share one name (same).
 * Prints pairs per second, and the median and the 99th percentile of a pair in us, the same
 * figures that interop/etcd/bench.go prints for etcd's Go client. etcd.py runs the two in turns.
 */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "common.h"

#define CLIENTS_MAX 256
#define PAIRS_MAX 200000

static int64_t ends;
static const char *url;
static bool own;

struct side {
    pthread_t thread;
    pawl_client *client;
    pawl_lock *lock;
    int64_t *took; /* us */
    size_t n;
};

static void pair(pawl_lock *lock)
{
    pawl_error err;

    bench_must(pawl_lock_acquire(lock, PAWL_FOREVER, &err), "acquire", &err);
    bench_must(pawl_lock_release(lock, &err), "release", &err);
}

static void *run(void *arg)
{
    struct side *s = arg;

    while (s->n < PAIRS_MAX) {
        int64_t began = bench_ns();

        if (began >= ends)
            break;
        pair(s->lock);
        s->took[s->n++] = (bench_ns() - began) / 1000;
    }
    return NULL;
}

static void open_side(struct side *s, int number)
{
    char name[32] = "bench";

    if (own)
        snprintf(name, sizeof name, "bench%d", number);
    s->lock = bench_lock(&s->client, url, name, PAWL_MUTEX);
    s->took = malloc(PAIRS_MAX * sizeof *s->took);
    if (!s->took)
        bench_die("malloc");
    pair(s->lock); /* the session exists before the measurement, as in Go */
}

int main(int argc, char **argv)
{
    static struct side sides[CLIENTS_MAX];
    int clients = argc == 5 ? atoi(argv[3]) : 0;
    int64_t *all, began;
    size_t n = 0;

    if (clients < 1 || clients > CLIENTS_MAX) {
        fprintf(stderr, "usage: bench_etcd URL own|same CLIENTS MILLISECONDS\n");
        return 64;
    }
    url = argv[1];
    own = !strcmp(argv[2], "own");
    for (int i = 0; i < clients; i++)
        open_side(&sides[i], i);
    began = bench_ns();
    ends = began + atoll(argv[4]) * 1000000;
    for (int i = 0; i < clients; i++)
        if (pthread_create(&sides[i].thread, NULL, run, &sides[i]))
            bench_die("pthread_create");
    for (int i = 0; i < clients; i++) {
        pthread_join(sides[i].thread, NULL);
        n += sides[i].n;
    }
    ends = bench_ns();
    all = malloc((n ? n : 1) * sizeof *all);
    n = 0;
    for (int i = 0; i < clients; i++) {
        memcpy(all + n, sides[i].took, sides[i].n * sizeof *all);
        n += sides[i].n;
        pawl_lock_free(sides[i].lock);
        pawl_close(sides[i].client);
    }
    printf("%.0f %lld %lld\n", (double)n * 1e9 / (double)(ends - began),
           (long long)bench_quantile(all, n, 0.5), (long long)bench_quantile(all, n, 0.99));
    return 0;
}
