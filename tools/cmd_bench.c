/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_bench.c - pawl bench: how fast are locks on this service?
 *
 *     pair       one client acquires and releases a free lock
 *     hand-over  two clients contend: from the release of one to the grant of the other
 *     rate       several clients at once, each with a lock of its own
 *
 * THREADS. The main thread waits for signals (await.h). One thread runs the phases; it starts the
 * threads of a phase and joins them. `stop` is set by a signal, by a failure, or when the time is
 * over, and is, besides the atomic members at the end of struct bench, the only member that all
 * threads read and write. Each worker has a client, a lock and samples of its own; the phase reads
 * them after the join. The first failure is kept under `mutex`.
 *
 * A bench leaves no locks behind: workers end between a release and the next acquire, a waiting
 * acquire is limited in time, and all clients are closed. The bench holds the lock "pawl-bench"
 * while it runs, so that two benches don't disturb each other's measurements.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "await.h"
#include "samples.h"
#include "tool.h"

#define CLIENTS_MAX 64
#define COUNT_MAX 1000000
#define WAIT_MS 10000 /* how long to wait for a grant; only benches use these names */

typedef struct bench bench;

typedef struct worker {
    bench *bench;
    pawl_client *client;
    pawl_lock *lock;
    pthread_t thread;
    samples samples;
    int number;
} worker;

struct bench {
    call call; /* first: await() gets a pointer to this member */
    tool *tool;
    int64_t count, ms; /* bounds of each phase */
    int64_t nclients;
    int64_t pause_ns;  /* hand-over: how long a lock is held at least, so that the other waits */
    atomic_bool stop, interrupted;
    int64_t ends;      /* when the phase ends */
    pthread_mutex_t mutex;
    pawl_error err;    /* the first failure */
    worker workers[CLIENTS_MAX];
    samples pair, hand_over, rate;
    /* The hand-over phase: the waiting workers, the time of the last release, and the last
     * holder. */
    atomic_int asks;   /* which of the two workers are waiting: bit 0 and bit 1 */
    _Atomic int64_t released;
    atomic_int last;   /* number of the last holder, plus 1 */
};

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void fail(bench *b, const pawl_error *err)
{
    pthread_mutex_lock(&b->mutex);
    if (!b->err.code && err->code != PAWL_ECANCELED)
        b->err = *err;
    pthread_mutex_unlock(&b->mutex);
    atomic_store(&b->stop, true);
}

static bool over(const bench *b, const samples *s)
{
    return atomic_load(&b->stop) || samples_full(s) || now_ns() >= b->ends;
}

/* ---- workers ------------------------------------------------------------------------------- */

static bool worker_open(bench *b, worker *w, int number, const char *phase, size_t room)
{
    pawl_error err = {0};
    char name[64];

    *w = (worker){.bench = b, .number = number};
    snprintf(name, sizeof name, "pawl-bench-%s", phase);
    err.code = samples_begin(&w->samples, room) ? 0 : PAWL_ENOMEM;
    if (!err.code)
        err.code = client_try(b->tool, &w->client, NULL, &err);
    if (!err.code)
        err.code = pawl_lock_new(&w->lock, w->client, name, NULL, &err);
    if (err.code)
        fail(b, &err);
    return !err.code;
}

static void worker_close(worker *w)
{
    pawl_lock_free(w->lock);
    if (w->client)
        pawl_close(w->client);
    samples_free(&w->samples);
}

static bool acquire(worker *w)
{
    pawl_error err = {0};

    err.code = pawl_lock_acquire(w->lock, WAIT_MS, &err);
    if (err.code)
        fail(w->bench, &err);
    return !err.code;
}

static bool release(worker *w)
{
    pawl_error err = {0};

    err.code = pawl_lock_release(w->lock, &err);
    if (err.code)
        fail(w->bench, &err);
    return !err.code;
}

static void *pairs(void *arg)
{
    worker *w = arg;

    while (!over(w->bench, &w->samples)) {
        int64_t began = now_ns();

        if (!acquire(w) || !release(w))
            break;
        samples_add(&w->samples, now_ns() - began);
    }
    return NULL;
}

