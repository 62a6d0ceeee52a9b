/* SPDX-License-Identifier: Apache-2.0
 *
 * blocks.c - the blocks of the table, to which edits are written.
 *
 * There are five classes of blocks, each with a fixed part of the file. A block's word in `owners`
 * names the slot of the client that may write the block; 0 is free for all. An edit takes a free
 * block, writes the block and swaps it into the bucket; the block that was in the bucket before
 * then belongs to the editor. So the number of blocks that a client owns depends neither on the
 * number of names nor on the number of waiters.
 *
 * WHICH CLIENT MAY TAKE A BLOCK. A block that a bucket points to: none. A free block: the client
 * that swaps its slot into the word. A block that was swapped out of its bucket: the client that
 * did so, by a swap of the word that was read while the bucket still pointed to the block. If that
 * client was killed before: the client in the word, which finds the block when it searches for
 * blocks (reclaim), or, if the client in the word is dead, too, any client. All of them may try at
 * once; each attempt raises the count, so one attempt succeeds. No count is needed if the owner of
 * the block swaps the block out: no other client has read the word while the block was in that
 * bucket and won the swap.
 *
 * ROOM TO RELEASE. Of each class but the smallest, an edit that grows a shelf leaves one free block
 * for all. An edit that does not grow may take the last block, because the edit returns a block
 * that is at least as large. Of the smallest class each client keeps one block for itself in the
 * same way. So a holder can always release, even if the table or the disk is full. Between taking
 * and returning there may be no free block for a moment: such an edit retries for a while.
 */
#include <sched.h>
#include <time.h>

#include "local.h"

#define CHUNK 256 /* words that are read at a time */
#define OWNER_MASK UINT64_C(0xffff)
#define COUNT_SHIFT 24

static const uint32_t sizes[LOCAL_CLASSES] = {1024, 4096, 16384, 65536, LOCAL_LARGEST};
static const uint32_t counts[LOCAL_CLASSES] = {32768, 20480, 4096, 512, 64};
static const uint32_t firsts[LOCAL_CLASSES] = {0, 32768, 53248, 57344, 57856};

_Static_assert(57856 + 64 == LOCAL_BLOCKS, "classes");

static unsigned class_of(size_t bytes)
{
    unsigned class = 0;

    while (class < LOCAL_CLASSES && sizes[class] < bytes)
        class++;
    return class;
}

static unsigned class_at(uint32_t block)
{
    unsigned class = LOCAL_CLASSES - 1;

    while (block < firsts[class])
        class--;
    return class;
}

size_t local_block_bytes(uint32_t block)
{
    return sizes[class_at(block)];
}

size_t local_block_at(uint32_t block)
{
    unsigned class = class_at(block);
    size_t at = sizeof(local_map);

    for (unsigned i = 0; i < class; i++)
        at += (size_t)counts[i] * sizes[i];
    return at + (size_t)(block - firsts[class]) * sizes[class];
}

static uint64_t owned(uint64_t word, uint64_t owner, bool ready)
{
    return ((word >> COUNT_SHIFT) + 1) << COUNT_SHIFT | (ready ? LOCAL_READY : 0) | owner;
}

static bool change_owner(local *l, uint32_t block, uint64_t word, uint64_t owner, bool ready)
{
    return local_swap(l, LOCAL_AT_OWNER(block), &word, owned(word, owner, ready));
}

/* Make a block of this client free. */
static void set_free(local *l, uint32_t block)
{
    uint64_t word = local_load(l, LOCAL_AT_OWNER(block));

    if ((word & OWNER_MASK) == l->slot + 1)
        (void)change_owner(l, block, word, 0, true);
    l->rover[class_at(block)] = block - firsts[class_at(block)];
}

/* ---- looking for blocks ---------------------------------------------------------------------- */

/* Walk over a class, from `start` around, until `fn` returns true, or a word can't be read or
 * changed. Returns whether `fn` returned true. */
