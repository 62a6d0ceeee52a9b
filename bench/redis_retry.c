/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_retry.c - a lock by subscribe-and-retry with as few commands as possible: try by a script
 * (SET NX PX, else return the holder's remaining lease); if that fails, wait for a message on the
 * lock's channel and try again; release by a script that compares, deletes and publishes. Each
 * process has two connections: one for commands, one for messages.
 *
 * No library does so little (redis_redisson.c has the commands of a real one): the subscription is
 * permanent instead of being made and ended with every wait; the lock is a plain string instead of
 * a hash with counts; there are no receipts, no renewal and no background thread; I/O blocks; and
 * several messages that have arrived lead to one try.
 */
#include <string.h>

#include "redis.h"

#define KEY "retry"
#define CHANNEL "retry:channel"
#define LEASE "30000"

static const char try_script[] =
    "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return -1 end\n"
    "return redis.call('PTTL', KEYS[1])\n";
static const char release_script[] =
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
    "redis.call('DEL', KEYS[1])\n"
    "redis.call('PUBLISH', KEYS[2], '1')\n"
    "return 1\n";

struct retry {
    struct plain *commands, *messages;
    struct plain_request try, release;
};

static void *retry_open(void)
{
    struct retry *r = malloc(sizeof *r);
    char try_sha[41], release_sha[41], owner[40];
    size_t len;

    if (!r)
        bench_die("malloc");
    r->commands = plain_open(&setup.by_tcp);
    r->messages = plain_open(&setup.by_tcp);
    plain_script(r->commands, try_script, try_sha);
    plain_script(r->commands, release_script, release_sha);
    snprintf(owner, sizeof owner, "%p:%lld", (void *)r, (long long)bench_ns());
    plain_command(&r->try, 6, (const char *const[]){"EVALSHA", try_sha, "1", KEY, owner, LEASE});
    plain_command(&r->release, 6,
                  (const char *const[]){"EVALSHA", release_sha, "2", KEY, CHANNEL, owner});
    plain_do(r->messages, 2, (const char *const[]){"SUBSCRIBE", CHANNEL}, &len);
    return r;
}

/* -1: acquired; else the remaining lease of the holder. */
static long try(struct retry *r)
{
    size_t len;

    plain_send(r->commands, r->try.data, r->try.len);
    return atol(plain_reply(r->commands, &len) + 1);
}

static void retry_acquire(void *arg)
{
    struct retry *r = arg;
    size_t len;
    long left;

    for (;;) {
        while (plain_ready(r->messages, 0)) /* messages from before this wait */
            plain_reply(r->messages, &len);
        left = try(r);
        if (left < 0)
            return;
        plain_ready(r->messages, (int)left + 1);
    }
}

static void retry_release(void *arg)
{
    struct retry *r = arg;
    size_t len;

    plain_send(r->commands, r->release.data, r->release.len);
    if (memcmp(plain_reply(r->commands, &len), ":1", 2)) {
        fprintf(stderr, "subscribe-and-retry: not held any more\n");
        exit(1);
    }
}

const struct subject bench_retry = {"cheapest subscribe-and-retry", retry_open, retry_acquire,
                                    retry_release};
