/* SPDX-License-Identifier: Apache-2.0
 *
 * wild.c - programs of any calls on shared handles: leases of some ms, late, lost and refused
 * answers, callbacks that make calls, handles that are freed and made again.
 *
 * Single return codes are not checked (nearly all are possible), but their meaning is: the judge
 * checks each grant (programs.c), and each start must be followed by its `done`. Waits have limits,
 * so every call ends.
 */
#include "programs.h"

#include <stdlib.h>
#include <unistd.h>

static void told(void *arg, pawl_lock *lock, int code);
static bool renew_handle(struct program *p, struct worker *w, size_t i, const pawl_lock *only);

/* pawl.h: these two codes mean that another owner holds the lock, so only an acquire returns
 * them. */
static void check_not_busy(const struct program *p, const char *what, int code)
{
    if (code == PAWL_EBUSY || code == PAWL_ETIMEDOUT)
        program_fail(p, "%s was told %s", what, pawl_errname(code));
}

static void begin_release(struct program *p, struct worker *w, struct slot *slot, pawl_lock *lock)
{
    struct start *s = start_new(p, w, slot, lock);

    s->releases = UINT32_MAX;
    judge_release_begins(p, slot, judge_owner(p, slot, w));
    if (pawl_lock_release_start(lock, told, s))
        atomic_store_explicit(&s->begun, false, memory_order_relaxed);
    judge_release_ends(slot);
}

static void begin_acquire(struct program *p, struct worker *w, struct slot *slot, pawl_lock *lock,
                          int64_t wait)
{
    struct start *s = start_new(p, w, slot, lock);

    s->releases = slot ? atomic_load_explicit(&slot->releases, memory_order_relaxed) : 0;
    if (pawl_lock_acquire_start(lock, wait, told, s))
        atomic_store_explicit(&s->begun, false, memory_order_relaxed);
}

/* A start of the same client whose `done` has not been called yet, or NULL. */
static struct start *without_done(const struct start *s)
{
    struct program *p = s->program;
    struct start *found = NULL;
    uint64_t chance = s->chance, n = 0;

    for (unsigned j = 0; j < p->nstarts && j < STARTS; j++) {
        struct start *other = &p->starts[j];

        if (other != s && other->begun && !other->told && other->slot &&
            other->slot->client == s->slot->client && other->slot->by_handle &&
            draw(&chance, ++n) == 0)
            found = other;
    }
    return found;
}

/* Callbacks of one client run one after the other: the free cancels an operation whose `done` has
 * not been called yet. */
static void free_in_callback(struct start *s)
{
    struct program *p = s->program;
    struct worker w = {.program = p, .number = s->worker->number, .chance = s->chance};
    struct start *other = without_done(s);
    pawl_lock *lock = other ? other->lock : NULL;

    if (!lock || !renew_handle(p, &w, (size_t)(other->slot - p->slots), lock))
        return;
    for (unsigned j = 0; j < p->nstarts && j < STARTS; j++)
        if (p->starts[j].lock == lock && &p->starts[j] != s)
            p->starts[j].freed = true;
}

/* The `done` of an acquire or a release, or of the multi-lock (no slot). */
static void told(void *arg, pawl_lock *lock, int code)
{
    struct start *s = arg;
    struct program *p = s->program;

    start_told(s);
    if (s->releases == UINT32_MAX)
        check_not_busy(p, "a release", code);
    if (code == 0 && s->releases != UINT32_MAX && s->freed)
        program_fail(p, "an acquire through a handle that was freed was told 0");
    if (s->slot && draw(&s->chance, 2) == 0)
        free_in_callback(s);
    if (code || !s->slot || !slot_claim_as(s->slot, lock)) /* the handle was freed or replaced */
        return;
    if (s->slot->by_handle && s->releases != UINT32_MAX)
        judge_granted(p, s->slot, judge_owner(p, s->slot, s->worker), lock, s->releases);
    if (draw(&s->chance, 4) == 0 && s->slot->by_handle)
        begin_release(p, s->worker, s->slot, lock);
    slot_leave(s->slot);
}

static void lost(void *arg, pawl_lock *lock, int code)
{
    struct slot *slot = arg;

    (void)code;
    if (!slot_claim_as(slot, lock))
        return;
    (void)pawl_lock_lost_reason(lock);
    if (slot->by_handle && pawl_lock_token(lock) % 2)
        pawl_lock_cancel(lock);
    slot_leave(slot);
}

