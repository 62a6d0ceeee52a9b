/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h - a small test harness that speaks TAP.
 *
 *     CASE("a free lock is acquired at the first try")
 *     {
 *         CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_OK);
 *     }
 *
 * Every case runs in a process and process group of its own, with a time limit: a crash or a hang
 * is "not ok" for that case, and the other cases go on. A check that fails in any thread or peer
 * process ends its case at once. The runner never opens a client, so a case may fork peers
 * (actors.h) until the case itself opens a client.
 *
 *     program [--list] [-j JOBS] [FILTER]     FILTER: a part of the case's name
 *
 * $CHECK_LIMIT is the limit of one case in seconds, $CHECK_JOBS the number of cases that run at the
 * same time.
 */
#ifndef PAWL_TEST_CHECK_H
#define PAWL_TEST_CHECK_H

#include <stdint.h>
#include <stdlib.h>

typedef struct check_case {
    const char *title;
    void (*run)(void);
    struct check_case *next;
} check_case;

/* Defines and registers a case; the body follows the macro. */
#define CASE(title) CASE_AT(title, __LINE__)
#define CASE_AT(title, line) CASE_ON(title, line)
#define CASE_ON(text, line)                                                                        \
    static void case_##line(void);                                                                 \
    static check_case case_entry_##line = {.title = (text), .run = case_##line};                   \
    __attribute__((constructor)) static void case_register_##line(void)                            \
    {                                                                                              \
        check_register(&case_entry_##line);                                                        \
    }                                                                                              \
    static void case_##line(void)

#define CHECK(condition)                                                                           \
    ((condition) ? (void)0 : check_fail(__FILE__, __LINE__, "%s", #condition))
#define CHECK_EQ(have, want)                                                                       \
    check_eq(__FILE__, __LINE__, #have, (int64_t)(have), #want, (int64_t)(want))
#define CHECK_STR(have, want) check_str(__FILE__, __LINE__, #have, have, want)
/* Compare a result of a pawl function; a failure shows the names of the codes. */
#define CHECK_CODE(have, want) check_code(__FILE__, __LINE__, #have, have, want)
#define CHECK_OK(have) check_code(__FILE__, __LINE__, #have, have, 0)

void check_register(check_case *entry);
_Noreturn void check_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void check_eq(const char *file, int line, const char *expression, int64_t have,
              const char *wanted, int64_t want);
void check_str(const char *file, int line, const char *expression, const char *have,
               const char *want);
void check_code(const char *file, int line, const char *expression, int have, int want);

/* End the case as skipped: the case can't be run here. */
_Noreturn void check_skip(const char *reason);

/* Print a line of explanation. */
void check_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* `fn` is called at the end of each case that passed, and of each of its peers. */
void check_cleanup(void (*fn)(void));
void check_run_cleanup(void);

/* A name that no other case and no other run uses. A case and its peers get the same name. */
const char *check_name(const char *suffix);

/* Runs the cases; returns the program's exit status. argv[0] is ignored. */
int check_main(int argc, char **argv);

#endif
