/* SPDX-License-Identifier: Apache-2.0
 *
 * common.c - what every verb does the same way: options, messages, opening the client.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

/* One line, assembled first and written at once, so that lines of several processes on one
 * terminal don't mix. */
__attribute__((format(printf, 2, 0)))
static void say_line(const char *prefix, const char *format, va_list args, const char *suffix)
{
    char text[1024], line[2048];

    vsnprintf(text, sizeof text, format, args);
    text_copy(line, sizeof line, text);
    fprintf(stderr, "pawl: %s%s%s%s\n", prefix, *prefix ? ": " : "", line, suffix);
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

int option_next(tool *t, int argc, char **argv, const char *shorts, const struct option *longs)
{
    for (;;) {
        int c;

        opterr = 0;
        c = getopt_long(argc, argv, shorts, longs, NULL);
        switch (c) {
        case 'u':
            t->url = optarg;
            break;
        case OPT_JSON:
            t->json = true;
            break;
        case 'v':
            t->verbose = true;
            break;
        case 'h':
            return print_help(t->verb);
        case ':':
            usage_error(t, "'%s' needs a value", argv[optind - 1]);
            return OPT_BAD;
        case '?':
            if (optopt && optopt < 256)
                usage_error(t, "unknown option '-%c'", optopt);
            else
                usage_error(t, "unknown option '%s'", argv[optind - 1]);
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
    default: /* what the caller asked for can't be */
        return STATUS_USAGE;
    }
}

/* What to do, where the library's own words don't say it: they know the engine, we don't. */
static const char *advice(const pawl_error *err)
{
    if (err->code == PAWL_EAUTH)
        return err->text[0] ? "" : "; check PAWL_USER and PAWL_PASSWORD, and the rights there";
    return status_of(err->code) == STATUS_SERVICE
               ? "; check -u or PAWL_URL, and that the service is up"
               : "";
}

int failed(const char *what, const pawl_error *err)
{
    say("%s: %s%s", what, err->text[0] ? err->text : pawl_strerror(err->code), advice(err));
    return status_of(err->code);
}

static void log_line(void *arg, int level, const char *text)
{
    (void)arg;
    (void)level;
    say("%s", text);
}

int client_open(const tool *t, pawl_client **ret, pawl_client_options *options)
{
    pawl_client_options none = {0};
    pawl_error err = {0};
    const char *url = t->url ? t->url : secure_getenv("PAWL_URL");

    if (!t->url && !(url && *url))
        url = "local:";
    if (!options)
        options = &none;
    options->size = sizeof *options;
    options->log = t->verbose ? log_line : NULL;
    err.code = pawl_open(ret, url, options, &err);
    return err.code ? failed("can't open", &err) : 0;
}

int output_end(int status)
{
    if (!fflush(stdout) && !ferror(stdout))
        return status;
    say("can't write the output: %s", strerror(errno));
    return STATUS_SYSTEM;
}
