/* SPDX-License-Identifier: Apache-2.0
 *
 * critical.c - programs of critical sections: long leases, no faults.
 *
 * Each step of a worker is a section (or a wait that another thread may cancel) through a handle of
 * its own: blocking, asynchronous, of a multi-lock or of a semaphore. `inside` is a plain counter:
 * the counter shows if the library lets two owners in, and ThreadSanitizer reports if the library's
 * mutexes do not order the two. Sections last some points of the scheduler, so no thread has to
 * wait longer than SOON, and a lost wake-up shows as a wait for the next timer of the library.
 */
#include "programs.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define SOON 1000 /* ms */

static void check_wait(struct program *p, int64_t began, const char *what)
{
    int64_t took = clock_ms() - began;

    if (sched_active() && sched_strays() == 0 && took > SOON)
        program_fail(p, "%s took %lld ms", what, (long long)took);
}

/* Two clients of local: are ordered by atomics in one file, which each client has mapped at another
 * address. ThreadSanitizer compares addresses and can't see this order, so for local: the counter
 * is atomic. */
static int enter(struct program *p, size_t name, int by)
{
    if (p->folder && p->nclients > 1)
        return atomic_fetch_add_explicit(&p->inside_files[name], by, memory_order_relaxed);
    p->inside[name] += by;
    return p->inside[name] - by;
}

/* Between acquire and release. */
static void section(struct program *p, size_t name)
{
    if (enter(p, name, 1) != 0)
        program_fail(p, "two owners of '%s'", name_of(name));
    for (int i = 0; i < 3; i++)
        sched_yield_point();
    if (enter(p, name, -1) != 1)
        program_fail(p, "two owners of '%s'", name_of(name));
}

/* Whether the call may have ended with this code because the client is being closed. */
static bool closed(struct program *p, size_t client, int code)
{
    return (code == PAWL_ESTATE || code == PAWL_ECANCELED || code == PAWL_ELOST ||
            code == PAWL_ENOTHELD) &&
           atomic_load_explicit(&p->closing[client], memory_order_relaxed);
}

static pawl_lock *lock_new(struct program *p, struct worker *w, size_t client, size_t name,
                           uint64_t owner)
{
    static const uint64_t kinds[] = {PAWL_MUTEX, PAWL_MUTEX, PAWL_FAIR, PAWL_WRITE, PAWL_SPIN};
    pawl_lock_options o = {.size = sizeof o, .kind = kinds[draw(&w->chance, 5)], .owner = owner};
    pawl_lock *lock = NULL;
    pawl_error err;

    if (atomic_load_explicit(&p->closing[client], memory_order_relaxed))
        return NULL;
    if (pawl_lock_new(&lock, p->client[client], name_of(name), &o, &err) &&
        !closed(p, client, err.code))
        program_fail(p, "pawl_lock_new: %s", err.text);
    return lock;
}

static void blocking(struct program *p, struct worker *w, size_t client, size_t name)
{
    pawl_lock *lock = lock_new(p, w, client, name, draw(&w->chance, 2));
    int64_t wait = draw(&w->chance, 3) ? PAWL_FOREVER : 2, began = clock_ms();
    pawl_error err;
    int code;

    if (!lock)
        return;
    code = pawl_lock_acquire(lock, wait, &err);
    check_wait(p, began, "an acquire");
    if (code == 0) {
        bool open = !atomic_load_explicit(&p->closing[client], memory_order_relaxed);

        if (open && !p->closes) /* a close releases held locks: no section then */
            section(p, name);
        if (draw(&w->chance, 3)) {
            code = pawl_lock_release(lock, &err);
            if (code && !closed(p, client, code))
                program_fail(p, "a release: %s", err.text);
        } /* else: freeing releases */
    } else if (!(code == PAWL_ETIMEDOUT && wait > 0) && !closed(p, client, code)) {
        program_fail(p, "an acquire: %s", err.text);
    }
    pawl_lock_free(lock);
}

/* ---- asynchronous ---------------------------------------------------------------------------- */

static void let_go(void *arg, pawl_lock *lock, int code)
{
    struct start *s = arg;

    start_told(s);
    check_wait(s->program, s->began, "an asynchronous release");
    if (code && !closed(s->program, s->slot->client, code))
        program_fail(s->program, "a release was told %s", pawl_errname(code));
    pawl_lock_free(lock);
    free(s->slot);
}

