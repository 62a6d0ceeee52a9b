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
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200e && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void text_put(FILE *out, const char *text)
{
    const char *s = text;
    uint32_t c;

    while (*s) {
        size_t len = text_decode(s, &c);

        if (!len)
            fprintf(out, "\\x%02x", (unsigned char)*s);
        else if (text_harmful(c))
            fprintf(out, c < 0x80 ? "\\x%02x" : "\\u%04x", c);
        else
            fwrite(s, 1, len, out);
        s += len ? len : 1;
    }
}

const char *text_copy(char *buf, size_t size, const char *text)
{
    FILE *out = fmemopen(buf, size, "w");

    buf[0] = '\0';
    if (out) {
        text_put(out, text);
        fclose(out);
    }
    buf[size - 1] = '\0';
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
