/* SPDX-License-Identifier: Apache-2.0
 *
 * messages.c - etcd's messages (messages.h). Field numbers are from etcd's rpc.proto and kv.proto.
 */
#include "messages.h"

#include <stdio.h>
#include <string.h>

/* ---- requests -------------------------------------------------------------------------------- */

static void add_range(pb_buf *b, const etcd_range *range)
{
    etcd_pb_bytes(b, 1, range->key.data, range->key.length);
    if (range->end.length)
        etcd_pb_bytes(b, 2, range->end.data, range->end.length);
}

void etcd_put_range(pb_buf *b, const etcd_query *q)
{
    add_range(b, &q->range);
    etcd_pb_uint(b, 3, (uint64_t)q->limit);
    if (q->order != ETCD_BY_KEY) {
        etcd_pb_uint(b, 5, q->order);
        etcd_pb_uint(b, 6, 2); /* by creation */
    }
    etcd_pb_uint(b, 8, q->keys_only);
    etcd_pb_uint(b, 13, (uint64_t)(q->older_than ? q->older_than - 1 : 0));
}

enum { TARGET_VERSION = 0, TARGET_CREATED = 1, TARGET_MODIFIED = 2 };
enum { EQUAL = 0, GREATER = 1 };

static void add_condition(pb_buf *b, const etcd_range *range, int result, int target,
                          uint64_t value)
{
    size_t mark = etcd_pb_begin(b, 1);

    etcd_pb_uint(b, 1, (uint64_t)result);
    etcd_pb_uint(b, 2, (uint64_t)target);
    etcd_pb_bytes(b, 3, range->key.data, range->key.length);
    etcd_pb_number(b, (uint32_t)(4 + target), value);
    if (range->end.length)
        etcd_pb_bytes(b, 64, range->end.data, range->end.length);
    etcd_pb_end(b, mark);
}

void etcd_if_created(pb_buf *b, const etcd_range *range, int64_t revision)
{
    add_condition(b, range, EQUAL, TARGET_CREATED, (uint64_t)revision);
}

void etcd_if_modified(pb_buf *b, const etcd_range *range, int64_t revision)
{
    add_condition(b, range, EQUAL, TARGET_MODIFIED, (uint64_t)revision);
}

void etcd_if_exists(pb_buf *b, const etcd_range *range)
{
    add_condition(b, range, GREATER, TARGET_VERSION, 0);
}

enum { OP_RANGE = 1, OP_PUT = 2, OP_DELETE = 3 };

void etcd_do_range(pb_buf *b, enum etcd_branch branch, const etcd_query *q)
{
    size_t mark = etcd_pb_begin(b, branch), inner = etcd_pb_begin(b, OP_RANGE);

    etcd_put_range(b, q);
    etcd_pb_end(b, inner);
    etcd_pb_end(b, mark);
}

void etcd_do_put(pb_buf *b, enum etcd_branch branch, pb_span key, pb_span value, int64_t lease)
{
    size_t mark = etcd_pb_begin(b, branch), inner = etcd_pb_begin(b, OP_PUT);

    etcd_pb_bytes(b, 1, key.data, key.length);
    etcd_pb_bytes(b, 2, value.data, value.length);
    etcd_pb_uint(b, 3, (uint64_t)lease);
    etcd_pb_end(b, inner);
    etcd_pb_end(b, mark);
}

void etcd_do_touch(pb_buf *b, enum etcd_branch branch, pb_span key)
{
    size_t mark = etcd_pb_begin(b, branch), inner = etcd_pb_begin(b, OP_PUT);

    etcd_pb_bytes(b, 1, key.data, key.length);
    etcd_pb_uint(b, 5, 1);
    etcd_pb_end(b, inner);
    etcd_pb_end(b, mark);
}