static void granted(void *arg, pawl_lock *lock, int code)
{
    struct start *s = arg, *next;
    struct program *p = s->program;

    start_told(s);
    check_wait(p, s->began, "an asynchronous acquire");
    if (code && code != PAWL_ETIMEDOUT && !closed(p, s->slot->client, code))
        program_fail(p, "an acquire was told %s", pawl_errname(code));
    if (code == 0 && !p->closes)
        section(p, s->slot->name);
    if (code == 0 && draw(&s->chance, 3)) {
        next = start_new(p, s->worker, s->slot, lock);
        if (!pawl_lock_release_start(lock, let_go, next))
            return;
        atomic_store_explicit(&next->begun, false, memory_order_relaxed);
        if (!closed(p, s->slot->client, PAWL_ESTATE))
            program_fail(p, "a release could not be started");
    }
    pawl_lock_free(lock);
    free(s->slot);
}

static void asynchronous(struct program *p, struct worker *w, size_t client, size_t name)
{
    pawl_lock *lock = lock_new(p, w, client, name, PAWL_OWNER_HANDLE);
    struct slot *slot;
    struct start *s;
    int code;

    if (!lock)
        return;
    slot = calloc(1, sizeof *slot);
    slot->client = client;
    slot->name = name;
    s = start_new(p, w, slot, lock);
    code = pawl_lock_acquire_start(lock, draw(&w->chance, 3) ? PAWL_FOREVER : 2, granted, s);
    if (code == 0)
        return;
    if (!closed(p, client, code))
        program_fail(p, "an acquire could not be started: %s", pawl_errname(code));
    atomic_store_explicit(&s->begun, false, memory_order_relaxed);
    pawl_lock_free(lock);
    free(slot);
}

/* ---- others ---------------------------------------------------------------------------------- */

static pawl_lock *multi_new(struct program *p, struct worker *w, uint64_t owner,
                            pawl_lock **members)
{
    pawl_lock *multi = NULL;
    pawl_error err;

    for (size_t i = 0; i < NAMES; i++)
        if (!(members[i] = lock_new(p, w, i % p->nclients, i, owner))) {
            while (i-- > 0)
                pawl_lock_free(members[i]);
            return NULL;
        }
    if (pawl_multi_new(&multi, members, NAMES, &err))
        program_fail(p, "pawl_multi_new: %s", err.text);
    return multi;
}

static void *free_lock(void *arg)
{
    pawl_lock_free(arg);
    return NULL;
}

/* Members are freed together with the multi-lock, or later. */
static void free_members(struct worker *w, pawl_lock **members)
{
    bool keeps = w->nkept + NAMES <= KEPT && draw(&w->chance, 2);

    for (size_t i = 0; i < NAMES; i++)
        if (keeps)
            w->kept[w->nkept++] = members[i];
        else
            pawl_lock_free(members[i]);
}

/* Freeing the multi-lock, here or in another thread, releases the locks acquired through it. */
static void free_multi(struct program *p, struct worker *w, pawl_lock *multi)
{
    pthread_t thread;

    if (draw(&w->chance, 2)) {
        pawl_lock_free(multi);
        return;
    }
    if (pthread_create(&thread, NULL, free_lock, multi))
        program_fail(p, "no thread");
    pthread_join(thread, NULL);
}

static void several(struct program *p, struct worker *w)
{
    pawl_lock *members[NAMES], *multi = multi_new(p, w, draw(&w->chance, 2), members);
    int64_t began = clock_ms();
    pawl_error err;
    int code;

    if (!multi)
        return;
    code = pawl_lock_acquire(multi, PAWL_FOREVER, &err);
    check_wait(p, began, "an acquire of several");
    if (code && !closed(p, 0, code))
        program_fail(p, "an acquire of several: %s", err.text);
    for (size_t i = 0; i < NAMES && !code && !p->closes; i++)
        section(p, i);
    if (!code && draw(&w->chance, 2)) {
        code = pawl_lock_release(multi, &err);
        if (code && !closed(p, 0, code))
            program_fail(p, "a release of several: %s", err.text);
    }
    free_multi(p, w, multi);
    free_members(w, members);
}

static void chain_ended(void *arg, pawl_lock *multi, int code)
{
    struct start *s = arg;

    (void)multi;
    start_told(s);
    if (code == PAWL_ESTATE && (s->members_first || s->program->closes))
        return; /* a member was freed before the multi-lock, or the client is closed */
    if (code && code != PAWL_ECANCELED)
        program_fail(s->program, "an acquire of several was told %s", pawl_errname(code));
}

/* Start an acquire of a multi-lock, and free the multi-lock and its members at once, in any order:
 * the asynchronous acquire must clean up. */
static void several_freed(struct program *p, struct worker *w)
{
    pawl_lock *members[NAMES], *multi = multi_new(p, w, PAWL_OWNER_HANDLE, members);
    bool last = draw(&w->chance, 2);
    struct start *s;

    if (!multi)
        return;
    s = start_new(p, w, NULL, multi);
    s->members_first = last;
    if (pawl_lock_acquire_start(multi, PAWL_FOREVER, chain_ended, s))
        atomic_store_explicit(&s->begun, false, memory_order_relaxed);
    for (uint64_t i = draw(&w->chance, 3); i > 0; i--)
        sched_yield_point();
    if (!last)
        pawl_lock_free(multi);
    for (size_t i = 0; i < NAMES; i++)
        pawl_lock_free(members[i]);
    if (last)
        pawl_lock_free(multi);
}

