/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.c - calls, the scripts of calls, and codes for the server's errors.
 */
#include <stdlib.h>

#include "redis.h"
#include "redis_scripts.h"

#define SPARE_MAX 1024

#define SCRIPT(name)                                                                               \
    const redis_script redis_script_##name = {pawl__redis_##name, sizeof pawl__redis_##name - 1,   \
                                              pawl__redis_##name##_sha}
SCRIPT(acquire);
SCRIPT(release);
SCRIPT(cancel);
SCRIPT(renew);
SCRIPT(break);
SCRIPT(inspect);
SCRIPT(latch);
SCRIPT(entry);

#define REDISSON(name)                                                                             \
    const redis_script redisson_script_##name = {pawl__redis_redisson_##name,                      \
                                                 sizeof pawl__redis_redisson_##name - 1,           \
                                                 pawl__redis_redisson_##name##_sha}
REDISSON(acquire);
REDISSON(release);
REDISSON(renew);
REDISSON(break);
REDISSON(inspect);
REDISSON(latch);

/* ---- calls ----------------------------------------------------------------------------------- */

redis_call *redis_call_new(redis_link *link, const redis_call_type *type, void *about, int64_t tag)
{
    struct list *spare = list_take(&link->redis->calls);
    redis_call *call = spare ? list_entry(spare, redis_call, link) : malloc(sizeof *call);

    if (!call)
        return NULL;
    link->redis->ncalls -= spare != NULL;
    *call = (redis_call){.type = type, .on = link, .about = about, .tag = tag};
    list_init(&call->link);
    return call;
}

redis_call *redis_call_about(redis *r, uint16_t slot, const redis_call_type *type, void *about,
                             int64_t tag)
{
    redis_call *call = redis_call_new(redis_link_at(r, slot), type, about, tag);

    if (call) {
        call->slot = slot;
        call->routed = true;
    }
    return call;
}

void redis_call_send(redis_call *call)
{
    redis_link_send(redis_link_at(call->on->redis, call->slot), call);
}

void redis_call_free(redis_call *call)
{
    redis *r = call->on->redis;

    if (r->ncalls >= SPARE_MAX) {
        free(call);
        return;
    }
    list_append(&r->calls, &call->link);
    r->ncalls++;
}

resp_command redis_begin(const redis_call *call, const redis_script *script, resp_buf *out,
                         size_t nkeys, size_t nargs)
{
    if (call->whole_text)
        return resp_begin_eval(out, script->text, script->length, nkeys, nargs);
    return resp_begin_evalsha(out, script->sha, nkeys, nargs);
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* PAWL_ECONN: the server can't serve now and has carried nothing out; retry. */
static const struct {
    const char *word;
    int code;
} meanings[] = {
    {"NOAUTH", PAWL_EAUTH},      {"WRONGPASS", PAWL_EAUTH},  {"NOPERM", PAWL_EAUTH},
    {"LOADING", PAWL_ECONN},     {"BUSY", PAWL_ECONN},       {"READONLY", PAWL_ECONN},
    {"MASTERDOWN", PAWL_ECONN},  {"TRYAGAIN", PAWL_ECONN},   {"CLUSTERDOWN", PAWL_ECONN},
    {"DENIED", PAWL_EAUTH},      {"MOVED", PAWL_ECONN},      {"ASK", PAWL_ECONN},
};

/* The texts of Redis and of Valkey for NOPERM inside a script. */
static const char *const not_allowed[] = {"The user executing the script can't",
                                          "ACL failure in script"};

static bool begins(const resp_node *reply, const char *text)
{
    size_t length = strlen(text);

    return reply->length >= length && !memcmp(reply->text, text, length);
}

bool redis_error_is(const resp_node *reply, const char *word)
{
    char inside[32];
    int length = snprintf(inside, sizeof inside, ": -%s ", word);

    if (resp_error_is(reply, word))
        return true;
    return begins(reply, "ERR Error running script") &&
           memmem(reply->text, reply->length, inside, (size_t)length);
}

static void add_advice(char words[REDIS_WORDS], const char *advice)
{
    size_t length = strlen(words);

    if (length && words[length - 1] == '.')
        length--;
    snprintf(words + length, REDIS_WORDS - length, "%s", advice);
}

static void add_where(const redis_link *link, char words[REDIS_WORDS])
{
    char said[REDIS_WORDS];

    snprintf(said, sizeof said, "%s", words);
    snprintf(words, REDIS_WORDS, "%.60s: %.160s", link->where, said);
}

int redis_error_code(const redis_link *link, const resp_node *reply, char words[REDIS_WORDS])
{
    int code = PAWL_EBACKEND;
    int length = reply->length < 140 ? (int)reply->length : 140;

    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (redis_error_is(reply, meanings[i].word))
            code = meanings[i].code;
    if (begins(reply, "ERR max number of clients"))
        code = PAWL_ECONN;
    for (size_t i = 0; i < sizeof not_allowed / sizeof not_allowed[0]; i++)
        if (memmem(reply->text, reply->length, not_allowed[i], strlen(not_allowed[i])))
            code = PAWL_EAUTH;
    snprintf(words, REDIS_WORDS, "the server says: %.*s", length, reply->text);
    pawl_text_clean(words);
    if (code == PAWL_EAUTH)
        redis_name_right(link, reply, words);
    if (redis_error_is(reply, "NOAUTH")) /* the server's own text is about HELLO */
        snprintf(words, REDIS_WORDS, "the server says: NOAUTH, it needs a password; set "
                 "PAWL_PASSWORD (and PAWL_USER)");
    else if (redis_error_is(reply, "WRONGPASS"))
        add_advice(words, "; check PAWL_USER and PAWL_PASSWORD");
    else if (code == PAWL_EAUTH)
        add_advice(words, "; see docs/security.md");
    if (code == PAWL_EAUTH && link->state == LINK_READY) /* before READY the link adds the server */
        add_where(link, words);
    return code;
}

/* ---- owners ---------------------------------------------------------------------------------- */

static char *hex_before(char *end, uint64_t value, int digits)
{
    for (; digits > 0 || value; digits--, value >>= 4)
        *--end = "0123456789abcdef"[value & 15];
    return end;
}

size_t redis_owner(char text[REDIS_OWNER_MAX], uint64_t client, uint64_t seq)
{
    char buffer[REDIS_OWNER_MAX], *end = buffer + sizeof buffer;
    char *first = hex_before(end, seq, 1);
    size_t length;

    *--first = ':';
    first = hex_before(first, client, 16);
    length = (size_t)(end - first);
    memcpy(text, first, length);
    text[length] = 0;
    return length;
}

bool redis_is_owner(const resp_node *node, uint64_t client, uint64_t seq)
{
    char text[REDIS_OWNER_MAX];
    size_t length = redis_owner(text, client, seq);

    return node && resp_equal(node, text, length);
}
