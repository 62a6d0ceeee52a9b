/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h - see fuzz_names.c. The two names differ and are not empty.
 */
#ifndef PAWL_TEST_FUZZ_NAMES_H
#define PAWL_TEST_FUZZ_NAMES_H

#include "fuzz.h"

void names_zk(const char *a, const char *b);
void names_sql(const char *a, const char *b);

#endif
