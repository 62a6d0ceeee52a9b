/* SPDX-License-Identifier: Apache-2.0
 *
 * local.h - the engine "local:[DIR]": one machine, any number of processes, no server.
 *
 * One folder is one name space. All of Pawl's files are in its sub-folder ".pawl":
 *
 *     table      a file that all clients share: tokens, shelves, client slots
 *     w<slot>    a client's datagram socket, for notices from other clients
 *     d<slot>    a client's FIFO, open for writing as long as the client lives:
 *                others open the FIFO for reading, and the kernel reports the end of the process
 *
 * TRUST. A table that only its owner can write is mapped: nobody but this user (who could kill the
 * process as well) and root can change the file. A table that others can write, too (the folder of
 * a group), is never mapped: a member could truncate the file, and the next access would end the
 * process with SIGBUS. Such a table is read and written by pread and pwrite, and a compare-and-swap
 * is done under a kernel lock on the byte of its word (table_words.c). The header and the mode of
 * the file decide which way is used, so all clients of a table use the same way. In both cases
 * every value from the table is checked before use, because the value may be damaged or forged.
 *
 * THE TABLE is changed by compare-and-swap only. A process that is killed at any instruction leaves
 * a consistent table and no unfinished change. A process that is stopped does not block changes of
 * others in a mapped table; in a table that is not mapped the process does so only if it is stopped
 * within the few microseconds of a swap.
 *
 *   bucket   one 64-bit word: version (44 bits) | block number + 1 (20 bits, 0: no block). The
 *            block has a shelf (lockstate.h) with all names that hash to the bucket.
 *            read:  read the word, copy the block, read the word again. If the word is the same,
 *                   the copy is consistent, because a block is never written while a bucket points
 *                   to the block.
 *            edit:  change the copy, write the copy to a free block, swap the word. The swap fails
 *                   if another client has swapped before: start again. Because of the version the
 *                   swap also fails if the same block is in the bucket again.
 *   block    has a word in `owners`: count (40 bits) | ready (its bytes are allocated) | slot + 1
 *            of the client that writes the block, 0: free. Each change of owner raises the count.
 *            The client that swaps a block out of its bucket owns the block from then on; blocks.c
 *            explains why no other client can. The blocks of a client that was killed are free for
 *            all once its slot is empty.
 *   slot     a client. The client holds a kernel lock (F_OFD_SETLK) on a byte of the table file
 *            beyond the end of the file. The kernel drops the lock when the last thread of the
 *            process is gone, for any reason; process ids don't matter. `gen` rises with each
 *            client that takes the slot and with each client that leaves the slot, so (slot, gen)
 *            identifies a client for ever (slots.c).
 *   fence    one counter for all names. An edit draws its tokens after reading the bucket's word
 *            and before swapping the word, so tokens rise in the order of the swaps, that is per
 *            name.
 *
 * DEATH. The client (slot, gen) is dead if the slot has another gen, or the slot's byte is not
 * locked, or the FIFO has no writer. Each of the three is only the case when no thread of that
 * process runs any more.
 *
 * NO WAKE-UP IS LOST. The table decides; a notice is only a hint to read the table. An edit that
 * grants a lock to a waiter, or gives a waiter another process to watch, is published first, and
 * its notices are sent afterwards, so the author of the edit may die in between. Every waiter
 * therefore watches, as soon as the waiter is in the table, the processes that could do such an
 * edit:
 *
 *   - the front of the queue watches the processes of all holders (release, renewal, death), and
 *     has a timer for the earliest end of their leases;
 *   - every other waiter watches the process of its predecessor (leaving, death or grant);
 *   - an outsider (break, the last count-down of a latch) first announces the edit to all clients
 *     that will get a notice: these watch the outsider's process until the notice has arrived.
 *
 * A process that died before the watch began is detected at once: its FIFO has no writer. Edits of
 * third parties (removing dead entries, granting to the next waiter) follow from events that the
 * front and the next waiter receive themselves. Notices are sent from the back to the front
 * (lockstate.h), and a waiter that finds its grant without a notice notifies the others again. So
 * along the queue there is always a live waiter that watches the process that died.
 *
 * A process that is *stopped* between publishing and notifying is not dead. Waiters check the table
 * when the lease ends that they know of, as they would if the holder had been stopped a moment
 * earlier. In addition every waiter checks the table every 4 s, in case an announcement found a
 * full queue or a socket file was removed by hand.
 *
 * A process that changes its identity or its root (setuid, chroot) can no longer reach the sockets
 * of the others. The process is then *mute* and reports that by bytes in its own FIFO, which needs
 * no right: clients that watch the process check the table at once, and then every 100 ms.
 */
