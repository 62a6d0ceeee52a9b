/* SPDX-License-Identifier: Apache-2.0
 *
 * tool.h - shared by the verbs of the pawl command: exit codes, options, messages, output.
 *
 * Each verb is one function in one file, cmd_VERB.c, and one line in the table of pawl.c. A verb
 * gets its own argv (argv[0] is its name), returns the exit status, and frees all its memory.
 */
#ifndef PAWL_TOOL_H
#define PAWL_TOOL_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "pawl-observe.h"

/* Exit codes, as documented in pawl(1); the numbers are from sysexits.h and the shells. */
enum {
    STATUS_OK = 0,
    STATUS_NO = 1,        /* not held, not acquired: an answer, not an error */
    STATUS_USAGE = 64,
    STATUS_SERVICE = 69,
    STATUS_SYSTEM = 71,   /* this machine is out of processes, descriptors or memory */
    STATUS_LOST = 75,
    STATUS_CANT_RUN = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL = 128   /* plus the number of the signal */
};

typedef struct tool tool;

typedef struct verb {
    const char *name;
    const char *usage; /* one line, after "pawl " */
    const char *about; /* one line for the overview */
    const char *help;  /* the rest of --help: options and examples */
    int (*fn)(tool *, int argc, char **argv);
} verb;

struct tool {
    const verb *verb;
    const char *url; /* -u, else $PAWL_URL, else "local:" */
    char *own_url;   /* a copy of a -u with a password; wiped and freed by main */
    const char *layout; /* the value of --layout, which becomes a parameter of the URL */
    bool json;
    int verbose; /* how many -v */
};

int cmd_run(tool *, int argc, char **argv);
int cmd_show(tool *, int argc, char **argv);
int cmd_ls(tool *, int argc, char **argv);
int cmd_break(tool *, int argc, char **argv);
int cmd_latch(tool *, int argc, char **argv);
int cmd_top(tool *, int argc, char **argv);
int cmd_doctor(tool *, int argc, char **argv);
int cmd_bench(tool *, int argc, char **argv);
int cmd_serve(tool *, int argc, char **argv);
int cmd_version(tool *, int argc, char **argv);

/* ---- common.c: options, messages, the client ----------------------------------------------- */

/* Options that every verb takes: COMMON_LONG ends its table, COMMON_SHORT begins its string. */
enum { OPT_DONE = -1, OPT_BAD = 1000, OPT_HELP, OPT_JSON, OPT_LAYOUT, OPT_OWN };
#define COMMON_SHORT ":u:vh"
#define COMMON_LONG                                                                                \
    {"url", required_argument, NULL, 'u'}, {"json", no_argument, NULL, OPT_JSON},                  \
        {"layout", required_argument, NULL, OPT_LAYOUT},                                           \
        {"verbose", no_argument, NULL, 'v'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}

/* getopt_long that handles the common options itself. Returns the verb's own option, OPT_DONE, or
 * OPT_BAD (a message was printed; exit with STATUS_USAGE), or OPT_HELP (exit with 0). */
int option_next(tool *, int argc, char **argv, const char *shorts, const struct option *longs);

/* Wipe and free the copy of a URL with a password. */
void forget_url(tool *);

/* Parse the options of a verb that has none of its own. Returns OPT_DONE, OPT_BAD or OPT_HELP. */
int options_common(tool *, int argc, char **argv);

/* Print "pawl: ..." and a newline on stderr, control characters escaped. Any thread may call
 * this. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* While `on`, say() prints nothing, because the terminal is in use. */
void say_nothing(bool on);

