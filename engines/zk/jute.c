/* SPDX-License-Identifier: Apache-2.0
 *
 * jute.c - ZooKeeper's wire format.
 */
#include <stdlib.h>
#include <string.h>

#include "jute.h"

/* ---- writing --------------------------------------------------------------------------------- */

jute_writer jute_begin(kit_buf *buf)
{
    jute_writer w = {.buf = buf, .start = kit_buf_length(buf)};

    jute_put_int(&w, 0); /* the length, filled in by jute_end */
    return w;
}

static char *put(jute_writer *w, size_t n)
{
    if (w->failed || kit_buf_reserve(w->buf, n)) {
        w->failed = true;
        return NULL;
    }
    w->buf->end += n;
    return w->buf->data + w->buf->end - n;
}

static void write_int(char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(value >> (24 - 8 * i));
}

void jute_put_int(jute_writer *w, int32_t value)
{
    char *to = put(w, 4);

    if (to)
        write_int(to, (uint32_t)value);
}

void jute_put_long(jute_writer *w, int64_t value)
{
    jute_put_int(w, (int32_t)((uint64_t)value >> 32));
    jute_put_int(w, (int32_t)((uint64_t)value & UINT32_MAX));
}

void jute_put_bool(jute_writer *w, bool value)
{
    char *to = put(w, 1);

    if (to)
        *to = value;
}

void jute_put_bytes(jute_writer *w, const void *data, size_t length)
{
    char *to;

    if (length > INT32_MAX) {
        w->failed = true;
        return;
    }
    jute_put_int(w, (int32_t)length);
    to = put(w, length);
    if (to && length)
        memcpy(to, data, length);
}

void jute_put_text(jute_writer *w, const char *text)
{
    jute_put_bytes(w, text, strlen(text));
}

bool jute_end(jute_writer *w)
{
    size_t length = kit_buf_length(w->buf) - w->start;

    if (w->failed || length - 4 > INT32_MAX) {
        if (length)
            w->buf->end = w->buf->begin + w->start;
        return false;
    }
    write_int(w->buf->data + w->buf->begin + w->start, (uint32_t)(length - 4));
    return true;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const unsigned char *get(jute_reader *r, size_t n)
{
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        return NULL;
    }
    r->at += n;
    return r->at - n;
}

int32_t jute_int(jute_reader *r)
{
    const unsigned char *p = get(r, 4);

    return p ? (int32_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3])
             : 0;
}

int64_t jute_long(jute_reader *r)
{
    uint64_t high = (uint32_t)jute_int(r), low = (uint32_t)jute_int(r);

    return r->bad ? 0 : (int64_t)(high << 32 | low);
}

bool jute_bool(jute_reader *r)
{
    const unsigned char *p = get(r, 1);

    return p && *p;
}

/* A length of -1 is a null, which is read as empty. */
jute_bytes jute_get_bytes(jute_reader *r)
{
    int32_t length = jute_int(r);
    const unsigned char *p = NULL;

    if (length < -1)
        r->bad = true;
    if (length > 0)
        p = get(r, (size_t)length);
    return (jute_bytes){(const char *)p, p ? (size_t)length : 0};
}

size_t jute_count(jute_reader *r, size_t least)
{
    int32_t n = jute_int(r);

    if (n < -1 || (n > 0 && (size_t)n > (size_t)(r->end - r->at) / least))
        r->bad = true;
    return r->bad || n < 0 ? 0 : (size_t)n;
}

zk_stat jute_stat(jute_reader *r)
{
    zk_stat s = {0};

    s.czxid = jute_long(r);
    jute_long(r); /* mzxid */
    s.ctime = jute_long(r);
    jute_long(r); /* mtime */
    s.version = jute_int(r);
    s.cversion = jute_int(r);
    jute_int(r); /* aversion */
    s.ephemeral_owner = jute_long(r);
    jute_int(r); /* length of the data */
    jute_int(r); /* number of children */
    jute_long(r); /* pzxid */
    return s;
}

int jute_multi(jute_reader *r, int *error)
{
    for (;;) {
        int32_t type = jute_int(r), failed;
        bool end = jute_bool(r);

        jute_int(r);
        if (r->bad || end)
            return 0;
        if (type != -1)
            return type;
        failed = jute_int(r); /* -2: not tried, because another part failed */
        r->bad |= failed > 0;
        if (failed < 0 && failed != -2 && !*error)
            *error = failed;
    }
}

enum jute_frame jute_frame(const char *data, size_t length, jute_reader *ret, size_t *size)
{
    jute_reader head = {(const unsigned char *)data, (const unsigned char *)data + length, false};
    int32_t n;

    if (length < 4)
        return JUTE_MORE;
    n = jute_int(&head);
    if (n < 0 || n > JUTE_FRAME_MAX)
        return JUTE_MALFORMED;
    if (length - 4 < (size_t)n)
        return JUTE_MORE;
    *ret = (jute_reader){head.at, head.at + n, false};
    *size = 4 + (size_t)n;
    return JUTE_FRAME;
}
