/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c - shows texts that others chose in columns: escapes them and measures their width.
 *
 * The width of a character is wcwidth(3)'s, so that ncurses and most terminals agree. A character
 * that the C library doesn't know, or that shows nothing, is written as an escape. At most two
 * combining marks follow a character; more of them would pile up over other lines.
 */
#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <wchar.h>

#include "table.h"

#define MARKS_MAX 2

bool text_locale(bool always)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") && always)
        setlocale(LC_CTYPE, "C.UTF-8");
    return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

/* Characters without a width that hide something or change the width of others: soft hyphen, zero
 * width space and joiners, variation selectors, byte order mark, tags. */
static bool invisible(uint32_t c)
{
    return c == 0xad || (c >= 0x200b && c <= 0x200f) || (c >= 0x2060 && c <= 0x206f) ||
           (c >= 0xfe00 && c <= 0xfe0f) || c == 0xfeff || c >= 0xe0000;
}

/* Decode the next character of `text` in the form in which it may be shown. `marks` counts the
 * characters without a width that came just before; callers start with MARKS_MAX. Returns the
 * number of bytes of `text` that were read. */
static size_t next(const char *text, char shown[12], size_t *width, int *marks)
{
    uint32_t c;
    size_t length = text_decode(text, &c);
    int columns = length && !text_harmful(c) && !invisible(c) ? wcwidth((wchar_t)c) : -1;

    if (columns > 0 || (columns == 0 && *marks < MARKS_MAX)) {
        memcpy(shown, text, length);
        shown[length] = '\0';
        *width = (size_t)columns;
        *marks = columns ? 0 : *marks + 1;
        return length;
    }
    snprintf(shown, 12, !length || c < 0x80 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%06x",
             length ? c : (unsigned char)*text);
    *width = strlen(shown);
    *marks = MARKS_MAX;
    return length ? length : 1;
}

size_t text_width(const char *text)
{
    size_t total = 0, width;
    int marks = MARKS_MAX;
    char shown[12];

    while (*text) {
        text += next(text, shown, &width, &marks);
        total += width;
    }
    return total;
}

const char *text_fit(char *buf, size_t size, const char *text, size_t width, bool right)
{
    size_t whole = text_width(text), room = whole > width ? width - (width > 0) : width, n = 0;
    size_t used = 0, columns;
    int marks = MARKS_MAX;
    char shown[12];

    if (size < width + 1)
        width = room = 0;
    for (; right && used + whole < width; used++)
        buf[n++] = ' ';
    while (*text) {
        size_t bytes = next(text, shown, &columns, &marks);
        size_t length = strlen(shown);

        if (used + columns > room || n + length + (width - used) >= size)
            break;
        memcpy(buf + n, shown, length);
        n += length;
        used += columns;
        text += bytes;
    }
    if (*text && used < width) {
        buf[n++] = '~';
        used++;
    }
    for (; used < width; used++)
        buf[n++] = ' ';
    buf[n] = '\0';
    return buf;
}

void column_widen(column *c, const pawl_info *info)
{
    char text[600];
    size_t width = text_width(info ? row_cell(info, c->cell, text, sizeof text) : c->title);

    c->width = width > c->width ? width : c->width;
}

void columns_fit(column *c, size_t n, size_t total)
{
    for (;;) {
        column *widest = NULL;
        size_t sum = n ? n - 1 : 0;

        for (size_t i = 0; i < n; i++) {
            sum += c[i].width;
            if (c[i].least && c[i].width > c[i].least &&
                (!widest || c[i].width - c[i].least > widest->width - widest->least))
                widest = &c[i];
        }
        if (sum <= total || !widest)
            return;
        widest->width--;
    }
}
