/* SPDX-License-Identifier: Apache-2.0
 *
 * actor.h - the interface between the two halves of the actor: the loop (actor.c) and the verbs
 * (actor_verbs.c).
 */
#ifndef PAWL_TEST_ACTOR_H
#define PAWL_TEST_ACTOR_H

#include <stdbool.h>
#include <stdint.h>

#include "pawl.h"

enum { MAX_WORDS = 16 };

extern pawl_client *client;

int64_t boot_ns(void);

/* Print an answer: VERB ID CODE NS, then the formatted text (which must begin with a space), then
 * the text of err if the code is not 0. */
void answer(const char *verb, const char *id, int code, const pawl_error *err, const char *format,
            ...) __attribute__((format(printf, 5, 6)));

/* Encode text as one word: blanks, control characters and % become %XX. The result is in a static
 * buffer, which the eighth call after this one reuses. */
const char *as_word(const char *text);
void from_word(char *word);

/* Carry out the command in `words`. False: no such verb. */
bool do_verb(int n, char **words);

/* Free every object; to be called after the client was closed. */
void free_objects(void);

#endif
