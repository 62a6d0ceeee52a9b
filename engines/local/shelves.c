/* SPDX-License-Identifier: Apache-2.0
 *
 * shelves.c - reading and publishing a bucket's shelf, and drawing tokens. The protocol and why it
 * holds are in local.h; here is what the memory order has to do with it.
 *
 *   - The swap releases the block's content; who loads the word acquires it.
 *   - A reader may copy a block that its owner has begun to write again. The owner does so only
 *     after it saw the bucket's word change (acquire), and puts a release fence before the first
 *     store; the reader puts an acquire fence between the copy and the second load of the word. If
 *     the copy has any of the new bytes, then that load sees the changed word.
 *   - All of the block is read and written as atomic words, so a race is harmless, not undefined.
 */
#include <unistd.h>

#include "local.h"

static bool same_word(const local *l, uint32_t bucket, uint64_t word)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&l->map->buckets[bucket], memory_order_relaxed) == word;
}

/* Copy the block; false if what its head says is impossible. */
static bool copy_block(local *l, uint64_t block)
{
    const local_word *from;
    uint64_t used;

    if (block >= LOCAL_BLOCKS)
        return false;
    from = l->map->blocks[block];
    used = atomic_load_explicit(&from[BLOCK_USED], memory_order_relaxed);
    if (used % 8 || (used > LOCAL_BLOCK - BLOCK_HEAD * 8 &&
                     used > local_block_capacity(l, (uint32_t)block) - BLOCK_HEAD * 8))
        return false;
    for (size_t i = 0; i < used / 8; i++) {
        uint64_t word = atomic_load_explicit(&from[BLOCK_HEAD + i], memory_order_relaxed);

        memcpy(l->copy.bytes + 8 * i, &word, 8);
    }
    l->copy.used = used;
    return true;
}

/* A whole copy of the bucket's shelf and the word it belongs to; false: the table is damaged. */
static bool load(local *l, uint32_t bucket, uint64_t *word)
{
    for (;;) {
        bool good;

        *word = atomic_load_explicit(&l->map->buckets[bucket], memory_order_acquire);
        l->copy.used = 0;
        if (!(*word & LOCAL_INDEX_MASK))
            return true;
        good = copy_block(l, (*word & LOCAL_INDEX_MASK) - 1);
        if (same_word(l, bucket, *word))
            return good && lockstate_check(l->copy.bytes, l->copy.used);
    }
}

static void write_block(local *l, uint32_t block, uint32_t bucket)
{
    local_word *to = l->map->blocks[block];

    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&to[BLOCK_BUCKET], bucket, memory_order_relaxed);
    atomic_store_explicit(&to[BLOCK_USED], l->copy.used, memory_order_relaxed);
    for (size_t i = 0; i < l->copy.used / 8; i++) {
        uint64_t word;

        memcpy(&word, l->copy.bytes + 8 * i, 8);
        atomic_store_explicit(&to[BLOCK_HEAD + i], word, memory_order_relaxed);
    }
}

/* 1: published; 0: somebody was faster; -1: no block. */
static int publish(local *l, uint32_t bucket, uint64_t word, size_t used_before)
{
    uint64_t next = ((word >> LOCAL_INDEX_BITS) + 1) << LOCAL_INDEX_BITS, old = word;
    int64_t block = -1;

    if (l->copy.used) {
        block = local_block_take(l, l->copy.used, l->copy.used > used_before);
        if (block < 0)
            return -1;
        write_block(l, (uint32_t)block, bucket);
        next |= (uint64_t)block + 1;
    }
    if (atomic_compare_exchange_strong_explicit(&l->map->buckets[bucket], &old, next,
                                                memory_order_acq_rel, memory_order_relaxed)) {
        if (word & LOCAL_INDEX_MASK)
            local_block_left(l, (word & LOCAL_INDEX_MASK) - 1);
        return 1;
    }
    if (block >= 0)
        local_block_give(l, (uint32_t)block);
    return 0;
}

int local_edit(void *store, uint32_t bucket, desk_edit_fn *fn, void *arg, pawl_error *err)
{
    local *l = store;
    int done = 0;

    while (!done) {
        uint64_t word;
        size_t used;

        if (!load(l, bucket, &word))
            return pawl_error_set(err, PAWL_EBACKEND,
                                  "local: the lock table in %s is damaged: stop what uses the "
                                  "folder and remove the file",
                                  l->path);
        used = l->copy.used;
        if (!fn(arg, &l->copy))
            return 0;
        done = publish(l, bucket, word, used);
    }
    if (done < 0)
        return pawl_error_set(err, PAWL_EBACKEND, "local: no room for more in %s: the disk or the "
                              "table is full", l->path);
    return 0;
}

lockstate_shelf *local_read(void *store, uint32_t bucket)
{
    local *l = store;
    uint64_t word;

    return load(l, bucket, &word) ? &l->copy : NULL;
}

/* Reserve tokens up to `limit` on the disk. The number goes to the disk first; only then may anyone
 * draw below it. Several processes may do this at once; all writes are maxima. */
static void reserve(local *l, uint64_t limit)
{
    local_head *head = &l->map->head;
    uint64_t seen = atomic_load(&head->fence_wanted);

    while (seen < limit && !atomic_compare_exchange_weak(&head->fence_wanted, &seen, limit))
        ;
    (void)fdatasync(l->fd);
    seen = atomic_load(&head->fence_durable);
    while (seen < limit && !atomic_compare_exchange_weak(&head->fence_durable, &seen, limit))
        ;
}

uint64_t local_fence(void *store, uint32_t n)
{
    local *l = store;
    uint64_t first = atomic_fetch_add(&l->map->head.fence, n);

    if (first + n > atomic_load_explicit(&l->map->head.fence_durable, memory_order_acquire))
        reserve(l, first + n + LOCAL_FENCE_STEP);
    return first;
}
