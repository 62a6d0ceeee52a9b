/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.c - inspect, count and list: ops that only read.
 *
 *     [SCAN: the names] --> for some names at a time: INSPECT each --> CLIENTS: the entries of the
 *     holders and waiters (in a list: of each first holder, unless an earlier name had the same
 *     client) --> op->row for each name --> the next names, or the end
 *
 * The calls of a step are sent together; the step ends when the last call is answered. If the op is
 * cancelled, the inspection outlives the op until the last pending call is answered.
 */
#include <stdlib.h>

#include "inspect.h"
#include "kit/rows.h"

#define NAMES_AT_ONCE 64
#define CLIENTS_KNOWN 1024 /* a list remembers so many clients of earlier names, then starts anew */

enum phase { PHASE_SCAN, PHASE_INSPECT, PHASE_CLIENTS };

static void step_over(redis_inspection *k);

/* ---- life ------------------------------------------------------------------------------------ */

static void forget_names(redis_inspection *k, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        free(k->names[i].name);
        free(k->names[i].rows);
        k->names[i].name = NULL;
        k->names[i].rows = NULL;
    }
}

static void free_if_over(redis_inspection *k)
{
    if (k->op || k->out)
        return;
    forget_names(k, 0, k->nnames);
    free(k->names);
    free(k->clients);
    free(k);
}

void redis_inspect_end(redis_inspection *k, int code, const char *words)
{
    pawl_op *op = k->op;

    k->op = NULL;
    if (op)
        pawl_op_finish_with(op, code, words);
}

void redis_inspect_answered(redis_inspection *k)
{
    k->out--;
    if (k->op && !k->out)
        step_over(k);
    else
        free_if_over(k);
}

void redis_inspect_failed(redis_call *call, int code, const char *words)
{
    redis_inspection *k = call->about;

    if (code == PAWL_EUNKNOWN) /* an inspection changes nothing, so its outcome is never unknown */
        code = PAWL_ECONN;
    redis_inspect_end(k, code, words);
    redis_inspect_answered(k);
}

void redis_inspect_send(redis_inspection *k, const redis_call_type *type, uint16_t slot,
                        int64_t tag)
{
    redis_call *call = redis_call_about(k->redis, slot, type, k, tag);

    if (!call) {
        redis_inspect_end(k, PAWL_ENOMEM, "out of memory");
        return;
    }
    k->out++;
    redis_call_send(call);
}

/* ---- inspect --------------------------------------------------------------------------------- */

static int write_inspect(redis_call *call, resp_buf *out)
{
    redis_inspection *k = call->about;
    int mode = k->op ? k->op->mode : PAWL_MODE_EXCLUSIVE;

    return k->redis->layout->write_inspect(call, k->names[call->tag].name, mode,
                                           k->single ? INSPECT_ROWS : INSPECT_ROWS_LIST, out);
}

static bool answer_inspect(redis_call *call, const resp_node *reply)
{
    redis_inspection *k = call->about;
    redis_inspect_name *n = &k->names[call->tag];
    int code = 0;

    if (k->op && !redis_inspect_read(k, n, reply, &code))
        return false;
    if (code)
        redis_inspect_end(k, code, "out of memory");
    redis_inspect_answered(k);
    return true;
}

static void inspect_some(redis_inspection *k)
{
    static const redis_call_type type = {.write = write_inspect, .answer = answer_inspect,
        .failed = redis_inspect_failed};

    k->phase = PHASE_INSPECT;
    for (size_t i = k->from; k->op && i < k->to; i++)
        redis_inspect_send(k, &type, redis_slot_of(k->redis, k->names[i].name), (int64_t)i);
}

/* ---- clients --------------------------------------------------------------------------------- */

static int write_client(redis_call *call, resp_buf *out)
{
    redis_inspection *k = call->about;
    resp_command c = resp_begin(out, 6);

    resp_add_text(&c, "HMGET");
    redis_add_client_info_key(&c, k->redis, k->clients[call->tag].id);
    resp_add_text(&c, "host");
    resp_add_text(&c, "pid");
    resp_add_text(&c, "program");
    resp_add_text(&c, "label");
    return resp_end(&c);
}

static void copy_text(char *to, size_t size, const resp_node *node)
{
    size_t length = node && resp_is_text(node) ? node->length : 0;

    length = length < size ? length : size - 1;
    if (length)
        memcpy(to, node->text, length);
    to[length] = 0;
}

static bool answer_client(redis_call *call, const resp_node *reply)
{
    redis_inspection *k = call->about;
    redis_inspect_client *client = &k->clients[call->tag];
    const resp_node *pid = resp_child(reply, 1);

    if (reply->type != RESP_ARRAY || reply->count != 4)
        return false;
    copy_text(client->host, sizeof client->host, resp_child(reply, 0));
    copy_text(client->program, sizeof client->program, resp_child(reply, 2));
    copy_text(client->label, sizeof client->label, resp_child(reply, 3));
    if (!pid || !resp_integer(pid, &client->pid))
        client->pid = 0;
    redis_inspect_answered(k);
    return true;
}

/* The clients that a name shows: all, or in a list the first holder's, which the summary names. */
static size_t add_clients(redis_inspection *k, const redis_inspect_name *name, size_t n)
{
    for (size_t i = 0; i < name->nrows; i++) {
        const redis_inspect_row *row = &name->rows[i];

        if (!k->single && !row->holder)
            continue;
        if (!row->stranger && !redis_inspect_client_of(k, row->client))
            k->clients[n++].id = row->client;
        if (!k->single)
            break;
    }
    return n;
}

/* Append the clients that the names show and that earlier names have not shown, each client once.
 * The clients before k->nclients are known, and sorted. */
