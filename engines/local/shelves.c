/* SPDX-License-Identifier: Apache-2.0
 *
 * shelves.c - reading and publishing a bucket's shelf, and drawing tokens. local.h describes the
 * protocol and why the protocol is safe. Memory order, for a mapped table:
 *
 *   - The swap of the word releases the block's content; loading the word acquires the content.
 *   - A reader may copy a block that its owner has begun to write again. The owner writes only
 *     after seeing that the bucket's word has changed (acquire), with a release fence before the
 *     first store; the reader has an acquire fence between the copy and the second load of the
 *     word. If the copy has any of the new bytes, the second load sees the changed word.
 *   - The block is read and written as atomic words, so a race is harmless, not undefined.
 *
 * A copy is checked (lockstate_check) before any other use. A client that changes a bucket
 * endlessly can prevent the edits of others from succeeding: an edit gives up after many rounds.
 */
#include <errno.h>
#include <unistd.h>

#include "local.h"

#define ROUNDS 100000

/* Copy the block; false: the head of the block is invalid. */
static bool copy_block(local *l, uint32_t block, uint64_t owner)
{
    size_t at = local_block_at(block), bytes = local_block_bytes(block);
    uint64_t head[BLOCK_HEAD];

    if (!(owner & LOCAL_READY) || !local_get(l, at, head, sizeof head))
        return false;
    if (head[BLOCK_USED] % 8 || head[BLOCK_USED] > bytes - sizeof head)
        return false;
    if (!local_get(l, at + sizeof head, l->copy.bytes, head[BLOCK_USED]))
        return false;
    l->copy.used = head[BLOCK_USED];
    return true;
}

/* Make a consistent copy of the bucket's shelf. Also returns the bucket's word and the block's
 * owner. */
static bool load(local *l, uint32_t bucket, uint64_t *word, uint64_t *owner)
{
    for (int round = 0; round < ROUNDS && !l->trouble; round++) {
        uint64_t block;
        bool good;

        *word = local_load(l, LOCAL_AT_BUCKET(bucket));
        block = *word & LOCAL_INDEX_MASK;
        l->copy.used = 0;
        if (!block || l->trouble)
            return !l->trouble;
        if (block > LOCAL_BLOCKS)
            return false;
        *owner = local_load(l, LOCAL_AT_OWNER(block - 1));
        good = copy_block(l, (uint32_t)block - 1, *owner);
        atomic_thread_fence(memory_order_acquire);
        if (local_load(l, LOCAL_AT_BUCKET(bucket)) == *word)
            return good && lockstate_check(l->copy.bytes, l->copy.used);
    }
    return false;
}

static bool write_block(local *l, uint32_t block, uint32_t bucket)
{
    uint64_t head[BLOCK_HEAD] = {bucket, l->copy.used};
    size_t at = local_block_at(block);

    atomic_thread_fence(memory_order_release);
    return local_put(l, at, head, sizeof head) &&
           local_put(l, at + sizeof head, l->copy.bytes, l->copy.used);
}

/* Returns 1: published; 0: another client was faster; -1: no block, or the table can't be
 * written. */
static int publish(local *l, uint32_t bucket, uint64_t word, uint64_t owner, size_t used_before)
{
    uint64_t next = ((word >> LOCAL_INDEX_BITS) + 1) << LOCAL_INDEX_BITS, old = word;
    int64_t block = -1, before = (int64_t)(word & LOCAL_INDEX_MASK) - 1;

    if (l->copy.used) {
        block = local_block_take(l, l->copy.used, l->copy.used > used_before ? -1 : before);
        if (block < 0)
            return -1;
        if (!write_block(l, (uint32_t)block, bucket)) {
            local_block_give(l, (uint32_t)block);
            return -1;
        }
        next |= (uint64_t)block + 1;
    }
    if (local_swap(l, LOCAL_AT_BUCKET(bucket), &old, next)) {
        l->in_hand = -1;
        if (before >= 0)
            local_block_replaced(l, (uint32_t)before, owner);
        return 1;
    }
    if (block >= 0)
        local_block_give(l, (uint32_t)block);
    return l->trouble ? -1 : 0;
}

int local_troubled(local *l, bool full, pawl_error *err)
{
    int error = l->trouble;

    if (error == ETIMEDOUT)
        return pawl_error_set(err, PAWL_EBACKEND, "local: the lock table in %s is kept by a "
                              "process that does not go on: continue or kill it", l->path);
    if (error && error != ENODATA && error != ENOSPC && error != EFBIG)
        return pawl_error_set(err, PAWL_EBACKEND, "local: the lock table in %s can't be used: %s",
                              l->path, strerror(error));
    if (full || error == ENOSPC || error == EFBIG)
        return pawl_error_set(err, PAWL_EBACKEND, "local: no room for more in %s: the disk or the "
                              "table is full", l->path);
    return pawl_error_set(err, PAWL_EBACKEND,
                          "local: the lock table in %s is damaged%s: stop what uses the folder and "
                          "remove its sub-folder " LOCAL_FOLDER,
                          l->path, error == ENODATA ? " (cut off)" : "");
}

int local_edit(void *store, uint32_t bucket, shelf_edit_fn *fn, void *arg, pawl_error *err)
{
    local *l = store;

    l->trouble = 0;
    local_call_resume(l);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t word, owner = 0;
        size_t used;
        int done;

        if (!load(l, bucket, &word, &owner))
            return local_troubled(l, false, err);
        used = l->copy.used;
        if (!fn(arg, &l->copy))
            return l->trouble ? local_troubled(l, false, err) : 0;
        done = l->trouble ? -1 : publish(l, bucket, word, owner, used);
        if (done > 0) {
            l->trouble = 0; /* published; later errors don't concern this edit */
            return 0;
        }
        if (done < 0)
            return local_troubled(l, true, err);
    }
    return pawl_error_set(err, PAWL_EBACKEND, "local: the lock table in %s changes without end",
                          l->path);
}

lockstate_shelf *local_read(void *store, uint32_t bucket)
{
    local *l = store;
    uint64_t word, owner;

    l->trouble = 0;
    local_call_resume(l);
    l->copy.used = 0;
    if (!local_get(l, LOCAL_AT_BUCKET(bucket), &word, sizeof word)) /* most are empty */
        return NULL;
    if (!(word & LOCAL_INDEX_MASK))
        return &l->copy;
    return load(l, bucket, &word, &owner) ? &l->copy : NULL;
}

/* Reserve tokens up to `limit` on the disk. Clients draw tokens below this number only after the
 * number is on the disk. Several processes may do this at once; all writes are maxima. */
static void reserve(local *l, uint64_t limit)
{
    local_raise(l, LOCAL_AT_WANTED, limit);
    (void)fdatasync(l->fd);
    local_raise(l, LOCAL_AT_DURABLE, limit);
}

uint64_t local_fence(void *store, uint32_t n)
{
    local *l = store;
    uint64_t first = local_add(l, LOCAL_AT_FENCE, n);

    if (first + n > local_load(l, LOCAL_AT_DURABLE))
        reserve(l, first + n + LOCAL_FENCE_STEP);
    return first;
}
