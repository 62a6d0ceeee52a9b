/* SPDX-License-Identifier: Apache-2.0
 *
 * contend.h - one contender of a measurement, in a process or a thread of its own.
 */
#ifndef PAWL_COMPARE_CONTEND_H
#define PAWL_COMPARE_CONTEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker.h"

enum { CONTENDERS_MAX = 512, SAMPLES_MAX = 4000 };

/* A sample of times, evenly spread over the measurement: of many times every stride-th is kept,
 * and the stride doubles whenever the sample is full. */
struct sample {
    int64_t seen, stride;
    int n;
    int64_t ns[SAMPLES_MAX];
};

struct part {
    atomic_llong rounds, handovers;
    atomic_bool inside; /* the contender has the lock, or is about to release the lock */
    int64_t cpu_us, wakeups;
    struct sample times, gaps;
};

/* All contenders of one measurement share a mapping with this. Each contender writes only its own
 * part; the worker alone writes go and stop. */
struct meeting {
    atomic_int ready, go, stop;
    atomic_int last;        /* the last contender that had the lock of `same` */
    atomic_llong released;  /* when the last holder began to release the lock */
    atomic_int readers, writers;
    struct part parts[CONTENDERS_MAX];
};

struct contender {
    const struct library *library;
    const char *address;
    void *client; /* NULL: the contender opens its own */
    struct meeting *meeting;
    int number, contenders;
    bool thread;       /* CPU time is that of the thread, not of the process */
    int64_t hold_us;   /* `handover`: how long the lock is held each time */
    char mode[12];
    char name[40];     /* the beginning of the names of all locks */
};

void contend(struct contender *c);
int64_t cpu_us(int who); /* of getrusage */
int64_t wakeups(int who); /* how often the process has slept and was woken */

#endif
