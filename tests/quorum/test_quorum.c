/* SPDX-License-Identifier: Apache-2.0
 *
 * test_quorum.c - the engine "quorum:" alone, in virtual time (quorum_world.h): acquiring a lock.
 * test_quorum_stale.c tests stale grants at the gate, test_quorum_keep.c renewing, inspecting and
 * releasing.
 */
#include "quorum_world.h"

static ask a, b, c, d;

/* ---- URLs ------------------------------------------------------------------------------------ */

CASE("a quorum needs three to 31 different URLs")
{
    static const char *const bad[] = {
        "", "node:0", "node:0|node:1", "node:0|node:1|", "|node:0|node:1", "node:0|node:1|node:0",
        "node:0|node:1|hole:2", "settle=x|node:0|node:1|node:2", "settle=0|node:0|node:1|node:2",
    };
    pawl_error err;

    world_begin(1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        err.text[0] = 0;
        one.caps = 0;
        CHECK_CODE(client_try_open(&one, bad[i], &err), PAWL_EINVAL);
        CHECK(err.text[0]);
        client_close(&one);
    }
    CHECK_STR(err.text, "quorum: settle= is how many ms old a store must be to vote, and is "
                        "followed by |");
    CHECK_CODE(client_try_open(&one, "node:0|node:1|hole:2", &err), PAWL_EINVAL);
    CHECK_STR(err.text, "quorum: node 3: 'hole:2' is not a node");
    client_close(&one);
    CHECK_CODE(client_try_open(&one, "node:0|node:1|node:0", &err), PAWL_EINVAL);
    CHECK(strstr(err.text, "URL 3 is given twice"));
    client_close(&one);
    client_open(&one, "settle=5000|node:0|node:1|node:2");
    client_close(&one);
}

CASE("it has what all nodes have, but neither permits nor latches, nor tokens without a floor")
{
    uint32_t all = PAWL_CAP_FENCE | PAWL_CAP_FLOOR | PAWL_CAP_QUEUE | PAWL_CAP_RANGE |
                   PAWL_CAP_SHARED | PAWL_CAP_PERMITS | PAWL_CAP_LATCH;

    world_begin(1);
    one.caps = all;
    CHECK_OK(client_try_open(&one, world_url, NULL));
    CHECK_EQ(pawl_instance_caps(&one.engine),
             PAWL_CAP_FENCE | PAWL_CAP_QUEUE | PAWL_CAP_RANGE | PAWL_CAP_SHARED |
                 PAWL_CAP_BREAKS_LATE);
    two.caps = all & ~(uint32_t)PAWL_CAP_FLOOR;
    CHECK_OK(client_try_open(&two, world_url, NULL));
    CHECK_EQ(pawl_instance_caps(&two.engine),
             PAWL_CAP_QUEUE | PAWL_CAP_SHARED | PAWL_CAP_BREAKS_LATE);
    a.op.mode = PAWL_MODE_PERMITS;
    ask_acquire(&one, &a, 0, 1, false, LEASE, 1000);
    CHECK_CODE(a.op.code, PAWL_ENOTSUP);
    ask_submit(&one, &a, PAWL_OP_LATCH_SET, 0);
    CHECK_CODE(a.op.code, PAWL_ENOTSUP);
    a.op.mode = PAWL_MODE_EXCLUSIVE;
    ask_take(&two, &a, 0, 1);
    CHECK_EQ(a.op.token, 0);
    client_close(&one);
    client_close(&two);
}

/* ---- one round trip -------------------------------------------------------------------------- */

CASE("a free lock costs one round trip and one request to each node, and all get the same token")
{
    int64_t began;

    begin_three();
    ask_take(&one, &a, 0, 1);
    began = world_now;
    ask_take(&one, &b, 1, 2);
    CHECK_EQ(b.at - began, MS);
    CHECK_EQ(b.op.lease_from, began);
    CHECK_EQ(b.op.granted_ms, 0);
    CHECK_EQ(world_requests(PAWL_OP_ACQUIRE), 10);
    for (int k = 0; k < STORES; k++)
        CHECK_EQ(stores[k].names[1].holders[0].token, b.op.token);
    client_close(&one);
}

