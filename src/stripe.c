/* SPDX-License-Identifier: Apache-2.0
 *
 * stripe.c - maps many keys to few locks. The hash must never change: programs of different
 * versions must agree on the stripe of a key.
 */
#include <stdio.h>

#include "engine.h"

/* FNV-1a, then a final mix so that the low bits depend on every byte. */
static uint64_t hash(const unsigned char *bytes, size_t n)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < n; i++)
        h = (h ^ bytes[i]) * 1099511628211u;
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    return h ^ h >> 33;
}

int pawl_stripe(char *ret, size_t size, const char *base, const void *key, size_t key_len,
                uint32_t n)
{
    char name[PAWL_NAME_MAX + 1];
    int length;

    if (!ret || !base || (!key && key_len) || n == 0)
        return PAWL_EINVAL;
    length = snprintf(name, sizeof name, "%s#%u", base, (unsigned)(hash(key, key_len) % n));
    if (length < 0 || (size_t)length >= sizeof name || (size_t)length >= size)
        return PAWL_EINVAL;
    memcpy(ret, name, (size_t)length + 1);
    return 0;
}
