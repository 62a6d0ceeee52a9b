/* SPDX-License-Identifier: Apache-2.0
 *
 * test_lockstate.c - the rules of locks, one case for each. Owner 1 came first, then 2 and so on.
 */
#include "check.h"
#include "lockstate_world.h"

static int ask(const char *name, uint64_t seq, uint8_t mode, bool queue)
{
    lockstate_edit e = world_edit(name);
    lockstate_entry want = world_person(seq, mode, 1, 30000);

    return lockstate_acquire(&e, &want, &(lockstate_ask){.queue = queue, .capacity = 0});
}

static int ask_permits(uint64_t seq, uint32_t permits, int64_t capacity, bool queue)
{
    lockstate_edit e = world_edit("s");
    lockstate_entry want = world_person(seq, P, permits, 30000);

    return lockstate_acquire(&e, &want, &(lockstate_ask){.queue = queue, .capacity = capacity});
}

static int release(const char *name, uint64_t seq)
{
    lockstate_edit e = world_edit(name);

    return lockstate_release(&e, seq % PEERS, seq, 0, 0);
}

static int renew(const char *name, uint64_t seq, int64_t lease_ms)
{
    lockstate_edit e = world_edit(name);

    return lockstate_renew(&e, seq % PEERS, seq, lease_ms);
}

static int cancel(const char *name, uint64_t seq)
{
    lockstate_edit e = world_edit(name);

    return lockstate_cancel(&e, seq % PEERS, seq);
}

static bool expire_lock(const char *name, uint64_t seq)
{
    lockstate_edit e = world_edit(name);

    lockstate_expire(&e, seq % PEERS, seq);
    return e.changed;
}

static bool holds(const char *name, uint64_t seq)
{
    lockstate_lock *lock = lockstate_find(&world.shelf, name, strlen(name));
    int64_t i = lock ? lockstate_index(lock, seq % PEERS, seq) : -1;

    return i >= 0 && i < (int64_t)lock->holders;
}

static lockstate_entry *entry_of(const char *name, uint64_t seq)
{
    lockstate_lock *lock = lockstate_find(&world.shelf, name, strlen(name));

    return lockstate_entries(lock) + lockstate_index(lock, seq % PEERS, seq);
}

/* ---- locks ----------------------------------------------------------------------------------- */

CASE("an exclusive holder excludes everybody, and leaves nothing behind")
{
    world_fresh();
    CHECK(ask("a", 1, X, false) == 0);
    CHECK(ask("a", 2, X, false) == PAWL_EBUSY && ask("a", 3, S, false) == PAWL_EBUSY);
    CHECK(ask("b", 2, X, false) == 0);
    CHECK(release("a", 1) == 0 && release("b", 2) == 0 && world.shelf.used == 0);
}

CASE("readers share; a waiting writer holds later readers back")
{
    world_fresh();
    CHECK(ask("a", 1, S, false) == 0 && ask("a", 2, S, false) == 0);
    CHECK(ask("a", 3, X, true) == LOCKSTATE_QUEUED && ask("a", 4, S, false) == PAWL_EBUSY);
    CHECK(ask("a", 4, S, true) == LOCKSTATE_QUEUED && ask("a", 5, S, true) == LOCKSTATE_QUEUED);
    CHECK(release("a", 1) == 0 && !holds("a", 3));
    CHECK(release("a", 2) == 0 && holds("a", 3) && !holds("a", 4) && was_told(3) && was_told(4));
    CHECK(release("a", 3) == 0 && holds("a", 4) && holds("a", 5) && was_told(4) && was_told(5));
}

CASE("tokens rise, and a range is reserved")
{
    lockstate_entry want = world_person(1, X, 1, 1000);
    lockstate_edit e;

    world_fresh();
    e = world_edit("a");
    want.ntokens = 10;
    CHECK(lockstate_acquire(&e, &want, &(lockstate_ask){0}) == 0 && want.token == 1);
    CHECK(ask("a", 2, X, true) == LOCKSTATE_QUEUED && release("a", 1) == 0);
    CHECK(entry_of("a", 2)->token == 11);
}

