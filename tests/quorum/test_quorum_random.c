/* SPDX-License-Identifier: Apache-2.0
 *
 * test_quorum_random.c - the engine "quorum:" with faults made from a seed, in virtual time.
 *
 *     test_quorum_random [FROM TO]     run these seeds
 *
 * Six clients acquire, renew and release one name, give up, or die. Stores are slow, lose requests
 * and answers, fall silent, restart empty one at a time, and have grants of clients that are gone.
 * The test checks all the time:
 *
 *  - Two clients never hold the name at the same time (readers may). A client counts as a holder
 *    from the instant and for the lease that the engine reported, less the margin of the core.
 *  - The tokens of exclusive grants are all different. An acquire that began after another had been
 *    granted gets a larger token; so do readers after writers and writers after readers.
 *  - Every op is answered once (quorum_world.c), within its time.
 *  - When the faults end, every client gets the name; at the end, the stores are empty.
 */
#include "quorum_world.h"

enum { CLIENTS = 6, HISTORY = 4096, CLOCKS = 1200 /* ms: counters are at most this far ahead */ };

enum doing { IDLE, ASKING, HOLDING, RELEASING };

typedef struct actor {
    client client;
    ask acquire, renew, release;
    bool renewing, canceled;
    enum doing doing;
    uint64_t seq, before, before_shared; /* the largest token granted before the acquire */
    int64_t valid_until;
    uint64_t patience; /* the larger, the longer the actor holds the name */
    int wins;
} actor;

static actor actors[CLIENTS];
static uint64_t top, top_shared; /* of exclusive grants; of shared ones */
static uint64_t history[HISTORY];
static size_t nhistory, grants, losses, refusals, stale_grants;
static int64_t lease;
static char url[80];
static bool calm;
static uint64_t seed_now;

/* As the core computes the deadline (src/lease.c). */
static int64_t valid_until(int64_t from, int64_t ms)
{
    int64_t ns = ms * MS, margin = ns / 10 < 2 * MS ? ns / 10 : 2 * MS;

    return from + ns - ns / 100 - margin;
}

/* An answer counts as known even if the actor has not read the answer yet. */
static bool believes(const actor *a)
{
    bool told = a->renewing && a->renew.done && a->renew.op.code == 0 &&
                a->renew.item.code == PAWL_ENOTHELD;

    return a->doing == HOLDING && a->valid_until > world_now && !told;
}

static void check_alone(const actor *me)
{
    for (actor *other = actors; other < actors + CLIENTS; other++)
        if (other != me && believes(other) &&
            (other->acquire.op.mode != PAWL_MODE_SHARED || me->acquire.op.mode != PAWL_MODE_SHARED))
            check_fail(__FILE__, __LINE__, "seed %llu: clients %d and %d hold it at %lld",
                       (unsigned long long)seed_now, me->client.number, other->client.number,
                       (long long)world_now);
}

static void check_token(const actor *me)
{
    uint64_t token = me->acquire.op.token;
    bool shared = me->acquire.op.mode == PAWL_MODE_SHARED;

    CHECK(token > me->before);
    if (!shared)
        CHECK(token > me->before_shared);
    for (size_t i = 0; i < nhistory && !shared; i++)
        CHECK(history[i] != token);
    if (!shared && nhistory < HISTORY)
        history[nhistory++] = token;
    if (shared && token > top_shared)
        top_shared = token;
    if (!shared && token > top)
        top = token;
}

static void granted(actor *me)
{
    const pawl_op *op = &me->acquire.op;

    me->doing = HOLDING;
    me->patience = world_random(3) ? 20 : 2000;
    me->renewing = false;
    me->valid_until = valid_until(op->lease_from,
                                  op->granted_ms ? op->granted_ms : op->lease_ms);
    grants++;
    me->wins++;
    if (me->valid_until > world_now) {
        check_alone(me);
        check_token(me);
    }
}

static void start(actor *me)
{
    bool queue = calm || world_random(4);

    me->doing = ASKING;
    me->canceled = false;
    me->before = top;
    me->before_shared = top_shared;
    me->acquire.op.mode = world_random(4) ? PAWL_MODE_EXCLUSIVE : PAWL_MODE_SHARED;
    me->acquire.op.tokens = 1 + (uint32_t)world_random(3);
    ask_acquire(&me->client, &me->acquire, 0, ++me->seq, queue, lease,
                calm ? 600000 : 100 + (int64_t)world_random(4000));
}

