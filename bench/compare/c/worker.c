/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.c - measures one lock library for compare.py, which explains the lines that a worker reads
 * and writes: worker LIBRARY ADDRESS.
 *
 * Contenders of `own` and `same` are processes with a client each; contenders of `shared` are
 * threads that share one client. All contenders use one shared mapping: each contender reports when
 * it is ready, all begin at `go`, and all stop acquiring at `stop`. Each contender writes only its
 * own part of the mapping.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "worker.h"

enum { CONTENDERS_MAX = 512, SAMPLES_MAX = 4000, WARM_UP = 3 };

struct part {
    int64_t rounds, handovers, cpu_us;
    int64_t ns[SAMPLES_MAX]; /* a sample of the rounds, evenly spread once the part is full */
};

struct meeting {
    atomic_int ready, go, stop;
    atomic_int holder; /* the last contender that had the lock of `same` */
    struct part parts[CONTENDERS_MAX];
};

struct contender {
    const struct library *library;
    const char *address;
    void *client; /* NULL: the contender opens its own */
    struct meeting *meeting;
    int number;
    char mode[8];
};

static const struct library *const libraries[] = {
    &library_pawl, &library_plain, &library_flock, &library_mutex, &library_semaphore,
#ifdef WITH_POSTGRES
    &library_pg_advisory, &library_pg_row, &library_pg_poll,
#endif
#ifdef WITH_MYSQL
    &library_get_lock, &library_my_row, &library_my_poll,
#endif
    NULL,
};

_Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    _exit(1);
}

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void nap_ms(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (nanosleep(&t, &t) && errno == EINTR)
        ;
}

static int64_t cpu_us(int who)
{
    struct rusage u;

    getrusage(who, &u);
    return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000LL + u.ru_utime.tv_usec +
           u.ru_stime.tv_usec;
}

/* Of many rounds every n-th is kept; n doubles whenever the part is full. */
static void keep(struct part *p, int64_t round, int64_t *stride, int *n, int64_t ns)
{
    if (round % *stride)
        return;
    if (*n == SAMPLES_MAX) {
        for (int i = 0; i < SAMPLES_MAX / 2; i++)
            p->ns[i] = p->ns[2 * i];
        *n = SAMPLES_MAX / 2;
        *stride *= 2;
    }
    p->ns[(*n)++] = ns;
}

/* The time of a round is that of the pair, or of the acquire if others want the same lock. */
static void contend(struct contender *c)
{
    const struct library *l = c->library;
    struct part *part = &c->meeting->parts[c->number];
    bool same = !strcmp(c->mode, "same");
    void *client = c->client ? c->client : l->open(c->address);
    int64_t stride = 1, round = 0, before;
    int n = 0;
    char name[64];
    void *lock;

    snprintf(name, sizeof name, "bench-%d", same ? 0 : c->number);
    lock = l->lock(client, name);
    for (int i = 0; i < WARM_UP; i++) {
        l->acquire(lock);
        l->release(lock);
    }
    c->meeting->ready++;
    while (!c->meeting->go)
        nap_ms(1);
    before = cpu_us(c->client ? RUSAGE_THREAD : RUSAGE_SELF);
    while (!c->meeting->stop) {
        int64_t began = now_ns(), held;
        bool changed;

        l->acquire(lock);
        held = now_ns();
        changed = atomic_exchange(&c->meeting->holder, c->number) != c->number;
        l->release(lock);
        keep(part, round++, &stride, &n, (same ? held : now_ns()) - began);
        if (c->meeting->stop) /* this round ended too late to count for the rate */
            break;
        part->rounds++;
        part->handovers += changed;
    }
    part->cpu_us = cpu_us(c->client ? RUSAGE_THREAD : RUSAGE_SELF) - before;
    if (!c->client && l->close)
        l->close(client);
}

static void *contend_in_thread(void *arg)
{
    contend(arg);
    return NULL;
}

static void wait_for_go(struct meeting *m, int n)
{
    char line[64];

    for (int tries = 0; m->ready < n; tries++) {
        if (tries > 120000)
            die("worker", "not all contenders are ready after two minutes");
        nap_ms(1);
    }
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        die("worker", "no go");
    m->go = 1;
}

static void report(struct meeting *m, int n, int64_t more_cpu_us)
{
    int64_t rounds = 0, handovers = 0, cpu = more_cpu_us;

    for (int i = 0; i < n; i++) {
        rounds += m->parts[i].rounds;
        handovers += m->parts[i].handovers;
        cpu += m->parts[i].cpu_us;
    }
    printf("ran %lld %lld %lld", (long long)rounds, (long long)handovers, (long long)cpu);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < SAMPLES_MAX && m->parts[i].ns[k]; k++)
            printf(" %lld", (long long)m->parts[i].ns[k]);
    puts("");
    fflush(stdout);
}

static void run_processes(struct contender *c, int n, int64_t ms)
{
    pid_t pids[CONTENDERS_MAX];
    int status;

    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] < 0)
            die("fork", strerror(errno));
        c->number = i;
        if (!pids[i]) {
            contend(c);
            _exit(0);
        }
    }
    wait_for_go(c->meeting, n);
    nap_ms(ms);
    c->meeting->stop = 1;
    for (int i = 0; i < n; i++)
        if (waitpid(pids[i], &status, 0) != pids[i] || status)
            die("worker", "a contender failed");
    report(c->meeting, n, 0);
}

/* The threads of the library itself count, too: the CPU time is that of the process. */
static void run_threads(struct contender *c, int n, int64_t ms)
{
    static struct contender all[CONTENDERS_MAX];
    pthread_t threads[CONTENDERS_MAX];
    int64_t before, used, in_parts = 0;

    c->client = c->library->open(c->address);
    for (int i = 0; i < n; i++) {
        all[i] = *c;
        all[i].number = i;
        if (pthread_create(&threads[i], NULL, contend_in_thread, &all[i]))
            die("pthread_create", "failed");
    }
    wait_for_go(c->meeting, n);
    before = cpu_us(RUSAGE_SELF);
    nap_ms(ms);
    c->meeting->stop = 1;
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    used = cpu_us(RUSAGE_SELF) - before;
    for (int i = 0; i < n; i++)
        in_parts += c->meeting->parts[i].cpu_us;
    report(c->meeting, n, used - in_parts);
    if (c->library->close)
        c->library->close(c->client);
}

static void run(const struct library *library, const char *address, const char *line)
{
    struct contender c = {.library = library, .address = address};
    long long ms;
    int n;

    if (sscanf(line, "run %7s %d %lld", c.mode, &n, &ms) != 3 || n < 1 || n > CONTENDERS_MAX)
        die("worker", "a line that it does not know");
    c.meeting = mmap(NULL, sizeof *c.meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0);
    if (c.meeting == MAP_FAILED)
        die("mmap", strerror(errno));
    if (library->prepare)
        library->prepare(address);
    if (!strcmp(c.mode, "shared"))
        run_threads(&c, n, ms);
    else
        run_processes(&c, n, ms);
    munmap(c.meeting, sizeof *c.meeting);
}

int main(int argc, char **argv)
{
    const struct library *const *l = libraries;
    char line[64];

    while (argc == 3 && *l && strcmp((*l)->name, argv[1]))
        l++;
    if (argc != 3 || !*l) {
        fprintf(stderr, "usage: worker LIBRARY ADDRESS\n");
        return 64;
    }
    while (fgets(line, sizeof line, stdin))
        run(*l, argv[2], line);
    return 0;
}
