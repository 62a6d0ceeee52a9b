/* SPDX-License-Identifier: Apache-2.0
 *
 * failing_memory.c - see failing_memory.h. Blocks are counted when they are allocated and freed.
 */
#include "failing_memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#include "check.h"

static atomic_bool counting, sticky;
static atomic_long asked, fail_at, blocks;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
void __wrap_free(void *block);

static bool fails(void)
{
    long n, at = atomic_load(&fail_at);

    if (!atomic_load(&counting))
        return false;
    n = atomic_fetch_add(&asked, 1) + 1;
    if (at == 0 || n < at || (n > at && !atomic_load(&sticky)))
        return false;
    errno = ENOMEM;
    return true;
}

static void *given(void *block)
{
    if (block && atomic_load(&counting))
        atomic_fetch_add(&blocks, 1);
    return block;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : given(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : given(__real_calloc(n, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    void *block = fails() ? NULL : __real_realloc(old, size);

    return old ? block : given(block);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : given(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t size)
{
    return fails() ? NULL : given(__real_strndup(text, size));
}

void __wrap_free(void *block)
{
    if (block && atomic_load(&counting))
        atomic_fetch_sub(&blocks, 1);
    __real_free(block);
}

void memory_fails(long n, bool all_after)
{
    atomic_store(&sticky, all_after);
    atomic_store(&fail_at, n);
    atomic_store(&asked, 0);
    atomic_store(&blocks, 0);
    atomic_store(&counting, true);
}

long memory_is_back(void)
{
    atomic_store(&counting, false);
    if (atomic_load(&blocks) != 0)
        check_fail(__FILE__, __LINE__, "%s: %ld blocks are left", memory_words(),
                   atomic_load(&blocks));
    return atomic_load(&asked);
}

const char *memory_words(void)
{
    static _Thread_local char text[64];

    snprintf(text, sizeof text, "request %ld fails%s", atomic_load(&fail_at),
             atomic_load(&sticky) ? " and all after it" : "");
    return text;
}
