/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_redis.c - the whole Redis engine, with servers, sentinels and clusters that send any bytes:
 * HELLO, pushes (grants and other messages), SCAN, CLUSTER SLOTS, MOVED and ASK, rows, entries.
 *
 * A script (world.h) begins with a digit for the URL. Then, besides ops:
 *
 *     0TEXT ... 7TEXT   the server of that connection sends TEXT
 *     =TEXT             the server that got the last request sends TEXT
 *     @                 every server answers its requests as a correct server would, and grants
 *                       acquires. &: the same, but acquires are queued
 *     !                 the first server hangs up         +   100 ms pass       *   5 s pass
 *     ^0 ... ^9         cancel that op
 *
 * The rules are in world.h. In addition, an acquire succeeds only if a script's answer, or a
 * message with the waiter's secret, granted the acquire.
 */
#include "redis/redis.h"
#include "registry.h"
#include "world.h"

enum { ASKED_MAX = 4096, STREAMS = 64 };

/* The requests on a connection, as words. */
static struct asked {
    net_stream *on;
    char words[ASKED_MAX];
    size_t used;
} asked[STREAMS];

static net_stream *latest; /* the connection with the last request */

static const struct {
    const pawl_engine *engine;
    const char *url;
} urls[] = {
    {&pawl_engine_redis, "redis://h:1/2?prefix=p:"},
    {&pawl_engine_redis_cluster, "redis+cluster://10.0.0.1:1,h2:2?prefix=p:"},
    {&pawl_engine_redis_sentinel, "redis+sentinel://h:1,h2:2/m?prefix=p:"},
    {&pawl_engine_redis, "redis://u:w@h?layout=redisson"},
    {&pawl_engine_redis, "redis://h?prefix=p:&replicas=1"},
    {&pawl_engine_redis_cluster, "redis+cluster://10.0.0.1:1?hosts=10.*&layout=redisson"},
    {&pawl_engine_redis, "redis://h?prefix="},
};

/* ---- requests to a server -------------------------------------------------------------------- */

static struct asked *asked_on(const net_stream *s)
{
    for (size_t i = 0; i < STREAMS; i++)
        if (asked[i].on == s)
            return &asked[i];
    return NULL;
}

void stream_opened(net_stream *s)
{
    struct asked *a = asked_on(s);

    for (size_t i = 0; i < STREAMS && !a; i++)
        if (!asked[i].on || asked[i].on->state == NET_CLOSED)
            a = &asked[i];
    if (a)
        *a = (struct asked){.on = s};
}

void stream_hears(net_stream *s, const void *data, size_t length)
{
    struct asked *a = asked_on(s);
    size_t room = a ? ASKED_MAX - a->used : 0;

    if (length > room)
        return;
    latest = s;
    memcpy(a->words + a->used, data, length);
    a->used += length;
}

/* ---- answers of a correct server ------------------------------------------------------------- */

static const char *sha_of(const char *script)
{
    const struct {
        const char *word, *sha, *foreign;
    } known[] = {
        {"acquire", redis_script_acquire.sha, redisson_script_acquire.sha},
        {"release", redis_script_release.sha, redisson_script_release.sha},
        {"cancel", redis_script_cancel.sha, ""},
        {"inspect", redis_script_inspect.sha, redisson_script_inspect.sha},
        {"renew", redis_script_renew.sha, redisson_script_renew.sha},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(script, known[i].sha) || !strcmp(script, known[i].foreign))
            return known[i].word;
    return "";
}

static void say(net_stream *s, const char *text)
{
    stream_says(s, text, strlen(text));
}

static void copy(char to[64], const resp_node *node)
{
    size_t n = node && resp_is_text(node) && node->length < 64 ? node->length : 0;

    if (n)
        memcpy(to, node->text, n);
    to[n] = 0;
}

/* EVALSHA sha nkeys KEYS owner ... */
static void answer_script(net_stream *s, const resp_node *request, bool queues)
{
    char sha[64], count[64], owner[64], text[256];
    const char *word;

    copy(sha, resp_child(request, 1));
    copy(count, resp_child(request, 2));
    copy(owner, resp_child(request, 3 + (uint32_t)atoi(count)));
    word = sha_of(sha);
    if (!strcmp(word, "acquire") && queues)
        snprintf(text, sizeof text, "*6\r\n+QUEUED\r\n+%s\r\n:0\r\n:500\r\n:0\r\n:1000000\r\n",
                 owner);
    else if (!strcmp(word, "acquire"))
        snprintf(text, sizeof text, "*6\r\n+GRANTED\r\n+%s\r\n:7\r\n:1\r\n:30000\r\n:1000000\r\n",
                 owner);
    else if (!strcmp(word, "inspect"))
        snprintf(text, sizeof text, "*7\r\n:1000000\r\n+lock\r\n:0\r\n:1\r\n:1\r\n:0\r\n*1\r\n"
                 "*8\r\n+h\r\n+0000000000000001:1\r\n+x\r\n:1\r\n:7\r\n:0\r\n:999000\r\n:500\r\n");
    else if (!strcmp(word, "renew"))
        snprintf(text, sizeof text, "*2\r\n:1\r\n:1\r\n");
    else
        snprintf(text, sizeof text, "*3\r\n+OK\r\n+%s\r\n:1000000\r\n", owner);
    say(s, text);
}

