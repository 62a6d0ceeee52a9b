/* SPDX-License-Identifier: Apache-2.0
 *
 * lockstate.h - the rules of locks, as functions over bytes.
 *
 * A *shelf* is a flat buffer with the state of any number of named locks. It holds no pointers, so
 * it may be copied, mapped at another address and read by another process. The functions here edit
 * a private copy of it; they do no I/O, read no clock and allocate nothing. What they need from
 * outside (time, tokens, who is dead) comes in through a lockstate_edit, and so does what must go
 * out (who is to be told).
 *
 *     shelf  = { lock }
 *     lock   = header (24 bytes) | name, NUL-padded to 8 | entries: holders, then waiters
 *     entry  = 64 bytes: one grant, one place in the queue, or one receipt of a latch
 *
 * Because the holders come first and the queue follows in order of arrival, granting the front
 * waiter moves nothing: the border between the two moves by one.
 *
 * THE RULES
 *  - First come, first served: a request is granted at once only if nobody waits and it is
 *    compatible with the holders. Exclusive: none; shared: only shared ones; permits: enough free.
 *    Whatever takes a holder or the front waiter away admits from the front while compatible.
 *  - A grant made to somebody who waits is a *claim*: it lasts LOCKSTATE_CLAIM_MS (or the lease, if
 *    shorter) until its owner takes it up. So one that has stopped costs the others no more.
 *  - A lease that has ended is no grant, dropped or not: it can't be renewed, released or resumed.
 *  - A LINGER entry was released by its owner but stays until it expires; no process is behind it.
 *  - A lock without holders, waiters and value is not on the shelf. A latch that reached 0 leaves
 *    for a minute its receipts, by which a repeated request is known; nobody sees it otherwise.
 *
 * WHO IS TOLD (edit->tell), in this order, so that who is told last knows the others have been:
 *  - holders evicted by break;
 *  - a waiter whose predecessor changed or who became the front, and the front if the earliest end
 *    of a lease that blocks it moved closer: it must watch something else from now on;
 *  - those granted, the last first; waiters of a latch that opened.
 */
#ifndef PAWL_LOCKSTATE_H
#define PAWL_LOCKSTATE_H

#include "engine.h"

#define LOCKSTATE_CLAIM_MS 2000
#define LOCKSTATE_RECEIPT_MS 60000
#define LOCKSTATE_RECEIPTS 16
#define LOCKSTATE_GROWTH 512 /* no single edit adds more bytes than this */

/* The bytes of a shelf are written as words and read as these; may_alias makes that legal. */
#define LOCKSTATE_LAYOUT __attribute__((may_alias))

enum lockstate_flags {
    LOCKSTATE_CLAIM = 1,  /* granted, its owner has not taken it up yet */
    LOCKSTATE_LINGER = 2, /* released, stays until it expires */
    LOCKSTATE_RECEIPT = 4 /* of a latch: this owner's request has been carried out */
};

typedef struct LOCKSTATE_LAYOUT lockstate_entry {
    uint64_t client, seq; /* the owner */
    uint64_t token;       /* holder: the first of its range */
    int64_t since;        /* when it was granted or began to wait; ns on the clock of `now` */
    int64_t expires;      /* holder, receipt: the end, ns; waiter: 0 */
    int64_t lease_ms;     /* as asked for */
    uint32_t permits;
    uint32_t gen;         /* with `peer`: the process behind it, in the engine's terms */
    uint16_t peer;
    uint8_t mode;         /* enum pawl_mode */
    uint8_t flags;
    uint32_t ntokens;
} lockstate_entry;

typedef struct LOCKSTATE_LAYOUT lockstate_lock {
    uint32_t bytes; /* the whole record */
    uint16_t name_len;
    uint8_t type;   /* enum pawl_type */
    uint8_t unused;
    uint32_t holders; /* of a latch: receipts */
    uint32_t waiters;
    int64_t value;    /* semaphore: capacity; latch: count */
} lockstate_lock;

_Static_assert(sizeof(lockstate_entry) == 64 && sizeof(lockstate_lock) == 24, "shelf layout");

typedef struct lockstate_shelf {
    unsigned char *bytes; /* aligned to 8 */
    size_t used, cap;
} lockstate_shelf;

enum lockstate_why {
    LOCKSTATE_CHECK, /* a waiter: look again */
    LOCKSTATE_EVICTED /* a holder: it no longer is one */
};

typedef struct lockstate_edit {
    lockstate_shelf *shelf;
    const char *name;
    size_t name_len;
    int64_t now;
    /* The first of n new tokens, larger than all before. */
    uint64_t (*fence)(void *arg, uint32_t n);
    /* Is the process behind the entry gone? Never asked about LINGER entries. */
    bool (*dead)(void *arg, const lockstate_entry *entry);
    /* `entry` is valid during the call only. */
    void (*tell)(void *arg, const lockstate_entry *entry, enum lockstate_why why);
    void *arg;
    bool changed; /* set by every edit that changed the shelf */
} lockstate_edit;

/* ---- The format (shelf.c) -------------------------------------------------------------------- */

