/* SPDX-License-Identifier: Apache-2.0
 *
 * latch.c - pawl_latch: count-down latches. All state is in the service; a handle only stores the
 * name.
 */
#include <stdlib.h>

#include "core.h"

struct pawl_latch {
    pawl_client *client;
    char name[PAWL_NAME_MAX + 1];
};

int pawl_latch_new(pawl_latch **ret, pawl_client *client, const char *name, pawl_error *err)
{
    pawl_latch *latch;
    int code;

    if (!ret || !client)
        return pawl_error_set(err, PAWL_EINVAL, "%s is NULL", ret ? "client" : "ret");
    if ((code = pawl__name_check(name, err)) || (code = pawl__enter(client, false, err)))
        return code;
    latch = calloc(1, sizeof *latch);
    if (!(client->caps & PAWL_CAP_LATCH)) {
        code = pawl_error_set(err, PAWL_ENOTSUP, "this engine has no latches");
        free(latch);
    } else if (!latch) {
        code = pawl_error_set(err, PAWL_ENOMEM, "out of memory");
    } else {
        latch->client = client;
        client->refs++;
        strcpy(latch->name, name);
        *ret = latch;
    }
    pawl__leave(client);
    return code;
}

/* Send one op about the latch and wait. *count goes into the op, and receives the op's result. */
static int ask(pawl_latch *latch, int kind, int64_t *count, int64_t wait_ms, pawl_error *err)
{
    struct request r;
    int code;

    if (!latch)
        return pawl_error_set(err, PAWL_EINVAL, "latch is NULL");
    code = pawl__enter(latch->client, true, err);
    if (code)
        return code;
    pawl__exchange_init(&r, latch->client, kind, PAWL_MODE_LATCH, latch->name);
    r.handle = latch;
    r.op.count = count ? *count : 0;
    r.op.queue = kind == PAWL_OP_ACQUIRE && wait_ms && (latch->client->caps & PAWL_CAP_QUEUE);
    r.poll = kind == PAWL_OP_ACQUIRE && wait_ms && !r.op.queue;
    code = pawl__exchange(&r, wait_ms, err);
    if (!code && count)
        *count = r.op.value;
    pawl__leave(latch->client);
    return code;
}

int pawl_latch_set(pawl_latch *latch, int64_t count, pawl_error *err)
{
    if (count < 1)
        return pawl_error_set(err, PAWL_EINVAL, "a latch's count is 1 or more");
    return ask(latch, PAWL_OP_LATCH_SET, &count, 0, err);
}

int pawl_latch_count_down(pawl_latch *latch, pawl_error *err)
{
    return ask(latch, PAWL_OP_LATCH_DOWN, NULL, 0, err);
}

int pawl_latch_count(pawl_latch *latch, int64_t *ret, pawl_error *err)
{
    int64_t count = 0;
    int code;

    if (!ret)
        return pawl_error_set(err, PAWL_EINVAL, "ret is NULL");
    code = ask(latch, PAWL_OP_COUNT, &count, 0, err);
    if (!code)
        *ret = count;
    return code;
}

int pawl_latch_wait(pawl_latch *latch, int64_t wait_ms, pawl_error *err)
{
    if (wait_ms < PAWL_FOREVER)
        return pawl_error_set(err, PAWL_EINVAL, "wait_ms is negative; PAWL_FOREVER is -1");
    return ask(latch, PAWL_OP_ACQUIRE, NULL, wait_ms, err);
}

int pawl_latch_cancel(pawl_latch *latch)
{
    int n;

    if (!latch)
        return PAWL_EINVAL;
    n = pawl__enter(latch->client, false, NULL);
    if (n)
        return n;
    n = pawl__exchanges_cancel(latch->client, latch);
    pawl__leave(latch->client);
    return n;
}

void pawl_latch_free(pawl_latch *latch)
{
    if (!latch || latch->client->generation != pawl__fork_generation())
        return;
    pawl__client_unref(latch->client);
    free(latch);
}
