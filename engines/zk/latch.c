/* SPDX-License-Identifier: Apache-2.0
 *
 * latch.c - set and count down.
 *
 *     NAME/latch    exists as long as the count is above 0; waiters watch this node
 *     NAME/count    "pawl count=3 CLIENT.SEQ CLIENT.SEQ ...": the count and the latest receipts
 *
 * One request creates both nodes, and one request deletes both, so a latch exists as a whole or not
 * at all. In between, `count` is written with a check of its version: a client that was overtaken
 * reads the count again. A count-down that got no answer also reads the count again, and finds its
 * receipt there if the count-down was carried out. If the latch was created anew meanwhile, the old
 * latch is over, and with it the count-down. A count-down that finds no latch checks the other uses
 * of the name, and is refused if the name is a lock or a semaphore. So each owner counts once; a
 * retry by the core is recognized by its sequence number (zk->receipts).
 */
#include <inttypes.h>
#include <stdlib.h>

#include "zk.h"

#define RECEIPTS 32
#define RECEIPT_MAX 34
#define DATA_MAX (64 + RECEIPTS * RECEIPT_MAX)

enum latch_step { LATCH_QUERY, LATCH_READ, LATCH_WRITE };

typedef struct latch {
    zk_task task;
    pawl_op *op;
    uint8_t step;
    bool folders;      /* the folders are missing */
    bool denied;       /* perhaps the right to create one of the folders is missing */
    uint8_t tries;
    bool sent;         /* a write was sent and not answered */
    bool set, other;   /* query: the latch is set; the name is in use otherwise */
    int error;         /* of the last write or read */
    int64_t czxid;     /* czxid and version of `count` at the last write */
    int32_t version, cversion; /* cversion: of the name; -1: no such node */
    int32_t seen_version, seen_cversion;
    int64_t seen_czxid, value;
    char data[DATA_MAX + 1];
    char receipt[RECEIPT_MAX];
    char name[];
} latch;

static latch *latch_of(zk_task *task)
{
    return (latch *)(void *)task;
}

static void finish(latch *l, int code, const char *words)
{
    zk *z = l->task.zk;
    pawl_op *op = l->op;

    if (!code)
        z->receipts[z->nreceipts++ % ZK_RECEIPTS] = op->owner.seq;
    zk_task_end(&l->task);
    free(l);
    pawl_op_finish_with(op, code, words);
}

static void failed(latch *l)
{
    char words[ZK_WORDS];
    int code = zk_error_code(l->task.zk, l->error, words);

    finish(l, code, words);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool name_listed(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    latch *l = latch_of(task);
    size_t n;

    (void)tag;
    if (error == ZK_LOST)
        return true;
    l->folders = error == ZK_NO_NODE;
    if (error) {
        l->error = error == ZK_NO_NODE ? 0 : error;
        return true;
    }
    n = jute_count(body, 4);
    for (size_t i = 0; i < n; i++) {
        jute_bytes name = jute_get_bytes(body);

        l->set |= zk_bytes_are(name, "latch");
        l->other |= zk_child_read(task->zk->settings.kazoo, name).sort <= ZK_SHARED;
    }
    l->seen_cversion = jute_stat(body).cversion;
    return jute_at_end(body);
}

static bool folder_listed(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    (void)tag;
    if (error)
        return true;
    latch_of(task)->other |= jute_count(body, 4) > 0;
    return !body->bad;
}

static bool count_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    latch *l = latch_of(task);
    jute_bytes data;
    zk_stat stat;

    (void)tag;
    l->error = error;
    if (error)
        return true;
    data = jute_get_bytes(body);
    stat = jute_stat(body);
    l->seen_czxid = stat.czxid;
    l->seen_version = stat.version;
    l->data[0] = 0;
    if (data.length && data.length <= DATA_MAX && !memchr(data.data, 0, data.length)) {
        memcpy(l->data, data.data, data.length);
        l->data[data.length] = 0;
    }
    l->value = zk_count_read(data, "pawl count=");
    return jute_at_end(body);
}

static void read_count(latch *l)
{
    l->step = LATCH_READ;
    zk_ask_turn(&l->task, zk_path(l->task.zk, l->name, NULL, NULL));
    zk_ask(&l->task, ZK_GET, zk_path(l->task.zk, l->name, "count", NULL), false, count_read, 0);
}

