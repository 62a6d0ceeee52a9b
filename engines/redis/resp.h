/* SPDX-License-Identifier: Apache-2.0
 *
 * resp.h - the wire format of Redis: RESP3, and the answers of RESP2.
 *
 * READING. The caller owns the bytes: a buffer that grows at its end as they arrive. resp_next
 * looks at them from where the previous reply ended and says whether a whole one is there:
 *
 *     reader   keeps how far it came, so nothing is read twice however the bytes trickle in
 *     reply    a flat array of nodes, the root first, each followed by what is below it; it lies in
 *              the reader and is reused, so a reply costs no allocation once the array has grown
 *     texts    point into the caller's buffer; they are not copied and not ended by a NUL
 *
 *     [1, [2, 3], 4]  ->  ARRAY count 3 span 6 | 1 | ARRAY count 2 span 3 | 2 | 3 | 4
 *
 * Nothing the server sends is trusted. Memory grows with what has arrived, never with what was
 * announced; depth, elements and bytes of a reply have limits; there is no recursion. Numbers must
 * be written in the one way Redis writes them (no '+', no "-0", no leading zeros). Whatever is not
 * a reply is RESP_MALFORMED with words and the place, and stays so: a stream that was once out of
 * step must not be used again. The same bytes give the same result, wherever they were cut.
 *
 * WRITING. A command is an array of length-prefixed arguments at the end of a resp_buf: binary-safe
 * and never an inline command. Either all of it is there or nothing.
 *
 * Neither half knows sockets, time or threads.
 */
#ifndef PAWL_RESP_H
#define PAWL_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kit/buf.h"
#include "pawl.h"

/* ---- Reading --------------------------------------------------------------------------------- */

/* The types of nodes, by their byte on the wire. Attributes are checked and left out; streamed
 * types are refused. The nulls of RESP2 ("$-1", "*-1") are RESP_NULL, too. */
enum resp_type {
    RESP_SIMPLE = '+',
    RESP_ERROR = '-',
    RESP_INTEGER = ':',
    RESP_BULK = '$',
    RESP_ARRAY = '*',
    RESP_NULL = '_',
    RESP_BOOLEAN = '#',
    RESP_DOUBLE = ',',
    RESP_BIG_NUMBER = '(',
    RESP_BLOB_ERROR = '!',
    RESP_VERBATIM = '=', /* text without "txt:"; that stands at text - 4 */
    RESP_MAP = '%',      /* key, value, key, value ...: count is twice the number of pairs */
    RESP_SET = '~',
    RESP_PUSH = '>' /* only as the root; its first element is always a text: what kind it is */
};

typedef struct resp_node {
    union {
        const char *text; /* texts and numbers: as they were written */
        size_t at;        /* the reader's, until the reply is whole: where that begins */
    };
    int64_t integer; /* INTEGER; BOOLEAN: 0 or 1 */
    uint32_t length; /* of text */
    uint32_t count;  /* ARRAY, SET, PUSH, MAP: elements directly below; they follow */
    uint32_t span;   /* this node and all below it: node + span is the next beside it */
    uint8_t type;    /* enum resp_type */
} resp_node;

#define RESP_DEPTH 16

/* 0: the default. */
typedef struct resp_limits {
    uint32_t depth;    /* non-empty aggregates inside each other; at most (and by default) 16 */
    uint32_t elements; /* in one reply, those of attributes included; default 1 Mi */
    uint32_t bytes;    /* of one reply; default 64 Mi */
} resp_limits;

typedef struct resp_reader {
    resp_limits limits;
    resp_node *nodes; /* the reader's array */
    size_t room;
    uint32_t count;     /* nodes so far */
    uint32_t announced; /* elements that the aggregates so far said they have */
    size_t at;          /* everything before is in nodes */
    size_t scan;        /* a line that is not complete has no end before this */
    uint32_t depth;
    struct {
        uint32_t node; /* index of the aggregate; of an attribute: where its nodes begin */
        uint32_t left; /* elements still to come */
        bool attribute;
    } open[RESP_DEPTH];
    uint64_t replies; /* so many have been read, pushes included */
    bool malformed;
    char error[120]; /* after RESP_MALFORMED: what is wrong, and at which byte of which reply */
} resp_reader;

