/* SPDX-License-Identifier: Apache-2.0
 *
 * steer.c - decides which thread runs next (steer.h explains the purpose).
 *
 * STATES. A thread is RUNNABLE, blocked (ON_MUTEX, ON_COND, IN_POLL, IN_JOIN, ASLEEP) or ENDED. One
 * thread, `running`, has the baton; every other managed thread waits in a futex wait on its own
 * `go` word. Only the thread with the baton changes states and picks the next thread, at a point (a
 * call of wraps.c, an atomic or a function of the core). The thread stores 1 to the `go` word of
 * the next thread, and then waits on its own. So all data of this file have one writer at a time.
 *
 * Two kinds of threads don't follow this order: `strays`, and threads that the scheduler does not
 * know (made by libraries that were not linked with it), which may unlock a mutex or signal a
 * condition. Therefore every access is also under `big`, a lock made of one futex word.
 *
 * A STRAY is a thread that did not come to a point for STUCK seconds of real time, and is assumed
 * to be blocked in the kernel. A waiting thread notices this, and passes the baton to the next
 * thread. The stray queues up at its next point. Code that blocks only in wrapped calls has no
 * strays. A schedule with strays is safe, because all mutexes are real, but can't be replayed.
 *
 * THREADSANITIZER. This file is compiled without ThreadSanitizer, and uses raw futex calls only.
 * The baton therefore makes no "happens before": threads that run one after the other are still
 * concurrent to ThreadSanitizer unless the program's own mutexes order them. Mutexes are really
 * locked (by trylock); a wait on a condition is an unlock and a lock, and gives no other order.
 *
 * THE NEXT THREAD. PCT (Burckhardt and others, 2010): each thread has a random priority, the
 * runnable thread with the highest priority runs, and at `depth` random points the running thread
 * falls below all others. A race that needs d ordered events is met with a probability of at least
 * 1/(n k^(d-1)) per seed, for n threads and k points. One seed in four walks at random instead.
 * Each point takes a microsecond of virtual time. The clock jumps to the next timer when no thread
 * can run, and at random points (as if the process had been stopped), so that leases end in calls.
 */
#include "steer.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS 512
#define STUCK 8          /* seconds */
#define STARVED 10000    /* a thread falls below all others after this many points of its own */
#define STEPS_MAX 10000000
#define LONGEST (INT64_C(600) * 1000000000) /* of virtual time */
#define TICK 1000
#define EPOCH (INT64_C(1700000000) * 1000000000)

struct sched_thread {
    _Atomic int go;
    enum sched_state state;
    const void *what;
    int64_t until;
    struct pollfd *fds;
    nfds_t nfds;
    int64_t priority;
    unsigned ran; /* points since the thread got its priority */
    bool stray, joined, late;
    pthread_t id;
    enum sched_point point;
    const void *at;
};

static struct sched_thread threads[THREADS];
static size_t nthreads, alive;
static struct sched_thread *running;
static _Atomic int big;
static _Atomic bool active;
static uint64_t seed, chance, steps, hash, strays;
static int64_t now, lowest;
static struct sched_options opt;
static enum sched_way way;
static uint64_t changes[64];
static bool tracing;
static bool stale; /* a descriptor was written or closed since the pollers were checked */
static __thread struct sched_thread *me;

/* ---- raw pieces ------------------------------------------------------------------------------ */

static long futex(_Atomic int *word, int op, int value, const struct timespec *limit)
{
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, limit, NULL, 0);
}

void sched_lock(void)
{
    while (atomic_exchange(&big, 1))
        futex(&big, FUTEX_WAIT, 1, &(struct timespec){0, 1000000});
}

void sched_unlock(void)
{
    atomic_store(&big, 0);
    futex(&big, FUTEX_WAKE, 1, NULL);
}

uint64_t sched_draw(uint64_t n)
{
    uint64_t z = chance += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    z ^= z >> 31;
    return n ? z % n : z;
}

static void note(uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x100000001b3);
}

/* ---- reports --------------------------------------------------------------------------------- */

static const char *const state_names[] = {"can run", "waits for mutex", "waits on condition",
                                          "polls", "joins", "sleeps", "has ended"};