static void give_back(actor *me)
{
    me->doing = RELEASING;
    ask_release(&me->client, &me->release, 0, me->seq, me->acquire.op.mode);
    me->release.op.deadline = world_now + TIMEOUT_MS * MS;
}

/* The clock of the actor may be wrong: then tokens of the stores differ. */
static void begin(actor *me)
{
    client_open(&me->client, url);
    me->client.late_ms = world_random(2) ? (int64_t)world_random(3000) : 0;
}

/* The process dies: its engine is closed while it holds the lock, and another process begins. */
static void die(actor *me)
{
    if (me->renewing)
        ask_cancel(&me->client, &me->renew);
    client_close(&me->client);
    begin(me);
    me->doing = IDLE;
}

static void act_asking(actor *me)
{
    if (me->acquire.done && me->acquire.op.code == 0) {
        if (me->canceled) {
            give_back(me);
            return;
        }
        granted(me);
    } else if (me->acquire.done) {
        refusals++;
        me->doing = IDLE;
        CHECK(me->acquire.op.code != PAWL_ECANCELED || me->canceled);
    } else if (!me->canceled && (world_now >= me->acquire.op.deadline ||
                                 (!calm && !world_random(400)))) {
        me->canceled = true;
        ask_cancel(&me->client, &me->acquire);
    } else if (me->canceled) {
        CHECK(world_now < me->acquire.op.deadline + 1000 * MS);
    }
}

static void act_holding(actor *me)
{
    if (me->renewing && me->renew.done) {
        me->renewing = false;
        if (me->renew.op.code == 0 && me->renew.item.code == 0 && world_now < me->valid_until)
            me->valid_until = valid_until(me->renew.op.lease_from, lease);
        else if (me->renew.op.code == 0 && me->renew.item.code == PAWL_ENOTHELD)
            me->valid_until = 0;
    } else if (me->renewing && world_now > me->renew.at) {
        ask_cancel(&me->client, &me->renew);
    } else if (!me->renewing && me->valid_until - world_now < lease * MS * 2 / 3) {
        me->renewing = true;
        ask_renew(&me->client, &me->renew, 0, me->seq, lease);
        me->renew.at = me->renew.done ? world_now : world_now + TIMEOUT_MS * MS;
    }
    if (world_now >= me->valid_until) {
        losses++;
        if (me->renewing && !me->renew.done)
            ask_cancel(&me->client, &me->renew);
        me->doing = IDLE;
    } else if (!world_random(calm ? 5 : me->patience) && !(me->renewing && !me->renew.done)) {
        if (!calm && !world_random(10))
            die(me);
        else
            give_back(me);
    }
}

static void act(actor *me)
{
    switch (me->doing) {
    case IDLE:
        if (!calm && !world_random(20))
            start(me);
        break;
    case ASKING:
        act_asking(me);
        break;
    case HOLDING:
        act_holding(me);
        break;
    case RELEASING:
        if (me->release.done)
            me->doing = IDLE;
        else if (world_now >= me->release.op.deadline)
            ask_cancel(&me->client, &me->release);
        break;
    }
}

/* A store gets a grant of a client that is gone, if the store would grant the name. */
static void leave_stale_grant(store *s)
{
    name_state *n = &s->names[0];
    bool shared = world_random(2);

    world_expire(n);
    for (size_t i = 0; i < n->nholders; i++)
        if (!shared || n->holders[i].mode != PAWL_MODE_SHARED)
            return;
    if (n->nholders < CROWD)
        n->holders[n->nholders++] = (grant){
            .owner = {.client = 1, .seq = ++stale_grants}, .ntokens = 1,
            .mode = shared ? PAWL_MODE_SHARED : PAWL_MODE_EXCLUSIVE, .since = world_now,
            .ends = world_now + (int64_t)world_random((uint64_t)lease + 1) * MS};
}

/* At most two stores are disturbed at any time. A store loses its data only when all others are
 * older than a lease. */
