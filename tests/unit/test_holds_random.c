/* SPDX-License-Identifier: Apache-2.0
 *
 * test_holds_random.c - programs at random over one client whose answers come late, get lost or are
 * refused, in virtual time (tests/sim/world.h), by seed.
 *
 * Leases are about as long as answers take, so holds end in every state while requests are out. The
 * engine counts re-entries (late:counts=1), so that entering once more and leaving once are
 * requests, too. A program mixes asynchronous and blocking calls, frees handles at any time, and
 * releases inside on_lost and done. Checked:
 *
 *   once      done is called exactly once for every start that returned 0, and never else
 *   returns   every blocking call and pawl_close return (the limit of the case)
 *   no leak   after pawl_close no hold and no request is left
 *
 * $HOLDS_SEEDS is the last seed that each case runs, $HOLDS_FIRST the first.
 */
#include "check.h"
#include "world.h"

#define HANDLES 8
#define STARTS 4000
#define MS ((int64_t)PAWL_NS_PER_MS)

struct play;

typedef struct start {
    struct play *play;
    int told;
} start;

typedef struct play {
    struct world world;
    uint64_t seed;
    pawl_lock *locks[HANDLES];
    pawl_lock *multi;
    pawl_semaphore *sem;
    start starts[STARTS];
    size_t nstarts;
} play;

static void told(void *arg, pawl_lock *lock, int code);

static void start_release(play *p, pawl_lock *lock)
{
    start *s = &p->starts[p->nstarts];

    s->play = p;
    if (p->nstarts < STARTS && !pawl_lock_release_start(lock, told, s))
        p->nstarts++;
}

static void start_acquire(play *p, pawl_lock *lock, int64_t wait_ms)
{
    start *s = &p->starts[p->nstarts];

    s->play = p;
    if (p->nstarts < STARTS && !pawl_lock_acquire_start(lock, wait_ms, told, s))
        p->nstarts++;
}

static void told(void *arg, pawl_lock *lock, int code)
{
    start *s = arg;

    if (s->told++)
        check_fail(__FILE__, __LINE__, "seed %llu: done was called twice",
                   (unsigned long long)s->play->seed);
    if (code == 0 && world_draw(&s->play->world, 4) == 0)
        start_release(s->play, lock);
}

static void lost(void *arg, pawl_lock *lock, int code)
{
    (void)code;
    if (lock && world_draw(&((play *)arg)->world, 2) == 0)
        start_release(arg, lock);
}

static pawl_lock *new_lock(play *p, size_t i)
{
    static const int64_t leases[] = {0, 0, 25, 60};
    pawl_lock_options o = {.size = sizeof o, .lease_ms = leases[world_draw(&p->world, 4)],
                           .on_lost = lost, .arg = p};
    pawl_lock *lock;

    o.owner = i < HANDLES / 2 ? PAWL_OWNER_THREAD : PAWL_OWNER_HANDLE;
    if (world_draw(&p->world, 8) == 0)
        o.at_least_ms = 30;
    CHECK_OK(pawl_lock_new(&lock, p->world.client[0], i % 2 ? "a" : "b", &o, NULL));
    return lock;
}

/* The last two handles are the members of the multi-lock; sometimes it is freed before them. */
static void renew_multi(play *p)
{
    pawl_lock_free(p->multi);
    for (size_t i = HANDLES - 2; i < HANDLES; i++) {
        pawl_lock_free(p->locks[i]);
        p->locks[i] = new_lock(p, i);
    }
    CHECK_OK(pawl_multi_new(&p->multi, &p->locks[HANDLES - 2], 2, NULL));
}

