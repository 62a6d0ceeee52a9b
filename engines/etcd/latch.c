/* SPDX-License-Identifier: Apache-2.0
 *
 * latch.c - latches.
 *
 * A latch is one key, without a lease. The value has the initial count, and each count-down writes
 * the same value again: etcd counts atomically how often a key was written (the key's version), so
 * a count-down needs no read, no compare and no retry. A latch is at 0 when the key does not exist,
 * or was written once more often than the initial count. A client that finds such a key deletes it.
 *
 * A waiter has a key of its own elsewhere, so that INSPECT shows the waiter, and watches the latch.
 *
 * Each latch op writes a receipt, under a lease of the client, from which a repeated request learns
 * that the op was carried out. The client's last ETCD_RECEIPTS receipts stay; each latch op deletes
 * an older one.
 */
#include <stdlib.h>
#include <unistd.h>

#include "etcd.h"

#define LATCH_PARTS 4 /* parts of the answer to etcd_latch_query */

int64_t etcd_latch_left(const etcd_kv *kv)
{
    etcd_value value;
    int64_t downs = kv->version > 1 ? kv->version - 1 : 0;

    etcd_value_read(kv->value, &value);
    return value.capacity > downs ? value.capacity - downs : 0;
}

/* ---- parts of transactions ------------------------------------------------------------------- */

static const enum etcd_section others[] = {ETCD_LOCKS, ETCD_PERMITS, ETCD_READS};

static void if_no_others(etcd_job *job, pb_buf *b)
{
    etcd_bounds bounds;

    for (size_t i = 0; i < 3; i++)
        etcd_if_created(b, etcd_bounds_of(&bounds, job->e, job->op->name, others[i]), 0);
}

/* Read the latch itself, then one key of each other type. */
void etcd_latch_query(pb_buf *b, const etcd *e, const char *name, enum etcd_branch branch)
{
    etcd_bounds bounds;
    etcd_query q = {.range = *etcd_bounds_of(&bounds, e, name, ETCD_LATCH)};

    etcd_do_range(b, branch, &q);
    q.limit = 1;
    q.keys_only = true;
    for (size_t i = 0; i < 3; i++) {
        q.range = *etcd_bounds_of(&bounds, e, name, others[i]);
        etcd_do_range(b, branch, &q);
    }
}

struct latch_state {
    bool there; /* the latch exists */
    etcd_kv kv;
    bool other; /* the name has another type */
};

static bool read_latch(const etcd_txn *txn, size_t at, struct latch_state *v)
{
    etcd_kvs kvs;

    if (!etcd_txn_range(txn, at, &kvs))
        return false;
    v->there = etcd_next_kv(&kvs, &v->kv);
    v->other = false;
    for (size_t i = 1; i <= 3; i++) {
        if (!etcd_txn_range(txn, at + i, &kvs))
            return false;
        v->other |= kvs.n > 0;
    }
    return true;
}

static void receipt_key(char key[ETCD_KEY_MAX], const etcd_job *job, const etcd_lease *lease)
{
    etcd_helper(key, job->e, "done", lease->id, job->op->owner.seq);
}

/* Write the receipt, and delete the oldest one. */
static void add_receipt(etcd_job *job, pb_buf *b, const etcd_lease *lease)
{
    etcd *e = job->e;
    size_t i = e->nreceipts % ETCD_RECEIPTS;
    char key[ETCD_KEY_MAX];
    etcd_range old;

    if (e->nreceipts >= ETCD_RECEIPTS && (e->receipts[i].seq != job->op->owner.seq)) {
        etcd_helper(key, e, "done", e->receipts[i].lease, e->receipts[i].seq);
        old = (etcd_range){.key = etcd_span(key)};
        etcd_do_delete(b, ETCD_THEN, &old);
    }
    receipt_key(key, job, lease);
    etcd_do_put(b, ETCD_THEN, etcd_span(key), etcd_span(""), lease->id);
    e->receipts[i].lease = lease->id;
    e->receipts[i].seq = job->op->owner.seq;
    e->nreceipts++;
}

/* Delete a latch at 0; the answer is ignored, because any client that finds such a latch deletes
 * it. */
static void clear(etcd *e, const etcd_kv *kv)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.KV/Txn"};
    etcd_call *call = etcd_call_new(e, &type, NULL);
    etcd_range range = {.key = kv->key};

    if (!call)
        return;
    etcd_if_modified(&call->body, &range, kv->modified);
    etcd_do_delete(&call->body, ETCD_THEN, &range);
    etcd_call_send(call);
}

/* ---- set and down ---------------------------------------------------------------------------- */

