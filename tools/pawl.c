/* SPDX-License-Identifier: Apache-2.0
 *
 * pawl.c - the pawl command: the table of verbs, and the help that goes with it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "../src/suggest.h"
#include "guardian.h"
#include "tool.h"

#define SERVICE_HELP                                                                               \
    "  -u URL              the service; default: $PAWL_URL, else local:\n"                         \
    "  --layout NAME       how locks are stored there: pawl, redisson (Redis),\n"                  \
    "                      advisory (PostgreSQL), session (MariaDB, MySQL)\n"                      \
    "  -v                  print the holder, the server, warnings and the lines of a trace:\n"     \
    "                      URL on stderr; -vv: everything that the library logs\n"
#define COMMON_HELP SERVICE_HELP "  --json              print JSON\n"

static const verb verbs[] = {
    {"run",
     "run [-n | -w DUR] [-l LEASE] [-s] [-p PERMITS] [-E CODE] [--at-least DUR] [--kill-after DUR]"
     " [--warn-after DUR] [--metrics FILE] NAME -- CMD [ARG...]",
     "Run a command while holding a lock.",
     "\n"
     "  -n                  don't wait: end with CODE if somebody else holds the lock\n"
     "  -w DUR              wait at most DUR; default: no limit\n"
     "  -s                  shared: runs with -s together, but none beside a run without -s\n"
     "  -p PERMITS          at most PERMITS commands at a time\n"
     "  -l LEASE            the lock ends LEASE after its last renewal; default 30s\n"
     "  -E CODE             exit status if the lock was not acquired; default 1\n"
     "  --at-least DUR      keep the lock for at least DUR, however short the command\n"
     "  --kill-after DUR    from SIGTERM to SIGKILL when the lock is lost; default 5s or LEASE/3\n"
     "  --metrics FILE      write metrics for Prometheus' node_exporter\n"
     "  --warn-after DUR    warn once, with the holder, after waiting DUR; default 30s, 0: never\n"
     SERVICE_HELP
     "\n"
     "flock(1)'s options work too: -x, -e, -o, NAME -c LINE (for the shell), and the long ones.\n"
     "Durations: 5, 0.25, 250ms, 5s, 2m, 1h. The command sees PAWL_NAME, PAWL_TOKEN, PAWL_URL.\n"
     "\n"
     "Status: the command's; 128+N if signal N ended it; CODE not acquired; 64 usage;\n"
     "69 service unavailable; 75 the lock was lost while the command ran; 126, 127 as in a shell.\n"
     "\n"
     "  one at a time           pawl run backup -- /usr/local/bin/backup --full\n"
     "  skip if it runs         pawl run -n report -- ./report.sh\n"
     "  wait 10 s, then 99      pawl run -w 10 -E 99 deploy -- ./deploy production\n"
     "  at most 4 at a time     pawl run -p 4 convert -- ffmpeg -i in.mov out.mp4\n"
     "\n"
     "Once a minute, though the crontabs of several users have the job: create, once, a folder\n"
     "that their group may write (not below /run or /var/lock, which a reboot clears), and use\n"
     "the same URL for all:\n"
     "\n"
     "  install -d -m 2770 -g GROUP /var/lib/jobs\n"
     "  pawl run -n --at-least 50s -u local:/var/lib/jobs tick -- ./tick\n",
     cmd_run},
    {"show", "show [--json] [-u URL] NAME", "Show the holders and the waiters of a lock.",
     "\n" COMMON_HELP "\n"
     "Status: 0 if the lock is held, 1 if the lock is free.\n"
     "\n"
     "  pawl show backup\n"
     "  pawl show --json backup | jq .holders[0].pid\n"
     "  pawl show backup >/dev/null && echo busy\n",
     cmd_show},
    {"ls", "ls [--json] [--watch[=INTERVAL]] [-u URL] [PATTERN]", "List the names in use.",
     "\n"
     "  --watch[=INTERVAL]  list again every INTERVAL; default 2s\n" COMMON_HELP "\n"
     "PATTERN is a glob with * ? [..]; quote it. Status: 0, also if no name is in use.\n"
     "\n"
     "  pawl ls\n"
     "  pawl ls 'stock:*'\n",
     cmd_ls},
    {"top", "top [-i INTERVAL] [-u URL] [PATTERN]", "Watch locks live on the terminal.",
     "\n"
     "  -i INTERVAL         how often the service is asked; default 2s\n" SERVICE_HELP "\n"
     "The locks with the most waiters come first. Keys: Enter opens a lock with its queue,\n"
     "s sorts, / filters, b breaks (asks first), ? explains all keys, q quits.\n"
     "\n"
     "  pawl top\n"
     "  pawl top -u redis://cache1 'stock:*'\n",
     cmd_top},
    {"break", "break [--json] [-u URL] NAME", "Take a lock away from its holder.",
     "\n" COMMON_HELP "\n"
     "The holder is notified, but may be writing at this moment: look with 'pawl show' first.\n"
     "Status: 0 if the lock was held, 1 if nobody held the lock.\n"
     "\n"
     "  pawl break backup\n",
     cmd_break},
    {"latch", "latch set NAME N | down [-a] NAME | wait [-n | -w DUR] NAME | get NAME",
     "Set, count down, wait for or read a count-down latch.",
     "\n"
     "  -a                  down: count down to 0 at once\n"
     "  -n                  wait: return at once; the status tells whether the count is 0\n"
     "  -w DUR              wait: at most DUR; default: no limit\n" COMMON_HELP "\n"
     "Status: 0; 1 if the count was not 0 in time (wait) or the latch is already set (set).\n"
     "\n"
     "  pawl latch set ready 3      three parts must start\n"
     "  pawl latch down ready       each part counts down\n"
     "  pawl latch wait -w 1m ready go on when all have started\n",
     cmd_latch},
    {"doctor", "doctor [-l LEASE] [--json] [-u URL]",
     "Find settings and faults that break locks on this service.",
     "\n"
     "  -l LEASE            the lease that round trips are compared with; default 30s\n"
     COMMON_HELP "\n"
     "Checks eviction, persistence, replicas, clocks, rights, TLS, tables, sessions and round\n"
     "trips, as far as the service tells, and uses locks with names that begin with pawl-doctor-.\n"
     "Status: 0 sound, 1 findings, 69 the service did not answer.\n"
     "\n"
     "  pawl doctor -u redis://cache1\n"
     "  pawl doctor --json -u redis://cache1 | jq '.findings[].id'\n",
     cmd_doctor},
    {"bench", "bench [-n COUNT] [-t DUR] [-c CLIENTS] [--json] [-u URL]",
     "Measure how fast locks are on this service.",
     "\n"
     "  -n COUNT            at most COUNT measurements of each kind; default 10000\n"
     "  -t DUR              at most DUR for each kind; default 2s\n"
     "  -c CLIENTS          the number of clients for the rate; default 4\n"
     COMMON_HELP "\n"
     "Measures a pair (acquire and release), a hand-over between two clients, and the rate of\n"
     "several clients with locks of their own. Ctrl-C ends a run early and prints the results.\n"
     "Status: 0; 1 if another pawl bench is running; 69 the service did not answer.\n"
     "\n"
     "  pawl bench -u redis://cache1\n"
     "  pawl bench -t 500ms --json -u redis://cache1 | jq .pair.p99_us\n",
     cmd_bench},
    {"serve",
     "serve [--listen ADDR:PORT] [--host NAME] [--interval DUR]"
     " [--allow-break [--token-file FILE]]",
     "Show the locks of a service on a web page.",
     "\n"
     "  --listen ADDR:PORT  default 127.0.0.1:7295; [::1]:7295, or 7295 alone; port 0: any\n"
     "  --host NAME         answer to this name, too (a proxy's); may be repeated\n"
     "  --interval DUR      how often the service is asked; default 2s\n"
     "  --allow-break       the page can break locks, with a token\n"
     "  --token-file FILE   read the token from FILE; default: a random token, printed\n"
     SERVICE_HELP "\n"
     "Also there: /metrics for Prometheus, /api/v1/... as JSON, /healthz.\n"
     "Status: 0 when ended by a signal; 64 usage; 71 can't listen.\n"
     "\n"
     "  pawl serve -u redis://db1\n",
     cmd_serve},
    {"version", "version [--json]", "Show the versions of pawl, its engines and libraries.",
     "\n  --json              print JSON\n", cmd_version},
};

#define NVERBS (sizeof verbs / sizeof verbs[0])

static const verb *find_verb(const char *name)
{
    for (size_t i = 0; i < NVERBS; i++)
        if (!strcmp(verbs[i].name, name))
            return &verbs[i];
    return NULL;
}

static int overview(FILE *out, int status)
{
    fputs("usage: pawl COMMAND [OPTION...] [ARGUMENT...]\n\n", out);
    for (size_t i = 0; i < NVERBS; i++)
        fprintf(out, "  %-7s %s\n", verbs[i].name, verbs[i].about);
    fputs("\n"
          "  pawl run backup -- ./backup.sh      one backup at a time on this machine\n"
          "  pawl run -n backup -- ./backup.sh   ... and give up at once if one is running\n"
          "  pawl show backup                    its holder and its waiters\n"
          "\n"
          "The service: -u URL, else $PAWL_URL, else local: (this machine, no server).\n"
          "'pawl COMMAND --help' tells more; so do pawl(1) and pawl(7).\n",
          out);
    return status;
}

static int unknown_verb(const tool *t, const char *name)
{
    const char *names[NVERBS], *near;
    char list[16 * NVERBS], *end = list;

    for (size_t i = 0; i < NVERBS; i++) {
        names[i] = verbs[i].name;
        end = stpcpy(stpcpy(end, i ? ", " : ""), verbs[i].name);
    }
    near = pawl__suggest(name, names, NVERBS);
    if (near)
        return usage_error(t, "no command '%s' (did you mean '%s'?)", name, near);
    return usage_error(t, "no command '%s'; there are %s", name, list);
}

/* Parse the options before the verb. Returns -1 if argv[optind] is the verb, or the exit status. */
static int leading_options(tool *t, int argc, char **argv)
{
    static const struct option longs[] = {{"version", no_argument, NULL, 'V'}, COMMON_LONG};
    int c = 0;

    while (argc > 1 && c != OPT_DONE) {
        if (optind < argc && (!strcmp(argv[optind], "--help") || !strcmp(argv[optind], "-h")))
            return overview(stdout, STATUS_OK);
        c = option_next(t, argc, argv, "+" COMMON_SHORT "V", longs);
        if (c == 'V') {
            printf("pawl %s\n", pawl_version());
            return STATUS_OK;
        }
        if (c == OPT_BAD)
            return STATUS_USAGE;
    }
    return -1;
}

int main(int argc, char **argv)
{
    static char help_option[] = "--help";
    tool t = {0};
    int status;

    guardian_title_area(argc, argv);
    if (getauxval(AT_SECURE)) {
        say("refuses to run with another user's rights (setuid); call it as that user instead");
        return STATUS_USAGE;
    }
    status = leading_options(&t, argc, argv);
    if (status >= 0)
        return output_end(status);
    if (optind >= argc)
        return overview(stderr, STATUS_USAGE);
    argc -= optind;
    argv += optind;
    if (!strcmp(argv[0], "help")) {
        if (argc < 2)
            return output_end(overview(stdout, STATUS_OK));
        argv[0] = argv[1];
        argv[1] = help_option;
        argc = 2;
    }
    t.verb = find_verb(argv[0]);
    if (!t.verb)
        return unknown_verb(&t, argv[0]);
    optind = 0; /* GNU getopt: start over, with the verb's own way of ordering arguments */
    status = t.verb->fn(&t, argc, argv);
    forget_url(&t);
    return output_end(status);
}