static void step(play *p)
{
    struct world *w = &p->world;
    size_t i = world_draw(w, HANDLES);
    pawl_lock *lock = world_draw(w, 10) ? p->locks[i] : p->multi;
    int64_t wait = (int64_t)world_draw(w, 3) * 20;

    switch (world_draw(w, 14)) {
    case 0: case 1: case 2: start_acquire(p, lock, wait); break;
    case 3: case 4: start_release(p, lock); break;
    case 5: pawl_lock_acquire(lock, wait, NULL); break;
    case 6: pawl_lock_release(lock, NULL); break;
    case 7: pawl_lock_cancel(lock); break;
    case 8: pawl_lock_renew(lock, 0, NULL); break;
    case 9: pawl_semaphore_acquire(p->sem, 1 + (uint32_t)world_draw(w, 3), wait, NULL); break;
    case 10: pawl_semaphore_release(p->sem, 1 + (uint32_t)world_draw(w, 3), NULL); break;
    case 11:
        if (i >= HANDLES - 2) {
            renew_multi(p);
        } else {
            pawl_lock_free(p->locks[i]);
            p->locks[i] = new_lock(p, i);
        }
        break;
    default: world_run(w, w->now + (int64_t)world_draw(w, 40) * MS); break;
    }
}

/* A client that closes keeps its callbacks to the end: world.h's clock would wait for them. */
static void idle_while_closing(void *arg)
{
    play *p = arg;
    int64_t next = pawl__timers_next(&p->world.client[0]->timers);

    if (next > p->world.now)
        p->world.now = next < PAWL_NEVER ? next : p->world.now + 1000 * MS;
}

static int64_t world_now(void *arg)
{
    return ((play *)arg)->world.now;
}

static uint64_t world_random(void *arg)
{
    return world_draw(&((play *)arg)->world, 0);
}

static void end(play *p)
{
    pawl_client *client = p->world.client[0];

    p->world.hooks = (struct pawl_world){world_now, world_random, idle_while_closing, p};
    pawl_close(client);
    p->world.client[0] = NULL;
    if (client->holds.live || !list_empty(&client->holds.all) || !list_empty(&client->requests.all))
        check_fail(__FILE__, __LINE__, "seed %llu: %zu holds are left, holds %s, requests %s",
                   (unsigned long long)p->seed, client->holds.live,
                   list_empty(&client->holds.all) ? "empty" : "listed",
                   list_empty(&client->requests.all) ? "empty" : "listed");
    for (size_t i = 0; i < p->nstarts; i++)
        if (p->starts[i].told != 1)
            check_fail(__FILE__, __LINE__, "seed %llu: done of start %zu was called %d times",
                       (unsigned long long)p->seed, i, p->starts[i].told);
    pawl_lock_free(p->multi);
    for (size_t i = 0; i < HANDLES; i++)
        pawl_lock_free(p->locks[i]);
    pawl_semaphore_free(p->sem);
}

static void run(const char *faults, uint64_t seed)
{
    static play p;
    pawl_client_options o = {.size = sizeof o, .watchdog_ms = 40, .timeout_ms = 50};
    pawl_semaphore_options so = {.size = sizeof so, .permits = 5, .lease_ms = 0};
    char url[200];

    memset(&p, 0, sizeof p);
    p.seed = seed;
    world_begin(&p.world, seed);
    snprintf(url, sizeof url, "%s,seed=%llu;memory:%llu", faults, (unsigned long long)seed,
             (unsigned long long)seed);
    p.world.nclients = 1;
    CHECK_OK(pawl__open_in(&p.world.client[0], url, &o, &p.world.hooks, NULL));
    for (size_t i = 0; i < HANDLES; i++)
        p.locks[i] = new_lock(&p, i);
    CHECK_OK(pawl_multi_new(&p.multi, &p.locks[HANDLES - 2], 2, NULL));
    CHECK_OK(pawl_semaphore_new(&p.sem, p.world.client[0], "s", &so, NULL));
    for (int i = 0; i < 150; i++)
        step(&p);
    end(&p);
}

static void run_all(const char *faults)
{
    const char *seeds = getenv("HOLDS_SEEDS"), *first = getenv("HOLDS_FIRST");

    for (int i = first ? atoi(first) : 1; i <= (seeds ? atoi(seeds) : 2000); i++)
        run(faults, (uint64_t)i);
}

CASE("late answers: every outcome is told once, closing returns, no hold is left")
{
    run_all("late:counts=1;fault:delay=30");
}

CASE("late, lost and refused answers: every outcome is told once, closing returns, no hold is left")
{
    run_all("late:counts=1,refuse=-5;fault:delay=20,lose=8,drop=8,refuse=4");
}

CASE("without counts: every outcome is told once, closing returns, no hold is left")
{
    run_all("late:refuse=-4;fault:delay=20,lose=8,drop=8");
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
