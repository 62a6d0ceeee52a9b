/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.c - inspect, list, count and break: requests that read all nodes of a name.
 *
 *     NAMES      LIST: which names exist; then up to CHUNK names at a time
 *     CHILDREN   the children and the data of each name
 *     INSIDE     the folders of semaphores, the count of latches
 *     NODES      the data of the nodes that will be shown
 *     DELETE     BREAK: the holders' nodes
 *
 * At most INSPECT_NODES_MAX nodes of a name are kept, so that nobody can exhaust this process's
 * memory by filling a name.
 *
 * After a reconnect the names of the current chunk are read anew; but a BREAK whose deletes were
 * sent is never repeated, because a repeated delete might hit the next holder.
 */
#include <fnmatch.h>
#include <stdlib.h>

#include "inspect.h"

#define CHUNK 50

enum zk_inspect_step { INSPECT_NAMES, INSPECT_CHILDREN, INSPECT_INSIDE, INSPECT_NODES,
                      INSPECT_DELETE };

static zk_inspection *zk_inspection_of(zk_task *task)
{
    return (zk_inspection *)(void *)task;
}

static void clear_name(zk_inspect_name *n)
{
    for (size_t i = 0; i < n->nnodes; i++)
        free(n->nodes[i].name);
    free(n->nodes);
    *n = (zk_inspect_name){.name = n->name, .count = -1};
}

static void zk_inspect_free(zk_inspection *k)
{
    for (size_t i = 0; i < k->nnames; i++) {
        clear_name(&k->names[i]);
        free(k->names[i].name);
    }
    free(k->names);
    zk_task_end(&k->task);
    free(k);
}

static void finish(zk_inspection *k, int code)
{
    pawl_op *op = k->op;

    if (code && k->words[0])
        pawl_error_set(op->err, code, "%s", k->words);
    zk_inspect_free(k);
    pawl_op_finish(op, code);
}

/* True: the read succeeded. A missing node is no error. */
static bool good(zk_inspection *k, int error)
{
    if (error && error != ZK_NO_NODE && error != ZK_LOST)
        k->code = zk_error_code(k->task.zk, error, k->words);
    return !error;
}

/* ---- adding names and nodes ------------------------------------------------------------------ */

static void add_name(zk_inspection *k, const char *name)
{
    if (k->nnames == k->room) {
        size_t room = k->room ? 2 * k->room : 16;
        zk_inspect_name *names = realloc(k->names, room * sizeof *names);

        if (!names) {
            k->code = PAWL_ENOMEM;
            return;
        }
        k->names = names;
        k->room = room;
    }
    k->names[k->nnames] = (zk_inspect_name){.name = strdup(name), .count = -1};
    if (k->names[k->nnames].name)
        k->nnames++;
    else
        k->code = PAWL_ENOMEM;
}

