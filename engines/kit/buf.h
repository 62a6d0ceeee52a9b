/* SPDX-License-Identifier: Apache-2.0
 *
 * buf.h - a buffer of bytes that arrive or leave: appended at the end, taken from the beginning.
 */
#ifndef PAWL_KIT_BUF_H
#define PAWL_KIT_BUF_H

#include <stddef.h>

/* data[begin..end) is in use. Zeroes are an empty buffer. Bytes may be secret (a password), so
 * memory that a buffer gives back has been wiped. */
typedef struct kit_buf {
    char *data;
    size_t begin, end, room;
} kit_buf;

static inline size_t kit_buf_length(const kit_buf *buf)
{
    return buf->end - buf->begin;
}

/* Make room for n more bytes after `end`: 0, or PAWL_ENOMEM and nothing has changed. The bytes
 * may move. */
int kit_buf_grow(kit_buf *buf, size_t n); /* for kit_buf_reserve */
static inline int kit_buf_reserve(kit_buf *buf, size_t n)
{
    return n <= buf->room - buf->end ? 0 : kit_buf_grow(buf, n);
}

/* Drop the first n bytes. */
static inline void kit_buf_take(kit_buf *buf, size_t n)
{
    buf->begin += n;
    if (buf->begin == buf->end)
        buf->begin = buf->end = 0;
}

/* Wipe the bytes that are not in use. */
void kit_buf_wipe(kit_buf *buf);
void kit_buf_free(kit_buf *buf);

#endif
