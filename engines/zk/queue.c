/* SPDX-License-Identifier: Apache-2.0
 *
 * queue.c - the meaning of a list of children for a waiter: does the waiter's own node exist, which
 * nodes are ahead, and how is the name in use? For locks this list alone decides:
 *
 *     exclusive: granted if no contender is ahead.   shared: granted if nothing exclusive is ahead.
 *
 * Each waiter watches the nearest node that must go first, so one deletion wakes one waiter, or the
 * readers behind one writer. Children whose names don't fit the flavor are no contenders.
 */
#include <stdlib.h>

#include "waiter.h"

void zk_queue_clear(zk_waiter_queue *q)
{
    free(q->ahead);
    free(q->first);
    *q = (zk_waiter_queue){0};
}

int zk_waiter_in_use(zk_waiter *w)
{
    snprintf(w->words, sizeof w->words, "\"%.80s\" is in use as something else", w->name);
    return PAWL_ESTATE;
}

void zk_waiter_node_id(const zk_waiter *w, char ret[ZK_NODE_MAX])
{
    enum zk_sort sort = w->mode == PAWL_MODE_SHARED  ? ZK_SHARED
                        : w->mode == PAWL_MODE_LATCH ? ZK_WAITER : ZK_EXCLUSIVE;

    zk_node_name(ret, w->task.zk, sort, w->mode == PAWL_MODE_PERMITS ? -1 : w->lock_kind, w->seq,
                 w->epoch);
}

/* Must the owner of this child go before the waiter can be granted? */
static bool is_ahead(const zk_waiter *w, zk_child child)
{
    if (w->mode == PAWL_MODE_SHARED && child.sort == ZK_SHARED)
        return false;
    return w->node_is != NODE_EXISTS || zk_before(child.sequence, w->sequence);
}

static void keep(zk_waiter *w, char **ret, int32_t *sequence, jute_bytes name, zk_child child)
{
    char *copy = strndup(name.data, name.length);

    if (!copy) { /* an incomplete list must not decide */
        w->code = PAWL_ENOMEM;
        return;
    }
    free(*ret);
    *ret = copy;
    *sequence = child.sequence;
}

static void count_contender(zk_waiter *w, jute_bytes name, zk_child child)
{
    zk_waiter_queue *q = &w->list;

    q->others++;
    if (!q->first || zk_before(child.sequence, q->first_sequence))
        keep(w, &q->first, &q->first_sequence, name, child);
    if (is_ahead(w, child) && (!q->ahead || zk_before(q->ahead_sequence, child.sequence)))
        keep(w, &q->ahead, &q->ahead_sequence, name, child);
}

static void see_type(zk_waiter_queue *q, jute_bytes name, zk_child child)
{
    q->locks |= child.sort == ZK_EXCLUSIVE || child.sort == ZK_SHARED;
    q->latch |= zk_bytes_are(name, "latch");
    q->semaphore |= zk_bytes_are(name, "locks") || zk_bytes_are(name, "leases");
}

/* Read a list of children, calling `see` for each, then the parent's Stat. */
static bool read_list(zk_waiter *w, jute_reader *body, bool kazoo,
                      void (*see)(zk_waiter *w, jute_bytes name, zk_child child))
{
    size_t n = jute_count(body, 4);

    for (size_t i = 0; i < n; i++) {
        jute_bytes name = jute_get_bytes(body);

        if (name.length)
            see(w, name, zk_child_read(kazoo, name));
    }
    jute_stat(body);
    return jute_at_end(body);
}

static void see_contender(zk_waiter *w, jute_bytes name, zk_child child)
{
    if (!w->kind->dir)
        see_type(&w->list, name, child);
    if (w->node_is == NODE_EXISTS && zk_bytes_are(name, w->node))
        w->list.own = true;
    else if (child.sort == ZK_EXCLUSIVE || child.sort == ZK_SHARED)
        count_contender(w, name, child);
}

bool zk_queue_answered(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);

    (void)tag;
    w->list.error = error;
    if (error && error != ZK_NO_NODE)
        zk_waiter_note(w, error);
    return error || read_list(w, body, task->zk->settings.kazoo && !w->kind->dir, see_contender);
}

static void see_found(zk_waiter *w, jute_bytes name, zk_child child)
{
    char id[ZK_NODE_MAX];

    (void)child;
    zk_waiter_node_id(w, id);
    if (zk_bytes_begin(name, id))
        zk_waiter_keep_node(w, name);
}

