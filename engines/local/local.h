/* SPDX-License-Identifier: Apache-2.0
 *
 * local.h - the engine "local:[DIR]": one machine, any number of processes, no server.
 *
 * One folder is one name space. In it:
 *
 *     table-<boot id>   a file that all clients map: tokens, shelves, who is who
 *     w<slot>           a client's datagram socket: others knock there
 *     d<slot>           a client's FIFO, which it keeps open for writing as long as it lives:
 *                       others open it for reading, and the kernel hangs up when the process ends
 *
 * THE TABLE is changed by compare-and-swap only; nothing in it is ever locked. A process that is
 * killed, or stopped, at any instruction leaves it whole, has nothing half done, and keeps nobody
 * from changing it:
 *
 *   bucket   one 64-bit word: version (44 bits) | block number (20 bits, 0: nothing here). The
 *            block has a shelf (lockstate.h) with all names that hash there.
 *            read:  word, copy the block, word again: the same, so the copy is whole, because a
 *                   block is never written while a bucket points to it.
 *            edit:  change the copy, write it to a free block of one's own, swap the word. The
 *                   swap fails if anybody was faster: start over. Versions make it fail also if
 *                   the same block came back meanwhile.
 *   block    belongs for ever to one slot; only the process in that slot writes it. It is free
 *            when the bucket named in its head does not point to it; so after kill -9 there is
 *            nothing to find out: the next process in the slot looks at its blocks (blocks.c).
 *   slot     a client. It holds a lock of the kernel (F_OFD_SETLK) on a byte of the table file
 *            beyond its end. The kernel drops it when the last thread of the process is gone,
 *            however that came about; process numbers play no part. `gen` rises with each client
 *            that takes the slot and with each that leaves, so (slot, gen) names a client once
 *            and for all (slots.c).
 *   fence    one counter for all names. An edit draws its tokens after it read the bucket's word
 *            and before it swaps it, so tokens rise in the order of the swaps, that is per name.
 *
 * DEATH. (slot, gen) is dead if the slot's gen is another one, or its byte is not locked, or its
 * FIFO has no writer. Each of the three is so only when no thread of that process runs any more.
 *
 * WHY NO WAKE-UP IS LOST. The truth is in the table; a knock is a hint to look. An edit that lets
 * somebody get on, or gives him something else to watch, is published first and told afterwards,
 * so its author may die between the two. Everybody who waits therefore watches, from the moment he
 * is in the table, whoever could do that to him:
 *
 *   - the front of the queue: the processes of all holders (release, renewal, death), and the end
 *     of the first of their leases (a timer);
 *   - who is not in front: the process of who is next before him (his leaving, death or grant);
 *   - an outsider (break, the last count-down of a latch) first announces himself to all whom he
 *     will tell: they watch his process until he has told them.
 *
 * To begin to watch a process that died before is seen at once: its FIFO has no writer. What a
 * third party does on the way (drop the dead, let the next one in) follows from an event that the
 * front and the next get themselves. Telling goes from the back to the front (lockstate.h), and
 * who finds his grant without having been told tells the others again; so along the queue there is
 * always somebody alive who watches the one that died.
 *
 * A process that is *stopped* between publishing and telling is not dead. Who waits for a holder
 * looks when the lease ends that he knew of, as he would had the holder been stopped a moment
 * earlier. And as a net under all this (an announcement that found a full queue, a socket file
 * that was removed by hand) what waits is looked at every 15 s.
 */
#ifndef PAWL_LOCAL_H
#define PAWL_LOCAL_H

#include <sys/types.h>
#include <uv.h>

#include "desk.h"

#define LOCAL_MAGIC UINT64_C(0x316c77617043206c)
#define LOCAL_VERSION 1
#define LOCAL_SLOTS 4096
#define LOCAL_BUCKETS 16384
#define LOCAL_UNITS 8192
#define LOCAL_UNIT 16384                             /* bytes */
#define LOCAL_BLOCK 1024                             /* bytes of the smallest block */
#define LOCAL_PER_UNIT (LOCAL_UNIT / LOCAL_BLOCK)
#define LOCAL_BLOCKS (LOCAL_UNITS * LOCAL_PER_UNIT)
#define LOCAL_CLASSES 5                              /* 1, 4, 16, 64, 256 KiB */
#define LOCAL_INDEX_BITS 20
#define LOCAL_INDEX_MASK ((UINT64_C(1) << LOCAL_INDEX_BITS) - 1)
#define LOCAL_FENCE_STEP (UINT64_C(1) << 24)         /* tokens per write to the disk */
#define LOCAL_LOCK_BASE ((off_t)1 << 40)             /* byte of slot 0's lock */

/* Everything in the mapping that more than one process touches is atomic. */
typedef _Atomic uint64_t local_word;

typedef struct local_head {
    uint64_t magic, version, slots, buckets, units, unit; /* written before the file has a name */
    uint64_t time_ns; /* the clocks' name space of who made it; 0 unknown */
    char pad[512 - 7 * 8];
    local_word fence;         /* the next token */
    char pad2[56];
    local_word fence_durable; /* tokens below have been reserved on the disk */
    local_word fence_wanted;  /* the number on the disk: after a power failure go on here */
    char pad3[4096 - 512 - 64 - 16];
} local_head;

