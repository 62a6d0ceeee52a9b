/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.c - the ops that only read: inspect, list, count.
 *
 * These ops work on a copy of the shelf from which dead and expired entries have been dropped. So
 * they show the state that the next owner would find, and change nothing. The row function is the
 * user's: no lock of the store is held while the row function runs.
 */
#include <fnmatch.h>

#include "shelf_engine.h"

struct inspection {
    shelf_engine *engine;
    lockstate_edit edit;
};

static uint64_t no_token(void *arg, uint32_t n)
{
    (void)arg;
    (void)n;
    return 0;
}

static bool is_dead(void *arg, const lockstate_entry *e)
{
    struct inspection *v = arg;
    shelf_engine *se = v->engine;

    if (e->peer == se->peer && e->gen == se->gen)
        return false;
    return se->store->dead(se->arg, e->peer, e->gen, true);
}

static void nobody(void *arg, const lockstate_entry *e, enum lockstate_why why)
{
    (void)arg;
    (void)e;
    (void)why;
}

static bool open_copy(struct inspection *v, shelf_engine *se, uint32_t bucket)
{
    v->engine = se;
    v->edit = (lockstate_edit){.shelf = se->store->read(se->arg, bucket), .fence = no_token,
                               .now = se->env->now(se->env), .dead = is_dead, .tell = nobody,
                               .arg = v};
    return v->edit.shelf != NULL;
}

static int64_t ms_between(int64_t from, int64_t to)
{
    return to > from ? (to - from) / PAWL_NS_PER_MS : 0;
}

/* Distinguishes owners, and does not suffice for a release. */
static void short_id(char id[16], const lockstate_entry *e)
{
    uint64_t h = (e->client ^ e->seq * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);

    snprintf(id, 16, "%08x", (unsigned)(h >> 32));
}

static void describe(struct inspection *v, pawl_info *row, const lockstate_entry *e, char id[16])
{
    short_id(id, e);
    row->owner = id;
    row->pid = 0;
    row->host = row->program = row->label = "";
    v->engine->store->describe(v->engine->arg, e->peer, e->gen, row);
}

static int summary_row(struct inspection *v, pawl_op *op, const lockstate_lock *lock)
{
    const lockstate_entry *e = lockstate_entries(lock);
    size_t holders = lock->type == PAWL_TYPE_LATCH ? 0 : lock->holders;
    char id[16];
    pawl_info row = {.size = sizeof row, .name = lockstate_name(lock), .role = PAWL_ROLE_SUMMARY,
                     .type = lock->type, .shared = holders > 0, .holders = holders,
                     .waiters = lock->waiters, .count = lock->value, .since_ms = -1,
                     .lease_ms = -1, .wait_ms = -1, .host = "", .program = "", .label = "",
                     .owner = ""};

    if (lock->type == PAWL_TYPE_SEMAPHORE)
        row.available = lockstate_available(lock);
    for (size_t i = 0; i < holders; i++) {
        int64_t since = ms_between(e[i].since, v->edit.now);

        row.shared &= e[i].mode == PAWL_MODE_SHARED;
        row.token = e[i].token > row.token ? e[i].token : row.token;
        row.since_ms = since > row.since_ms ? since : row.since_ms;
    }
    for (size_t i = lock->holders; i < (size_t)lock->holders + lock->waiters; i++) {
        int64_t since = ms_between(e[i].since, v->edit.now);

        row.wait_ms = since > row.wait_ms ? since : row.wait_ms;
    }
    if (holders) {
        row.lease_ms = ms_between(v->edit.now, e->expires);
        describe(v, &row, e, id);
    }
    return op->row(op->row_arg, &row);
}

