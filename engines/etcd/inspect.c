/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.c - inspect, count, list and break: read the keys of a name, or of all names, in pages.
 *
 * At most INSPECT_KEYS_MAX keys of a name are kept, so that nobody can exhaust this process's
 * memory by filling a name. An op that needs all keys fails if there are too many.
 *
 * Inspect also reads the time left of the holders' leases; etcd answers in whole seconds. Break
 * deletes the holders' keys on condition that the keys are unchanged; otherwise the keys are read
 * again. If the transaction of a break gets no answer, the outcome is unknown.
 */
#include <fnmatch.h>
#include <stdlib.h>

#include "inspect.h"

#define PAGE 256  /* keys in one answer */
#define WAITS 5000 /* the most waiters of a latch that are shown */
#define LEASES_MAX 16
#define BREAK_MAX 100 /* etcd allows 128 operations in a transaction */
#define BREAK_TRIES 10

struct inspection {
    etcd_inspect_name name;
    size_t at;          /* inspect: the entry whose lease is read; break: the next entry */
    int asked, tries;
    bool broke;
    char from[ETCD_KEY_MAX + 1]; /* begin of the next page */
    size_t from_length;
};

static const etcd_call_type read_type, waits_type, page_type, lease_type, break_type;

static void finish(etcd_job *job)
{
    struct inspection *k = job->data;

    free(k->name.entries);
}

/* Read the next keys of one name, or of all names (NULL). */
static void ask_page(etcd_job *job, const etcd_call_type *type, const char *name)
{
    struct inspection *k = job->data;
    etcd_call *call = etcd_job_call(job, type);
    etcd_bounds bounds;
    etcd_query q = {.limit = PAGE};

    if (!call)
        return;
    q.range = *etcd_bounds_of(&bounds, job->e, name, ETCD_ALL);
    if (k->from_length)
        q.range.key = (pb_span){(const uint8_t *)k->from, k->from_length};
    etcd_put_range(&call->body, &q);
    etcd_job_send(job, call);
}

static void read_page(etcd_job *job)
{
    ask_page(job, &read_type, job->op->name);
}

static void start_read(etcd_job *job)
{
    struct inspection *k = job->data;

    etcd_inspect_clear(&k->name);
    k->at = k->from_length = 0;
    snprintf(k->name.name, sizeof k->name.name, "%s", job->op->name);
    read_page(job);
}

/* ---- inspect --------------------------------------------------------------------------------- */

static void show(etcd_job *job)
{
    struct inspection *k = job->data;

    etcd_job_done(job, etcd_inspect_show(job->e, job->op, &k->name, true), NULL);
}

/* Read the next holder's lease that is not known yet. */
static void ask_lease(etcd_job *job)
{
    struct inspection *k = job->data;
    etcd_call *call;

    while (k->at < k->name.n && (!k->name.entries[k->at].holder || !k->name.entries[k->at].lease ||
                                 k->name.entries[k->at].lease_ms >= 0))
        k->at++;
    if (k->at == k->name.n || k->asked++ == LEASES_MAX) {
        show(job);
        return;
    }
    call = etcd_job_call(job, &lease_type);
    if (!call)
        return;
    etcd_pb_uint(&call->body, 1, (uint64_t)k->name.entries[k->at].lease);
    etcd_job_send(job, call);
}

static bool answer_lease(etcd_call *call, pb_span message)
{
    etcd_job *job = call->about;
    struct inspection *k = job->data;
    etcd_lease_answer answer;
    int64_t lease = k->name.entries[k->at].lease;

    if (!etcd_read_lease(message, &answer))
        return false;
    etcd_job_of(call);
    for (size_t i = k->at; i < k->name.n; i++)
        if (k->name.entries[i].lease == lease)
            k->name.entries[i].lease_ms = answer.ttl <= 0 ? 0 : answer.ttl < INT64_MAX / 1000
                                              ? answer.ttl * 1000 : INT64_MAX;
    ask_lease(job);
    return true;
}

static const etcd_call_type lease_type = {.path = "/etcdserverpb.Lease/LeaseTimeToLive",
        .answer = answer_lease, .failed = etcd_job_failed};

