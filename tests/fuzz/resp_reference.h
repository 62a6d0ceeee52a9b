/* SPDX-License-Identifier: Apache-2.0
 *
 * resp_reference.h - a second reader of RESP, for comparison with the first one.
 *
 * The reader is simple: recursive, byte after byte, with no state between calls, and prints instead
 * of building a tree. A reply is printed like this:
 *
 *     [1, "ab", {x: true}]  ->  *3(:[1]=1 $[ab] %2(+[x] #[t]=1 ) )
 */
#ifndef PAWL_TEST_RESP_REFERENCE_H
#define PAWL_TEST_RESP_REFERENCE_H

#include "redis/resp.h"

struct text {
    char *data;
    size_t length, room;
};

void text_add(struct text *t, const void *bytes, size_t length);
void text_format(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool text_same(const struct text *a, const struct text *b);
void text_free(struct text *t);

/* Read one reply and print the reply. No limit may be 0. */
enum resp_result reference_read(const char *data, size_t length, const resp_limits *limits,
                                struct text *out, size_t *size);

/* Print a reply that resp_next has read from data[0..reply->size). Ends the program if the reply is
 * not well-formed: nodes or texts outside the data. */
void reference_print(const resp_reply *reply, const char *data, struct text *out);

#endif