static pawl_lock *lock_new(struct program *p, uint64_t *chance, size_t i)
{
    static const int64_t leases[] = {0, 0, 25, 60};
    struct slot *slot = &p->slots[i];
    pawl_lock_options o = {.size = sizeof o, .on_lost = lost, .arg = slot,
                           .lease_ms = leases[draw(chance, 4)],
                           .owner = slot->by_handle ? PAWL_OWNER_HANDLE : PAWL_OWNER_THREAD,
                           .kind = slot->shared ? PAWL_READ : draw(chance, 2)};
    pawl_lock *lock = NULL;

    if (p->lingers && draw(chance, 8) == 0)
        o.at_least_ms = 30;
    if (!atomic_load_explicit(&p->closing[slot->client], memory_order_relaxed))
        pawl_lock_new(&lock, p->client[slot->client], name_of(slot->name), &o, NULL);
    return lock;
}

/* Free the handle, if no call is under way, and make another one. Only for handle-owned locks:
 * freeing a thread-owned handle would also release the locks that threads hold through it. */
static bool renew_handle(struct program *p, struct worker *w, size_t i, const pawl_lock *only)
{
    struct slot *slot = &p->slots[i];
    int none = 0;

    if (!slot->by_handle || i >= SLOTS - 2 || /* members */
        !atomic_compare_exchange_strong_explicit(&slot->users, &none, -1, memory_order_acquire,
                                                 memory_order_relaxed))
        return false;
    if (only && slot->lock != only) {
        atomic_store_explicit(&slot->users, 0, memory_order_release);
        return false;
    }
    judge_release_begins(p, slot, judge_owner(p, slot, w));
    pawl_lock_free(slot->lock);
    judge_release_ends(slot);
    atomic_store_explicit(&slot->lock, lock_new(p, &w->chance, i), memory_order_release);
    atomic_store_explicit(&slot->users, slot->lock ? 0 : -1, memory_order_release);
    return true;
}

static void acquire(struct program *p, struct worker *w, struct slot *slot, pawl_lock *lock,
                    int64_t wait)
{
    unsigned releases = atomic_load_explicit(&slot->releases, memory_order_relaxed);

    if (!pawl_lock_acquire(lock, wait, NULL))
        judge_granted(p, slot, judge_owner(p, slot, w), lock, releases);
}

static void release(struct program *p, struct worker *w, struct slot *slot, pawl_lock *lock)
{
    judge_release_begins(p, slot, judge_owner(p, slot, w));
    check_not_busy(p, "a release", pawl_lock_release(lock, NULL));
    judge_release_ends(slot);
}

/* The members are the last two handles. The judge ignores these, because the multi-lock may release
 * a lock that another thread acquired through a member. */
static void with_multi(struct program *p, struct worker *w, int64_t wait)
{
    switch (draw(&w->chance, 4)) {
    case 0: pawl_lock_acquire(p->multi, wait, NULL); break;
    case 1: begin_acquire(p, w, NULL, p->multi, wait); break;
    case 2: pawl_lock_cancel(p->multi); break;
    default: pawl_lock_release(p->multi, NULL); break;
    }
}

static void with_semaphore(struct program *p, struct worker *w, int64_t wait)
{
    pawl_semaphore *sem = p->sem[draw(&w->chance, p->nclients)];
    uint32_t n = 1 + (uint32_t)draw(&w->chance, 3);

    if (draw(&w->chance, 2))
        pawl_semaphore_acquire(sem, n, wait, NULL);
    else
        pawl_semaphore_release(sem, n, NULL);
}

/* Acquire a lock owned by the worker's thread, on a name that is never broken. The thread may have
 * freed a handle of the name before: pawl.h says that it may acquire through another one at
 * once. */
static pawl_lock *own_lock(struct program *p, struct worker *w, int64_t lease, int64_t wait,
                           size_t *client)
{
    pawl_lock_options o = {.size = sizeof o, .lease_ms = lease};
    pawl_lock *lock = NULL;
    int code;

    *client = draw(&w->chance, p->nclients);
    if (atomic_load_explicit(&p->closing[*client], memory_order_relaxed) ||
        pawl_lock_new(&lock, p->client[*client], draw(&w->chance, 2) ? "c" : "d", &o, NULL))
        return NULL;
    code = pawl_lock_acquire(lock, wait, NULL);
    if (code == 0)
        return lock;
    if (code == PAWL_ESTATE &&
        !atomic_load_explicit(&p->closing[*client], memory_order_relaxed))
        program_fail(p, "an acquire was told PAWL_ESTATE, and its owner has no call under way");
    pawl_lock_free(lock);
    return NULL;
}

/* Acquire again and release, and free the handle while the release is under way, perhaps after the
 * lease. */
static void own_handle(struct program *p, struct worker *w, int64_t wait)
{
    size_t client;
    pawl_lock *lock = own_lock(p, w, draw(&w->chance, 2) ? 25 : 0, wait, &client);

    for (uint64_t i = lock ? draw(&w->chance, 4) : 0; i > 0; i--) {
        struct start *s = start_new(p, w, NULL, lock);

        if (draw(&w->chance, 3) ? pawl_lock_acquire_start(lock, wait, told, s)
                                : pawl_lock_release_start(lock, told, s))
            atomic_store_explicit(&s->begun, false, memory_order_relaxed);
        usleep((useconds_t)draw(&w->chance, 20) * 1000);
    }
    pawl_lock_free(lock);
}

