/* SPDX-License-Identifier: Apache-2.0
 *
 * resp.c - reads replies. (resp_node.c has functions for their nodes.)
 *
 * A reply is read item by item: an item is a scalar, or the head of an aggregate (the elements are
 * the next items). An item is only taken (node written, r->at moved) when all of its bytes have
 * arrived. An incomplete item changes nothing but r->scan, and the next call reads the item again
 * from its first byte. Items are short, except for lines, where r->scan remembers the part that is
 * known to have no end, and bulks, which are skipped without reading. So a reply of n bytes costs
 * O(n) in any number of pieces. Every decision depends only on the bytes from the reply's start on,
 * so the result does not depend on the pieces.
 *
 *     r->open[0..depth)   the aggregates around the next item, each with its missing elements
 *
 * A count is checked against the limit of elements when the count is read; a length is checked
 * against the limit of bytes before any of its bytes are awaited. Bytes at or after the limit are
 * never read; an item that needs such a byte is an error.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "resp.h"

enum step { STEP_MORE, STEP_DONE, STEP_BAD, STEP_NO_MEMORY };

/* The bytes that have arrived, and the position. */
struct window {
    const char *data;
    size_t end;
    size_t at;
};

/* ---- Errors ---------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4), cold, noinline))
static enum step bad(resp_reader *r, size_t at, const char *format, ...)
{
    int used = snprintf(r->error, sizeof r->error, "reply %" PRIu64 ", byte %zu: ", r->replies + 1,
                        at);
    va_list args;

    va_start(args, format);
    vsnprintf(r->error + used, sizeof r->error - (size_t)used, format, args);
    va_end(args);
    r->malformed = true;
    return STEP_BAD;
}

__attribute__((cold, noinline))
static enum step bad_byte(resp_reader *r, const struct window *v, size_t at, const char *expected)
{
    unsigned char c = (unsigned char)v->data[at];

    return c > ' ' && c < 127 ? bad(r, at, "expected %s, got '%c'", expected, c)
                              : bad(r, at, "expected %s, got \\x%02x", expected, c);
}

/* ---- Parts of items -------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* CR LF at `at`; v->at moves to the byte after LF. */
static enum step line_end(resp_reader *r, struct window *v, size_t at)
{
    if (at >= v->end)
        return STEP_MORE;
    if (v->data[at] != '\r')
        return bad_byte(r, v, at, "CR");
    if (at + 1 >= v->end)
        return STEP_MORE;
    if (v->data[at + 1] != '\n')
        return bad_byte(r, v, at + 1, "LF");
    v->at = at + 2;
    return STEP_DONE;
}

/* "-"? ("0" | digits without a leading 0), CR LF; not "-0", and within 64 bits. */
static enum step whole_number(resp_reader *r, struct window *v, int64_t *ret)
{
    bool minus = v->at < v->end && v->data[v->at] == '-';
    uint64_t value = 0, most = (uint64_t)INT64_MAX + minus;
    size_t first = v->at + minus, at;

    for (at = first; at < v->end && is_digit(v->data[at]); at++) {
        uint64_t digit = (uint64_t)(v->data[at] - '0');

        if (at > first && value == 0)
            return bad(r, at, "a number with a leading zero");
        if (at - first >= 18 && value > (most - digit) / 10)
            return bad(r, at, "a number beyond 64 bits");
        value = value * 10 + digit;
    }
    if (at >= v->end)
        return STEP_MORE;
    if (at == first)
        return bad_byte(r, v, at, "a digit");
    if (minus && value == 0)
        return bad(r, first, "minus zero");
    *ret = minus ? (int64_t)(0 - value) : (int64_t)value;
    return line_end(r, v, at);
}

/* A length or count. -1 is allowed only for types that RESP2 uses for nulls. */
static enum step size(resp_reader *r, struct window *v, bool nullable, int64_t *ret)
{
    size_t first = v->at;
    enum step step;

    if (first < v->end && v->data[first] == '?')
        return bad(r, first, "streamed replies are not supported");
    step = whole_number(r, v, ret);
    if (step == STEP_DONE && *ret < (nullable ? -1 : 0))
        return bad(r, first, "a negative length");
    return step;
}

/* A text up to CR LF. */
static enum step line(resp_reader *r, struct window *v, resp_node *node)
{
    size_t first = v->at, at = r->scan > first ? r->scan : first;

    while (at < v->end && v->data[at] != '\r' && v->data[at] != '\n')
        at++;
    r->scan = at;
    node->at = first;
    node->length = (uint32_t)(at - first);
    return line_end(r, v, at);
}