/* Whether `used` bytes are a well-formed shelf: what comes from outside is checked once. */
bool lockstate_check(const unsigned char *bytes, size_t used);

lockstate_lock *lockstate_first(const lockstate_shelf *shelf); /* NULL: none */
lockstate_lock *lockstate_next(const lockstate_shelf *shelf, const lockstate_lock *lock);
lockstate_lock *lockstate_find(const lockstate_shelf *shelf, const char *name, size_t name_len);
const char *lockstate_name(const lockstate_lock *lock); /* NUL-terminated */
lockstate_entry *lockstate_entries(const lockstate_lock *lock);
/* The index of the owner's entry, receipts and LINGER ones apart; -1: none. */
int64_t lockstate_index(const lockstate_lock *lock, uint64_t client, uint64_t seq);

/* NULL: no room, nothing changed. */
lockstate_lock *lockstate_create(lockstate_shelf *shelf, const char *name, size_t name_len,
                                 uint8_t type);
lockstate_entry *lockstate_insert(lockstate_shelf *shelf, lockstate_lock *lock, size_t index);
void lockstate_remove(lockstate_shelf *shelf, lockstate_lock *lock, size_t index);
void lockstate_drop(lockstate_shelf *shelf, lockstate_lock *lock);

/* ---- The rules (lockstate.c) ----------------------------------------------------------------- */

enum { LOCKSTATE_QUEUED = 1 };

/* Who is at the front of the queue, and when the first of the leases that block it ends. */
typedef struct lockstate_front {
    uint64_t client, seq;
    int64_t due;
} lockstate_front;

lockstate_front lockstate_front_of(const lockstate_lock *lock);
/* Grant from the front while it fits; how many were granted. They become the last holders. */
size_t lockstate_admit(lockstate_edit *edit, lockstate_lock *lock);
/* End an edit: tell the front if it is another one than before or may hope for an earlier moment,
 * then the `admitted` last holders from the back; let a record go in which nothing is left. */
void lockstate_conclude(lockstate_edit *edit, lockstate_lock *lock, const lockstate_front *before,
                        size_t admitted);

typedef struct lockstate_ask {
    bool queue;
    uint64_t with_seq;
    int64_t capacity;
} lockstate_ask;

/* Ask for what `want` says (owner, lease_ms, permits, ntokens, peer, gen, mode; the rest is set
 * here). 0: granted, `want` is now the entry. LOCKSTATE_QUEUED: waits. PAWL_EBUSY, PAWL_ESTATE,
 * PAWL_EINVAL as PAWL_OP_ACQUIRE states; PAWL_ENOMEM: no room. Again with the same owner: a grant
 * is claimed or renewed, a place in the queue is kept. Dropping what is dead or expired comes
 * first, but is lockstate_expire's: call that when this refuses, and try again. */
int lockstate_acquire(lockstate_edit *edit, lockstate_entry *want, const lockstate_ask *ask);

/* End the grant, but for `keep` permits; linger_ms > 0: let it end in so many ms. PAWL_ENOTHELD. */
int lockstate_release(lockstate_edit *edit, uint64_t client, uint64_t seq, uint32_t keep,
                      int64_t linger_ms);

/* Leave the queue, or give up a grant that was not claimed. PAWL_ENOTHELD: neither was there;
 * PAWL_ESTATE: it was claimed, nothing changed. */
int lockstate_cancel(lockstate_edit *edit, uint64_t client, uint64_t seq);

/* Make the lease last lease_ms from now at least, and claim it. PAWL_ENOTHELD. */
int lockstate_renew(lockstate_edit *edit, uint64_t client, uint64_t seq, int64_t lease_ms);

/* ---- Expiry and break (expire.c) ------------------------------------------------------------- */

/* Drop expired and dead holders, dead waiters at the front, and those ahead of the given owner;
 * then admit. */
void lockstate_expire(lockstate_edit *edit, uint64_t client, uint64_t seq);

/* End every grant. PAWL_ENOTHELD: there was none that had not ended by itself. */
int lockstate_break(lockstate_edit *edit);

/* Only drop, whoever waits: for a copy that is to be shown. */
void lockstate_prune(lockstate_edit *edit, lockstate_lock *lock);

/* Tell the front waiter and all that have not claimed yet, except the owner given, once more. */
void lockstate_retell(lockstate_edit *edit, uint64_t client, uint64_t seq);

/* Drop records of other names on the shelf in which nothing is left but what has expired. */
void lockstate_sweep(lockstate_edit *edit);

/* ---- Questions (lockstate.c) ----------------------------------------------------------------- */

/* Free permits of a semaphore; negative never. */
int64_t lockstate_available(const lockstate_lock *lock);

/* Whether anybody should see it: not the receipts of a latch that opened. */
bool lockstate_in_use(const lockstate_lock *lock);

/* ---- Latches (latch.c) ----------------------------------------------------------------------- */

int lockstate_latch_wait(lockstate_edit *edit, lockstate_entry *want, const lockstate_ask *ask);
int lockstate_latch_set(lockstate_edit *edit, const lockstate_entry *who, int64_t count);
int lockstate_latch_down(lockstate_edit *edit, const lockstate_entry *who);

#endif
