/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_run.c - pawl run: a command while a lock is held.
 *
 * In order: block signals, open the client, acquire, start the guardian, start the command, and
 * then one loop that keeps the guardian's deadline up to date, passes signals on and watches the
 * command, until it has ended. Whoever comes first of command and guardian decides: see guardian.h.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "group.h"
#include "guardian.h"
#include "hold.h"
#include "job.h"

#define NS_PER_MS INT64_C(1000000)
#define MIN_LEASE_MS 100

/* ---- Options ------------------------------------------------------------------------------- */

enum { OPT_AT_LEAST = OPT_OWN, OPT_KILL_AFTER };

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
                                        : NULL;

    if (c == 's')
        o->shared = true;
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

/* A `watchdog` in the URL sets the lease, and the library lets it win over -l. */
static bool url_sets_lease(const tool *t)
{
    const char *url = t->url ? t->url : secure_getenv("PAWL_URL");

    return url && strstr(url, "watchdog=");
}

/* The lease if it is known before the lock is acquired, else 0. */
static int64_t known_lease(const tool *t, const run_options *o)
{
    return o->lease_ms ? o->lease_ms : url_sets_lease(t) ? 0 : DEFAULT_LEASE_MS;
}

static int check_kill_after(const tool *t, const run_options *o, int64_t lease_ms)
{
    if (!lease_ms || o->kill_after_ms <= lease_ms / 2)
        return 0;
    return usage_error(t,
                       "--kill-after %lldms is more than half of the lease of %lldms: it would end "
                       "the command before a late renewal; make one shorter or -l longer",
                       (long long)o->kill_after_ms, (long long)lease_ms);
}

/* What is left after the options: NAME [--] CMD [ARG...]. */
static int set_arguments(const tool *t, run_options *o, int argc, char **argv)
{
    if (!argc)
        return usage_error(t, "NAME and the command are missing");
    o->name = argv[0];
    if (argc > 1 && argv[1][0] == '-' && strcmp(argv[1], "--"))
        return usage_error(t, "'%s' after NAME: options come before it, the command after '--'",
                           argv[1]);
    argv += 1 + (argc > 1 && !strcmp(argv[1], "--"));
    if (!*argv)
        return usage_error(t, "the command is missing: pawl run %s -- CMD", o->name);
    o->command = argv;
    if (o->permits && (o->shared || o->at_least_ms))
        return usage_error(t, "-p goes with neither -s nor --at-least");
    return check_kill_after(t, o, known_lease(t, o));
}

/* Returns OPT_DONE, OPT_BAD or OPT_HELP. */
static int parse(tool *t, run_options *o, int argc, char **argv)
{
    static const struct option longs[] = {
        {"at-least", required_argument, NULL, OPT_AT_LEAST},
        {"kill-after", required_argument, NULL, OPT_KILL_AFTER},
        COMMON_LONG};
    int c;

    while ((c = option_next(t, argc, argv, "+" COMMON_SHORT "nw:l:sp:E:", longs)) != OPT_DONE)
        if (c == OPT_BAD || c == OPT_HELP)
            return c;
        else if (set_option(t, o, c))
            return OPT_BAD;
    return set_arguments(t, o, argc - optind, argv + optind) ? OPT_BAD : OPT_DONE;
}

/* ---- Running ------------------------------------------------------------------------------- */

typedef struct run {
    hold hold;
    guardian guardian;
    job job;
    signals signals;
    int64_t kill_after_ms;
    int tick_ms; /* how often the guardian hears of the lease */
} run;

static void poll_events(run *r, int timeout_ms)
{
    struct pollfd fds[] = {{.fd = r->signals.fd, .events = POLLIN},
                           {.fd = hold_fd(&r->hold), .events = POLLIN},
                           {.fd = atomic_load(&r->hold.lost) ? -1 : r->hold.event,
                            .events = POLLIN}};

    poll(fds, 3, timeout_ms);
    hold_process(&r->hold);
}

/* A grant may begin with a short lease that the first renewal makes full (a hand-over on a server).
 * The command starts when there is time to end it. Returns the deadline, or 0 if it was lost. */
static int64_t settle(run *r)
{
    for (;;) {
        int64_t deadline = hold_deadline(&r->hold);

        if (!deadline || atomic_load(&r->hold.lost))
            return 0;
        if (deadline - boot_now() > guardian_needs(r->kill_after_ms * NS_PER_MS))
            return deadline;
        poll_events(r, 10);
    }
}

static int prepare_environment(const run *r)
{
    char token[24];

    snprintf(token, sizeof token, "%llu", (unsigned long long)hold_token(&r->hold));
    return setenv("PAWL_NAME", r->hold.options->name, 1) || setenv("PAWL_TOKEN", token, 1) ||
           unsetenv("PAWL_PASSWORD");
}

