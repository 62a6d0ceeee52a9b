/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c - checks option structs and names of public calls.
 *
 * A caller may have been compiled against an older header, with a smaller struct: the missing
 * fields are 0. A struct of a newer header is larger, and is accepted if all fields that this
 * version doesn't know are 0. An unknown option is refused, because ignoring the option silently
 * would be worse.
 */
#include "core.h"

int pawl__options_copy(void *to, size_t size, const void *from, const char *what, pawl_error *err)
{
    const unsigned char *bytes = from;
    uint64_t given;

    memset(to, 0, size);
    if (!from)
        return 0;
    memcpy(&given, from, sizeof given);
    if (given < sizeof given || given % 8 || given > 4096)
        return pawl_error_set(err, PAWL_EINVAL,
                              "%s.size is %llu; set it to sizeof the struct", what,
                              (unsigned long long)given);
    for (size_t i = size; i < given; i++)
        if (bytes[i])
            return pawl_error_set(err, PAWL_EINVAL,
                                  "%s has a field at byte %zu that this version (%s) does not know",
                                  what, i / 8 * 8, pawl_version());
    memcpy(to, from, given < size ? (size_t)given : size);
    return 0;
}

bool pawl__bad_ms(int64_t ms)
{
    return ms < 0 || ms > PAWL_MS_MAX;
}

int pawl__name_check(const char *name, pawl_error *err)
{
    size_t length;

    if (!name || !*name)
        return pawl_error_set(err, PAWL_EINVAL, "the name is empty; give 1 to %d bytes",
                              PAWL_NAME_MAX);
    length = strnlen(name, PAWL_NAME_MAX + 1);
    if (length > PAWL_NAME_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the name is longer than %d bytes", PAWL_NAME_MAX);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return pawl_error_set(err, PAWL_EINVAL,
                                  "the name has a control character (0x%02x) at byte %zu",
                                  (unsigned char)name[i], i);
    return 0;
}

/* Continuation bytes of UTF-8 stay with their first byte. */
const char *pawl__shown(char buf[PAWL_SHOWN_SIZE], const char *text)
{
    size_t most = PAWL_SHOWN_SIZE - 4, n = strnlen(text, most + 1);
    bool cut = n > most;

    for (n = cut ? most : n; cut && n > most - 4 && ((unsigned char)text[n] & 0xc0) == 0x80;)
        n--;
    snprintf(buf, PAWL_SHOWN_SIZE, "%.*s%s", (int)n, text, cut ? "..." : "");
    return buf;
}

int pawl__error_about(pawl_error *err, int code, const char *name, const char *words)
{
    return pawl_error_set(err, code, "'%s': %s", SHOWN(name), words ? words : pawl_strerror(code));
}
