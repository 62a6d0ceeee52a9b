/* SPDX-License-Identifier: Apache-2.0
 *
 * exam.h - an examination: see examine.c.
 */
#ifndef PAWL_ETCD_EXAM_H
#define PAWL_ETCD_EXAM_H

#include "etcd.h"
#include "net/probe.h"

/* job->data. */
typedef struct etcd_exam {
    bool unreadable; /* the user may not read the keys */
    size_t out;      /* running probes, and one more while probes are being started */
    net_probe probes[];
} etcd_exam;

/* rights.c: check the user's rights, then go on with etcd_exam_members. */
void etcd_exam_rights(etcd_job *job);
void etcd_exam_members(etcd_job *job);

#endif