CASE("asking again with the same number changes neither grant nor place")
{
    world_fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 1, X, false) == 0 && world.fence == 1);
    CHECK(ask("a", 2, X, true) == LOCKSTATE_QUEUED && ask("a", 3, X, true) == LOCKSTATE_QUEUED);
    CHECK(ask("a", 2, X, true) == LOCKSTATE_QUEUED && release("a", 1) == 0 && holds("a", 2));
}

CASE("a writer may read too, past the queue, and others join when it stops writing")
{
    world_fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 2, S, true) == LOCKSTATE_QUEUED);
    {
        lockstate_edit e = world_edit("a");
        lockstate_entry want = world_person(9, S, 1, 1000);

        CHECK(lockstate_acquire(&e, &want, &(lockstate_ask){.with_seq = 1}) == 0);
    }
    CHECK(!holds("a", 2) && release("a", 1) == 0 && holds("a", 2) && holds("a", 9));
}

CASE("a name in use as one type is refused as another")
{
    world_fresh();
    CHECK(ask("s", 1, X, false) == 0 && ask_permits(2, 1, 3, true) == PAWL_ESTATE);
    CHECK(ask("s", 2, L, false) == PAWL_ESTATE);
    CHECK(release("s", 1) == 0 && ask_permits(2, 1, 3, true) == 0);
    CHECK(ask("s", 1, X, true) == PAWL_ESTATE);
}

/* ---- leases ---------------------------------------------------------------------------------- */

static void lease_ends(void)
{
    world_fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 2, X, true) == LOCKSTATE_QUEUED);
    world.now += 30000 * MS;
    CHECK(renew("a", 1, 1000) == PAWL_ENOTHELD && release("a", 1) == PAWL_ENOTHELD);
    CHECK(expire_lock("a", 2) && holds("a", 2) && !holds("a", 1) && was_told(2));
}

CASE("a lease that ended can't be renewed or released, and the next is admitted")
{
    lease_ends();
}

static void claim_is_taken_up(void)
{
    CHECK(entry_of("a", 2)->expires == world.now + LOCKSTATE_CLAIM_MS * MS);
    CHECK(entry_of("a", 2)->flags & LOCKSTATE_CLAIM);
    CHECK(ask("a", 2, X, true) == 0 && entry_of("a", 2)->expires == world.now + 30000 * MS);
    CHECK(!(entry_of("a", 2)->flags & LOCKSTATE_CLAIM));
}

CASE("a grant to a waiter lasts the claim time until it is taken up")
{
    lease_ends();
    claim_is_taken_up();
}

CASE("an unclaimed grant passes on after the claim time")
{
    lease_ends();
    claim_is_taken_up();
    CHECK(ask("a", 3, X, true) == LOCKSTATE_QUEUED && ask("a", 4, X, true) == LOCKSTATE_QUEUED);
    CHECK(release("a", 2) == 0 && holds("a", 3) && was_told(4));
    world.now += LOCKSTATE_CLAIM_MS * MS;
    CHECK(expire_lock("a", 4) && holds("a", 4));
    CHECK(lockstate_index(lockstate_first(&world.shelf), 3, 3) < 0);
}

CASE("a cancelled waiter lets those behind it on, and its successor is told")
{
    world_fresh();
    CHECK(ask("a", 1, S, false) == 0 && ask("a", 2, X, true) == LOCKSTATE_QUEUED);
    CHECK(ask("a", 3, X, true) == LOCKSTATE_QUEUED && ask("a", 4, S, true) == LOCKSTATE_QUEUED);
    CHECK(cancel("a", 3) == 0 && was_told(4) && !was_told(2));
    CHECK(cancel("a", 2) == 0 && holds("a", 4) && cancel("a", 2) == PAWL_ENOTHELD);
    CHECK(cancel("a", 1) == PAWL_ESTATE);
}