/* The waiters of a latch. */
static bool answer_waits(etcd_call *call, pb_span message)
{
    etcd_job *job = call->about;
    struct inspection *k = job->data;
    etcd_kvs kvs;
    etcd_kv kv;

    if (!etcd_read_range(message, &kvs))
        return false;
    etcd_job_of(call);
    while (etcd_next_kv(&kvs, &kv))
        if (!etcd_inspect_add(&k->name, &kv, kv.key)) {
            etcd_job_done(job, PAWL_ENOMEM, "out of memory");
            return true;
        }
    etcd_inspect_complete(&k->name);
    show(job);
    return true;
}

static void ask_waits(etcd_job *job)
{
    etcd_call *call = etcd_job_call(job, &waits_type);
    etcd_bounds bounds;
    etcd_query q = {.limit = WAITS};

    if (!call)
        return;
    q.range = *etcd_bounds_of(&bounds, job->e, job->op->name, ETCD_WAITS);
    etcd_put_range(&call->body, &q);
    etcd_job_send(job, call);
}

static const etcd_call_type waits_type = {.path = "/etcdserverpb.KV/Range", .answer = answer_waits,
        .failed = etcd_job_failed};

/* ---- count ----------------------------------------------------------------------------------- */

static void count(etcd_job *job)
{
    const etcd_inspect_name *n = &((struct inspection *)job->data)->name;
    pawl_op *op = job->op;
    int type = op->mode == PAWL_MODE_PERMITS ? PAWL_TYPE_SEMAPHORE : PAWL_TYPE_LATCH;

    if (n->type >= 0 && n->type != type) {
        etcd_job_done(job, PAWL_ESTATE, "the name is in use as something else");
    } else if (type == PAWL_TYPE_LATCH) {
        op->value = n->type < 0 ? 0 : n->count;
        etcd_job_done(job, 0, NULL);
    } else if (n->type < 0 && op->count <= 0) {
        etcd_job_done(job, PAWL_ESTATE, "it is not in use, so it has no capacity");
    } else {
        op->value = n->type < 0 ? op->count : n->count > n->used ? n->count - n->used : 0;
        etcd_job_done(job, 0, NULL);
    }
}

/* ---- break ----------------------------------------------------------------------------------- */

static void key_of(char key[ETCD_KEY_MAX], const etcd_job *job, const etcd_inspect_entry *entry)
{
    etcd_bounds bounds;

    etcd_bounds_of(&bounds, job->e, job->op->name, ETCD_ALL);
    snprintf(key, ETCD_KEY_MAX, "%.*s%s", ETCD_KEY_MAX - 65, bounds.key, entry->tail);
}

static void break_some(etcd_job *job)
{
    struct inspection *k = job->data;
    size_t end = k->at, n = 0;
    etcd_call *call;
    char key[ETCD_KEY_MAX];

    while (k->at < k->name.n && !k->name.entries[k->at].holder)
        k->at++;
    if (k->at == k->name.n) {
        etcd_job_done(job, k->broke ? 0 : PAWL_ENOTHELD, NULL);
        return;
    }
    call = etcd_job_call(job, &break_type);
    if (!call)
        return;
    for (int round = 0; round < 2; round++) /* all conditions come first */
        for (end = k->at, n = 0; end < k->name.n && n < BREAK_MAX; end++) {
            etcd_range range = {0};

            if (!k->name.entries[end].holder)
                continue;
            n++;
            key_of(key, job, &k->name.entries[end]);
            range.key = etcd_span(key);
            if (round == 0)
                etcd_if_created(&call->body, &range, k->name.entries[end].created);
            else
                etcd_do_delete(&call->body, ETCD_THEN, &range);
        }
    call->tag = (int64_t)end;
    etcd_job_send(job, call);
}

static bool answer_break(etcd_call *call, pb_span message)
{
    struct inspection *k = ((etcd_job *)call->about)->data;
    etcd_txn txn;

    if (!etcd_read_txn_short(message, &txn))
        return false;
    if (txn.succeeded) {
        k->broke = true;
        k->at = (size_t)call->tag;
        break_some(etcd_job_of(call));
    } else if (++k->tries < BREAK_TRIES) {
        start_read(etcd_job_of(call));
    } else {
        etcd_job_done(etcd_job_of(call), PAWL_EBACKEND, "its holders change too fast");
    }
    return true;
}

static const etcd_call_type break_type = {.path = "/etcdserverpb.KV/Txn", .answer = answer_break,
        .failed = etcd_job_failed};

/* ---- one name -------------------------------------------------------------------------------- */