static const char *const point_names[] = {"lock", "unlock", "cond", "signal", "poll", "io",
                                          "create", "join", "sleep", "atomic", "function",
                                          "program", "end"};

_Noreturn void sched_fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "# schedule %llu, step %llu: ", (unsigned long long)seed,
            (unsigned long long)steps);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    for (size_t i = 0; i < nthreads; i++) {
        const struct sched_thread *t = &threads[i];

        if (t->state == ENDED)
            continue;
        fprintf(stderr, "#   thread %zu %s%s %p, last point: %s %p", i, state_names[t->state],
                t == running ? " (runs)" : t->stray ? " (in the kernel)" : "", t->what,
                point_names[t->point], t->at);
        if (t->until != SCHED_NEVER)
            fprintf(stderr, ", until %+lld us", (long long)(t->until - now) / 1000);
        fputc('\n', stderr);
    }
    abort();
}

uint64_t sched_steps(void)
{
    return steps;
}

uint64_t sched_hash(void)
{
    return hash;
}

uint64_t sched_strays(void)
{
    return strays;
}

int64_t sched_now(void)
{
    if (me)
        now += TICK / 20;
    return now;
}

bool sched_active(void)
{
    return active;
}

bool sched_managed(void)
{
    return active && me;
}

/* ---- time ------------------------------------------------------------------------------------ */

static int64_t next_due(void)
{
    int64_t due = sched_timers_next();

    for (size_t i = 0; i < nthreads; i++)
        if (threads[i].state != RUNNABLE && threads[i].state != ENDED && threads[i].until < due)
            due = threads[i].until;
    return due;
}

static void can_run(struct sched_thread *t, bool late)
{
    t->state = RUNNABLE;
    t->late = late;
}

static void ring(void)
{
    stale |= sched_timers_ring(now);
    for (size_t i = 0; i < nthreads; i++) {
        struct sched_thread *t = &threads[i];

        if (t->state == RUNNABLE || t->state == ENDED)
            continue;
        if (t->state == IN_POLL && stale && syscall(SYS_poll, t->fds, t->nfds, 0) > 0)
            can_run(t, false);
        else if (t->until <= now)
            can_run(t, true);
    }
    stale = false;
}

/* ---- the next thread ------------------------------------------------------------------------- */

static struct sched_thread *highest(void)
{
    struct sched_thread *best = NULL;

    for (size_t i = 0; i < nthreads; i++)
        if (threads[i].state == RUNNABLE && !threads[i].stray &&
            (!best || threads[i].priority > best->priority))
            best = &threads[i];
    return best;
}

static struct sched_thread *by_lot(void)
{
    struct sched_thread *chosen = NULL;
    uint64_t n = 0;

    if (running && running->state == RUNNABLE && sched_draw(4))
        return running;
    for (size_t i = 0; i < nthreads; i++)
        if (threads[i].state == RUNNABLE && !threads[i].stray && sched_draw(++n) == 0)
            chosen = &threads[i];
    return chosen;
}

static struct sched_thread *choose_next(void)
{
    return way == SCHED_PCT ? highest() : by_lot();
}

/* No thread can run. True: time went on, or a thread that is not steered may have done
 * something. */
static bool pass_time(unsigned *naps)
{
    int64_t due = next_due();
    bool anybody = false;

    for (size_t i = 0; i < nthreads; i++)
        anybody |= threads[i].stray;
    if (due != SCHED_NEVER && !anybody) {
        if (due > now)
            now = due;
        return true;
    }
    if (++*naps > (anybody ? 60000u : 300u))
        return false;
    sched_unlock();
    syscall(SYS_nanosleep, &(struct timespec){0, 1000000}, NULL);
    sched_lock();
    return true;
}

static struct sched_thread *pick(void)
{
    struct sched_thread *next;
    unsigned naps = 0;

    ring();
    next = choose_next();
    if (!next) { /* a library may have written or closed a descriptor */
        stale = true;
        ring();
        next = choose_next();
    }
    for (; !next; next = choose_next()) {
        if (!pass_time(&naps))
            sched_fail("deadlock: every thread waits and no timer is pending");
        stale = true;
        ring();
    }
    return next;
}

/* ---- the baton ------------------------------------------------------------------------------- */

/* Called with `big`. The thread with the baton came to no point for long: another thread goes
 * on. */