/* Keep the lock until the other worker has been waiting for a while. */
static void hold(worker *w)
{
    bench *b = w->bench;
    int other = 1 << (1 - w->number);
    struct timespec pause = {.tv_nsec = 20000};

    while (!(atomic_load(&b->asks) & other) && !over(b, &w->samples))
        nanosleep(&pause, NULL);
    pause = (struct timespec){.tv_sec = b->pause_ns / 1000000000,
                              .tv_nsec = b->pause_ns % 1000000000};
    nanosleep(&pause, NULL);
}

static void *turns(void *arg)
{
    worker *w = arg;
    bench *b = w->bench;

    while (!over(b, &w->samples)) {
        atomic_fetch_or(&b->asks, 1 << w->number);
        if (!acquire(w))
            break;
        if (atomic_load(&b->last) == 2 - w->number && atomic_load(&b->released))
            samples_add(&w->samples, now_ns() - atomic_load(&b->released));
        atomic_fetch_and(&b->asks, ~(1 << w->number));
        hold(w);
        atomic_store(&b->last, w->number + 1);
        atomic_store(&b->released, now_ns());
        if (!release(w))
            break;
    }
    atomic_fetch_or(&b->asks, 1 << w->number); /* the other need not wait for this worker */
    return NULL;
}

/* ---- phases -------------------------------------------------------------------------------- */

static void gather(samples *to, worker *workers, int n)
{
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < workers[i].samples.n; k++)
            samples_add(to, workers[i].samples.ns[k]);
}

/* Connect and acquire once, so that the measurement does not include connecting. */
static bool warm_up(worker *w)
{
    return acquire(w) && release(w);
}

static void run_workers(bench *b, samples *result, int n, void *(*fn)(void *))
{
    int64_t began = now_ns();
    int started = 0;

    b->ends = began + b->ms * 1000000;
    while (started < n &&
           !pthread_create(&b->workers[started].thread, NULL, fn, &b->workers[started]))
        started++;
    if (started < n) {
        pawl_error err = {.code = PAWL_ENOMEM, .text = "no thread to work with"};

        fail(b, &err);
    }
    for (int i = 0; i < started; i++)
        pthread_join(b->workers[i].thread, NULL);
    result->elapsed = now_ns() - began;
    gather(result, b->workers, n);
    samples_sort(result);
}

static void phase(bench *b, samples *result, int n, void *(*fn)(void *), const char *name,
                  bool own_names)
{
    int opened = 0;
    bool good = !atomic_load(&b->stop) && samples_begin(result, (size_t)b->count);
    char own[32];

    for (; good && opened < n; opened++) {
        snprintf(own, sizeof own, own_names ? "%s-%d" : "%s", name, opened + 1);
        good = worker_open(b, &b->workers[opened], opened, own,
                           (size_t)(b->count / n + (b->count < n))) &&
               warm_up(&b->workers[opened]);
    }
    if (good)
        run_workers(b, result, n, fn);
    for (int i = 0; i < opened; i++)
        worker_close(&b->workers[i]);
}

static int run_phases(call *c)
{
    bench *b = (bench *)(void *)c;
    int64_t median;

    phase(b, &b->pair, 1, pairs, "pair", false);
    median = samples_percentile(&b->pair, 0.5);
    b->pause_ns = 3 * median > 1000000 ? 3 * median : 1000000;
    phase(b, &b->hand_over, 2, turns, "turn", false);
    b->hand_over.elapsed = 0; /* no rate: most of the time is the pause */
    phase(b, &b->rate, (int)b->nclients, pairs, "rate", true);
    return 0;
}

static void cancel(task *t)
{
    bench *b = (bench *)(void *)t;

    atomic_store(&b->interrupted, true);
    atomic_store(&b->stop, true);
}

/* ---- output -------------------------------------------------------------------------------- */

static void print_text(const bench *b)
{
    puts("pair: one client acquires and releases a lock");
    samples_print(stdout, &b->pair);
    puts("hand-over: from one client's release to the other client's grant");
    samples_print(stdout, &b->hand_over);
    printf("rate: %" PRId64 " clients at once, each with a lock of its own\n", b->nclients);
    samples_print(stdout, &b->rate);
}

