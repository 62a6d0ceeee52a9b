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
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"

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

/* ---- a thread that ends ---------------------------------------------------------------------- */

enum { HELD, STARTED, RELEASED, HOWS };     /* what the thread has done when it ends */
enum { BREAK, FREE, CLOSE, CALLBACK, RIDS }; /* what ends its lock */

/* A thread, and the waiters behind it: threads of the same client and of another one. */
struct ended {
    struct program *program;
    pawl_client *client;
    pawl_lock *lock; /* of the thread that ends */
    uint64_t how, rid;
    bool again;      /* the thread begins to acquire the lock once more before it ends */
    struct start *start;
    _Atomic int code; /* of the thread's start */
};

struct behind {
    struct ended *ended;
    pawl_lock *lock;
    bool own; /* of the same client */
    int64_t done; /* ms */
    pthread_t id;
};

static void ended_told(void *arg, pawl_lock *lock, int code)
{
    struct start *s = arg;

    (void)lock;
    start_told(s);
    if (code && code != PAWL_ELOST && code != PAWL_ECANCELED)
        program_fail(s->program, "a start of a thread that ended was told %s", pawl_errname(code));
}

static void release_soon(struct ended *e, pawl_lock *lock)
{
    struct start *s = start_new(e->program, NULL, NULL, lock);

    if (pawl_lock_release_start(lock, ended_told, s))
        program_fail(e->program, "the release of a thread that ends could not be started");
}

static void ended_granted(void *arg, pawl_lock *lock, int code)
{
    struct ended *e = arg;

    start_told(e->start);
    if (code == 0 && e->rid == CALLBACK)
        release_soon(e, lock);
    atomic_store_explicit(&e->code, code, memory_order_release);
}

static void *ends(void *arg)
{
    struct ended *e = arg;
    int code = e->how == STARTED ? pawl_lock_acquire_start(e->lock, PAWL_FOREVER, ended_granted, e)
                                 : pawl_lock_acquire(e->lock, PAWL_FOREVER, NULL);

    if (code)
        program_fail(e->program, "the acquire of a thread that ends: %s", pawl_errname(code));
    if (e->how == RELEASED)
        release_soon(e, e->lock);
    else if (e->again && pawl_lock_acquire_start(e->lock, 0, ended_told,
                                                 start_new(e->program, NULL, NULL, e->lock)))
        program_fail(e->program, "a thread that ends could not acquire its lock again");
    return NULL;
}

static void *waits_behind(void *arg)
{
    struct behind *b = arg;
    struct program *p = b->ended->program;
    int code = pawl_lock_acquire(b->lock, PAWL_FOREVER, NULL);

    b->done = clock_ms();
    if (code && !(b->own && b->ended->rid == CLOSE))
        program_fail(p, "an acquire behind a thread that ended: %s", pawl_errname(code));
    if (code == 0) {
        if (!b->own || b->ended->rid != CLOSE)
            section(p, 0);
        code = pawl_lock_release(b->lock, NULL);
        if (code && !(b->own && b->ended->rid == CLOSE))
            program_fail(p, "a release behind a thread that ended: %s", pawl_errname(code));
    }
    return NULL;
}

static pawl_lock *mutex_new(struct program *p, pawl_client *client, int64_t at_least)
{
    pawl_lock_options o = {.size = sizeof o, .at_least_ms = at_least};
    pawl_lock *lock;
    pawl_error err;

    if (pawl_lock_new(&lock, client, name_of(0), &o, &err))
        program_fail(p, "pawl_lock_new: %s", err.text);
    return lock;
}

static void begin_behind(struct ended *e, struct behind *b, pawl_client *client)
{
    b->ended = e;
    b->own = client == e->client;
    b->lock = mutex_new(e->program, client, 0);
    if (pthread_create(&b->id, NULL, waits_behind, b))
        program_fail(e->program, "no thread");
}

/* End the lock of the ended thread. */
static void get_rid(struct ended *e, pawl_lock *other)
{
    int code = 0;

    if (e->rid == BREAK)
        code = pawl_lock_break(other, NULL);
    else if (e->rid == FREE)
        pawl_lock_free(e->lock);
    else if (e->rid == CLOSE)
        code = pawl_close(e->client);
    if (code)
        program_fail(e->program, "the lock of a thread that ended: %s", pawl_errname(code));
}

