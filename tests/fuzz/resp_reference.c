/* SPDX-License-Identifier: Apache-2.0
 *
 * resp_reference.c - a second reader of RESP; see resp_reference.h.
 *
 * next() takes every byte, and leaves through longjmp if there is no byte or the byte must not be
 * read. So each function follows the grammar.
 */
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "resp_reference.h"

/* ---- Text ------------------------------------------------------------------------------------ */

void text_add(struct text *t, const void *bytes, size_t length)
{
    if (t->room - t->length < length) {
        t->room = (t->room + length) * 2;
        t->data = realloc(t->data, t->room);
        if (!t->data)
            abort();
    }
    if (length)
        memcpy(t->data + t->length, bytes, length);
    t->length += length;
}

void text_format(struct text *t, const char *format, ...)
{
    char buffer[256];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= sizeof buffer)
        abort();
    text_add(t, buffer, (size_t)length);
}

bool text_same(const struct text *a, const struct text *b)
{
    return a->length == b->length && (!a->length || !memcmp(a->data, b->data, a->length));
}

void text_free(struct text *t)
{
    free(t->data);
    *t = (struct text){0};
}

static void print_scalar(struct text *out, char type, const char *text, size_t length)
{
    text_format(out, "%c[", type);
    text_add(out, text, length);
    text_add(out, "]", 1);
}

/* ---- The grammar ----------------------------------------------------------------------------- */

struct source {
    const char *data;
    size_t at, length;
    const resp_limits *limits;
    uint64_t elements;
    unsigned depth;
    struct text *out;
    jmp_buf leave;
};

_Noreturn static void bad(struct source *s)
{
    longjmp(s->leave, RESP_MALFORMED + 1);
}

static char next(struct source *s)
{
    if (s->at >= s->limits->bytes)
        bad(s);
    if (s->at >= s->length)
        longjmp(s->leave, RESP_MORE + 1);
    return s->data[s->at++];
}

static void want(struct source *s, char c)
{
    if (next(s) != c)
        bad(s);
}

/* Take the bytes up to CR LF. */
static size_t take_line(struct source *s)
{
    size_t first = s->at;

    for (;;) {
        char c = next(s);

        if (c == '\n')
            bad(s);
        if (c == '\r')
            break;
    }
    want(s, '\n');
    return s->at - 2 - first;
}

static int64_t take_integer(struct source *s)
{
    int64_t value;
    char c = next(s);
    bool minus = c == '-';

    if (minus)
        c = next(s);
    if (c < '0' || c > '9')
        bad(s);
    value = minus ? '0' - c : c - '0';
    while ((c = next(s)) >= '0' && c <= '9')
        if (value == 0 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, minus ? '0' - c : c - '0', &value))
            bad(s);
    if (c != '\r' || (minus && value == 0))
        bad(s);
    want(s, '\n');
    return value;
}

static const char whole[] = "^(0|-?[1-9][0-9]*)$";
static const char decimal[] = "^-?(inf|nan|(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?)$";

static bool matches(const char *pattern, const char *text, size_t length)
{
    static struct { const char *pattern; regex_t regex; } known[2];
    size_t i = 0;
    char *copy;
    bool good;

    while (known[i].pattern && known[i].pattern != pattern)
        i++;
    if (!known[i].pattern && regcomp(&known[i].regex, pattern, REG_EXTENDED | REG_NOSUB))
        abort();
    known[i].pattern = pattern;
    copy = strndup(text, length);
    good = strlen(copy) == length && !regexec(&known[i].regex, copy, 0, NULL, 0);
    free(copy);
    return good;
}

static void number_line(struct source *s, char type)
{
    const char *text = s->data + s->at;
    size_t length = take_line(s);
    char *copy;

    if (!matches(type == ',' ? decimal : whole, text, length))
        bad(s);
    print_scalar(s->out, type, text, length);
    if (type == ',') {
        copy = strndup(text, length);
        text_format(s->out, "=%.17g", strtod(copy, NULL));
        free(copy);
    }
}

static void print_text(struct source *s, char type, const char *text, size_t length)
{
    print_scalar(s->out, type, text, length);
    if (strchr("+$=", type) && length < 32 && matches(whole, text, length)) {
        char *copy = strndup(text, length), back[32];
        long long value = strtoll(copy, NULL, 10);

        snprintf(back, sizeof back, "%lld", value);
        if (!strcmp(back, copy))
            text_format(s->out, "=%lld", value);
        free(copy);
    }
}

/* Returns false if the value is a null. */
static bool bulk(struct source *s, char type)
{
    size_t skip = type == '=' ? 4 : 0, first;
    int64_t length;

    length = take_integer(s);
    if (length == -1 && type == '$')
        return false;
    if (length < (int64_t)skip || length > (int64_t)s->limits->bytes ||
        s->at + (size_t)length + 2 > s->limits->bytes)
        bad(s);
    first = s->at;
    for (size_t i = 0; i < (size_t)length; i++)
        if (next(s) != ':' && skip && i == 3)
            bad(s);
    want(s, '\r');
    want(s, '\n');
    print_text(s, type, s->data + first + skip, (size_t)length - skip);
    return true;
}

