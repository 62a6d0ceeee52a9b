/* SPDX-License-Identifier: Apache-2.0
 *
 * requests.c - the requests of a waiter, and the meaning of the answers.
 *
 * ASKING. One transaction creates the key and reads the keys ahead. Keys are ordered by creation.
 * An exclusive owner holds when no key is ahead; a reader, when no exclusive key is ahead, or only
 * one that by now is used for reading only; permits are granted when the permits of all keys ahead
 * plus the own ones don't exceed the capacity. The transaction's conditions: the key does not exist
 * yet, the fence is unchanged, and the name is not in use as another type. A try (an acquire that
 * may not queue) creates no key if a key ahead is certain to block the try.
 *
 * WAITING. A waiter watches the one key that is directly in the way: the key before its own; a
 * reader watches the last exclusive key before its own. A waiter for permits blocks the next one
 * while waiting, and rewrites the key when granted, which wakes the next one. The first waiter for
 * permits watches all keys of permits.
 *
 * CHECKING AGAIN. When the watched key is gone, one transaction reads the keys ahead, on condition
 * that the own key still exists: so a waiter gets no grant after its lease has ended. The token is
 * the revision of the transaction that granted. Readers and permits can be granted side by side, so
 * that transaction also writes their key, and no two grants have the same token.
 */
#include "etcd.h"

#define PERMITS_READ 100000 /* most keys ahead to read; an answer has room for fewer */

enum { TAG_ASK, TAG_TRY, TAG_RECHECK, TAG_TAKE };

static const etcd_call_type ask_type, peek_type, check_type;

/* ---- sending requests ------------------------------------------------------------------------ */

static etcd_range own_range(const etcd_waiter *w)
{
    return (etcd_range){.key = etcd_span(w->key)};
}

static void add_put(etcd_waiter *w, pb_buf *b)
{
    char value[ETCD_VALUE_MAX];
    size_t n = etcd_waiter_value(w, value);

    etcd_do_put(b, ETCD_THEN, etcd_span(w->key), (pb_span){(const uint8_t *)value, n},
                w->lease->id);
}

/* Read the keys ahead: the last part of the answer in the branch THEN. */
static void add_ahead(etcd_waiter *w, pb_buf *b, enum etcd_branch branch, int64_t older_than)
{
    etcd_bounds bounds;
    etcd_query q = {.order = ETCD_NEWEST_FIRST, .older_than = older_than};

    if (w->mode == PAWL_MODE_EXCLUSIVE) {
        q.range = *etcd_bounds_of(&bounds, w->e, w->name, ETCD_ALL);
        q.limit = older_than ? 1 : 2; /* the own key is the newest */
        q.keys_only = true;
    } else if (w->mode == PAWL_MODE_SHARED) {
        q.range = *etcd_bounds_of(&bounds, w->e, w->name, ETCD_LOCKS);
        q.limit = 1;
    } else {
        q.range = *etcd_bounds_of(&bounds, w->e, w->name, ETCD_PERMITS);
        q.order = ETCD_OLDEST_FIRST;
        q.older_than = 0;
        q.limit = w->capacity < PERMITS_READ ? w->capacity + 1 : PERMITS_READ;
    }
    etcd_do_range(b, branch, &q);
}

static void add_one(etcd_waiter *w, pb_buf *b, enum etcd_section section)
{
    etcd_bounds bounds;
    etcd_query q = {.limit = 1, .keys_only = true};

    q.range = *etcd_bounds_of(&bounds, w->e, w->name, section);
    etcd_do_range(b, ETCD_ELSE, &q);
}

static void if_empty(etcd_waiter *w, pb_buf *b, enum etcd_section section)
{
    etcd_bounds bounds;

    etcd_if_created(b, etcd_bounds_of(&bounds, w->e, w->name, section), 0);
}

