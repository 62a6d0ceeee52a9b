/* SPDX-License-Identifier: Apache-2.0
 *
 * test_quorum_keep.c - the engine "quorum:" alone, in virtual time (quorum_world.h): how a lock is
 * kept, shown, given back and given up.
 */
#include "quorum_world.h"

static ask a, b, c;

/* ---- renewing, healing ----------------------------------------------------------------------- */

CASE("a renewal needs a majority, and counts from before it was sent")
{
    int64_t began;

    begin_three();
    ask_take(&one, &a, 0, 1);
    began = world_now;
    ask_renew(&one, &b, 0, 1, LEASE);
    CHECK(world_run_until(&b, 100));
    CHECK_CODE(b.op.code, 0);
    CHECK_CODE(b.item.code, 0);
    CHECK_EQ(b.op.lease_from, began);
    for (int k = 0; k < 3; k++)
        stores[k].silent = true;
    ask_renew(&one, &b, 0, 1, LEASE);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.item.code, PAWL_EUNKNOWN);
    for (int k = 0; k < 3; k++) {
        stores[k].silent = false;
        stores[k].names[0].nholders = 0;
    }
    ask_renew(&one, &b, 0, 1, LEASE);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.item.code, PAWL_ENOTHELD);
    ask_renew(&one, &b, 0, 4711, LEASE);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.item.code, PAWL_ENOTHELD);
    client_close(&one);
}

CASE("a node whose lease is its session's says from when a renewal counts")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    stores[1].beat = 700 * MS;
    ask_renew(&one, &b, 0, 1, LEASE);
    CHECK(world_run_until(&b, 100));
    CHECK_CODE(b.item.code, 0);
    CHECK(b.op.lease_from <= world_now - 700 * MS);
    client_close(&one);
}

/* Two renewals, the second a timeout later: missing grants are repaired. */
static void renew_twice(client *who, int name, uint64_t seq)
{
    for (int i = 0; i < 2; i++) {
        ask_renew(who, &b, name, seq, LEASE);
        world_run(TIMEOUT_MS);
        CHECK_CODE(b.item.code, 0);
    }
}

CASE("nodes that restarted empty are healed by renewals, with a counter beyond the token")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    world_restart(1);
    world_restart(4);
    ask_renew(&one, &b, 0, 1, LEASE);
    world_run(10);
    CHECK_CODE(b.item.code, 0);
    CHECK_EQ(world_held(0), 3); /* a BREAK might be on its way */
    renew_twice(&one, 0, 1);
    CHECK_EQ(world_held(0), 5);
    CHECK(stores[1].names[0].counter >= a.op.token && stores[4].names[0].counter >= a.op.token);
    world_run(LEASE / 2);
    ask_renew(&one, &b, 0, 1, LEASE);
    world_run(LEASE / 2 + 10); /* old enough now: two others may be lost */
    world_restart(0);
    world_restart(2);
    ask_renew(&one, &b, 0, 1, LEASE);
    CHECK(world_run_until(&b, 100));
    CHECK_CODE(b.item.code, 0);
    ask_give(&one, 0, 1);
    world_run(100);
    CHECK_EQ(world_held(0), 0);
    client_close(&one);
}

CASE("a young node that was healed does not vote in a renewal")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    world_restart(3);
    world_restart(4);
    renew_twice(&one, 0, 1);
    CHECK_EQ(world_held(0), 5);
    stores[0].names[0].nholders = 0;
    stores[1].silent = true;
    ask_renew(&one, &b, 0, 1, LEASE);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.item.code, PAWL_EUNKNOWN);
    client_close(&one);
}

CASE("nothing is healed without a majority, but given back; nor after the release")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    for (int k = 0; k < 3; k++)
        stores[k].names[0].nholders = 0;
    ask_renew(&one, &b, 0, 1, LEASE);
    world_run(100);
    CHECK_CODE(b.item.code, PAWL_ENOTHELD);
    CHECK_EQ(world_held(0), 0);
    ask_take(&one, &a, 1, 2);
    world_restart(4);
    ask_renew(&one, &b, 1, 2, LEASE);
    world_run(TIMEOUT_MS);
    stores[4].delay = 50 * MS;
    ask_renew(&one, &b, 1, 2, LEASE);
    CHECK(world_run_until(&b, 1000));
    CHECK_CODE(b.item.code, 0);
    ask_give(&one, 1, 2);
    world_run(1000);
    CHECK_EQ(world_held(1), 0);
    client_close(&one);
}

