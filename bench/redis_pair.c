/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_pair.c - acquire and release of one lock by one thread without contention: Pawl beside a
 * plain client that sends the same two scripts with the same keys and arguments by send and recv.
 * The difference is the cost of the library: loop, timers and bookkeeping. The client's CPU time
 * for a pair is printed, too, because other work on the machine hardly changes the CPU time.
 */
#include <sys/resource.h>

#include "redis.h"

#define SLICES 60
#define SLICE_NS 60000000

struct side {
    pawl_lock *lock;
    struct plain *plain;
    struct plain_lock requests;
    void (*pair)(struct side *);
    double cpu_us;
    long pairs;
};

static void pawl_pair(struct side *side)
{
    bench_pawl_acquire(side->lock);
    bench_pawl_release(side->lock);
}

static void plain_pair(struct side *side)
{
    struct plain_lock *r = &side->requests;

    plain_lock_next(r);
    plain_send(side->plain, r->acquire.data, r->acquire.len);
    plain_granted(side->plain);
    plain_send(side->plain, r->release.data, r->release.len);
    plain_released(side->plain);
}

static double cpu_us(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use); /* Pawl's thread included */
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* Returns ns for a pair. The clock is read only every few pairs. */
static double slice(void *arg)
{
    struct side *side = arg;
    double cpu = cpu_us();
    int64_t from = bench_ns(), now;
    long pairs = 0;

    do {
        for (int i = 0; i < 20; i++, pairs++)
            side->pair(side);
        now = bench_ns();
    } while (now - from < SLICE_NS);
    side->cpu_us += cpu_us() - cpu;
    side->pairs += pairs;
    return (double)(now - from) / (double)pairs;
}

static void over(const char *what, const char *url, const struct plain_server *server)
{
    struct side mine = {.pair = pawl_pair}, theirs = {.pair = plain_pair};
    pawl_client *client;
    struct bench_versus v;

    mine.lock = bench_lock(&client, url, "pair", PAWL_MUTEX);
    theirs.plain = plain_open(server);
    plain_lock_init(&theirs.requests, "plain", 1, 60000);
    v = bench_versus(SLICES, slice, &mine, slice, &theirs);
    printf("pair       %-6s pawl %7.1f us   plain client %7.1f us   ratio %5.2f (%.2f to %.2f)   "
           "client CPU %.1f us and %.1f us\n", what, v.mine / 1e3, v.theirs / 1e3, v.ratio, v.low,
           v.high, mine.cpu_us / (double)mine.pairs, theirs.cpu_us / (double)theirs.pairs);
    plain_close(theirs.plain);
    pawl_lock_free(mine.lock);
    pawl_close(client);
}

void bench_pair(void)
{
    over("TCP", setup.tcp, &setup.by_tcp);
    over("socket", setup.socket, &setup.by_socket);
}