static void answer_subscribe(net_stream *s, const char *word, const resp_node *channel)
{
    char text[512];

    snprintf(text, sizeof text, ">3\r\n+%s\r\n+%.*s\r\n:1\r\n", word, (int)channel->length,
             channel->text);
    say(s, text);
}

static void answer_word(net_stream *s, const resp_node *request)
{
    static const struct {
        const char *word, *answer;
    } known[] = {
        {"HELLO", "%3\r\n+version\r\n+7.2.0\r\n+id\r\n:9\r\n+role\r\n+master\r\n"},
        {"SELECT", "+OK\r\n"},
        {"PING", "+PONG\r\n"},
        {"SCAN", "*2\r\n+0\r\n*2\r\n+p:a\r\n+{p:b}:queue\r\n"},
        {"HMGET", "*4\r\n+host\r\n+17\r\n+program\r\n+label\r\n"},
        {"INFO", "$20\r\nuptime_in_seconds:99\r\n"},
        {"SENTINEL", "*2\r\n+h9\r\n+9\r\n"},
    };
    const resp_node *word = resp_child(request, 0), *second = resp_child(request, 1);

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (resp_equal(word, known[i].word, strlen(known[i].word))) {
            say(s, known[i].answer);
            return;
        }
    if (resp_equal(word, "CLUSTER", 7) && second && resp_equal(second, "INFO", 4))
        say(s, "$43\r\ncluster_state:ok\r\ncluster_current_epoch:3\r\n\r\n");
    else if (resp_equal(word, "CLUSTER", 7))
        say(s, "*2\r\n*3\r\n:0\r\n:9000\r\n*3\r\n+10.0.0.1\r\n:1\r\n+1234567890123456\r\n"
               "*3\r\n:9001\r\n:16383\r\n*3\r\n+10.0.0.2\r\n:2\r\n+2234567890123456\r\n");
    else
        say(s, ":1\r\n");
}

static void answer(net_stream *s, const resp_node *request, bool queues)
{
    const resp_node *word = resp_child(request, 0), *second = resp_child(request, 1);

    if (!word)
        return;
    if (resp_equal(word, "EVALSHA", 7) || resp_equal(word, "EVAL", 4))
        answer_script(s, request, queues);
    else if (second && (resp_equal(word, "SUBSCRIBE", 9) || resp_equal(word, "subscribe", 9)))
        answer_subscribe(s, "subscribe", second);
    else if (second && (resp_equal(word, "SSUBSCRIBE", 10) || resp_equal(word, "ssubscribe", 10)))
        answer_subscribe(s, "ssubscribe", second);
    else
        answer_word(s, request);
}

/* Answer all requests to this server so far. */
static void serve(struct asked *a, bool queues)
{
    struct asked now = *a;
    resp_reader r;
    resp_reply request;
    size_t at = 0;

    a->used = 0;
    resp_reader_init(&r, NULL);
    while (now.on->state == NET_OPEN &&
           resp_next(&r, now.words + at, now.used - at, &request) == RESP_GOT_REPLY) {
        answer(now.on, request.nodes, queues);
        at += request.size;
    }
    resp_reader_free(&r);
}

static void serve_all(world *w, bool queues)
{
    for (int round = 0; round < 6; round++) {
        for (size_t i = 0; i < STREAMS; i++)
            if (asked[i].on && asked[i].used)
                serve(&asked[i], queues);
        world_turn(w);
    }
}

/* ---- the script ------------------------------------------------------------------------------ */

/* After a text from the script, the server's pending requests count as answered. */
static void says(net_stream *s, const world_step *step)
{
    struct asked *a = asked_on(s);

    if (a && step->length && step->text[0] != '>')
        a->used = 0;
    stream_says(s, step->text, step->length);
}

static void take(world *w, const world_step *step)
{
    if (step->letter >= '0' && step->letter <= '7' && streams_open())
        says(stream_at((size_t)(step->letter - '0') % streams_open()), step);
    else if (step->letter == '=' && latest)
        says(latest, step);
    else if (step->letter == '@' || step->letter == '&')
        serve_all(w, step->letter == '&');
    else if (step->letter == '!' && streams_open())
        stream_hangs_up(stream_at(0));
    else
        world_do(w, step);
    world_turn(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static world w;
    world_step step;
    size_t at = 1, n = size ? (uint8_t)(data[0] - '0') : 0;

    if (!size)
        return 0;
    n %= sizeof urls / sizeof urls[0];
    world_turned = streams_turn;
    memset(asked, 0, sizeof asked);
    latest = NULL;
    DEMAND(world_open(&w, urls[n].engine, urls[n].url));
    for (int i = 0; i < 64 && world_next(data, size, &at, &step); i++)
        take(&w, &step);
    world_close(&w);
    streams_reset();
    return 0;
}
