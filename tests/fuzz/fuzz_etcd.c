/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_etcd.c - any bytes as the data that an etcd server sends on one gRPC stream.
 *
 * Rules: the messages don't depend on the pieces in which the bytes arrive. Each message is read as
 * every kind of answer; the results of a reader lie inside the message, and walking over an
 * accepted answer finds as many parts as were counted. The fields of a message that are written and
 * read again are the same fields. The same holds for the value of a key.
 */
#include <string.h>

#include "etcd/inspect.h"
#include "fuzz.h"

static char prefix[] = "pawl/";

/* Replaces the function of latch.c, which needs a connection. */
int64_t etcd_latch_left(const etcd_kv *kv)
{
    return kv->version > 0 ? kv->version : 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void inside(pb_span part, pb_span whole)
{
    DEMAND(part.length == 0 || (part.data >= whole.data &&
                                part.data + part.length <= whole.data + whole.length));
}

static void check_value(pb_span text)
{
    etcd_value first, second;
    char written[ETCD_VALUE_MAX];
    size_t n;

    etcd_value_read(text, &first);
    DEMAND(first.permits >= 0 && first.permits <= UINT32_MAX && first.capacity >= 0);
    DEMAND(first.readers >= 0 && first.readers <= UINT32_MAX && first.since >= 0);
    n = etcd_value_write(written, &first);
    DEMAND(n < sizeof written);
    etcd_value_read((pb_span){(const uint8_t *)written, n}, &second);
    DEMAND(second.ours);
    DEMAND(first.since == second.since && first.pid == second.pid);
    DEMAND(first.capacity == second.capacity && first.token == second.token);
    DEMAND(!strcmp(first.host, second.host) && !strcmp(first.label, second.label));
    DEMAND(!strcmp(first.program, second.program));
}

/* Make the rows of a name from these keys: no number in the keys may do harm. */
static void check_rows(pb_span message)
{
    etcd_inspect_name name = {.type = -1};
    etcd_kvs kvs;
    etcd_kv kv;
    pb_span tail;
    char text[PAWL_NAME_MAX + 1];
    etcd e = {.settings.prefix = prefix};

    if (!etcd_read_range(message, &kvs))
        return;
    while (etcd_next_kv(&kvs, &kv))
        if (etcd_key_name(&e, kv.key, text, &tail))
            DEMAND(etcd_inspect_add(&name, &kv, tail));
    etcd_inspect_complete(&name);
    DEMAND(name.n <= INSPECT_KEYS_MAX && name.used >= 0 && name.count >= 0);
    etcd_inspect_clear(&name);
}

static void check_kv(const etcd_kv *kv, pb_span whole)
{
    inside(kv->key, whole);
    inside(kv->value, whole);
    check_value(kv->value);
}

static void check_range(pb_span message)
{
    etcd_kvs kvs;
    etcd_kv kv;
    size_t n = 0;

    if (!etcd_read_range(message, &kvs))
        return;
    while (etcd_next_kv(&kvs, &kv)) {
        check_kv(&kv, message);
        n++;
    }
    DEMAND(n == kvs.n);
}

static void check_txn(pb_span message)
{
    etcd_txn txn, brief;
    bool accepted = etcd_read_txn(message, &txn);

    DEMAND(!accepted || etcd_read_txn_short(message, &brief));
    for (size_t i = 0; accepted && i < txn.n; i++) {
        etcd_kvs kvs;

        inside(txn.part[i], message);
        if (etcd_txn_range(&txn, i, &kvs))
            check_range(txn.part[i]);
    }
}

static void check_watch(pb_span message)
{
    etcd_watch_answer answer;
    etcd_event event;

    if (!etcd_read_watch(message, &answer))
        return;
    inside(answer.reason, message);
    while (etcd_next_event(&answer, &event))
        check_kv(&event.kv, message);
}

static void check_again(pb_span message)
{
    pb_span rest = message, rest2;
    pb_buf copy = {0};
    pb_field f, g;
    int got;

    while ((got = etcd_pb_next(&rest, &f)) > 0) {
        if (f.type == PB_NUMBER)
            etcd_pb_number(&copy, f.number, f.value);
        else
            etcd_pb_bytes(&copy, f.number, f.bytes.data, f.bytes.length);
    }
    rest = message;
    rest2 = (pb_span){copy.data, copy.length};
    while (got == 0 && etcd_pb_next(&rest, &f) > 0) {
        DEMAND(etcd_pb_next(&rest2, &g) > 0 && f.number == g.number && f.type == g.type);
        DEMAND(f.type == PB_NUMBER ? f.value == g.value : etcd_same(f.bytes, g.bytes));
    }
    DEMAND(got != 0 || etcd_pb_next(&rest2, &g) == 0);
    etcd_pb_free(&copy);
}

static void check_message(pb_span message)
{
    etcd_lease_answer lease;
    int64_t deleted;
    pb_span token;

    check_again(message);
    check_range(message);
    check_rows(message);
    check_txn(message);
    check_watch(message);
    etcd_read_lease(message, &lease);
    etcd_read_deleted(message, &deleted);
    if (etcd_read_token(message, &token))
        inside(token, message);
}

/* ---- the stream ------------------------------------------------------------------------------ */

/* Feed the data in pieces of `piece` bytes. Returns a checksum of the messages, and the last
 * result. */
static uint64_t run(const uint8_t *data, size_t size, size_t piece, bool inspection,
                    enum grpc_result *last)
{
    grpc_reader reader = {0};
    uint64_t sum = 14695981039346656037u;

    *last = GRPC_MORE;
    for (size_t at = 0; at < size && *last <= GRPC_GOT; at += piece) {
        pb_span rest = {data + at, size - at < piece ? size - at : piece}, message;

        while (rest.length && *last <= GRPC_GOT) {
            *last = etcd_grpc_next(&reader, &rest, &message);
            if (*last != GRPC_GOT)
                continue;
            for (size_t i = 0; i < message.length; i++)
                sum = (sum ^ message.data[i]) * 1099511628211u;
            sum = (sum ^ message.length) * 1099511628211u;
            if (inspection)
                check_message(message);
        }
    }
    etcd_grpc_free(&reader);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum grpc_result whole, pieces;
    uint64_t sum = run(data, size, size ? size : 1, true, &whole);

    DEMAND(run(data, size, 1, false, &pieces) == sum);
    DEMAND((whole > GRPC_GOT) == (pieces > GRPC_GOT));
    DEMAND(run(data, size, 3, false, &pieces) == sum);
    check_message((pb_span){data, size}); /* also without any frame */
    return 0;
}
