/* SPDX-License-Identifier: Apache-2.0
 *
 * failing_memory.h - makes memory allocations fail at a place that a test chooses.
 *
 * A program with this file is linked so that calls of malloc and similar functions from Pawl's own
 * code (and from the test) come here first. Other libraries are not affected, because libuv aborts
 * when an allocation fails.
 */
#ifndef PAWL_TEST_FAILING_MEMORY_H
#define PAWL_TEST_FAILING_MEMORY_H

#include <stdbool.h>

/* From now on the n-th allocation fails (0: none): only this one, or all from this one on. */
void memory_fails(long n, bool all_after);
/* End the failures. Returns the number of allocations. The case fails if a block was not freed. */
long memory_is_back(void);
/* A text for messages that says which allocation fails. */
const char *memory_words(void);

#endif
