/* SPDX-License-Identifier: Apache-2.0
 *
 * suggest.h - "did you mean ...?" for a mistyped word. Part of the library and of the tool; depends
 * on nothing else of Pawl's.
 */
#ifndef PAWL_SUGGEST_H
#define PAWL_SUGGEST_H

#include <stddef.h>

/* The entry that is most similar to `word`, or NULL. Similar means that at most two characters, and
 * at most a third of the word, are missing, too many, wrong or swapped. Entries may be NULL. */
const char *pawl__suggest(const char *word, const char *const *list, size_t n);

#endif
