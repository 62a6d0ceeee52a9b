/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - what the inspect script answers, and what the user is shown of it.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "inspect.h"

/* ---- reading --------------------------------------------------------------------------------- */

#define NUMBER_MAX (INT64_C(1) << 53)

/* A number from `least` to 2^53; what is outside (no script of ours says so) becomes the nearest
 * of these. */
static bool number_at(const resp_node *node, uint32_t i, int64_t least, int64_t *ret)
{
    const resp_node *child = resp_child(node, i);

    if (!child || !resp_integer(child, ret))
        return false;
    *ret = *ret < least ? least : *ret > NUMBER_MAX ? NUMBER_MAX : *ret;
    return true;
}

/* "CLIENT:SEQ", or "z:CLIENT:SEQ" of one that lingers; in Redisson's layout "UUID:NUMBER", which
 * may be one of ours. Anything else is a stranger's. */
static void read_owner(const redis_inspection *k, redis_inspect_row *row, const resp_node *node)
{
    char text[sizeof row->who];
    size_t skip, length = node->length < sizeof text ? node->length : 0;

    memcpy(text, node->text, length);
    text[length] = 0;
    if (k->redis->settings.redisson) {
        row->stranger = !redisson_client_of(text, &row->client);
        strcpy(row->who, text);
        return;
    }
    skip = !strncmp(text, "z:", 2) ? 2 : 0;
    row->stranger = sscanf(text + skip, "%16" SCNx64 ":%" SCNx64, &row->client, &row->seq) != 2;
}

static bool read_row(const redis_inspection *k, redis_inspect_row *row, const resp_node *node,
                     int64_t now)
{
    const resp_node *role = resp_child(node, 0), *owner = resp_child(node, 1);
    const resp_node *mode = resp_child(node, 2);
    int64_t since;

    if (!role || !owner || !mode || !resp_is_text(role) || !resp_is_text(owner) ||
        !resp_is_text(mode) || !number_at(node, 3, 0, &row->permits) ||
        !number_at(node, 4, 0, &row->token) || !number_at(node, 6, -1, &since) ||
        !number_at(node, 7, -1, &row->left_ms))
        return false;
    read_owner(k, row, owner);
    row->holder = resp_equal(role, "h", 1);
    row->shared = resp_equal(mode, "s", 1);
    row->since_ms = since < 0 ? -1 : now > since ? now - since : 0;
    return true;
}

static int type_of(const resp_node *word)
{
    static const struct {
        const char *word;
        int type;
    } types[] = {{"lock", PAWL_TYPE_LOCK},   {"semaphore", PAWL_TYPE_SEMAPHORE},
                 {"latch", PAWL_TYPE_LATCH}, {"foreign", PAWL_TYPE_LOCK}, {"free", -1}};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (resp_equal(word, types[i].word, strlen(types[i].word)))
            return types[i].type;
    return -2;
}

bool redis_inspect_read(const redis_inspection *k, redis_inspect_name *n, const resp_node *reply,
                        int *code)
{
    const resp_node *type = resp_child(reply, 1), *rows = resp_child(reply, 6);
    int64_t now;

    if (!type || !resp_is_text(type) || !rows || rows->type != RESP_ARRAY ||
        !number_at(reply, 0, 0, &now) || !number_at(reply, 2, 0, &n->count) ||
        !number_at(reply, 3, 0, &n->used) || !number_at(reply, 4, 0, &n->holders) ||
        !number_at(reply, 5, 0, &n->waiters) ||
        rows->count > (k->single ? INSPECT_ROWS : INSPECT_ROWS_LIST))
        return false;
    n->type = type_of(type);
    n->rows = calloc(rows->count ? rows->count : 1, sizeof *n->rows);
    if (!n->rows) {
        *code = PAWL_ENOMEM;
        return true;
    }
    n->nrows = rows->count;
    rows++;
    for (size_t i = 0; i < n->nrows; i++, rows += rows->span)
        if (!read_row(k, &n->rows[i], rows, now))
            return false;
    return true;
}