/* The branch ELSE reads: the own key, keys of another type, keys that block a try. */
static void write_ask(etcd_waiter *w, etcd_call *call, bool try)
{
    pb_buf *b = &call->body;
    bool permits = w->mode == PAWL_MODE_PERMITS;
    enum etcd_section way = w->mode == PAWL_MODE_SHARED ? ETCD_LOCKS : ETCD_ALL;
    etcd_range own = own_range(w);
    etcd_query q = {.range = own};

    if (w->mode == PAWL_MODE_LATCH && try) {
        etcd_latch_query(b, w->e, w->name, ETCD_THEN);
        return;
    }
    etcd_if_created(b, &own, 0);
    etcd_if_fenced(call, w->lease);
    if (w->mode == PAWL_MODE_LATCH) {
        add_put(w, b);
        etcd_latch_query(b, w->e, w->name, ETCD_THEN);
        etcd_do_range(b, ETCD_ELSE, &q);
        etcd_do_range(b, ETCD_ELSE, &q);
        return;
    }
    if_empty(w, b, permits ? ETCD_LOW : ETCD_NO_LOCKS);
    if (permits)
        if_empty(w, b, ETCD_READS);
    else if (try)
        if_empty(w, b, way);
    add_put(w, b);
    add_ahead(w, b, ETCD_THEN, 0);
    etcd_do_range(b, ETCD_ELSE, &q);
    add_one(w, b, permits ? ETCD_LOW : ETCD_NO_LOCKS);
    if (permits)
        add_one(w, b, ETCD_READS);
    else if (try)
        add_ahead(w, b, ETCD_ELSE, 0);
}

static void write_recheck(etcd_waiter *w, etcd_call *call, bool take)
{
    pb_buf *b = &call->body;
    etcd_range own = own_range(w);
    etcd_query q = {.range = own, .keys_only = true};

    etcd_if_created(b, &own, w->created);
    etcd_if_fenced(call, w->lease);
    if (take) {
        w->since = w->e->env->wall_ms(w->e->env);
        add_put(w, b);
    }
    if (w->mode == PAWL_MODE_LATCH)
        etcd_latch_query(b, w->e, w->name, ETCD_THEN);
    else
        add_ahead(w, b, ETCD_THEN, w->created);
    etcd_do_range(b, ETCD_ELSE, &q);
}

/* Is the key ahead unchanged? This request costs less than reading all keys ahead. */
static void write_check(etcd_waiter *w, pb_buf *b)
{
    etcd_range ahead = {.key = etcd_span(w->ahead_key)};

    if (w->mode == PAWL_MODE_EXCLUSIVE)
        etcd_if_created(b, &ahead, w->ahead_is);
    else
        etcd_if_modified(b, &ahead, w->ahead_is);
}

/* The capacity is not known, or can't be right: read the capacity in force. */
static void write_peek(etcd_waiter *w, pb_buf *b)
{
    etcd_bounds bounds;
    etcd_query q = {.limit = 1, .order = ETCD_OLDEST_FIRST};

    q.range = *etcd_bounds_of(&bounds, w->e, w->name, ETCD_PERMITS);
    etcd_put_range(b, &q);
}

void etcd_waiter_ask(etcd_waiter *w)
{
    bool permits = w->mode == PAWL_MODE_PERMITS, rechecks = w->state == WAITER_QUEUED;
    bool peek = permits && !w->peeked && (w->capacity == 0 || w->permits > w->capacity);
    bool take = rechecks && w->recheck == RECHECK_TAKE && (permits || w->mode == PAWL_MODE_SHARED);
    bool try = !rechecks && !w->queue && !w->past_readers;
    bool check = rechecks && w->recheck == RECHECK_AHEAD;
    etcd_call *call = etcd_call_new(w->e, peek ? &peek_type : check ? &check_type : &ask_type, w);

    if (!call)
        goto out;
    call->tag = take ? TAG_TAKE : rechecks ? TAG_RECHECK : try ? TAG_TRY : TAG_ASK;
    if (peek)
        write_peek(w, &call->body);
    else if (check)
        write_check(w, &call->body);
    else if (rechecks)
        write_recheck(w, call, take);
    else
        write_ask(w, call, try);
    if (!etcd_call_send(call))
        goto out;
    w->call = call;
    w->recheck = RECHECK_NONE;
    return;
out:
    kit_timer_ms(w->e->env, &w->timer, 100);
}

/* ---- handling answers ------------------------------------------------------------------------ */

