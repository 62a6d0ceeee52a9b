/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_redisson.c - a mutex by subscribe-and-retry, as in the most used library: blocking C sends
 * the commands of Redisson 3 in their order (recorded in interop/recorded/redisson3/mutex.txt). A
 * process has one connection for commands and one for messages, like a waiting thread of Redisson.
 *
 *     acquire: the try script; if that fails SUBSCRIBE, then try, wait for a message, try again
 *              ...; UNSUBSCRIBE, without waiting for the answer.
 *     release: the unlock script with a receipt of its own, which is then deleted, without waiting
 *              for the answer.
 *
 * Cheaper than the original: several messages that have arrived lead to one try; no renewal, no
 * thread switches, no Java.
 */
#include <string.h>

#include "redis.h"

#define KEY "redisson"
#define CHANNEL "redisson_lock__channel:{" KEY "}"
#define LEASE "30000"

static const char try_script[] =
    "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then\n"
    "redis.call('hincrby', KEYS[1], ARGV[2], 1)\n"
    "redis.call('pexpire', KEYS[1], ARGV[1])\n"
    "return nil\n"
    "end\n"
    "return redis.call('pttl', KEYS[1])\n";
static const char release_script[] =
    "local receipt = redis.call('get', KEYS[3])\n"
    "if receipt ~= false then return tonumber(receipt) end\n"
    "if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end\n"
    "if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then\n"
    "redis.call('pexpire', KEYS[1], ARGV[2])\n"
    "redis.call('set', KEYS[3], 0, 'px', ARGV[5])\n"
    "return 0\n"
    "end\n"
    "redis.call('del', KEYS[1])\n"
    "redis.call(ARGV[4], KEYS[2], ARGV[1])\n"
    "redis.call('set', KEYS[3], 1, 'px', ARGV[5])\n"
    "return 1\n";

struct redisson {
    struct plain *commands, *messages;
    char release_sha[41], owner[40];
    uint64_t receipts;
    int unread; /* answers that were not waited for */
    struct plain_request try, subscribe, unsubscribe;
};

static void *redisson_open(void)
{
    struct redisson *r = calloc(1, sizeof *r);
    char try_sha[41];

    if (!r)
        bench_die("calloc");
    r->commands = plain_open(&setup.by_tcp);
    r->messages = plain_open(&setup.by_tcp);
    plain_script(r->commands, try_script, try_sha);
    plain_script(r->commands, release_script, r->release_sha);
    snprintf(r->owner, sizeof r->owner, "%p:%lld", (void *)r, (long long)bench_ns());
    plain_command(&r->try, 6,
                  (const char *const[]){"EVALSHA", try_sha, "1", KEY, LEASE, r->owner});
    plain_command(&r->subscribe, 2, (const char *const[]){"SUBSCRIBE", CHANNEL});
    plain_command(&r->unsubscribe, 2, (const char *const[]){"UNSUBSCRIBE", CHANNEL});
    return r;
}

static const char *ask(struct redisson *r, const struct plain_request *request)
{
    size_t len;

    plain_send(r->commands, request->data, request->len);
    for (; r->unread; r->unread--)
        plain_reply(r->commands, &len);
    return plain_reply(r->commands, &len);
}

/* -1: acquired; else the remaining lease of the holder. */
static long try(struct redisson *r)
{
    const char *reply = ask(r, &r->try);

    return *reply == ':' ? atol(reply + 1) : -1;
}

static void subscribe(struct redisson *r)
{
    static const char confirmed[] = "*3\r\n$9\r\nsubscribe";
    size_t len;

    plain_send(r->messages, r->subscribe.data, r->subscribe.len);
    while (memcmp(plain_reply(r->messages, &len), confirmed, sizeof confirmed - 1))
        ; /* messages from before this wait */
}

static void redisson_acquire(void *arg)
{
    struct redisson *r = arg;
    size_t len;
    long left;

    if (try(r) < 0)
        return;
    subscribe(r);
    while ((left = try(r)) >= 0) {
        plain_ready(r->messages, (int)left + 1);
        while (plain_ready(r->messages, 0))
            plain_reply(r->messages, &len);
    }
    plain_send(r->messages, r->unsubscribe.data, r->unsubscribe.len);
}

static void redisson_release(void *arg)
{
    struct redisson *r = arg;
    char receipt[100];
    struct plain_request request;

    snprintf(receipt, sizeof receipt, "redisson_unlock_latch:{" KEY "}:%s:%llx", r->owner,
             (unsigned long long)++r->receipts);
    plain_command(&request, 11,
                  (const char *const[]){"EVALSHA", r->release_sha, "3", KEY, CHANNEL, receipt, "0",
                                        LEASE, r->owner, "PUBLISH", "20000"});
    if (memcmp(ask(r, &request), ":1", 2)) {
        fprintf(stderr, "redisson's commands: not held any more\n");
        exit(1);
    }
    plain_command(&request, 2, (const char *const[]){"DEL", receipt});
    plain_send(r->commands, request.data, request.len);
    r->unread++;
}

const struct subject bench_redisson = {"redisson's commands", redisson_open, redisson_acquire,
                                       redisson_release};
