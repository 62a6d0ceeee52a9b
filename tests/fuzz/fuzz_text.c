/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_text.c - any bytes as a duration, and as names, hosts and labels that the tool prints.
 *
 * An accepted duration is between 0 and ten years. Printed text has no control character. JSON is
 * one line whose quotes, braces and escapes match, whatever the strings and numbers were.
 */
#include <string.h>

#include "../../tools/tool.h"
#include "fuzz.h"

static void check_duration(const char *text)
{
    int64_t ms = -1;

    if (duration_parse(text, &ms))
        DEMAND(ms >= 0 && ms <= INT64_C(3660) * 24 * 3600 * 1000 + 1);
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

/* Behind the closing quote of the string that begins at `s`. */
static const char *skip_string(const char *s)
{
    for (s++; *s != '"'; s++) {
        DEMAND((unsigned char)*s >= ' ');
        if (*s != '\\')
            continue;
        s++;
        DEMAND(*s && strchr("\"\\/bfnrtu", *s));
        if (*s == 'u')
            for (int i = 0; i < 4; i++)
                DEMAND(*++s && strchr("0123456789abcdefABCDEF", *s));
    }
    return s + 1;
}

static void check_json(const char *text, const pawl_info *like)
{
    pawl_info info = *like;
    char *json = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&json, &length);

    DEMAND(out);
    info.name = info.host = info.program = info.label = info.owner = text;
    json_row(out, &info);
    DEMAND(!fclose(out));
    for (const char *s = json; *s;) {
        if (*s == '"')
            s = skip_string(s);
        else
            DEMAND(strchr(",:-0123456789truefalsn", *s++));
    }
    free(json);
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