static bool collect_clients(redis_inspection *k)
{
    size_t room = 1, n;
    redis_inspect_client *clients;

    if (k->nclients > CLIENTS_KNOWN)
        k->nclients = 0;
    n = k->known = k->nclients;
    for (size_t i = k->from; i < k->to; i++)
        room += k->single ? k->names[i].nrows : 1;
    clients = realloc(k->clients, (n + room) * sizeof *clients);
    if (!clients)
        return false;
    k->clients = clients;
    memset(clients + n, 0, room * sizeof *clients);
    for (size_t i = k->from; i < k->to; i++)
        n = add_clients(k, &k->names[i], n);
    qsort(clients + k->known, n - k->known, sizeof *clients, redis_inspect_by_id);
    for (size_t i = k->known; i < n; i++)
        if (i == k->known || clients[i].id != clients[k->nclients - 1].id)
            clients[k->nclients++].id = clients[i].id;
    return true;
}

static void ask_clients(redis_inspection *k)
{
    static const redis_call_type type = {.write = write_client, .answer = answer_client,
        .failed = redis_inspect_failed};

    k->phase = PHASE_CLIENTS;
    if (!collect_clients(k))
        redis_inspect_end(k, PAWL_ENOMEM, "out of memory");
    for (size_t i = k->known; k->op && i < k->nclients; i++)
        redis_inspect_send(k, &type, redis_client_info_slot(k->redis, k->clients[i].id),
                           (int64_t)i);
}

/* ---- the steps ------------------------------------------------------------------------------- */

static int finish_count(redis_inspection *k)
{
    const redis_inspect_name *n = &k->names[0];
    int64_t left = n->count > n->used ? n->count - n->used : 0;
    bool known = n->type != PAWL_TYPE_SEMAPHORE || n->count > 0 || k->redis->settings.redisson;

    return kit_count(k->op, known ? n->type : -1,
                     n->type == PAWL_TYPE_SEMAPHORE ? left : n->count);
}

/* With an empty prefix every string key is a candidate: only Pawl's own keys are shown. */
static bool to_be_listed(const redis_inspection *k, const redis_inspect_name *n)
{
    bool stranger = n->nrows && n->rows[0].stranger;

    if (n->type < 0 || (!n->holders && !n->waiters && n->type != PAWL_TYPE_LATCH))
        return false;
    return !stranger || k->redis->settings.prefix[0] || k->redis->settings.redisson;
}

static int show(redis_inspection *k)
{
    int code = 0;

    for (size_t i = k->from; i < k->to && !code; i++)
        if (k->op->kind == PAWL_OP_INSPECT || to_be_listed(k, &k->names[i]))
            code = redis_inspect_show(k, &k->names[i], k->op->kind == PAWL_OP_INSPECT);
    return code;
}

static void next_names(redis_inspection *k)
{
    forget_names(k, k->from, k->to);
    k->from = k->to;
    k->to = k->nnames - k->from < NAMES_AT_ONCE ? k->nnames : k->from + NAMES_AT_ONCE;
    if (k->from == k->nnames)
        redis_inspect_end(k, 0, NULL);
    else
        inspect_some(k);
}

static void next_step(redis_inspection *k)
{
    int code;

    if (k->phase == PHASE_SCAN) {
        redis_inspect_sort(k);
        next_names(k);
    } else if (k->phase == PHASE_INSPECT && k->op->kind != PAWL_OP_COUNT) {
        ask_clients(k);
    } else {
        bool last = k->op->kind == PAWL_OP_COUNT;

        if (k->nclients > k->known)
            qsort(k->clients, k->nclients, sizeof *k->clients, redis_inspect_by_id);
        code = last ? finish_count(k) : show(k);
        if (code || last)
            redis_inspect_end(k, code, NULL);
        else
            next_names(k);
    }
}

/* The step itself counts as a call, so that the step can't end before all of its calls are sent. */
static void step_over(redis_inspection *k)
{
    k->out++;
    next_step(k);
    redis_inspect_answered(k);
}

static bool begin(redis_inspection *k)
{
    if (k->op->kind == PAWL_OP_LIST) {
        k->phase = PHASE_SCAN;
        redis_inspect_scan_begin(k);
        return true;
    }
    k->names = calloc(1, sizeof *k->names);
    if (!k->names)
        return false;
    k->nnames = k->to = 1;
    k->single = true;
    k->names[0].name = strdup(k->op->name);
    if (!k->names[0].name)
        return false;
    inspect_some(k);
    return true;
}

void redis_inspect(redis *r, pawl_op *op)
{
    redis_inspection *k = calloc(1, sizeof *k);

    if (!k) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    k->redis = r;
    k->op = op;
    op->engine[0] = k;
    k->out = 1;
    if (!begin(k))
        redis_inspect_end(k, PAWL_ENOMEM, "out of memory");
    redis_inspect_answered(k);
}

/* Withdraw the calls of a link. Returns the link if calls waited for a connection, else `down`. */
static const redis_link *withdraw_from(redis_inspection *k, redis_link *link,
                                       const redis_link *down)
{
    size_t n = link->state == LINK_CLOSED ? 0 : redis_link_withdraw(link, k);

    k->out -= n;
    return n && link->state != LINK_READY && link->last_code ? link : down;
}

void redis_inspect_cancel(redis *r, pawl_op *op)
{
    redis_inspection *k = op->engine[0];
    const redis_link *down = withdraw_from(k, &r->link, NULL);

    for (size_t i = 0; i < r->cluster.nnodes; i++)
        down = withdraw_from(k, r->cluster.nodes[i], down);
    if (down)
        redis_inspect_end(k, down->last_code, down->words);
    else
        redis_inspect_end(k, PAWL_ECANCELED, NULL);
    free_if_over(k);
}
