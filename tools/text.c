/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c - names, labels and program names were chosen by others; escape them before printing.
 *
 * A lock's label may hold an escape sequence that repaints the operator's terminal, or bytes that
 * are not UTF-8 and would make JSON invalid. All text that the tool prints and did not write itself
 * goes through this file.
 */
#include <string.h>

#include "tool.h"

size_t text_decode(const char *text, uint32_t *ret)
{
    const unsigned char *s = (const unsigned char *)text;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = s[0] < 0x80        ? 1
                 : s[0] >> 5 == 6   ? 2
                 : s[0] >> 4 == 14  ? 3
                 : s[0] >> 3 == 30  ? 4
                                    : 0;
    uint32_t c;

    if (len <= 1) {
        *ret = s[0];
        return len;
    }
    c = s[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    *ret = c;
    return len;
}

bool text_harmful(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200e && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

size_t text_bytes(const char *text, size_t most)
{
    size_t n = strnlen(text, most + 1), cut = most;

    if (n <= most)
        return n;
    while (cut && most - cut < 3 && ((unsigned char)text[cut] & 0xc0) == 0x80)
        cut--;
    return cut;
}

/* The next character, or its escape. Returns the number of bytes of `text` that were read. */
static size_t next(const char *text, char shown[8])
{
    uint32_t c;
    size_t length = text_decode(text, &c);

    if (!length || (text_harmful(c) && c < 0x80))
        snprintf(shown, 8, "\\x%02x", (unsigned char)*text);
    else if (text_harmful(c))
        snprintf(shown, 8, "\\u%04x", (unsigned)(c & 0xffff));
    else
        snprintf(shown, 8, "%.*s", (int)length, text);
    return length ? length : 1;
}

void text_put(FILE *out, const char *text)
{
    char shown[8];

    while (*text) {
        text += next(text, shown);
        fputs(shown, out);
    }
}

const char *text_copy(char *buf, size_t size, const char *text)
{
    size_t used = 0;
    char shown[8];

    buf[0] = '\0';
    while (*text) {
        text += next(text, shown);
        if (used + strlen(shown) >= size)
            break;
        used += (size_t)(stpcpy(buf + used, shown) - (buf + used));
    }
    return buf;
}

void json_string(FILE *out, const char *text)
{
    const char *s = text;
    uint32_t c;

    putc('"', out);
    while (*s) {
        size_t len = text_decode(s, &c);

        if (!len)
            fputs("\\ufffd", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", (char)c);
        else if (text_harmful(c))
            fprintf(out, "\\u%04x", c);
        else
            fwrite(s, 1, len, out);
        s += len ? len : 1;
    }
    putc('"', out);
}
