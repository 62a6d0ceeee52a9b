/* SPDX-License-Identifier: Apache-2.0
 *
 * inspect.c - the ops that only read: inspect, list, count.
 *
 * These ops work on a copy of the shelf from which dead and expired entries have been dropped. So
 * they show the state that the next owner would find, and change nothing. The row function is the
 * user's: no lock of the store is held while the row function runs.
 */
#include <fnmatch.h>

#include "kit/rows.h"
#include "shelf_engine.h"

struct inspection {
    shelf_engine *engine;
    lockstate_edit edit;
    lockstate_lock *lock; /* the lock that is shown */
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

static bool fill_row(void *of, size_t i, pawl_info *row, char id[KIT_ID_MAX])
{
    struct inspection *v = of;
    const lockstate_entry *e = lockstate_entries(v->lock) + i;
    bool holder = i < v->lock->holders;

    if (holder && v->lock->type == PAWL_TYPE_LATCH)
        return false; /* a receipt */
    row->role = holder ? PAWL_ROLE_HOLDER : PAWL_ROLE_WAITER;
    row->shared = e->mode == PAWL_MODE_SHARED;
    row->permits = v->lock->type == PAWL_TYPE_SEMAPHORE ? e->permits : 0;
    row->token = holder ? e->token : 0;
    row->since_ms = ms_between(e->since, v->edit.now);
    row->lease_ms = holder ? ms_between(v->edit.now, e->expires) : -1;
    row->owner = kit_owner_id(id, e->client, e->seq);
    v->engine->store->describe(v->engine->arg, e->peer, e->gen, row);
    return true;
}

static int show(struct inspection *v, pawl_op *op, lockstate_lock *lock)
{
    char id[KIT_ID_MAX];
    size_t n = (size_t)lock->holders + lock->waiters;
    pawl_info sum;

    v->lock = lock;
    sum = kit_summary(lockstate_name(lock), lock->type, lock->value, fill_row, v, n, id);
    return kit_rows_show(op, &sum, fill_row, v, op->kind == PAWL_OP_INSPECT ? n : 0);
}

static int inspect(shelf_engine *se, pawl_op *op)
{
    struct inspection v;
    lockstate_lock *lock;
    pawl_info none = kit_row(op->name, PAWL_TYPE_LOCK);

    if (!open_copy(&v, se, shelf_bucket(se, op->name)))
        return pawl_error_set(op->err, PAWL_EBACKEND, "the lock table can't be read");
    lock = lockstate_find(v.edit.shelf, op->name, strlen(op->name));
    if (lock)
        lockstate_prune(&v.edit, lock);
    if (!lock || !lockstate_in_use(lock))
        return op->row(op->row_arg, &none);
    return show(&v, op, lock);
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
                code = show(&v, op, l);
        }
    }
    return code;
}

static int count(shelf_engine *se, pawl_op *op)
{
    lockstate_lock *lock;
    struct inspection v;

    if (!open_copy(&v, se, shelf_bucket(se, op->name)))
        return pawl_error_set(op->err, PAWL_EBACKEND, "the lock table can't be read");
    lock = lockstate_find(v.edit.shelf, op->name, strlen(op->name));
    if (lock)
        lockstate_prune(&v.edit, lock);
    if (!lock || !lockstate_in_use(lock))
        return kit_count(op, -1, 0);
    return kit_count(op, lock->type,
                     lock->type == PAWL_TYPE_LATCH ? lock->value : lockstate_available(lock));
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
