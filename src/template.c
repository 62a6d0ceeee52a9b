/* SPDX-License-Identifier: Apache-2.0
 *
 * template.c - "stock:4711" and "stock:4712" are one series, "stock:*".
 *
 * A monitoring system keeps every series for ever, so ids must not become labels. The library and
 * the pawl command use the same rules.
 */
#include "template.h"

#include <stdbool.h>
#include <string.h>

#include "engine.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static size_t run(const char *s, bool (*kind)(char))
{
    size_t n = 0;

    while (kind(s[n]))
        n++;
    return n;
}

/* Is the whole word a UUID: 8-4-4-4-12 hexadecimal digits? */
static bool is_uuid(const char *s)
{
    static const unsigned char groups[] = {8, 4, 4, 4, 12};

    for (size_t i = 0; i < sizeof groups; i++) {
        if (run(s, is_hex) != groups[i] || is_word(s[groups[i]]))
            return false;
        s += groups[i];
        if (i < sizeof groups - 1 && *s++ != '-')
            return false;
    }
    return true;
}

/* Is the whole word an id? */
static bool is_id(const char *s, size_t length)
{
    bool digit = false, hex = true;

    for (size_t i = 0; i < length; i++) {
        digit |= is_digit(s[i]);
        hex &= is_hex(s[i]);
    }
    return digit && (length >= 16 || (hex && length >= 8));
}

static char *star(char *at, const char *begin)
{
    if (at == begin || at[-1] != '*')
        *at++ = '*';
    return at;
}

void pawl__template(char to[PAWL_TEMPLATE_SIZE], const char *name)
{
    const char *s = name, *end = name + strnlen(name, PAWL_TEMPLATE_SIZE - 1);
    char *at = to;

    while (s < end) {
        size_t word = run(s, is_word);

        if (is_uuid(s)) {
            at = star(at, to);
            s += 36;
        } else if (is_id(s, word)) {
            at = star(at, to);
            s += word;
        } else if (!word) {
            *at++ = *s++;
        } else if (is_digit(*s)) {
            at = star(at, to);
            s += run(s, is_digit);
        } else {
            while (s < end && is_word(*s) && !is_digit(*s))
                *at++ = *s++;
        }
    }
    *at = '\0';
    pawl_text_clean(to);
}

size_t pawl__label_escape(char *to, const char *text)
{
    char *at = to;

    for (; *text; text++) {
        if (*text == '\\' || *text == '"' || *text == '\n')
            *at++ = '\\';
        *at++ = *text == '\n' ? 'n' : *text;
    }
    *at = '\0';
    return (size_t)(at - to);
}