/* A lock that is not released: the close releases it, or the lease ends. */
static void keep_or_free(struct worker *w, pawl_lock *lock)
{
    if (lock && w->nkept < KEPT && draw(&w->chance, 4) == 0)
        w->kept[w->nkept++] = lock;
    else
        pawl_lock_free(lock);
}

/* Renew the lock, and repeat the release until it succeeds. pawl.h: a release that got no answer,
 * or was refused, can be repeated until the lease is over. The library ends a lease a little
 * earlier than the service does. */
static void own_releases(struct program *p, struct worker *w, int64_t wait)
{
    static const int64_t leases[] = {25, 60, 400, 5000};
    int64_t lease = leases[draw(&w->chance, 4)], began = clock_ms();
    size_t client;
    pawl_lock *lock = own_lock(p, w, lease, wait, &client);
    int code = lock ? 1 : 0;

    for (uint64_t i = lock ? draw(&w->chance, 4) : 0; i > 0; i--)
        check_not_busy(p, "a renewal", pawl_lock_renew(lock, lease, NULL));
    for (uint64_t i = draw(&w->chance, 6); i > 0 && code; i--) {
        code = pawl_lock_release(lock, NULL);
        check_not_busy(p, "a release", code);
        if ((code == PAWL_ENOTHELD || code == PAWL_ELOST) && clock_ms() - began < lease * 4 / 5 &&
            !atomic_load_explicit(&p->closing[client], memory_order_relaxed))
            program_fail(p, "a release was told %s after %lld of %lld ms", pawl_errname(code),
                         (long long)(clock_ms() - began), (long long)lease);
    }
    keep_or_free(w, lock);
}

static void on_shared(struct program *p, struct worker *w, struct slot *slot, uint64_t what,
                      int64_t wait)
{
    pawl_lock *lock = slot_claim(slot);

    if (!lock)
        return;
    switch (what) {
    case 0: case 1: begin_acquire(p, w, slot, lock, wait); break;
    case 2: case 3: begin_release(p, w, slot, lock); break;
    case 4: case 5: acquire(p, w, slot, lock, wait); break;
    case 6: case 7: release(p, w, slot, lock); break;
    case 8: pawl_lock_cancel(lock); break;
    case 9: check_not_busy(p, "a renewal", pawl_lock_renew(lock, 0, NULL)); break;
    default:
        if (p->breaks)
            pawl_lock_break(lock, NULL);
        else
            pawl_lock_held(lock);
        break;
    }
    slot_leave(slot);
}

void wild_step(struct program *p, struct worker *w)
{
    size_t i = draw(&w->chance, SLOTS);
    int64_t wait = (int64_t)draw(&w->chance, 3) * 20;
    uint64_t what = draw(&w->chance, 18);

    if (what <= 10)
        on_shared(p, w, &p->slots[i], what, wait);
    else if (what == 11)
        renew_handle(p, w, i, NULL);
    else if (what == 12)
        with_multi(p, w, wait);
    else if (what == 13)
        own_handle(p, w, wait);
    else if (what < 16)
        own_releases(p, w, wait);
    else
        with_semaphore(p, w, wait);
}

void wild_prepare(struct program *p)
{
    pawl_semaphore_options so = {.size = sizeof so, .permits = 5};
    pawl_lock *members[2];

    p->breaks = draw(&p->chance, 4) == 0;
    p->lingers = p->faults && draw(&p->chance, 2);
    for (size_t i = 0; i < SLOTS; i++) {
        struct slot *slot = &p->slots[i];

        slot->client = i % p->nclients;
        slot->name = i % 4 / 2 % NAMES;
        slot->by_handle = i >= 2 && i != 3;
        slot->shared = draw(&p->chance, 3) == 0;
        slot->judged = i < SLOTS - 2;
    }
    p->slots[SLOTS - 2].name = 0;
    p->slots[SLOTS - 1].name = 1;
    for (size_t i = 0; i < SLOTS; i++)
        p->slots[i].lock = lock_new(p, &p->chance, i);
    for (size_t i = 0; i < 2; i++)
        members[i] = p->slots[SLOTS - 2 + i].lock;
    if (pawl_multi_new(&p->multi, members, 2, NULL))
        program_fail(p, "pawl_multi_new failed");
    for (size_t i = 0; i < p->nclients; i++)
        pawl_semaphore_new(&p->sem[i], p->client[i], "s", &so, NULL);
}