/* The next page begins right behind this key. A key that is too long to be ours is cut off and
 * followed by another byte, which skips none of our keys. */
static void page_ends(struct inspection *k, const etcd_kv *kv)
{
    size_t n = kv->key.length < sizeof k->from - 1 ? kv->key.length : sizeof k->from - 1;

    memcpy(k->from, kv->key.data, n);
    k->from[n] = n == kv->key.length ? 0 : (char)0xff;
    k->from_length = n + 1;
}

static bool answer_read(etcd_call *call, pb_span message)
{
    etcd_job *job = call->about;
    struct inspection *k = job->data;
    etcd_kvs kvs;
    etcd_kv kv;
    char name[PAWL_NAME_MAX + 1];
    pb_span tail;
    bool more;

    if (!etcd_read_range(message, &kvs))
        return false;
    etcd_job_of(call);
    more = kvs.more && kvs.n;
    while (etcd_next_kv(&kvs, &kv)) {
        page_ends(k, &kv);
        if (etcd_key_name(job->e, kv.key, name, &tail) && !etcd_inspect_add(&k->name, &kv, tail)) {
            etcd_job_done(job, PAWL_ENOMEM, "out of memory");
            return true;
        }
    }
    if (k->name.too_many) {
        etcd_job_done(job, PAWL_EBACKEND, "the name has more keys than can be looked at");
        return true;
    }
    if (more) {
        read_page(job);
        return true;
    }
    if (job->op->kind == PAWL_OP_INSPECT && k->name.type == PAWL_TYPE_LATCH) {
        ask_waits(job);
        return true;
    }
    etcd_inspect_complete(&k->name);
    if (job->op->kind == PAWL_OP_COUNT)
        count(job);
    else if (job->op->kind == PAWL_OP_BREAK)
        break_some(job);
    else
        ask_lease(job);
    return true;
}

static const etcd_call_type read_type = {.path = "/etcdserverpb.KV/Range", .answer = answer_read,
        .failed = etcd_job_failed};

/* ---- all names ------------------------------------------------------------------------------- */

static void start_page(etcd_job *job)
{
    ask_page(job, &page_type, NULL);
}

static int show_name(etcd_job *job)
{
    struct inspection *k = job->data;
    etcd_inspect_name *n = &k->name;
    int code = 0;

    etcd_inspect_complete(n);
    if (n->type >= 0 && (!job->op->name || !fnmatch(job->op->name, n->name, 0)))
        code = etcd_inspect_show(job->e, job->op, n, false);
    etcd_inspect_clear(n);
    return code;
}

static int take_key(etcd_job *job, const etcd_kv *kv)
{
    struct inspection *k = job->data;
    char name[PAWL_NAME_MAX + 1];
    pb_span tail;
    int code = 0;

    page_ends(k, kv);
    if (!etcd_key_name(job->e, kv->key, name, &tail))
        return 0;
    if (strcmp(name, k->name.name)) {
        code = show_name(job);
        snprintf(k->name.name, sizeof k->name.name, "%s", name);
    }
    return code ? code : etcd_inspect_add(&k->name, kv, tail) ? 0 : PAWL_ENOMEM;
}

static bool answer_page(etcd_call *call, pb_span message)
{
    etcd_job *job = call->about;
    etcd_kvs kvs;
    etcd_kv kv;
    int code = 0;
    bool more;

    if (!etcd_read_range(message, &kvs))
        return false;
    etcd_job_of(call);
    more = kvs.more && kvs.n;
    while (!code && etcd_next_kv(&kvs, &kv))
        code = take_key(job, &kv);
    if (!code && more) {
        start_page(job);
        return true;
    }
    if (!code)
        code = show_name(job);
    etcd_job_done(job, code, NULL);
    return true;
}

static const etcd_call_type page_type = {.path = "/etcdserverpb.KV/Range", .answer = answer_page,
        .failed = etcd_job_failed};

void etcd_inspect(etcd *e, pawl_op *op)
{
    etcd_job *job = etcd_job_new(e, op, op->kind == PAWL_OP_LIST ? start_page : start_read,
                                 sizeof(struct inspection));

    if (!job)
        return;
    ((struct inspection *)job->data)->name.type = -1;
    job->finish = finish;
    job->reads = op->kind != PAWL_OP_BREAK;
    etcd_job_start(job);
}