CASE("it is decided at the majority; a slow node's grant is kept, and given back in the end")
{
    int64_t began;

    begin_three();
    stores[3].delay = 25 * MS;
    stores[4].delay = 400 * MS;
    began = world_now;
    ask_take(&one, &b, 1, 2);
    CHECK_EQ(b.at - began, MS);
    CHECK_EQ(world_held(1), 3);
    world_run(1000);
    CHECK_EQ(world_held(1), 5);
    ask_give(&one, 1, 2);
    world_run(1000);
    CHECK_EQ(world_held(1), 0);
    client_close(&one);
}

CASE("a slow gate is waited for once, then another node is the gate")
{
    int64_t began;

    begin_three();
    stores[0].delay = 300 * MS;
    began = world_now;
    ask_take(&one, &a, 0, 1);
    CHECK_EQ(a.at - began, 2 * MS + TIMEOUT_MS / 8 * MS); /* twice the others', and more */
    began = world_now;
    ask_take(&one, &b, 1, 2);
    CHECK_EQ(b.at - began, MS);
    world_run(1000); /* the node has answered, but is slow */
    began = world_now;
    ask_take(&one, &c, 2, 3);
    CHECK_EQ(c.at - began, MS);
    client_close(&one);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

CASE("counters that differ: the largest is written back to a majority before the grant counts")
{
    int64_t began;

    begin_three();
    for (int k = 0; k < STORES; k++)
        stores[k].names[0].counter = UINT64_C(5000000000000) + (uint64_t)k * 100;
    began = world_now;
    a.op.tokens = 10;
    ask_take(&one, &a, 0, 1);
    CHECK_EQ(a.at - began, 2 * MS);
    CHECK_EQ(a.op.ntokens, 10);
    int known = 0;
    for (int k = 0; k < STORES; k++)
        known += stores[k].names[0].counter >= a.op.token + 9;
    CHECK(known >= 3);
    ask_give(&one, 0, 1);
    uint64_t last = a.op.token + 9;
    for (int i = 0; i < 20; i++) { /* any three answer next */
        for (int k = 0; k < STORES; k++)
            stores[k].delay = (int64_t)world_random(40) * MS / 10;
        ask_take(i % 2 ? &one : &two, &b, 0, 10 + (uint64_t)i);
        CHECK(b.op.token > last);
        last = b.op.token;
        ask_give(i % 2 ? &one : &two, 0, 10 + (uint64_t)i);
    }
    client_close(&one);
    client_close(&two);
}

CASE("stores whose clocks are far ahead of the client's, and differ, cost a second round trip")
{
    uint64_t last = 0;

    begin_three();
    for (int k = 0; k < STORES; k++)
        stores[k].clock = 3000000 + (uint64_t)k * 100000;
    for (uint64_t i = 1; i < 10; i++) {
        int64_t began = world_now;

        ask_take(&one, &a, 0, i);
        CHECK_EQ(a.at - began, 2 * MS);
        CHECK(a.op.token > last);
        last = a.op.token;
        ask_give(&one, 0, i);
    }
    client_close(&one);
}

CASE("a grant that was lost before it was raised is no vote")
{
    begin_three();
    for (int k = 0; k < STORES; k++)
        stores[k].names[0].counter = UINT64_C(5000000000000) + (uint64_t)k * 100;
    stores[3].silent = stores[4].silent = true;
    ask_acquire(&one, &a, 0, 1, false, LEASE, TIMEOUT_MS);
    world_run(1); /* three grants, and two requests to raise are on their way */
    CHECK_EQ(a.done, 0);
    stores[0].names[0].holders[0].owner.seq += 1000; /* another owner has the lock now */
    CHECK(world_run_until(&a, TIMEOUT_MS));
    CHECK(a.op.code != 0);
    client_close(&one);
}

CASE("a grant that was lost and got again before it was raised counts with its new token")
{
    begin_three();
    for (int k = 0; k < STORES; k++)
        stores[k].names[0].counter = UINT64_C(5000000000000) + (uint64_t)k * 100;
    stores[3].silent = stores[4].silent = true;
    ask_acquire(&one, &a, 0, 1, false, LEASE, TIMEOUT_MS);
    world_run(1);
    CHECK_EQ(a.done, 0);
    stores[0].names[0].nholders = 0; /* the grant ended meanwhile */
    CHECK(world_run_until(&a, TIMEOUT_MS));
    CHECK_CODE(a.op.code, 0);
    CHECK_EQ(a.op.token, stores[0].names[0].holders[0].token);
    for (int k = 0; k < 3; k++)
        CHECK(stores[k].names[0].counter >= a.op.token);
    client_close(&one);
}

/* ---- no majority ----------------------------------------------------------------------------- */

CASE("two of five may be silent, refuse or be held by others; three may not, and it says who")
{
    begin_three();
    stores[1].silent = true;
    stores[3].refuses = PAWL_ECONN;
    CHECK_CODE(ask_try(&one, &a, 0, 1), 0);
    ask_give(&one, 0, 1);
    stores[4].refuses = PAWL_ECONN;
    ask_acquire(&one, &a, 0, 2, false, LEASE, TIMEOUT_MS);
    CHECK(world_run_until(&a, TIMEOUT_MS - 1));
    CHECK_CODE(a.op.code, PAWL_EQUORUM);
    CHECK_STR(a.err.text, "2 of 5: node 1 ok, 2 no answer, 3 ok, 4 Connection refused, "
                          "5 Connection refused");
    world_run(200);
    CHECK_EQ(world_held(0), 0);
    client_close(&one);
}

CASE("when time is over while it waits for nodes, it says why they do not answer")
{
    begin_three();
    stores[0].refuses = stores[1].refuses = stores[4].refuses = PAWL_ECONN;
    ask_acquire(&one, &a, 0, 1, true, LEASE, 3000);
    world_run(3000);
    ask_cancel(&one, &a);
    CHECK(world_run_until(&a, 200));
    CHECK_CODE(a.op.code, PAWL_EQUORUM);
    CHECK_STR(a.err.text, "2 of 5: node 1 Connection refused, 2 Connection refused, 3 ok, 4 ok, "
                          "5 Connection refused");
    client_close(&one);
}

CASE("what will not pass by itself is said as it is, if so many say it that no majority is left")
{
    begin_three();
    stores[1].refuses = stores[2].refuses = PAWL_EAUTH;
    CHECK_CODE(ask_try(&one, &a, 0, 1), 0);
    ask_give(&one, 0, 1);
    stores[3].refuses = PAWL_EAUTH;
    ask_acquire(&one, &a, 0, 2, true, LEASE, 60000);
    CHECK(world_run_until(&a, TIMEOUT_MS));
    CHECK_CODE(a.op.code, PAWL_EAUTH);
    CHECK_STR(a.err.text, "2 of 5: node 1 ok, 2 wrong password, 3 wrong password, "
                          "4 wrong password, 5 ok");
    world_run(200);
    CHECK_EQ(world_held(0), 0);
    client_close(&one);
}

CASE("a grant that comes after it was decided against is given back")
{
    int64_t began;

    begin_three();
    ask_take(&two, &a, 0, 1);
    stores[3].names[0].nholders = stores[4].names[0].nholders = 0;
    stores[3].delay = 30 * MS;
    stores[4].delay = 400 * MS;
    began = world_now;
    CHECK_CODE(ask_try(&one, &b, 0, 1), PAWL_EBUSY);
    CHECK(b.at - began <= 10 * MS);
    CHECK_EQ(world_held(0), 3);
    world_run(30);
    CHECK(world_has(3, 0, &one));
    world_run(2000);
    CHECK_EQ(world_held(0), 3);
    for (int k = 0; k < STORES; k++)
        CHECK(!world_has(k, 0, &one));
    client_close(&one);
    client_close(&two);
}

CASE("a node that is known to be down costs no time")
{
    int64_t began;

    begin_three();
    for (int k = 2; k < STORES; k++)
        stores[k].silent = true;
    CHECK_CODE(ask_try(&one, &a, 0, 1), PAWL_EQUORUM);
    world_run(1000);
    began = world_now;
    CHECK_CODE(ask_try(&one, &a, 0, 2), PAWL_EQUORUM);
    CHECK(world_now - began <= 200 * MS);
    client_close(&one);
}

CASE("waiting for nodes that are down ends at the deadline with PAWL_EQUORUM, or when they return")
{
    begin_three();
    for (int k = 1; k < 4; k++)
        stores[k].silent = true;
    ask_acquire(&one, &a, 0, 1, true, LEASE, 5000);
    world_run(5000);
    CHECK_EQ(a.done, 0);
    ask_cancel(&one, &a); /* the core's deadline */
    CHECK(world_run_until(&a, 200));
    CHECK_CODE(a.op.code, PAWL_EQUORUM);
    ask_acquire(&one, &b, 0, 2, true, LEASE, 60000);
    world_run(3000);
    for (int k = 1; k < 4; k++)
        stores[k].silent = false;
    CHECK(world_run_until(&b, 10000));
    CHECK_CODE(b.op.code, 0);
    client_close(&one);
}

CASE("who holds it is busy to others, and what they got is given back")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    CHECK_CODE(ask_try(&two, &b, 0, 1), PAWL_EBUSY);
    CHECK(strstr(b.err.text, "busy"));
    stores[0].names[0].nholders = stores[1].names[0].nholders = 0;
    CHECK_CODE(ask_try(&two, &b, 0, 2), PAWL_EBUSY);
    world_run(100);
    CHECK_EQ(world_held(0), 3);
    client_close(&one);
    client_close(&two);
}

