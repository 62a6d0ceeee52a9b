/* SPDX-License-Identifier: Apache-2.0
 *
 * failing_memory.h - requests for memory that fail when a test wants it.
 *
 * A program with this in it is linked so that the calls of malloc and its kin in Pawl's own code
 * (and in the test) come here first; other libraries are not touched, since libuv aborts without
 * memory.
 */
#ifndef PAWL_TEST_FAILING_MEMORY_H
#define PAWL_TEST_FAILING_MEMORY_H

#include <stdbool.h>

/* From now on the n-th request fails (0: none), only that one or all from there on. */
void memory_fails(long n, bool all_after);
/* The end of it; how many requests there were. The case fails if a block was not given back. */
long memory_is_back(void);
/* Which one fails, for messages. */
const char *memory_words(void);

#endif