/* ---- Scalars --------------------------------------------------------------------------------- */

static enum step integer(resp_reader *r, struct window *v, resp_node *node)
{
    enum step step;

    node->at = v->at;
    step = whole_number(r, v, &node->integer);
    if (step == STEP_DONE)
        node->length = (uint32_t)(v->at - 2 - node->at);
    return step;
}

static enum step boolean(resp_reader *r, struct window *v, resp_node *node)
{
    if (v->at >= v->end)
        return STEP_MORE;
    if (v->data[v->at] != 't' && v->data[v->at] != 'f')
        return bad_byte(r, v, v->at, "'t' or 'f'");
    node->integer = v->data[v->at] == 't';
    node->at = v->at;
    node->length = 1;
    return line_end(r, v, v->at + 1);
}

/* Numbers that are kept as texts. */
static enum step number_line(resp_reader *r, struct window *v, resp_node *node)
{
    bool (*is_number)(const char *, size_t) =
        node->type == RESP_DOUBLE ? resp_is_decimal : resp_is_whole;
    enum step step = line(r, v, node);

    if (step == STEP_DONE && !is_number(v->data + node->at, node->length))
        return bad(r, node->at, "not a number");
    return step;
}

/* Length, CR LF, that number of bytes, CR LF. */
static enum step bulk(resp_reader *r, struct window *v, resp_node *node)
{
    size_t first = v->at;
    int64_t length = 0;
    enum step step = size(r, v, node->type == RESP_BULK, &length);

    if (step != STEP_DONE)
        return step;
    if (length < 0) {
        node->type = RESP_NULL;
        return STEP_DONE;
    }
    if (v->at + 2 > r->limits.bytes || (uint64_t)length > r->limits.bytes - v->at - 2)
        return bad(r, first, "longer than %" PRIu32 " bytes", r->limits.bytes);
    node->at = v->at;
    node->length = (uint32_t)length;
    if (node->type == RESP_VERBATIM) {
        if (length < 4)
            return bad(r, first, "a verbatim text without a format");
        if (v->end - v->at > 3 && v->data[v->at + 3] != ':')
            return bad_byte(r, v, v->at + 3, "':'");
        node->at += 4;
        node->length -= 4;
    }
    return line_end(r, v, v->at + (size_t)length);
}

/* ---- Aggregates ------------------------------------------------------------------------------ */

/* The head of an aggregate; *ret: the number of its elements (of a map: keys and values). */
static enum step head(resp_reader *r, struct window *v, resp_node *node, uint32_t *ret)
{
    size_t first = v->at;
    int64_t count = 0;
    bool pairs = node->type == RESP_MAP || node->type == '|';
    enum step step = size(r, v, node->type == RESP_ARRAY, &count);

    if (step != STEP_DONE)
        return step;
    if (count < 0) {
        node->type = RESP_NULL;
        return STEP_DONE;
    }
    /* count has 63 bits at most: doubling can't overflow. */
    if ((uint64_t)count << pairs > r->limits.elements - r->announced)
        return bad(r, first, "more than %" PRIu32 " elements", r->limits.elements);
    if (count && r->depth == r->limits.depth)
        return bad(r, first, "nested deeper than %" PRIu32, r->limits.depth);
    if (node->type == RESP_PUSH && r->depth)
        return bad(r, first - 1, "a push inside a reply");
    if (node->type == RESP_PUSH && !count)
        return bad(r, first, "a push without its kind");
    *ret = (uint32_t)count << pairs;
    return STEP_DONE;
}

static void open_aggregate(resp_reader *r, uint32_t elements, bool attribute)
{
    r->announced += elements;
    r->open[r->depth].node = attribute ? r->count : r->count - 1;
    r->open[r->depth].left = elements;
    r->open[r->depth].attribute = attribute;
    r->depth++;
}

/* An item is complete: close the aggregates that end with the item. True: the reply is complete. */
static bool close_aggregates(resp_reader *r)
{
    for (; r->depth; r->depth--) {
        uint32_t node = r->open[r->depth - 1].node;

        if (--r->open[r->depth - 1].left)
            return false;
        if (r->open[r->depth - 1].attribute) {
            r->count = node; /* an attribute belongs to the next item, and is no element itself */
            r->depth--;
            return false;
        }
        r->nodes[node].span = r->count - node;
    }
    return true;
}

/* ---- Items ----------------------------------------------------------------------------------- */

