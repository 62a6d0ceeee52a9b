/* SPDX-License-Identifier: Apache-2.0
 *
 * lockstate.h - the rules of locks, as functions over bytes.
 *
 * A *shelf* is a flat buffer with the state of any number of named locks. A shelf has no pointers,
 * so a shelf can be copied, mapped at another address and read by another process. The functions
 * here edit a private copy of a shelf. They do no I/O, read no clock and allocate nothing. Their
 * input (the time, tokens, which processes are dead) and their output (the owners to notify) pass
 * through a lockstate_edit.
 *
 *     shelf  = { lock }
 *     lock   = header (24 bytes) | name, NUL-padded to 8 | entries: holders, then waiters
 *     entry  = 64 bytes: one grant, one waiter in the queue, or one receipt of a latch
 *
 * Because the holders come first and the queue follows in order of arrival, granting the front
 * waiter moves no bytes: only the border between holders and waiters moves by one.
 *
 * THE RULES
 *  - First come, first served: a request is granted at once only if the queue is empty and the
 *    request is compatible with the holders. Exclusive: no holders; shared: only shared holders;
 *    permits: enough free. An edit that removes a holder or the front waiter then grants from the
 *    front as long as the front is compatible.
 *  - A grant to a waiter is a *claim*: it lasts LOCKSTATE_CLAIM_MS (or the lease, if shorter) until
 *    the owner confirms the claim. So a stopped waiter delays the others by no more than a claim.
 *  - A grant whose lease has ended can't be renewed, released or confirmed any more, also if the
 *    entry is still on the shelf.
 *  - A LINGER entry was released by its owner and stays until it expires, also without a process.
 *  - A lock without holders, waiters and value is not on the shelf. A latch that reached 0 stays on
 *    the shelf for a minute with its receipts, which identify repeated requests; INSPECT and LIST
 *    don't show such a latch.
 *
 * NOTIFICATIONS (edit->tell) are sent in this order. So an owner that has been notified last knows
 * that all others have been notified:
 *  - holders evicted by break;
 *  - a waiter that has another predecessor now or that became the front, and the front if the
 *    earliest end of a blocking lease is earlier now: such a waiter must set other watches;
 *  - owners with a new grant, the last one first; the waiters of a latch that opened.
 */
#ifndef PAWL_LOCKSTATE_H
#define PAWL_LOCKSTATE_H

#include "engine.h"

#define LOCKSTATE_CLAIM_MS 2000
#define LOCKSTATE_RECEIPT_MS 60000
#define LOCKSTATE_RECEIPTS 16
#define LOCKSTATE_GROWTH 512 /* no single edit adds more bytes than this */

/* The bytes of a shelf are written as words and read as these structs; may_alias makes this
 * legal. */
#define LOCKSTATE_LAYOUT __attribute__((may_alias))

enum lockstate_flags {
    LOCKSTATE_CLAIM = 1,  /* granted, and not confirmed by the owner yet */
    LOCKSTATE_LINGER = 2, /* released, and kept until `expires` */
    LOCKSTATE_RECEIPT = 4 /* of a latch: this owner's request has been carried out */
};

typedef struct LOCKSTATE_LAYOUT lockstate_entry {
    uint64_t client, seq; /* the owner */
    uint64_t token;       /* holder: the first token of the range */
    int64_t since;        /* the time of the grant or the request; ns on the clock of `now` */
    int64_t expires;      /* holder, receipt: the end, ns; waiter: 0 */
    int64_t lease_ms;     /* as requested */
    uint32_t permits;
    uint32_t gen;         /* with `peer`: identifies the client to the engine */
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
    LOCKSTATE_EVICTED /* a holder that is not a holder any more */
};

typedef struct lockstate_edit {
    lockstate_shelf *shelf;
    const char *name;
    size_t name_len;
    int64_t now;
    /* Returns the first of n new tokens, which are larger than all earlier tokens. */
    uint64_t (*fence)(void *arg, uint32_t n);
    /* Is the process behind the entry gone? Never asked about LINGER entries. */
    bool (*dead)(void *arg, const lockstate_entry *entry);
    /* `entry` is valid during the call only. */
    void (*tell)(void *arg, const lockstate_entry *entry, enum lockstate_why why);
    void *arg;
    bool changed; /* set by every edit that changed the shelf */
} lockstate_edit;

/* ---- The format (shelf.c) -------------------------------------------------------------------- */

/* Are `used` bytes a well-formed shelf? Bytes from other processes are checked once. */
bool lockstate_check(const unsigned char *bytes, size_t used);