static void print_json(const bench *b)
{
    fputs("{\"pair\":{", stdout);
    samples_json(stdout, &b->pair);
    fputs("},\"hand_over\":{", stdout);
    samples_json(stdout, &b->hand_over);
    printf("},\"rate\":{\"clients\":%" PRId64 ",", b->nclients);
    samples_json(stdout, &b->rate);
    printf("},\"interrupted\":%s}\n", b->interrupted ? "true" : "false");
}

/* ---- the command --------------------------------------------------------------------------- */

static bool number(const char *text, int64_t most, int64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoll(text, &end, 10);
    return !errno && end != text && !*end && *ret >= 1 && *ret <= most;
}

static int options(bench *b, int argc, char **argv)
{
    static const struct option longs[] = {{"count", required_argument, NULL, 'n'},
                                          {"time", required_argument, NULL, 't'},
                                          {"clients", required_argument, NULL, 'c'}, COMMON_LONG};
    const char *bad = NULL;
    int c;

    while ((c = option_next(b->tool, argc, argv, COMMON_SHORT "n:t:c:", longs)) == 'n' ||
           c == 't' || c == 'c') {
        if (c == 'n' && !number(optarg, COUNT_MAX, &b->count))
            bad = "count from 1 to 1000000";
        else if (c == 'c' && !number(optarg, CLIENTS_MAX, &b->nclients))
            bad = "number of clients from 1 to 64";
        else if (c == 't' && (!duration_parse(optarg, &b->ms) || b->ms < 1 || b->ms > 3600000))
            bad = "time up to 1h; write it like 2s or 500ms";
        if (bad)
            break;
    }
    if (!bad)
        return c;
    usage_error(b->tool, "'%s' is no %s", optarg, bad);
    return OPT_BAD;
}

/* Acquire the lock that keeps other benches away, through `client`. */
static int bench_alone(bench *b, pawl_client *client, pawl_lock **lock)
{
    pawl_error err = {0};

    err.code = pawl_lock_new(lock, client, "pawl-bench", NULL, &err);
    if (!err.code)
        err.code = pawl_lock_acquire(*lock, 0, &err);
    if (!err.code)
        return 0;
    if (err.code == PAWL_EBUSY) {
        say("another pawl bench is running on this service");
        return STATUS_NO;
    }
    return failed(b->tool, "can't take a lock", &err);
}

static int bench_run(bench *b, const signals *s)
{
    int error, signal;

    b->call.fn = run_phases;
    b->call.task.cancel = cancel;
    error = call_start(&b->call);
    if (error) {
        say("no thread to work with: %s", strerror(error));
        return STATUS_SYSTEM;
    }
    signal = await(&b->call.task, s);
    call_end(&b->call);
    if (b->err.code)
        return failed(b->tool, "the bench has ended", &b->err);
    if (b->tool->json)
        print_json(b);
    else
        print_text(b);
    return signal ? STATUS_SIGNAL + signal : STATUS_OK;
}

static int bench_open(bench *b)
{
    pawl_client *client = NULL;
    pawl_lock *lock = NULL;
    signals s;
    int error = signals_open(&s), status;

    if (error) {
        say("can't watch for signals: %s", strerror(error));
        return STATUS_SYSTEM;
    }
    status = client_open(b->tool, &client, NULL);
    if (!status)
        status = bench_alone(b, client, &lock);
    if (!status) {
        status = bench_run(b, &s);
        pawl_lock_release(lock, NULL);
    }
    pawl_lock_free(lock);
    if (client)
        pawl_close(client);
    signals_close(&s);
    return status;
}

int cmd_bench(tool *t, int argc, char **argv)
{
    bench *b = calloc(1, sizeof *b);
    int opt, status;

    if (!b) {
        say("out of memory");
        return STATUS_SYSTEM;
    }
    *b = (bench){.tool = t, .count = 10000, .ms = 2000, .nclients = 4};
    pthread_mutex_init(&b->mutex, NULL);
    opt = options(b, argc, argv);
    if (opt != OPT_DONE)
        status = opt == OPT_HELP ? STATUS_OK : STATUS_USAGE;
    else if (argc > optind)
        status = usage_error(t, "no argument is needed; name the service with -u URL");
    else
        status = bench_open(b);
    samples_free(&b->pair);
    samples_free(&b->hand_over);
    samples_free(&b->rate);
    pthread_mutex_destroy(&b->mutex);
    free(b);
    return status;
}
