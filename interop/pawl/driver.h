/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.h - what the halves of Pawl's driver share: the lines (driver.c) and the verbs (verbs.c).
 */
#ifndef PAWL_INTEROP_DRIVER_H
#define PAWL_INTEROP_DRIVER_H

#include "pawl.h"

enum { MAX_WORDS = 8 };

/* One command: VERB ID ARGUMENT ..., unused words are NULL. */
struct command {
    struct command *next;
    char *words[MAX_WORDS];
    char line[512];
};

/* ID STATUS MICROSECONDS WORDS, as one line. */
void say(const char *id, const char *status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Say what became of a command: ok and the words given, busy, or error and the code's name. */
void say_code(const char *id, int code, const pawl_error *err, const char *words);

/* open CLIENT PORT [WATCHDOG_MS] [PARAMETER=VALUE]; `query` is what else the URL says. */
void do_open(const struct command *c, const char *query, const char *scheme);
void do_close(const struct command *c);

/* Carry out any other command, in the thread that is its owner. */
void do_verb(const struct command *c);

#endif
