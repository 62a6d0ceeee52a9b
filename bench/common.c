/* SPDX-License-Identifier: Apache-2.0
 *
 * common.c - see common.h. Nothing here is measured itself.
 */
#include "common.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int64_t bench_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void bench_nap(int64_t ns)
{
    struct timespec t = {ns / 1000000000, ns % 1000000000};

    if (ns > 0)
        nanosleep(&t, NULL);
}

void bench_die(const char *what)
{
    perror(what);
    exit(1);
}

void bench_must(int code, const char *what, const pawl_error *err)
{
    if (!code)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, pawl_errname(code),
            err ? err->text : pawl_strerror(code));
    exit(1);
}

void *bench_share(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        bench_die("mmap");
    return p;
}

pid_t bench_fork(void)
{
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child < 0)
        bench_die("fork");
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* children end if the parent fails */
    return child;
}

void bench_wait(pid_t child)
{
    int status = 0;

    if (waitpid(child, &status, 0) != child)
        bench_die("waitpid");
    if (status)
        exit(1); /* the child has printed the reason */
}

static int compare_ints(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

int64_t bench_quantile(int64_t *values, size_t n, double share)
{
    if (n == 0)
        return 0;
    qsort(values, n, sizeof *values, compare_ints);
    return values[(size_t)((double)(n - 1) * share)];
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double quantile(double *values, size_t n, double share)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return values[(size_t)((double)(n - 1) * share + 0.5)];
}

double bench_median(double *values, size_t n)
{
    return quantile(values, n, 0.5);
}

pawl_lock *bench_lock(pawl_client **client, const char *url, const char *name, uint64_t kind)
{
    pawl_lock_options options = {.size = sizeof options, .kind = kind};
    pawl_error err;
    pawl_lock *lock;

    bench_must(pawl_open(client, url, NULL, &err), "pawl_open", &err);
    bench_must(pawl_lock_new(&lock, *client, name, &options, &err), "pawl_lock_new", &err);
    return lock;
}

struct bench_versus bench_versus(int slices, bench_slice_fn *mine, void *my_arg,
                                 bench_slice_fn *theirs, void *their_arg)
{
    double a[BENCH_SLICES_MAX], b[BENCH_SLICES_MAX], ratio[BENCH_SLICES_MAX];
    size_t n = slices < BENCH_SLICES_MAX ? (size_t)slices : BENCH_SLICES_MAX;

    mine(my_arg); /* not counted: caches, scripts and connections get warm */
    theirs(their_arg);
    for (size_t i = 0; i < n; i++) {
        if (i % 2) { /* neither side is always the first */
            b[i] = theirs(their_arg);
            a[i] = mine(my_arg);
        } else {
            a[i] = mine(my_arg);
            b[i] = theirs(their_arg);
        }
        ratio[i] = a[i] / b[i];
    }
    return (struct bench_versus){bench_median(a, n), bench_median(b, n), bench_median(ratio, n),
                                 quantile(ratio, n, 0.25), quantile(ratio, n, 0.75)};
}

/* ---- hand-over between two ------------------------------------------------------------------- */

void bench_alternate(const struct subject *s, struct bench_gaps *gaps)
{
    void *lock = s->open();

    for (int i = 0; i < gaps->rounds; i++) {
        int64_t asked = bench_ns(), released;

        s->acquire(lock);
        released = gaps->released;
        if (released > asked && gaps->n < sizeof gaps->gaps / sizeof gaps->gaps[0])
            gaps->gaps[gaps->n++] = bench_ns() - released;
        bench_nap(gaps->hold_ns);
        gaps->released = bench_ns();
        s->release(lock);
        bench_nap(gaps->pause_ns); /* the other side's turn */
    }
}

void bench_handover(const struct subject *s, struct bench_gaps *gaps)
{
    pid_t sides[2];

    for (int i = 0; i < 2; i++) {
        sides[i] = bench_fork();
        if (sides[i] == 0) {
            bench_alternate(s, gaps);
            _exit(0);
        }
    }
    bench_wait(sides[0]);
    bench_wait(sides[1]);
}

void bench_pawl_acquire(void *lock)
{
    pawl_error err;
    int code = pawl_lock_acquire(lock, PAWL_FOREVER, &err);

    bench_must(code, "acquire", &err);
}

void bench_pawl_release(void *lock)
{
    pawl_error err;
    int code = pawl_lock_release(lock, &err);

    bench_must(code, "release", &err);
}

void bench_process(pawl_client *client)
{
    int code = pawl_client_process(client);

    bench_must(code < 0 ? code : 0, "pawl_client_process", NULL);
}
