/* SPDX-License-Identifier: Apache-2.0
 *
 * test_quorum_stale.c - the engine "quorum:" alone, in virtual time (quorum_world.h): a grant of a
 * client that is gone blocks the gate, the node in whose queue all waiters stand.
 */
#include "quorum_world.h"

enum {
    NEW_MS = TIMEOUT_MS / 8 + 10,        /* for a new acquire, see docs/quorum.md, */
    WAITER_MS = TIMEOUT_MS * 9 / 4 + 10, /* and for a waiter; each with a few exchanges */
    LONG = 600000,
};

static ask a, b, c, d;

static void ask_shared(client *who, ask *r, uint64_t seq, bool queue)
{
    r->op.mode = PAWL_MODE_SHARED;
    ask_acquire(who, r, 0, seq, queue, LONG, LONG);
}

static void release(client *who, const ask *held)
{
    static ask r;

    ask_release(who, &r, 0, held->op.owner.seq, held->op.mode);
    CHECK(world_run_until(&r, 4000));
    CHECK_CODE(r.op.code, 0);
}

/* ---- one owner at a time --------------------------------------------------------------------- */

/* The first node has a grant of a client that is gone, with a long lease. */
static void leave_stale_grant(int64_t lease_ms)
{
    name_state *n = &stores[0].names[0];

    n->holders[0] = (grant){.owner = {.client = 99, .seq = 9}, .mode = PAWL_MODE_EXCLUSIVE,
                            .since = world_now, .ends = world_now + lease_ms * MS};
    n->nholders = 1;
}

CASE("a stale grant at the gate holds up neither a try nor a waiter while a majority is free")
{
    for (int queue = 0; queue < 2; queue++) {
        begin_three();
        leave_stale_grant(LONG);
        ask_acquire(&one, &a, 0, 1, queue, LEASE, 60000);
        CHECK(world_run_until(&a, TIMEOUT_MS));
        CHECK_CODE(a.op.code, 0);
        CHECK_CODE(ask_try(&two, &b, 0, 1), PAWL_EBUSY);
        release(&one, &a);
        end_three();
    }
}

CASE("a grant that becomes stale at the gate while others wait is overruled, one after the other")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    ask_acquire(&two, &b, 0, 1, true, LEASE, 60000);
    ask_acquire(&three, &d, 0, 1, true, LEASE, 60000);
    world_run(100);
    stores[0].names[0].holders[0].ends = PAWL_NEVER; /* the release is lost there */
    stores[0].names[0].holders[0].owner.seq ^= 1u << 30;
    ask_release(&one, &c, 0, 1, PAWL_MODE_EXCLUSIVE);
    for (int64_t end = world_now + 6000LL * MS; world_now < end && !b.done && !d.done;)
        world_run(10);
    CHECK(b.done + d.done == 1);
    CHECK_CODE(b.done ? b.op.code : d.op.code, 0);
    ask_release(b.done ? &two : &three, &c, 0, 1, PAWL_MODE_EXCLUSIVE);
    CHECK(world_run_until(b.done ? &d : &b, 6000));
    CHECK(b.op.code == 0 && d.op.code == 0);
    end_three();
}

/* ---- readers --------------------------------------------------------------------------------- */

CASE("a new reader passes a stale grant at the gate, also while another reader holds")
{
    begin_three();
    leave_stale_grant(LONG);
    ask_shared(&one, &a, 1, true);
    CHECK(world_run_until(&a, NEW_MS));
    CHECK_CODE(a.op.code, 0);
    ask_shared(&two, &b, 1, true);
    CHECK(world_run_until(&b, NEW_MS));
    CHECK_CODE(b.op.code, 0);
    CHECK_EQ(a.op.mode, PAWL_MODE_SHARED);
    CHECK_CODE(ask_try(&three, &c, 0, 1), PAWL_EBUSY);
    release(&one, &a);
    CHECK_CODE(ask_try(&three, &c, 0, 2), PAWL_EBUSY);
    release(&two, &b);
    CHECK_CODE(ask_try(&three, &c, 0, 3), 0);
    end_three();
}

CASE("a reader that waits passes a grant that becomes stale at the gate, while another one holds")
{
    begin_three();
    ask_shared(&one, &a, 1, true);
    CHECK(world_run_until(&a, 100));
    ask_acquire(&two, &b, 0, 1, true, LONG, LONG); /* because of this writer the reader waits */
    world_run(100);
    ask_shared(&three, &c, 1, true);
    world_run(3 * TIMEOUT_MS);
    CHECK_EQ(c.done, 0);
    stores[0].names[0].nholders = 0;
    leave_stale_grant(LONG);
    ask_cancel(&two, &b);
    CHECK(world_run_until(&c, WAITER_MS));
    CHECK_CODE(c.op.code, 0);
    CHECK_EQ(b.done, 1);
    release(&one, &a);
    release(&three, &c);
    end_three();
}

