/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.h - a hash of a text (FNV-1a, 64 bits), for tables and for short ids of rows.
 */
#ifndef PAWL_KIT_HASH_H
#define PAWL_KIT_HASH_H

#include <stdint.h>
#include <string.h>

static inline uint64_t kit_hash(const char *text, size_t length)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return h;
}

static inline uint64_t kit_hash_text(const char *text)
{
    return kit_hash(text, strlen(text));
}

#endif
