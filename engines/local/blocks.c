/* SPDX-License-Identifier: Apache-2.0
 *
 * blocks.c - where a client's edits are written.
 *
 * The area of blocks is dealt out in units of 16 KiB. A unit's word in the directory goes from 0 to
 * its owner's slot by compare-and-swap, once and for ever; after that only the process in that slot
 * changes it: not ready -> ready for blocks of one class (or the tail of a block larger than a
 * unit). Until it is ready nothing points into it, so a kill in between costs nothing: the next
 * process in the slot finds it and makes it ready.
 *
 *     word = owner's slot + 1 (16 bits) | 0 not ready, 1..5 class + 1, 7 tail (16 bits)
 *
 * A block is FREE or USED, as far as its owner knows: USED ones become free when somebody swaps
 * another block into the bucket, which the owner finds out by looking (`rescan`), when it runs out
 * of free ones. What its own edit replaced it knows at once, so a client alone never looks.
 */
#include <stdlib.h>

#include "local.h"

enum { NOT_OURS, FREE, USED }; /* the state; above it, from bit 4 on, the class */

#define TAIL 7u

static uint32_t steps(unsigned class)
{
    return 1u << (2 * class); /* blocks of the smallest class that one of this class takes */
}

static unsigned class_of(size_t bytes)
{
    unsigned class = 0;

    while (class < LOCAL_CLASSES && steps(class) * (size_t)LOCAL_BLOCK < bytes)
        class++;
    return class;
}

static uint32_t unit_word(const local *l, uint32_t unit)
{
    return atomic_load_explicit(&l->map->units[unit], memory_order_acquire);
}

size_t local_block_capacity(const local *l, uint32_t block)
{
    uint32_t kind = unit_word(l, block / LOCAL_PER_UNIT) >> 16;

    return kind >= 1 && kind <= LOCAL_CLASSES ? steps(kind - 1) * (size_t)LOCAL_BLOCK : 0;
}

/* ---- the client's own list ------------------------------------------------------------------- */

static bool pile_room(struct local_pile *pile)
{
    size_t room = pile->room ? 2 * pile->room : 32;
    uint32_t *own, *list;

    if (pile->nown < pile->room)
        return true;
    own = realloc(pile->own, room * sizeof *own);
    if (own)
        pile->own = own;
    list = realloc(pile->free, room * sizeof *list);
    if (list)
        pile->free = list;
    if (!own || !list)
        return false;
    pile->room = room;
    return true;
}

static void set_free(local *l, uint32_t block)
{
    unsigned class = l->states[block] >> 4;
    struct local_pile *pile = &l->piles[class];

    l->states[block] = (uint8_t)(class << 4 | FREE);
    pile->free[pile->nfree++] = block;
}

static bool in_use(const local *l, uint32_t block)
{
    uint64_t bucket = atomic_load_explicit(&l->map->blocks[block][BLOCK_BUCKET],
                                           memory_order_relaxed);

    return bucket < LOCAL_BUCKETS &&
           (atomic_load_explicit(&l->map->buckets[bucket], memory_order_acquire) &
            LOCAL_INDEX_MASK) == block + 1;
}

static bool add_block(local *l, uint32_t block, unsigned class)
{
    struct local_pile *pile = &l->piles[class];

    if (!pile_room(pile))
        return false;
    pile->own[pile->nown++] = block;
    l->states[block] = (uint8_t)(class << 4 | USED);
    if (!in_use(l, block))
        set_free(l, block);
    return true;
}

static bool add_unit(local *l, uint32_t unit, unsigned class)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < LOCAL_PER_UNIT; i += steps(class))
        ok = add_block(l, unit * LOCAL_PER_UNIT + i, class);
    return ok;
}

static void rescan(local *l, unsigned class)
{
    struct local_pile *pile = &l->piles[class];

    for (size_t i = 0; i < pile->nown; i++)
        if ((l->states[pile->own[i]] & 15) == USED && !in_use(l, pile->own[i]))
            set_free(l, pile->own[i]);
}

/* ---- units ----------------------------------------------------------------------------------- */

static void mark(local *l, uint32_t unit, uint32_t kind)
{
    atomic_store_explicit(&l->map->units[unit], (l->slot + 1) | kind << 16, memory_order_release);
}