CASE("of two that try at the same moment one gets it, whatever the order at the nodes")
{
    for (int i = 0; i < 200; i++) {
        world_begin((uint64_t)i + 1);
        client_open(&one, world_url);
        client_open(&two, world_url);
        for (int k = 0; k < STORES; k++) {
            stores[k].delay = 0;
            stores[k].jitter = 2 * MS;
        }
        ask_acquire(&one, &a, 0, 1, false, LEASE, TIMEOUT_MS);
        ask_acquire(&two, &b, 0, 1, false, LEASE, TIMEOUT_MS);
        CHECK(world_run_until(&a, TIMEOUT_MS) && world_run_until(&b, TIMEOUT_MS));
        CHECK(a.op.code || b.op.code);
        CHECK_CODE(a.op.code ? a.op.code : b.op.code, PAWL_EBUSY);
        client_close(&one);
        client_close(&two);
    }
}

/* ---- restarted nodes ------------------------------------------------------------------------- */

CASE("a node younger than one lease does not vote")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    stores[3].names[0].nholders = stores[4].names[0].nholders = 0; /* three nodes have the grant */
    world_restart(2);
    CHECK(ask_try(&two, &b, 0, 1) != 0);
    CHECK_STR(b.err.text, "2 of 5: node 1 busy, 2 busy, 3 too young (0 of 10 s), 4 ok, 5 ok");
    world_run(LEASE + 10); /* the grants that the node lost have ended */
    CHECK_CODE(ask_try(&two, &b, 0, 2), 0);
    client_close(&one);
    client_close(&two);
}

