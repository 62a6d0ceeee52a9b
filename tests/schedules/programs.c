/* SPDX-License-Identifier: Apache-2.0
 *
 * programs.c - the parts that all programs share: clients and threads, the judge, the end.
 *
 * A program opens its clients, starts its workers and perhaps a foreign loop, joins them, closes
 * the clients that no worker has closed, and checks that the done callback of every start ran once
 * and that a new client finds every name free.
 *
 * THE JUDGE. valid_ms is a promise: no other owner is granted the name before the end of that time.
 * After each grant the owner therefore writes the end of the time into a table, and compares it
 * with the entries of the other owners. Entries are cleared before a release begins; the entry of
 * an owner that lost the lock ends by itself. If two threads use one handle, one may release the
 * lock while the other is about to write: nothing is written while a release is under way, or if a
 * release has begun since the acquire. All this is sound because a steered thread runs alone
 * between two points, and the judge has no points.
 */
#include "programs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actors.h"

#define MS 1000000

uint64_t draw(uint64_t *chance, uint64_t n)
{
    uint64_t z = *chance += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % n;
}

static int64_t clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_ms(void)
{
    return clock_ns() / MS;
}

_Noreturn void program_fail(const struct program *p, const char *format, ...)
{
    char text[500];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (sched_active())
        sched_fail("%s (%s)", text, p->url);
    fprintf(stderr, "# program %llu: %s (%s)\n", (unsigned long long)p->seed, text, p->url);
    abort();
}

const char *name_of(size_t name)
{
    return name ? "b" : "a";
}

/* ---- starts and handles ---------------------------------------------------------------------- */

struct start *start_new(struct program *p, struct worker *w, struct slot *slot, pawl_lock *lock)
{
    unsigned i = atomic_fetch_add_explicit(&p->nstarts, 1, memory_order_relaxed);
    struct start *s = &p->starts[i];

    if (i >= STARTS)
        program_fail(p, "more than %d starts", STARTS);
    s->program = p;
    s->slot = slot;
    atomic_store_explicit(&s->lock, lock, memory_order_relaxed);
    s->worker = w;
    s->chance = p->seed * 1000003 + i;
    s->began = clock_ms();
    atomic_store_explicit(&s->begun, true, memory_order_release); /* see without_done() */
    return s;
}

void start_told(struct start *s)
{
    if (atomic_fetch_add_explicit(&s->told, 1, memory_order_relaxed))
        program_fail(s->program, "done was called twice");
}

