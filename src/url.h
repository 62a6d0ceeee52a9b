/* SPDX-License-Identifier: Apache-2.0
 *
 * url.h - what engines inside libpawl share with the core about URLs.
 */
#ifndef PAWL_URL_H
#define PAWL_URL_H

#include <stdbool.h>
#include <stddef.h>

/* text[0..length) with its %XX decoded, for the caller to free; NULL: no memory, or malformed (then
 * *bad is set). %00 is malformed: it would cut the text short. */
char *pawl__url_decode(const char *text, size_t length, bool *bad);

#endif
