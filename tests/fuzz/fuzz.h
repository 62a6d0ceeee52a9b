/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz.h - a fuzz target is a function that takes any bytes and aborts if a rule is violated.
 * libFuzzer calls this function with random bytes, replay.c with the bytes of the corpus.
 */
#ifndef PAWL_TEST_FUZZ_H
#define PAWL_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEMAND(condition)                                                                          \
    ((condition) ? (void)0                                                                         \
                 : (fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition), abort()))

#endif
