/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c - finds the names in use. SCAN returns the keys in portions (KEYS would block the server
 * until it has read all keys). There are two rounds: the strings that begin with the prefix, and
 * the queues, for names that have waiters but no holder. In a cluster the nodes are scanned one
 * after the other. SCAN may return a key twice, so the names are sorted to remove duplicates.
 */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>

#include "inspect.h"

#define SCAN_COUNT "1000"

/* Make a pattern that matches just the prefix. */
static void escape(char *out, const char *prefix)
{
    for (; *prefix; prefix++) {
        if (strchr("*?[]\\^", *prefix))
            *out++ = '\\';
        *out++ = *prefix;
    }
    *out = 0;
}

static int write_scan(redis_call *call, resp_buf *out)
{
    redis_inspection *k = call->about;
    const redis_settings *settings = &k->redis->settings;
    char pattern[2 * REDIS_PREFIX_MAX + 8];
    resp_command c = resp_begin(out, 8);

    strcpy(pattern, settings->redisson ? "*timeout*" : "{*:queue");
    if (!k->queues) {
        escape(pattern, settings->prefix);
        strcpy(pattern + strlen(pattern), "*");
    }
    resp_add_text(&c, "SCAN");
    resp_add_uint(&c, (uint64_t)call->tag);
    resp_add_text(&c, "MATCH");
    resp_add_text(&c, pattern);
    resp_add_text(&c, "COUNT");
    resp_add_text(&c, SCAN_COUNT);
    resp_add_text(&c, "TYPE");
    resp_add_text(&c, k->queues ? "zset" : settings->redisson ? "hash" : "string");
    return resp_end(&c);
}

/* Find K in a queue's key; NULL: the key is not one of ours. */
static const char *k_of_queue(const char *key, size_t *length, redis_keys *keys)
{
    size_t n = *length - strlen(":queue");
    const char *close = memchr(key, '}', n);
    bool whole = close && close + 1 == key + n; /* {K}:queue, else {tag}:K:queue */
    const char *k = whole ? key + 1 : close ? close + 2 : NULL;

    if (!k || k > key + n)
        return NULL;
    *length = whole ? n - 2 : (size_t)(key + n - k);
    if (*length > REDIS_K_MAX)
        return NULL;
    redis_keys_of(keys, k, *length);
    return keys->base_length == n && !memcmp(keys->base, key, n) ? k : NULL;
}

/* Find N in a key of Redisson's layout: the expiries of permits ("{N}:timeout", or "N:timeout" if
 * N has a '{'), and the deadlines of a fair lock ("redisson_lock_timeout:" and {N} or N). */
static const char *n_of_timeout(const char *key, size_t *length)
{
    static const char fair[] = "redisson_lock_timeout:", permits[] = ":timeout";
    size_t head = sizeof fair - 1, tail = sizeof permits - 1, n = *length;

    if (n > head && !memcmp(key, fair, head)) {
        key += head;
        n -= head;
    } else if (n > tail && !memcmp(key + n - tail, permits, tail)) {
        n -= tail;
    } else {
        return NULL;
    }
    if (n > 2 && key[0] == '{' && key[n - 1] == '}' && !memchr(key + 1, '{', n - 1)) {
        key++;
        n -= 2;
    }
    *length = n;
    return key;
}

/* Can this be the name of a lock? Other names can't be inspected, and would garble a list. */
static bool is_name(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    return length > 0 && length <= PAWL_NAME_MAX;
}

static int add_name(redis_inspection *k, const char *name, size_t length)
{
    redis_inspect_name *n;
    char *copy;

    if (k->nnames >= INSPECT_NAMES)
        return PAWL_EBACKEND;
    if (k->nnames == k->room) {
        size_t room = k->room ? 2 * k->room : 64;
        redis_inspect_name *names = realloc(k->names, room * sizeof *names);

        if (!names)
            return PAWL_ENOMEM;
        k->names = names;
        k->room = room;
    }
    copy = strndup(name, length);
    if (!copy)
        return PAWL_ENOMEM;
    n = &k->names[k->nnames];
    *n = (redis_inspect_name){.name = copy};
    if (fnmatch(k->op->name, copy, 0))
        free(copy);
    else
        k->nnames++;
    return 0;
}

