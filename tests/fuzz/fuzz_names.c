/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_names.c - any two names, as each engine writes them into its service.
 *
 * Rules: a name that was written and read back is the same name, and two names never share a key, a
 * node or a part of either. The engines' headers can't be included together, so each engine has a
 * file; this one is for Redis.
 */
#include "names.h"

#include "redis/redis.h"

static void check_keys(redis_keys *keys, const char *prefix, const char *name)
{
    static const char *const suffixes[] = {":fence", ":queue", ":rec", ":hold", ":done"};
    char helper[sizeof keys->base];
    size_t length = strlen(prefix) + strlen(name);
    uint16_t slot;

    redis_keys_make(keys, prefix, name);
    DEMAND(keys->k_length == length && !strncmp(keys->k, prefix, strlen(prefix)));
    DEMAND(!strcmp(keys->k + strlen(prefix), name));
    slot = redis_slot(keys->k, keys->k_length);
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        int n = snprintf(helper, sizeof helper, "%.*s%s", (int)keys->base_length, keys->base,
                         suffixes[i]);

        DEMAND(n > 0 && (size_t)n < sizeof helper && redis_slot(helper, (size_t)n) == slot);
    }
}

static void names_redis(const char *a, const char *b)
{
    static const char *const prefixes[] = {"", "p:", "{x}", "a{", "}"};
    redis_keys x, y;

    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        check_keys(&x, prefixes[i], a);
        check_keys(&y, prefixes[i], b);
        DEMAND(x.base_length != y.base_length || memcmp(x.base, y.base, x.base_length));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    char a[PAWL_NAME_MAX + 1] = "", b[PAWL_NAME_MAX + 1] = "";
    size_t first = end ? (size_t)(end - data) : 0;

    if (!end || first > PAWL_NAME_MAX || size - first - 1 > PAWL_NAME_MAX)
        return 0;
    memcpy(a, data, first);
    memcpy(b, end + 1, size - first - 1);
    if (!a[0] || !b[0] || !strcmp(a, b))
        return 0;
    names_redis(a, b);
    names_zk(a, b);
    names_sql(a, b);
    return 0;
}
