/* SPDX-License-Identifier: Apache-2.0
 *
 * advisory_key.c - names and keys.
 *
 *     42, -7          the bigint 42 or -7
 *     3:-8            the two integers 3 and -8; pairs are distinct from all bigints
 *     anything else   the first 8 bytes of SHA-256 of the name, the highest first, as a bigint
 *
 * A number counts only in its usual form: "007" and "+7" are names like any other, so two names
 * have the same key only if their hashes are the same. The hash is SHA-256, not the server's
 * hashtextextended(), because every language has SHA-256, and a name may be any bytes.
 */
#include <errno.h>
#include <stdlib.h>

#include "advisory.h"
#include "sql/hash.h"

void advisory_key_init(pawl_env *env)
{
    sql_hash_init(env);
}

/* The number at text[0..length), if the text is the same as printf would write. */
static bool number(const char *text, size_t length, long long *ret)
{
    char copy[24], again[24];

    if (!length || length >= sizeof copy)
        return false;
    memcpy(copy, text, length);
    copy[length] = 0;
    errno = 0;
    *ret = strtoll(copy, NULL, 10);
    snprintf(again, sizeof again, "%lld", *ret);
    return !errno && !strcmp(copy, again);
}

advisory_key advisory_key_of(const char *name)
{
    const char *colon = strchr(name, ':');
    unsigned char hash[SQL_HASH_BYTES];
    long long a, b;
    uint64_t key = 0;

    if (colon && number(name, (size_t)(colon - name), &a) &&
        number(colon + 1, strlen(colon + 1), &b) && a == (int32_t)a && b == (int32_t)b)
        return (advisory_key){(uint32_t)a, (uint32_t)b, true};
    if (number(name, strlen(name), &a)) {
        key = (uint64_t)a;
    } else {
        sql_hash(name, hash);
        for (int i = 0; i < 8; i++)
            key = key << 8 | hash[i];
    }
    return (advisory_key){(uint32_t)(key >> 32), (uint32_t)key, false};
}

void advisory_key_name(advisory_key key, char name[32])
{
    if (key.pair)
        snprintf(name, 32, "%d:%d", (int32_t)key.high, (int32_t)key.low);
    else
        snprintf(name, 32, "%lld", (long long)((uint64_t)key.high << 32 | key.low));
}

void advisory_key_literals(advisory_key key, char text[64])
{
    if (key.pair)
        snprintf(text, 64, "'%d'::int, '%d'::int", (int32_t)key.high, (int32_t)key.low);
    else
        snprintf(text, 64, "'%lld'::bigint",
                 (long long)((uint64_t)key.high << 32 | key.low));
}
