/* SPDX-License-Identifier: Apache-2.0
 *
 * contend.c - see contend.h. A contender acquires and releases in a loop, and checks in every round
 * that the lock does what it promises: one holder, at most PERMITS holders, or readers without a
 * writer. A lock that fails this check ends the measurement.
 */
#include "contend.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "flight.h"

enum { WARM_UP = 3, WRITE_EVERY = 20 };

_Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    _exit(1);
}

int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void nap_us(int64_t us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    while (us > 0 && nanosleep(&t, &t) && errno == EINTR)
        ;
}

int64_t cpu_us(int who)
{
    struct rusage u;

    getrusage(who, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000LL + u.ru_utime.tv_usec +
           u.ru_stime.tv_usec;
}

int64_t wakeups(int who)
{
    struct rusage u;

    getrusage(who, &u);
    return u.ru_nvcsw;
}

static void keep(struct sample *s, int64_t ns)
{
    if (!s->stride)
        s->stride = 1;
    if (s->seen++ % s->stride)
        return;
    if (s->n == SAMPLES_MAX) {
        for (int i = 0; i < SAMPLES_MAX / 2; i++)
            s->ns[i] = s->ns[2 * i];
        s->n = SAMPLES_MAX / 2;
        s->stride *= 2;
    }
    s->ns[s->n++] = ns;
}

/* ---- modes ----------------------------------------------------------------------------------- */

static bool mode_is(const struct contender *c, const char *mode)
{
    return !strcmp(c->mode, mode);
}

/* Do all contenders use one name? */
static bool one_name(const struct contender *c)
{
    return !mode_is(c, "own") && !mode_is(c, "shared");
}

static void *new_lock(struct contender *c, void *client, enum kind kind)
{
    char name[64];
    void *lock;

    snprintf(name, sizeof name, "%s-%d", c->name, one_name(c) ? 0 : c->number);
    lock = c->library->lock(client, name, kind);
    if (!lock)
        die(c->library->name, "has no lock of this kind");
    return lock;
}

/* ---- one round ------------------------------------------------------------------------------- */

static void enter(struct contender *c, enum kind kind)
{
    struct meeting *m = c->meeting;
    int before = atomic_fetch_add(kind == READER ? &m->readers : &m->writers, 1);

    if (!one_name(c))
        return;
    if ((kind == PERMIT && before >= PERMITS) || (kind == READER && m->writers) ||
        (kind == WRITER && (before || m->readers)) || (kind == EXCLUSIVE && before))
        die(c->library->name, "the lock was given to too many at once");
}

static void leave(struct contender *c, enum kind kind)
{
    atomic_fetch_sub(kind == READER ? &c->meeting->readers : &c->meeting->writers, 1);
}

/* Returns whether another contender had the lock before. The gap from its release counts if this
 * contender has waited since before the release. */
static bool granted(struct contender *c, int64_t asked, int64_t held)
{
    struct meeting *m = c->meeting;
    int64_t released = m->released;
    bool changed = atomic_exchange(&m->last, c->number + 1) != c->number + 1;

    if (one_name(c) && changed && released > asked)
        keep(&m->parts[c->number].gaps, held - released);
    return changed;
}

/* The time of a round is that of the pair, or of the acquire if others want the same lock. */
static void one_round(struct contender *c, void *lock, enum kind kind)
{
    struct part *part = &c->meeting->parts[c->number];
    int64_t asked = now_ns(), held, releasing;
    bool changed;

    c->library->acquire(lock);
    held = now_ns();
    part->inside = true;
    enter(c, kind);
    changed = granted(c, asked, held);
    nap_us(c->hold_us);
    leave(c, kind);
    releasing = now_ns();
    if (one_name(c))
        c->meeting->released = releasing;
    c->library->release(lock);
    keep(&part->times, held - asked + (one_name(c) ? 0 : now_ns() - releasing));
    part->inside = false;
    if (c->meeting->stop) /* this round ended too late to count for the rate */
        return;
    part->rounds++;
    part->handovers += changed;
    nap_us(c->hold_us / 2); /* the turn of the other contender */
}

/* ---- all rounds ------------------------------------------------------------------------------ */

static void begin(struct contender *c)
{
    struct part *part = &c->meeting->parts[c->number];
    int who = c->thread ? RUSAGE_THREAD : RUSAGE_SELF;

    c->meeting->ready++;
    while (!c->meeting->go)
        nap_us(1000);
    part->cpu_us = -cpu_us(who);
    part->wakeups = -wakeups(who);
}

static void end(struct contender *c)
{
    struct part *part = &c->meeting->parts[c->number];
    int who = c->thread ? RUSAGE_THREAD : RUSAGE_SELF;

    part->cpu_us += cpu_us(who);
    part->wakeups += wakeups(who);
}

void flight_begin(struct flight *flight)
{
    begin(flight->contender);
}

bool flight_landed(struct flight *flight, int lock)
{
    struct contender *c = flight->contender;
    struct part *part = &c->meeting->parts[c->number];
    int64_t now = now_ns();

    if (c->meeting->stop)
        return false;
    keep(&part->times, now - flight->began[lock]);
    part->rounds++;
    flight->began[lock] = now;
    return true;
}

static void fly(struct contender *c)
{
    struct flight *flight = calloc(1, sizeof *flight);

    if (!flight || !c->library->fly)
        die(c->library->name, "has no asynchronous calls");
    flight->locks = c->contenders;
    flight->contender = c;
    c->library->fly(c->address, flight);
    end(c);
    free(flight);
}

static void rounds(struct contender *c, void *client)
{
    bool reading = mode_is(c, "reading");
    enum kind kind = mode_is(c, "permits") ? PERMIT : reading ? READER : EXCLUSIVE;
    void *lock = new_lock(c, client, kind), *writer = reading ? new_lock(c, client, WRITER) : NULL;

    for (int i = 0; i < WARM_UP; i++) {
        c->library->acquire(lock);
        c->library->release(lock);
    }
    begin(c);
    for (int64_t i = c->number; !c->meeting->stop; i++) {
        bool write = reading && i % WRITE_EVERY == 0;

        one_round(c, write ? writer : lock, write ? WRITER : kind);
    }
    end(c);
}

void contend(struct contender *c)
{
    void *client;

    if (mode_is(c, "async")) {
        fly(c);
        return;
    }
    client = c->client ? c->client : c->library->open(c->address);
    rounds(c, client);
    if (!c->client && c->library->close)
        c->library->close(client);
}
