/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_latency.c - the time from the begin of a release in one process to the return of the
 * waiting acquire in another process, beside one PING round trip of a plain client. The minimum is
 * one round trip (the release travels to the server, and the message to the waiter) and the time
 * of the script.
 *
 * A sleeping process wakes up slower than a busy one. So there are sleeps between the PINGs, as
 * long as the lock is held, and subscribe-and-retry is measured in the same way, with the commands
 * that Redisson sends and with as few commands as possible.
 */
#include <string.h>
#include <sys/mman.h>

#include "redis.h"

#define TURNS 5
#define ROUNDS 400 /* for each side and turn */
#define HOLD_NS 500000
#define PAUSE_NS 100000

static void *pawl_begin(void)
{
    pawl_client *client;

    return bench_lock(&client, setup.tcp, "latency", PAWL_MUTEX);
}

static const struct subject pawl = {"pawl", pawl_begin, bench_pawl_acquire, bench_pawl_release};

static void pings(struct plain *c, struct bench_gaps *gaps)
{
    size_t len;

    for (int i = 0; i < ROUNDS; i++) {
        int64_t from;

        bench_nap(HOLD_NS);
        from = bench_ns();
        plain_send(c, "PING\r\n", 6);
        plain_reply(c, &len);
        gaps->gaps[gaps->n++] = bench_ns() - from;
    }
}

static struct bench_gaps *gaps_new(void)
{
    struct bench_gaps *gaps = bench_share(sizeof *gaps);

    gaps->rounds = ROUNDS;
    gaps->hold_ns = HOLD_NS;
    gaps->pause_ns = PAUSE_NS;
    return gaps;
}

static double us(struct bench_gaps *gaps, double share)
{
    return (double)bench_quantile(gaps->gaps, gaps->n, share) / 1e3;
}

static void print_others(const char *name, struct bench_gaps *mine, struct bench_gaps *theirs)
{
    printf("latency    %-28s p50 %6.1f p99 %7.1f us (%zu hand-overs)   pawl / it: p50 %5.2f "
           "p99 %5.2f\n", name, us(theirs, 0.5), us(theirs, 0.99), theirs->n,
           us(mine, 0.5) / us(theirs, 0.5), us(mine, 0.99) / us(theirs, 0.99));
}

void bench_latency(void)
{
    struct bench_gaps *mine = gaps_new(), *ping = gaps_new();
    struct bench_gaps *redisson = gaps_new(), *cheapest = gaps_new();
    struct plain *c = plain_open(&setup.by_tcp);
    double round_trip;

    for (int i = 0; i < TURNS; i++) {
        pings(c, ping);
        bench_handover(&pawl, mine);
        bench_handover(&bench_redisson, redisson);
        bench_handover(&bench_retry, cheapest);
    }
    round_trip = us(ping, 0.5);
    printf("latency    pawl p50 %6.1f p99 %7.1f us (%zu hand-overs)   one PING p50 %6.1f p99 %7.1f "
           "us   ratio to p50 of PING: p50 %5.2f p99 %5.2f\n", us(mine, 0.5), us(mine, 0.99),
           mine->n, round_trip, us(ping, 0.99), us(mine, 0.5) / round_trip,
           us(mine, 0.99) / round_trip);
    print_others(bench_redisson.name, mine, redisson);
    print_others(bench_retry.name, mine, cheapest);
    plain_close(c);
    munmap(mine, sizeof *mine);
    munmap(ping, sizeof *ping);
    munmap(redisson, sizeof *redisson);
    munmap(cheapest, sizeof *cheapest);
}
