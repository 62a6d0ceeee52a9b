/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c - memory for nghttp2 that is wiped when freed: frames and header tables contain the
 * password and the token of the connection. The size of each block is stored in front of the block.
 */
#include <stdlib.h>

#include "etcd.h"

#define HEAD 16 /* keeps blocks aligned */

static void *wiped_malloc(size_t size, void *user)
{
    char *block = size <= SIZE_MAX - HEAD ? malloc(size + HEAD) : NULL;

    (void)user;
    if (!block)
        return NULL;
    memcpy(block, &size, sizeof size);
    return block + HEAD;
}

static void wiped_free(void *at, void *user)
{
    char *block = at;
    size_t size;

    (void)user;
    if (!block)
        return;
    block -= HEAD;
    memcpy(&size, block, sizeof size);
    explicit_bzero(block, size + HEAD);
    free(block);
}

static void *wiped_calloc(size_t n, size_t size, void *user)
{
    void *at = size && n > SIZE_MAX / size ? NULL : wiped_malloc(n * size, user);

    if (at)
        memset(at, 0, n * size);
    return at;
}

static void *wiped_realloc(void *at, size_t size, void *user)
{
    void *grown = wiped_malloc(size, user);
    size_t old;

    if (at && grown) {
        memcpy(&old, (char *)at - HEAD, sizeof old);
        memcpy(grown, at, old < size ? old : size);
        wiped_free(at, user);
    }
    return grown;
}

nghttp2_mem etcd_wiped_memory(void)
{
    return (nghttp2_mem){.malloc = wiped_malloc, .free = wiped_free, .calloc = wiped_calloc,
                         .realloc = wiped_realloc};
}