static void steal(void)
{
    if (!running || running->stray)
        return;
    running->stray = true;
    strays++;
    running = pick();
    running->go = 1;
    futex(&running->go, FUTEX_WAKE, 1, NULL);
}

static void await_turn(void)
{
    uint64_t seen = steps;
    int quiet = 0;

    while (!atomic_exchange(&me->go, 0) && active) {
        futex(&me->go, FUTEX_WAIT, 0, &(struct timespec){1, 0});
        quiet = seen == steps ? quiet + 1 : 0;
        seen = steps;
        if (quiet > STUCK) {
            sched_lock();
            if (seen == steps && !me->go)
                steal();
            sched_unlock();
            quiet = 0;
        }
    }
}

/* Called with `big`, which this function unlocks. */
static void hand_over(void)
{
    struct sched_thread *next = pick();
    bool mine = next == me;

    if (!mine) {
        note((uint64_t)(next - threads));
        if (tracing)
            fprintf(stderr, "# %8llu %10lld us: %zd %s %s %p -> %zd\n", (unsigned long long)steps,
                    (long long)(now - EPOCH) / 1000, me ? me - threads : -1,
                    me ? state_names[me->state] : "", me ? point_names[me->point] : "",
                    me ? me->at : NULL, next - threads);
        running = next;
        next->go = 1;
        futex(&next->go, FUTEX_WAKE, 1, NULL);
    }
    sched_unlock();
    if (!mine && me && me->state != ENDED)
        await_turn();
}

/* A stray has come to a point again and queues up. Called with `big`. */
static void come_back(void)
{
    if (!me->stray)
        return;
    me->stray = false;
    sched_unlock();
    await_turn();
    sched_lock();
}

void sched_demote(void)
{
    if (!me)
        return;
    me->priority = --lowest;
    me->ran = 0;
}

static void count_point(enum sched_point kind, const void *what)
{
    steps++;
    now += TICK;
    me->point = kind;
    me->at = what;
    note((uint64_t)kind);
    if (steps > STEPS_MAX || now > EPOCH + LONGEST)
        sched_fail("no end after %lld s of virtual time", (long long)(now - EPOCH) / 1000000000);
    for (int i = 0; way == SCHED_PCT && i < opt.depth; i++)
        if (changes[i] == steps)
            sched_demote();
    if (++me->ran > STARVED) /* the thread may poll for something that others must do */
        sched_demote();
    if (opt.jumps > 0 && sched_draw((uint64_t)opt.jumps) == 0) {
        int64_t due = next_due();

        if (due != SCHED_NEVER && due > now)
            now = due;
    }
}

void sched_point(enum sched_point kind, const void *what)
{
    if (!active || !me || (kind == POINT_FUNCTION && (opt.functions < 0 || alive < 2)))
        return;
    sched_lock();
    come_back();
    count_point(kind, what);
    hand_over();
    stale |= kind == POINT_IO; /* the call follows */
}

void sched_yield_point(void)
{
    sched_point(POINT_PROGRAM, NULL);
}

bool sched_block(enum sched_state state, const void *what, int64_t until)
{
    sched_lock();
    come_back();
    me->state = state;
    me->what = what;
    me->until = until;
    me->late = false;
    hand_over();
    me->until = SCHED_NEVER;
    return !me->late;
}

bool sched_block_poll(struct pollfd *fds, nfds_t n, int64_t until)
{
    me->fds = fds;
    me->nfds = n;
    return sched_block(IN_POLL, fds, until);
}

void sched_wake(enum sched_state state, const void *what, bool all)
{
    struct sched_thread *one = NULL;
    uint64_t n = 0;

    if (!active)
        return;
    sched_lock();
    for (size_t i = 0; i < nthreads; i++) {
        struct sched_thread *t = &threads[i];

        if (t->state != state || t->what != what)
            continue;
        if (all)
            can_run(t, false);
        else if (sched_draw(++n) == 0)
            one = t;
    }
    if (one)
        can_run(one, false);
    sched_unlock();
}

bool sched_anybody(enum sched_state state, const void *what)
{
    bool found = false;

    sched_lock();
    for (size_t i = 0; i < nthreads; i++)
        found |= threads[i].state == state && threads[i].what == what;
    sched_unlock();
    return found;
}

