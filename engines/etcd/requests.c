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

static etcd_range own_range(const etcd_waiter *s)
{
    return (etcd_range){.key = etcd_span(s->key)};
}

static void add_put(etcd_waiter *s, pb_buf *b)
{
    char value[ETCD_VALUE_MAX];
    size_t n = etcd_waiter_value(s, value);

    etcd_do_put(b, ETCD_THEN, etcd_span(s->key), (pb_span){(const uint8_t *)value, n},
                s->lease->id);
}

/* Read the keys ahead: the last part of the answer in the branch THEN. */
static void add_ahead(etcd_waiter *s, pb_buf *b, enum etcd_branch branch, int64_t older_than)
{
    etcd_bounds bounds;
    etcd_query q = {.order = ETCD_NEWEST_FIRST, .older_than = older_than};

    if (s->mode == PAWL_MODE_EXCLUSIVE) {
        q.range = *etcd_bounds_of(&bounds, s->e, s->name, ETCD_ALL);
        q.limit = older_than ? 1 : 2; /* the own key is the newest */
        q.keys_only = true;
    } else if (s->mode == PAWL_MODE_SHARED) {
        q.range = *etcd_bounds_of(&bounds, s->e, s->name, ETCD_LOCKS);
        q.limit = 1;
    } else {
        q.range = *etcd_bounds_of(&bounds, s->e, s->name, ETCD_PERMITS);
        q.order = ETCD_OLDEST_FIRST;
        q.older_than = 0;
        q.limit = s->capacity < PERMITS_READ ? s->capacity + 1 : PERMITS_READ;
    }
    etcd_do_range(b, branch, &q);
}

static void add_one(etcd_waiter *s, pb_buf *b, enum etcd_section section)
{
    etcd_bounds bounds;
    etcd_query q = {.limit = 1, .keys_only = true};

    q.range = *etcd_bounds_of(&bounds, s->e, s->name, section);
    etcd_do_range(b, ETCD_ELSE, &q);
}

static void if_empty(etcd_waiter *s, pb_buf *b, enum etcd_section section)
{
    etcd_bounds bounds;

    etcd_if_created(b, etcd_bounds_of(&bounds, s->e, s->name, section), 0);
}

/* The branch ELSE reads: the own key, keys of another type, keys that block a try. */
static void write_ask(etcd_waiter *s, etcd_call *call, bool try)
{
    pb_buf *b = &call->body;
    bool permits = s->mode == PAWL_MODE_PERMITS;
    enum etcd_section way = s->mode == PAWL_MODE_SHARED ? ETCD_LOCKS : ETCD_ALL;
    etcd_range own = own_range(s);
    etcd_query q = {.range = own};

    if (s->mode == PAWL_MODE_LATCH && try) {
        etcd_latch_query(b, s->e, s->name, ETCD_THEN);
        return;
    }
    etcd_if_created(b, &own, 0);
    etcd_if_fenced(call, s->lease);
    if (s->mode == PAWL_MODE_LATCH) {
        add_put(s, b);
        etcd_latch_query(b, s->e, s->name, ETCD_THEN);
        etcd_do_range(b, ETCD_ELSE, &q);
        etcd_do_range(b, ETCD_ELSE, &q);
        return;
    }
    if_empty(s, b, permits ? ETCD_LOW : ETCD_NO_LOCKS);
    if (permits)
        if_empty(s, b, ETCD_READS);
    else if (try)
        if_empty(s, b, way);
    add_put(s, b);
    add_ahead(s, b, ETCD_THEN, 0);
    etcd_do_range(b, ETCD_ELSE, &q);
    add_one(s, b, permits ? ETCD_LOW : ETCD_NO_LOCKS);
    if (permits)
        add_one(s, b, ETCD_READS);
    else if (try)
        add_ahead(s, b, ETCD_ELSE, 0);
}

static void write_recheck(etcd_waiter *s, etcd_call *call, bool take)
{
    pb_buf *b = &call->body;
    etcd_range own = own_range(s);
    etcd_query q = {.range = own, .keys_only = true};

    etcd_if_created(b, &own, s->created);
    etcd_if_fenced(call, s->lease);
    if (take) {
        s->since = s->e->env->wall_ms(s->e->env);
        add_put(s, b);
    }
    if (s->mode == PAWL_MODE_LATCH)
        etcd_latch_query(b, s->e, s->name, ETCD_THEN);
    else
        add_ahead(s, b, ETCD_THEN, s->created);
    etcd_do_range(b, ETCD_ELSE, &q);
}

/* Is the key ahead unchanged? This request costs less than reading all keys ahead. */
static void write_check(etcd_waiter *s, pb_buf *b)
{
    etcd_range ahead = {.key = etcd_span(s->ahead_key)};

    if (s->mode == PAWL_MODE_EXCLUSIVE)
        etcd_if_created(b, &ahead, s->ahead_is);
    else
        etcd_if_modified(b, &ahead, s->ahead_is);
}