static void permits(struct program *p, struct worker *w, size_t client)
{
    uint32_t n = 1 + (uint32_t)draw(&w->chance, 2);
    int64_t began = clock_ms();
    pawl_error err;
    int code = pawl_semaphore_acquire(p->sem[client], n, PAWL_FOREVER, &err);

    check_wait(p, began, "an acquire of permits");
    if (code == 0) {
        bool judged = !p->closes;

        if (judged &&
            atomic_fetch_add_explicit(&p->permits, (int)n, memory_order_relaxed) + (int)n > 2)
            program_fail(p, "more than 2 permits");
        sched_yield_point();
        if (judged)
            atomic_fetch_sub_explicit(&p->permits, (int)n, memory_order_relaxed);
        code = pawl_semaphore_release(p->sem[client], n, &err);
    }
    if (code && !closed(p, client, code))
        program_fail(p, "permits: %s", err.text);
}

/* A handle that all threads share: other threads may cancel a wait through this handle. */
static void cancelled(struct program *p, struct worker *w)
{
    struct slot *slot = &p->slots[draw(&w->chance, SLOTS)];
    pawl_lock *lock = slot_claim(slot);
    pawl_error err;
    int code;

    if (draw(&w->chance, 2)) {
        pawl_lock_cancel(lock);
    } else if ((code = pawl_lock_acquire(lock, 20, &err)) == 0) {
        if (!p->closes)
            section(p, slot->name);
        pawl_lock_release(lock, NULL);
    } else if (code != PAWL_ETIMEDOUT && code != PAWL_ECANCELED &&
               !closed(p, slot->client, code)) {
        program_fail(p, "an acquire of all: %s", err.text);
    }
    slot_leave(slot);
}

/* ---- a cancel that nobody else can make up for ----------------------------------------------- */

static void *wait_for_both(void *arg)
{
    struct program *p = arg;
    int code = pawl_lock_acquire(p->multi, PAWL_FOREVER, NULL);

    if (code == 0)
        pawl_lock_release(p->multi, NULL);
    atomic_store_explicit(&p->ended, true, memory_order_relaxed);
    return NULL;
}

/* The second member is held until the acquire of the multi-lock has ended. So the acquire must end
 * by the cancel, which reported that it found the acquire; otherwise there is a deadlock. */
void cancel_duel(struct program *p)
{
    struct worker w = {.program = p, .chance = p->seed};
    pawl_lock *members[NAMES], *other = lock_new(p, &w, 0, 1, PAWL_OWNER_HANDLE);
    pthread_t thread;

    if (pawl_lock_acquire(other, PAWL_FOREVER, NULL))
        program_fail(p, "a free lock was not acquired");
    p->multi = multi_new(p, &w, PAWL_OWNER_HANDLE, members);
    if (pthread_create(&thread, NULL, wait_for_both, p))
        program_fail(p, "no thread");
    while (pawl_lock_cancel(p->multi) == 0 &&
           !atomic_load_explicit(&p->ended, memory_order_relaxed)) /* refused as it began */
        sched_yield();
    pthread_join(thread, NULL);
    pawl_lock_free(other);
    pawl_lock_free(p->multi);
    p->multi = NULL;
    for (size_t i = 0; i < NAMES; i++)
        pawl_lock_free(members[i]);
}

void critical_step(struct program *p, struct worker *w)
{
    size_t client = draw(&w->chance, p->nclients), name = draw(&w->chance, NAMES);

    switch (draw(&w->chance, 9)) {
    case 0: case 1: case 2: blocking(p, w, client, name); break;
    case 3: case 4: asynchronous(p, w, client, name); break;
    case 5: several(p, w); break;
    case 6: permits(p, w, client); break;
    case 7: several_freed(p, w); break;
    default: cancelled(p, w); break;
    }
}

void critical_prepare(struct program *p)
{
    struct worker prepares = {.program = p, .chance = p->seed};
    pawl_semaphore_options so = {.size = sizeof so, .permits = 2};

    for (size_t i = 0; i < SLOTS; i++) {
        p->slots[i].client = i % p->nclients;
        p->slots[i].name = i % NAMES;
        p->slots[i].lock = lock_new(p, &prepares, i % p->nclients, i % NAMES, PAWL_OWNER_THREAD);
    }
    for (size_t i = 0; i < p->nclients; i++)
        pawl_semaphore_new(&p->sem[i], p->client[i], "s", &so, NULL);
}