static int entry_row(struct inspection *v, pawl_op *op, const lockstate_lock *lock,
                     const lockstate_entry *e, bool holder)
{
    char id[16];
    pawl_info row = {.size = sizeof row, .name = lockstate_name(lock), .type = lock->type,
                     .role = holder ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER,
                     .shared = e->mode == PAWL_MODE_SHARED,
                     .permits = lock->type == PAWL_TYPE_SEMAPHORE ? e->permits : 0,
                     .token = holder ? e->token : 0,
                     .since_ms = ms_between(e->since, v->edit.now),
                     .lease_ms = holder ? ms_between(v->edit.now, e->expires) : -1,
                     .wait_ms = -1};

    describe(v, &row, e, id);
    return op->row(op->row_arg, &row);
}

static int inspect(shelf_engine *se, pawl_op *op)
{
    struct inspection v;
    lockstate_lock *lock;
    pawl_info row = {.size = sizeof row, .name = op->name, .role = PAWL_ROLE_SUMMARY,
                     .since_ms = -1, .lease_ms = -1, .wait_ms = -1, .host = "", .program = "",
                     .label = "", .owner = ""};
    int code;

    if (!open_copy(&v, se, shelf_bucket(se, op->name)))
        return pawl_error_set(op->err, PAWL_EBACKEND, "the lock table can't be read");
    lock = lockstate_find(v.edit.shelf, op->name, strlen(op->name));
    if (lock)
        lockstate_prune(&v.edit, lock);
    if (!lock || !lockstate_in_use(lock))
        return op->row(op->row_arg, &row);
    code = summary_row(&v, op, lock);
    for (size_t i = 0; !code && i < (size_t)lock->holders + lock->waiters; i++)
        if (lock->type != PAWL_TYPE_LATCH || i >= lock->holders)
            code = entry_row(&v, op, lock, lockstate_entries(lock) + i, i < lock->holders);
    return code;
}

static int list(shelf_engine *se, pawl_op *op)
{
    struct inspection v;
    int code = 0;

    for (uint32_t b = 0; !code && b < se->nbuckets; b++) {
        if (!open_copy(&v, se, b))
            return pawl_error_set(op->err, PAWL_EBACKEND, "the lock table can't be read");
        for (lockstate_lock *l = lockstate_first(v.edit.shelf); l && !code;
             l = lockstate_next(v.edit.shelf, l)) {
            if (op->name && fnmatch(op->name, lockstate_name(l), 0))
                continue;
            lockstate_prune(&v.edit, l);
            if (lockstate_in_use(l))
                code = summary_row(&v, op, l);
        }
    }
    return code;
}

static int count(shelf_engine *se, pawl_op *op)
{
    int type = op->mode == PAWL_MODE_PERMITS ? PAWL_TYPE_SEMAPHORE : PAWL_TYPE_LATCH;
    lockstate_lock *lock;
    struct inspection v;

    if (!open_copy(&v, se, shelf_bucket(se, op->name)))
        return pawl_error_set(op->err, PAWL_EBACKEND, "the lock table can't be read");
    lock = lockstate_find(v.edit.shelf, op->name, strlen(op->name));
    if (lock)
        lockstate_prune(&v.edit, lock);
    if (lock && lockstate_in_use(lock)) {
        if (lock->type != type)
            return pawl_error_set(op->err, PAWL_ESTATE, "\"%s\" is in use as something else",
                                  op->name);
        op->value = type == PAWL_TYPE_LATCH ? lock->value : lockstate_available(lock);
        return 0;
    }
    if (type == PAWL_TYPE_SEMAPHORE && op->count <= 0)
        return pawl_error_set(op->err, PAWL_ESTATE, "\"%s\" is not in use, so it has no capacity",
                              op->name);
    op->value = type == PAWL_TYPE_LATCH ? 0 : op->count;
    return 0;
}

void shelf_inspect(shelf_engine *se, pawl_op *op)
{
    int code;

    if (op->kind == PAWL_OP_INSPECT)
        code = inspect(se, op);
    else if (op->kind == PAWL_OP_LIST)
        code = list(se, op);
    else if (op->kind == PAWL_OP_COUNT)
        code = count(se, op);
    else
        code = pawl_error_set(op->err, PAWL_ENOTSUP, "this engine has no such operation");
    pawl_op_finish(op, code);
}