CASE("an acquire by who holds it already is the same grant; if that is gone, a new one")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    ask_take(&one, &b, 0, 1);
    CHECK_EQ(b.op.token, a.op.token);
    for (int k = 0; k < STORES; k++)
        stores[k].names[0].nholders = 0;
    ask_take(&one, &b, 0, 1);
    CHECK(b.op.token > a.op.token);
    ask_give(&one, 0, 1);
    world_run(100);
    CHECK_EQ(world_held(0), 0);
    client_close(&one);
}

/* ---- releasing, breaking --------------------------------------------------------------------- */

CASE("a release is done at the majority; those that can't be reached are left to their lease")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    stores[1].silent = true;
    stores[2].refuses = PAWL_ECONN;
    ask_give(&one, 0, 1);
    CHECK_EQ(world_held(0), 2);
    CHECK_CODE(ask_try(&two, &b, 0, 1), 0);
    stores[1].silent = false;
    stores[2].refuses = 0;
    world_run(2 * LEASE + 2000);
    CHECK_EQ(world_held(0), 0);
    client_close(&one);
    client_close(&two);
}

CASE("a release that a node did not get is sent again, long before the lease is over")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    stores[1].drop = 1000;
    stores[2].refuses = PAWL_ECONN;
    ask_give(&one, 0, 1);
    CHECK_EQ(world_held(0), 2);
    stores[1].drop = 0;
    stores[2].refuses = 0;
    world_run(LEASE / 4);
    CHECK_EQ(world_held(0), 0);
    client_close(&one);
}

CASE("a release that reaches less than a majority is unknown, and goes on in the background")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    for (int k = 0; k < 3; k++)
        stores[k].silent = true;
    ask_release(&one, &b, 0, 1, PAWL_MODE_EXCLUSIVE);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.op.code, PAWL_EUNKNOWN);
    for (int k = 0; k < 3; k++)
        stores[k].silent = false;
    world_run(LEASE + 1000);
    ask_release(&one, &b, 0, 1, PAWL_MODE_EXCLUSIVE);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.op.code, PAWL_ENOTHELD);
    CHECK_EQ(world_held(0), 0);
    client_close(&one);
}

CASE("a release of what a majority lost is PAWL_ENOTHELD")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    for (int k = 1; k < 4; k++)
        stores[k].names[0].nholders = 0;
    ask_release(&one, &b, 0, 1, PAWL_MODE_EXCLUSIVE);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.op.code, PAWL_ENOTHELD);
    client_close(&one);
}

CASE("a break is not undone by a holder who renews while it goes from node to node")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    for (int k = 0; k < STORES; k++)
        stores[k].delay = k * 3 * MS;
    ask_submit(&two, &b, PAWL_OP_BREAK, 0);
    for (int ms = 0; ms < 40; ms++) {
        ask_renew(&one, &c, 0, 1, LEASE);
        CHECK(world_run_until(&c, TIMEOUT_MS));
        if (c.item.code)
            break;
    }
    CHECK_CODE(c.item.code, PAWL_ENOTHELD);
    CHECK_CODE(b.op.code, 0);
    world_run(100);
    CHECK_EQ(world_held(0), 0);
    client_close(&one);
    client_close(&two);
}

CASE("a break ends it everywhere; of what nobody has it is PAWL_ENOTHELD")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    ask_submit(&two, &b, PAWL_OP_BREAK, 0);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.op.code, 0);
    CHECK_EQ(world_held(0), 0);
    ask_submit(&two, &b, PAWL_OP_BREAK, 0);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.op.code, PAWL_ENOTHELD);
    for (int k = 0; k < 3; k++)
        stores[k].silent = true;
    ask_submit(&two, &b, PAWL_OP_BREAK, 0);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.op.code, PAWL_EQUORUM);
    client_close(&one);
    client_close(&two);
}

/* ---- unknown outcomes ------------------------------------------------------------------------ */

CASE("a node whose answer was lost does not count, and is given back")
{
    begin_three();
    for (int k = 0; k < 3; k++)
        stores[k].lose = 1000;
    CHECK(ask_try(&one, &a, 0, 1) != 0);
    for (int k = 0; k < 3; k++)
        stores[k].lose = 0;
    world_run(2000);
    CHECK_EQ(world_held(0), 0);
    stores[1].lose = 1000;
    CHECK_CODE(ask_try(&one, &a, 0, 2), 0);
    stores[1].lose = 0;
    ask_give(&one, 0, 2);
    world_run(2000);
    CHECK_EQ(world_held(0), 0);
    client_close(&one);
}