static enum step content(resp_reader *r, struct window *v, resp_node *node, uint32_t *elements)
{
    switch (node->type) {
    case RESP_SIMPLE:
    case RESP_ERROR:
        return line(r, v, node);
    case RESP_INTEGER:
        return integer(r, v, node);
    case RESP_BULK:
    case RESP_BLOB_ERROR:
    case RESP_VERBATIM:
        return bulk(r, v, node);
    case RESP_ARRAY:
    case RESP_MAP:
    case RESP_SET:
    case RESP_PUSH:
    case '|':
        return head(r, v, node, elements);
    case RESP_NULL:
        return line_end(r, v, v->at);
    case RESP_BOOLEAN:
        return boolean(r, v, node);
    case RESP_DOUBLE:
    case RESP_BIG_NUMBER:
        return number_line(r, v, node);
    default:
        return bad_byte(r, v, v->at - 1, "a type");
    }
}

/* Is the next node the first element of a push, which is the kind of push? */
static bool is_push_kind(const resp_reader *r)
{
    return r->depth == 1 && r->count == 1 && r->nodes[0].type == RESP_PUSH;
}

static bool has_room(resp_reader *r)
{
    size_t room = r->room ? r->room * 2 : 32;
    resp_node *nodes;

    if (r->count < r->room)
        return true;
    nodes = room <= SIZE_MAX / sizeof *nodes ? realloc(r->nodes, room * sizeof *nodes) : NULL;
    if (!nodes)
        return false;
    r->nodes = nodes;
    r->room = room;
    return true;
}

/* Take the next item, if the item is complete. *whole_reply: the item was the last one. */
static enum step item(resp_reader *r, struct window *v, bool *whole_reply)
{
    resp_node node = {.span = 1};
    uint32_t elements = 0;
    enum step step;

    if (v->at >= v->end)
        return STEP_MORE;
    if (!has_room(r))
        return STEP_NO_MEMORY;
    node.type = (uint8_t)v->data[v->at++];
    node.at = v->at;
    step = content(r, v, &node, &elements);
    if (step != STEP_DONE)
        return step;
    if (node.type != '|') {
        if (is_push_kind(r) && !resp_is_text(&node))
            return bad(r, r->at, "a push whose kind is no text");
        node.count = elements;
        r->nodes[r->count++] = node;
    }
    r->at = v->at;
    if (elements)
        open_aggregate(r, elements, node.type == '|');
    else if (node.type != '|')
        *whole_reply = close_aggregates(r);
    return STEP_DONE;
}

/* ---- Replies --------------------------------------------------------------------------------- */

static void begin(resp_reader *r)
{
    r->count = r->announced = r->depth = 0;
    r->at = r->scan = 0;
}

static enum resp_result deliver(resp_reader *r, const char *data, resp_reply *ret)
{
    for (uint32_t i = 0; i < r->count; i++)
        r->nodes[i].text = data + r->nodes[i].at;
    *ret = (resp_reply){.nodes = r->nodes, .count = r->count, .size = r->at};
    r->replies++;
    begin(r);
    return ret->nodes->type == RESP_PUSH ? RESP_GOT_PUSH : RESP_GOT_REPLY;
}

enum resp_result resp_next(resp_reader *r, const char *data, size_t length, resp_reply *ret)
{
    struct window v = {.data = data, .end = length};
    bool whole_reply = false;
    enum step step;

    if (r->malformed)
        return RESP_MALFORMED;
    if (v.end > r->limits.bytes)
        v.end = r->limits.bytes;
    do {
        v.at = r->at;
        step = item(r, &v, &whole_reply);
    } while (step == STEP_DONE && !whole_reply);
    if (step == STEP_DONE)
        return deliver(r, data, ret);
    if (step == STEP_NO_MEMORY)
        return RESP_NO_MEMORY;
    if (step == STEP_MORE && length < r->limits.bytes)
        return RESP_MORE;
    if (step == STEP_MORE)
        bad(r, r->limits.bytes, "longer than %" PRIu32 " bytes", r->limits.bytes);
    return RESP_MALFORMED;
}

void resp_reader_init(resp_reader *r, const resp_limits *limits)
{
    *r = (resp_reader){.limits = limits ? *limits : (resp_limits){0}};
    if (!r->limits.depth || r->limits.depth > RESP_DEPTH)
        r->limits.depth = RESP_DEPTH;
    if (!r->limits.elements)
        r->limits.elements = 1u << 20;
    if (!r->limits.bytes)
        r->limits.bytes = 1u << 26;
}

void resp_reader_reset(resp_reader *r)
{
    begin(r);
    r->replies = 0;
    r->malformed = false;
    r->error[0] = 0;
}

void resp_reader_free(resp_reader *r)
{
    free(r->nodes);
    *r = (resp_reader){0};
}
