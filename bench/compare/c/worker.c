/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.c - measures one lock library for compare.py: worker LIBRARY ADDRESS. The head of
 * workers.py explains the lines that a worker reads and writes.
 *
 * Contenders are processes with a client each, except: contenders of `shared` are threads that
 * share one client, and those of `eights` are processes of eight threads that share a client. All
 * contenders use one shared mapping: each contender reports when it is ready, all begin at `go`,
 * and all stop acquiring at `stop`.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contend.h"
#include "flight.h"

enum { EIGHT = 8 };

static const struct library *const libraries[] = {
    &library_pawl, &library_plain, &library_plain_many, &library_scripts, &library_ping,
    &library_flock, &library_flock_token, &library_mutex, &library_semaphore, &library_rwlock,
#ifdef WITH_POSTGRES
    &library_pg_advisory, &library_pg_row, &library_pg_poll,
#endif
#ifdef WITH_MYSQL
    &library_get_lock, &library_my_row, &library_my_poll,
#endif
    NULL,
};

/* ---- the report ------------------------------------------------------------------------------ */

static void print_times(const struct sample *s)
{
    for (int i = 0; i < s->n; i++)
        printf(" %lld", (long long)s->ns[i]);
}

/* before and during: hand-overs of the two phases of `stopped` and `killed`, else -1. */
static void report(struct meeting *m, int n, int64_t elapsed_ns, int64_t before, int64_t during)
{
    int64_t rounds = 0, handovers = 0, cpu = 0, slept = 0, fewest = INT64_MAX, most = 0;

    for (int i = 0; i < n; i++) {
        struct part *p = &m->parts[i];

        rounds += p->rounds;
        handovers += p->handovers;
        cpu += p->cpu_us;
        slept += p->wakeups;
        fewest = p->rounds < fewest ? p->rounds : fewest;
        most = p->rounds > most ? p->rounds : most;
    }
    printf("ran rounds=%lld handovers=%lld cpu_us=%lld elapsed_us=%lld fewest=%lld most=%lld "
           "wakeups=%lld", (long long)rounds, (long long)handovers, (long long)cpu,
           (long long)elapsed_ns / 1000, (long long)fewest, (long long)most, (long long)slept);
    if (before >= 0)
        printf(" before=%lld during=%lld", (long long)before, (long long)during);
    printf(" times");
    for (int i = 0; i < n; i++)
        print_times(&m->parts[i].times);
    printf(" gaps");
    for (int i = 0; i < n; i++)
        print_times(&m->parts[i].gaps);
    puts("");
    fflush(stdout);
}

static int64_t handovers(struct meeting *m, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += m->parts[i].handovers;
    return sum;
}

/* ---- contenders ------------------------------------------------------------------------------ */

static void must_end_well(pid_t pid)
{
    int status;

    if (waitpid(pid, &status, 0) != pid || status)
        die("worker", "a contender failed");
}

static void wait_for_go(struct meeting *m, int n)
{
    char line[64];

    for (int tries = 0; m->ready < n; tries++) {
        if (tries > 120000)
            die("worker", "not all contenders are ready after two minutes");
        if (waitpid(-1, NULL, WNOHANG) > 0)
            die("worker", "a contender ended before the measurement began");
        nap_us(1000);
    }
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        die("worker", "no go");
    m->go = 1;
}

static pid_t start(struct contender *c, int number, void (*work)(struct contender *))
{
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid < 0)
        die("fork", strerror(errno));
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* contenders end if the worker is killed */
        c->number = number;
        work(c);
        _exit(0);
    }
    return pid;
}

static void *contend_in_thread(void *arg)
{
    contend(arg);
    return NULL;
}

/* n threads of this process, from c->number on. */
static void threads(struct contender *c, int n)
{
    struct contender *all = calloc((size_t)n, sizeof *all);
    pthread_t *ids = calloc((size_t)n, sizeof *ids);
    struct part *first = &c->meeting->parts[c->number];
    int64_t cpu, slept;

    if (!all || !ids)
        die("calloc", "failed");
    c->client = c->library->one_thread ? NULL : c->library->open(c->address);
    c->thread = true;
    for (int i = 0; i < n; i++) {
        all[i] = *c;
        all[i].number = c->number + i;
        if (pthread_create(&ids[i], NULL, contend_in_thread, &all[i]))
            die("pthread_create", "failed");
    }
    while (!c->meeting->go)
        nap_us(1000);
    cpu = cpu_us(RUSAGE_SELF);
    slept = wakeups(RUSAGE_SELF);
    for (int i = 0; i < n; i++)
        pthread_join(ids[i], NULL);
    /* The threads of the library itself count, too: the figures are those of the process. */
    for (int i = 1; i < n; i++)
        first[i].cpu_us = first[i].wakeups = 0;
    first->cpu_us = cpu_us(RUSAGE_SELF) - cpu;
    first->wakeups = wakeups(RUSAGE_SELF) - slept;
    if (c->client && c->library->close)
        c->library->close(c->client);
    free(all);
    free(ids);
}