/* ---- events, and looking --------------------------------------------------------------------- */

CASE("shared locks: readers together, a writer alone")
{
    begin_three();
    a.op.mode = b.op.mode = PAWL_MODE_SHARED;
    ask_take(&one, &a, 0, 1);
    ask_take(&two, &b, 0, 1);
    CHECK(b.op.token > a.op.token);
    CHECK_CODE(ask_try(&three, &c, 0, 1), PAWL_EBUSY);
    ask_acquire(&three, &c, 0, 2, true, LEASE, 60000);
    world_run(100);
    ask_give(&one, 0, 1);
    world_run(100);
    CHECK_EQ(c.done, 0);
    ask_give(&two, 0, 1);
    CHECK(world_run_until(&c, 100));
    CHECK_CODE(c.op.code, 0);
    CHECK(c.op.token > b.op.token);
    end_three();
}

CASE("what happened at a node is told once as something to verify, also if nobody listens yet")
{
    begin_three();
    world_tell(1, &one, PAWL_EVENT_NONE);
    ask_submit(&one, &a, PAWL_OP_EVENT, 0);
    world_run(10);
    CHECK_EQ(a.done, 0);
    world_tell(3, &one, PAWL_EVENT_RECONNECT);
    CHECK_EQ(a.done, 1);
    CHECK_CODE(a.op.code, 0);
    CHECK_EQ(a.op.event, PAWL_EVENT_VERIFY);
    world_run(1); /* the engine has submitted its EVENT op again */
    world_tell(3, &one, PAWL_EVENT_VERIFY);
    ask_submit(&one, &b, PAWL_OP_EVENT, 0);
    CHECK_EQ(b.op.event, PAWL_EVENT_VERIFY);
    ask_submit(&one, &b, PAWL_OP_EVENT, 0);
    CHECK_EQ(b.done, 0);
    ask_cancel(&one, &b);
    CHECK_CODE(b.op.code, PAWL_ECANCELED);
    ask_submit(&one, &c, PAWL_OP_EVENT, 0);
    client_close(&one);
    CHECK_CODE(c.op.code, PAWL_ECANCELED);
}

static struct seen {
    size_t rows, holders, waiters, summary_holders, summary_waiters;
    uint64_t token;
    char label[64];
} seen;

static int see(void *arg, const pawl_info *info)
{
    (void)arg;
    seen.rows++;
    if (info->role == PAWL_ROLE_SUMMARY) {
        seen.summary_holders += info->holders;
        seen.summary_waiters += info->waiters;
    }
    seen.waiters += info->role == PAWL_ROLE_WAITER;
    if (info->role == PAWL_ROLE_HOLDER) {
        seen.holders++;
        seen.token = info->token;
        snprintf(seen.label, sizeof seen.label, "%s", info->label);
    }
    return 0;
}

static int look(client *who, uint8_t kind, int name)
{
    static ask l;

    memset(&seen, 0, sizeof seen);
    l.op.row = see;
    ask_submit(who, &l, kind, name);
    CHECK(world_run_until(&l, TIMEOUT_MS));
    return l.op.code;
}

CASE("an inspection shows one holder for all nodes, and who waits")
{
    begin_three();
    CHECK_CODE(look(&one, PAWL_OP_INSPECT, 0), 0);
    CHECK_EQ(seen.rows, 1);
    ask_take(&one, &a, 0, 1);
    ask_acquire(&two, &b, 0, 1, true, LEASE, 60000);
    world_run(50);
    CHECK_CODE(look(&three, PAWL_OP_INSPECT, 0), 0);
    CHECK_EQ(seen.rows, 3);
    CHECK_EQ(seen.holders, 1);
    CHECK_EQ(seen.waiters, 1);
    CHECK_EQ(seen.summary_holders, 1);
    CHECK_EQ(seen.token, a.op.token);
    CHECK_STR(seen.label, "x");
    stores[1].names[0].holders[0].token += 5; /* it came later */
    CHECK_CODE(look(&three, PAWL_OP_INSPECT, 0), 0);
    CHECK_EQ(seen.token, a.op.token);
    stores[3].names[0].nholders = stores[4].names[0].nholders = 0;
    CHECK_CODE(look(&three, PAWL_OP_LIST, 0), 0);
    CHECK_EQ(seen.rows, 1);
    CHECK_EQ(seen.summary_holders, 1);
    CHECK_EQ(seen.summary_waiters, 1);
    for (int k = 1; k < STORES; k++)
        stores[k].names[0].nholders = 0;
    CHECK_CODE(look(&three, PAWL_OP_INSPECT, 0), 0);
    CHECK_EQ(seen.holders, 0);
    for (int k = 0; k < 3; k++)
        stores[k].silent = true;
    CHECK_CODE(look(&three, PAWL_OP_INSPECT, 0), PAWL_EQUORUM);
    end_three();
}