/* Like say(), with "pawl: VERB: " and a hint at --help. Returns STATUS_USAGE. */
int usage_error(const tool *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The exit status for a failed Pawl call. */
int status_of(int code);

/* Print that `what` failed because of `err` (its text, or the text of its code), with advice.
 * Returns status_of(err->code). */
int failed(const tool *, const char *what, const pawl_error *err);

/* Show a status line on a terminal: one line on stderr, which the next call replaces and say()
 * removes. The line is cut to the terminal's width; NULL clears the line. */
void status_line(const char *text);

/* Flush stdout: a full disk or a closed pipe is an error. Returns `status`, or STATUS_SYSTEM after
 * a message. */
int output_end(int status);

/* ---- service.c: the client ----------------------------------------------------------------- */

/* Open the client that -u, $PAWL_URL or the default names. `options` may be NULL. -v decides which
 * log messages go to stderr. Returns 0, or the exit status after the message. */
int client_open(const tool *, pawl_client **ret, pawl_client_options *options);
/* The name of the user: the label of a client that may break locks. Pawl tells holders this
 * label. */
const char *operator_name(void);

/* Like client_open, without a message. Returns a Pawl code. */
int client_try(const tool *, pawl_client **ret, pawl_client_options *options, pawl_error *err);

/* The last warning of the library, or "". Returns buf. */
const char *last_warning(char *buf, size_t size);
/* The last warning about a call that failed, or "". Returns buf. */
const char *last_failure(char *buf, size_t size);

/* The URL that is used: -u, else $PAWL_URL, else "local:". */
const char *service_url(const tool *);

/* Does the client that was opened last keep its locks on this machine, without a server that might
 * be down? False before client_open has succeeded. */
bool service_is_here(void);

/* Has client_open succeeded? */
bool service_was_opened(void);

/* May the URL contain a password? In doubt: true. */
bool url_has_password(const char *url);

/* ---- name_info.c: the state of a name ------------------------------------------------------ */

typedef struct name_info {
    uint64_t token;     /* input: the token of the hold to look for; 0: none */
    bool used;          /* held or waited for, or a latch that is set */
    uint64_t type;      /* enum pawl_type */
    int64_t count;      /* semaphore's capacity, latch's count */
    int64_t pid;        /* of the holder with `token`; 0: no such holder, or not known */
    bool shared;        /* the hold with `token` is shared */
} name_info;

/* Inspect `name`. Returns a Pawl code. */
int inspect_name(pawl_client *, const char *name, name_info *, pawl_error *);

/* After PAWL_ESTATE: if `name` is not of this type, or is a semaphore with another number of
 * permits, print that. Returns whether this was the cause. */
bool say_misfit(pawl_client *, const char *name, uint64_t type, uint64_t permits);

/* Was this grant released, and is it kept only for the time of --at-least? */
bool left_over(const pawl_info *);

/* ---- duration.c ---------------------------------------------------------------------------- */

/* "5", "0.25", "250ms", "5s", "2m", "1h" to milliseconds, rounded up. False: not a duration. */
bool duration_parse(const char *text, int64_t *ret_ms);

/* "350 ms", "1.9 s", "12 s", "3 min 5 s", "2 h 10 min", "3 d 4 h": for people. Returns buf. */
const char *duration_text(char *buf, size_t size, int64_t ms);

/* ---- text.c: text of others, made harmless ------------------------------------------------ */

/* Decode one character. Returns the length in bytes, or 0 if the bytes are not UTF-8 (overlong
 * forms, surrogates and numbers beyond Unicode included). */
size_t text_decode(const char *text, uint32_t *ret);

/* Characters that control the terminal instead of being shown: C0, DEL, C1, line and paragraph
 * separators, and the marks that change the direction of the text. */
bool text_harmful(uint32_t c);

/* The length of `text`, or where to cut the text: at most `most` bytes, and no part of a
 * character. */
size_t text_bytes(const char *text, size_t most);

/* Print `text`. Control characters, invalid UTF-8 and direction overrides are escaped, because they
 * could move a terminal's cursor or hide text. */
void text_put(FILE *, const char *text);

/* Like text_put, into a buffer, cut to fit. Returns buf. */
const char *text_copy(char *buf, size_t size, const char *text);

/* Print `text` as a JSON string, quotes included; invalid UTF-8 becomes U+FFFD. */
void json_string(FILE *, const char *text);

/* ---- json.c -------------------------------------------------------------------------------- */

/* A row of pawl_inspect or pawl_list as members of a JSON object, without the braces. */
void json_row(FILE *, const pawl_info *);

/* "lock", "semaphore", "latch". */
const char *type_text(const pawl_info *);

#endif