/* ---- threads --------------------------------------------------------------------------------- */

struct sched_thread *sched_thread_new(void)
{
    struct sched_thread *t = NULL;

    sched_lock();
    for (size_t i = 0; i < THREADS && !t; i++)
        if (i == nthreads || (threads[i].state == ENDED && threads[i].joined))
            t = &threads[i];
    if (t) {
        *t = (struct sched_thread){.state = RUNNABLE, .until = SCHED_NEVER,
                                   .priority = (int64_t)sched_draw(1 << 30)};
        nthreads += t == &threads[nthreads];
        alive++;
    }
    sched_unlock();
    return t;
}

void sched_thread_id(struct sched_thread *t, pthread_t id)
{
    t->id = id;
}

void sched_thread_begin(struct sched_thread *t)
{
    me = t;
    await_turn();
}

void sched_thread_end(void)
{
    struct sched_thread *t = me;

    if (!active || !t)
        return;
    sched_lock();
    come_back();
    steps++;
    t->point = POINT_END;
    t->state = ENDED;
    alive--;
    for (size_t i = 0; i < nthreads; i++)
        if (threads[i].state == IN_JOIN && threads[i].what == t)
            can_run(&threads[i], false);
    hand_over();
    me = NULL;
}

struct sched_thread *sched_thread_find(pthread_t id)
{
    for (size_t i = 0; i < nthreads; i++)
        if (!threads[i].joined && pthread_equal(threads[i].id, id))
            return &threads[i];
    return NULL;
}

bool sched_thread_ended(const struct sched_thread *t)
{
    return t->state == ENDED;
}

void sched_thread_joined(struct sched_thread *t)
{
    t->joined = true;
}

void sched_thread_poke(struct sched_thread *t)
{
    sched_lock();
    if (t->state != ENDED && t->state != RUNNABLE)
        can_run(t, false);
    sched_unlock();
}

/* ---- beginning and end ----------------------------------------------------------------------- */

static void choose(const struct sched_options *given)
{
    static const uint64_t lengths[] = {100, 300, 1000, 3000, 10000};
    uint64_t kind = sched_draw(4), depth = 1 + sched_draw(6), length = sched_draw(5),
             functions = sched_draw(3), jumps = sched_draw(3);

    opt = given ? *given : (struct sched_options){0};
    way = kind == 0 ? SCHED_WALK : SCHED_PCT;
    opt.depth = opt.depth ? opt.depth : (int)depth;
    opt.length = opt.length ? opt.length : lengths[length];
    opt.functions = opt.functions ? opt.functions : functions == 0 ? 1 : -1;
    if (opt.functions > 0 && !(given && given->length))
        opt.length *= 10;
    opt.jumps = opt.jumps ? opt.jumps : jumps == 0 ? 200 : -1;
    for (int i = 0; i < opt.depth && i < 64; i++)
        changes[i] = 1 + sched_draw(opt.length);
}

void sched_start(uint64_t with, const struct sched_options *options)
{
    if (active)
        return;
    seed = with;
    chance = with * UINT64_C(0xd1342543de82ef95) + 1;
    steps = strays = 0;
    hash = UINT64_C(0xcbf29ce484222325);
    now = EPOCH;
    lowest = 0;
    nthreads = alive = 0;
    sched_timers_clear();
    tracing = getenv("PAWL_SCHEDULE_TRACE") != NULL;
    big = 0;
    choose(options);
    me = sched_thread_new();
    me->id = pthread_self();
    running = me;
    active = true;
}

bool sched_begins(void)
{
    const char *text;

    if (!active && (text = getenv("PAWL_SCHEDULE_SEED")) && *text)
        sched_start(strtoull(text, NULL, 10), &(struct sched_options){.jumps = -1});
    return sched_managed();
}

/* Threads that are left (there should be none) go on without the scheduler. */
void sched_stop(void)
{
    active = false;
    for (size_t i = 0; i < nthreads; i++)
        if (&threads[i] != me && threads[i].state != ENDED) {
            threads[i].go = 1;
            futex(&threads[i].go, FUTEX_WAKE, 1, NULL);
        }
    me = NULL;
}

void sched_forked(void)
{
    active = false;
    me = NULL;
    sched_timers_clear();
}