/* A thread ends that holds a mutex, or acquires or releases it asynchronously. The lease lasts much
 * longer than SOON: the waiters get the lock because its end is noticed. */
void ended_thread(struct program *p)
{
    struct worker w = {.program = p, .chance = p->seed * 7 + 5};
    struct ended e = {.program = p, .how = draw(&w.chance, HOWS), .code = -1000};
    size_t n = 1 + draw(&w.chance, 3), early = draw(&w.chance, n + 1);
    bool several = draw(&w.chance, 2), contended = draw(&w.chance, 2);
    bool foreign = draw(&w.chance, 4) == 0; /* mostly no loop drives: the background steps in */
    struct behind behind[3];
    pawl_lock *first, *other = mutex_new(p, p->client[0], 0);
    char url[sizeof p->url + 40];
    pthread_t thread;
    int64_t began;

    e.rid = draw(&w.chance, e.how == STARTED ? RIDS : CALLBACK);
    if (getenv("PAWL_ENGINE_DIR") && draw(&w.chance, 2)) /* without PAWL_CAP_LINGER */
        snprintf(url, sizeof url, "late:counts=1,without=%d;%s", PAWL_CAP_LINGER, p->url);
    else
        snprintf(url, sizeof url, "%s", p->url);
    if (pawl_open(&e.client, url, NULL, NULL))
        program_fail(p, "pawl_open failed");
    if (foreign)
        pawl_client_fd(e.client);
    e.again = e.how == HELD && draw(&w.chance, 2);
    e.lock = mutex_new(p, e.client, e.rid != CLOSE && draw(&w.chance, 2) ? 50 : 0);
    first = mutex_new(p, e.client, 0);
    if (e.how == STARTED) {
        e.start = start_new(p, &w, NULL, e.lock);
        if (pawl_lock_acquire(first, PAWL_FOREVER, NULL))
            program_fail(p, "a free lock was not acquired");
        for (size_t i = 0; i < early && contended; i++)
            begin_behind(&e, &behind[i], several && i % 2 ? p->client[0] : e.client);
    }
    if (e.how != STARTED || !contended)
        early = 0;
    if (pthread_create(&thread, NULL, ends, &e))
        program_fail(p, "no thread");
    if (e.how == STARTED && draw(&w.chance, 2)) {
        if (pawl_lock_release(first, NULL))
            program_fail(p, "a release failed");
        pthread_join(thread, NULL);
    } else {
        pthread_join(thread, NULL);
    }
    for (size_t i = early; i < n; i++)
        begin_behind(&e, &behind[i], several && i % 2 ? p->client[0] : e.client);
    if (e.how == STARTED) {
        if (pawl_lock_held(first) && pawl_lock_release(first, NULL))
            program_fail(p, "a release failed");
        while (atomic_load_explicit(&e.code, memory_order_acquire) == -1000) {
            usleep(1000);
            if (foreign)
                pawl_client_process(e.client);
        }
        if (e.code)
            program_fail(p, "the acquire of a thread that ended: %s", pawl_errname(e.code));
    }
    for (uint64_t i = draw(&w.chance, 6); i > 0; i--)
        sched_yield_point();
    if (draw(&w.chance, 2))
        usleep((useconds_t)draw(&w.chance, 40) * 1000);
    began = clock_ms();
    if (e.how != RELEASED)
        get_rid(&e, other);
    for (size_t i = 0; i < n; i++) {
        pthread_join(behind[i].id, NULL);
        if (sched_active() && sched_strays() == 0 && behind[i].done - began > SOON)
            program_fail(p, "an acquire behind a thread that ended took %lld ms",
                         (long long)(behind[i].done - began));
        pawl_lock_free(behind[i].lock);
    }
    if (e.how == RELEASED || e.rid != CLOSE)
        pawl_close(e.client);
    if (e.how == RELEASED || e.rid != FREE)
        pawl_lock_free(e.lock);
    pawl_lock_free(first);
    pawl_lock_free(other);
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
