/* SPDX-License-Identifier: Apache-2.0
 *
 * local.c - what the worker of bench/compare does not measure of `local:`.
 *
 *     bench_local FOLDER [REDIS-SOCKET]
 *
 *   pair      acquire + release without contention; one PING to a Redis server over a unix socket
 *   thread    two threads that pass one lock back and forth, beside mutex + condition
 *   kill      from kill -9 of the holder to the return of acquire in a waiting process
 */
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

#define PAIRS 300000
#define ROUNDS 3000
#define KILLS 100

static char url[600];

static void *local_open(void)
{
    pawl_client *client;

    return bench_lock(&client, url, "bench", PAWL_FAIR);
}

static const struct subject local = {"local:", local_open, bench_pawl_acquire,
                                     bench_pawl_release};

/* ---- pair ------------------------------------------------------------------------------------ */

static double pair_ns(const struct subject *s)
{
    void *lock = s->open();
    int64_t from;

    for (int i = 0; i < 1000; i++) {
        s->acquire(lock);
        s->release(lock);
    }
    from = bench_ns();
    for (int i = 0; i < PAIRS; i++) {
        s->acquire(lock);
        s->release(lock);
    }
    return (double)(bench_ns() - from) / PAIRS;
}

static double ping_ns(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    int64_t from = bench_ns();
    char reply[16];

    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    if (connect(fd, (struct sockaddr *)&at, sizeof at))
        bench_die(path);
    for (int i = 0; i < 20000; i++)
        if (write(fd, "PING\r\n", 6) != 6 || read(fd, reply, sizeof reply) < 7)
            bench_die("redis");
    close(fd);
    return (double)(bench_ns() - from) / 20000;
}

/* ---- hand-over between threads --------------------------------------------------------------- */

static struct bench_gaps *new_gaps(void)
{
    struct bench_gaps *gaps = bench_share(sizeof *gaps);

    gaps->rounds = ROUNDS;
    gaps->hold_ns = 200000; /* by then the other is asleep in acquire */
    gaps->pause_ns = 100000;
    return gaps;
}

static void quantiles(struct bench_gaps *gaps, double *p50, double *p99)
{
    *p99 = (double)bench_quantile(gaps->gaps, gaps->n, 0.99) / 1e3;
    *p50 = (double)bench_quantile(gaps->gaps, gaps->n, 0.5) / 1e3;
    munmap(gaps, sizeof *gaps);
}

/* The same hand-over without Pawl: a mutex and a condition. */
struct ring {
    pthread_mutex_t mutex;
    pthread_cond_t turned;
    bool taken;
};

static struct ring ring = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

static void *ring_open(void)
{
    return &ring;
}

static void ring_acquire(void *arg)
{
    struct ring *r = arg;

    pthread_mutex_lock(&r->mutex);
    while (r->taken)
        pthread_cond_wait(&r->turned, &r->mutex);
    r->taken = true;
    pthread_mutex_unlock(&r->mutex);
}

static void ring_release(void *arg)
{
    struct ring *r = arg;

    pthread_mutex_lock(&r->mutex);
    r->taken = false;
    pthread_cond_signal(&r->turned);
    pthread_mutex_unlock(&r->mutex);
}

static pawl_client *thread_client;
static pawl_lock *thread_lock;

static void *thread_lock_open(void)
{
    return thread_lock;
}

static const struct subject ringed = {"mutex+condition", ring_open, ring_acquire, ring_release};
static const struct subject cohort = {"local:", thread_lock_open, bench_pawl_acquire,
                                      bench_pawl_release};

struct side {
    const struct subject *subject;
    struct bench_gaps *gaps;
};

static void *alternate_in_thread(void *arg)
{
    struct side *side = arg;

    bench_alternate(side->subject, side->gaps);
    return NULL;
}

static void thread_handover(const struct subject *s, double *p50, double *p99)
{
    struct side side = {s, new_gaps()};
    pthread_t a, b;

    pthread_create(&a, NULL, alternate_in_thread, &side);
    pthread_create(&b, NULL, alternate_in_thread, &side);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    quantiles(side.gaps, p50, p99);
}

static uint64_t handed_over(void)
{
    pawl_stats stats = {.size = sizeof stats};

    pawl_client_stats(thread_client, &stats);
    return stats.handed_over;
}

/* ---- kill -9 --------------------------------------------------------------------------------- */

static void kill_holder(int64_t *gap)
{
    int held[2], queued[2];
    char byte;
    pid_t holder;
    pawl_lock *lock;
    int64_t *taken = bench_share(sizeof *taken);
    pid_t waiter;

    if (pipe(held) || pipe(queued))
        bench_die("pipe");
    holder = fork();
    if (holder == 0) {
        lock = local_open();
        bench_pawl_acquire(lock);
        if (write(held[1], "", 1) != 1)
            _exit(1);
        pause();
    }
    if (read(held[0], &byte, 1) != 1)
        bench_die("read");
    waiter = fork();
    if (waiter == 0) {
        lock = local_open();
        if (write(queued[1], "", 1) != 1)
            _exit(1);
        bench_pawl_acquire(lock);
        *taken = bench_ns();
        bench_pawl_release(lock);
        _exit(0);
    }
    if (read(queued[0], &byte, 1) != 1)
        bench_die("read");
    nanosleep(&(struct timespec){0, 2000000}, NULL); /* asleep in acquire by now */
    *gap = bench_ns();
    kill(holder, SIGKILL);
    waitpid(waiter, NULL, 0);
    waitpid(holder, NULL, 0);
    *gap = *taken - *gap;
    munmap(taken, sizeof *taken);
    for (int i = 0; i < 2; i++) {
        close(held[i]);
        close(queued[i]);
    }
}

int main(int argc, char **argv)
{
    double mine, theirs, p50, p99, ring50, ring99;
    int64_t kills[KILLS];

    if (argc < 2) {
        fprintf(stderr, "usage: bench_local FOLDER [REDIS-SOCKET]\n");
        return 64;
    }
    snprintf(url, sizeof url, "local:%s/table", argv[1]);
    /* measurements with processes first: no client may be open when this process forks */
    for (int i = 0; i < KILLS; i++)
        kill_holder(&kills[i]);
    mine = pair_ns(&local);
    if (argc > 2) {
        theirs = ping_ns(argv[2]);
        printf("pair       local: %8.0f ns   one Redis PING   %8.0f ns   ratio %5.2f\n", mine,
               theirs, mine / theirs);
    }
    thread_lock = bench_lock(&thread_client, url, "threads", PAWL_MUTEX);
    thread_handover(&ringed, &ring50, &ring99);
    thread_handover(&cohort, &p50, &p99);
    printf("thread     local: p50 %5.1f p99 %6.1f us   mutex+condition  p50 %5.1f p99 %6.1f us   "
           "ratio of p50 %5.2f   (%llu of %d without the engine)\n", p50, p99, ring50, ring99,
           p50 / ring50, (unsigned long long)handed_over(), 2 * ROUNDS);
    pawl_lock_free(thread_lock);
    pawl_close(thread_client);
    p99 = (double)bench_quantile(kills, KILLS, 1.0) / 1e3;
    p50 = (double)bench_quantile(kills, KILLS, 0.5) / 1e3;
    printf("kill -9    next owner after p50 %.0f us, max %.0f us (%d kills)\n", p50, p99, KILLS);
    return 0;
}
