/* SPDX-License-Identifier: Apache-2.0
 *
 * keys.c - converts names to keys, and client information to values.
 *
 *     <prefix><name>/<lease>-<seq>          an exclusive owner; a Go program's has no -<seq>
 *     <prefix><name>/~latch                 a latch; no lease
 *     <prefix><name>/~permit-<lease>-<seq>  a holder of permits, or a waiter for permits
 *     <prefix><name>/~read-<lease>-<seq>    a reader
 *     <prefix>/fence/<lease>                see etcd.h
 *     <prefix>/wait/<name>/<lease>-<seq>    a waiter for a latch
 *     <prefix>/done/<lease>-<seq>           the receipt of a latch op
 *
 * A '/' in a name is written %2F and a '%' is written %25, so the keys of different names never
 * mix; all other characters are written unchanged. Numbers are in hex without leading zeros, as
 * Go's concurrency package writes its leases. Any key that sorts before '~' counts as an exclusive
 * owner, no matter which program created the key: hex digits sort before '~', and so does nearly
 * everything else.
 *
 * The value is one line of words, "pawl=1 since=... pid=... host=...", percent-encoded. Unknown
 * words are skipped; a value that does not begin with "pawl=1" is another program's.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "etcd.h"

#define NAME_MAX_ENCODED (3 * PAWL_NAME_MAX + 1)
#define TIME_MAX (INT64_C(1) << 53) /* ms */
#define COUNT_MAX (INT64_C(1) << 62)

static void encode_name(char out[NAME_MAX_ENCODED], const char *name)
{
    size_t n = 0;

    for (; *name; name++) {
        if (*name != '/' && *name != '%') {
            out[n++] = *name;
            continue;
        }
        memcpy(out + n, *name == '/' ? "%2F" : "%25", 3);
        n += 3;
    }
    out[n] = 0;
}

/* Begin and end of each section, after the name. "0" comes right after "/". */
static const char *const section_bounds[][2] = {
    [ETCD_ALL] = {"/", "0"},
    [ETCD_LOCKS] = {"/", "/~"},
    [ETCD_LATCH] = {"/~latch", NULL},
    [ETCD_PERMITS] = {"/~permit-", "/~permit."},
    [ETCD_READS] = {"/~read-", "/~read."},
    [ETCD_WAITS] = {"/", "0"},
    [ETCD_NO_LOCKS] = {"/~latch", "/~read"},
    [ETCD_LOW] = {"/", "/~permit"},
};

static const char *place_of(enum etcd_section section)
{
    return section == ETCD_WAITS ? "/wait/" : "";
}

/* The first key after all keys that begin with this one. */
static void after_all(char *key)
{
    size_t n = strlen(key);

    while (n && (unsigned char)key[n - 1] == 0xff)
        n--;
    if (n)
        key[n - 1]++;
    key[n] = 0;
}

const etcd_range *etcd_bounds_of(etcd_bounds *b, const etcd *e, const char *name,
                                 enum etcd_section section)
{
    const char *const *bounds = section_bounds[section];
    char encoded[NAME_MAX_ENCODED];

    if (name) {
        encode_name(encoded, name);
        snprintf(b->key, sizeof b->key, "%s%s%s%s", e->settings.prefix, place_of(section), encoded,
                 bounds[0]);
        snprintf(b->end, sizeof b->end, "%s%s%s%s", e->settings.prefix, place_of(section), encoded,
                 bounds[1] ? bounds[1] : "");
    } else {
        snprintf(b->key, sizeof b->key, "%s", e->settings.prefix);
        snprintf(b->end, sizeof b->end, "%s", e->settings.prefix);
        after_all(b->end);
    }
    b->range = (etcd_range){etcd_span(b->key), etcd_span(b->end)};
    if (name && !bounds[1])
        b->range.end.length = 0;
    if (!name && !b->range.key.length) { /* everything: a zero byte is the lowest key and the end */
        b->key[0] = b->end[0] = 0;
        b->range.key.length = b->range.end.length = 1;
    }
    return &b->range;
}

void etcd_key(char key[ETCD_KEY_MAX], const etcd *e, const char *name, enum etcd_section section,
              int64_t lease, uint64_t seq)
{
    char encoded[NAME_MAX_ENCODED];

    encode_name(encoded, name);
    snprintf(key, ETCD_KEY_MAX, "%s%s%s%s%" PRIx64 "-%" PRIx64, e->settings.prefix,
             place_of(section), encoded, section_bounds[section][0], (uint64_t)lease, seq);
}

void etcd_helper(char key[ETCD_KEY_MAX], const etcd *e, const char *word, int64_t lease,
                 uint64_t seq)
{
    int n = snprintf(key, ETCD_KEY_MAX, "%s/%s/%" PRIx64, e->settings.prefix, word,
                     (uint64_t)lease);

    if (seq)
        snprintf(key + n, ETCD_KEY_MAX - (size_t)n, "-%" PRIx64, seq);
}

