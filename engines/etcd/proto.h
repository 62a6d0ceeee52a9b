/* SPDX-License-Identifier: Apache-2.0
 *
 * proto.h - the parts of protobuf that etcd's messages need, and gRPC's frames.
 *
 * Writers append to a growing buffer; when memory runs out, the buffer reports the failure once, at
 * the end. Readers work in place: nothing is copied or allocated, every returned pointer is inside
 * the given bytes, and malformed input is reported before any of the input is used.
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
    bool failed; /* out of memory: the contents are incomplete */
} pb_buf;

void etcd_pb_free(pb_buf *b);
/* Append raw bytes. */
void etcd_pb_raw(pb_buf *b, const void *data, size_t length);
/* Append a number; etcd_pb_uint omits 0, as protobuf does, etcd_pb_number never does. */
void etcd_pb_uint(pb_buf *b, uint32_t field, uint64_t value);
void etcd_pb_number(pb_buf *b, uint32_t field, uint64_t value);
/* Append a field of bytes, also if it is empty. */
void etcd_pb_bytes(pb_buf *b, uint32_t field, const void *data, size_t length);
/* A message inside the message: everything added between begin and end belongs to the inner
 * message. */
size_t etcd_pb_begin(pb_buf *b, uint32_t field);
void etcd_pb_end(pb_buf *b, size_t mark);

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct pb_span {
    const uint8_t *data;
    size_t length;
} pb_span;

typedef struct pb_field {
    uint32_t number;
    uint8_t type;   /* wire type: PB_NUMBER or PB_BYTES; fixed sizes are skipped */
    uint64_t value; /* PB_NUMBER */
    pb_span bytes;  /* PB_BYTES */
} pb_field;

enum pb_type { PB_NUMBER = 0, PB_BYTES = 2 };

/* Take the next field off `rest`. 1: got a field; 0: end of the message; -1: malformed. */
int etcd_pb_next(pb_span *rest, pb_field *field);

/* ---- gRPC frames ----------------------------------------------------------------------------- */

#define GRPC_PREFIX 5
#define GRPC_MESSAGE_MAX (8u << 20)

enum grpc_result { GRPC_MORE, GRPC_GOT, GRPC_MALFORMED, GRPC_TOO_LARGE, GRPC_NO_MEMORY };

/* Assembles the messages of one stream from pieces. */
typedef struct grpc_reader {
    uint8_t prefix[GRPC_PREFIX];
    size_t have; /* bytes of the current message, including the prefix */
    size_t size; /* of the message, when the prefix is known */
    uint8_t *data;
    size_t room;
} grpc_reader;

/* Take bytes off `rest`. GRPC_GOT: `message` is complete, and valid until the next call. */
enum grpc_result etcd_grpc_next(grpc_reader *r, pb_span *rest, pb_span *message);
void etcd_grpc_free(grpc_reader *r);
/* Fill in the prefix that was left free at `at`, for the message behind the prefix. */
void etcd_grpc_seal(pb_buf *b, size_t at);

#endif
