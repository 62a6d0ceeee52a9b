/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c - the options of "fault:", and the random numbers. Numbers are parsed without strtod(),
 * which would follow the program's locale and accept more than a percentage.
 */
#include "fault.h"

#define KEYS "drop, lose, repeat, refuse, evict (percent), delay and for (ms), seed, only"
#define KINDS "acquire, release, renew, break, inspect, list, count, latch-set, latch-down"

/* A piece of the URL: a key, a value, a word. */
typedef struct piece {
    const char *at;
    size_t len;
} piece;

static bool is(piece p, const char *word)
{
    return p.len == strlen(word) && !memcmp(p.at, word, p.len);
}

/* Cut off and return the part before `mark` (or everything). */
static piece cut(piece *rest, char mark)
{
    const char *end = memchr(rest->at, mark, rest->len);
    piece first = {rest->at, end ? (size_t)(end - rest->at) : rest->len};
    size_t gone = end ? first.len + 1 : first.len;

    rest->at += gone;
    rest->len -= gone;
    return first;
}

static bool number(piece p, uint64_t limit, uint64_t *ret)
{
    uint64_t n = 0;

    for (size_t i = 0; i < p.len; i++) {
        if (p.at[i] < '0' || p.at[i] > '9')
            return false;
        uint64_t digit = (uint64_t)(p.at[i] - '0');
        if (n > (limit - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    *ret = n;
    return p.len > 0;
}

/* "5", "0.25": a percentage with up to four decimals, in millionths. */
static bool percent(piece p, uint32_t *ret)
{
    bool decimals = memchr(p.at, '.', p.len) != NULL;
    piece whole = cut(&p, '.');
    uint64_t n, part = 0;

    if (!number(whole, 100, &n) || (decimals && (p.len > 4 || !number(p, 9999, &part))))
        return false;
    for (size_t i = p.len; i < 4; i++)
        part *= 10;
    n = n * 10000 + part;
    if (n > FAULT_ALWAYS)
        return false;
    *ret = (uint32_t)n;
    return true;
}

static bool kinds(piece list, uint32_t *ret)
{
    static const char *const names[] = {
        [PAWL_OP_ACQUIRE] = "acquire",     [PAWL_OP_RELEASE] = "release",
        [PAWL_OP_RENEW] = "renew",         [PAWL_OP_BREAK] = "break",
        [PAWL_OP_INSPECT] = "inspect",     [PAWL_OP_LIST] = "list",
        [PAWL_OP_COUNT] = "count",         [PAWL_OP_LATCH_SET] = "latch-set",
        [PAWL_OP_LATCH_DOWN] = "latch-down",
    };
    enum { N = sizeof names / sizeof *names };

    *ret = 0;
    do {
        piece word = cut(&list, '+');
        size_t kind = 0;
        while (kind < N && !is(word, names[kind]))
            kind++;
        if (kind == N)
            return false;
        *ret |= 1u << kind;
    } while (list.len);
    return true;
}

/* Apply one "key=value". Returns a description of a valid value, or NULL: the value is valid. */
static const char *apply(fault_options *o, piece key, piece value)
{
    struct {
        const char *name;
        uint32_t *chance;
    } chances[] = {{"drop", &o->drop},     {"lose", &o->lose},   {"repeat", &o->repeat},
                   {"refuse", &o->refuse}, {"evict", &o->evict}};
    uint64_t n;

    for (size_t i = 0; i < sizeof chances / sizeof *chances; i++)
        if (is(key, chances[i].name))
            return percent(value, chances[i].chance) ? NULL : "a percentage such as 5 or 0.25";
    if (is(key, "delay")) {
        if (!number(value, 3600000, &n))
            return "milliseconds, 0 to 3600000";
        o->delay_ms = (int64_t)n;
        return NULL;
    }
    if (is(key, "for")) {
        if (!number(value, INT32_MAX, &n))
            return "milliseconds";
        o->for_ms = (int64_t)n;
        return NULL;
    }
    if (is(key, "seed")) {
        o->seeded = true;
        return number(value, UINT64_MAX, &o->seed) ? NULL : "a whole number";
    }
    if (is(key, "only"))
        return kinds(value, &o->only) ? NULL : "kinds joined by '+', out of " KINDS;
    return "one of " KEYS;
}

const char *fault_options_read(fault_options *options, const char *text, pawl_error *err)
{
    const char *end = strchr(text, ';');

    *options = (fault_options){.only = ~0u};
    if (!end || !end[1]) {
        pawl_error_set(err, PAWL_EINVAL,
                       "fault: no inner URL; write fault:OPTIONS;URL, as in "
                       "fault:drop=5,delay=20;memory:");
        return NULL;
    }
    for (piece rest = {text, (size_t)(end - text)}; rest.len;) {
        piece value = cut(&rest, ','), all = value;
        piece key = cut(&value, '=');
        const char *wanted = apply(options, key, value);
        if (wanted) {
            pawl_error_set(err, PAWL_EINVAL, "fault: '%.*s' is wrong: %s", (int)all.len, all.at,
                           wanted);
            return NULL;
        }
    }
    return end + 1;
}

/* ---- Random numbers -------------------------------------------------------------------------- */

/* splitmix64: small, and works well with any seed. */
static uint64_t draw(fault *f)
{
    uint64_t z = f->random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

bool fault_chance(fault *f, uint32_t millionths)
{
    return draw(f) % FAULT_ALWAYS < millionths;
}

int64_t fault_delay(fault *f)
{
    uint64_t limit_us = (uint64_t)f->options.delay_ms * 1000;

    return (int64_t)(draw(f) % (limit_us + 1)) * 1000;
}
