/* SPDX-License-Identifier: Apache-2.0
 *
 * resp_node.c - functions for the nodes of a reply, and for texts that are numbers.
 *
 * Texts in a reply are not ended by a NUL. Every text is checked byte by byte within its length
 * before the text is converted.
 */
#include <locale.h>
#include <stdlib.h>

#include "resp.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The end of the digits that begin at `at`; `at` if there are none. */
static size_t digits(const char *text, size_t length, size_t at)
{
    while (at < length && is_digit(text[at]))
        at++;
    return at;
}

/* The end of a whole number without sign at text[at]; `at` if there is none. */
static size_t whole(const char *text, size_t length, size_t at)
{
    return at < length && text[at] == '0' ? at + 1 : digits(text, length, at);
}

bool resp_is_whole(const char *text, size_t length)
{
    size_t first = length && text[0] == '-', end = whole(text, length, first);

    return end > first && end == length && !(first && text[first] == '0');
}

/* "-"? ("inf" | "nan" | whole ["." digits] [("e" | "E") ["+" | "-"] digits]) */
bool resp_is_decimal(const char *text, size_t length)
{
    size_t first = length && text[0] == '-', at = whole(text, length, first), begin;

    if (length - first == 3 && (!memcmp(text + first, "inf", 3) || !memcmp(text + first, "nan", 3)))
        return true;
    if (at == first)
        return false;
    if (at < length && text[at] == '.') {
        begin = at + 1;
        at = digits(text, length, begin);
        if (at == begin)
            return false;
    }
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        begin = at + 1;
        begin += begin < length && (text[begin] == '+' || text[begin] == '-');
        at = digits(text, length, begin);
        if (at == begin)
            return false;
    }
    return at == length;
}

const resp_node *resp_child(const resp_node *node, uint32_t i)
{
    const resp_node *child = node + 1;

    if (i >= node->count)
        return NULL;
    while (i--)
        child += child->span;
    return child;
}

bool resp_integer(const resp_node *node, int64_t *ret)
{
    bool minus = node->length && node->text[0] == '-';
    uint64_t value = 0, most = (uint64_t)INT64_MAX + minus;

    if (node->type == RESP_INTEGER) {
        *ret = node->integer;
        return true;
    }
    if (!resp_is_text(node) || !resp_is_whole(node->text, node->length))
        return false;
    for (size_t i = minus; i < node->length; i++) {
        uint64_t digit = (uint64_t)(node->text[i] - '0');

        if (value > (most - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *ret = minus ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

double resp_double(const resp_node *node)
{
    /* The reader has checked the grammar and a CR follows, so strtod stops at the CR. In glibc and
     * musl the locale "C" is a constant: newlocale allocates nothing. */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double value = plain ? strtod_l(node->text, NULL, plain) : strtod(node->text, NULL);

    if (plain)
        freelocale(plain);
    return value;
}

bool resp_error_is(const resp_node *node, const char *word)
{
    size_t length = strlen(word);

    return resp_is_error(node) && node->length >= length && !memcmp(node->text, word, length) &&
           (node->length == length || node->text[length] == ' ');
}