pawl_lock *slot_claim(struct slot *slot)
{
    int n = atomic_load_explicit(&slot->users, memory_order_relaxed);

    do {
        if (n < 0)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&slot->users, &n, n + 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    return atomic_load_explicit(&slot->lock, memory_order_acquire);
}

bool slot_claim_as(struct slot *slot, const pawl_lock *lock)
{
    pawl_lock *now = slot_claim(slot);

    if (now && now != lock)
        slot_leave(slot);
    return now && now == lock;
}

void slot_leave(struct slot *slot)
{
    atomic_fetch_sub_explicit(&slot->users, 1, memory_order_release);
}

/* ---- the judge ------------------------------------------------------------------------------- */

size_t judge_owner(const struct program *p, const struct slot *slot, const struct worker *w)
{
    return slot->by_handle ? CLIENTS * THREADS_MAX + (size_t)(slot - p->slots)
                           : slot->client * THREADS_MAX + w->number;
}

static void look_at_others(struct program *p, const struct slot *slot, size_t owner, int64_t now)
{
    for (size_t i = 0; i < OWNERS; i++) {
        int64_t sole = atomic_load_explicit(&p->sole[slot->name][i], memory_order_relaxed);
        int64_t joint = atomic_load_explicit(&p->joint[slot->name][i], memory_order_relaxed);

        if (i != owner && (sole > now || (!slot->shared && joint > now)))
            program_fail(p, "owner %zu got '%s' %lld us before owner %zu's lease was over", owner,
                         name_of(slot->name), (long long)((sole > joint ? sole : joint) - now) /
                         1000, i);
    }
}

void judge_granted(struct program *p, struct slot *slot, size_t owner, pawl_lock *lock,
                   unsigned releases)
{
    int64_t before = clock_ns(), valid = pawl_lock_valid_ms(lock) * MS, now = clock_ns();

    if (!valid || p->breaks || !slot->judged || !sched_active() || before + valid <= now ||
        atomic_load_explicit(&slot->releasing, memory_order_relaxed) ||
        atomic_load_explicit(&p->closing[slot->client], memory_order_relaxed) ||
        releases != atomic_load_explicit(&slot->releases, memory_order_relaxed))
        return;
    look_at_others(p, slot, owner, now);
    atomic_store_explicit(slot->shared ? &p->joint[slot->name][owner] : &p->sole[slot->name][owner],
                          before + valid, memory_order_relaxed);
}

void judge_release_begins(struct program *p, struct slot *slot, size_t owner)
{
    atomic_fetch_add_explicit(&slot->releasing, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&slot->releases, 1, memory_order_relaxed);
    atomic_store_explicit(slot->shared ? &p->joint[slot->name][owner] : &p->sole[slot->name][owner],
                          0, memory_order_relaxed);
}

void judge_release_ends(struct slot *slot)
{
    atomic_fetch_sub_explicit(&slot->releasing, 1, memory_order_relaxed);
}

/* ---- a foreign loop -------------------------------------------------------------------------- */

static void *loop_main(void *arg)
{
    struct program *p = arg;
    struct pollfd fd = {pawl_client_fd(p->client[0]), POLLIN, 0};

    while (!atomic_load_explicit(&p->loop_ends, memory_order_relaxed)) {
        if (fd.fd >= 0)
            poll(&fd, 1, 5);
        if (pawl_client_process(p->client[0]) < 0)
            break;
    }
    return NULL;
}

static int is_holder(void *arg, const pawl_info *info)
{
    return info->role == PAWL_ROLE_HOLDER && !strcmp(info->label, arg);
}

static char *label_of(size_t client)
{
    static char labels[CLIENTS][8] = {"one", "two"};

    return labels[client];
}

/* pawl.h: a close that returns 0 means that the service has no lock of this client any more. */
static void look_for_holder(struct program *p, size_t which)
{
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, p->plain, NULL, &err))
        program_fail(p, "pawl_open: %s", err.text);
    for (const char *name = "abcds"; *name; name++) {
        char text[2] = {*name, 0};
        int code = pawl_inspect(client, text, is_holder, label_of(which), &err);

        if (code == 1)
            program_fail(p, "pawl_close returned 0, but the client still holds '%s'", text);
        if (code)
            program_fail(p, "pawl_inspect: %s", err.text);
    }
    pawl_close(client);
}

/* Closing a client releases its owners' locks: the judge no longer checks these owners. */
static void close_client(struct program *p, size_t which)
{
    int code;

    atomic_store_explicit(&p->closing[which], true, memory_order_relaxed);
    for (size_t i = 0; i < OWNERS; i++) {
        bool by_handle = i >= CLIENTS * THREADS_MAX;
        size_t client = by_handle ? p->slots[i - CLIENTS * THREADS_MAX].client : i / THREADS_MAX;

        for (size_t name = 0; name < NAMES && client == which; name++) {
            atomic_store_explicit(&p->sole[name][i], 0, memory_order_relaxed);
            atomic_store_explicit(&p->joint[name][i], 0, memory_order_relaxed);
        }
    }
    code = pawl_close(p->client[which]);
    if (code && !p->faults)
        program_fail(p, "pawl_close: %s", pawl_errname(code));
    if (!code && !p->lingers)
        look_for_holder(p, which);
}

/* ---- running --------------------------------------------------------------------------------- */

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct program *p = w->program;

    for (int i = 0; i < w->steps; i++) {
        if (p->closes && w->number == 0 && i == w->steps / 2)
            close_client(p, 0);
        if (p->wild)
            wild_step(p, w);
        else
            critical_step(p, w);
    }
    return NULL;
}

static void open_clients(struct program *p)
{
    pawl_client_options o = {.size = sizeof o};
    pawl_error err;

    if (p->wild) {
        o.watchdog_ms = draw(&p->chance, 3) ? 40 : 1000;
        o.timeout_ms = 50;
    }
    for (size_t i = 0; i < p->nclients; i++) {
        o.label = label_of(i);
        if (pawl_open(&p->client[i], p->url, &o, &err))
            program_fail(p, "pawl_open: %s", err.text);
    }
}

/* Nothing is left behind: a new client can acquire every name. */
static void look_for_remains(struct program *p)
{
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;

    if (p->faults)
        return;
    if (pawl_open(&client, p->url, NULL, &err))
        program_fail(p, "pawl_open: %s", err.text);
    for (size_t i = 0; i < NAMES; i++) {
        if (pawl_lock_new(&lock, client, name_of(i), NULL, &err) ||
            pawl_lock_acquire(lock, 0, &err))
            program_fail(p, "left over: %s", err.text);
        pawl_lock_free(lock);
    }
    pawl_close(client);
}

