/* SPDX-License-Identifier: Apache-2.0
 *
 * zk.c - bench_zk URL SECONDS CLIENTS own|same: CLIENTS clients, each with a thread, acquire and
 * release one lock each (own) or all the same lock (same). Prints "PAIRS P50_US P99_US";
 * bench/zk.py runs this program beside other libraries.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pawl.h"

enum { MOST = 1 << 18 };

typedef struct runner {
    pthread_t thread;
    pawl_lock *lock;
    double seconds;
    size_t n;
    uint32_t *took; /* us */
} runner;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *run(void *arg)
{
    runner *r = arg;
    double end = now() + r->seconds;
    pawl_error err;

    while (r->n < MOST && now() < end) {
        double begin = now();

        if (pawl_lock_acquire(r->lock, PAWL_FOREVER, &err) || pawl_lock_release(r->lock, &err)) {
            fprintf(stderr, "bench_zk: %s\n", err.text);
            exit(1);
        }
        r->took[r->n++] = (uint32_t)((now() - begin) * 1e6);
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void begin(runner *r, const char *url, const char *name, double seconds)
{
    pawl_client *client;
    pawl_error err;

    r->seconds = seconds;
    r->took = malloc(MOST * sizeof *r->took);
    if (!r->took || pawl_open(&client, url, NULL, &err) ||
        pawl_lock_new(&r->lock, client, name, NULL, &err) ||
        pawl_lock_acquire(r->lock, 20000, &err) || pawl_lock_release(r->lock, &err)) {
        fprintf(stderr, "bench_zk: %s\n", err.text);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int clients = argc == 5 ? atoi(argv[3]) : 0;
    runner *all = calloc((size_t)(clients > 0 ? clients : 1), sizeof *all);
    uint32_t *took;
    size_t n = 0;

    if (clients < 1 || !all)
        return 64;
    for (int i = 0; i < clients; i++) {
        char name[32];

        snprintf(name, sizeof name, "b%d", strcmp(argv[4], "own") ? 0 : i);
        begin(&all[i], argv[1], name, atof(argv[2]));
    }
    for (int i = 0; i < clients; i++)
        pthread_create(&all[i].thread, NULL, run, &all[i]);
    for (int i = 0; i < clients; i++) {
        pthread_join(all[i].thread, NULL);
        n += all[i].n;
    }
    took = malloc((n + 1) * sizeof *took);
    if (!took || !n)
        return 1;
    n = 0;
    for (int i = 0; i < clients; i++) {
        memcpy(took + n, all[i].took, all[i].n * sizeof *took);
        n += all[i].n;
    }
    qsort(took, n, sizeof *took, by_size);
    printf("%zu %u %u\n", n, took[n / 2], took[n * 99 / 100]);
    return 0;
}
