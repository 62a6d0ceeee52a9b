/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_resp.c - any bytes as the data that a Redis server sends.
 *
 * Rules: resp_next reads each reply as the reference does. The result is the same, including the
 * error text, if the bytes come in pieces and are at another address each time. resp_next reads no
 * byte outside (each call gets a block of exactly the available bytes). Bytes that are written as
 * the arguments of a command are read back unchanged.
 */
#include "fuzz.h"
#include "resp_reference.h"

#ifndef CUTS
#define CUTS 512 /* places to cut the bytes in two */
#endif

static const resp_limits wide = {RESP_DEPTH, 1u << 20, 1u << 26}, tight = {3, 24, 160};

static char *block(const char *bytes, size_t length)
{
    char *copy = malloc(length ? length : 1);

    DEMAND(copy);
    if (length)
        memcpy(copy, bytes, length);
    return copy;
}

/* Print all replies in data[0..length) as one text, with the last result. */
static void read_whole(const resp_limits *limits, const char *data, size_t length, struct text *out)
{
    resp_reader r;
    enum resp_result result;

    resp_reader_init(&r, limits);
    for (;;) {
        char *bytes = block(data, length);
        struct text own = {0}, reference = {0};
        resp_reply reply;
        size_t size = 0;

        result = resp_next(&r, bytes, length, &reply);
        DEMAND(reference_read(bytes, length, limits, &reference, &size) == result);
        if (result == RESP_GOT_REPLY || result == RESP_GOT_PUSH) {
            DEMAND(reply.size == size);
            reference_print(&reply, bytes, &own);
            DEMAND(text_same(&own, &reference));
        }
        text_add(out, own.data, own.length);
        text_format(out, "\n%d\n", (int)result);
        text_free(&own);
        text_free(&reference);
        free(bytes);
        if (!size)
            break;
        data += size;
        length -= size;
    }
    text_add(out, r.error, strlen(r.error));
    DEMAND((result == RESP_MALFORMED) == (r.error[0] != 0));
    resp_reader_free(&r);
}

/* Print the complete replies and leave the rest in *data; returns the result for the rest. */
static enum resp_result drain(resp_reader *r, const char **data, size_t *length, struct text *out)
{
    char *bytes = block(*data, *length);
    size_t taken = 0;
    enum resp_result result;
    resp_reply reply;

    for (;;) {
        result = resp_next(r, bytes + taken, *length - taken, &reply);
        if (result != RESP_GOT_REPLY && result != RESP_GOT_PUSH)
            break;
        reference_print(&reply, bytes + taken, out);
        text_format(out, "\n%d\n", (int)result);
        taken += reply.size;
    }
    *data += taken;
    *length -= taken;
    free(bytes);
    return result;
}

/* The same in pieces: `first` bytes, then (chance 0) all others or a few at a time. */
static void read_pieces(const resp_limits *limits, const char *data, size_t length, size_t first,
                        uint32_t chance, struct text *out)
{
    resp_reader r;
    size_t shown = first, there = first;
    enum resp_result result;

    resp_reader_init(&r, limits);
    while ((result = drain(&r, &data, &there, out)) == RESP_MORE && shown < length) {
        size_t piece = length - shown;

        if (chance) {
            chance = chance * 1664525 + 1013904223;
            piece = 1 + (chance >> 20) % (piece < 12 ? piece : 12);
        }
        shown += piece;
        there += piece;
    }
    text_format(out, "\n%d\n", (int)result);
    text_add(out, r.error, strlen(r.error));
    resp_reader_free(&r);
}

static void compare_pieces(const resp_limits *limits, const char *data, size_t length)
{
    struct text whole = {0}, pieces = {0};
    size_t step = length / CUTS + 1, first = length ? (unsigned char)data[length / 2] % step : 0;

    read_whole(limits, data, length, &whole);
    for (size_t cut = first; cut < length; cut += step) {
        pieces.length = 0;
        read_pieces(limits, data, length, cut, 0, &pieces);
        DEMAND(text_same(&whole, &pieces));
    }
    for (uint32_t chance = 1; chance <= (CUTS > 1 ? 3 : 1); chance++) {
        pieces.length = 0;
        read_pieces(limits, data, length, 0, chance * 77 + (uint32_t)length, &pieces);
        DEMAND(text_same(&whole, &pieces));
    }
    text_free(&whole);
    text_free(&pieces);
}

/* The bytes as arguments of a command, cut at each 'A'. */
static void write_and_read(const char *data, size_t length)
{
    resp_buf out = {0};
    resp_command c;
    resp_reader r;
    resp_reply reply;
    size_t argc = 1, at = 0;

    for (size_t i = 0; i < length; i++)
        argc += data[i] == 'A';
    c = resp_begin(&out, argc);
    for (size_t i = 0; i <= length; i++)
        if (i == length || data[i] == 'A') {
            resp_add(&c, data + at, i - at);
            at = i + 1;
        }
    DEMAND(resp_end(&c) == 0);
    resp_reader_init(&r, NULL);
    DEMAND(resp_next(&r, out.data, out.end, &reply) == RESP_GOT_REPLY);
    DEMAND(reply.size == out.end && reply.nodes->count == argc && reply.count == argc + 1);
    at = 0;
    for (size_t i = 1; i <= argc; i++) {
        DEMAND(resp_equal(&reply.nodes[i], data + at, reply.nodes[i].length));
        at += reply.nodes[i].length + 1;
    }
    DEMAND(at == length + 1);
    resp_reader_free(&r);
    kit_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = size ? (const char *)data : "";

    compare_pieces(&wide, bytes, size);
    compare_pieces(&tight, bytes, size);
    write_and_read(bytes, size);
    return 0;
}