static void trouble(void)
{
    int k = (int)world_random(STORES), bad = 0;
    bool old = true;

    for (int i = 0; i < STORES; i++) {
        bad += i != k && (stores[i].silent || stores[i].refuses);
        old &= i == k || world_now - stores[i].born > (2 * lease + CLOCKS) * MS;
    }
    if (stores[k].silent || stores[k].refuses) {
        stores[k].silent = false;
        stores[k].refuses = 0;
    } else if (bad < 2) {
        if (old && world_random(3))
            world_restart(k);
        else if (world_random(2))
            stores[k].silent = true;
        else
            stores[k].refuses = PAWL_ECONN;
    }
}

static void set_up(uint64_t seed)
{
    world_begin(seed);
    top = top_shared = 0;
    nhistory = 0;
    calm = false;
    lease = 500 + (int64_t)world_random(3000);
    snprintf(url, sizeof url, "settle=%d|node:0|node:1|node:2|node:3|node:4",
             (int)lease + CLOCKS);
    for (int k = 0; k < STORES; k++) {
        stores[k].delay = (int64_t)world_random(3) * MS / 2;
        stores[k].jitter = world_random(2) ? (int64_t)world_random(20) * MS + 1 : 0;
        stores[k].lose = world_random(3) ? 0 : (unsigned)world_random(60);
        stores[k].drop = world_random(3) ? 0 : (unsigned)world_random(60);
        stores[k].clock = 1 + world_random(100000);
        stores[k].names[0].counter = world_random(100);
        stores[k].restarted = true;
        stores[k].born = world_now - INT64_C(100000) * MS;
    }
    memset(actors, 0, sizeof actors);
    for (int i = 0; i < CLIENTS; i++)
        begin(&actors[i]);
}

static void wind_up(void)
{
    calm = true;
    for (int k = 0; k < STORES; k++) {
        stores[k].silent = false;
        stores[k].refuses = 0;
        stores[k].drop = stores[k].lose = 0;
    }
    for (int i = 0; i < CLIENTS; i++)
        actors[i].wins = 0;
    for (int ms = 0, left = CLIENTS; left; ms++) {
        if (ms > 120000)
            check_fail(__FILE__, __LINE__, "seed %llu: somebody never gets it",
                       (unsigned long long)seed_now);
        left = 0;
        for (int i = 0; i < CLIENTS; i++) {
            if (actors[i].doing == IDLE && !actors[i].wins)
                start(&actors[i]);
            act(&actors[i]);
            left += actors[i].doing != IDLE || !actors[i].wins;
        }
        world_run(1);
    }
    world_run(2 * lease + 2000);
    for (int i = 0; i < CLIENTS; i++)
        client_close(&actors[i].client);
    CHECK_EQ(world_held(0), 0);
    CHECK_EQ(world_waits(0), 0);
}

static void run_seeds(uint64_t from, uint64_t to)
{
    grants = losses = refusals = stale_grants = 0;
    for (uint64_t seed = from; seed < to; seed++) {
        seed_now = seed;
        set_up(seed);
        for (int ms = 0; ms < 10000; ms++) {
            for (int i = 0; i < CLIENTS; i++)
                act(&actors[i]);
            if (!world_random(200))
                trouble();
            if (!world_random(500)) /* mostly at the gate */
                leave_stale_grant(&stores[world_random(3) ? 0 : world_random(STORES)]);
            world_run(1);
        }
        wind_up();
    }
    check_note("%zu grants, %zu lost, %zu refused; %zu stale grants", grants, losses, refusals,
               stale_grants);
    CHECK(grants > 10 * (to - from));
}

static uint64_t seeds(void)
{
    const char *text = getenv("QUORUM_SEEDS");

    return text ? strtoull(text, NULL, 10) : 600;
}

CASE("nobody holds it beside another, tokens rise, everybody gets it (seeds from 1)")
{
    run_seeds(1, 1 + seeds());
}

CASE("nobody holds it beside another, tokens rise, everybody gets it (seeds from 1000)")
{
    run_seeds(1000, 1000 + seeds());
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        run_seeds(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10));
        return 0;
    }
    return check_main(argc, argv);
}