/* The key was created, but another key blocks the grant. */
void etcd_waiter_blocked(etcd_waiter *w, const etcd_kv *by, const etcd_range *range,
                         int64_t revision)
{
    etcd_range key = {.key = by ? by->key : (pb_span){0}};
    int64_t is = !by ? 0 : w->mode == PAWL_MODE_EXCLUSIVE ? by->created : by->modified;

    if (w->queue)
        etcd_waiter_queue(w, by ? &key : range, is, revision);
    else
        etcd_waiter_leave(w, PAWL_EBUSY);
}

void etcd_waiter_refuse(etcd_waiter *w, int code, const char *why)
{
    if (w->acquires)
        pawl_error_set(w->acquires->err, code, "\"%s\" %s", w->name, why);
    if (w->created)
        etcd_waiter_leave(w, code);
    else
        etcd_waiter_end(w, code);
}

/* Does the owner of this exclusive key only read by now? */
static bool only_read(const etcd_kv *kv)
{
    etcd_value value;

    etcd_value_read(kv->value, &value);
    return value.shared;
}

/* Granted, unless the key must be written once more for a token of its own. */
static void free_now(etcd_waiter *w, const etcd_call *call, int64_t revision)
{
    if (call->tag != TAG_RECHECK || w->mode == PAWL_MODE_EXCLUSIVE) {
        etcd_waiter_granted(w, (uint64_t)revision, call->sent);
        return;
    }
    etcd_waiter_due(w, RECHECK_TAKE);
    etcd_waiter_step(w);
}

static bool see_line(etcd_waiter *w, const etcd_call *call, etcd_kvs *ahead, int64_t revision)
{
    etcd_kv kv;

    while (etcd_next_kv(ahead, &kv))
        if (!etcd_same(kv.key, etcd_span(w->key))) {
            if (w->mode == PAWL_MODE_SHARED && only_read(&kv))
                break;
            etcd_waiter_blocked(w, &kv, NULL, revision);
            return true;
        }
    free_now(w, call, revision);
    return true;
}

/* The keys before the own one, in the order of their creation. */
struct permits_ahead {
    int64_t sum;
    bool own;      /* the own key was among them */
    etcd_kv last;  /* the key before the own one */
    int64_t capacity;
};

static struct permits_ahead count_ahead(etcd_waiter *w, etcd_kvs *kvs)
{
    struct permits_ahead a = {.capacity = w->capacity};
    bool first = true;
    etcd_value value;
    etcd_kv kv;

    while (!a.own && etcd_next_kv(kvs, &kv)) {
        etcd_value_read(kv.value, &value);
        if (first && value.capacity)
            a.capacity = value.capacity;
        first = false;
        a.own = etcd_same(kv.key, etcd_span(w->key));
        if (a.own)
            break;
        a.last = kv;
        a.sum += value.permits;
    }
    return a;
}

static bool see_permits(etcd_waiter *w, const etcd_call *call, etcd_kvs *kvs, int64_t revision)
{
    struct permits_ahead a = count_ahead(w, kvs);
    etcd_bounds bounds;

    if (a.capacity != w->capacity) {
        etcd_waiter_refuse(w, PAWL_ESTATE, "is in use with another capacity");
    } else if (a.own && a.sum + w->permits <= w->capacity) {
        free_now(w, call, revision);
    } else if (a.sum <= w->capacity && a.own) { /* the first waiter */
        etcd_waiter_blocked(w, NULL, etcd_bounds_of(&bounds, w->e, w->name, ETCD_PERMITS),
                            revision);
    } else { /* far behind: more keys are ahead than were read */
        etcd_waiter_blocked(w, &a.last, NULL, revision);
    }
    return true;
}

static bool see(etcd_waiter *w, const etcd_call *call, const etcd_txn *txn)
{
    etcd_kvs ahead;

    if (w->mode == PAWL_MODE_LATCH)
        return etcd_latch_see(w, txn);
    if (txn->n < 1 || !etcd_txn_range(txn, txn->n - 1, &ahead))
        return false;
    if (w->mode == PAWL_MODE_PERMITS)
        return see_permits(w, call, &ahead, txn->revision);
    return see_line(w, call, &ahead, txn->revision);
}