static void value(struct source *s, bool push_kind);

static void elements(struct source *s, uint64_t n, bool push)
{
    s->depth++;
    for (uint64_t i = 0; i < n; i++) {
        value(s, push && i == 0);
        text_add(s->out, " ", 1);
    }
    s->depth--;
}

/* Returns false if the value is a null. */
static bool aggregate(struct source *s, char type, bool push_kind)
{
    size_t before = s->out->length;
    int64_t n = take_integer(s);

    if (n == -1 && type == '*')
        return false;
    if (n < 0 || n > INT32_MAX || (type == '>' && (n == 0 || s->depth)))
        bad(s);
    n *= type == '%' || type == '|' ? 2 : 1;
    s->elements += (uint64_t)n;
    if (s->elements > s->limits->elements || (n && s->depth == s->limits->depth))
        bad(s);
    if (push_kind && type != '|')
        bad(s);
    text_format(s->out, "%c%d(", type, (int)n);
    elements(s, (uint64_t)n, type == '>');
    text_add(s->out, ")", 1);
    if (type == '|') { /* an attribute, which is not printed; it belongs to the next value */
        s->out->length = before;
        value(s, push_kind);
    }
    return true;
}

static bool scalar(struct source *s, char type)
{
    const char *text = s->data + s->at;
    int64_t number;

    switch (type) {
    case '+':
    case '-':
        print_text(s, type, text, take_line(s));
        return true;
    case ':':
        number = take_integer(s);
        print_scalar(s->out, type, text, (size_t)(s->data + s->at - 2 - text));
        text_format(s->out, "=%lld", (long long)number);
        return true;
    case '#':
        number = next(s);
        if (number != 't' && number != 'f')
            bad(s);
        want(s, '\r');
        want(s, '\n');
        text_format(s->out, "#[%c]=%d", (char)number, number == 't');
        return true;
    case ',':
    case '(':
        number_line(s, type);
        return true;
    case '_':
        want(s, '\r');
        want(s, '\n');
        return false;
    default:
        bad(s);
    }
}

static void value(struct source *s, bool push_kind)
{
    char type = next(s);
    bool null;

    if (type && strchr("*%~>|", type))
        null = !aggregate(s, type, push_kind);
    else if (type && strchr("$!=", type))
        null = !bulk(s, type);
    else
        null = !scalar(s, type);
    if (null)
        text_add(s->out, "_[]", 3);
    if (push_kind && (null || !strchr("+$=|", type)))
        bad(s);
}

enum resp_result reference_read(const char *data, size_t length, const resp_limits *limits,
                                struct text *out, size_t *size)
{
    struct source s = {.data = data, .length = length, .limits = limits, .out = out};
    size_t before = out->length;
    int left = setjmp(s.leave);

    if (left) {
        out->length = before;
        return (enum resp_result)(left - 1);
    }
    value(&s, false);
    *size = s.at;
    return out->data[before] == '>' ? RESP_GOT_PUSH : RESP_GOT_REPLY;
}

/* ---- The same print from nodes --------------------------------------------------------------- */

static void demand(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "resp: %s\n", what);
    abort();
}

static void print_node(const resp_reply *reply, const char *data, const resp_node *node,
                       struct text *out)
{
    uint32_t span = 1;
    int64_t number;

    demand(node >= reply->nodes && node + node->span <= reply->nodes + reply->count,
           "a node outside of the array");
    demand(node->text >= data && node->text + node->length <= data + reply->size,
           "a text outside of the reply");
    if (strchr("*%~>", node->type)) {
        text_format(out, "%c%d(", node->type, (int)node->count);
        for (uint32_t i = 0; i < node->count; i++) {
            const resp_node *child = node + span;

            demand(i > 8 || resp_child(node, i) == child, "resp_child");
            print_node(reply, data, child, out);
            text_add(out, " ", 1);
            span += child->span;
        }
        text_add(out, ")", 1);
    } else {
        print_scalar(out, (char)node->type, node->text, node->length);
        if (node->type == RESP_BOOLEAN)
            text_format(out, "=%d", (int)node->integer);
        if (node->type == RESP_DOUBLE)
            text_format(out, "=%.17g", resp_double(node));
        if (resp_integer(node, &number))
            text_format(out, "=%lld", (long long)number);
    }
    demand(node->span == span, "a span that is not the sum of those below");
}

void reference_print(const resp_reply *reply, const char *data, struct text *out)
{
    demand(reply->count == reply->nodes->span, "nodes that do not belong to the root");
    print_node(reply, data, reply->nodes, out);
}