CASE("without settle= it must be as old as the longest lease, and 30 s")
{
    const char *url = strchr(world_url, '|') + 1;

    world_begin(1);
    client_open(&one, url);
    for (int k = 0; k < STORES; k++)
        world_restart(k);
    world_run(29900);
    CHECK_CODE(ask_try(&one, &a, 0, 1), PAWL_EQUORUM);
    world_run(100);
    CHECK_CODE(ask_try(&one, &a, 0, 2), 0);
    ask_acquire(&one, &b, 1, 3, false, 60000, TIMEOUT_MS);
    CHECK(world_run_until(&b, TIMEOUT_MS));
    CHECK_CODE(b.op.code, PAWL_EQUORUM);
    CHECK(strstr(b.err.text, "too young (30 of 60 s)"));
    client_close(&one);
}

CASE("settle= says how old a node must be")
{
    begin_three();
    client_close(&one);
    client_open(&one, "settle=100|node:0|node:1|node:2|node:3|node:4");
    for (int k = 0; k < STORES; k++)
        world_restart(k);
    CHECK_CODE(ask_try(&one, &a, 0, 1), PAWL_EQUORUM);
    world_run(100);
    CHECK_CODE(ask_try(&one, &a, 0, 2), 0);
    client_close(&one);
}

/* ---- waiting --------------------------------------------------------------------------------- */