#ifndef PAWL_LOCAL_H
#define PAWL_LOCAL_H

#include <sys/types.h>
#include <uv.h>

#include "shelf/shelf_engine.h"

#define LOCAL_MAGIC UINT64_C(0x316c77617043206c)
#define LOCAL_VERSION 2
#define LOCAL_SLOTS 4096
#define LOCAL_BUCKETS 16384
#define LOCAL_CLASSES 5
#define LOCAL_BLOCKS (32768 + 20480 + 4096 + 512 + 64)
#define LOCAL_LARGEST (512 * 1024)                   /* bytes of the largest block */
#define LOCAL_INDEX_BITS 20
#define LOCAL_INDEX_MASK ((UINT64_C(1) << LOCAL_INDEX_BITS) - 1)
#define LOCAL_FENCE_STEP (UINT64_C(1) << 24)         /* tokens per write to the disk */
#define LOCAL_LOCK_BASE ((off_t)1 << 40)             /* byte of slot 0's lock */
#define LOCAL_LOCK_WORDS ((off_t)1 << 41)            /* bytes of the words' locks */
#define LOCAL_READY (UINT64_C(1) << 16)              /* in an owner's word */
#define LOCAL_FOLDER ".pawl"

/* All data in the table that more than one process accesses is atomic. */
typedef _Atomic uint64_t local_word;

typedef struct local_head {
    uint64_t magic, version, slots, buckets, blocks; /* written before the file has a name */
    uint64_t shared;  /* others than the owner may write the file: not mapped */
    uint64_t time_ns; /* the time name space of the creator; 0: unknown */
    char boot[40];    /* the boot of the creator */
    char pad[512 - 7 * 8 - 40];
    local_word fence;         /* the next token to give out */
    char pad2[56];
    local_word fence_durable; /* tokens below this number have been reserved on the disk */
    local_word fence_wanted;  /* the number on the disk: tokens continue here after a power loss */
    char pad3[4096 - 512 - 64 - 16];
} local_head;

typedef struct local_slot {
    local_word gen;
    local_word pid;
    local_word hints; /* SHELF_BIT, SHELF_EVICTED */
    local_word breaker; /* with SHELF_EVICTED: slot + 1 of the client that broke a lock (upper 32
                           bits) and its gen; ~0: there were two clients */
    local_word program[4];
    local_word label[8];
} local_slot;

/* The beginning of the file; the blocks follow, by class. */
typedef struct local_map {
    local_head head;
    local_word buckets[LOCAL_BUCKETS];
    local_slot slots[LOCAL_SLOTS];
    local_word owners[LOCAL_BLOCKS];
    char pad[4096 - LOCAL_BLOCKS * 8 % 4096];
} local_map;

_Static_assert(sizeof(local_head) == 4096 && sizeof(local_slot) == 128 && sizeof(local_word) == 8 &&
                   sizeof(local_map) % 4096 == 0 && LOCAL_BLOCKS < LOCAL_INDEX_MASK,
               "layout of the table");

#define LOCAL_AT_BUCKET(b) (offsetof(local_map, buckets) + (size_t)(b) * 8)
#define LOCAL_AT_OWNER(b) (offsetof(local_map, owners) + (size_t)(b) * 8)
#define LOCAL_AT_SLOT(s, field) \
    (offsetof(local_map, slots) + (size_t)(s) * sizeof(local_slot) + offsetof(local_slot, field))
