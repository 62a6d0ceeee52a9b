/* SPDX-License-Identifier: Apache-2.0
 *
 * jute.h - ZooKeeper's wire format: big-endian numbers, bytes with their length in front, vectors
 * with their count, records without a frame of their own; a message is a length (4 bytes) and as
 * many bytes.
 *
 * Reading never leaves the message. A value that does not fit makes the reader `bad`, and all later
 * reads return 0 or empty; so callers read a message to its end and check `bad` once.
 */
#ifndef PAWL_ZK_JUTE_H
#define PAWL_ZK_JUTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kit/buf.h"

#define JUTE_FRAME_MAX (16 << 20) /* the longest message that is accepted */

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct jute_writer {
    kit_buf *buf;
    size_t start; /* offset of this message from the buffer's begin */
    bool failed;
} jute_writer;

jute_writer jute_begin(kit_buf *buf);
void jute_put_int(jute_writer *w, int32_t value);
void jute_put_long(jute_writer *w, int64_t value);
void jute_put_bool(jute_writer *w, bool value);
void jute_put_bytes(jute_writer *w, const void *data, size_t length);
void jute_put_text(jute_writer *w, const char *text);
/* Complete the message. False: out of memory, nothing was written. */
bool jute_end(jute_writer *w);

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct jute_reader {
    const unsigned char *at, *end;
    bool bad;
} jute_reader;

typedef struct jute_bytes {
    const char *data; /* not terminated */
    size_t length;
} jute_bytes;

typedef struct zk_stat {
    int64_t czxid, ctime, ephemeral_owner;
    int32_t version, cversion;
} zk_stat;

enum jute_frame { JUTE_FRAME, JUTE_MORE, JUTE_MALFORMED };

/* Find the first message of data[0..length): *ret reads the message, which ends *size bytes from
 * `data`. */
enum jute_frame jute_frame(const char *data, size_t length, jute_reader *ret, size_t *size);
int32_t jute_int(jute_reader *r);
int64_t jute_long(jute_reader *r);
bool jute_bool(jute_reader *r);
jute_bytes jute_get_bytes(jute_reader *r);
/* The number of elements that follow, each at least `least` bytes long. */
size_t jute_count(jute_reader *r, size_t least);
zk_stat jute_stat(jute_reader *r);
/* Read the answer to a multi: returns the type of the next part (the part's answer follows), or 0
 * at the end. *error becomes the first failure. */
int jute_multi(jute_reader *r, int *error);

static inline bool jute_at_end(const jute_reader *r)
{
    return !r->bad && r->at == r->end;
}

#endif