CASE("a waiter is woken by the release, and asks for nothing while it waits")
{
    size_t before;
    int64_t began;

    begin_three();
    ask_take(&one, &a, 0, 1);
    ask_acquire(&two, &b, 0, 1, true, LEASE, 600000);
    world_run(50);
    CHECK_EQ(world_waits(0), 1);
    before = world_requests(PAWL_OP_ACQUIRE);
    for (int i = 0; i < 60; i++) {
        ask_renew(&one, &c, 0, 1, LEASE);
        world_run(1000);
    }
    CHECK_EQ(world_requests(PAWL_OP_ACQUIRE), before);
    CHECK_EQ(b.done, 0);
    began = world_now;
    ask_release(&one, &c, 0, 1, PAWL_MODE_EXCLUSIVE);
    CHECK(world_run_until(&b, 100));
    CHECK_CODE(b.op.code, 0);
    CHECK(b.op.waited && b.op.token > a.op.token);
    CHECK(b.at - began <= 3 * MS);
    CHECK_EQ(b.op.granted_ms, 0);
    client_close(&one);
    client_close(&two);
}

CASE("a try does not overtake who waits")
{
    for (int i = 0; i < 40; i++) {
        begin_three();
        ask_take(&one, &a, 0, 1);
        ask_acquire(&two, &b, 0, 1, true, LEASE, 60000);
        world_run(50);
        ask_release(&one, &c, 0, 1, PAWL_MODE_EXCLUSIVE);
        for (int k = 0; k < i; k++) /* at any moment of the hand-over */
            world_now += MS / 10, world_run(0);
        if (b.done == 0)
            CHECK_CODE(ask_try(&three, &d, 0, 1), PAWL_EBUSY);
        CHECK(world_run_until(&b, 100));
        CHECK_CODE(b.op.code, 0);
        end_three();
    }
}

CASE("without a majority it is PAWL_EQUORUM, also if the others have it for somebody: no time-out")
{
    for (int queue = 0; queue < 2; queue++) {
        begin_three();
        ask_take(&one, &a, 0, 1);
        for (int k = 2; k < STORES; k++)
            stores[k].refuses = PAWL_ECONN;
        ask_acquire(&two, &b, 0, 1, queue, LEASE, 3000);
        if (queue) {
            world_run(3000);
            ask_cancel(&two, &b);
        }
        CHECK(world_run_until(&b, TIMEOUT_MS));
        CHECK_CODE(b.op.code, PAWL_EQUORUM);
        CHECK(!b.op.waited);
        end_three();
    }
}

CASE("the gate dies while somebody waits there: the waiter goes elsewhere and gets it")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    ask_acquire(&two, &b, 0, 1, true, LEASE, 60000);
    world_run(100);
    stores[0].silent = true;
    world_run(100);
    ask_give(&one, 0, 1);
    CHECK(world_run_until(&b, 4000));
    CHECK_CODE(b.op.code, 0);
    world_run(100);
    ask_release(&two, &c, 0, 1, PAWL_MODE_EXCLUSIVE);
    CHECK(world_run_until(&c, 4000));
    CHECK_CODE(c.op.code, 0);
    client_close(&one);
    client_close(&two);
}

CASE("a holder that vanishes is waited for no longer than its lease")
{
    begin_three();
    ask_take(&one, &a, 0, 1);
    ask_acquire(&two, &b, 0, 1, true, LEASE, 60000);
    CHECK(world_run_until(&b, LEASE + 1000));
    CHECK_CODE(b.op.code, 0);
    CHECK(b.op.token > a.op.token);
    client_close(&one);
    client_close(&two);
}

CASE("who has the gate and who has other nodes do not wait for each other for ever")
{
    for (int i = 0; i < 50; i++) {
        world_begin((uint64_t)i + 1);
        client_open(&one, world_url);
        client_open(&two, world_url);
        stores[4].silent = true;
        stores[0].silent = true; /* as client `one` sees it */
        CHECK(ask_try(&one, &a, 1, 1) == 0);
        stores[0].silent = false;
        ask_acquire(&one, &a, 0, 2, true, LEASE, 60000); /* its gate is node 2, two's node 1 */
        ask_acquire(&two, &b, 0, 1, true, LEASE, 60000);
        world_run((int64_t)world_random(20));
        for (int ms = 0; !a.done && !b.done; ms++) {
            CHECK(ms < 60000);
            world_run(1);
        }
        CHECK_CODE(a.done ? a.op.code : b.op.code, 0);
        if (a.done) {
            ask_give(&one, 0, 2);
            CHECK(world_run_until(&b, 60000));
            CHECK_CODE(b.op.code, 0);
        } else {
            ask_give(&two, 0, 1);
            CHECK(world_run_until(&a, 60000));
            CHECK_CODE(a.op.code, 0);
        }
        client_close(&one);
        client_close(&two);
    }
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
