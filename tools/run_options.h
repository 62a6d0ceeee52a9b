/* SPDX-License-Identifier: Apache-2.0
 *
 * run_options.h - the options of `pawl run`, and their check against the lease.
 */
#ifndef PAWL_RUN_OPTIONS_H
#define PAWL_RUN_OPTIONS_H

#include "tool.h"

typedef struct run_options {
    int64_t wait_ms;
    int64_t lease_ms;      /* 0: the lease of the URL or of the library */
    int64_t at_least_ms;
    int64_t kill_after_ms; /* -1: derived from the lease */
    int64_t warn_after_ms; /* when a long wait is reported, once; 0: never */
    uint32_t permits;      /* 0: a lock */
    bool shared;
    int not_acquired;      /* the exit status of -E */
    const char *name;
    char **command;
    const char *metrics;   /* the file for metrics, or NULL */
    char *shell[4];        /* the command of -c */
} run_options;

/* Fill in the options. Returns OPT_DONE, OPT_BAD or OPT_HELP. */
int run_options_parse(tool *, run_options *, int argc, char **argv);

/* The lease if known before the lock is acquired, else 0. */
int64_t known_lease(const pawl_client *, const run_options *);

/* Is --kill-after short enough for this lease (0: unknown)? Returns 0, or STATUS_USAGE after the
 * message. */
int check_kill_after(const tool *, const run_options *, int64_t lease_ms);

#endif
