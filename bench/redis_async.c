/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_async.c - 1000 locks in flight through one Pawl client: each is acquired, then released,
 * then acquired again, by pawl_lock_acquire_start and pawl_lock_release_start. Once from a loop of
 * the program's own (poll and pawl_client_process), once with the callbacks in Pawl's thread.
 *
 * For comparison, a client that only pipelines runs the same two scripts on as many locks, like
 * `redis-benchmark -P 32`: 32 acquires, their replies, the 32 releases, their replies. It uses one
 * connection, as Pawl does, and then 50, the default of redis-benchmark: with 50 connections the
 * server is never idle, and nothing can be faster on this machine.
 *
 * redis-benchmark itself can't release a lock that it has acquired. To show that the pipelining
 * client is as fast as redis-benchmark, both send acquires of ever new locks.
 */
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "redis.h"

#define LOCKS 1000
#define DEPTH 32
#define CONNECTIONS 50
#define SLICES 8
#define SLICE_NS 400000000

/* ---- Pawl ------------------------------------------------------------------------------------ */

struct loop {
    pawl_client *client;
    pawl_lock *locks[LOCKS];
    int fd; /* -1: Pawl's own thread runs the callbacks */
    atomic_bool stop;
    atomic_int in_flight;
    long pairs; /* changed by callbacks only, which run one at a time */
    sem_t drained;
};

static pawl_done_fn acquired, released;

static void acquired(void *arg, pawl_lock *lock, int code)
{
    bench_must(code, "acquire_start", NULL);
    bench_must(pawl_lock_release_start(lock, released, arg), "release_start", NULL);
}

static void released(void *arg, pawl_lock *lock, int code)
{
    struct loop *loop = arg;

    bench_must(code, "release_start", NULL);
    loop->pairs++;
    if (!atomic_load(&loop->stop)) {
        code = pawl_lock_acquire_start(lock, PAWL_FOREVER, acquired, loop);
        bench_must(code, "acquire_start", NULL);
    } else if (atomic_fetch_sub(&loop->in_flight, 1) == 1) {
        sem_post(&loop->drained);
    }
}

static void run_loop(struct loop *loop, int64_t until)
{
    struct pollfd p = {loop->fd, POLLIN, 0};

    while (atomic_load(&loop->in_flight)) {
        poll(&p, 1, 1000);
        bench_process(loop->client);
        if (bench_ns() > until)
            atomic_store(&loop->stop, true);
    }
}

static double pawl_slice(void *arg)
{
    struct loop *loop = arg;
    int64_t from = bench_ns();

    loop->pairs = 0;
    atomic_store(&loop->stop, false);
    atomic_store(&loop->in_flight, LOCKS);
    for (int i = 0; i < LOCKS; i++)
        bench_must(pawl_lock_acquire_start(loop->locks[i], PAWL_FOREVER, acquired, loop),
                   "acquire_start", NULL);
    if (loop->fd >= 0) {
        run_loop(loop, from + SLICE_NS);
    } else {
        bench_nap(SLICE_NS);
        atomic_store(&loop->stop, true);
    }
    sem_wait(&loop->drained);
    return (double)loop->pairs * 1e9 / (double)(bench_ns() - from);
}

static void pawl_begin(struct loop *loop, bool own_loop)
{
    pawl_lock_options options = {.size = sizeof options, .owner = PAWL_OWNER_HANDLE};
    pawl_error err;
    char name[40];

    sem_init(&loop->drained, 0, 0);
    bench_must(pawl_open(&loop->client, setup.tcp, NULL, &err), "pawl_open", &err);
    for (int i = 0; i < LOCKS; i++) {
        snprintf(name, sizeof name, "async%d", i);
        bench_must(pawl_lock_new(&loop->locks[i], loop->client, name, &options, &err),
                   "pawl_lock_new", &err);
    }
    loop->fd = own_loop ? pawl_client_fd(loop->client) : -1;
}

static void pawl_end(struct loop *loop)
{
    for (int i = 0; i < LOCKS; i++)
        pawl_lock_free(loop->locks[i]);
    pawl_close(loop->client);
}

/* ---- pipelining ------------------------------------------------------------------------------ */

struct pipe {
    struct plain *plain;
    struct plain_lock locks[DEPTH];
    bool holds;
};

static struct pipe pipes[CONNECTIONS];
static int connections;

static void pipe_send(struct pipe *p, bool acquire)
{
    char out[DEPTH * sizeof p->locks[0].acquire.data];
    size_t len = 0;

    for (int i = 0; i < DEPTH; i++) {
        struct plain_request *r = acquire ? &p->locks[i].acquire : &p->locks[i].release;

        if (acquire)
            plain_lock_next(&p->locks[i]);
        memcpy(out + len, r->data, r->len);
        len += r->len;
    }
    plain_send(p->plain, out, len);
    p->holds = acquire;
}

static void pipe_receive(struct pipe *p)
{
    for (int i = 0; i < DEPTH; i++) {
        if (p->holds)
            plain_granted(p->plain);
        else
            plain_released(p->plain);
    }
}

