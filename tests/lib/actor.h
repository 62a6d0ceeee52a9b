/* SPDX-License-Identifier: Apache-2.0
 *
 * actor.h - what the halves of the actor share: the loop (actor.c) and the verbs (actor_verbs.c).
 */
#ifndef PAWL_TEST_ACTOR_H
#define PAWL_TEST_ACTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "pawl.h"

enum { MAX_WORDS = 16 };

extern pawl_client *client;

int64_t boot_ns(void);

/* An answer: VERB ID CODE NS, then the rest as formatted (begin it with a space), then the words
 * of err if the code is not 0 and there are any. */
void answer(const char *verb, const char *id, int code, const pawl_error *err, const char *format,
            ...) __attribute__((format(printf, 5, 6)));

/* Text as one word: blanks, control characters and % become %XX. In a static buffer, which is
 * used again by the eighth call after this one. */
const char *as_word(const char *text);
void from_word(char *word);

/* Do what the words say. False: no such verb. */
bool do_verb(int n, char **words);

/* Forget every object; only after the client is closed. */
void free_objects(void);

#endif
