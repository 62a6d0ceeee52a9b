/* SPDX-License-Identifier: Apache-2.0
 *
 * url.h - the URL functions that the core shares with engines inside libpawl.
 */
#ifndef PAWL_URL_H
#define PAWL_URL_H

#include <stdbool.h>
#include <stddef.h>

/* Decode %XX in text[0..length). The caller frees the result. NULL: out of memory, or malformed
 * (then *bad is set). %00 is malformed, because it would cut the text short. */
char *pawl__url_decode(const char *text, size_t length, bool *bad);

#endif