static bool walk(local *l, unsigned class, uint32_t start,
                 bool (*fn)(local *l, uint32_t block, uint64_t word, void *arg), void *arg)
{
    uint64_t words[CHUNK];
    uint32_t n;

    for (uint32_t done = 0; done < counts[class] && local_call_in_time(l); done += n) {
        uint32_t at = (start + done) % counts[class];

        n = counts[class] - at < CHUNK ? counts[class] - at : CHUNK;
        n = counts[class] - done < n ? counts[class] - done : n;
        if (l->trouble || !local_get(l, LOCAL_AT_OWNER(firsts[class] + at), words, n * 8))
            return false;
        for (uint32_t i = 0; i < n && !l->trouble; i++)
            if (fn(l, firsts[class] + at + i, words[i], arg))
                return true;
    }
    return false;
}

struct search {
    bool ready, take; /* find a free block whose bytes are allocated, or not; also take the block */
    bool sized;       /* l->size is up to date */
    int64_t found;
};

/* A damaged word may say that a block is ready, although the file is shorter. */
static bool is_ready(local *l, struct search *s, uint32_t block, uint64_t word)
{
    size_t end = local_block_at(block) + local_block_bytes(block);

    if (!(word & LOCAL_READY) || !l->map || end <= l->size)
        return word & LOCAL_READY;
    if (s->sized)
        return false;
    s->sized = true;
    return local_reachable(l, end);
}

static bool is_free(local *l, uint32_t block, uint64_t word, void *arg)
{
    struct search *s = arg;

    if ((word & OWNER_MASK) || is_ready(l, s, block, word) != s->ready)
        return false;
    if (s->take && !change_owner(l, block, word, l->slot + 1, s->ready))
        return false;
    s->found = block;
    return true;
}

static int64_t find(local *l, unsigned class, bool ready, bool take)
{
    struct search s = {.ready = ready, .take = take, .found = -1};

    walk(l, class, l->rover[class], is_free, &s);
    if (s.found >= 0 && take)
        l->rover[class] = (uint32_t)s.found - firsts[class];
    return s.found;
}

/* Allocate the bytes of a block that was never used, and take the block. */
static int64_t make_ready(local *l, unsigned class)
{
    int64_t block = find(l, class, false, true);
    uint64_t word;

    if (block < 0)
        return -1;
    word = local_load(l, LOCAL_AT_OWNER(block));
    if ((word & OWNER_MASK) != l->slot + 1)
        return -1;
    if (local_table_reserve(l, local_block_at((uint32_t)block), sizes[class])) {
        (void)change_owner(l, (uint32_t)block, word, 0, false);
        return -1;
    }
    return change_owner(l, (uint32_t)block, word, l->slot + 1, true) ? block : -1;
}

static bool in_use(local *l, uint32_t block)
{
    uint64_t bucket = local_load(l, local_block_at(block) + BLOCK_BUCKET * 8);

    return l->trouble || (bucket < LOCAL_BUCKETS &&
           (local_load(l, LOCAL_AT_BUCKET(bucket)) & LOCAL_INDEX_MASK) == block + 1);
}

static bool in_pile(const local *l, uint32_t block)
{
    for (uint32_t i = 0; i < l->npile; i++)
        if (l->pile[i] == block)
            return true;
    return block == l->in_hand;
}

struct reclaim {
    bool self;                   /* only the blocks of the former client in our slot */
    uint8_t slots[LOCAL_SLOTS];  /* 1: empty, 2: not */
    bool any;
};

static bool abandoned(local *l, struct reclaim *r, uint32_t block, uint64_t owner)
{
    if (owner == l->slot + 1)
        return !in_pile(l, block);
    if (r->self || owner > LOCAL_SLOTS)
        return !r->self;
    if (!r->slots[owner - 1])
        r->slots[owner - 1] = local_slot_empty(l, (uint32_t)owner - 1) ? 1 : 2;
    return r->slots[owner - 1] == 1;
}

static bool take_back(local *l, uint32_t block, uint64_t word, void *arg)
{
    struct reclaim *r = arg;
    uint64_t owner = word & OWNER_MASK;

    if (!owner || !abandoned(l, r, block, owner))
        return false;
    if (!(word & LOCAL_READY))
        r->any |= change_owner(l, block, word, 0, false);
    else if (local_reachable(l, local_block_at(block) + 8) && !in_use(l, block))
        r->any |= change_owner(l, block, word, 0, true);
    return false;
}