static int take_key(redis_inspection *k, const resp_node *node)
{
    const char *prefix = k->redis->settings.prefix, *key = node->text;
    size_t length = node->length, prefix_length = strlen(prefix);
    redis_keys keys;

    if (k->queues && k->redis->settings.redisson)
        key = n_of_timeout(key, &length);
    else if (k->queues)
        key = length > 8 ? k_of_queue(key, &length, &keys) : NULL;
    if (!key || length < prefix_length || memcmp(key, prefix, prefix_length) ||
        !is_name(key + prefix_length, length - prefix_length))
        return 0;
    return add_name(k, key + prefix_length, length - prefix_length);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const redis_inspect_name *)a)->name, ((const redis_inspect_name *)b)->name);
}

void redis_inspect_sort(redis_inspection *k)
{
    size_t n = 0;

    if (k->nnames)
        qsort(k->names, k->nnames, sizeof *k->names, by_name);
    for (size_t i = 0; i < k->nnames; i++) {
        if (n && !strcmp(k->names[i].name, k->names[n - 1].name))
            free(k->names[i].name);
        else
            k->names[n++] = k->names[i];
    }
    k->nnames = n;
}

/* The first slot of the next node, if there is one. */
static bool next_node(redis_inspection *k)
{
    const redis_cluster *c = &k->redis->cluster;

    for (; k->node < c->nnodes; k->node++)
        for (uint16_t slot = 0; slot < REDIS_SLOTS; slot++)
            if (c->slots[slot] == k->node + 1) {
                k->slot = slot;
                k->node++;
                return true;
            }
    return false;
}

static bool answer_scan(redis_call *call, const resp_node *reply)
{
    redis_inspection *k = call->about;
    const resp_node *cursor = resp_child(reply, 0), *keys = resp_child(reply, 1), *key;
    int64_t next;
    int code = 0;

    if (!cursor || !keys || keys->type != RESP_ARRAY || !resp_integer(cursor, &next))
        return false;
    key = keys + 1;
    for (uint32_t i = 0; k->op && i < keys->count && !code; i++, key += key->span)
        if (resp_is_text(key))
            code = take_key(k, key);
    if (code) {
        redis_inspect_end(k, code, code == PAWL_ENOMEM ? "out of memory"
                          : "more than a million names; list "
                          "fewer of them, by a longer prefix or pattern");
    } else if (k->op && (next || !k->queues)) {
        k->queues |= next == 0;
        redis_inspect_scan(k, (uint64_t)next);
    } else if (k->op && next_node(k)) {
        k->queues = false;
        redis_inspect_scan(k, 0);
    }
    redis_inspect_answered(k);
    return true;
}

/* ---- the first scan; in a cluster after the map is known ------------------------------------- */

static int write_ping(redis_call *call, resp_buf *out)
{
    resp_command c = resp_begin(out, 1);

    (void)call;
    resp_add_text(&c, "PING");
    return resp_end(&c);
}

/* The map link holds the PING back until there is a map (map_link.c). */
static bool pinged(redis_call *call, const resp_node *reply)
{
    redis_inspection *k = call->about;

    (void)reply;
    if (k->op && next_node(k))
        redis_inspect_scan(k, 0);
    redis_inspect_answered(k);
    return true;
}

void redis_inspect_scan_begin(redis_inspection *k)
{
    static const redis_call_type type = {.write = write_ping, .answer = pinged,
        .failed = redis_inspect_failed};
    redis *r = k->redis;
    redis_call *call;

    if (r->settings.service != REDIS_CLUSTER || (r->cluster.known && next_node(k))) {
        redis_inspect_scan(k, 0);
        return;
    }
    call = redis_call_new(&r->link, &type, k, 0);
    if (!call) {
        redis_inspect_end(k, PAWL_ENOMEM, "out of memory");
        return;
    }
    k->out++;
    redis_link_send(&r->link, call);
}

void redis_inspect_scan(redis_inspection *k, uint64_t cursor)
{
    static const redis_call_type type = {.write = write_scan, .answer = answer_scan,
        .failed = redis_inspect_failed};

    redis_inspect_send(k, &type, k->slot, (int64_t)cursor);
}