lockstate_lock *lockstate_first(const lockstate_shelf *shelf); /* NULL: none */
lockstate_lock *lockstate_next(const lockstate_shelf *shelf, const lockstate_lock *lock);
lockstate_lock *lockstate_find(const lockstate_shelf *shelf, const char *name, size_t name_len);
const char *lockstate_name(const lockstate_lock *lock); /* NUL-terminated */
lockstate_entry *lockstate_entries(const lockstate_lock *lock);
/* The index of the owner's entry, not counting receipts and LINGER entries; -1: none. */
int64_t lockstate_index(const lockstate_lock *lock, uint64_t client, uint64_t seq);

/* NULL: no room, nothing changed. */
lockstate_lock *lockstate_create(lockstate_shelf *shelf, const char *name, size_t name_len,
                                 uint8_t type);
lockstate_entry *lockstate_insert(lockstate_shelf *shelf, lockstate_lock *lock, size_t index);
void lockstate_remove(lockstate_shelf *shelf, lockstate_lock *lock, size_t index);
void lockstate_drop(lockstate_shelf *shelf, lockstate_lock *lock);

/* ---- The rules (lockstate.c) ----------------------------------------------------------------- */

enum { LOCKSTATE_QUEUED = 1 };

/* The front waiter, and the earliest end of a lease that blocks the front. */
typedef struct lockstate_front {
    uint64_t client, seq;
    int64_t due;
} lockstate_front;

lockstate_front lockstate_front_of(const lockstate_lock *lock);
/* Grant from the front as long as the front is compatible. Returns the number of grants, which are
 * now the last holders. */
size_t lockstate_admit(lockstate_edit *edit, lockstate_lock *lock);
/* End an edit: notify the front if another waiter is the front now or the blocking lease ends
 * earlier than before, then the `admitted` last holders from the back; remove an empty record. */
void lockstate_conclude(lockstate_edit *edit, lockstate_lock *lock, const lockstate_front *before,
                        size_t admitted);

typedef struct lockstate_ask {
    bool queue;
    uint64_t with_seq;
    int64_t capacity;
} lockstate_ask;

/* Acquire as `want` says (owner, lease_ms, permits, ntokens, peer, gen, mode; the rest is set
 * here). 0: granted, `want` is now the entry. LOCKSTATE_QUEUED: waits. PAWL_EBUSY, PAWL_ESTATE,
 * PAWL_EINVAL as PAWL_OP_ACQUIRE states; PAWL_ENOMEM: no room. Again with the same owner: a grant
 * is confirmed or renewed, a waiter keeps its place. This function does not remove dead and expired
 * entries: call lockstate_expire if the acquire is refused, and then try again. */
int lockstate_acquire(lockstate_edit *edit, lockstate_entry *want, const lockstate_ask *ask);

/* End the grant except for `keep` permits; linger_ms > 0: let the grant end in linger_ms. Returns 0
 * or PAWL_ENOTHELD. */
int lockstate_release(lockstate_edit *edit, uint64_t client, uint64_t seq, uint32_t keep,
                      int64_t linger_ms);

/* Leave the queue, or give up a grant that was not confirmed. PAWL_ENOTHELD: no such entry.
 * PAWL_ESTATE: the grant was confirmed; nothing changed. */
int lockstate_cancel(lockstate_edit *edit, uint64_t client, uint64_t seq);

/* Make the lease last at least lease_ms from now, and confirm a claim. 0 or PAWL_ENOTHELD. */
int lockstate_renew(lockstate_edit *edit, uint64_t client, uint64_t seq, int64_t lease_ms);

/* ---- Expiry and break (expire.c) ------------------------------------------------------------- */

/* Remove expired and dead holders, dead waiters at the front, and dead waiters ahead of the given
 * owner; then grant from the front. */
void lockstate_expire(lockstate_edit *edit, uint64_t client, uint64_t seq);

/* End every grant. PAWL_ENOTHELD: there was none that had not ended by itself. */
int lockstate_break(lockstate_edit *edit);

/* Only remove expired and dead entries: for a copy that is shown to people. */
void lockstate_prune(lockstate_edit *edit, lockstate_lock *lock);

/* Notify the front waiter and all owners that have not claimed their grant yet once more, except
 * the given owner. */
void lockstate_retell(lockstate_edit *edit, uint64_t client, uint64_t seq);

/* Remove the records of other names on the shelf that have only expired entries. */
void lockstate_sweep(lockstate_edit *edit);

/* ---- Questions (lockstate.c) ----------------------------------------------------------------- */

/* The number of free permits of a semaphore; never negative. */
int64_t lockstate_available(const lockstate_lock *lock);

/* Is the lock shown by INSPECT and LIST? A latch that opened and has only receipts is not. */
bool lockstate_in_use(const lockstate_lock *lock);

/* ---- Latches (latch.c) ----------------------------------------------------------------------- */

int lockstate_latch_wait(lockstate_edit *edit, lockstate_entry *want, const lockstate_ask *ask);
int lockstate_latch_set(lockstate_edit *edit, const lockstate_entry *who, int64_t count);
int lockstate_latch_down(lockstate_edit *edit, const lockstate_entry *who);

#endif