CASE("a reader does not pass a writer that waits before it, whether the gate is stale or not")
{
    for (int stale = 0; stale < 2; stale++) {
        begin_three();
        if (stale)
            leave_stale_grant(LONG);
        ask_shared(&one, &a, 1, true);
        CHECK(world_run_until(&a, NEW_MS));
        ask_acquire(&two, &b, 0, 1, true, LONG, LONG);
        world_run(100);
        ask_shared(&three, &c, 1, true);
        world_run(10 * TIMEOUT_MS);
        CHECK(!b.done && !c.done);
        ask_shared(&three, &d, 2, false);
        CHECK(world_run_until(&d, TIMEOUT_MS));
        CHECK_CODE(d.op.code, PAWL_EBUSY);
        release(&one, &a);
        while (!b.done && !c.done) /* behind a stale grant either may be the first */
            world_run(1);
        CHECK(stale || b.done);
        release(b.done ? &two : &three, b.done ? &b : &c);
        CHECK(world_run_until(b.done ? &c : &b, WAITER_MS));
        CHECK(b.op.code == 0 && c.op.code == 0);
        end_three();
    }
}

CASE("a reader passes a stale grant at the gate though a writer waits behind it; the writer waits")
{
    begin_three();
    leave_stale_grant(LONG);
    ask_shared(&one, &a, 1, true);
    CHECK(world_run_until(&a, NEW_MS));
    ask_shared(&two, &b, 1, true);
    world_run(50); /* the reader is in the gate's queue */
    CHECK_EQ(b.done, 0);
    CHECK_EQ(world_waits(0), 2); /* with the first reader, which has passed */
    ask_acquire(&three, &c, 0, 1, true, LONG, LONG);
    CHECK(world_run_until(&b, WAITER_MS));
    CHECK_CODE(b.op.code, 0);
    release(&one, &a);
    world_run(5 * TIMEOUT_MS);
    CHECK_EQ(c.done, 0);
    release(&two, &b);
    CHECK(world_run_until(&c, WAITER_MS));
    CHECK_CODE(c.op.code, 0);
    end_three();
}

CASE("a writer that is claiming is not taken for a stale grant")
{
    begin_three();
    stores[1].delay = stores[2].delay = stores[3].delay = stores[4].delay = 40 * MS;
    ask_shared(&one, &a, 1, true);
    CHECK(world_run_until(&a, 1000));
    ask_acquire(&two, &b, 0, 1, true, LONG, LONG);
    world_run(200);
    ask_shared(&three, &c, 1, true);
    world_run(150); /* the reader has tried, and peeks soon */
    CHECK(!b.done && !c.done);
    stores[0].names[0].nholders = 0; /* the release reaches the gate long before the others */
    world_admit(&stores[0], &stores[0].names[0]);
    for (int ms = 0; ms < 1000 && !b.done; ms++) {
        world_run(1);
        CHECK_EQ(c.done, 0);
        if (ms == 590) /* the reader at the gate, the writer at the others */
            CHECK_EQ(world_waits(0), STORES);
        if (ms == 600)
            ask_release(&one, &d, 0, 1, PAWL_MODE_SHARED);
    }
    CHECK(b.done && b.op.code == 0);
    release(&two, &b);
    CHECK(world_run_until(&c, WAITER_MS));
    CHECK_CODE(c.op.code, 0);
    end_three();
}

CASE("the holder of a lock that passed a stale grant also reads: at once, try or not")
{
    for (int queue = 0; queue < 2; queue++) {
        begin_three();
        leave_stale_grant(LONG);
        ask_acquire(&one, &a, 0, 1, true, LONG, LONG);
        CHECK(world_run_until(&a, NEW_MS));
        CHECK_CODE(a.op.code, 0);
        b.op.with_seq = 1;
        ask_shared(&one, &b, 2, queue);
        CHECK(world_run_until(&b, 100));
        CHECK_CODE(b.op.code, 0);
        b.op.with_seq = 0;
        release(&one, &a);
        CHECK_CODE(ask_try(&two, &c, 0, 1), PAWL_EBUSY);
        ask_shared(&three, &d, 1, true);
        CHECK(world_run_until(&d, NEW_MS));
        CHECK_CODE(d.op.code, 0);
        release(&one, &b);
        release(&three, &d);
        CHECK_CODE(ask_try(&two, &c, 0, 2), 0);
        end_three();
    }
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