CASE("a released lock can linger, without its process, until its time")
{
    world_fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 2, X, true) == LOCKSTATE_QUEUED);
    {
        lockstate_edit e = world_edit("a");

        CHECK(lockstate_release(&e, 1, 1, 0, 500) == 0 && was_told(2));
        CHECK(lockstate_release(&e, 1, 1, 0, 500) == 0);
    }
    world.dead[1] = true;
    CHECK(!expire_lock("a", 2) && renew("a", 1, 1000) == PAWL_ENOTHELD);
    world.now += 500 * MS;
    CHECK(expire_lock("a", 2) && holds("a", 2));
}

CASE("a renewal lengthens a lease, and a late one never shortens it")
{
    world_fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 2, X, true) == LOCKSTATE_QUEUED);
    CHECK(renew("a", 1, 60000) == 0 && entry_of("a", 1)->expires == world.now + 60000 * MS);
    CHECK(renew("a", 1, 100) == 0 && entry_of("a", 1)->expires == world.now + 60000 * MS);
    CHECK(world.ntold == 0);
}

CASE("records of which only expired entries are left are swept away")
{
    world_fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("b", 2, X, false) == 0);
    CHECK(renew("b", 2, 60000) == 0);
    world.now += 40000 * MS;
    {
        lockstate_edit e = world_edit("c");

        lockstate_sweep(&e);
        CHECK(e.changed);
        CHECK(!lockstate_find(&world.shelf, "a", 1) && lockstate_find(&world.shelf, "b", 1));
    }
}

/* ---- death ----------------------------------------------------------------------------------- */

CASE("a dead holder is dropped and dead waiters are skipped")
{
    world_fresh();
    CHECK(ask("a", 1, X, false) == 0 && ask("a", 2, X, true) == LOCKSTATE_QUEUED);
    CHECK(ask("a", 3, X, true) == LOCKSTATE_QUEUED);
    world.dead[1] = world.dead[2] = true;
    CHECK(expire_lock("a", 3) && holds("a", 3));
    CHECK(lockstate_first(&world.shelf)->holders == 1);
    CHECK(lockstate_first(&world.shelf)->waiters == 0);
}

CASE("break evicts all holders, tells them, and admits the next")
{
    world_fresh();
    CHECK(ask("a", 1, S, false) == 0 && ask("a", 2, S, false) == 0);
    CHECK(ask("a", 3, X, true) == LOCKSTATE_QUEUED);
    {
        lockstate_edit e = world_edit("a");

        CHECK(lockstate_break(&e) == 0 && was_told(1) && was_told(2) && was_told(3));
        CHECK(world.told[0].why == LOCKSTATE_EVICTED && holds("a", 3));
        CHECK(release("a", 3) == 0 && lockstate_break(&e) == PAWL_ENOTHELD);
    }
}

/* ---- semaphores ------------------------------------------------------------------------------ */

static void permits_are_given(void)
{
    world_fresh();
    CHECK(ask_permits(1, 2, 3, false) == 0 && ask_permits(2, 2, 0, true) == LOCKSTATE_QUEUED);
    CHECK(ask_permits(3, 1, 3, false) == PAWL_EBUSY && ask_permits(3, 1, 3, true) == 1);
    CHECK(ask_permits(4, 4, 3, true) == PAWL_EINVAL && ask_permits(4, 1, 5, true) == PAWL_ESTATE);
    {
        lockstate_edit e = world_edit("s");

        CHECK(lockstate_release(&e, 1, 1, 1, 0) == 0 && holds("s", 2) && !holds("s", 3));
        CHECK(lockstate_release(&e, 1, 1, 1, 0) == 0);
        CHECK(lockstate_available(lockstate_first(&world.shelf)) == 0);
    }
    CHECK(release("s", 1) == 0 && holds("s", 3));
}

CASE("permits are given within the capacity, first come first served")
{
    permits_are_given();
}

CASE("a semaphore that nobody uses has no capacity")
{
    permits_are_given();
    CHECK(release("s", 2) == 0 && release("s", 3) == 0 && world.shelf.used == 0);
    CHECK(ask_permits(5, 1, 0, false) == PAWL_ESTATE && ask_permits(5, 5, 5, false) == 0);
}