/* ---- showing --------------------------------------------------------------------------------- */

/* Rows of a name that is of no type, which only a broken server has, are shown as of a lock. */
static uint64_t shown_type(const redis_inspect_name *n)
{
    return (uint64_t)(n->type > 0 ? n->type : PAWL_TYPE_LOCK);
}

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const redis_inspect_client *)a)->id, y = ((const redis_inspect_client *)b)->id;

    return x < y ? -1 : x > y;
}

redis_inspect_client *redis_inspect_client_of(const redis_inspection *k, uint64_t id)
{
    redis_inspect_client key = {.id = id};

    return k->nclients ? bsearch(&key, k->clients, k->nclients, sizeof key, by_id) : NULL;
}

/* Tells owners apart without showing what a release would need. */
static void describe(const redis_inspection *k, pawl_info *info, const redis_inspect_row *row,
                     char id[16])
{
    uint64_t h = (row->client ^ row->seq * UINT64_C(0x9e3779b97f4a7c15)) *
                 UINT64_C(0xd6e8feb86659fd93);
    const redis_inspect_client *client =
        row->stranger ? NULL : redis_inspect_client_of(k, row->client);

    snprintf(id, 16, "%08x", (unsigned)(h >> 32));
    info->owner = row->who[0] ? row->who : row->stranger ? "stranger" : id;
    info->host = client ? client->host : "";
    info->program = client ? client->program : "";
    info->label = client ? client->label : "";
    info->pid = client ? client->pid : 0;
}

static int show_summary(const redis_inspection *k, const redis_inspect_name *n)
{
    pawl_op *op = k->op;
    char id[16];
    pawl_info info = {.size = sizeof info, .name = n->name, .role = PAWL_ROLE_SUMMARY,
                      .type = shown_type(n),
                      .holders = (uint64_t)n->holders, .waiters = (uint64_t)n->waiters,
                      .count = n->count, .shared = n->holders > 0, .since_ms = -1, .lease_ms = -1,
                      .wait_ms = -1, .host = "", .program = "", .label = "", .owner = ""};

    if (n->type == PAWL_TYPE_SEMAPHORE)
        info.available = n->count > n->used ? n->count - n->used : 0;
    for (size_t i = 0; i < n->nrows; i++) {
        const redis_inspect_row *row = &n->rows[i];

        if (!row->holder) {
            info.wait_ms = row->since_ms > info.wait_ms ? row->since_ms : info.wait_ms;
            continue;
        }
        info.shared &= row->shared;
        info.token = (uint64_t)row->token > info.token ? (uint64_t)row->token : info.token;
        info.since_ms = row->since_ms > info.since_ms ? row->since_ms : info.since_ms;
    }
    if (n->nrows && n->rows[0].holder) {
        info.lease_ms = n->rows[0].left_ms;
        describe(k, &info, &n->rows[0], id);
    }
    return op->row(op->row_arg, &info);
}

static int show_row(const redis_inspection *k, const redis_inspect_name *n,
                    const redis_inspect_row *row)
{
    char id[16];
    pawl_info info = {.size = sizeof info, .name = n->name, .type = shown_type(n),
                      .role = row->holder ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER,
                      .shared = row->shared,
                      .permits = n->type == PAWL_TYPE_SEMAPHORE ? (uint64_t)row->permits : 0,
                      .token = row->holder ? (uint64_t)row->token : 0, .since_ms = row->since_ms,
                      .lease_ms = row->holder ? row->left_ms : -1, .wait_ms = -1};

    describe(k, &info, row, id);
    return k->op->row(k->op->row_arg, &info);
}

int redis_inspect_show(const redis_inspection *k, const redis_inspect_name *n, bool all)
{
    int code = show_summary(k, n);

    for (size_t i = 0; all && !code && i < n->nrows; i++)
        code = show_row(k, n, &n->rows[i]);
    return code;
}