static void add_node(zk_inspection *k, zk_inspect_name *n, jute_bytes name, zk_child child)
{
    if (!name.length)
        return;
    if (n->nnodes >= INSPECT_NODES_MAX) {
        n->too_many = true;
        return;
    }
    if (n->nnodes == n->room) {
        size_t room = n->room ? 2 * n->room : 4;
        zk_inspect_node *nodes = realloc(n->nodes, room * sizeof *nodes);

        if (!nodes) {
            k->code = PAWL_ENOMEM;
            return;
        }
        n->nodes = nodes;
        n->room = room;
    }
    n->nodes[n->nnodes] = (zk_inspect_node){.name = strndup(name.data, name.length), .child = child,
                                            .permits = 1};
    if (n->nodes[n->nnodes].name)
        n->nnodes++;
    else
        k->code = PAWL_ENOMEM;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The children begin with the part of the base after the last slash. */
static bool names_listed(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_inspection *k = zk_inspection_of(task);
    const char *base = task->zk->settings.base, *part = strrchr(base, '/') + 1;
    char name[PAWL_NAME_MAX + 1];
    size_t n;

    (void)tag;
    if (!good(k, error))
        return true;
    n = jute_count(body, 4);
    for (size_t i = 0; i < n; i++) {
        jute_bytes child = jute_get_bytes(body);

        if (zk_bytes_begin(child, part) &&
            zk_decode(name, child.data + strlen(part), child.length - strlen(part),
                      !strcmp(base, "/")) &&
            (!k->op->name || !fnmatch(k->op->name, name, 0)))
            add_name(k, name);
    }
    return !body->bad;
}

static bool children_listed(zk_task *task, int64_t i, int error, jute_reader *body)
{
    zk_inspection *k = zk_inspection_of(task);
    zk_inspect_name *name = &k->names[i];
    size_t n;

    if (!good(k, error))
        return true;
    n = jute_count(body, 4);
    for (size_t j = 0; j < n; j++) {
        jute_bytes child = jute_get_bytes(body);
        zk_child what = zk_child_read(task->zk->settings.kazoo, child);

        name->latch |= zk_bytes_are(child, "latch");
        name->semaphore |= zk_bytes_are(child, "locks") || zk_bytes_are(child, "leases");
        name->locks |= what.sort == ZK_EXCLUSIVE || what.sort == ZK_SHARED;
        if (what.sort == ZK_EXCLUSIVE || what.sort == ZK_SHARED || what.sort == ZK_WAITER)
            add_node(k, name, child, what);
    }
    return !body->bad;
}

static bool data_read(zk_task *task, int64_t i, int error, jute_reader *body)
{
    zk_inspection *k = zk_inspection_of(task);
    zk_inspect_name *name = &k->names[i];
    jute_bytes data;
    int64_t capacity, count;

    if (!good(k, error))
        return true;
    data = jute_get_bytes(body);
    capacity = zk_count_read(data, "pawl permits=");
    count = zk_count_read(data, "pawl count=");
    name->capacity = capacity >= 0 ? capacity : name->capacity;
    name->count = count >= 0 ? count : name->count;
    return !body->bad;
}

static bool mutex_listed(zk_task *task, int64_t i, int error, jute_reader *body)
{
    zk_inspection *k = zk_inspection_of(task);
    size_t n;

    if (!good(k, error))
        return true;
    n = jute_count(body, 4);
    for (size_t j = 0; j < n; j++) {
        jute_bytes child = jute_get_bytes(body);
        zk_child what = zk_child_read(false, child);

        k->names[i].queue |= what.sort == ZK_EXCLUSIVE;
        if (what.sort == ZK_EXCLUSIVE)
            add_node(k, &k->names[i], child, (zk_child){ZK_WAITER, what.sequence});
    }
    return !body->bad;
}

static bool leases_listed(zk_task *task, int64_t i, int error, jute_reader *body)
{
    zk_inspection *k = zk_inspection_of(task);
    zk_inspect_name *name = &k->names[i];
    size_t n;

    if (!good(k, error))
        return true;
    n = jute_count(body, 4);
    name->in_use = (int64_t)n;
    for (size_t j = 0; j < n && k->op->kind != PAWL_OP_COUNT; j++) {
        jute_bytes child = jute_get_bytes(body);
        zk_child what = zk_child_read(false, child);

        what.sort = ZK_LEASE;
        add_node(k, name, child, what);
    }
    if (k->op->kind != PAWL_OP_BREAK)
        zk_inspect_merge(name);
    return !body->bad;
}

static bool node_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_inspection *k = zk_inspection_of(task);
    zk_inspect_node *node = &k->names[tag >> 32].nodes[tag & UINT32_MAX];
    jute_bytes data;

    if (!good(k, error))
        return true;
    data = jute_get_bytes(body);
    node->stat = jute_stat(body);
    node->known = true;
    zk_client_info_read(&node->client_info, data);
    if (!node->client_info.pawl && data.length)
        snprintf(node->text, sizeof node->text, "%.*s",
                 (int)(data.length < sizeof node->text ? data.length : sizeof node->text - 1),
                 data.data);
    for (char *c = node->text; *c; c++)
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    return jute_at_end(body);
}

