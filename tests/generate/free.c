/* SPDX-License-Identifier: Apache-2.0
 *
 * free.c - one process of a free run: each thread does its steps as fast as possible, and the log
 * records each call and hold. Other processes do the same on the same names, while the orchestrator
 * stops or kills processes and disturbs the network through a proxy.
 *
 * The process ends by itself: when its threads have done their steps, or after RUN_MS, the process
 * closes its clients, which ends pending waits. A call that is not over HANG_MS later stays in the
 * log as a call that never returned, and the exit status is 3.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "holds.h"

enum { RUN_MS = 6000, FAULTS_MS = 90000, LOOK_MS = 20, LATE_MS = 100 };

struct worker {
    struct run *run;
    int thread;
    pthread_t id;
    atomic_bool over;
};

static atomic_bool stopping;

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct program *p = w->run->program;

    for (int k = 0; k < p->nsteps && !stopping; k++)
        if (p->steps[k].thread == w->thread)
            run_step(op_new(w->run, &p->steps[k], k));
    if (p->after >= 0)
        closing_thread(w->run, w->thread);
    w->over = true;
    return NULL;
}

/* A machine that gives this thread no processor time for so long may delay any exchange. */
static void nap_noting(void)
{
    int64_t before = clock_ns();

    nap_us(1000);
    if (clock_ns() - before > LATE_MS * 1000000LL) {
        struct record *r = log_record(RECORD_LATE);

        r->begin = before;
        r->got = clock_ns();
    }
}

/* Log that a client has connected again since the last call of this function. */
static void note_reconnect(struct client *c, int number, int64_t before)
{
    pawl_stats stats = {.size = sizeof stats};
    struct record *r;

    if (!c->present || pthread_rwlock_tryrdlock(&c->guard))
        return;
    if (!c->closed && !pawl_client_stats(c->p, &stats) &&
        (int64_t)stats.reconnects > c->reconnects) {
        c->reconnects = (int64_t)stats.reconnects;
        r = log_record(RECORD_RECONNECT);
        r->client = number;
        r->begin = before;
        r->got = clock_ns();
    }
    pthread_rwlock_unlock(&c->guard);
}

static void note_reconnects(struct program *p, int64_t *looked)
{
    int64_t before = *looked;

    if (clock_ns() - before < LOOK_MS * 1000000LL)
        return;
    *looked = clock_ns();
    for (int i = 0; i < p->nclients; i++)
        note_reconnect(&p->clients[i], i, before);
}

/* With `after`, the threads may go on for that many ms after the last fault. */
static void await_workers(struct program *p, struct worker *workers, int n, const struct log *log)
{
    int64_t run_ms = p->run_ms ? p->run_ms : RUN_MS, after = p->after, looked = clock_ns();
    int64_t until = looked + run_ms * 1000000LL, latest = until + FAULTS_MS * 1000000LL;
    bool over = false;

    while (!over && clock_ns() < until) {
        nap_noting();
        note_reconnects(p, &looked);
        if (after > 0 && !log->healed && clock_ns() < latest)
            until = clock_ns() + after * 1000000LL;
        over = true;
        for (int i = 0; i < n; i++)
            over &= workers[i].over;
    }
    stopping = true;
}

/* The closes are steps, so that the log contains them. */
static void close_clients(struct run *run)
{
    struct program *p = run->program;

    for (int i = 0; i < p->nclients; i++) {
        static struct op ops[MAX_CLIENTS];
        struct op *op = &ops[i];

        op->run = run;
        op->step = (struct step){.kind = DO_close, .object = i};
        run->begun++;
        run_step(op);
    }
}

struct search {
    const char *label;
    int64_t found;
};

static int count_row(void *arg, const pawl_info *info)
{
    struct search *s = arg;

    s->found += info->role == PAWL_ROLE_HOLDER && !strcmp(info->label, s->label);
    return 0;
}

/* pawl.h: a close that returned 0 means that the service has no lock of this client any more. This
 * function asks the service without the proxy, and leaves out locks that may stay for
 * at_least_ms. */
int64_t holders_left(struct run *run, int client)
{
    pawl_client_options options = {.size = sizeof options, .timeout_ms = 500};
    struct program *p = run->program;
    struct search s = {p->clients[client].label, 0};
    const char *url = getenv("GENERATE_DIRECT");
    pawl_client *c;
    char name[96];

    for (int i = 0; i < p->nobjects; i++)
        if (p->objects[i].at_least)
            return 0;
    if (!url || pawl_open(&c, url, &options, NULL))
        return 0;
    for (int64_t i = 0; i < MAX_NAMES && !s.found; i++)
        if (pawl_inspect(c, run_name(run, i, name), count_row, &s, NULL))
            break;
    pawl_close(c);
    return s.found;
}

static struct log *map_log(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *at;

    if (fd < 0 || ftruncate(fd, sizeof(struct log)))
        return NULL;
    at = mmap(NULL, sizeof(struct log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

static int run_free(struct run *run, struct log *log)
{
    static struct worker workers[MAX_THREADS];
    int n = run->program->nthreads;

    for (int i = 0; i < n; i++) {
        workers[i] = (struct worker){.run = run, .thread = i};
        if (pthread_create(&workers[i].id, NULL, worker_main, &workers[i]))
            return 2;
    }
    await_workers(run->program, workers, n, log);
    if (run->program->after >= 0)
        closing_round(run, log);
    close_clients(run);
    if (!run_await_all(run, HANG_MS)) {
        if (getenv("GENERATE_STOP")) /* for a debugger */
            pause();
        _exit(3);
    }
    for (int i = 0; i < n; i++)
        pthread_join(workers[i].id, NULL);
    run_close(run);
    return run->blocked_wrong ? 4 : 0;
}

int free_main(const char *url, const char *log_path, const char *prefix)
{
    static struct program p;
    struct run *run = calloc(1, sizeof *run);
    struct log *log = map_log(log_path);
    int status;

    if (!run || !log || parse_program(&p, stdin)) {
        fprintf(stderr, "generate: no log or no program\n");
        return 2;
    }
    holds_open(log, p.process);
    run->program = &p;
    run->url = url;
    run->free = true;
    run->hooks = &holds_hooks;
    snprintf(run->prefix, sizeof run->prefix, "%s", prefix);
    if (run_open(run)) {
        log_record(RECORD_END)->code = 5; /* the service could not be reached */
        return 5;
    }
    status = run_free(run, log);
    log_record(RECORD_END)->code = status;
    free(run);
    return status;
}
