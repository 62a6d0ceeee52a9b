/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_doctor.c - pawl doctor: finds settings and faults that break locks.
 *
 * The engine examines its service (pawl_examine). Then locks are used as programs would use them,
 * and round trips and clocks are measured. A service that does not answer is not a finding: pawl
 * doctor then knows nothing about the service and exits with status 69. A user without rights and a
 * folder that can't be trusted are findings.
 */
#include "doctor.h"

enum { OPT_LEASE = 'l' };

static int options(tool *t, report *r, int argc, char **argv)
{
    static const struct option longs[] = {{"lease", required_argument, NULL, OPT_LEASE},
                                          COMMON_LONG};
    int c;

    while ((c = option_next(t, argc, argv, COMMON_SHORT "l:", longs)) == OPT_LEASE)
        if (!duration_parse(optarg, &r->lease_ms) || r->lease_ms < 1) {
            usage_error(t, "'%s' is no lease; write it like 30s or 500ms", optarg);
            return OPT_BAD;
        }
    return c;
}

/* Report an error as a finding if the service answered: the service refuses every request, or has
 * answered before and has findings. Returns false if there was no answer. */
static bool refused(report *r, const pawl_error *err)
{
    bool findings = r->n[PAWL_FINDING_WARNING] + r->n[PAWL_FINDING_DANGER] > 0;
    const char *id = err->code == PAWL_EAUTH ? "rights" : err->code == PAWL_ENOTSUP ? "unsuitable"
                     : err->code == PAWL_EBACKEND || findings ? "use" : NULL;

    if (!id)
        return false;
    report_found(r, PAWL_FINDING_DANGER, id,
                 err->text[0] ? err->text : pawl_strerror(err->code), "No lock can be taken here.",
                 err->code == PAWL_EAUTH ? "Check user and password, and grant the right; "
                                           "docs/security.md has the statements for each service."
                                         : "See the error's own words.");
    return true;
}

/* Returns 0, or a Pawl code if the service did not answer. */
static int examine(report *r, const tool *t, pawl_error *err)
{
    pawl_client_options options = {.watchdog_ms = r->lease_ms, .label = "pawl doctor"};
    pawl_client *client;

    err->code = client_try(t, &client, &options, err);
    if (err->code)
        return refused(r, err) ? 0 : err->code;
    r->lease_ms = pawl_client_lease_ms(client);
    err->code = check_service(r, client, err);
    if (!err->code)
        err->code = check_round_trips(r, client, err);
    if (!err->code) {
        check_use(r, t, client);
        err->code = check_again(r, client, err);
    }
    pawl_close(client);
    if (!err->code || (err->code == PAWL_EAUTH && report_has(r, "rights")))
        return 0;
    return refused(r, err) ? 0 : err->code;
}

int cmd_doctor(tool *t, int argc, char **argv)
{
    pawl_error err = {0};
    report r;
    int status = STATUS_OK, opt;

    report_begin(&r);
    opt = options(t, &r, argc, argv);
    if (opt != OPT_DONE)
        return opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    if (argc > optind)
        return usage_error(t, "no argument is needed; name the service with -u URL");
    if (examine(&r, t, &err)) {
        status = failed(t, "can't examine the service", &err);
    } else {
        report_print(&r, t);
        if (r.n[PAWL_FINDING_WARNING] + r.n[PAWL_FINDING_DANGER])
            status = STATUS_NO;
    }
    if (r.no_memory)
        status = STATUS_SYSTEM;
    report_free(&r);
    return status;
}
