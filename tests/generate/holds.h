/* SPDX-License-Identifier: Apache-2.0
 *
 * holds.h - the log of a free run, for the judge. judge.py has the same list of fields.
 *
 * The log is a mapped file, so that the records of a killed process stay. A record is updated in
 * place: each field is written by one thread at a time. Times are in ns of CLOCK_BOOTTIME, which
 * all processes of the machine share. 0 is "not yet".
 */
#ifndef PAWL_GENERATE_HOLDS_H
#define PAWL_GENERATE_HOLDS_H

#include "run.h"

enum { LOG_RECORDS = 20000 };
enum { RECORD_HOLD = 1, RECORD_CALL = 2, RECORD_END = 3, RECORD_RECONNECT = 4, RECORD_LATE = 5 };
enum { MODE_EXCLUSIVE, MODE_SHARED, MODE_PERMITS };
/* How a hold ended, as far as this process knows. */
enum { ENDED_NOT, ENDED_RELEASED, ENDED_LOST, ENDED_FREED, ENDED_CLOSED, ENDED_UNKNOWN };

struct record {
    int64_t type, process, thread, object, owner, name, mode, permits, capacity, lease;
    int64_t begin;   /* the call began */
    int64_t got;     /* hold: the acquire had returned; call: had returned, or done was called */
    int64_t valid;   /* hold: just before valid_ms() was last seen above 0 */
    int64_t leaving; /* hold: just before the release began */
    int64_t left;    /* hold: the release had returned 0 */
    int64_t code, token, wait, verb, dones, at_least, how, client, lost;
    int64_t until;   /* hold: the end that valid_ms() promised at `valid` */
};

/* By the fields after `count` the process and the orchestrator (faults.py) communicate. */
struct log {
    atomic_llong count;
    atomic_llong asked, which; /* how many faults were asked for; the number of the last one */
    atomic_llong begun;        /* how many of these faults have begun */
    atomic_llong healed;       /* 1: all faults are over */
    atomic_llong through;      /* 1: this process has finished its closing round */
    atomic_llong over;         /* 1: all processes have finished theirs */
    int64_t pad;
    struct record records[LOG_RECORDS];
};

extern const struct hooks holds_hooks;
void holds_open(struct log *log, int process);
struct record *log_record(int type);

/* free.c: how many holders the service still shows for a client whose close returned 0. */
int64_t holders_left(struct run *run, int client);

/* closing.c */
void closing_thread(struct run *run, int thread); /* called when a thread has done its steps */
void closing_round(struct run *run, struct log *log);

#endif
