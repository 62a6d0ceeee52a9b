/* SPDX-License-Identifier: Apache-2.0
 *
 * decode.c - %XX in URLs. A separate file, because modules are linked with this function, too.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "url.h"

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

char *pawl__url_decode(const char *text, size_t length, bool *bad)
{
    char *ret = malloc(length + 1), *out = ret;

    if (!ret)
        return NULL;
    for (size_t i = 0; i < length; i++) {
        if (text[i] != '%') {
            *out++ = text[i];
            continue;
        }
        if (i + 2 >= length || hex(text[i + 1]) < 0 || hex(text[i + 2]) < 0 ||
            !(hex(text[i + 1]) | hex(text[i + 2])))
            goto malformed;
        *out++ = (char)(hex(text[i + 1]) * 16 + hex(text[i + 2]));
        i += 2;
    }
    *out = 0;
    return ret;
malformed:
    *bad = true;
    explicit_bzero(ret, (size_t)(out - ret));
    free(ret);
    return NULL;
}