static int hex(uint8_t c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decode %XX; other bytes are copied. The text is cut off if there is not enough room. */
static size_t decode(char *out, size_t room, pb_span text)
{
    size_t n = 0;

    for (size_t i = 0; i < text.length && n + 1 < room; i++) {
        bool escape = text.data[i] == '%' && i + 2 < text.length && hex(text.data[i + 1]) >= 0 &&
                      hex(text.data[i + 2]) >= 0;

        out[n++] = (char)(escape ? hex(text.data[i + 1]) << 4 | hex(text.data[i + 2])
                                 : text.data[i]);
        i += escape ? 2 : 0;
    }
    out[n] = 0;
    return n;
}

bool etcd_key_name(const etcd *e, pb_span key, char name[PAWL_NAME_MAX + 1], pb_span *tail)
{
    size_t skip = strlen(e->settings.prefix);
    const uint8_t *slash;

    if (key.length <= skip || memcmp(key.data, e->settings.prefix, skip))
        return false;
    key = (pb_span){key.data + skip, key.length - skip};
    slash = memchr(key.data, '/', key.length);
    if (!slash || slash == key.data || (size_t)(slash - key.data) >= NAME_MAX_ENCODED)
        return false;
    *tail = (pb_span){slash + 1, key.length - (size_t)(slash - key.data) - 1};
    key.length = (size_t)(slash - key.data);
    return decode(name, PAWL_NAME_MAX + 1, key) > 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_word(pb_span text, const char *word, pb_span *value)
{
    size_t n = strlen(word);

    if (text.length < n || memcmp(text.data, word, n))
        return false;
    *value = (pb_span){text.data + n, text.length - n};
    return true;
}

/* The number in the text, limited to 0 .. `most`. */
static int64_t number(pb_span text, int64_t most)
{
    char digits[24];
    long long value;

    decode(digits, sizeof digits, text);
    value = strtoll(digits, NULL, 10);
    return value < 0 ? 0 : value > most ? most : value;
}

static void read_word(pb_span word, etcd_value *v)
{
    pb_span text;

    if (is_word(word, "since=", &text))
        v->since = number(text, TIME_MAX);
    else if (is_word(word, "pid=", &text))
        v->pid = number(text, INT32_MAX);
    else if (is_word(word, "permits=", &text))
        v->permits = number(text, UINT32_MAX);
    else if (is_word(word, "of=", &text))
        v->capacity = number(text, COUNT_MAX);
    else if (is_word(word, "readers=", &text))
        v->readers = number(text, UINT32_MAX);
    else if (is_word(word, "token=", &text))
        v->token = (uint64_t)number(text, INT64_MAX);
    else if (is_word(word, "shared=", &text))
        v->shared = number(text, 2) == 1;
    else if (is_word(word, "host=", &text))
        decode(v->host, sizeof v->host, text);
    else if (is_word(word, "program=", &text))
        decode(v->program, sizeof v->program, text);
    else if (is_word(word, "label=", &text))
        decode(v->label, sizeof v->label, text);
}

void etcd_value_read(pb_span text, etcd_value *ret)
{
    pb_span rest;

    *ret = (etcd_value){.permits = 1};
    if (!is_word(text, "pawl=1 ", &rest))
        return;
    ret->ours = true;
    while (rest.length) {
        const uint8_t *blank = memchr(rest.data, ' ', rest.length);
        size_t n = blank ? (size_t)(blank - rest.data) : rest.length;

        read_word((pb_span){rest.data, n}, ret);
        n += blank != NULL;
        rest = (pb_span){rest.data + n, rest.length - n};
    }
}

static size_t add_text(char *out, size_t n, const char *word, const char *text)
{
    static const char digits[] = "0123456789ABCDEF";

    n += (size_t)snprintf(out + n, ETCD_VALUE_MAX - n, " %s=", word);
    for (size_t i = 0; i < ETCD_TEXT_MAX - 1 && text[i]; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c > ' ' && c != '%' && c != 0x7f) {
            out[n++] = (char)c;
            continue;
        }
        out[n++] = '%';
        out[n++] = digits[c >> 4];
        out[n++] = digits[c & 15];
    }
    return n;
}

size_t etcd_value_write(char text[ETCD_VALUE_MAX], const etcd_value *v)
{
    const struct {
        const char *word;
        int64_t number;
    } numbers[] = {{"permits", v->capacity ? v->permits : 0}, {"of", v->capacity},
                   {"readers", v->readers}, {"shared", v->shared}, {"token", (int64_t)v->token}};
    size_t n = (size_t)snprintf(text, ETCD_VALUE_MAX, "pawl=1 since=%" PRId64 " pid=%" PRId64,
                                v->since, v->pid);

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].number)
            n += (size_t)snprintf(text + n, ETCD_VALUE_MAX - n, " %s=%" PRId64, numbers[i].word,
                                  numbers[i].number);
    n = add_text(text, n, "host", v->host);
    n = add_text(text, n, "program", v->program);
    if (v->label[0])
        n = add_text(text, n, "label", v->label);
    return n;
}