static bool has_receipt(const latch *l)
{
    const char *at = strstr(l->data, l->receipt);

    return at && (at[strlen(l->receipt)] == ' ' || !at[strlen(l->receipt)]);
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool written(zk_task *task, int64_t tag, int header, jute_reader *body)
{
    latch *l = latch_of(task);
    int type, error = header;

    if (error == ZK_LOST)
        return true;
    while (tag && !header && (type = jute_multi(body, &error))) {
        if (type == ZK_CREATE)
            jute_get_bytes(body);
        else if (type != ZK_DELETE)
            return false;
    }
    if (body->bad)
        return false;
    l->sent = false;
    l->error = error;
    return true;
}

static void put_create(latch *l, jute_writer *w, const char *dir, const char *data)
{
    jute_put_int(w, ZK_CREATE);
    jute_put_bool(w, false);
    jute_put_int(w, -1);
    jute_put_text(w, zk_path(l->task.zk, l->name, dir, NULL));
    jute_put_bytes(w, data, strlen(data));
    zk_put_acl(l->task.zk, w);
    jute_put_int(w, ZK_PERSISTENT);
}

static void put_delete(latch *l, jute_writer *w, const char *dir, int version)
{
    jute_put_int(w, ZK_DELETE);
    jute_put_bool(w, false);
    jute_put_int(w, -1);
    jute_put_text(w, zk_path(l->task.zk, l->name, dir, NULL));
    jute_put_int(w, version);
}

static void end_multi(latch *l, jute_writer *w)
{
    jute_put_int(w, -1);
    jute_put_bool(w, true);
    jute_put_int(w, -1);
    zk_request_end(&l->task, w, written, 1);
}

static bool folder_made(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    (void)tag;
    (void)body;
    latch_of(task)->denied |= error == ZK_NO_AUTH; /* also returned for folders that exist */
    return true;
}

static void write_set(latch *l)
{
    char text[64 + RECEIPT_MAX];
    jute_writer w;

    snprintf(text, sizeof text, "pawl count=%" PRId64 " %s", l->op->count, l->receipt);
    if (l->folders)
        zk_ask_folders(&l->task, zk_path(l->task.zk, l->name, "latch", NULL), folder_made);
    l->step = LATCH_WRITE;
    l->cversion = l->folders ? 0 : l->seen_cversion;
    l->sent = true;
    w = zk_request(l->task.zk, ZK_MULTI);
    put_create(l, &w, "latch", "");
    put_create(l, &w, "count", text);
    end_multi(l, &w);
}

/* Write the lower count and the receipts, the newest first. */
static void write_down(latch *l)
{
    const char *rest = strchr(l->data + strlen("pawl "), ' ');
    char text[DATA_MAX + 64 + RECEIPT_MAX];
    jute_writer w;
    int n;

    l->step = LATCH_WRITE;
    l->czxid = l->seen_czxid;
    l->version = l->seen_version;
    l->sent = true;
    if (l->value <= 1) {
        w = zk_request(l->task.zk, ZK_MULTI);
        put_delete(l, &w, "count", l->version);
        put_delete(l, &w, "latch", -1);
        end_multi(l, &w);
        return;
    }
    n = snprintf(text, sizeof text, "pawl count=%" PRId64 " %s", l->value - 1, l->receipt);
    for (int i = 1; rest && *rest && i < RECEIPTS; i++) {
        size_t length = 1 + strcspn(rest + 1, " ");

        n += snprintf(text + n, sizeof text - (size_t)n, "%.*s", (int)length, rest);
        rest += length;
    }
    w = zk_request(l->task.zk, ZK_SET);
    jute_put_text(&w, zk_path(l->task.zk, l->name, "count", NULL));
    jute_put_bytes(&w, text, (size_t)n);
    jute_put_int(&w, l->version);
    zk_request_end(&l->task, &w, written, 0);
}

/* ---- decisions ------------------------------------------------------------------------------- */

static void query_name(latch *l)
{
    zk_task *task = &l->task;
    zk *z = task->zk;

    l->step = LATCH_QUERY;
    l->set = l->other = false;
    l->seen_cversion = -1;
    l->error = 0;
    zk_ask_turn(task, zk_path(z, l->name, NULL, NULL));
    zk_ask(task, ZK_CHILDREN, zk_path(z, l->name, NULL, NULL), false, name_listed, 0);
    zk_ask(task, ZK_CHILDREN, zk_path(z, l->name, "locks", NULL), false, folder_listed, 0);
    zk_ask(task, ZK_CHILDREN, zk_path(z, l->name, "leases", NULL), false, folder_listed, 0);
}

static void latch_go(zk_task *task)
{
    latch *l = latch_of(task);

    if (l->op->kind == PAWL_OP_LATCH_DOWN)
        read_count(l);
    else
        query_name(l);
}

static void decide_set(latch *l)
{
    if (l->step == LATCH_QUERY && l->other)
        finish(l, PAWL_ESTATE, "the name is in use as something else");
    else if (l->step == LATCH_QUERY && l->set)
        read_count(l);
    else if (l->step == LATCH_QUERY && l->sent && l->seen_cversion > l->cversion)
        finish(l, PAWL_EBACKEND, "can't tell whether it was set and has been counted down since");
    else if (l->step == LATCH_QUERY)
        write_set(l);
    else if (l->step == LATCH_READ && !l->error)
        finish(l, has_receipt(l) ? 0 : PAWL_ESTATE, "it is set already");
    else if (l->step == LATCH_WRITE && !l->error)
        finish(l, 0, NULL);
    else if (l->error == ZK_NO_NODE && l->denied && ++l->tries > 3) { /* can't create the folders */
        l->error = ZK_NO_AUTH;
        failed(l);
    } else if (l->error == ZK_NO_NODE || l->error == ZK_NODE_EXISTS)
        zk_task_go(&l->task);
    else
        failed(l);
}

/* There was no latch: is the name in use otherwise? */
static void decide_without(latch *l)
{
    if (l->error)
        failed(l);
    else if (l->other)
        finish(l, PAWL_ESTATE, "the name is in use as something else");
    else if (l->set) /* set meanwhile */
        read_count(l);
    else
        finish(l, 0, NULL);
}

static void decide_down(latch *l)
{
    bool counted = l->step == LATCH_READ && !l->error &&
                   (has_receipt(l) || (l->sent && l->seen_czxid != l->czxid));

    if (l->step == LATCH_QUERY)
        decide_without(l);
    else if (l->step == LATCH_READ && l->error == ZK_NO_NODE && !l->sent)
        query_name(l);
    else if (l->error == ZK_NO_NODE || (l->step == LATCH_WRITE && !l->error) || counted)
        finish(l, 0, NULL);
    else if (l->step == LATCH_WRITE && l->error == ZK_BAD_VERSION)
        read_count(l);
    else if (l->error)
        failed(l);
    else if (l->value < 0)
        finish(l, PAWL_EBACKEND, "the latch's node does not hold a count");
    else if (l->sent && l->seen_version - l->version >= RECEIPTS)
        finish(l, PAWL_EBACKEND, "can't tell whether it was counted: too many have since");
    else
        write_down(l);
}

static void latch_next(zk_task *task)
{
    latch *l = latch_of(task);

    if (l->op->kind == PAWL_OP_LATCH_SET)
        decide_set(l);
    else
        decide_down(l);
}

static void latch_refused(zk_task *task, int code, const char *words)
{
    if (!latch_of(task)->sent)
        finish(latch_of(task), code, words);
}

static const zk_task_type latch_type = {.go = latch_go, .next = latch_next,
        .refused = latch_refused};

void zk_latch(zk *z, pawl_op *op)
{
    latch *l;

    for (size_t i = 0; i < ZK_RECEIPTS; i++)
        if (z->receipts[i] == op->owner.seq) {
            pawl_op_finish(op, 0);
            return;
        }
    l = calloc(1, sizeof *l + strlen(op->name) + 1);
    if (!l) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    strcpy(l->name, op->name);
    l->op = op;
    op->engine[0] = l;
    snprintf(l->receipt, sizeof l->receipt, "%016" PRIx64 ".%" PRIx64, op->owner.client,
             op->owner.seq);
    zk_task_begin(&l->task, z, &latch_type);
    zk_task_go(&l->task);
}

void zk_latch_cancel(zk *z, pawl_op *op)
{
    latch *l = op->engine[0];
    bool sent = l->sent;

    zk_task_end(&l->task);
    free(l);
    zk_give_up(z, op, sent);
}
