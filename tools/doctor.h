/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h - the findings of pawl doctor: collected by the checks, printed at the end.
 */
#ifndef PAWL_DOCTOR_H
#define PAWL_DOCTOR_H

#include "tool.h"

typedef struct entry entry;

typedef struct report {
    entry *first, **end;
    size_t n[4];            /* by enum pawl_finding_level */
    int64_t lease_ms;       /* compared with round trips; 0: the service's default */
    int64_t median_us, slowest_us, trips; /* round trips; trips 0: none was measured */
    int64_t exam_us;        /* how long the examination took */
    bool no_memory;
} report;

void report_begin(report *);
void report_free(report *);

/* Add a copy of a finding, unless there is one with the same id, place and text. A
 * pawl_finding_fn. */
int report_add(void *report, const pawl_finding *);

/* Add a finding that pawl doctor itself has made. */
void report_found(report *, uint64_t level, const char *id, const char *what, const char *why,
                  const char *remedy);

/* Is there a finding (a warning or worse) with this id? */
bool report_has(const report *, const char *id);

/* Is there a finding (a warning or worse) with this id about this place? */
bool report_knows(const report *, const char *id, const char *where);

/* The number of the fact with this id at the place of the nth such fact. False: there is none. */
bool report_fact(const report *, const char *id, size_t nth, int64_t *value);

/* Call fn for each finding, in order, until fn returns a value other than 0. */
void report_each(const report *, pawl_finding_fn *fn, void *arg);

/* Print the report on stdout, as text or as JSON. */
void report_print(const report *, const tool *);

/* checks.c: checks that work with every engine. */

/* Use each kind of lock once, under names of its own, and report failures. */
void check_use(report *, const tool *, pawl_client *);
/* Measure how long a request takes. Returns 0, or a Pawl code. */
int check_round_trips(report *, pawl_client *, pawl_error *);
/* Ask the service for facts and findings. Returns 0, or a Pawl code. */
int check_service(report *, pawl_client *, pawl_error *);
/* Ask once more, a second later, to detect findings that come and go, and clocks that are set. */
int check_again(report *, pawl_client *, pawl_error *);

#endif