#define LOCAL_AT_FENCE offsetof(local_map, head.fence)
#define LOCAL_AT_DURABLE offsetof(local_map, head.fence_durable)
#define LOCAL_AT_WANTED offsetof(local_map, head.fence_wanted)

/* The head of a block, in words. */
enum { BLOCK_BUCKET, BLOCK_USED, BLOCK_HEAD };

#define LOCAL_PILE 256

struct local_peer { /* another client's process that is watched */
    struct local_peer *next;
    struct local *local;
    uv_poll_t poll;
    int fd;
    uint32_t slot, gen;
    size_t refs;
    bool dead, mute;
    bool closed, dropped; /* the handle is closed; not in the list any more. Freed after both */
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
    shelf_engine engine;
    /* folder.c */
    char *path;
    char usual[64]; /* the usual default folder; "": the folder is not the default */
    char other[64]; /* another folder with clients: see local_folder_elsewhere */
    int dir;     /* descriptor of the sub-folder; -1: none */
    int outer;   /* descriptor of the folder */
    bool shared; /* others than this user may write there */
    bool others; /* ?others=allow */
    mode_t mode; /* the mode of new files */
    gid_t gid;
    char sockets[32]; /* where socket names are looked up; ends with "/" */
    /* table.c, table_words.c */
    int fd; /* the table's open file description, which holds the slot's lock; -1: none */
    bool may_map; /* the table is this user's alone */
    char *map; /* NULL: not mapped */
    size_t size; /* the size of the file, as far as it is known */
    int trouble; /* why the table could not be read or written: an errno; set by table_words.c */
    /* The time of the current call, in ns; only for a table that is not mapped: table_words.c. */
    int64_t spent; /* by the call so far */
    int64_t seen;  /* the clock, when `spent` was counted */
    int64_t hasty; /* calls that begin before this time wait for a moment only */
    bool lost; /* the file was removed */
    /* slots.c */
    uint32_t slot, gen;
    uint32_t probes, start; /* slots that were tried, and where the later ones begin */
    bool has_slot;
    int wake, life; /* descriptors of w<slot> and d<slot>; -1: none */
    bool mute; /* we can't send notices, and have reported that */
    /* shelves.c, blocks.c */
    lockstate_shelf copy;
    uint32_t pile[LOCAL_PILE], npile; /* own free blocks of the smallest class */
    uint32_t rover[LOCAL_CLASSES], grabbed;
    int64_t in_hand; /* own block that is being written now; -1: none */
    /* peers.c */
    uv_poll_t poll;
    bool polling;
    struct local_peers peers;
    char program[33], label[65]; /* the texts that `describe` returns */
} local;

/* folder.c: find or create the folder, and check its permissions. */
int local_folder_open(local *l, const pawl_url *url, pawl_error *err);
/* Does another possible default folder have clients? Then the caller must start again. */
bool local_folder_elsewhere(local *l);
void local_examine(local *l, pawl_op *op); /* examine.c */
int local_refuse(local *l, int error, const char *what, pawl_error *err);
int local_refuse_path(local *l, int error, pawl_error *err); /* the folder can't be opened */

/* way.c: check that no other user can make the path lead to another folder. */
int local_way_check(local *l, uid_t owner, pawl_error *err);

/* private.c: create files that other users can only reach once they have their permissions. All but
 * close return 0 or an errno; EPERM: another user has interfered. */
#define LOCAL_PRIVATE_NAME 24

struct local_private {
    int fd;
    char name[LOCAL_PRIVATE_NAME];
};

