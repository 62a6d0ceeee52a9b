/* SPDX-License-Identifier: Apache-2.0
 *
 * local.c - the engine "local:[DIR]": opening, closing, and the functions of pawl_engine, which the
 * shelf engine (shelf_engine.h) implements, with the table as its store. local.h describes the
 * table.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fork.h"
#include "local.h"

#define SAFETY_MS 4000

static void describe(void *store, uint16_t peer, uint32_t gen, pawl_info *row)
{
    local *l = store;
    uint32_t slot = peer % LOCAL_SLOTS, pid;

    if ((uint32_t)local_load(l, LOCAL_AT_SLOT(slot, gen)) != gen)
        return;
    pid = (uint32_t)local_load(l, LOCAL_AT_SLOT(slot, pid));
    local_text_load(l, l->program, LOCAL_AT_SLOT(slot, program), 4);
    local_text_load(l, l->label, LOCAL_AT_SLOT(slot, label), 8);
    if ((uint32_t)local_load(l, LOCAL_AT_SLOT(slot, gen)) != gen)
        return;
    local_call_resume(l); /* the caller takes its time over the row */
    row->pid = pid;
    row->host = l->env->host;
    row->program = l->program;
    row->label = l->label;
}

static void begin_timer(void *store)
{
    local_call_begin(store);
}

static const shelf_store local_store = {
    .edit = local_edit,
    .read = local_read,
    .fence = local_fence,
    .dead = local_dead,
    .tell = local_tell,
    .breaker = local_breaker,
    .describe = describe,
    .watch = local_watch,
    .unwatch = local_unwatch,
    .announce = local_announce,
    .begin = begin_timer,
};

static void leave(local *l)
{
    local_call_begin(l);
    local_peers_close(l);
    if (l->has_slot)
        local_blocks_close(l);
    local_slot_leave(l);
    if (l->map)
        munmap(l->map, local_block_at(LOCAL_BLOCKS - 1) + LOCAL_LARGEST);
    l->map = NULL;
    if (l->fd >= 0) {
        pawl__fork_guard_remove(l->fd);
        close(l->fd);
    }
    if (l->dir >= 0)
        close(l->dir);
    if (l->outer >= 0)
        close(l->outer);
    free(l->path);
    l->path = NULL;
    l->fd = l->dir = l->outer = -1;
    l->slot = l->probes = 0;
}

static int begin(local *l, const pawl_url *url, pawl_error *err)
{
    int code = local_folder_open(l, url, err);

    local_call_begin(l);
    if (!code)
        code = local_table_open(l, err);
    if (!code)
        code = local_slot_enter(l, err);
    if (!code && local_blocks_open(l))
        code = local_troubled(l, true, err);
    return code;
}

static int local_open(void *self, pawl_env *env, const pawl_url *url, pawl_error *err)
{
    local *l = self;
    int code;

    l->env = env;
    l->dir = l->outer = l->fd = l->wake = l->life = -1;
    code = begin(l, url, err);
    for (int tries = 0; !code && local_folder_elsewhere(l); tries++) {
        if (tries == 30) /* after a second or two */
            return pawl_error_set(err, PAWL_EBACKEND, "local: there are clients in both %s and %s, "
                                  "which are meant to be one: name one of them, as in local:DIR",
                                  l->path, l->other);
        leave(l);
        usleep(1000 + (useconds_t)(env->random(env) % (5000 * (unsigned)(tries + 1))));
        code = begin(l, url, err);
    }
    if (!code)
        code = local_peers_open(l, err);
    if (code)
        return code;
    l->copy.bytes = malloc(LOCAL_LARGEST);
    l->copy.cap = LOCAL_LARGEST - BLOCK_HEAD * 8;
    if (!l->copy.bytes ||
        shelf_engine_init(&l->engine, env, &local_store, l, LOCAL_BUCKETS, (uint16_t)l->slot,
                          l->gen))
        return pawl_error_set(err, PAWL_ENOMEM, "local: out of memory");
    l->engine.safety_ms = SAFETY_MS;
    return 0;
}

static void local_close(void *self)
{
    local *l = self;

    if (!l->env)
        return;
    shelf_engine_end(&l->engine);
    leave(l);
    free(l->copy.bytes);
    l->copy.bytes = NULL;
    l->env = NULL; /* the loop uses l->poll until the handle is closed */
}

/* A table that was removed by hand is not the table that new clients open. */
static void give_up(local *l, pawl_op *op)
{
    if (!l->lost)
        pawl_events_report(&l->engine.events, PAWL_EVENT_LOST, PAWL_LOST_GONE);
    l->lost = true;
    for (size_t i = 0; i < op->batch_len; i++)
        op->batch[i].code = PAWL_ENOTHELD;
    if (op->kind == PAWL_OP_RENEW)
        pawl_op_finish(op, 0);
    else
        pawl_op_finish(op, pawl_error_set(op->err, PAWL_EBACKEND, "local: the lock table in %s was "
                                          "removed: open a new client", l->path));
}

static void local_submit(void *self, pawl_op *op)
{
    local *l = self;

    local_call_begin(l);
    if (op->kind != PAWL_OP_EVENT &&
        (l->lost || (op->kind == PAWL_OP_RENEW && local_table_removed(l))))
        give_up(l, op);
    else if (op->kind == PAWL_OP_EXAMINE)
        local_examine(l, op);
    else
        shelf_engine_submit(&l->engine, op);
}

static void local_cancel(void *self, pawl_op *op)
{
    local_call_begin(self);
    shelf_engine_cancel(&((local *)self)->engine, op);
}

/* Device and inode of the folder: the same for all spellings of its path. */
static int local_identity(void *self, char *ret, size_t size)
{
    struct stat folder;

    if (fstat(((local *)self)->dir, &folder))
        return -1;
    return snprintf(ret, size, "local %llx:%llx", (unsigned long long)folder.st_dev,
                    (unsigned long long)folder.st_ino);
}

const pawl_engine pawl_engine_local = {
    .abi = PAWL_ENGINE_ABI,
    .caps = PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_RANGE | PAWL_CAP_SHARED | PAWL_CAP_PERMITS |
            PAWL_CAP_LATCH | PAWL_CAP_LINGER | PAWL_CAP_LIST | PAWL_CAP_HERE |
            PAWL_CAP_EXAMINE,
    .scheme = "local",
    .state_size = sizeof(local),
    .open = local_open,
    .identity = local_identity,
    .close = local_close,
    .submit = local_submit,
    .cancel = local_cancel,
};
