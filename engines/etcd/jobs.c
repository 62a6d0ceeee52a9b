/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs.c - ops that are a few calls one after the other: latches, inspecting, breaking.
 *
 * A job starts when the link is ready, and restarts when something it needs, such as a lease, was
 * not ready. If a call of the job got no answer, the outcome of the op is unknown; but a job that
 * only reads restarts on the next connection.
 */
#include <stdlib.h>

#include "etcd.h"

static void job_free(etcd_job *job)
{
    if (job->call)
        job->call->about = NULL;
    list_remove(&job->link);
    if (job->finish)
        job->finish(job);
    free(job);
}

void etcd_job_done(etcd_job *job, int code, const char *words)
{
    pawl_op *op = job->op;

    job_free(job);
    pawl_op_finish_with(op, code, words);
}

void etcd_job_start(etcd_job *job)
{
    if (!job->call && !job->waits && etcd_link_ready(&job->e->link))
        job->start(job);
}

etcd_job *etcd_job_new(etcd *e, pawl_op *op, void (*start)(etcd_job *), size_t extra)
{
    etcd_job *job = calloc(1, sizeof *job + extra);

    if (!job) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return NULL;
    }
    job->e = e;
    job->op = op;
    job->start = start;
    job->data = job + 1;
    op->engine[0] = job;
    list_append(&e->jobs, &job->link);
    return job;
}

etcd_call *etcd_job_call(etcd_job *job, const etcd_call_type *type)
{
    etcd_call *call = etcd_call_new(job->e, type, job);

    if (!call)
        etcd_job_done(job, PAWL_ENOMEM, "out of memory");
    return call;
}

void etcd_job_send(etcd_job *job, etcd_call *call)
{
    if (etcd_call_send(call))
        job->call = call;
    else
        etcd_job_done(job, PAWL_ENOMEM, "out of memory");
}

etcd_job *etcd_job_of(etcd_call *call)
{
    etcd_job *job = call->about;

    job->call = NULL;
    return job;
}

void etcd_job_failed(etcd_call *call, int code, const char *words)
{
    etcd_job *job = etcd_job_of(call);

    if (code == PAWL_ECONN || (code == PAWL_EUNKNOWN && job->reads))
        return; /* restarts on the next connection */
    if (code != ETCD_NO_LEASE) {
        etcd_job_done(job, code, words);
        return;
    }
    /* The job restarts with another lease. Confirming all leases shows which one is gone. */
    list_each(etcd_lease, l, &job->e->leases, link)
        etcd_lease_poke(l);
}

void etcd_job_cancel(etcd *e, pawl_op *op)
{
    etcd_job *job = op->engine[0];
    const etcd_link *link = &e->link;

    if (job->call && !job->reads)
        etcd_job_done(job, etcd_no_answer(e, op->err, PAWL_EUNKNOWN), NULL);
    else if (!etcd_link_ready(link) && link->last_code)
        etcd_job_done(job, link->last_code, link->words);
    else
        etcd_job_done(job, etcd_no_answer(e, op->err, PAWL_ECONN), NULL);
}

void etcd_jobs_start(etcd *e)
{
    struct list all, *l;

    list_take_all(&all, &e->jobs);
    while ((l = list_take(&all))) {
        list_append(&e->jobs, l);
        etcd_job_start(list_entry(l, etcd_job, link));
    }
}

void etcd_jobs_refuse(etcd *e, int code, const char *words)
{
    struct list all, *l;

    list_take_all(&all, &e->jobs);
    while ((l = list_take(&all))) {
        etcd_job *job = list_entry(l, etcd_job, link);

        list_append(&e->jobs, l);
        if (!job->call && !job->waits)
            etcd_job_done(job, code, words);
    }
}

void etcd_jobs_free(etcd *e)
{
    while (!list_empty(&e->jobs))
        etcd_job_done(list_entry(e->jobs.next, etcd_job, link), PAWL_ECANCELED, NULL);
}
