/* SPDX-License-Identifier: Apache-2.0
 *
 * run_options.c - the options of `pawl run`, with flock(1)'s names where both have the option.
 */
#include "run_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MIN_LEASE_MS 100

enum { OPT_AT_LEAST = OPT_OWN, OPT_KILL_AFTER, OPT_METRICS, OPT_WARN_AFTER, OPT_UNLOCK };

static bool parse_number(const char *text, long max, long *ret)
{
    char *end;

    errno = 0;
    *ret = strtol(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *ret <= max;
}

/* Returns 0, or STATUS_USAGE after the message. */
static int set_option(const tool *t, run_options *o, int c)
{
    long number;
    int64_t *ms = c == 'w'             ? &o->wait_ms
                  : c == 'l'           ? &o->lease_ms
                  : c == OPT_AT_LEAST  ? &o->at_least_ms
                  : c == OPT_KILL_AFTER ? &o->kill_after_ms
                  : c == OPT_WARN_AFTER ? &o->warn_after_ms
                                        : NULL;

    if (c == 's' || c == 'x' || c == 'e')
        o->shared = c == 's';
    if (c == 'F')
        return usage_error(t, "-F can't be: pawl stays beside the command to renew the lease");
    if (c == OPT_UNLOCK)
        return usage_error(t, "--unlock can't be: the lock ends with the command");
    if (c == OPT_METRICS)
        o->metrics = optarg;
    if ((c == 'n' || c == 'w') && o->wait_ms != PAWL_FOREVER)
        return usage_error(t, "-n and -w exclude each other");
    if (c == 'n')
        o->wait_ms = 0;
    if (ms && !duration_parse(optarg, ms))
        return usage_error(t, "'%s' is no duration; write 5, 0.25, 250ms, 5s, 2m or 1h", optarg);
    if (c == 'l' && o->lease_ms < MIN_LEASE_MS)
        return usage_error(t, "a lease of less than %dms can't be kept", MIN_LEASE_MS);
    if (c == 'p') {
        if (!parse_number(optarg, INT32_MAX, &number) || !number)
            return usage_error(t, "'%s' is no number of permits; 1 or more", optarg);
        o->permits = (uint32_t)number;
    }
    if (c == 'E') {
        if (!parse_number(optarg, 255, &number))
            return usage_error(t, "'%s' is no exit status; 0 to 255", optarg);
        o->not_acquired = (int)number;
    }
    return 0;
}

/* With sessions the lease is unknown (0) before the acquire: all grants end with the session, whose
 * length the service decides. */
int64_t known_lease(const pawl_client *client, const run_options *o)
{
    if (o->lease_ms)
        return o->lease_ms;
    return pawl_client_can(client, PAWL_CAN_LEASE) ? pawl_client_lease_ms(client) : 0;
}

int check_kill_after(const tool *t, const run_options *o, int64_t lease_ms)
{
    if (!lease_ms || o->kill_after_ms <= lease_ms / 2)
        return 0;
    return usage_error(t,
                       "--kill-after %lldms is more than half of the lease of %lldms: it would end "
                       "the command before a late renewal; make one shorter or -l longer",
                       (long long)o->kill_after_ms, (long long)lease_ms);
}

/* flock(1)'s way to pass a command line to a shell: NAME -c LINE. */
static bool is_shell_line(const char *text)
{
    return text && (!strcmp(text, "-c") || !strcmp(text, "--command"));
}

static int set_shell_line(const tool *t, run_options *o, int argc, char **argv)
{
    static char sh[] = "/bin/sh", c[] = "-c";
    char *shell = getenv("SHELL");

    if (argc != 1)
        return usage_error(t, "-c takes one line for the shell, in quotes");
    o->shell[0] = shell && *shell ? shell : sh;
    o->shell[1] = c;
    o->shell[2] = argv[0];
    o->command = o->shell;
    return 0;
}

static bool has_dashes(char **argv)
{
    while (*argv && strcmp(*argv, "--"))
        argv++;
    return *argv;
}

/* Parse the arguments after the options: NAME [--] CMD [ARG...], or NAME -c LINE. */
static int set_arguments(const tool *t, run_options *o, int argc, char **argv)
{
    if (!argc)
        return usage_error(t, "NAME and the command are missing");
    if (!strcmp(argv[-1], "--") && !has_dashes(argv)) /* a command without a name */
        return usage_error(t, "NAME is missing before '--': pawl run NAME -- CMD");
    o->name = argv[0];
    if (is_shell_line(argv[1])) {
        if (set_shell_line(t, o, argc - 2, argv + 2))
            return STATUS_USAGE;
    } else {
        if (argc > 1 && argv[1][0] == '-' && strcmp(argv[1], "--"))
            return usage_error(t, "'%s' after NAME: options come before it, the command after '--'",
                               argv[1]);
        o->command = argv + 1 + (argc > 1 && !strcmp(argv[1], "--"));
    }
    if (!*o->command)
        return usage_error(t, "the command is missing: pawl run %s -- CMD", o->name);
    if (o->permits && (o->shared || o->at_least_ms))
        return usage_error(t, "-p goes with neither -s nor --at-least");
    return check_kill_after(t, o, o->lease_ms); /* if unknown, checked when the client is open */
}

int run_options_parse(tool *t, run_options *o, int argc, char **argv)
{
    static const struct option longs[] = {
        {"at-least", required_argument, NULL, OPT_AT_LEAST},
        {"kill-after", required_argument, NULL, OPT_KILL_AFTER},
        {"metrics", required_argument, NULL, OPT_METRICS},
        {"warn-after", required_argument, NULL, OPT_WARN_AFTER},
        {"wait", required_argument, NULL, 'w'},
        {"timeout", required_argument, NULL, 'w'},
        {"nonblock", no_argument, NULL, 'n'},
        {"nb", no_argument, NULL, 'n'},
        {"shared", no_argument, NULL, 's'},
        {"exclusive", no_argument, NULL, 'x'},
        {"close", no_argument, NULL, 'o'}, /* the command inherits no descriptor anyway */
        {"no-fork", no_argument, NULL, 'F'},
        {"unlock", no_argument, NULL, OPT_UNLOCK},
        {"conflict-exit-code", required_argument, NULL, 'E'},
        COMMON_LONG};
    int c;

    while ((c = option_next(t, argc, argv, "+" COMMON_SHORT "nw:l:sxeoFp:E:", longs)) != OPT_DONE)
        if (c == OPT_BAD || c == OPT_HELP)
            return c;
        else if (set_option(t, o, c))
            return OPT_BAD;
    return set_arguments(t, o, argc - optind, argv + optind) ? OPT_BAD : OPT_DONE;
}
