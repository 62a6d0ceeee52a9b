/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_threads.c - 64 threads acquire and release one lock each, through one Pawl client with one
 * connection, beside 64 plain clients with one connection each. Pawl's threads have to share the
 * connection; in return the server receives many requests in one piece.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "redis.h"

#define THREADS 64
#define SLICES 8
#define SLICE_NS 500000000

static struct worker {
    pthread_t thread;
    pawl_lock *lock;
    struct plain *plain;
    struct plain_lock requests;
    long pairs;
} workers[THREADS];

static atomic_bool stop;

static void *pawl_worker(void *arg)
{
    struct worker *w = arg;

    for (w->pairs = 0; !atomic_load_explicit(&stop, memory_order_relaxed); w->pairs++) {
        bench_pawl_acquire(w->lock);
        bench_pawl_release(w->lock);
    }
    return NULL;
}

static void *plain_worker(void *arg)
{
    struct worker *w = arg;
    struct plain_lock *r = &w->requests;

    for (w->pairs = 0; !atomic_load_explicit(&stop, memory_order_relaxed); w->pairs++) {
        plain_lock_next(r);
        plain_send(w->plain, r->acquire.data, r->acquire.len);
        plain_granted(w->plain);
        plain_send(w->plain, r->release.data, r->release.len);
        plain_released(w->plain);
    }
    return NULL;
}

/* Returns pairs per second of all threads together. */
static double slice(void *(*work)(void *))
{
    int64_t from = bench_ns();
    long pairs = 0;

    atomic_store(&stop, false);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
            bench_die("pthread_create");
    bench_nap(SLICE_NS);
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        pairs += workers[i].pairs;
    }
    return (double)pairs * 1e9 / (double)(bench_ns() - from);
}

static double pawl_slice(void *arg)
{
    (void)arg;
    return slice(pawl_worker);
}

static double plain_slice(void *arg)
{
    (void)arg;
    return slice(plain_worker);
}

void bench_threads(void)
{
    struct bench_versus v;
    pawl_client *client;
    pawl_error err;
    char name[40];

    bench_must(pawl_open(&client, setup.tcp, NULL, &err), "pawl_open", &err);
    for (int i = 0; i < THREADS; i++) {
        struct worker *w = &workers[i];

        snprintf(name, sizeof name, "thread%d", i);
        bench_must(pawl_lock_new(&w->lock, client, name, NULL, &err), "pawl_lock_new", &err);
        w->plain = plain_open(&setup.by_tcp);
        snprintf(name, sizeof name, "plain%d", i);
        plain_lock_init(&w->requests, name, (uint64_t)i + 1, 60000);
    }
    v = bench_versus(SLICES, pawl_slice, NULL, plain_slice, NULL);
    printf("threads    %d: pawl, 1 connection %8.0f pairs/s   plain clients, %d connections "
           "%8.0f pairs/s   ratio %5.2f (%.2f to %.2f)\n", THREADS, v.mine, THREADS, v.theirs,
           v.ratio, v.low, v.high);
    for (int i = 0; i < THREADS; i++) {
        pawl_lock_free(workers[i].lock);
        plain_close(workers[i].plain);
    }
    pawl_close(client);
}