/* Decide after the condition failed; true: the job is finished. */
static bool decided(etcd_job *job, const struct latch_state *v, bool receipt)
{
    bool set = job->op->kind == PAWL_OP_LATCH_SET;

    if (receipt)
        etcd_job_done(job, 0, NULL);
    else if (v->other)
        etcd_job_done(job, PAWL_ESTATE, "the name is in use as something else");
    else if (set && v->there && etcd_latch_left(&v->kv) > 0)
        etcd_job_done(job, PAWL_ESTATE, "it is set already");
    else if (!set && !v->there)
        etcd_job_done(job, 0, NULL); /* a latch at 0 stays at 0 */
    else
        return false;
    return true;
}

static bool answer_change(etcd_call *call, pb_span message)
{
    etcd_job *job = call->about;
    bool set = job->op->kind == PAWL_OP_LATCH_SET;
    etcd_txn txn;
    struct latch_state v;
    etcd_kvs receipt;
    etcd_lease *lease;

    if (!etcd_read_txn(message, &txn))
        return false;
    if (txn.succeeded && !set) {
        etcd_kvs kvs;

        if (!etcd_txn_range(&txn, 1, &kvs) || !etcd_next_kv(&kvs, &v.kv))
            return false;
        if (etcd_latch_left(&v.kv) == 0)
            clear(job->e, &v.kv);
    }
    if (txn.succeeded) {
        etcd_job_done(etcd_job_of(call), 0, NULL);
        return true;
    }
    if (!read_latch(&txn, 0, &v) || !etcd_txn_range(&txn, LATCH_PARTS, &receipt))
        return false;
    etcd_job_of(call);
    if (decided(job, &v, receipt.n > 0))
        return true;
    if (set && v.there) { /* at 0: delete the key, and retry */
        clear(job->e, &v.kv);
        etcd_job_start(job);
        return true;
    }
    lease = etcd_lease_for(job->e, ETCD_HELPERS_MS);
    if (lease)
        etcd_lease_unfenced(lease, call->fence);
    etcd_job_start(job);
    return true;
}

static size_t latch_value(char text[ETCD_VALUE_MAX], const etcd_job *job)
{
    etcd_value v = {.since = job->e->env->wall_ms(job->e->env), .pid = getpid(),
                    .capacity = job->op->count};

    return etcd_value_write(text, &v);
}

static void start_change(etcd_job *job)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.KV/Txn", .answer = answer_change,
        .failed = etcd_job_failed};
    etcd_lease *lease = etcd_lease_for(job->e, ETCD_HELPERS_MS);
    bool set = job->op->kind == PAWL_OP_LATCH_SET;
    char key[ETCD_KEY_MAX], value[ETCD_VALUE_MAX];
    etcd_range receipt;
    etcd_bounds bounds;
    const etcd_range *latch = etcd_bounds_of(&bounds, job->e, job->op->name, ETCD_LATCH);
    etcd_query q = {.range = *latch};
    etcd_call *call;

    if (!lease || lease->state != LEASE_READY || !(call = etcd_job_call(job, &type)))
        return; /* the job restarts when the lease is ready */
    receipt_key(key, job, lease);
    receipt = (etcd_range){.key = etcd_span(key)};
    etcd_if_created(&call->body, &receipt, 0);
    etcd_if_fenced(call, lease);
    if (set) {
        etcd_if_created(&call->body, latch, 0);
        if_no_others(job, &call->body);
        etcd_do_put(&call->body, ETCD_THEN, latch->key,
                    (pb_span){(const uint8_t *)value, latch_value(value, job)}, 0);
    } else {
        etcd_if_exists(&call->body, latch);
        etcd_do_touch(&call->body, ETCD_THEN, latch->key);
        etcd_do_range(&call->body, ETCD_THEN, &q);
    }
    add_receipt(job, &call->body, lease);
    etcd_latch_query(&call->body, job->e, job->op->name, ETCD_ELSE);
    q.range = receipt;
    etcd_do_range(&call->body, ETCD_ELSE, &q);
    etcd_job_send(job, call);
}

void etcd_latch(etcd *e, pawl_op *op)
{
    etcd_job *job;

    if (op->kind == PAWL_OP_LATCH_SET && op->count < 1) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EINVAL, "a latch is set to 1 or more"));
        return;
    }
    job = etcd_job_new(e, op, start_change, 0);
    if (job)
        etcd_job_start(job);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* The waiter's key only makes the waiter visible to others. */
bool etcd_latch_see(etcd_waiter *w, const etcd_txn *txn)
{
    struct latch_state v;

    if (txn->n < LATCH_PARTS || !read_latch(txn, txn->n - LATCH_PARTS, &v))
        return false;
    if (v.there && etcd_latch_left(&v.kv) == 0)
        clear(w->e, &v.kv);
    if (v.other)
        etcd_waiter_refuse(w, PAWL_ESTATE, "is in use as something else");
    else if (!v.there || etcd_latch_left(&v.kv) == 0)
        etcd_waiter_opened(w);
    else if (!w->queue && !w->created)
        etcd_waiter_end(w, PAWL_EBUSY);
    else
        etcd_waiter_blocked(w, &v.kv, NULL, txn->revision);
    return true;
}
