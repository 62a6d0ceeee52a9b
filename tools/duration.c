/* SPDX-License-Identifier: Apache-2.0
 *
 * duration.c - durations as people write and read them.
 *
 * Parsed by hand: strtod would take the locale's comma, "inf", "nan" and hexadecimal.
 */
#include <string.h>

#include "tool.h"

#define MAX_MS (INT64_C(1000) * 60 * 60 * 24 * 3660) /* ten years; more is a typing error */

/* Units in microseconds, so that fractions of a millisecond are not lost. */
static int64_t unit_us(const char *unit)
{
    if (!*unit || !strcmp(unit, "s"))
        return 1000000;
    if (!strcmp(unit, "ms"))
        return 1000;
    if (!strcmp(unit, "m"))
        return INT64_C(60) * 1000000;
    if (!strcmp(unit, "h"))
        return INT64_C(3600) * 1000000;
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool duration_parse(const char *text, int64_t *ret_ms)
{
    int64_t whole = 0, fraction = 0, scale = 1, unit, us;
    bool any = false;

    for (; is_digit(*text); text++, any = true) {
        whole = whole * 10 + (*text - '0');
        if (whole > MAX_MS)
            return false;
    }
    if (*text == '.')
        for (text++; is_digit(*text); text++, any = true)
            if (scale < 1000000) { /* finer than a millionth changes nothing */
                fraction = fraction * 10 + (*text - '0');
                scale *= 10;
            }
    unit = unit_us(text);
    if (!any || !unit || whole > MAX_MS * 1000 / unit)
        return false;
    us = whole * unit + fraction * unit / scale;
    *ret_ms = (us + 999) / 1000;
    return true;
}

const char *duration_text(char *buf, size_t size, int64_t ms)
{
    long long s = ms / 1000;

    if (ms < 1000)
        snprintf(buf, size, "%lld ms", (long long)(ms < 0 ? 0 : ms));
    else if (s < 10 && ms % 1000 >= 100)
        snprintf(buf, size, "%lld.%lld s", s, (long long)(ms % 1000 / 100));
    else if (s < 60)
        snprintf(buf, size, "%lld s", s);
    else if (s < 3600)
        snprintf(buf, size, "%lld min %lld s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, size, "%lld h %lld min", s / 3600, s / 60 % 60);
    else
        snprintf(buf, size, "%lld d %lld h", s / 86400, s / 3600 % 24);
    return buf;
}