/* ---- cancel and close, at every moment ------------------------------------------------------- */

/* Set up situation number `scene`, in which an acquire is under way for a while. */
static void stage(int scene)
{
    static ask held;

    begin_three();
    if (scene == 1)
        ask_take(&two, &held, 0, 1);
    if (scene == 2)
        stores[0].silent = stores[1].silent = stores[2].silent = true;
    if (scene == 3)
        for (int k = 0; k < STORES; k++)
            stores[k].names[0].counter = UINT64_C(5000000000000) + (uint64_t)k * 100;
    if (scene == 4) {
        ask_take(&two, &held, 0, 1);
        stores[0].names[0].nholders = 0; /* the gate is granted at once, the others not */
    }
    if (scene == 5)
        for (int k = 0; k < STORES; k++) {
            stores[k].delay = k * MS;
            stores[k].lose = 300;
        }
}

static void clean_up(int scene, int name)
{
    for (int k = 0; k < STORES; k++) {
        stores[k].silent = false;
        stores[k].lose = 0;
    }
    if (scene == 1 || scene == 4) {
        static ask r;

        ask_release(&two, &r, name, 1, PAWL_MODE_EXCLUSIVE);
        CHECK(world_run_until(&r, 4000));
    }
    client_close(&two);
    client_close(&three);
}

CASE("an acquire can be cancelled at every moment, and leaves nothing behind")
{
    for (int scene = 0; scene < 6; scene++)
        for (int tenths = 0; tenths < 120; tenths++) {
            stage(scene);
            ask_acquire(&one, &a, 0, 1, true, LEASE, 60000);
            world_now += tenths * MS / 10 * (scene == 2 ? 30 : scene == 4 ? 8 : 1);
            world_run(0);
            ask_cancel(&one, &a);
            CHECK(world_run_until(&a, 300));
            if (a.op.code == 0) {
                ask_release(&one, &b, 0, 1, PAWL_MODE_EXCLUSIVE);
                CHECK(world_run_until(&b, TIMEOUT_MS));
            }
            world_run(scene == 5 ? 3000 : 1000);
            for (int k = 0; k < STORES; k++)
                CHECK(!world_has(k, 0, &one) || stores[k].lose);
            CHECK_EQ(world_waits(0), 0);
            client_close(&one);
            clean_up(scene, 0);
        }
}

CASE("an engine can be closed at every moment after its ops have ended")
{
    for (int scene = 0; scene < 6; scene++)
        for (int tenths = 0; tenths < 60; tenths++) {
            stage(scene);
            ask_acquire(&one, &a, 0, 1, tenths % 2, LEASE, 60000);
            world_run(tenths / 10);
            ask_cancel(&one, &a);
            ask_cancel(&one, &a); /* the caller gives up */
            CHECK(world_run_until(&a, 300));
            if (a.op.code == 0) {
                ask_renew(&one, &b, 0, 1, LEASE);
                world_run(tenths % 3);
                ask_cancel(&one, &b);
                CHECK_EQ(b.done, 1);
                ask_release(&one, &b, 0, 1, PAWL_MODE_EXCLUSIVE);
                world_run(tenths % 3);
                ask_cancel(&one, &b);
                CHECK_EQ(b.done, 1);
            }
            client_close(&one);
            world_run(1000);
            clean_up(scene, 0);
        }
}

CASE("close right after the release leaves nothing behind, though nodes are slow")
{
    for (int tenths = 0; tenths < 60; tenths++) {
        begin_three();
        for (int k = 0; k < STORES; k++)
            stores[k].delay = (1 + k) * MS / 2;
        ask_take(&one, &a, 0, 1);
        world_now += tenths * MS / 10;
        world_run(0);
        ask_give(&one, 0, 1);
        client_close(&one);
        world_run(100);
        CHECK_EQ(world_held(0), 0);
        client_close(&two);
        client_close(&three);
    }
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
