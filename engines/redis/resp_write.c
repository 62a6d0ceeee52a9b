/* SPDX-License-Identifier: Apache-2.0
 *
 * resp_write.c - commands, written into a buffer.
 *
 * A failed command is removed by cutting the buffer to its length before the command: the earlier
 * bytes never change while a command is written, but may move. Each add first reserves room for the
 * whole argument, so that the buffer is cut at most once, in resp_end.
 */
#include <stdlib.h>

#include "resp.h"

/* ---- Commands -------------------------------------------------------------------------------- */

enum { DIGITS = 20 }; /* of a uint64_t; of an int64_t including the sign */

/* Writes the number's digits before `end`; returns the first digit. */
static char *digits_before(char *end, uint64_t value)
{
    do
        *--end = (char)('0' + value % 10);
    while (value /= 10);
    return end;
}

/* Type, number, CR LF; the caller has reserved the room. */
static void put_head(resp_buf *out, char type, uint64_t value)
{
    char text[DIGITS + 2], *first = digits_before(text + DIGITS, value);
    size_t length = (size_t)(text + sizeof text - first);

    text[DIGITS] = '\r';
    text[DIGITS + 1] = '\n';
    out->data[out->end++] = type;
    memcpy(out->data + out->end, first, length);
    out->end += length;
}

resp_command resp_begin(resp_buf *out, size_t argc)
{
    resp_command c = {.out = out, .before = kit_buf_length(out), .left = argc};

    c.code = argc ? kit_buf_reserve(out, DIGITS + 3) : PAWL_EINVAL;
    if (!c.code)
        put_head(out, '*', argc);
    return c;
}

void resp_add(resp_command *c, const void *bytes, size_t length)
{
    resp_buf *out = c->out;

    if (c->code)
        return;
    if (!c->left) {
        c->code = PAWL_EINVAL;
        return;
    }
    c->code = length < SIZE_MAX / 4 ? kit_buf_reserve(out, length + DIGITS + 5) : PAWL_ENOMEM;
    if (c->code)
        return;
    put_head(out, '$', length);
    if (length)
        memcpy(out->data + out->end, bytes, length);
    out->end += length;
    out->data[out->end++] = '\r';
    out->data[out->end++] = '\n';
    c->left--;
}

void resp_add_text(resp_command *c, const char *text)
{
    resp_add(c, text, strlen(text));
}

void resp_add_uint(resp_command *c, uint64_t value)
{
    char text[DIGITS], *first = digits_before(text + sizeof text, value);

    resp_add(c, first, (size_t)(text + sizeof text - first));
}

void resp_add_int(resp_command *c, int64_t value)
{
    char text[DIGITS], *first;

    first = digits_before(text + sizeof text, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
    if (value < 0)
        *--first = '-';
    resp_add(c, first, (size_t)(text + sizeof text - first));
}

int resp_end(resp_command *c)
{
    if (!c->code && c->left)
        c->code = PAWL_EINVAL;
    if (c->code)
        c->out->end = c->out->begin + c->before;
    return c->code;
}

/* ---- Scripts --------------------------------------------------------------------------------- */

static resp_command begin_script(resp_buf *out, const char *verb, const char *script, size_t length,
                                 size_t nkeys, size_t nargs)
{
    resp_command c;

    if (nkeys > SIZE_MAX / 4 || nargs > SIZE_MAX / 4)
        return (resp_command){.out = out, .before = kit_buf_length(out), .code = PAWL_EINVAL};
    c = resp_begin(out, 3 + nkeys + nargs);
    resp_add_text(&c, verb);
    resp_add(&c, script, length);
    resp_add_uint(&c, nkeys);
    return c;
}

resp_command resp_begin_evalsha(resp_buf *out, const char *sha, size_t nkeys, size_t nargs)
{
    return begin_script(out, "EVALSHA", sha, strlen(sha), nkeys, nargs);
}

resp_command resp_begin_eval(resp_buf *out, const char *script, size_t length, size_t nkeys,
                             size_t nargs)
{
    return begin_script(out, "EVAL", script, length, nkeys, nargs);
}
