/* SPDX-License-Identifier: Apache-2.0
 *
 * proto.h - protobuf, as much of it as etcd's messages need, and gRPC's frames.
 *
 * Writing goes into a growing buffer; when memory runs out the buffer says so once, at the end.
 * Reading happens in place: nothing is copied or allocated, every pointer that comes back is inside
 * the bytes that were given, and anything malformed is said before any of it is used.
 */
#ifndef PAWL_ETCD_PROTO_H
#define PAWL_ETCD_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct pb_buf {
    uint8_t *data;
    size_t length, room;
    bool failed; /* out of memory: what is in it is not whole */
} pb_buf;

void etcd_pb_free(pb_buf *b);
/* Add bytes as they are. */
void etcd_pb_raw(pb_buf *b, const void *data, size_t length);
/* A number; etcd_pb_uint leaves 0 out, as protobuf does, etcd_pb_number never. */
void etcd_pb_uint(pb_buf *b, uint32_t field, uint64_t value);
void etcd_pb_number(pb_buf *b, uint32_t field, uint64_t value);
/* Bytes, also empty ones. */
void etcd_pb_bytes(pb_buf *b, uint32_t field, const void *data, size_t length);
/* A message inside the message: what is added between the two belongs to it. */
size_t etcd_pb_begin(pb_buf *b, uint32_t field);
void etcd_pb_end(pb_buf *b, size_t mark);

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct pb_span {
    const uint8_t *data;
    size_t length;
} pb_span;

typedef struct pb_field {
    uint32_t number;
    uint8_t type;   /* of the wire: PB_NUMBER or PB_BYTES; fixed sizes are skipped */
    uint64_t value; /* PB_NUMBER */
    pb_span bytes;  /* PB_BYTES */
} pb_field;

enum pb_type { PB_NUMBER = 0, PB_BYTES = 2 };

/* Take the next field off `rest`. 1: there is one; 0: that was all; -1: malformed. */
int etcd_pb_next(pb_span *rest, pb_field *field);

/* ---- gRPC frames ----------------------------------------------------------------------------- */

#define GRPC_PREFIX 5
#define GRPC_MESSAGE_MAX (8u << 20)

enum grpc_result { GRPC_MORE, GRPC_GOT, GRPC_MALFORMED, GRPC_TOO_LARGE, GRPC_NO_MEMORY };

/* The messages of one stream, out of the pieces in which they arrive. */
typedef struct grpc_reader {
    uint8_t prefix[GRPC_PREFIX];
    size_t have; /* bytes of the present message, with its prefix */
    size_t size; /* of the message, once the prefix is there */
    uint8_t *data;
    size_t room;
} grpc_reader;

/* Take bytes off `rest`. GRPC_GOT: `message` is whole, and good until the next call. */
enum grpc_result etcd_grpc_next(grpc_reader *r, pb_span *rest, pb_span *message);
void etcd_grpc_free(grpc_reader *r);
/* Fill in the prefix that was left free at `at`: the message is what follows. */
void etcd_grpc_seal(pb_buf *b, size_t at);

#endif
