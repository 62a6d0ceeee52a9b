/* SPDX-License-Identifier: Apache-2.0
 *
 * buf.c - a buffer of bytes that arrive or leave.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kit/buf.h"
#include "pawl.h"

static void move_to(kit_buf *buf, char *data, size_t room)
{
    size_t length = kit_buf_length(buf);

    if (length)
        memcpy(data, buf->data + buf->begin, length);
    kit_buf_free(buf);
    *buf = (kit_buf){.data = data, .end = length, .room = room};
}

int kit_buf_grow(kit_buf *buf, size_t n)
{
    size_t length = kit_buf_length(buf), room = buf->room ? buf->room * 2 : 512;
    char *data;

    if (n > SIZE_MAX / 4 || length > SIZE_MAX / 4)
        return PAWL_ENOMEM;
    /* A quarter of the buffer was taken since the last move: moving is cheap per byte. */
    if (n <= buf->room - length && buf->begin >= buf->room / 4) {
        memmove(buf->data, buf->data + buf->begin, length);
        buf->begin = 0;
        buf->end = length;
        return 0;
    }
    while (room < length + n)
        room *= 2;
    data = malloc(room); /* not realloc, which would leave an unwiped copy behind */
    if (!data)
        return PAWL_ENOMEM;
    move_to(buf, data, room);
    return 0;
}

void kit_buf_wipe(kit_buf *buf)
{
    if (!buf->data)
        return;
    explicit_bzero(buf->data, buf->begin);
    explicit_bzero(buf->data + buf->end, buf->room - buf->end);
}

void kit_buf_free(kit_buf *buf)
{
    if (buf->data)
        explicit_bzero(buf->data, buf->room);
    free(buf->data);
    *buf = (kit_buf){0};
}