static void all_threads(struct contender *c)
{
    threads(c, c->contenders);
}

static void eight_threads(struct contender *c)
{
    c->number *= EIGHT;
    threads(c, EIGHT);
}

/* Start `processes` of them, let them run for ms, and report on all contenders. */
static void run_processes(struct contender *c, int processes, void (*work)(struct contender *),
                          int64_t ms)
{
    int parts = !strcmp(c->mode, "async") ? 1 : c->contenders;
    pid_t pids[CONTENDERS_MAX];
    int64_t began;

    for (int i = 0; i < processes; i++)
        pids[i] = start(c, i, work);
    wait_for_go(c->meeting, parts);
    began = now_ns();
    nap_us(ms * 1000);
    c->meeting->stop = 1;
    began = now_ns() - began;
    for (int i = 0; i < processes; i++)
        must_end_well(pids[i]);
    report(c->meeting, parts, began, -1, -1);
}

/* ---- half of the waiters stop or die --------------------------------------------------------- */

/* Stop a contender that waits. One that has the lock continues, and is stopped a little later. */
static void stop_waiter(struct meeting *m, pid_t pid, int number)
{
    int status;

    for (;;) {
        if (kill(pid, SIGSTOP) || waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status))
            die("worker", "a contender failed");
        if (!m->parts[number].inside)
            return;
        kill(pid, SIGCONT);
        nap_us(100);
    }
}

/* Undisturbed for ms; then every second contender is stopped (or killed while it is stopped), and
 * the others go on for ms. */
static void run_halved(struct contender *c, int64_t ms)
{
    bool kills = !strcmp(c->mode, "killed");
    int n = c->contenders;
    struct meeting *m = c->meeting;
    pid_t pids[CONTENDERS_MAX];
    int64_t before, during, elapsed;

    for (int i = 0; i < n; i++)
        pids[i] = start(c, i, contend);
    wait_for_go(m, n);
    nap_us(ms * 1000);
    before = handovers(m, n);
    for (int i = 1; i < n; i += 2) {
        stop_waiter(m, pids[i], i);
        if (kills)
            kill(pids[i], SIGKILL);
    }
    during = handovers(m, n);
    elapsed = now_ns();
    nap_us(ms * 1000);
    during = handovers(m, n) - during;
    elapsed = now_ns() - elapsed;
    m->stop = 1;
    for (int i = 0; i < n; i++) {
        if (i % 2)
            kill(pids[i], SIGCONT);
        if (i % 2 && kills)
            waitpid(pids[i], NULL, 0);
    }
    for (int i = 0; i < n; i++)
        if (i % 2 == 0 || !kills)
            must_end_well(pids[i]);
    report(m, n, elapsed, before, during);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void run(const struct library *library, const char *address, const char *line)
{
    static int measurements;
    struct contender c = {.library = library, .address = address};
    long long ms, hold_us = 0;
    int n;

    if (sscanf(line, "run %11s %d %lld %lld", c.mode, &n, &ms, &hold_us) < 3 || n < 1 ||
        n > (!strcmp(c.mode, "async") ? FLIGHT_MAX : CONTENDERS_MAX))
        die("worker does not know this line", line);
    c.contenders = n;
    c.hold_us = hold_us;
    /* A name for each measurement: contenders that were killed leave their places in the queue. */
    snprintf(c.name, sizeof c.name, "bench-%d-%d", (int)getpid(), measurements++);
    c.meeting = mmap(NULL, sizeof *c.meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0);
    if (c.meeting == MAP_FAILED)
        die("mmap", strerror(errno));
    if (library->prepare)
        library->prepare(address);
    if (!strcmp(c.mode, "stopped") || !strcmp(c.mode, "killed"))
        run_halved(&c, ms);
    else if (!strcmp(c.mode, "shared"))
        run_processes(&c, 1, all_threads, ms);
    else if (!strcmp(c.mode, "eights"))
        run_processes(&c, (c.contenders = n / EIGHT * EIGHT) / EIGHT, eight_threads, ms);
    else
        run_processes(&c, !strcmp(c.mode, "async") ? 1 : n, contend, ms);
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