static bool reclaim(local *l, unsigned class)
{
    struct reclaim r = {0};

    walk(l, class, 0, take_back, &r);
    return r.any;
}

/* Take a block of a class. A search for a ready block walks over the whole class if there is none,
 * so `barren` (at first false) lets a caller that takes several blocks do so once. */
static int64_t grab(local *l, unsigned class, bool *barren)
{
    int64_t block = *barren ? -1 : find(l, class, true, true);

    *barren = block < 0;
    if (block < 0)
        block = make_ready(l, class);
    if (block < 0 && reclaim(l, class)) {
        block = find(l, class, true, true);
        *barren = block < 0;
    }
    l->grabbed += block >= 0;
    return block;
}

/* ---- taking and giving ----------------------------------------------------------------------- */

/* Make sure that this client owns `wanted` blocks of the smallest class; a search takes a few
 * more. */
static bool fill_pile(local *l, uint32_t wanted)
{
    uint32_t more = 8 + l->grabbed / 4 < LOCAL_PILE / 2 ? 8 + l->grabbed / 4 : LOCAL_PILE / 2;
    bool barren = false;

    if (l->npile >= wanted)
        return true;
    while (l->npile < more) {
        int64_t block = grab(l, 0, &barren);

        if (block < 0)
            break;
        l->pile[l->npile++] = (uint32_t)block;
    }
    return l->npile >= wanted;
}

/* Take a free block of a class; spare: leave one free. */
static int64_t take(local *l, unsigned class, bool spare)
{
    int64_t block, other;
    bool barren = false;

    if (class == 0)
        return fill_pile(l, spare ? 2 : 1) ? (int64_t)l->pile[--l->npile] : -1;
    block = grab(l, class, &barren);
    if (block < 0 || !spare || find(l, class, true, false) >= 0)
        return block;
    l->in_hand = block;
    other = grab(l, class, &barren);
    if (other >= 0) {
        set_free(l, (uint32_t)other);
        return block;
    }
    set_free(l, (uint32_t)block);
    return -1;
}

static int64_t take_last(local *l, unsigned need)
{
    struct timespec nap = {.tv_nsec = 1000000};

    for (int tries = 0; tries < 500 && !l->trouble; tries++) {
        for (unsigned class = need; class < LOCAL_CLASSES; class++) {
            int64_t block = take(l, class, false);

            if (block >= 0)
                return block;
        }
        nanosleep(&nap, NULL);
    }
    return -1;
}

int64_t local_block_take(local *l, size_t bytes, int64_t replaced)
{
    unsigned need = class_of(bytes + BLOCK_HEAD * 8), last = LOCAL_CLASSES;
    int64_t block = -1;

    if (replaced >= 0)
        last = class_at((uint32_t)replaced);
    for (unsigned class = need; class < LOCAL_CLASSES && class <= last && block < 0; class++)
        block = take(l, class, class != last);
    if (block < 0 && replaced >= 0)
        block = take_last(l, need);
    l->in_hand = block;
    return block;
}

void local_block_give(local *l, uint32_t block)
{
    l->in_hand = -1;
    if (class_at(block) == 0 && l->npile < LOCAL_PILE)
        l->pile[l->npile++] = block;
    else
        set_free(l, block);
}

void local_block_replaced(local *l, uint32_t block, uint64_t owner)
{
    bool keep = class_at(block) == 0 && l->npile < LOCAL_PILE;

    l->in_hand = -1;
    if ((owner & OWNER_MASK) == l->slot + 1)
        local_block_give(l, block);
    else if (change_owner(l, block, owner, keep ? l->slot + 1 : 0, true) && keep)
        l->pile[l->npile++] = block;
    else
        l->rover[class_at(block)] = block - firsts[class_at(block)];
}

int local_blocks_open(local *l)
{
    struct reclaim r = {.self = true};

    l->in_hand = -1;
    for (unsigned class = 0; class < LOCAL_CLASSES; class++)
        walk(l, class, 0, take_back, &r);
    return !l->trouble && fill_pile(l, 2) ? 0 : PAWL_EBACKEND;
}

void local_blocks_close(local *l)
{
    while (l->npile && !l->trouble) /* the next client takes the others */
        set_free(l, l->pile[--l->npile]);
}
