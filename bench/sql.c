/* SPDX-License-Identifier: Apache-2.0
 *
 * sql.c - bench_sql_postgres URL, bench_sql_mysql URL: a mutex of Pawl on a SQL server beside the
 * server's own locks, and beside the usual home-made lock: insert a row, and retry until the
 * insert succeeds.
 *
 *   alone      one process acquires and releases: microseconds for both (median, 90 %)
 *   n wait     n processes want the same lock all the time, and all but one wait: hand-overs per
 *              second, statements per hand-over (counted by the server, for all clients together),
 *              and unfairness: the most hand-overs of one process divided by the fewest
 *
 * Only Pawl's lock has a lease, a token and an order of waiters; these need writes to the disk.
 */
#include <string.h>
#include <unistd.h>

#include "sql.h"

const char *sql_url;

enum { ALONE = 400, MAX = 64, MS = 3000 };

struct round {
    volatile int stop;
    volatile int64_t done[MAX];
};

static void *pawl_lock_open(void)
{
    pawl_client *client;

    return bench_lock(&client, sql_url, "bench", PAWL_FAIR);
}

static const struct subject pawl = {"pawl", pawl_lock_open, bench_pawl_acquire,
                                    bench_pawl_release};

/* Run in a child process, so that its connections end with the child. */
static void alone(const struct subject *s)
{
    static int64_t took[ALONE];
    pid_t child = bench_fork();
    void *lock;

    if (child) {
        bench_wait(child);
        return;
    }
    lock = s->open();
    for (int i = -20; i < ALONE; i++) {
        int64_t begun = bench_ns();

        s->acquire(lock);
        s->release(lock);
        if (i >= 0)
            took[i] = bench_ns() - begun;
    }
    printf("%-13s alone    %7.0f us  (90 %%: %.0f us)\n", s->name,
           (double)bench_quantile(took, ALONE, 0.5) / 1e3,
           (double)bench_quantile(took, ALONE, 0.9) / 1e3);
    fflush(stdout);
    _exit(0);
}

static void work(const struct subject *s, struct round *r, int who)
{
    void *lock = s->open();

    while (!r->stop) {
        s->acquire(lock);
        s->release(lock);
        r->done[who]++;
    }
}

/* Run for `ms`; returns the number of acquires. */
static int64_t crowd(const struct subject *s, struct round *r, int n, int64_t ms)
{
    pid_t pids[MAX];
    int64_t sum = 0;

    memset((void *)r, 0, sizeof *r);
    r->stop = !ms;
    for (int i = 0; i < n; i++) {
        pids[i] = bench_fork();
        if (!pids[i]) {
            work(s, r, i);
            _exit(0);
        }
    }
    bench_nap(ms * 1000000);
    r->stop = 1;
    for (int i = 0; i < n; i++)
        bench_wait(pids[i]);
    for (int i = 0; i < n; i++)
        sum += r->done[i];
    return sum;
}

static void together(const struct subject *s, struct round *r, int n)
{
    int64_t before = sql_statements(), setup, sent, sum, most = 0, fewest = INT64_MAX;

    crowd(s, r, n, 0);
    setup = sql_statements() - before;
    before = sql_statements();
    sum = crowd(s, r, n, MS);
    sent = sql_statements() - before - setup;
    for (int i = 0; i < n; i++) {
        most = r->done[i] > most ? r->done[i] : most;
        fewest = r->done[i] < fewest ? r->done[i] : fewest;
    }
    printf("%-13s %2d wait  %7.0f /s  %6.1f statements each  most/fewest %.1f\n", s->name, n,
           (double)sum * 1e3 / MS, (double)sent / (double)(sum ? sum : 1),
           (double)most / (double)(fewest ? fewest : 1));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const int crowds[] = {2, 16, 64};
    struct round *r = bench_share(sizeof *r);

    if (argc < 2) {
        fprintf(stderr, "usage: %s URL\n", argv[0]);
        return 64;
    }
    sql_url = argv[1];
    sql_prepare();
    alone(&pawl);
    for (const struct subject *s = sql_subjects; s->name; s++)
        alone(s);
    for (size_t i = 0; i < sizeof crowds / sizeof crowds[0]; i++) {
        together(&pawl, r, crowds[i]);
        for (const struct subject *s = sql_subjects; s->name; s++)
            together(s, r, crowds[i]);
    }
    return 0;
}