void etcd_do_delete(pb_buf *b, enum etcd_branch branch, const etcd_range *range)
{
    size_t mark = etcd_pb_begin(b, branch), inner = etcd_pb_begin(b, OP_DELETE);

    add_range(b, range);
    etcd_pb_end(b, inner);
    etcd_pb_end(b, mark);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Is this the field `number`? A field of another type than expected is malformed. */
static bool is(const pb_field *f, uint32_t number, enum pb_type type, bool *bad)
{
    if (f->number != number)
        return false;
    *bad |= f->type != type;
    return f->type == type;
}

static bool read_revision(pb_span header, int64_t *ret)
{
    pb_field f;
    bool bad = false;
    int got;

    while ((got = etcd_pb_next(&header, &f)) > 0)
        if (is(&f, 3, PB_NUMBER, &bad))
            *ret = (int64_t)f.value;
    return got == 0 && !bad;
}

static bool read_kv(pb_span data, etcd_kv *ret)
{
    pb_field f;
    bool bad = false;
    int got;

    *ret = (etcd_kv){.key = {data.data, 0}, .value = {data.data, 0}};
    while ((got = etcd_pb_next(&data, &f)) > 0) {
        if (is(&f, 1, PB_BYTES, &bad))
            ret->key = f.bytes;
        else if (is(&f, 2, PB_NUMBER, &bad))
            ret->created = (int64_t)f.value;
        else if (is(&f, 3, PB_NUMBER, &bad))
            ret->modified = (int64_t)f.value;
        else if (is(&f, 4, PB_NUMBER, &bad))
            ret->version = (int64_t)f.value;
        else if (is(&f, 5, PB_BYTES, &bad))
            ret->value = f.bytes;
        else if (is(&f, 6, PB_NUMBER, &bad))
            ret->lease = (int64_t)f.value;
    }
    return got == 0 && !bad;
}

int64_t etcd_read_header(pb_span data)
{
    int64_t revision = 0;
    pb_field f;

    while (etcd_pb_next(&data, &f) > 0)
        if (f.number == 1 && f.type == PB_BYTES && !read_revision(f.bytes, &revision))
            return 0;
    return revision;
}

bool etcd_read_range(pb_span data, etcd_kvs *ret)
{
    pb_field f;
    bool bad = false;
    etcd_kv kv;
    int got;

    *ret = (etcd_kvs){.rest = data};
    while ((got = etcd_pb_next(&data, &f)) > 0) {
        if (is(&f, 1, PB_BYTES, &bad)) {
            bad |= !read_revision(f.bytes, &ret->revision);
        } else if (is(&f, 2, PB_BYTES, &bad)) {
            bad |= !read_kv(f.bytes, &kv);
            ret->n++;
        } else if (is(&f, 3, PB_NUMBER, &bad)) {
            ret->more = f.value != 0;
        } else if (is(&f, 4, PB_NUMBER, &bad)) {
            ret->count = (int64_t)f.value;
        }
    }
    return got == 0 && !bad;
}

bool etcd_next_kv(etcd_kvs *kvs, etcd_kv *ret)
{
    pb_field f;

    while (etcd_pb_next(&kvs->rest, &f) > 0)
        if (f.number == 2 && f.type == PB_BYTES)
            return read_kv(f.bytes, ret);
    return false;
}

/* One part of a transaction's answer: exactly one of three types. */
static bool read_part(pb_span data, pb_span *ret)
{
    pb_field f;
    bool bad = false;
    int got;

    *ret = (pb_span){data.data, 0};
    while ((got = etcd_pb_next(&data, &f)) > 0)
        for (uint32_t kind = OP_RANGE; kind <= OP_DELETE; kind++)
            if (is(&f, kind, PB_BYTES, &bad))
                *ret = f.bytes;
    return got == 0 && !bad;
}

/* Read up to ETCD_TXN_PARTS parts; `all`: more parts are an error. */
static bool read_txn(pb_span data, etcd_txn *ret, bool all)
{
    pb_field f;
    bool bad = false;
    int got;

    *ret = (etcd_txn){0};
    while ((got = etcd_pb_next(&data, &f)) > 0) {
        if (is(&f, 1, PB_BYTES, &bad))
            bad |= !read_revision(f.bytes, &ret->revision);
        else if (is(&f, 2, PB_NUMBER, &bad))
            ret->succeeded = f.value != 0;
        else if (!is(&f, 3, PB_BYTES, &bad))
            continue;
        else if (ret->n < ETCD_TXN_PARTS)
            bad |= !read_part(f.bytes, &ret->part[ret->n++]);
        else
            bad |= all;
    }
    return got == 0 && !bad;
}

bool etcd_read_txn(pb_span data, etcd_txn *ret)
{
    return read_txn(data, ret, true);
}

bool etcd_read_txn_short(pb_span data, etcd_txn *ret)
{
    return read_txn(data, ret, false);
}

bool etcd_txn_range(const etcd_txn *txn, size_t i, etcd_kvs *ret)
{
    return i < txn->n && etcd_read_range(txn->part[i], ret);
}

bool etcd_read_deleted(pb_span data, int64_t *ret)
{
    pb_field f;
    bool bad = false;
    int got;

    *ret = 0;
    while ((got = etcd_pb_next(&data, &f)) > 0)
        if (is(&f, 2, PB_NUMBER, &bad))
            *ret = (int64_t)f.value;
    return got == 0 && !bad;
}

bool etcd_read_lease(pb_span data, etcd_lease_answer *ret)
{
    pb_field f;
    bool bad = false;
    int got;

    *ret = (etcd_lease_answer){0};
    while ((got = etcd_pb_next(&data, &f)) > 0) {
        if (is(&f, 2, PB_NUMBER, &bad))
            ret->id = (int64_t)f.value;
        else if (is(&f, 3, PB_NUMBER, &bad))
            ret->ttl = (int64_t)f.value;
    }
    return got == 0 && !bad;
}

static bool read_event(pb_span data, etcd_event *ret)
{
    pb_field f;
    bool bad = false;
    int got;

    *ret = (etcd_event){.kv = {.key = {data.data, 0}, .value = {data.data, 0}}};
    while ((got = etcd_pb_next(&data, &f)) > 0) {
        if (is(&f, 1, PB_NUMBER, &bad))
            ret->deleted = f.value == 1;
        else if (is(&f, 2, PB_BYTES, &bad))
            bad |= !read_kv(f.bytes, &ret->kv);
    }
    return got == 0 && !bad;
}

bool etcd_read_watch(pb_span data, etcd_watch_answer *ret)
{
    pb_field f;
    bool bad = false;
    etcd_event event;
    int got;

    *ret = (etcd_watch_answer){.rest = data, .reason = {data.data, 0}};
    while ((got = etcd_pb_next(&data, &f)) > 0) {
        if (is(&f, 1, PB_BYTES, &bad))
            bad |= !read_revision(f.bytes, &ret->revision);
        else if (is(&f, 2, PB_NUMBER, &bad))
            ret->id = (int64_t)f.value;
        else if (is(&f, 3, PB_NUMBER, &bad))
            ret->created = f.value != 0;
        else if (is(&f, 4, PB_NUMBER, &bad))
            ret->canceled = f.value != 0;
        else if (is(&f, 5, PB_NUMBER, &bad))
            ret->compacted = (int64_t)f.value;
        else if (is(&f, 6, PB_BYTES, &bad))
            ret->reason = f.bytes;
        else if (is(&f, 11, PB_BYTES, &bad))
            bad |= !read_event(f.bytes, &event);
    }
    return got == 0 && !bad;
}

bool etcd_next_event(etcd_watch_answer *answer, etcd_event *ret)
{
    pb_field f;

    while (etcd_pb_next(&answer->rest, &f) > 0)
        if (f.number == 11 && f.type == PB_BYTES)
            return read_event(f.bytes, ret);
    return false;
}

bool etcd_read_token(pb_span data, pb_span *ret)
{
    pb_field f;
    bool bad = false;
    int got;

    *ret = (pb_span){data.data, 0};
    while ((got = etcd_pb_next(&data, &f)) > 0)
        if (is(&f, 2, PB_BYTES, &bad))
            *ret = f.bytes;
    return got == 0 && !bad;
}

static void copy(char *to, size_t size, pb_span from)
{
    snprintf(to, size, "%.*s", (int)(from.length < size ? from.length : size),
             (const char *)from.data);
}

bool etcd_read_status(pb_span data, etcd_status *ret)
{
    pb_field f;
    bool bad = false;
    int got;

    *ret = (etcd_status){.leader = 0};
    while ((got = etcd_pb_next(&data, &f)) > 0) {
        if (is(&f, 2, PB_BYTES, &bad))
            copy(ret->version, sizeof ret->version, f.bytes);
        else if (is(&f, 3, PB_NUMBER, &bad))
            ret->db_size = f.value;
        else if (is(&f, 4, PB_NUMBER, &bad))
            ret->leader = f.value;
        else if (is(&f, 8, PB_BYTES, &bad) && !ret->errors[0])
            copy(ret->errors, sizeof ret->errors, f.bytes);
        else if (is(&f, 10, PB_NUMBER, &bad))
            ret->learner = f.value;
        else if (is(&f, 12, PB_NUMBER, &bad))
            ret->quota = f.value;
    }
    return got == 0 && !bad;
}
