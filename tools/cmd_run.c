/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_run.c - pawl run: run a command while a lock is held.
 *
 * In order: block signals, open the client, acquire, start the guardian, start the command, and
 * then one loop that keeps the guardian's deadline up to date, passes signals on and watches the
 * command, until the end of the command. If the guardian is faster, the lock is lost: see
 * guardian.h.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "guardian.h"
#include "job.h"
#include "run_hold.h"
#include "run_options.h"

#define CLAIM_NS (3000 * NS_PER_MS) /* after this time a claim has become a full lease */

typedef struct run {
    hold hold;
    guardian guardian;
    job job;
    signals signals;
    run_metrics metrics;
    int64_t kill_after_ms;
    int64_t begun; /* when the lock was acquired */
    int tick_ms; /* how often the guardian gets the current deadline */
    bool stopped; /* this process was stopped for a while */
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

/* A service may grant a shorter lease than requested (ZooKeeper limits sessions). The times of this
 * run are computed from the granted lease. */
static void set_pace(run *r, int64_t lease)
{
    int64_t tick = lease / 20 < 1000 ? lease / 20 : 1000;

    r->kill_after_ms = r->hold.options->kill_after_ms;
    if (r->kill_after_ms < 0 || r->kill_after_ms > lease / 2)
        r->kill_after_ms = lease / 3 < 5000 ? lease / 3 : 5000;
    r->tick_ms = tick > 10 ? (int)tick : 10;
}

/* A grant may begin with a short lease, which the first renewal extends (a claim after a
 * hand-over). Wait until the lease is long enough to end the command in time. Returns the deadline;
 * 0: lost; -1: a signal came. */
static int64_t await_full_lease(run *r, int *number)
{
    int64_t begun = boot_now(), longest = 0;

    for (;;) {
        int64_t deadline = hold_deadline(&r->hold), left = deadline - boot_now();

        if (!deadline || atomic_load(&r->hold.lost))
            return 0;
        if (left > guardian_needs(r->kill_after_ms * NS_PER_MS))
            return deadline;
        longest = left > longest ? left : longest;
        if (boot_now() - begun > CLAIM_NS)
            set_pace(r, longest / NS_PER_MS);
        poll_events(r, 10);
        while ((*number = signals_next(&r->signals)))
            if (*number != SIGCHLD && *number != SIGCONT)
                return -1;
    }
}

/* The environment of the command. A `pawl` that the command starts uses the same service, unless
 * the URL has a password: passwords don't belong in the environment of a process. */
static int prepare_environment(const run *r)
{
    const char *url = r->hold.tool->url, *outside = getenv("PAWL_URL");
    char token[24];

    if (outside && url_has_password(outside) && unsetenv("PAWL_URL"))
        return -1;

    if (url && !url_has_password(url) && setenv("PAWL_URL", url, 1))
        return -1;
    if (getenv("PAWL_PASSWORD") && unsetenv("PAWL_USER")) /* of no use without the password */
        return -1;
    snprintf(token, sizeof token, "%llu", (unsigned long long)hold_token(&r->hold));
    return setenv("PAWL_NAME", r->hold.options->name, 1) || setenv("PAWL_TOKEN", token, 1) ||
           unsetenv("PAWL_PASSWORD");
}

static void handle_signals(run *r)
{
    int n;

    while ((n = signals_next(&r->signals))) {
        r->stopped |= n == SIGCONT;
        if (n != SIGCHLD)
            job_signal(&r->job, n);
    }
}

/* The main loop: runs until the command has ended. */
static void watch(run *r)
{
    bool told = false, complained = false;

    while (!job_ended(&r->job)) {
        int64_t deadline = hold_deadline(&r->hold);
        int error;

        hold_note_contact(&r->hold, deadline);
        if (deadline)
            guardian_deadline(&r->guardian, deadline);
        if (!told && atomic_load(&r->hold.lost)) {
            guardian_lost(&r->guardian);
            told = true;
        }
        error = guardian_check(&r->guardian);
        if (error && !complained)
            say("can't start the guardian again: %s; retrying", strerror(error));
        complained = error != 0;
        poll_events(r, r->tick_ms);
        handle_signals(r);
    }
    if (!told && atomic_load(&r->hold.lost))
        guardian_lost(&r->guardian);
}

static int lost_status(run *r, const char *what)
{
    char cause[512];
    int n;

    while ((n = signals_next(&r->signals))) /* pending when the command ended */
        r->stopped |= n == SIGCONT;
    say("'%s' was lost%s: %s%s", r->hold.options->name, what,
        hold_lost_cause(&r->hold, cause, sizeof cause),
        r->stopped || r->job.stopped ? "; pawl had been stopped and could not renew it" : "");
    return STATUS_LOST;
}

/* If the service can't keep a released lock after the process has ended, this process keeps the
 * lock for --at-least. A signal ends the wait. */
static void linger(run *r)
{
    int64_t until = r->begun + r->hold.options->at_least_ms * NS_PER_MS;
    bool here = !pawl_client_can(r->hold.client, PAWL_CAN_LINGER);
    int n;

    while (here && boot_now() < until && !atomic_load(&r->hold.lost)) {
        int64_t left = (until - boot_now()) / NS_PER_MS + 1;

        poll_events(r, left < r->tick_ms ? (int)left : r->tick_ms);
        while ((n = signals_next(&r->signals)))
            here &= n == SIGCHLD || n == SIGCONT;
    }
}

/* The command has ended: release the lock and compute the exit status. */
static int finish(run *r)
{
    bool in_time = guardian_finish(&r->guardian);
    int status = job_reap(&r->job), code = 0;

    linger(r);
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

/* Run the command. The lock is held. */
static int run_held(run *r)
{
    int number = 0, error;
    int64_t deadline;

    r->begun = boot_now();
    deadline = await_full_lease(r, &number);
    if (deadline < 0) {
        hold_release(&r->hold);
        return STATUS_SIGNAL + number;
    }
    if (!deadline)
        return lost_status(r, " before the command was started");
    if (prepare_environment(r))
        return cant(r, "the command", ENOMEM);
    hold_note_contact(&r->hold, deadline);
    error = guardian_open(&r->guardian, deadline, r->kill_after_ms);
    if (error)
        return cant(r, "the guardian", error);
    error = job_start(&r->job, r->hold.options->command, &r->signals, &r->guardian);
    if (error)
        return cant(r, "the command", error);
    watch(r);
    return finish(r);
}

/* Compute the times that depend on the lease. Returns HELD, or the exit status after a release. */
static int set_times(run *r, const tool *t, const run_options *o)
{
    int64_t lease = known_lease(r->hold.client, o);

    if (!lease) { /* the lease is a session: it lasts about as long as the new grant is valid */
        int64_t deadline = hold_deadline(&r->hold);

        lease = deadline ? (deadline - boot_now()) / NS_PER_MS + 1 : 0;
        if (check_kill_after(t, o, lease)) {
            hold_release(&r->hold);
            return STATUS_USAGE;
        }
    }
    set_pace(r, lease);
    return HELD;
}

/* ^C was pressed while the command had the terminal: send SIGINT to our own group as well, so that
 * a shell that runs us ends its loop or script. $? is the same. */
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
    run_options o = {.wait_ms = PAWL_FOREVER, .kill_after_ms = -1, .not_acquired = STATUS_NO,
                     .warn_after_ms = 30000};
    run r = {0};
    int opt = run_options_parse(t, &o, argc, argv), status, error;

    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    error = signals_open(&r.signals);
    if (error) {
        say("no descriptor for signals: %s", strerror(error));
        return STATUS_SYSTEM;
    }
    status = hold_open(&r.hold, t, &o);
    run_metrics_write(&r.metrics, &r.hold, RUN_WAITS, 0);
    if (!status)
        status = check_kill_after(t, &o, known_lease(r.hold.client, &o));
    if (!status)
        status = hold_acquire(&r.hold, &r.signals);
    if (status == HELD)
        run_metrics_write(&r.metrics, &r.hold, RUN_HOLDS, 0);
    if (status == HELD)
        status = set_times(&r, t, &o);
    if (status == HELD)
        status = run_held(&r);
    run_metrics_write(&r.metrics, &r.hold, RUN_ENDED, status);
    guardian_close(&r.guardian);
    hold_close(&r.hold);
    signals_close(&r.signals);
    pass_interrupt(&r, status);
    return status;
}