/* Create a folder for this user alone in the folder `parent`. To be closed in any case. */
int local_private_open(local *l, int parent, struct local_private *p);
void local_private_close(int parent, struct local_private *p);
/* Move a file to the folder `to`, where the name must be free. On failure the file is removed. */
int local_private_link(const struct local_private *p, const char *name, int to);
/* Create the folder `final` in the folder `to`, with this mode and the group of l->gid. */
int local_private_folder(local *l, int to, const char *final, mode_t mode);

/* table.c: open or create the table file, take a slot, and map the file. */
int local_table_open(local *l, pawl_error *err);
/* Allocate the whole pages of these bytes of the file, so that they can be accessed. Returns 0 or
 * an errno. */
int local_table_reserve(local *l, size_t offset, size_t length);
bool local_table_removed(local *l);
/* Does a client of any boot or version have a slot in the table of this descriptor? */
bool local_table_in_use(int fd);

/* table_words.c: all access to the table. A word that can't be read is 0 and sets l->trouble. */
void local_call_begin(local *l); /* before the first access of each call and each timer */
/* Don't count the time since the last access: it was not the table's. */
void local_call_resume(local *l);
/* False: the call has taken too long; sets l->trouble. */
bool local_call_in_time(local *l);
uint64_t local_load(local *l, size_t at);
bool local_swap(local *l, size_t at, uint64_t *old, uint64_t value);
uint64_t local_add(local *l, size_t at, uint64_t n);
uint64_t local_or(local *l, size_t at, uint64_t bits);
uint64_t local_exchange(local *l, size_t at, uint64_t value);
/* Raise the word to `value`, unless the word is larger. */
void local_raise(local *l, size_t at, uint64_t value);
/* Is the mapped file at least this long? True if the file is not mapped: then an access fails. */
bool local_reachable(local *l, size_t end);
/* Copy whole words. The copy as a whole is not atomic. */
bool local_get(local *l, size_t at, void *to, size_t bytes);
bool local_put(local *l, size_t at, const void *from, size_t bytes);

/* slots.c */
int local_slot_take(local *l);
int local_slot_enter(local *l, pawl_error *err);
void local_slot_leave(local *l);
/* The name of a slot's socket ('w') or FIFO ('d'). */
void local_slot_name(char name[16], char kind, uint32_t slot);
/* Is no process in this slot? */
bool local_slot_empty(local *l, uint32_t slot);
void local_text_load(local *l, char *text, size_t at, size_t words);

/* blocks.c */
int local_blocks_open(local *l);
void local_blocks_close(local *l);
/* Take a free block for this many bytes. `replaced` is the block that will be replaced, if the
 * shelf does not grow; in this case there is always a free block. Else `replaced` is -1. Returns -1
 * if there is no free block. */
int64_t local_block_take(local *l, size_t bytes, int64_t replaced);
void local_block_give(local *l, uint32_t block);
/* This client has swapped the block out of its bucket; `owner` is the block's owner word from
 * before. */
void local_block_replaced(local *l, uint32_t block, uint64_t owner);
size_t local_block_bytes(uint32_t block);
size_t local_block_at(uint32_t block);

/* shelves.c: shelf_store's edit, read and fence. */
int local_edit(void *store, uint32_t bucket, shelf_edit_fn *fn, void *arg, pawl_error *err);
lockstate_shelf *local_read(void *store, uint32_t bucket);
uint64_t local_fence(void *store, uint32_t n);
/* The error of l->trouble; full: if there is none, the reason is that there was no free block. */
int local_troubled(local *l, bool full, pawl_error *err);

/* peers.c: the rest of shelf_store. */
int local_peers_open(local *l, pawl_error *err);
void local_peers_close(local *l);
bool local_dead(void *store, uint16_t peer, uint32_t gen, bool thorough);
void local_tell(void *store, const struct shelf_peer *to, const struct shelf_told *what);
void local_breaker(void *store, char by[PAWL_BY_MAX]);
void local_announce(void *store, uint16_t peer, uint32_t gen);
enum shelf_watched local_watch(void *store, uint16_t peer, uint32_t gen);
void local_unwatch(void *store, uint16_t peer, uint32_t gen);

#endif