/* ---- latches --------------------------------------------------------------------------------- */

static void latch_opens(void)
{
    lockstate_entry one = world_person(1, L, 0, 0), two = world_person(2, L, 0, 0);
    lockstate_entry three = world_person(3, L, 0, 0);
    lockstate_edit e;

    world_fresh();
    e = world_edit("l");
    CHECK(lockstate_latch_wait(&e, &one, &(lockstate_ask){0}) == 0);
    CHECK(lockstate_latch_set(&e, &one, 2) == 0 && lockstate_latch_set(&e, &one, 2) == 0);
    CHECK(lockstate_latch_set(&e, &two, 2) == PAWL_ESTATE);
    CHECK(ask("l", 4, L, false) == PAWL_EBUSY && ask("l", 4, L, true) == LOCKSTATE_QUEUED);
    CHECK(ask("l", 5, L, true) == LOCKSTATE_QUEUED && ask("l", 6, X, true) == PAWL_ESTATE);
    CHECK(lockstate_latch_down(&e, &two) == 0 && lockstate_latch_down(&e, &two) == 0);
    CHECK(lockstate_first(&world.shelf)->value == 1);
    e = world_edit("l");
    CHECK(lockstate_latch_down(&e, &three) == 0 && was_told(4) && was_told(5));
    CHECK(!lockstate_in_use(lockstate_first(&world.shelf)));
}

CASE("a latch opens at 0 for all its waiters; a repeated count-down counts once")
{
    latch_opens();
}

CASE("requests of an earlier round do nothing to the next one")
{
    lockstate_entry one = world_person(1, L, 0, 0), three = world_person(3, L, 0, 0);
    lockstate_entry four = world_person(4, L, 0, 0);
    lockstate_edit e;

    latch_opens();
    e = world_edit("l");
    CHECK(lockstate_latch_set(&e, &one, 2) == 0);
    CHECK(!lockstate_in_use(lockstate_first(&world.shelf)));
    CHECK(lockstate_latch_set(&e, &four, 1) == 0 && lockstate_latch_down(&e, &three) == 0);
    CHECK(lockstate_first(&world.shelf)->value == 1);
}

CASE("a latch that opened is in nobody's way and is forgotten in time")
{
    lockstate_entry one = world_person(1, L, 0, 0), two = world_person(2, L, 0, 0);
    lockstate_edit e;

    world_fresh();
    e = world_edit("l");
    CHECK(lockstate_latch_set(&e, &one, 1) == 0 && lockstate_latch_down(&e, &two) == 0);
    world.now += LOCKSTATE_RECEIPT_MS * MS;
    e = world_edit("x");
    lockstate_sweep(&e);
    CHECK(world.shelf.used == 0);
    e = world_edit("l");
    CHECK(lockstate_latch_set(&e, &one, 1) == 0 && lockstate_latch_down(&e, &two) == 0);
    CHECK(ask("l", 6, X, false) == 0 && release("l", 6) == 0 && world.shelf.used == 0);
}

/* ---- the format ------------------------------------------------------------------------------ */

static void shelf_is_full(void)
{
    size_t used;

    world_fresh();
    world.shelf.cap = 1024;
    while (ask("name", 100 + world.fence, S, false) == 0)
        ;
    used = world.shelf.used;
    CHECK(ask("name", 9, S, true) == PAWL_ENOMEM && world.shelf.used == used && used <= 1024);
    CHECK(lockstate_check(world.shelf.bytes, used));
}

CASE("a full shelf refuses and stays as it was")
{
    shelf_is_full();
}

CASE("bytes that are no shelf are known as such")
{
    unsigned char *bytes;
    size_t used;

    shelf_is_full();
    bytes = world.shelf.bytes;
    used = world.shelf.used;
    CHECK(!lockstate_check(bytes, used - 8) && !lockstate_check(bytes, 8));
    bytes[8]++;
    CHECK(!lockstate_check(bytes, used));
    bytes[8]--;
    bytes[0]++;
    CHECK(!lockstate_check(bytes, used));
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
