/* SPDX-License-Identifier: Apache-2.0
 *
 * common.c - shared by all verbs: options, messages, output.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../src/suggest.h"
#include "tool.h"

#define CLEAR_LINE "\r\033[K"

/* Both are accessed under stderr's own lock (flockfile): threads of the library call say(), too. */
static bool line_shown, silenced;

/* Format the whole line first and write it at once, so that lines of several processes on one
 * terminal don't mix. */
__attribute__((format(printf, 2, 0)))
static void say_line(const char *prefix, const char *format, va_list args, const char *suffix)
{
    char text[1024], line[2048];

    vsnprintf(text, sizeof text, format, args);
    text_copy(line, sizeof line, text);
    flockfile(stderr);
    if (!silenced)
        fprintf(stderr, "%spawl: %s%s%s%s\n", line_shown ? CLEAR_LINE : "", prefix,
                *prefix ? ": " : "", line, suffix);
    line_shown = false;
    funlockfile(stderr);
}

void say_nothing(bool on)
{
    flockfile(stderr);
    silenced = on;
    funlockfile(stderr);
}

static size_t terminal_width(void)
{
    struct winsize size;

    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col > 1 ? size.ws_col : 80u;
}

void status_line(const char *text)
{
    char line[1024] = "";
    size_t width = terminal_width() - 1; /* the last column would wrap */

    if (text) {
        memcpy(line, "pawl: ", 7);
        text_copy(line + 6, sizeof line - 6, text);
    }
    if (strlen(line) > width) {
        /* Don't cut inside a UTF-8 character: continuation bytes stay with the first byte. */
        while (width && ((unsigned char)line[width] & 0xc0) == 0x80)
            width--;
        line[width] = '\0';
    }
    flockfile(stderr);
    if (text || line_shown)
        fprintf(stderr, CLEAR_LINE "%s", line);
    line_shown = text != NULL;
    funlockfile(stderr);
}

void say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say_line("", format, args, "");
    va_end(args);
}

int usage_error(const tool *t, const char *format, ...)
{
    char hint[64];
    va_list args;

    snprintf(hint, sizeof hint, "; see 'pawl %s%s--help'", t->verb ? t->verb->name : "",
             t->verb ? " " : "");
    va_start(args, format);
    say_line(t->verb ? t->verb->name : "", format, args, hint);
    va_end(args);
    return STATUS_USAGE;
}

static int print_help(const verb *v)
{
    printf("usage: pawl %s\n\n%s\n%s", v->usage, v->about, v->help);
    return OPT_HELP;
}

void forget_url(tool *t)
{
    if (t->own_url)
        explicit_bzero(t->own_url, strlen(t->own_url));
    free(t->own_url);
    t->own_url = NULL;
}

/* Move a password out of the arguments, which ps(1) shows to every user. */
static void set_url(tool *t, char *text)
{
    forget_url(t);
    t->url = text;
    if (!url_has_password(text))
        return;
    t->url = t->own_url = strdup(text);
    if (!t->url) {
        say("out of memory");
        exit(STATUS_SYSTEM);
    }
    memset(text, 'x', strlen(text));
}

/* Ambiguous abbreviations of long options end here, too. */
static void unknown_option(const tool *t, const char *given, const struct option *longs)
{
    const char *names[32], *near;
    char word[32];
    size_t n = 0;

    if (optopt && optopt < 256) {
        usage_error(t, "unknown option '-%c'", optopt);
        return;
    }
    while (n < sizeof names / sizeof names[0] && longs[n].name) {
        names[n] = longs[n].name;
        n++;
    }
    given += strspn(given, "-");
    snprintf(word, sizeof word, "%.*s", (int)strcspn(given, "="), given);
    near = pawl__suggest(word, names, n);
    usage_error(t, "unknown option '--%s'%s%s%s", word, near ? " (did you mean '--" : "",
                near ? near : "", near ? "'?)" : "");
}