typedef struct resp_reply {
    const resp_node *nodes; /* nodes[0] is the root */
    size_t count;           /* of nodes */
    size_t size;            /* in bytes: the next reply begins so far behind this one */
} resp_reply;

enum resp_result {
    RESP_MORE,      /* no reply is complete: call again with more bytes behind the same ones */
    RESP_GOT_REPLY, /* ret is an answer */
    RESP_GOT_PUSH,  /* ret came unasked */
    RESP_MALFORMED, /* reader->error says what is wrong; every further call says the same */
    RESP_NO_MEMORY  /* for nodes; nothing is lost, calling again goes on from there */
};

/* limits NULL: the defaults. */
void resp_reader_init(resp_reader *r, const resp_limits *limits);
/* For a new connection: as after init; the array is kept. */
void resp_reader_reset(resp_reader *r);
/* Accepts zeroes. */
void resp_reader_free(resp_reader *r);

/* data[0..length) are all bytes behind the last reply: those shown before, and perhaps more. They
 * may lie elsewhere than last time. `ret` is set if there is a reply, and good until the next call
 * or until the bytes are changed or moved. */
enum resp_result resp_next(resp_reader *r, const char *data, size_t length, resp_reply *ret);

/* The i-th element of an aggregate; NULL if it has none (or is none). */
const resp_node *resp_child(const resp_node *node, uint32_t i);
/* INTEGER, or a text that is a whole number written as Redis would. False: none; ret untouched. */
bool resp_integer(const resp_node *node, int64_t *ret);
/* The value of a DOUBLE, whatever the locale. */
double resp_double(const resp_node *node);
/* Is the text written as Redis writes whole numbers of any size, or numbers in general? */
bool resp_is_whole(const char *text, size_t length);
bool resp_is_decimal(const char *text, size_t length);
/* Is it an error whose first word is this ("NOSCRIPT")? */
bool resp_error_is(const resp_node *node, const char *word);

static inline bool resp_is_error(const resp_node *node)
{
    return node->type == RESP_ERROR || node->type == RESP_BLOB_ERROR;
}

static inline bool resp_is_text(const resp_node *node)
{
    return node->type == RESP_BULK || node->type == RESP_SIMPLE || node->type == RESP_VERBATIM;
}

/* Is it a text with exactly these bytes? */
static inline bool resp_equal(const resp_node *node, const void *bytes, size_t length)
{
    return resp_is_text(node) && node->length == length && !memcmp(node->text, bytes, length);
}

/* ---- Writing --------------------------------------------------------------------------------- */

typedef kit_buf resp_buf;

/* A command on its way into a buffer, which must not be sent from or written to otherwise until
 * resp_end. The adds fail silently; resp_end tells.
 *
 *     resp_command c = resp_begin(out, 3);
 *     resp_add_text(&c, "PEXPIRE");
 *     resp_add(&c, key, key_length);
 *     resp_add_int(&c, lease_ms);
 *     code = resp_end(&c);
 */
typedef struct resp_command {
    resp_buf *out;
    size_t before; /* the length of what was in the buffer */
    size_t left;   /* arguments still to come */
    int code;
} resp_command;

/* argc: the arguments, with the command's name. */
resp_command resp_begin(resp_buf *out, size_t argc);
/* EVALSHA sha nkeys, or EVAL script nkeys; nkeys + nargs arguments are still to be added. */
resp_command resp_begin_evalsha(resp_buf *out, const char *sha, size_t nkeys, size_t nargs);
resp_command resp_begin_eval(resp_buf *out, const char *script, size_t length, size_t nkeys,
                             size_t nargs);
void resp_add(resp_command *c, const void *bytes, size_t length);
void resp_add_text(resp_command *c, const char *text);
void resp_add_int(resp_command *c, int64_t value);
void resp_add_uint(resp_command *c, uint64_t value);
/* 0: the whole command is in the buffer. PAWL_ENOMEM, or PAWL_EINVAL (not as many arguments as
 * announced): nothing of it is. */
int resp_end(resp_command *c);

#endif