static bool node_deleted(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    (void)tag;
    (void)body;
    zk_inspection_of(task)->deleted += good(zk_inspection_of(task), error);
    return true;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static size_t end_of_chunk(const zk_inspection *k)
{
    return k->nnames - k->from < CHUNK ? k->nnames : k->from + CHUNK;
}

static void ask_children(zk_inspection *k)
{
    zk *z = k->task.zk;

    k->step = INSPECT_CHILDREN;
    for (size_t i = k->from; i < end_of_chunk(k); i++) {
        const char *path = zk_path(z, k->names[i].name, NULL, NULL);

        clear_name(&k->names[i]);
        zk_ask(&k->task, ZK_CHILDREN, path, false, children_listed, (int64_t)i);
        zk_ask(&k->task, ZK_GET, path, false, data_read, (int64_t)i);
    }
    if (k->from == k->nnames)
        finish(k, k->code);
}

static void ask_inside(zk_inspection *k)
{
    zk *z = k->task.zk;

    k->step = INSPECT_INSIDE;
    for (size_t i = k->from; i < end_of_chunk(k); i++) {
        const zk_inspect_name *n = &k->names[i];

        if (n->latch)
            zk_ask(&k->task, ZK_GET, zk_path(z, n->name, "count", NULL), false, data_read,
                   (int64_t)i);
        if (!n->semaphore)
            continue;
        zk_ask(&k->task, ZK_CHILDREN, zk_path(z, n->name, "locks", NULL), false, mutex_listed,
               (int64_t)i);
        zk_ask(&k->task, ZK_CHILDREN, zk_path(z, n->name, "leases", NULL), false, leases_listed,
               (int64_t)i);
    }
}

static const char *dir_of(const zk_inspect_name *n, const zk_inspect_node *node)
{
    return node->child.sort == ZK_LEASE ? "leases"
           : node->child.sort == ZK_WAITER && n->semaphore && !n->latch ? "locks" : NULL;
}

/* A list shows the first holder of each name and the age of the first waiter; an inspection shows
 * all nodes. */
static bool is_shown(const zk_inspection *k, const zk_inspect_name *n, size_t j)
{
    return k->op->kind != PAWL_OP_LIST || !j || (!n->nodes[j].holder && n->nodes[j - 1].holder);
}

static void ask_nodes(zk_inspection *k)
{
    zk *z = k->task.zk;

    k->step = INSPECT_NODES;
    for (size_t i = k->from; i < end_of_chunk(k); i++) {
        zk_inspect_name *n = &k->names[i];

        zk_inspect_sort(n);
        for (size_t j = 0; j < n->nnodes; j++)
            if (is_shown(k, n, j))
                zk_ask(&k->task, ZK_GET,
                       zk_path(z, n->name, dir_of(n, &n->nodes[j]), n->nodes[j].name), false,
                       node_read, (int64_t)(i << 32 | j));
    }
}

/* Fail an op that needs all nodes of a name, if the name has too many. */
static bool too_many(zk_inspection *k)
{
    if (!k->names[0].too_many || k->op->kind == PAWL_OP_LIST)
        return false;
    snprintf(k->words, sizeof k->words, "\"%.80s\" has more nodes than can be looked at",
             k->names[0].name);
    finish(k, PAWL_EBACKEND);
    return true;
}

static void delete_holders(zk_inspection *k)
{
    zk *z = k->task.zk;
    zk_inspect_name *n = &k->names[0];

    k->step = INSPECT_DELETE;
    if (too_many(k))
        return;
    zk_inspect_sort(n);
    for (size_t j = 0; j < n->nnodes; j++)
        if (n->nodes[j].holder) {
            k->sent = true;
            zk_ask_delete(&k->task, zk_path(z, n->name, dir_of(n, &n->nodes[j]), n->nodes[j].name),
                          -1, node_deleted, 0);
        }
    if (!k->sent)
        finish(k, PAWL_ENOTHELD);
}

static void count(zk_inspection *k)
{
    const zk_inspect_name *n = &k->names[0];
    bool others = n->in_use || n->nnodes;
    int64_t capacity = others && n->capacity ? n->capacity : k->op->count;

    if (n->locks || (k->op->mode == PAWL_MODE_LATCH ? n->in_use || n->queue : n->latch)) {
        snprintf(k->words, sizeof k->words, "\"%.80s\" is in use as something else", n->name);
        finish(k, PAWL_ESTATE);
        return;
    }
    if (k->op->mode == PAWL_MODE_LATCH) {
        k->op->value = n->latch && n->count > 0 ? n->count : 0;
        finish(k, 0);
        return;
    }
    k->op->value = capacity > n->in_use ? capacity - n->in_use : 0;
    if (!capacity)
        snprintf(k->words, sizeof k->words, "\"%.80s\" has no capacity yet", n->name);
    finish(k, capacity ? 0 : PAWL_ESTATE);
}

static void show(zk_inspection *k)
{
    bool list = k->op->kind == PAWL_OP_LIST;
    int code = 0;

    for (size_t i = k->from; !code && i < end_of_chunk(k); i++) {
        zk_inspect_name *n = &k->names[i];

        if (!list || n->nnodes || n->latch)
            code = zk_inspect_show(k, n, !list);
        clear_name(n);
    }
    k->from = end_of_chunk(k);
    if (code || k->from == k->nnames)
        finish(k, code);
    else
        ask_children(k);
}

static void zk_inspect_next(zk_task *task)
{
    zk_inspection *k = zk_inspection_of(task);

    if (k->code)
        finish(k, k->code);
    else if (k->step == INSPECT_NAMES)
        ask_children(k);
    else if (k->step == INSPECT_CHILDREN) {
        ask_inside(k);
        if (!task->out && !task->lost)
            zk_inspect_next(task);
    } else if (k->step == INSPECT_INSIDE && k->op->kind == PAWL_OP_COUNT)
        count(k);
    else if (k->step == INSPECT_INSIDE && k->op->kind == PAWL_OP_BREAK)
        delete_holders(k);
    else if (k->step == INSPECT_INSIDE && too_many(k))
        return;
    else if (k->step == INSPECT_INSIDE) {
        ask_nodes(k);
        if (!task->out && !task->lost)
            show(k);
    } else if (k->step == INSPECT_NODES)
        show(k);
    else
        finish(k, k->deleted ? 0 : PAWL_ENOTHELD);
}

static void zk_inspect_go(zk_task *task)
{
    zk_inspection *k = zk_inspection_of(task);
    zk *z = task->zk;
    size_t folder = (size_t)(strrchr(z->settings.base, '/') - z->settings.base);

    if (!k->sent && k->op->kind == PAWL_OP_LIST)
        zk_ask_sync(task);
    else if (!k->sent) /* see every finished write */
        zk_ask_turn(task, zk_path(z, k->names[0].name, NULL, NULL));
    if (k->sent) {
        finish(k, PAWL_EUNKNOWN);
    } else if (k->op->kind == PAWL_OP_LIST && k->step == INSPECT_NAMES) {
        for (size_t i = 0; i < k->nnames; i++)
            free(k->names[i].name);
        k->nnames = 0;
        snprintf(z->path, sizeof z->path, "%.*s", folder ? (int)folder : 1, z->settings.base);
        zk_ask(task, ZK_CHILDREN, z->path, false, names_listed, 0);
    } else {
        ask_children(k);
    }
}

static void zk_inspect_refused(zk_task *task, int code, const char *words)
{
    zk_inspection *k = zk_inspection_of(task);

    snprintf(k->words, sizeof k->words, "%s", words);
    finish(k, k->sent ? PAWL_EUNKNOWN : code);
}

static const zk_task_type zk_inspect_type = {.go = zk_inspect_go, .next = zk_inspect_next,
        .refused = zk_inspect_refused};

void zk_inspect(zk *z, pawl_op *op)
{
    zk_inspection *k = calloc(1, sizeof *k);

    if (!k) {
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_ENOMEM, "out of memory"));
        return;
    }
    k->op = op;
    op->engine[0] = k;
    zk_task_begin(&k->task, z, &zk_inspect_type);
    if (op->kind != PAWL_OP_LIST) {
        k->step = INSPECT_CHILDREN;
        add_name(k, op->name);
    }
    if (k->code)
        finish(k, k->code);
    else
        zk_task_go(&k->task);
}

void zk_inspect_cancel(zk *z, pawl_op *op)
{
    zk_inspection *k = op->engine[0];
    bool sent = k->sent;

    zk_inspect_free(k);
    zk_give_up(z, op, sent);
}
