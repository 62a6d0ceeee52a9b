/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.c - looking up a scheme or an alias; registry.h has the list, and modules.c finds the
 * engine. This file refers to no engine, so that the URL parser can be linked without engines.
 */
#include "registry.h"

#define ENTRY(scheme, alias, how, symbol) {scheme, alias, PAWL_URL_##how},
static const struct engine_entry entries[] = {PAWL_ENGINES(ENTRY, ENTRY)};
#undef ENTRY

static bool equal(const char *name, const char *word, size_t length)
{
    return name && strlen(name) == length && !memcmp(name, word, length);
}

const struct engine_entry *pawl__registry_find(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if (equal(entries[i].scheme, word, length) || equal(entries[i].alias, word, length))
            return &entries[i];
    return NULL;
}
