/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_waiters.c - 10,000 waiters (or -n) queue for one name at the server and are then served;
 * the order is checked.
 *
 * There are ten clients with a tenth of the handles each, with PAWL_FAIR, so that every handle has
 * its own place at the server. A client starts to queue when all handles of the client before are
 * queued, so that the order is known. Each grant is released at once.
 *
 * For comparison, a plain client owns all places of the same queue: the client releases, reads the
 * message to the next owner, and releases for that owner, which takes one round trip each.
 */
#include <poll.h>
#include <stdbool.h>
#include <string.h>

#include "redis.h"

#define CLIENTS 10
#define TURNS 3

static struct plain *admin;
static struct pollfd fds[CLIENTS];
static pawl_client *clients[CLIENTS];
static pawl_lock **locks;
static int each, waiters; /* for each client, for all */
static int granted, ended;
static uint64_t last_token;

static int queue_length(const char *key)
{
    const char *const args[] = {"ZCARD", key};
    size_t len;

    return atoi(plain_do(admin, 2, args, &len) + 1);
}

/* ---- Pawl ------------------------------------------------------------------------------------ */

static void out_of_order(int expected, long got)
{
    fprintf(stderr, "waiters: number %ld came when it was the turn of %d\n", got, expected);
    exit(1);
}

static void released(void *arg, pawl_lock *lock, int code)
{
    (void)arg;
    (void)lock;
    bench_must(code, "release_start", NULL);
    ended++;
}

static void acquired(void *arg, pawl_lock *lock, int code)
{
    long number = (pawl_lock **)arg - locks;
    uint64_t token = pawl_lock_token(lock);

    bench_must(code, "acquire_start", NULL);
    if (number != granted || token <= last_token)
        out_of_order(granted, number);
    granted++;
    last_token = token;
    bench_must(pawl_lock_release_start(lock, released, NULL), "release_start", NULL);
}

static void process(int timeout_ms)
{
    poll(fds, CLIENTS, timeout_ms);
    for (int i = 0; i < CLIENTS; i++)
        if (fds[i].revents)
            bench_process(clients[i]);
}

static void queue_up(int client)
{
    for (int i = client * each; i < (client + 1) * each; i++)
        bench_must(pawl_lock_acquire_start(locks[i], PAWL_FOREVER, acquired, &locks[i]),
                   "acquire_start", NULL);
    while (queue_length("{pawl:waiters}:queue") < (client + 1) * each)
        process(1);
}

/* Returns how many were served per second. */
static double pawl_slice(void *arg)
{
    pawl_lock *holder = arg;
    int64_t from;

    granted = ended = 0;
    bench_pawl_acquire(holder);
    for (int i = 0; i < CLIENTS; i++)
        queue_up(i);
    from = bench_ns();
    bench_pawl_release(holder);
    while (ended < waiters)
        process(1000);
    return waiters * 1e9 / (double)(bench_ns() - from);
}

static void pawl_begin(void)
{
    pawl_lock_options options = {
        .size = sizeof options, .kind = PAWL_FAIR, .owner = PAWL_OWNER_HANDLE};
    pawl_error err;

    for (int i = 0; i < CLIENTS; i++) {
        bench_must(pawl_open(&clients[i], setup.tcp, NULL, &err), "pawl_open", &err);
        fds[i] = (struct pollfd){pawl_client_fd(clients[i]), POLLIN, 0};
        for (int k = i * each; k < (i + 1) * each; k++)
            bench_must(pawl_lock_new(&locks[k], clients[i], "waiters", &options, &err),
                       "pawl_lock_new", &err);
    }
}

static void pawl_end(void)
{
    for (int i = 0; i < waiters; i++)
        pawl_lock_free(locks[i]);
    for (int i = 0; i < CLIENTS; i++)
        pawl_close(clients[i]);
}

/* ---- the plain client ------------------------------------------------------------------------ */

struct served {
    struct plain *requests, *messages;
    struct plain_lock lock;
};

/* Wait for the message "g OWNER ..." for this number. */
static void await_grant(struct served *s, uint64_t number)
{
    const char *message;
    char words[40];
    size_t len;

    snprintf(words, sizeof words, "\ng 0000000000000001:%08llx ", (unsigned long long)number);
    do
        message = plain_reply(s->messages, &len);
    while (!memmem(message, len, words, strlen(words)));
}

static double plain_slice(void *arg)
{
    struct served *s = arg;
    struct plain_lock *lock = &s->lock;
    uint64_t first = lock->number + 1;
    int64_t from;
    size_t len;

    for (int i = 0; i <= waiters; i++) { /* the holder, then the waiters */
        plain_lock_next(lock);
        plain_send(s->requests, lock->acquire.data, lock->acquire.len);
        plain_reply(s->requests, &len);
    }
    if (queue_length("{pawl:plain}:queue") != waiters)
        out_of_order(waiters, queue_length("{pawl:plain}:queue"));
    lock->number = first - 1;
    plain_lock_next(lock);
    from = bench_ns();
    for (int i = 0; i < waiters; i++) {
        plain_send(s->requests, lock->release.data, lock->release.len);
        plain_released(s->requests);
        plain_lock_next(lock);
        await_grant(s, lock->number);
    }
    from = bench_ns() - from;
    plain_send(s->requests, lock->release.data, lock->release.len);
    plain_released(s->requests);
    return waiters * 1e9 / (double)from;
}

static void plain_start(struct served *s)
{
    const char *const subscribe[] = {"SUBSCRIBE", "pawl:@0000000000000001"};
    size_t len;

    s->requests = plain_open(&setup.by_tcp);
    s->messages = plain_open(&setup.by_tcp);
    plain_lock_init(&s->lock, "plain", 1, 60000);
    plain_do(s->messages, 2, subscribe, &len);
}

void bench_waiters(void)
{
    struct bench_versus v;
    struct served served;
    pawl_client *client;
    pawl_lock *holder = bench_lock(&client, setup.tcp, "waiters", PAWL_FAIR);

    each = (setup.count ? setup.count : 10000) / CLIENTS;
    waiters = each * CLIENTS;
    locks = calloc((size_t)waiters, sizeof *locks);
    if (!locks)
        bench_die("calloc");
    admin = plain_open(&setup.by_tcp);
    pawl_begin();
    plain_start(&served);
    v = bench_versus(TURNS, pawl_slice, holder, plain_slice, &served);
    bench_figure("rate", v.mine);
    bench_figure("plain_rate", v.theirs);
    if (!setup.figures)
        printf("waiters    %d of one name, all served in order: pawl %7.0f/s   plain client "
               "%7.0f/s   ratio %5.2f (%.2f to %.2f)\n", waiters, v.mine, v.theirs, v.ratio,
               v.low, v.high);
    pawl_end();
    pawl_lock_free(holder);
    pawl_close(client);
    plain_close(served.requests);
    plain_close(served.messages);
    plain_close(admin);
}
