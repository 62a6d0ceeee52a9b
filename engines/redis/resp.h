/* SPDX-License-Identifier: Apache-2.0
 *
 * resp.h - the wire format of Redis: RESP3, and the answers of RESP2.
 *
 * READING. The caller owns the bytes: a buffer that grows at its end as bytes arrive. resp_next
 * reads on from the end of the previous reply and tells whether the next reply is complete:
 *
 *     reader   keeps its position, so no byte is read twice, even if bytes arrive one at a time
 *     reply    a flat array of nodes, the root first, each node followed by its descendants; the
 *              reader owns and reuses the array: no allocation once the array has grown
 *     texts    point into the caller's buffer; texts are not copied and not ended by a NUL
 *
 *     [1, [2, 3], 4]  ->  ARRAY count 3 span 6 | 1 | ARRAY count 2 span 3 | 2 | 3 | 4
 *
 * The server is not trusted. Memory grows with the bytes that have arrived, never with announced
 * lengths; depth, elements and bytes of a reply have limits; there is no recursion. Numbers must be
 * written exactly as Redis writes them (no '+', no "-0", no leading zeros). Anything else is
 * RESP_MALFORMED with an error text and the position, for good: a stream that was once out of step
 * must not be used again. The same bytes give the same result, in however many pieces they arrive.
 *
 * WRITING. A command is an array of length-prefixed arguments at the end of a resp_buf: binary-safe
 * and never an inline command. A command is written completely or not at all.
 *
 * Neither half uses sockets, time or threads.
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
    RESP_VERBATIM = '=', /* text without "txt:", which is at text - 4 */
    RESP_MAP = '%',      /* key, value, key, value ...: count is twice the number of pairs */
    RESP_SET = '~',
    RESP_PUSH = '>' /* only as the root; the first element is always a text: the kind of push */
};

typedef struct resp_node {
    union {
        const char *text; /* texts and numbers: as they were written */
        size_t at;        /* for the reader, until the reply is complete: the offset of the text */
    };
    int64_t integer; /* INTEGER; BOOLEAN: 0 or 1 */
    uint32_t length; /* of text */
    uint32_t count;  /* ARRAY, SET, PUSH, MAP: number of child elements, which follow */
    uint32_t span;   /* this node and all its descendants: node + span is the next sibling */
    uint8_t type;    /* enum resp_type */
} resp_node;

#define RESP_DEPTH 16

/* 0: the default. */
typedef struct resp_limits {
    uint32_t depth;    /* non-empty aggregates inside each other; at most (and by default) 16 */
    uint32_t elements; /* in one reply, including elements of attributes; default 1 Mi */
    uint32_t bytes;    /* of one reply; default 64 Mi */
} resp_limits;

typedef struct resp_reader {
    resp_limits limits;
    resp_node *nodes; /* the reader's array */
    size_t room;
    uint32_t count;     /* nodes so far */
    uint32_t announced; /* elements that the aggregates so far have announced */
    size_t at;          /* all bytes before this offset are in nodes */
    size_t scan;        /* an incomplete line has no end before this offset */
    uint32_t depth;
    struct {
        uint32_t node; /* index of the aggregate; of an attribute: of its first node */
        uint32_t left; /* elements still to come */
        bool attribute;
    } open[RESP_DEPTH];
    uint64_t replies; /* number of replies read, including pushes */
    bool malformed;
    char error[120]; /* after RESP_MALFORMED: the error, with number of the reply and offset */
} resp_reader;

typedef struct resp_reply {
    const resp_node *nodes; /* nodes[0] is the root */
    size_t count;           /* of nodes */
    size_t size;            /* in bytes: the offset of the next reply */
} resp_reply;

enum resp_result {
    RESP_MORE,      /* no reply is complete: call again with more bytes after the same bytes */
    RESP_GOT_REPLY, /* ret is an answer */
    RESP_GOT_PUSH,  /* ret is a push */
    RESP_MALFORMED, /* reader->error has the error; every further call returns the same */
    RESP_NO_MEMORY  /* no memory for nodes; nothing is lost, the next call continues */
};

/* limits NULL: the defaults. */
void resp_reader_init(resp_reader *r, const resp_limits *limits);
/* For a new connection: same as init, but keeps the array. */
void resp_reader_reset(resp_reader *r);
/* Accepts zeroes. */
void resp_reader_free(resp_reader *r);

/* data[0..length) are all bytes after the last reply: the bytes of the previous call, and perhaps
 * more. The bytes may have moved since. `ret` is set if a reply is complete, and is valid until the
 * next call or until the bytes are changed or moved. */
enum resp_result resp_next(resp_reader *r, const char *data, size_t length, resp_reply *ret);

/* The i-th element of an aggregate; NULL if there is none, or the node is no aggregate. */
const resp_node *resp_child(const resp_node *node, uint32_t i);
/* INTEGER, or a text that is a whole number in Redis's form. False: neither; ret is untouched. */
bool resp_integer(const resp_node *node, int64_t *ret);
/* The value of a DOUBLE, in any locale. */
double resp_double(const resp_node *node);
/* Is the text written as Redis writes whole numbers of any size, or numbers in general? */
bool resp_is_whole(const char *text, size_t length);
bool resp_is_decimal(const char *text, size_t length);
/* Is the node an error with this first word ("NOSCRIPT")? */
bool resp_error_is(const resp_node *node, const char *word);

static inline bool resp_is_error(const resp_node *node)
{
    return node->type == RESP_ERROR || node->type == RESP_BLOB_ERROR;
}

static inline bool resp_is_text(const resp_node *node)
{
    return node->type == RESP_BULK || node->type == RESP_SIMPLE || node->type == RESP_VERBATIM;
}

/* Is the node a text with exactly these bytes? */
static inline bool resp_equal(const resp_node *node, const void *bytes, size_t length)
{
    return resp_is_text(node) && node->length == length && !memcmp(node->text, bytes, length);
}

/* ---- Writing --------------------------------------------------------------------------------- */

typedef kit_buf resp_buf;

/* A command that is being written to a buffer. Don't send from the buffer, and don't write to the
 * buffer otherwise, until resp_end. The adds fail silently; resp_end returns the code.
 *
 *     resp_command c = resp_begin(out, 3);
 *     resp_add_text(&c, "PEXPIRE");
 *     resp_add(&c, key, key_length);
 *     resp_add_int(&c, lease_ms);
 *     code = resp_end(&c);
 */
typedef struct resp_command {
    resp_buf *out;
    size_t before; /* the length of the buffer before the command */
    size_t left;   /* arguments still to come */
    int code;
} resp_command;

/* argc: the number of arguments, including the command's name. */
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
 * announced): the buffer is as before. */
int resp_end(resp_command *c);

#endif