/* Wait for the end of sections in callbacks before a client is closed, because the close would
 * release their locks. */
static void await_outcomes(struct program *p)
{
    int64_t began = clock_ms();

    for (size_t i = 0; i < p->nstarts; i++)
        while (p->starts[i].begun != p->starts[i].told) {
            usleep(1000);
            if (sched_active() && clock_ms() - began > 5000)
                program_fail(p, "done of start %zu does not come", i);
        }
}

static void run_threads(struct program *p)
{
    pthread_t loop;

    if (p->fd_mode && pthread_create(&loop, NULL, loop_main, p))
        program_fail(p, "no thread");
    for (size_t i = 0; i < p->nworkers; i++) {
        struct worker *w = &p->workers[i];

        w->program = p;
        w->number = i;
        w->chance = p->seed * 31 + i + 1;
        w->steps = p->wild ? 6 + (int)draw(&p->chance, 18) : 4 + (int)draw(&p->chance, 8);
        if (pthread_create(&w->id, NULL, worker_main, w))
            program_fail(p, "no thread");
    }
    for (size_t i = 0; i < p->nworkers; i++)
        pthread_join(p->workers[i].id, NULL);
    if (!p->wild && !p->closes)
        await_outcomes(p);
    if (p->fd_mode) {
        atomic_store_explicit(&p->loop_ends, true, memory_order_relaxed);
        pthread_join(loop, NULL);
    }
}

static void end(struct program *p)
{
    for (size_t i = 0; i < p->nclients; i++)
        if (!p->closing[i])
            close_client(p, i);
    for (size_t i = 0; i < p->nstarts; i++)
        if (p->starts[i].begun != p->starts[i].told)
            program_fail(p, "done of start %zu was called %d times", i, p->starts[i].told);
    look_for_remains(p);
    pawl_lock_free(p->multi);
    for (size_t i = 0; i < SLOTS; i++)
        pawl_lock_free(p->slots[i].lock);
    for (size_t i = 0; i < p->nworkers; i++)
        while (p->workers[i].nkept > 0)
            pawl_lock_free(p->workers[i].kept[--p->workers[i].nkept]);
    for (size_t i = 0; i < p->nclients; i++)
        pawl_semaphore_free(p->sem[i]);
}

static void choose_url(struct program *p)
{
    static const char *const faults[] = {
        "late:counts=1;fault:delay=30",
        "late:counts=1,refuse=-5;fault:delay=20,lose=8,drop=8,refuse=4",
        "late:refuse=-4;fault:delay=20,lose=8,drop=8",
    };
    uint64_t kind = draw(&p->chance, p->wild ? 6 : 3);

    snprintf(p->plain, sizeof p->plain, "memory:%llu", (unsigned long long)p->seed);
    if (kind >= 3 && getenv("PAWL_ENGINE_DIR")) {
        p->faults = true;
        snprintf(p->url, sizeof p->url, "%s,seed=%llu;memory:%llu", faults[kind - 3],
                 (unsigned long long)p->seed, (unsigned long long)p->seed);
    } else if (kind == 0) {
        p->folder = temp_dir();
        snprintf(p->url, sizeof p->url, "local:%s", p->folder);
        snprintf(p->plain, sizeof p->plain, "%s", p->url);
    } else {
        snprintf(p->url, sizeof p->url, "%s", p->plain);
    }
}

bool program_is_wild(uint64_t seed)
{
    return seed % 2;
}

void program_run(uint64_t seed)
{
    static struct program p;

    memset(&p, 0, sizeof p);
    p.seed = seed;
    p.chance = seed;
    p.wild = program_is_wild(seed);
    p.nclients = 1 + draw(&p.chance, 2);
    p.nworkers = 2 + draw(&p.chance, THREADS_MAX - 1);
    p.fd_mode = draw(&p.chance, 5) == 0;
    p.closes = draw(&p.chance, 4) == 0;
    choose_url(&p);
    open_clients(&p);
    if (p.wild)
        wild_prepare(&p);
    else
        critical_prepare(&p);
    if (!p.wild && draw(&p.chance, 4) == 0)
        cancel_duel(&p);
    if (!p.wild && draw(&p.chance, 4) == 0)
        ended_thread(&p);
    run_threads(&p);
    end(&p);
    if (p.folder)
        remove_tree(p.folder);
    free(p.folder);
}
