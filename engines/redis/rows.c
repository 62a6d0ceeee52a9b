/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.c - reads the answers of the inspect script, and makes rows for the user.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "inspect.h"
#include "kit/rows.h"

/* ---- reading --------------------------------------------------------------------------------- */

#define NUMBER_MAX (INT64_C(1) << 53)

/* A number from `least` to 2^53. Numbers outside, which no script of ours returns, are set to the
 * nearest limit. */
static bool number_at(const resp_node *node, uint32_t i, int64_t least, int64_t *ret)
{
    const resp_node *child = resp_child(node, i);

    if (!child || !resp_integer(child, ret))
        return false;
    *ret = *ret < least ? least : *ret > NUMBER_MAX ? NUMBER_MAX : *ret;
    return true;
}

/* "CLIENT:SEQ", or "z:CLIENT:SEQ" if the grant lingers; in Redisson's layout "UUID:NUMBER", which
 * may be an owner of Pawl. Any other text is a stranger. */
static void read_owner(const redis_inspection *k, redis_inspect_row *row, const resp_node *node)
{
    char text[sizeof row->owner];
    size_t skip, length = node->length < sizeof text ? node->length : 0;

    memcpy(text, node->text, length);
    text[length] = 0;
    if (k->redis->settings.redisson) {
        row->stranger = !redisson_client_of(text, &row->client);
        strcpy(row->owner, text);
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

int redis_inspect_by_id(const void *a, const void *b)
{
    uint64_t x = ((const redis_inspect_client *)a)->id, y = ((const redis_inspect_client *)b)->id;

    return x < y ? -1 : x > y;
}

redis_inspect_client *redis_inspect_client_of(const redis_inspection *k, uint64_t id)
{
    redis_inspect_client key = {.id = id};

    return k->nclients ? bsearch(&key, k->clients, k->nclients, sizeof key,
                                 redis_inspect_by_id) : NULL;
}

struct shown {
    const redis_inspection *k;
    const redis_inspect_name *n;
};

static bool fill_row(void *of, size_t i, pawl_info *info, char id[KIT_ID_MAX])
{
    const struct shown *s = of;
    const redis_inspect_row *row = &s->n->rows[i];
    const redis_inspect_client *client =
        row->stranger ? NULL : redis_inspect_client_of(s->k, row->client);

    info->role = row->holder ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER;
    info->shared = row->shared;
    info->permits = s->n->type == PAWL_TYPE_SEMAPHORE ? (uint64_t)row->permits : 0;
    info->token = row->holder ? (uint64_t)row->token : 0;
    info->since_ms = row->since_ms;
    info->lease_ms = row->holder ? row->left_ms : -1;
    info->owner = row->owner[0] ? row->owner : row->stranger ? "stranger"
                  : kit_owner_id(id, row->client, row->seq);
    if (client) {
        info->host = client->host;
        info->program = client->program;
        info->label = client->label;
        info->pid = client->pid;
    }
    return true;
}

int redis_inspect_show(const redis_inspection *k, const redis_inspect_name *n, bool all)
{
    char id[KIT_ID_MAX];
    struct shown s = {k, n};
    /* A name without a type, which only a broken server returns, is shown as a lock. */
    pawl_info sum = kit_summary(n->name, (uint64_t)(n->type > 0 ? n->type : PAWL_TYPE_LOCK),
                                n->count, fill_row, &s, n->nrows, id);

    sum.holders = (uint64_t)n->holders;
    sum.waiters = (uint64_t)n->waiters;
    if (n->type == PAWL_TYPE_SEMAPHORE)
        sum.available = n->count > n->used ? n->count - n->used : 0;
    return kit_rows_show(k->op, &sum, fill_row, &s, all ? n->nrows : 0);
}
