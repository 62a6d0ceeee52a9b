/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_text.c - any bytes as a duration, and as names, hosts and labels that the tool prints.
 *
 * An accepted duration is between 0 and ten years, and a second, independent reader gives the same
 * duration. Printed text has no control character. A strict reader reads a row of JSON back, and
 * gets the original texts.
 */
#include <string.h>

#include "../../tools/tool.h"
#include "fuzz.h"

static void check_duration(const char *text)
{
    static const struct {
        const char *unit;
        long double ms;
    } units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}};
    int64_t ms = -1;
    char buf[64];
    char *end;
    long double value;

    if (!duration_parse(text, &ms))
        return;
    DEMAND(ms >= 0 && ms <= INT64_C(3660) * 24 * 3600 * 1000 + 1);
    DEMAND(strspn(text, "0123456789.") > 0);
    value = strtold(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (!strcmp(end, units[i].unit))
            value *= units[i].ms;
    DEMAND(ms >= value - 4 && ms <= value + 2); /* an hour's millionth is 3.6 ms */
    DEMAND(strlen(duration_text(buf, sizeof buf, ms)) < sizeof buf);
}

static void check_printed(const char *text)
{
    char *printed = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&printed, &length);

    DEMAND(out);
    text_put(out, text);
    DEMAND(!fclose(out));
    for (size_t i = 0; i < length; i++)
        DEMAND((unsigned char)printed[i] >= ' ' && printed[i] != 0x7f);
    free(printed);
}

/* ---- JSON, read by an independent reader ----------------------------------------------------- */

/* The length of the character at `s`. 0: not UTF-8. */
static size_t utf8(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        return (s[1] & 0xc0) == 0x80 ? 2 : 0;
    if ((s[0] & 0xf0) == 0xe0) {
        bool low = s[0] == 0xe0 && s[1] < 0xa0, surrogate = s[0] == 0xed && s[1] >= 0xa0;

        return (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80 && !low && !surrogate ? 3 : 0;
    }
    if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        bool low = s[0] == 0xf0 && s[1] < 0x90, high = s[0] == 0xf4 && s[1] >= 0x90;

        return (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80 && (s[3] & 0xc0) == 0x80 && !low &&
               !high ? 4 : 0;
    }
    return 0;
}

/* The text that a reader of the JSON must get: each byte that is not UTF-8 becomes U+FFFD. */
static char *expected(const char *text)
{
    char *ret = malloc(3 * strlen(text) + 1), *out = ret;

    DEMAND(ret);
    while (*text) {
        size_t n = utf8((const unsigned char *)text);

        memcpy(out, n ? text : "\xef\xbf\xbd", n ? n : 3);
        out += n ? n : 3;
        text += n ? n : 1;
    }
    *out = 0;
    return ret;
}

static char *put_utf8(char *out, unsigned c)
{
    DEMAND(c < 0xd800 || c > 0xdfff); /* characters above U+FFFF are not escaped */
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 0x3f));
    } else {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 0x3f));
        *out++ = (char)(0x80 | (c & 0x3f));
    }
    return out;
}

/* Read the string that begins at *at; *at is then after the closing quote. */
static char *read_string(const char **at)
{
    const char *s = *at;
    char *ret = malloc(strlen(s) + 1), *out = ret;
    unsigned c;
    int used;

    DEMAND(ret && *s == '"');
    for (s++; *s != '"';) {
        DEMAND((unsigned char)*s >= ' ');
        if (*s != '\\') {
            size_t n = utf8((const unsigned char *)s);

            DEMAND(n);
            memcpy(out, s, n);
            out += n;
            s += n;
        } else if (s[1] == 'u') {
            DEMAND(strspn(s + 2, "0123456789abcdef") >= 4 &&
                   sscanf(s + 2, "%4x%n", &c, &used) == 1 && used == 4);
            out = put_utf8(out, c);
            s += 6;
        } else {
            DEMAND(s[1] == '"' || s[1] == '\\');
            *out++ = s[1];
            s += 2;
        }
    }
    *out = 0;
    *at = s + 1;
    return ret;
}

/* A number without a leading zero, or a word. */
static void skip_value(const char **at)
{
    static const char *const words[] = {"true", "false", "null"};
    size_t n = strspn(*at, "0123456789");

    DEMAND(n <= 1 || **at != '0');
    for (size_t i = 0; i < 3 && !n; i++)
        n = strncmp(*at, words[i], strlen(words[i])) ? 0 : strlen(words[i]);
    DEMAND(n);
    *at += n;
}

static void read_member(const char **at, const char *want)
{
    char *key = read_string(at), *value;

    DEMAND(key[0] && *(*at)++ == ':');
    if (**at != '"') {
        skip_value(at);
    } else {
        value = read_string(at);
        DEMAND(!strcmp(key, "type") || !strcmp(value, want));
        free(value);
    }
    free(key);
}

static void check_json(const char *text, const pawl_info *like)
{
    pawl_info info = *like;
    char *json = NULL, *want = expected(text);
    size_t length = 0;
    FILE *out = open_memstream(&json, &length);
    const char *at;

    DEMAND(out);
    info.name = info.host = info.program = info.label = info.owner = text;
    json_row(out, &info);
    DEMAND(!fclose(out));
    DEMAND(strlen(json) == length);
    at = json;
    do
        read_member(&at, want);
    while (*at == ',' && at++);
    DEMAND(!*at);
    free(json);
    free(want);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pawl_info info = {.size = sizeof info};
    char *text;

    if (size < 8 || size > 4096)
        return 0;
    text = malloc(size - 7);
    DEMAND(text);
    memcpy(text, data + 8, size - 8);
    text[size - 8] = 0;
    info.role = data[0] % 4;
    info.type = data[1] % 4;
    info.shared = data[2];
    info.holders = data[3];
    memcpy(&info.token, data, 8);
    memcpy(&info.since_ms, data, 8);
    memcpy(&info.lease_ms, data, 8);
    memcpy(&info.count, data, 8);
    info.pid = (int64_t)data[4] << 24;
    check_duration(text);
    check_printed(text);
    check_json(text, &info);
    free(text);
    return 0;
}