/* The key was not created: the key exists already, another key blocks, or the fence has changed. */
static bool not_made(etcd_waiter *w, const etcd_call *call, const etcd_txn *txn)
{
    etcd_kvs own, other, way = {0};
    etcd_kv kv;

    if (!etcd_txn_range(txn, 0, &own) || !etcd_txn_range(txn, 1, &other) ||
        (txn->n > 2 && !etcd_txn_range(txn, 2, &way)))
        return false;
    if (etcd_next_kv(&own, &kv)) {
        w->created = kv.created;
        w->state = WAITER_QUEUED;
        etcd_waiter_due(w, RECHECK_QUEUE);
        etcd_waiter_step(w);
    } else if (other.n || (way.n && w->mode == PAWL_MODE_PERMITS)) {
        etcd_waiter_refuse(w, PAWL_ESTATE, "is in use as something else");
    } else if (call->tag == TAG_TRY && way.n) {
        w->past_readers = w->mode == PAWL_MODE_SHARED && etcd_next_kv(&way, &kv) && only_read(&kv);
        if (w->past_readers)
            etcd_waiter_step(w);
        else
            etcd_waiter_end(w, PAWL_EBUSY);
    } else {
        etcd_lease_unfenced(w->lease, call->fence);
        etcd_waiter_step(w);
    }
    return true;
}

/* The own key is gone (queue again), or the fence has changed. */
static bool not_there(etcd_waiter *w, const etcd_call *call, const etcd_txn *txn)
{
    etcd_kvs own;
    etcd_kv kv;

    if (!etcd_txn_range(txn, 0, &own))
        return false;
    if (etcd_next_kv(&own, &kv) && kv.created == w->created) {
        etcd_waiter_due(w, RECHECK_QUEUE);
        etcd_lease_unfenced(w->lease, call->fence);
        etcd_waiter_step(w);
        return true;
    }
    etcd_waiter_lost(w);
    etcd_waiter_step(w);
    return true;
}

static bool answer_ask(etcd_call *call, pb_span message)
{
    etcd_waiter *w = call->about;
    bool asked = call->tag == TAG_ASK || call->tag == TAG_TRY;
    etcd_txn txn;

    if (!etcd_read_txn(message, &txn) || txn.revision <= 0)
        return false;
    w->call = NULL;
    w->key_is = KEY_KNOWN;
    if (!txn.succeeded)
        return asked ? not_made(w, call, &txn) : not_there(w, call, &txn);
    if (asked && !(call->tag == TAG_TRY && w->mode == PAWL_MODE_LATCH))
        w->created = txn.revision;
    return see(w, call, &txn);
}

static bool answer_peek(etcd_call *call, pb_span message)
{
    etcd_waiter *w = call->about;
    etcd_value value = {0};
    etcd_kvs kvs;
    etcd_kv kv;

    if (!etcd_read_range(message, &kvs))
        return false;
    w->call = NULL;
    w->peeked = true;
    if (etcd_next_kv(&kvs, &kv))
        etcd_value_read(kv.value, &value);
    if (!value.capacity)
        value.capacity = w->capacity;
    if (!value.capacity || (w->capacity && w->capacity != value.capacity)) {
        etcd_waiter_refuse(w, PAWL_ESTATE, "is in use with another capacity, or has none yet");
        return true;
    }
    w->capacity = value.capacity;
    if (w->permits > w->capacity)
        etcd_waiter_refuse(w, PAWL_EINVAL, "has fewer permits than were asked for");
    else
        etcd_waiter_step(w);
    return true;
}

static bool answer_check(etcd_call *call, pb_span message)
{
    etcd_waiter *w = call->about;
    etcd_txn txn;

    if (!etcd_read_txn(message, &txn))
        return false;
    w->call = NULL;
    if (!txn.succeeded)
        etcd_waiter_due(w, RECHECK_TAKE);
    if (w->cancelled)
        etcd_waiter_leave(w, PAWL_ECANCELED);
    else
        etcd_waiter_step(w);
    return true;
}

static const etcd_call_type check_type = {.path = "/etcdserverpb.KV/Txn", .answer = answer_check,
        .failed = etcd_waiter_failed};
static const etcd_call_type ask_type = {.path = "/etcdserverpb.KV/Txn", .answer = answer_ask,
        .failed = etcd_waiter_failed};
static const etcd_call_type peek_type = {.path = "/etcdserverpb.KV/Range", .answer = answer_peek,
        .failed = etcd_waiter_failed};