static void handle_signals(run *r)
{
    int n;

    while ((n = signals_next(&r->signals)))
        if (n != SIGCHLD)
            job_signal(&r->job, n);
}

/* Until the command has ended. */
static void watch(run *r)
{
    bool told = false, complained = false;

    while (!job_ended(&r->job)) {
        int64_t deadline = hold_deadline(&r->hold);
        int error;

        if (deadline)
            guardian_deadline(&r->guardian, deadline);
        if (!told && atomic_load(&r->hold.lost)) {
            guardian_lost(&r->guardian);
            told = true;
        }
        error = guardian_check(&r->guardian);
        if (error && !complained)
            say("can't start the guardian again: %s; trying on", strerror(error));
        complained = error != 0;
        poll_events(r, r->tick_ms);
        handle_signals(r);
    }
    if (!told && atomic_load(&r->hold.lost))
        guardian_lost(&r->guardian);
}

static int lost_status(const run *r, const char *what)
{
    say("'%s' was lost%s: its lease ended or it was broken", r->hold.options->name, what);
    return STATUS_LOST;
}

/* The command has ended: give the lock back and find the exit status. */
static int finish(run *r)
{
    bool in_time = guardian_finish(&r->guardian);
    int status = job_reap(&r->job), code = 0;

    if (!atomic_load(&r->hold.lost))
        code = hold_release(&r->hold);
    if (!in_time || atomic_load(&r->hold.lost) || code == PAWL_ELOST || code == PAWL_ENOTHELD)
        return lost_status(r, in_time ? " while the command ran"
                                      : " while the command ran, and the command was ended");
    if (code)
        say("'%s' may still be held until its lease ends: %s", r->hold.options->name,
            r->hold.err.text[0] ? r->hold.err.text : pawl_strerror(code));
    return status;
}

static int cant(run *r, const char *what, int error)
{
    say("can't start %s: %s", what, strerror(error));
    hold_release(&r->hold);
    return STATUS_SYSTEM;
}

/* The lock is held. */
static int run_held(run *r)
{
    int64_t deadline = settle(r);
    int error;

    if (!deadline)
        return lost_status(r, " before the command was started");
    if (prepare_environment(r))
        return cant(r, "the command", ENOMEM);
    error = guardian_open(&r->guardian, deadline, r->kill_after_ms);
    if (error)
        return cant(r, "the guardian", error);
    error = job_start(&r->job, r->hold.options->command, &r->signals, &r->guardian);
    if (error)
        return cant(r, "the command", error);
    watch(r);
    return finish(r);
}

/* The times that follow from the lease. Returns HELD, or the exit status after giving it back. */
static int set_times(run *r, const tool *t, const run_options *o)
{
    int64_t lease = known_lease(t, o), tick;

    if (!lease) { /* the URL's: as long as the new grant is valid, nearly */
        int64_t deadline = hold_deadline(&r->hold);

        lease = deadline ? (deadline - boot_now()) / NS_PER_MS + 1 : 0;
        if (check_kill_after(t, o, lease)) {
            hold_release(&r->hold);
            return STATUS_USAGE;
        }
    }
    r->kill_after_ms = o->kill_after_ms;
    if (o->kill_after_ms < 0)
        r->kill_after_ms = lease / 3 < 5000 ? lease / 3 : 5000;
    tick = lease / 20 < 1000 ? lease / 20 : 1000;
    r->tick_ms = tick > 10 ? (int)tick : 10;
    return HELD;
}

/* ^C on a terminal that the command had: our own group gets what it would have got, and a shell
 * that runs us sees that the user wants the loop or script to end. Its $? is the same. */
static void pass_interrupt(const run *r, int status)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    if (!r->job.interrupted || status != STATUS_SIGNAL + SIGINT)
        return;
    fflush(NULL);
    kill(0, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int cmd_run(tool *t, int argc, char **argv)
{
    run_options o = {.wait_ms = PAWL_FOREVER, .kill_after_ms = -1, .not_acquired = STATUS_NO};
    run r = {0};
    int opt = parse(t, &o, argc, argv), status, error;

    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    error = signals_open(&r.signals);
    if (error) {
        say("no descriptor for signals: %s", strerror(error));
        return STATUS_SYSTEM;
    }
    status = hold_open(&r.hold, t, &o);
    if (!status)
        status = hold_acquire(&r.hold, &r.signals);
    if (status == HELD)
        status = set_times(&r, t, &o);
    if (status == HELD)
        status = run_held(&r);
    guardian_close(&r.guardian);
    hold_close(&r.hold);
    signals_close(&r.signals);
    pass_interrupt(&r, status);
    return status;
}
