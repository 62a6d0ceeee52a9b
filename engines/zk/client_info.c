/* SPDX-License-Identifier: Apache-2.0
 *
 * client_info.c - the data of a node: information about the client that created the node, for
 * INSPECT. One line,
 *
 *     pawl host=db7 pid=4711 program=nightly lease=30000 want=1 label=shift%202
 *
 * with ' ', '%' and control characters as %XX. No decision depends on this line, except on the
 * number of permits that a waiter wants. Nodes of other libraries have other data (Curator: an
 * address).
 */
#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

#include "zk.h"

static size_t put(char *to, size_t room, const char *key, const char *value)
{
    size_t n = (size_t)snprintf(to, room, " %s=", key);

    for (; *value && n + 4 < room; value++) {
        unsigned char c = (unsigned char)*value;

        if (c <= 0x20 || c == '%' || c == 0x7f)
            n += (size_t)snprintf(to + n, room - n, "%%%02X", c);
        else
            to[n++] = (char)c;
    }
    return n;
}

size_t zk_client_info_write(char ret[ZK_CLIENT_INFO_MAX], const zk *z, uint32_t want)
{
    const pawl_env *env = z->env;
    size_t n = 4;

    memcpy(ret, "pawl", sizeof "pawl");
    n += put(ret + n, 280, "host", env->host);
    n += (size_t)snprintf(ret + n, 32, " pid=%lld", (long long)getpid());
    n += put(ret + n, 280, "program", env->program);
    n += (size_t)snprintf(ret + n, 64, " lease=%lld want=%u", (long long)z->session.timeout_ms,
                          want);
    n += put(ret + n, 280, "label", env->label);
    return n;
}

static int hex(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The decoded value of `key` in the text. */
static void value_of(char *ret, size_t room, const char *text, const char *key)
{
    const char *at = strstr(text, key);
    size_t n = 0;

    ret[0] = 0;
    if (!at)
        return;
    for (at += strlen(key); *at && *at != ' ' && n + 1 < room; at++) {
        if (*at == '%' && hex(at[1]) >= 0 && hex(at[2]) >= 0) {
            ret[n++] = (char)(hex(at[1]) * 16 + hex(at[2]));
            at += 2;
        } else {
            ret[n++] = *at;
        }
    }
    ret[n] = 0;
}

/* The number in the text, limited to 0 .. `most`. */
static int64_t bounded(const char *text, int64_t most)
{
    long long value = strtoll(text, NULL, 10);

    return value < 0 ? 0 : value > most ? most : value;
}

int64_t zk_count_read(jute_bytes data, const char *word)
{
    char digits[24] = "";
    size_t n = strlen(word), length;

    if (!zk_bytes_begin(data, word))
        return -1;
    length = data.length - n < sizeof digits - 1 ? data.length - n : sizeof digits - 1;
    if (length)
        memcpy(digits, data.data + n, length);
    return isdigit((unsigned char)digits[0]) ? bounded(digits, INT64_C(1) << 62) : -1;
}

void zk_client_info_read(zk_client_info *ret, jute_bytes data)
{
    char text[ZK_CLIENT_INFO_MAX], number[24];

    *ret = (zk_client_info){.lease_ms = -1, .want = 1};
    if (!zk_bytes_begin(data, "pawl ") || data.length >= sizeof text ||
        memchr(data.data, 0, data.length))
        return;
    memcpy(text, data.data, data.length);
    text[data.length] = 0;
    ret->pawl = true;
    value_of(ret->host, sizeof ret->host, text, " host=");
    value_of(ret->program, sizeof ret->program, text, " program=");
    value_of(ret->label, sizeof ret->label, text, " label=");
    value_of(number, sizeof number, text, " pid=");
    ret->pid = bounded(number, INT32_MAX);
    value_of(number, sizeof number, text, " lease=");
    ret->lease_ms = bounded(number, INT64_C(1) << 53);
    value_of(number, sizeof number, text, " want=");
    ret->want = bounded(number, UINT32_MAX);
}