bool zk_queue_found(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);

    (void)tag;
    if (error == ZK_LOST)
        return true;
    if (error && error != ZK_NO_NODE)
        zk_waiter_note(w, error);
    w->node_is = NODE_NONE;
    if (error || read_list(w, body, task->zk->settings.kazoo && !w->kind->dir, see_found))
        return true;
    w->node_is = NODE_UNSURE;
    return false;
}

static void see_name(zk_waiter *w, jute_bytes name, zk_child child)
{
    see_type(&w->list, name, child);
}

bool zk_queue_types(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    (void)tag;
    return error || read_list(zk_waiter_of(task), body, task->zk->settings.kazoo, see_name);
}

/* ---- locks ----------------------------------------------------------------------------------- */

static void lock_query(zk_waiter *w)
{
    zk *z = w->task.zk;

    zk_ask(&w->task, ZK_CHILDREN, zk_path(z, w->name, NULL, NULL), false, zk_queue_answered, 0);
}

/* The two folders of a semaphore remain for a while after the semaphore's last use, so the
 * semaphore is in use only if a folder has children. */
static bool folder_answered(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);
    size_t n;

    (void)tag;
    if (error)
        return true;
    n = jute_count(body, 4);
    w->in_use += (int64_t)n;
    return !body->bad;
}

static int check_folders(zk_waiter *w)
{
    zk *z = w->task.zk;

    w->in_use = 0;
    w->step = STEP_MORE;
    zk_ask(&w->task, ZK_CHILDREN, zk_path(z, w->name, "locks", NULL), false, folder_answered, 0);
    zk_ask(&w->task, ZK_CHILDREN, zk_path(z, w->name, "leases", NULL), false, folder_answered, 0);
    return WAITER_GOES_ON;
}

static int lock_decide(zk_waiter *w)
{
    if (w->list.latch)
        return zk_waiter_in_use(w);
    if (w->list.semaphore && !w->not_semaphore)
        return check_folders(w);
    return w->list.ahead ? WAITER_BLOCKED : WAITER_GRANTED;
}

static int lock_more(zk_waiter *w)
{
    if (w->in_use)
        return zk_waiter_in_use(w);
    w->not_semaphore = true;
    return lock_decide(w);
}

const zk_waiter_kind zk_waiter_lock = {.query = lock_query, .decide = lock_decide,
                                       .more = lock_more};

/* ---- waiters for a latch --------------------------------------------------------------------- */

/* The node `latch` exists as long as the count is above 0. A waiter watches this node, and has a
 * node of its own that makes the waiter visible to INSPECT. */
static bool latch_read(zk_task *task, int64_t tag, int error, jute_reader *body)
{
    zk_waiter *w = zk_waiter_of(task);

    (void)tag;
    (void)body;
    w->list.own = true; /* nobody depends on the waiter's node */
    w->list.latch = !error;
    if (error == ZK_NO_NODE)
        zk_watch_clear(&w->ahead);
    else if (error && error != ZK_LOST)
        zk_waiter_note(w, error);
    return true;
}

static void latch_query(zk_waiter *w)
{
    zk *z = w->task.zk;
    const char *path;

    if (w->step == STEP_PEEK) {
        zk_ask(&w->task, ZK_CHILDREN, zk_path(z, w->name, NULL, NULL), false, zk_queue_types, 0);
        return;
    }
    path = zk_path(z, w->name, "latch", NULL);
    if (zk_watch_set(&w->ahead, &w->task, path))
        zk_ask(&w->task, ZK_GET, path, true, latch_read, 0);
}

static int latch_decide(zk_waiter *w)
{
    if (w->list.locks)
        return zk_waiter_in_use(w);
    if (w->list.semaphore && !w->list.latch && !w->not_semaphore)
        return check_folders(w);
    return w->list.latch ? WAITER_BLOCKED : WAITER_GRANTED;
}

static int latch_more(zk_waiter *w)
{
    if (w->in_use)
        return zk_waiter_in_use(w);
    w->not_semaphore = true;
    return latch_decide(w);
}

const zk_waiter_kind zk_waiter_latch = {.peeks = true, .query = latch_query, .decide = latch_decide,
        .more = latch_more};