/* The capacity is not known, or can't be right: read the capacity in force. */
static void write_peek(etcd_waiter *s, pb_buf *b)
{
    etcd_bounds bounds;
    etcd_query q = {.limit = 1, .order = ETCD_OLDEST_FIRST};

    q.range = *etcd_bounds_of(&bounds, s->e, s->name, ETCD_PERMITS);
    etcd_put_range(b, &q);
}

void etcd_waiter_ask(etcd_waiter *s)
{
    bool permits = s->mode == PAWL_MODE_PERMITS, rechecks = s->state == WAITER_QUEUED;
    bool peek = permits && !s->peeked && (s->capacity == 0 || s->permits > s->capacity);
    bool take = rechecks && s->recheck == RECHECK_TAKE && (permits || s->mode == PAWL_MODE_SHARED);
    bool try = !rechecks && !s->queue && !s->past_readers;
    bool check = rechecks && s->recheck == RECHECK_AHEAD;
    etcd_call *call = etcd_call_new(s->e, peek ? &peek_type : check ? &check_type : &ask_type, s);

    if (!call)
        goto out;
    call->tag = take ? TAG_TAKE : rechecks ? TAG_RECHECK : try ? TAG_TRY : TAG_ASK;
    if (peek)
        write_peek(s, &call->body);
    else if (check)
        write_check(s, &call->body);
    else if (rechecks)
        write_recheck(s, call, take);
    else
        write_ask(s, call, try);
    if (!etcd_call_send(call))
        goto out;
    s->call = call;
    s->recheck = RECHECK_NONE;
    return;
out:
    kit_timer_ms(s->e->env, &s->timer, 100);
}

/* ---- handling answers ------------------------------------------------------------------------ */

/* The key was created, but another key blocks the grant. */
void etcd_waiter_blocked(etcd_waiter *s, const etcd_kv *by, const etcd_range *range,
                         int64_t revision)
{
    etcd_range key = {.key = by ? by->key : (pb_span){0}};
    int64_t is = !by ? 0 : s->mode == PAWL_MODE_EXCLUSIVE ? by->created : by->modified;

    if (s->queue)
        etcd_waiter_queue(s, by ? &key : range, is, revision);
    else
        etcd_waiter_leave(s, PAWL_EBUSY);
}

void etcd_waiter_refuse(etcd_waiter *s, int code, const char *why)
{
    if (s->acquires)
        pawl_error_set(s->acquires->err, code, "\"%s\" %s", s->name, why);
    if (s->created)
        etcd_waiter_leave(s, code);
    else
        etcd_waiter_end(s, code);
}

/* Does the owner of this exclusive key only read by now? */
static bool only_read(const etcd_kv *kv)
{
    etcd_value value;

    etcd_value_read(kv->value, &value);
    return value.shared;
}

/* Granted, unless the key must be written once more for a token of its own. */
static void free_now(etcd_waiter *s, const etcd_call *call, int64_t revision)
{
    if (call->tag != TAG_RECHECK || s->mode == PAWL_MODE_EXCLUSIVE) {
        etcd_waiter_granted(s, (uint64_t)revision, call->sent);
        return;
    }
    etcd_waiter_due(s, RECHECK_TAKE);
    etcd_waiter_step(s);
}

static bool see_line(etcd_waiter *s, const etcd_call *call, etcd_kvs *ahead, int64_t revision)
{
    etcd_kv kv;

    while (etcd_next_kv(ahead, &kv))
        if (!etcd_same(kv.key, etcd_span(s->key))) {
            if (s->mode == PAWL_MODE_SHARED && only_read(&kv))
                break;
            etcd_waiter_blocked(s, &kv, NULL, revision);
            return true;
        }
    free_now(s, call, revision);
    return true;
}

/* The keys before the own one, in the order of their creation. */
struct permits_ahead {
    int64_t sum;
    bool own;      /* the own key was among them */
    etcd_kv last;  /* the key before the own one */
    int64_t capacity;
};

static struct permits_ahead count_ahead(etcd_waiter *s, etcd_kvs *kvs)
{
    struct permits_ahead a = {.capacity = s->capacity};
    bool first = true;
    etcd_value value;
    etcd_kv kv;

    while (!a.own && etcd_next_kv(kvs, &kv)) {
        etcd_value_read(kv.value, &value);
        if (first && value.capacity)
            a.capacity = value.capacity;
        first = false;
        a.own = etcd_same(kv.key, etcd_span(s->key));
        if (a.own)
            break;
        a.last = kv;
        a.sum += value.permits;
    }
    return a;
}

static bool see_permits(etcd_waiter *s, const etcd_call *call, etcd_kvs *kvs, int64_t revision)
{
    struct permits_ahead a = count_ahead(s, kvs);
    etcd_bounds bounds;

    if (a.capacity != s->capacity) {
        etcd_waiter_refuse(s, PAWL_ESTATE, "is in use with another capacity");
    } else if (a.own && a.sum + s->permits <= s->capacity) {
        free_now(s, call, revision);
    } else if (a.sum <= s->capacity && a.own) { /* the first waiter */
        etcd_waiter_blocked(s, NULL, etcd_bounds_of(&bounds, s->e, s->name, ETCD_PERMITS),
                            revision);
    } else { /* far behind: more keys are ahead than were read */
        etcd_waiter_blocked(s, &a.last, NULL, revision);
    }
    return true;
}

