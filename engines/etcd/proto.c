/* SPDX-License-Identifier: Apache-2.0
 *
 * proto.c - the codec of proto.h.
 *
 * A message inside a message has its length in front. The writer reserves one byte for the length,
 * and moves the few longer messages when they are complete.
 */
#include "proto.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing --------------------------------------------------------------------------------- */

/* Requests and answers may contain a password or a token. */
static void wipe(uint8_t *data, size_t length)
{
    if (data)
        explicit_bzero(data, length);
    free(data);
}

/* Return a larger block with the same contents, and wipe the old one. */
static uint8_t *enlarge(uint8_t *data, size_t length, size_t room)
{
    uint8_t *grown = malloc(room);

    if (!grown)
        return NULL;
    if (length)
        memcpy(grown, data, length);
    wipe(data, length);
    return grown;
}

void etcd_pb_free(pb_buf *b)
{
    wipe(b->data, b->room);
    *b = (pb_buf){0};
}

static bool reserve(pb_buf *b, size_t more)
{
    size_t room = b->room ? b->room : 256;
    uint8_t *grown;

    if (b->failed)
        return false;
    if (b->room - b->length >= more)
        return true;
    while (room - b->length < more)
        room *= 2;
    grown = enlarge(b->data, b->length, room);
    if (!grown) {
        b->failed = true;
        return false;
    }
    b->data = grown;
    b->room = room;
    return true;
}

void etcd_pb_raw(pb_buf *b, const void *data, size_t length)
{
    if (!length || !reserve(b, length))
        return;
    memcpy(b->data + b->length, data, length);
    b->length += length;
}

static size_t varint(uint8_t out[10], uint64_t value)
{
    size_t n = 0;

    while (value >= 0x80) {
        out[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[n++] = (uint8_t)value;
    return n;
}

static void add_varint(pb_buf *b, uint64_t value)
{
    uint8_t bytes[10];

    etcd_pb_raw(b, bytes, varint(bytes, value));
}

void etcd_pb_number(pb_buf *b, uint32_t field, uint64_t value)
{
    add_varint(b, (uint64_t)field << 3 | PB_NUMBER);
    add_varint(b, value);
}

void etcd_pb_uint(pb_buf *b, uint32_t field, uint64_t value)
{
    if (value)
        etcd_pb_number(b, field, value);
}

void etcd_pb_bytes(pb_buf *b, uint32_t field, const void *data, size_t length)
{
    add_varint(b, (uint64_t)field << 3 | PB_BYTES);
    add_varint(b, length);
    etcd_pb_raw(b, data, length);
}

size_t etcd_pb_begin(pb_buf *b, uint32_t field)
{
    add_varint(b, (uint64_t)field << 3 | PB_BYTES);
    add_varint(b, 0);
    return b->length;
}

void etcd_pb_end(pb_buf *b, size_t mark)
{
    size_t length = b->length - mark, more;
    uint8_t bytes[10];

    if (b->failed)
        return;
    more = varint(bytes, length) - 1;
    if (more) {
        if (!reserve(b, more))
            return;
        memmove(b->data + mark + more, b->data + mark, length);
        b->length += more;
    }
    memcpy(b->data + mark - 1, bytes, more + 1);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool take_varint(pb_span *rest, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < 10 && i < rest->length; i++) {
        uint8_t byte = rest->data[i];

        if (i == 9 && byte > 1)
            return false; /* more than 64 bits */
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *ret = value;
            rest->data += i + 1;
            rest->length -= i + 1;
            return true;
        }
    }
    return false;
}

static bool take(pb_span *rest, uint64_t length, pb_span *ret)
{
    if (length > rest->length)
        return false;
    *ret = (pb_span){rest->data, (size_t)length};
    rest->data += length;
    rest->length -= (size_t)length;
    return true;
}

int etcd_pb_next(pb_span *rest, pb_field *field)
{
    uint64_t key, length;

    while (rest->length) {
        if (!take_varint(rest, &key) || key >> 3 == 0 || key >> 3 > 0x1fffffff)
            return -1;
        field->number = (uint32_t)(key >> 3);
        field->type = key & 7;
        switch (field->type) {
        case PB_NUMBER:
            return take_varint(rest, &field->value) ? 1 : -1;
        case PB_BYTES:
            return take_varint(rest, &length) && take(rest, length, &field->bytes) ? 1 : -1;
        case 1: /* none of our fields has a fixed size */
            if (!take(rest, 8, &field->bytes))
                return -1;
            break;
        case 5:
            if (!take(rest, 4, &field->bytes))
                return -1;
            break;
        default:
            return -1;
        }
    }
    return 0;
}

/* ---- gRPC frames ----------------------------------------------------------------------------- */

void etcd_grpc_free(grpc_reader *r)
{
    wipe(r->data, r->room);
    *r = (grpc_reader){0};
}

static enum grpc_result take_prefix(grpc_reader *r, pb_span *rest)
{
    while (r->have < GRPC_PREFIX && rest->length) {
        r->prefix[r->have++] = *rest->data++;
        rest->length--;
    }
    if (r->have < GRPC_PREFIX)
        return GRPC_MORE;
    if (r->prefix[0] != 0)
        return GRPC_MALFORMED; /* compressed: we never offered compression */
    r->size = (size_t)r->prefix[1] << 24 | (size_t)r->prefix[2] << 16 |
              (size_t)r->prefix[3] << 8 | r->prefix[4];
    return r->size > GRPC_MESSAGE_MAX ? GRPC_TOO_LARGE : GRPC_GOT;
}

/* Grow with the bytes that have arrived, not with the size in a prefix. */
static bool grow(grpc_reader *r, size_t need)
{
    size_t room = r->room ? r->room : 1024;
    uint8_t *grown;

    if (need <= r->room)
        return true;
    while (room < need)
        room *= 2;
    grown = enlarge(r->data, r->room, room);
    if (!grown)
        return false;
    r->data = grown;
    r->room = room;
    return true;
}

enum grpc_result etcd_grpc_next(grpc_reader *r, pb_span *rest, pb_span *message)
{
    size_t filled, n;

    if (r->have < GRPC_PREFIX) {
        enum grpc_result result = take_prefix(r, rest);

        if (result != GRPC_GOT)
            return result;
    }
    filled = r->have - GRPC_PREFIX;
    n = r->size - filled < rest->length ? r->size - filled : rest->length;
    if (!grow(r, filled + n))
        return GRPC_NO_MEMORY;
    if (n)
        memcpy(r->data + filled, rest->data, n);
    rest->data += n;
    rest->length -= n;
    r->have += n;
    if (filled + n < r->size)
        return GRPC_MORE;
    *message = (pb_span){r->data, r->size};
    r->have = 0;
    return GRPC_GOT;
}

void etcd_grpc_seal(pb_buf *b, size_t at)
{
    size_t length = b->length - at - GRPC_PREFIX;

    if (b->failed)
        return;
    b->data[at] = 0;
    for (int i = 0; i < 4; i++)
        b->data[at + 1 + (size_t)i] = (uint8_t)(length >> (24 - 8 * i));
}