/* While the replies of one connection are read, the server has the requests of the others. */
static double pipe_slice(void *arg)
{
    int64_t from = bench_ns();
    long pairs = 0;

    (void)arg;
    for (int i = 0; i < connections; i++)
        pipe_send(&pipes[i], true);
    while (bench_ns() - from < SLICE_NS) {
        for (int i = 0; i < connections; i++) {
            pipe_receive(&pipes[i]);
            pairs += pipes[i].holds ? 0 : DEPTH;
            pipe_send(&pipes[i], !pipes[i].holds);
        }
    }
    for (int i = 0; i < connections; i++) {
        pipe_receive(&pipes[i]);
        pairs += pipes[i].holds ? 0 : DEPTH;
        if (pipes[i].holds) {
            pipe_send(&pipes[i], false);
            pipe_receive(&pipes[i]);
            pairs += DEPTH;
        }
    }
    return (double)pairs * 1e9 / (double)(bench_ns() - from);
}

static void pipes_begin(void)
{
    char name[40];

    for (int i = 0; i < CONNECTIONS; i++) {
        pipes[i].plain = plain_open(&setup.by_tcp);
        for (int k = 0; k < DEPTH; k++) {
            snprintf(name, sizeof name, "pipe%d", i * DEPTH + k);
            plain_lock_init(&pipes[i].locks[k], name, (uint64_t)(i * DEPTH + k) + 1, 60000);
        }
    }
}

/* ---- is the pipelining client as good as redis-benchmark? ------------------------------------ */

#define FRESH 40000

static double redis_benchmark(void *arg)
{
    char command[1200], line[400];
    double rate = 0;
    FILE *in;

    (void)arg;
    snprintf(command, sizeof command,
             "redis-benchmark -p %d -c %d -P %d -n %d -r 1000000000000 --csv evalsha %s 5 "
             "pawl:__rand_int__ {pawl:b}:fence {pawl:b}:queue {pawl:b}:rec {pawl:b}:hold "
             "0000000000000001:00000001 x 3000 60000 1 ppawl:@0000000000000001 0 0 '' 0 '' "
             PLAIN_SECRET,
             setup.by_tcp.port, CONNECTIONS, DEPTH, FRESH, plain_acquire_sha);
    in = popen(command, "r");
    while (in && fgets(line, sizeof line, in)) {
        char *field = strstr(line, "\",\"");

        if (field && atof(field + 3) > 0)
            rate = atof(field + 3);
    }
    if (!in || pclose(in) || rate <= 0) {
        fprintf(stderr, "redis-benchmark gave no figure\n");
        exit(1);
    }
    return rate;
}

static void fresh_request(struct plain_request *r)
{
    plain_begin(r, 3 + 5 + 12);
    for (const char *const *p = (const char *const[]){
             "EVALSHA", plain_acquire_sha, "5", "pawl:fresh000000000000", "{pawl:b}:fence",
             "{pawl:b}:queue", "{pawl:b}:rec", "{pawl:b}:hold", "0000000000000001:00000001", "x",
             "3000", "60000", "1", "ppawl:@0000000000000001", "0", "0", "", "0", "",
             PLAIN_SECRET, NULL}; *p; p++)
        plain_arg(r, *p);
    r->number = (size_t)(strstr(r->data, "fresh000000000000") + 5 - r->data);
}

static void fresh_send(struct plain *c, struct plain_request *r)
{
    static long last;
    char out[DEPTH * sizeof r->data], number[21];
    size_t len = 0;

    for (int i = 0; i < DEPTH; i++) {
        snprintf(number, sizeof number, "%012ld", ++last);
        memcpy(r->data + r->number, number, 12);
        memcpy(out + len, r->data, r->len);
        len += r->len;
    }
    plain_send(c, out, len);
}

static double fresh_slice(void *arg)
{
    struct plain_request r;
    int64_t from = bench_ns();
    int sent = 0;

    (void)arg;
    fresh_request(&r);
    for (int i = 0; i < CONNECTIONS; i++, sent += DEPTH)
        fresh_send(pipes[i].plain, &r);
    for (int got = 0; got < sent; got += DEPTH) {
        struct plain *c = pipes[got / DEPTH % CONNECTIONS].plain;

        for (int i = 0; i < DEPTH; i++)
            plain_granted(c);
        if (sent < FRESH) {
            fresh_send(c, &r);
            sent += DEPTH;
        }
    }
    return (double)sent * 1e9 / (double)(bench_ns() - from);
}

/* ---- all ------------------------------------------------------------------------------------- */

static void beside_pipes(bool own_loop)
{
    static const int counts[] = {1, CONNECTIONS};
    static struct loop loop;
    struct bench_versus v;

    pawl_begin(&loop, own_loop);
    for (size_t i = 0; i < 2; i++) {
        connections = counts[i];
        v = bench_versus(SLICES, pawl_slice, &loop, pipe_slice, NULL);
        printf("async      %d in flight, %s pawl %7.0f pairs/s   pipelined %d deep on %2d "
               "connection%s %7.0f pairs/s   ratio %5.2f (%.2f to %.2f)\n", LOCKS,
               own_loop ? "own loop,     " : "Pawl's thread,", v.mine, DEPTH, connections,
               connections == 1 ? ", " : "s,", v.theirs, v.ratio, v.low, v.high);
    }
    pawl_end(&loop);
}

void bench_async(void)
{
    struct bench_versus v;

    pipes_begin();
    beside_pipes(true);
    beside_pipes(false);
    v = bench_versus(3, fresh_slice, NULL, redis_benchmark, NULL);
    printf("async      (acquires of new locks: the pipelining client %.0f/s, redis-benchmark "
           "-P %d %.0f/s, ratio %.2f)\n", v.mine, DEPTH, v.theirs, v.ratio);
    for (int i = 0; i < CONNECTIONS; i++)
        plain_close(pipes[i].plain);
}