/* Allocate and hand out a unit (or several in a row) that is ours and not ready. */
static bool make_ready(local *l, uint32_t unit, unsigned class)
{
    uint32_t n = steps(class) > LOCAL_PER_UNIT ? steps(class) / LOCAL_PER_UNIT : 1;
    size_t offset = offsetof(local_map, blocks) + (size_t)unit * LOCAL_UNIT;

    if (local_table_reserve(l, offset, (size_t)n * LOCAL_UNIT, true))
        return false;
    for (uint32_t i = n; i-- > 1;)
        mark(l, unit + i, TAIL);
    mark(l, unit, class + 1);
    return add_unit(l, unit, class);
}

static bool claim(local *l, uint32_t unit)
{
    uint32_t nobody = 0;

    return atomic_compare_exchange_strong(&l->map->units[unit], &nobody, l->slot + 1);
}

/* Claim units [unit, unit + n) or none; what was claimed in vain becomes small blocks. */
static bool claim_row(local *l, uint32_t unit, uint32_t n)
{
    uint32_t got = 0;

    for (uint32_t i = 0; i < n; i++)
        if (unit_word(l, unit + i))
            return false;
    while (got < n && claim(l, unit + got))
        got++;
    if (got == n)
        return true;
    while (got > 0)
        (void)make_ready(l, unit + --got, 0);
    return false;
}

static bool grow(local *l, unsigned class)
{
    uint32_t n = steps(class) > LOCAL_PER_UNIT ? steps(class) / LOCAL_PER_UNIT : 1;

    for (uint32_t unit = 0; unit < LOCAL_UNITS; unit += n) {
        if (!claim_row(l, unit, n))
            continue;
        if (make_ready(l, unit, class))
            return true;
        for (uint32_t i = 0; i < n; i++)
            if (unit_word(l, unit + i) >> 16 == 0)
                atomic_store(&l->map->units[unit + i], 0);
        return false;
    }
    return false;
}

/* ---- taking and giving ----------------------------------------------------------------------- */

/* Have more than `spare` free blocks of the class: look at the used ones, then get more. More is a
 * quarter of what there is, so that a client with many locks does not look for each. */
static bool have_free(local *l, unsigned class, size_t spare)
{
    struct local_pile *pile = &l->piles[class];
    size_t wanted = spare + 1;

    if (pile->nfree >= wanted)
        return true;
    rescan(l, class);
    if (pile->nfree < pile->nown / 4)
        wanted = pile->nown / 4 > wanted ? pile->nown / 4 : wanted;
    while (pile->nfree < wanted && grow(l, class))
        ;
    return pile->nfree > spare;
}

int64_t local_block_take(local *l, size_t bytes, bool spare)
{
    for (unsigned class = class_of(bytes + BLOCK_HEAD * 8); class < LOCAL_CLASSES; class++) {
        struct local_pile *pile = &l->piles[class];

        if (have_free(l, class, spare ? 1 : 0)) {
            uint32_t block = pile->free[--pile->nfree];

            l->states[block] = (uint8_t)(class << 4 | USED);
            return block;
        }
    }
    return -1;
}

void local_block_give(local *l, uint32_t block)
{
    set_free(l, block);
}

void local_block_left(local *l, uint64_t block)
{
    if (block < LOCAL_BLOCKS && (l->states[block] & 15) == USED)
        set_free(l, (uint32_t)block);
}

int local_blocks_open(local *l)
{
    l->states = calloc(LOCAL_BLOCKS, 1);
    if (!l->states)
        return PAWL_ENOMEM;
    for (uint32_t unit = 0; unit < LOCAL_UNITS; unit++) {
        uint32_t word = unit_word(l, unit), kind = word >> 16;

        if ((word & 0xffff) != l->slot + 1 || kind == TAIL)
            continue;
        if (kind ? !add_unit(l, unit, kind - 1) : !make_ready(l, unit, 0))
            return PAWL_ENOMEM;
    }
    return have_free(l, 0, 1) ? 0 : PAWL_EBACKEND;
}

void local_blocks_close(local *l)
{
    for (unsigned class = 0; class < LOCAL_CLASSES; class++) {
        free(l->piles[class].own);
        free(l->piles[class].free);
        l->piles[class] = (struct local_pile){0};
    }
    free(l->states);
    l->states = NULL;
}