typedef struct local_slot {
    _Atomic uint32_t gen;
    _Atomic uint32_t pid;
    local_word hints; /* DESK_BIT, DESK_EVICTED */
    local_word unused[2];
    local_word program[4];
    local_word label[8];
} local_slot;

typedef struct local_map {
    local_head head;
    _Atomic uint32_t units[LOCAL_UNITS];
    local_word buckets[LOCAL_BUCKETS];
    local_slot slots[LOCAL_SLOTS];
    local_word blocks[LOCAL_BLOCKS][LOCAL_BLOCK / 8];
} local_map;

_Static_assert(sizeof(local_head) == 4096 && sizeof(local_slot) == 128 && sizeof(local_word) == 8 &&
                   offsetof(local_map, blocks) % 4096 == 0 && LOCAL_BLOCKS < LOCAL_INDEX_MASK,
               "layout of the table");

/* What a block begins with, in words. */
enum { BLOCK_BUCKET, BLOCK_USED, BLOCK_HEAD };

struct local_pile { /* this client's blocks of one class */
    uint32_t *own, *free;
    size_t nown, nfree, room;
};

struct local_peer { /* another client's process that is watched */
    struct local_peer *next;
    struct local *local;
    uv_poll_t poll;
    int fd;
    uint32_t slot, gen;
    size_t refs;
    bool dead;
};

#define LOCAL_LOOKOUTS 16
#define LOCAL_PEER_TABLE 256

struct local_peers {
    struct local_peer *table[LOCAL_PEER_TABLE];
    size_t idle;
    struct { /* outsiders that announced an edit */
        uint32_t slot, gen;
        bool used;
    } lookouts[LOCAL_LOOKOUTS];
    size_t next_lookout;
};

typedef struct local {
    pawl_env *env;
    desk desk;
    /* folder.c */
    char *path;
    int dir; /* -1: none */
    mode_t mode;
    gid_t gid;
    char sockets[108]; /* where socket names are looked up; ends with "/" */
    /* table.c */
    int fd; /* the table's open file description, which holds the slot's lock; -1: none */
    local_map *map;
    bool lost; /* the file was removed */
    /* slots.c */
    uint32_t slot, gen;
    bool seated;
    int wake, life; /* w<slot>, d<slot>; -1: none */
    /* shelves.c, blocks.c */
    lockstate_shelf copy;
    struct local_pile piles[LOCAL_CLASSES];
    uint8_t *states; /* per block, see blocks.c */
    /* peers.c */
    uv_poll_t poll;
    bool polling;
    struct local_peers peers;
    char host[65], program[33], label[65];
} local;

/* folder.c: find or make the folder and check who may write there. */
int local_folder_open(local *l, const pawl_url *url, pawl_error *err);

/* table.c: open or make the table file and map it. */
int local_table_open(local *l, pawl_error *err);
/* Make sure that bytes of the file are there to be touched: whole pages. fresh: nobody uses them
 * yet, so they may be overwritten where the file system can't allocate. 0 or an errno. */
int local_table_reserve(local *l, size_t offset, size_t length, bool fresh);
bool local_table_removed(local *l);

/* slots.c */
int local_slot_take(local *l, pawl_error *err);
void local_slot_leave(local *l);
/* The name of a slot's socket ('w') or FIFO ('d'). */
void local_slot_name(char name[16], char kind, uint32_t slot);
/* No process is in that slot. */
bool local_slot_empty(local *l, uint32_t slot);
void local_text_store(local_word *words, size_t n, const char *text);
void local_text_load(char *text, const local_word *words, size_t n);

/* blocks.c */
int local_blocks_open(local *l);
void local_blocks_close(local *l);
/* A free block that holds so many bytes; -1: none. spare: leave one of its size behind, so that
 * what shrinks (a release) finds one even if the disk is full. */
int64_t local_block_take(local *l, size_t bytes, bool spare);
void local_block_give(local *l, uint32_t block);
/* The block is no longer in use; if it is ours, it is free. */
void local_block_left(local *l, uint64_t block);
size_t local_block_capacity(const local *l, uint32_t block);

/* shelves.c: desk_store's edit, read and fence. */
int local_edit(void *store, uint32_t bucket, desk_edit_fn *fn, void *arg, pawl_error *err);
lockstate_shelf *local_read(void *store, uint32_t bucket);
uint64_t local_fence(void *store, uint32_t n);

/* peers.c: the rest of desk_store. */
int local_peers_open(local *l, pawl_error *err);
void local_peers_close(local *l);
bool local_dead(void *store, uint16_t peer, uint32_t gen, bool thorough);
void local_tell(void *store, uint16_t peer, uint32_t gen, uint32_t bucket, enum lockstate_why why);
void local_announce(void *store, uint16_t peer, uint32_t gen);
enum desk_watched local_watch(void *store, uint16_t peer, uint32_t gen);
void local_unwatch(void *store, uint16_t peer, uint32_t gen);

#endif
