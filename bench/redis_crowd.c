/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_crowd.c - how often one lock changes hands among 2 to 256 processes that acquire and
 * release the lock in a loop: Pawl beside subscribe-and-retry, once with the commands that
 * Redisson sends, and once with as few commands as possible.
 *
 * A hand-over is counted when the holder is another process than the holder before. Pawl serves
 * waiters in order, so every acquire is a hand-over. With subscribe-and-retry the process that has
 * just released is often the first to try again, so the number of all acquires is printed, too,
 * and the number of scripts that the server ran for each hand-over.
 *
 * All crowds exist all the time; one runs while the others are parked on a futex. In every critical
 * section the processes check that they are alone.
 */
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "redis.h"

#define CROWD_MAX 256
#define SLICES 5
#define WARM_NS 150000000
#define SLICE_NS 500000000
#define END (~0u)

struct crowd {
    _Atomic uint32_t phase; /* odd: run; even: park; END */
    atomic_int parked, inside, last;
    atomic_long acquires, handovers;
    const struct subject *subject;
    int size;
    pid_t members[CROWD_MAX];
    double slices[SLICES], acquired[SLICES], scripts[SLICES]; /* the figures */
};

static void phase_wait(struct crowd *c, uint32_t while_it_is)
{
    while (atomic_load(&c->phase) == while_it_is)
        syscall(SYS_futex, &c->phase, FUTEX_WAIT, while_it_is, NULL, NULL, 0);
}

static void phase_set(struct crowd *c, uint32_t phase)
{
    atomic_store(&c->phase, phase);
    syscall(SYS_futex, &c->phase, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- a member -------------------------------------------------------------------------------- */

static void critical_section(struct crowd *c, int me)
{
    if (atomic_fetch_add(&c->inside, 1) != 0) {
        fprintf(stderr, "%s: two hold the lock at once\n", c->subject->name);
        _exit(1);
    }
    atomic_fetch_add_explicit(&c->acquires, 1, memory_order_relaxed);
    if (atomic_exchange(&c->last, me) != me)
        atomic_fetch_add_explicit(&c->handovers, 1, memory_order_relaxed);
    atomic_fetch_sub(&c->inside, 1);
}

static void member(struct crowd *c, int me)
{
    void *lock = c->subject->open();
    uint32_t phase = 0;

    for (;;) {
        atomic_fetch_add(&c->parked, 1);
        phase_wait(c, phase);
        phase = atomic_load(&c->phase);
        if (phase == END)
            return;
        while (atomic_load_explicit(&c->phase, memory_order_relaxed) == phase) {
            c->subject->acquire(lock);
            critical_section(c, me);
            c->subject->release(lock);
        }
        phase++;
    }
}

/* ---- the crowd ------------------------------------------------------------------------------- */

static void all_parked(struct crowd *c)
{
    int status;

    while (atomic_load(&c->parked) < c->size) {
        if (waitpid(-1, &status, WNOHANG) > 0)
            exit(1); /* a member has ended, and has printed the reason */
        bench_nap(1000000);
    }
}

static struct crowd *crowd_new(const struct subject *subject, int size)
{
    struct crowd *c = bench_share(sizeof *c);

    c->subject = subject;
    c->size = size;
    for (int i = 0; i < size; i++) {
        pid_t child = bench_fork();

        if (child == 0) {
            member(c, i + 1);
            _exit(0);
        }
        c->members[i] = child;
    }
    all_parked(c);
    return c;
}

static void crowd_end(struct crowd *c)
{
    phase_set(c, END);
    for (int i = 0; i < c->size; i++)
        bench_wait(c->members[i]);
    munmap(c, sizeof *c);
}

static void run_slice(struct crowd *c, struct plain *admin, int i)
{
    uint32_t phase = atomic_load(&c->phase);
    long acquires, handovers;
    uint64_t scripts;
    int64_t from;

    atomic_store(&c->parked, 0);
    phase_set(c, phase + 1);
    bench_nap(WARM_NS);
    scripts = plain_scripts_run(admin);
    acquires = atomic_load(&c->acquires);
    handovers = atomic_load(&c->handovers);
    from = bench_ns();
    bench_nap(SLICE_NS);
    acquires = atomic_load(&c->acquires) - acquires;
    handovers = atomic_load(&c->handovers) - handovers;
    from = bench_ns() - from;
    scripts = plain_scripts_run(admin) - scripts;
    phase_set(c, phase + 2);
    all_parked(c);
    c->slices[i] = (double)handovers * 1e9 / (double)from;
    c->acquired[i] = (double)acquires * 1e9 / (double)from;
    c->scripts[i] = handovers ? (double)scripts / (double)handovers : 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

static void *pawl_begin(void)
{
    pawl_client *client;

    return bench_lock(&client, setup.tcp, "crowd", PAWL_MUTEX);
}

static const struct subject pawl = {"pawl", pawl_begin, bench_pawl_acquire, bench_pawl_release};

static const struct subject *const subjects[] = {&pawl, &bench_redisson, &bench_retry};

#define SUBJECTS ((int)(sizeof subjects / sizeof subjects[0]))

static void print_others(struct crowd *mine, struct crowd *theirs)
{
    double handovers[SLICES], acquires[SLICES];

    for (int i = 0; i < SLICES; i++) {
        handovers[i] = mine->slices[i] / theirs->slices[i];
        acquires[i] = mine->acquired[i] / theirs->acquired[i];
    }
    printf("crowd           beside %-28s %6.0f, %5.1f scripts each   ratio %5.1f   (acquires: "
           "%.0f/s, ratio %.1f)\n", theirs->subject->name, bench_median(theirs->slices, SLICES),
           bench_median(theirs->scripts, SLICES), bench_median(handovers, SLICES),
           bench_median(theirs->acquired, SLICES), bench_median(acquires, SLICES));
}

/* Returns Pawl's hand-overs per second. */
static double crowd_of(int size)
{
    struct plain *admin = plain_open(&setup.by_socket);
    struct crowd *crowds[SUBJECTS];
    double rate;

    for (int i = 0; i < SUBJECTS; i++)
        crowds[i] = crowd_new(subjects[i], size);
    for (int slice = 0; slice < SLICES; slice++)
        for (int i = 0; i < SUBJECTS; i++)
            run_slice(crowds[(i + slice) % SUBJECTS], admin, slice);
    rate = bench_median(crowds[0]->slices, SLICES);
    printf("crowd      %3d processes: pawl %13s %6.0f hand-overs/s, %.1f scripts each\n", size, "",
           rate, bench_median(crowds[0]->scripts, SLICES));
    for (int i = 1; i < SUBJECTS; i++)
        print_others(crowds[0], crowds[i]);
    fflush(stdout);
    plain_close(admin);
    for (int i = 0; i < SUBJECTS; i++)
        crowd_end(crowds[i]);
    return rate;
}

void bench_crowd(void)
{
    double two = crowd_of(2), most;

    crowd_of(16);
    crowd_of(64);
    most = crowd_of(CROWD_MAX);
    printf("crowd      pawl with %d processes / with 2: %.2f\n", CROWD_MAX, most / two);
}
