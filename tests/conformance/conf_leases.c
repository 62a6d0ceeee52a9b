/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_leases.c - one owner that holds a name twice with different leases: an exclusive lock of any
 * kind beside a read lock, and two handles of one kind. Each case runs with blocking calls and with
 * asynchronous ones.
 *
 * The end of one hold must neither shorten nor extend the other: other owners stay out for as long
 * as pawl_lock_valid_ms says, and get the lock soon after that.
 */
#include "conf.h"

enum { BRIEF_LEASE = DEATH_LEASE, KINDS = 5, PAIRS = 4 * KINDS };

typedef struct pair {
    const char *name;
    pawl_lock *a, *b;
    bool async, swap; /* swap: the holds of two handles are released in the other order */
} pair;

static pair pairs[PAIRS];
static int npairs;

/* ---- Calls of both sorts --------------------------------------------------------------------- */

static calls done = CALLS_INIT;
static int ndone;

static int result(int started)
{
    if (started)
        return started;
    event_await(&done.event, ++ndone);
    return done.code;
}

static int acquire(const pair *p, pawl_lock *lock)
{
    return p->async ? result(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_call, &done))
                    : pawl_lock_acquire(lock, PAWL_FOREVER, NULL);
}

static int release(const pair *p, pawl_lock *lock)
{
    return p->async ? result(pawl_lock_release_start(lock, count_call, &done))
                    : pawl_lock_release(lock, NULL);
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

static bool known(uint64_t kind)
{
    return (kind != PAWL_FAIR || can(PAWL_CAN_FAIR)) && (kind != PAWL_READ || can(PAWL_CAN_READ));
}

static void add_pair(uint64_t kind, int64_t lease_a, uint64_t other, int64_t lease_b, int variant)
{
    pawl_client *client = client_open(NULL);
    pair *p = &pairs[npairs++];
    char suffix[24];

    snprintf(suffix, sizeof suffix, "leases%d", npairs);
    p->name = check_name(suffix);
    p->async = variant & 1;
    p->swap = variant & 2;
    p->a = lock_new(client, p->name, LOCK_OPTIONS(.kind = kind, .lease_ms = lease_a));
    p->b = lock_new(client, p->name, LOCK_OPTIONS(.kind = other, .lease_ms = lease_b));
}

static int release_first(const pair *p)
{
    return release(p, p->swap ? p->a : p->b);
}

static int release_last(const pair *p)
{
    return release(p, p->swap ? p->b : p->a);
}

enum then { KEEP_BOTH, RELEASE_A, RELEASE_B, RELEASE_FIRST };

/* What is released at once is released before the next pair is acquired: a brief lease must not end
 * before. */
static void acquire_all(enum then then)
{
    for (pair *p = pairs; p < pairs + npairs; p++) {
        CHECK_OK(acquire(p, p->a));
        CHECK_OK(acquire(p, p->b));
        if (then == RELEASE_A || then == RELEASE_B)
            CHECK_OK(release(p, then == RELEASE_A ? p->a : p->b));
        if (then == RELEASE_FIRST)
            CHECK_OK(release_first(p));
    }
}

/* Pairs of an exclusive lock (a) of each kind and a read lock (b). */
static void hold_both(int64_t exclusive_ms, int64_t read_ms, enum then then)
{
    static const uint64_t kinds[] = {PAWL_MUTEX, PAWL_FAIR, PAWL_WRITE, PAWL_SPIN};

    need(PAWL_CAN_READ, "it has no shared locks");
    npairs = 0;
    for (int i = 0; i < 4; i++)
        for (int variant = 0; variant < 2 && known(kinds[i]); variant++)
            add_pair(kinds[i], exclusive_ms, PAWL_READ, read_ms, variant);
    acquire_all(then);
}

static void until_brief_leases_end(void)
{
    pause_ms(BRIEF_LEASE + 300);
}

static void closed_to_all(const pair *p)
{
    CHECK_CODE(try_as_stranger(p->name, PAWL_READ), PAWL_EBUSY);
    CHECK_CODE(try_as_stranger(p->name, PAWL_WRITE), PAWL_EBUSY);
}

static void open_to_readers(const pair *p)
{
    CHECK_OK(try_as_stranger(p->name, PAWL_READ));
    CHECK_CODE(try_as_stranger(p->name, PAWL_WRITE), PAWL_EBUSY);
}

/* A stranger that asks for `kind` gets the name only when the lease of `lock` is over. */
static void keeps_out(const pair *p, pawl_lock *lock, uint64_t kind)
{
    if (try_as_stranger(p->name, kind) == 0)
        CHECK_EQ(pawl_lock_valid_ms(lock), 0);
}

static void await_open(const pair *p, uint64_t kind)
{
    while (try_as_stranger(p->name, kind))
        pause_ms(10);
}

/* ---- An exclusive lock and a read lock ------------------------------------------------------- */

CASE("a brief read lock that is released leaves its owner's exclusive lock of any kind as it is")
{
    hold_both(LONG_LEASE, BRIEF_LEASE, RELEASE_B);
    until_brief_leases_end();
    for (pair *p = pairs; p < pairs + npairs; p++) {
        CHECK(pawl_lock_valid_ms(p->a) > 0);
        closed_to_all(p);
        CHECK_OK(release(p, p->a));
        CHECK_OK(try_as_stranger(p->name, PAWL_WRITE));
    }
}

CASE("a brief read lock whose lease ends leaves its owner's exclusive lock of any kind as it is")
{
    hold_both(LONG_LEASE, BRIEF_LEASE, KEEP_BOTH);
    until_brief_leases_end();
    for (pair *p = pairs; p < pairs + npairs; p++) {
        CHECK(pawl_lock_valid_ms(p->a) > 0);
        closed_to_all(p);
        CHECK_CODE(release(p, p->b), PAWL_ELOST);
        closed_to_all(p);
        CHECK_OK(release(p, p->a));
        CHECK_OK(try_as_stranger(p->name, PAWL_WRITE));
    }
}

CASE("a brief read lock ends with its lease after the exclusive lock of any kind is released")
{
    bool left = true;

    hold_both(LONG_LEASE, BRIEF_LEASE, RELEASE_A);
    while (left) {
        left = false;
        for (pair *p = pairs; p < pairs + npairs; p++) {
            keeps_out(p, p->b, PAWL_WRITE);
            left |= pawl_lock_held(p->b);
        }
    }
    for (pair *p = pairs; p < pairs + npairs; p++) {
        CHECK_CODE(release(p, p->b), PAWL_ELOST);
        await_open(p, PAWL_WRITE);
    }
}

CASE("a read lock outlasts its owner's brief exclusive lock of any kind that is released")
{
    hold_both(BRIEF_LEASE, LONG_LEASE, RELEASE_A);
    until_brief_leases_end();
    for (pair *p = pairs; p < pairs + npairs; p++) {
        CHECK(pawl_lock_valid_ms(p->b) > 0);
        open_to_readers(p);
        CHECK_OK(release(p, p->b));
        CHECK_OK(try_as_stranger(p->name, PAWL_WRITE));
    }
}

CASE("a read lock outlasts its owner's brief exclusive lock of any kind whose lease ends")
{
    hold_both(BRIEF_LEASE, LONG_LEASE, KEEP_BOTH);
    until_brief_leases_end();
    for (pair *p = pairs; p < pairs + npairs; p++) {
        await_open(p, PAWL_READ);
        open_to_readers(p);
        CHECK_CODE(release(p, p->a), PAWL_ELOST);
        CHECK(pawl_lock_valid_ms(p->b) > 0);
        open_to_readers(p);
        CHECK_OK(release(p, p->b));
        CHECK_OK(try_as_stranger(p->name, PAWL_WRITE));
    }
}

CASE("a brief exclusive lock of any kind ends with its lease after the read lock is released")
{
    bool left = true;

    hold_both(BRIEF_LEASE, LONG_LEASE, RELEASE_B);
    while (left) {
        left = false;
        for (pair *p = pairs; p < pairs + npairs; p++) {
            keeps_out(p, p->a, PAWL_READ);
            left |= pawl_lock_held(p->a);
        }
    }
    for (pair *p = pairs; p < pairs + npairs; p++) {
        CHECK_CODE(release(p, p->a), PAWL_ELOST);
        await_open(p, PAWL_WRITE);
    }
}

/* ---- Two handles of one kind ----------------------------------------------------------------- */

/* The owner enters through handle a, and again through handle b. */
static void enter_twice(int64_t lease_a, int64_t lease_b, bool early)
{
    static const uint64_t kinds[KINDS] = {PAWL_MUTEX, PAWL_FAIR, PAWL_WRITE, PAWL_SPIN, PAWL_READ};

    npairs = 0;
    for (int i = 0; i < KINDS; i++)
        for (int variant = 0; variant < 4 && known(kinds[i]); variant++)
            add_pair(kinds[i], lease_a, kinds[i], lease_b, variant);
    acquire_all(early ? RELEASE_FIRST : KEEP_BOTH);
}

CASE("a lock entered again through a handle with a brief lease keeps its lease")
{
    for (int early = 0; early < 2; early++) {
        enter_twice(LONG_LEASE, BRIEF_LEASE, early);
        until_brief_leases_end();
        for (pair *p = pairs; p < pairs + npairs; p++) {
            CHECK_EQ(pawl_lock_hold_count(p->b), early ? 1 : 2);
            if (!early)
                CHECK_OK(release_first(p));
            CHECK(pawl_lock_valid_ms(p->a) > 0);
            CHECK_CODE(try_as_stranger(p->name, PAWL_MUTEX), PAWL_EBUSY);
            CHECK_OK(release_last(p));
            CHECK_OK(try_as_stranger(p->name, PAWL_MUTEX));
        }
    }
}

CASE("a brief lock entered again through a handle with a long lease lasts as valid_ms says")
{
    for (int early = 0; early < 2; early++) {
        bool left = true;

        enter_twice(BRIEF_LEASE, LONG_LEASE, early);
        while (left) {
            left = false;
            for (pair *p = pairs; p < pairs + npairs; p++) {
                keeps_out(p, p->a, PAWL_MUTEX);
                left |= pawl_lock_held(p->a);
            }
        }
        for (pair *p = pairs; p < pairs + npairs; p++) {
            CHECK_EQ(pawl_lock_held(p->b), 0);
            CHECK_CODE(release_last(p), PAWL_ELOST);
            await_open(p, PAWL_MUTEX);
        }
    }
}