int option_next(tool *t, int argc, char **argv, const char *shorts, const struct option *longs)
{
    for (;;) {
        int c;

        opterr = 0;
        c = getopt_long(argc, argv, shorts, longs, NULL);
        switch (c) {
        case 'u':
            set_url(t, optarg);
            break;
        case OPT_JSON:
            t->json = true;
            break;
        case OPT_LAYOUT:
            t->layout = optarg;
            break;
        case 'v':
            t->verbose++;
            break;
        case 'h':
            return print_help(t->verb);
        case ':':
            usage_error(t, "'%s' needs a value", argv[optind - 1]);
            return OPT_BAD;
        case '?':
            unknown_option(t, argv[optind - 1], longs);
            return OPT_BAD;
        default:
            return c;
        }
    }
}

int options_common(tool *t, int argc, char **argv)
{
    static const struct option longs[] = {COMMON_LONG};

    return option_next(t, argc, argv, COMMON_SHORT, longs);
}

int status_of(int code)
{
    switch (code) {
    case 0:
        return STATUS_OK;
    case PAWL_EBUSY:
    case PAWL_ETIMEDOUT:
    case PAWL_ECANCELED:
    case PAWL_ENOTHELD:
        return STATUS_NO;
    case PAWL_ELOST:
        return STATUS_LOST;
    case PAWL_ECONN:
    case PAWL_EAUTH:
    case PAWL_EPROTO:
    case PAWL_EBACKEND:
    case PAWL_EQUORUM:
    case PAWL_EUNKNOWN:
        return STATUS_SERVICE;
    case PAWL_ENOMEM:
        return STATUS_SYSTEM;
    default: /* the request can't be fulfilled */
        return STATUS_USAGE;
    }
}

/* Advice for an error, unless the library's text has better advice: the library knows the
 * engine. */
static const char *advice(const pawl_error *err, const char *why, bool known)
{
    if (err->code == PAWL_EAUTH)
        return known ? "" : "; check PAWL_USER and PAWL_PASSWORD, and the rights there";
    if (err->code == PAWL_EQUORUM)
        return strstr(why, "too young")
                   ? "; a node counts when it has run for as long as a lease: wait, or see settle "
                     "in pawl(7)"
                   : "; check the nodes that are not ok";
    if (err->code == PAWL_ECONN && !service_is_here() && why[strlen(why) - 1] != '?')
        return "; check the host and port in -u or PAWL_URL, and that the service is up";
    return "";
}

/* The text of an error. An asynchronous call returns only a code; its text is in the log. */
static const char *words(const pawl_error *err, char *buf, size_t size)
{
    if (err->text[0])
        return err->text;
    if (status_of(err->code) != STATUS_NO && last_failure(buf, size)[0])
        return buf;
    return pawl_strerror(err->code);
}

/* This machine ran out of descriptors or memory. Services without a server return such an errno,
 * and so does opening any service. */
static bool machine_refused(const pawl_error *err)
{
    return err->code == PAWL_EBACKEND && (service_is_here() || !service_was_opened()) &&
           (err->backend == EMFILE || err->backend == ENFILE || err->backend == ENOMEM);
}

/* "can't show it" and "'x': no answer" are said as "can't show 'x': no answer". */
int failed(const tool *t, const char *what, const pawl_error *err)
{
    char buf[256] = "";
    const char *why = words(err, buf, sizeof buf), *it = strstr(what, " it");
    bool named = it && !it[3] && why[0] == '\'';

    (void)t;
    if (err->code == PAWL_EINVAL && err->text[0]) /* "the name is empty" needs no "can't" */
        say("%s", err->text);
    else
        say("%.*s%s%s%s", named ? (int)(it - what) : (int)strlen(what), what,
            named ? " " : ": ", why, advice(err, why, err->text[0] || buf[0]));
    return machine_refused(err) ? STATUS_SYSTEM : status_of(err->code);
}

int output_end(int status)
{
    if (!fflush(stdout) && !ferror(stdout))
        return status;
    say("can't write the output: %s", strerror(errno));
    return STATUS_SYSTEM;
}