static bool see(etcd_waiter *s, const etcd_call *call, const etcd_txn *txn)
{
    etcd_kvs ahead;

    if (s->mode == PAWL_MODE_LATCH)
        return etcd_latch_see(s, txn);
    if (txn->n < 1 || !etcd_txn_range(txn, txn->n - 1, &ahead))
        return false;
    if (s->mode == PAWL_MODE_PERMITS)
        return see_permits(s, call, &ahead, txn->revision);
    return see_line(s, call, &ahead, txn->revision);
}

/* The key was not created: the key exists already, another key blocks, or the fence has changed. */
static bool not_made(etcd_waiter *s, const etcd_call *call, const etcd_txn *txn)
{
    etcd_kvs own, other, way = {0};
    etcd_kv kv;

    if (!etcd_txn_range(txn, 0, &own) || !etcd_txn_range(txn, 1, &other) ||
        (txn->n > 2 && !etcd_txn_range(txn, 2, &way)))
        return false;
    if (etcd_next_kv(&own, &kv)) {
        s->created = kv.created;
        s->state = WAITER_QUEUED;
        etcd_waiter_due(s, RECHECK_QUEUE);
        etcd_waiter_step(s);
    } else if (other.n || (way.n && s->mode == PAWL_MODE_PERMITS)) {
        etcd_waiter_refuse(s, PAWL_ESTATE, "is in use as something else");
    } else if (call->tag == TAG_TRY && way.n) {
        s->past_readers = s->mode == PAWL_MODE_SHARED && etcd_next_kv(&way, &kv) && only_read(&kv);
        if (s->past_readers)
            etcd_waiter_step(s);
        else
            etcd_waiter_end(s, PAWL_EBUSY);
    } else {
        etcd_lease_unfenced(s->lease, call->fence);
        etcd_waiter_step(s);
    }
    return true;
}

/* The own key is gone (queue again), or the fence has changed. */
static bool not_there(etcd_waiter *s, const etcd_call *call, const etcd_txn *txn)
{
    etcd_kvs own;
    etcd_kv kv;

    if (!etcd_txn_range(txn, 0, &own))
        return false;
    if (etcd_next_kv(&own, &kv) && kv.created == s->created) {
        etcd_waiter_due(s, RECHECK_QUEUE);
        etcd_lease_unfenced(s->lease, call->fence);
        etcd_waiter_step(s);
        return true;
    }
    etcd_waiter_lost(s);
    etcd_waiter_step(s);
    return true;
}

static bool answer_ask(etcd_call *call, pb_span message)
{
    etcd_waiter *s = call->about;
    bool asked = call->tag == TAG_ASK || call->tag == TAG_TRY;
    etcd_txn txn;

    if (!etcd_read_txn(message, &txn) || txn.revision <= 0)
        return false;
    s->call = NULL;
    s->key_is = KEY_KNOWN;
    if (!txn.succeeded)
        return asked ? not_made(s, call, &txn) : not_there(s, call, &txn);
    if (asked && !(call->tag == TAG_TRY && s->mode == PAWL_MODE_LATCH))
        s->created = txn.revision;
    return see(s, call, &txn);
}

static bool answer_peek(etcd_call *call, pb_span message)
{
    etcd_waiter *s = call->about;
    etcd_value value = {0};
    etcd_kvs kvs;
    etcd_kv kv;

    if (!etcd_read_range(message, &kvs))
        return false;
    s->call = NULL;
    s->peeked = true;
    if (etcd_next_kv(&kvs, &kv))
        etcd_value_read(kv.value, &value);
    if (!value.capacity)
        value.capacity = s->capacity;
    if (!value.capacity || (s->capacity && s->capacity != value.capacity)) {
        etcd_waiter_refuse(s, PAWL_ESTATE, "is in use with another capacity, or has none yet");
        return true;
    }
    s->capacity = value.capacity;
    if (s->permits > s->capacity)
        etcd_waiter_refuse(s, PAWL_EINVAL, "has fewer permits than were asked for");
    else
        etcd_waiter_step(s);
    return true;
}

static bool answer_check(etcd_call *call, pb_span message)
{
    etcd_waiter *s = call->about;
    etcd_txn txn;

    if (!etcd_read_txn(message, &txn))
        return false;
    s->call = NULL;
    if (!txn.succeeded)
        etcd_waiter_due(s, RECHECK_TAKE);
    if (s->cancelled)
        etcd_waiter_leave(s, PAWL_ECANCELED);
    else
        etcd_waiter_step(s);
    return true;
}

static const etcd_call_type check_type = {.path = "/etcdserverpb.KV/Txn", .answer = answer_check,
        .failed = etcd_waiter_failed};
static const etcd_call_type ask_type = {.path = "/etcdserverpb.KV/Txn", .answer = answer_ask,
        .failed = etcd_waiter_failed};
static const etcd_call_type peek_type = {.path = "/etcdserverpb.KV/Range", .answer = answer_peek,
        .failed = etcd_waiter_failed};
