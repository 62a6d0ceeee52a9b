/* SPDX-License-Identifier: Apache-2.0
 *
 * sql_stock.c - many processes deduct from one stock in a SQL database, under a lock in the same
 * database. Now and then the holder of the lock is stopped for longer than its lease.
 *
 *     sql_stock_postgres URL [SECONDS [PROCESSES]]      sql_stock_mysql ...
 *
 * The program runs twice: without tokens, and with tokens that the row checks (sql_stock.h). A sale
 * is "read how many are left, write one less". A process that wakes up late overwrites the sales
 * that others made meanwhile: these pieces are sold, but not deducted. Without tokens a few sales
 * are lost in this way; the number depends on chance. With tokens no sale is ever lost, because
 * late writes are refused. (For work inside one database the transaction form is simpler, see
 * row_lock_postgres.c. This program is for other work: a stock here, a payment there.)
 */
#include <pawl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sql_stock.h"

enum { MAX = 64, LEASE_MS = 400, PIECES = 1000000 };

struct board {
    atomic_int stop, failed;
    struct {
        atomic_int inside;
        atomic_long sold, refused;
    } shop[MAX];
};

static struct board *board;
static const char *url;

static void nap(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

static long now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* One sale. The lock is held when the sale begins, but may be lost before the write. */
static void sell(int shop, stock *s, pawl_lock *lock, int fenced)
{
    uint64_t token = pawl_lock_token(lock);
    int64_t left = fenced ? stock_read_fenced(s, token) : stock_read(s);
    int written = -2;

    board->shop[shop].inside = 1;
    nap(2); /* here the process may be stopped */
    if (left > 0)
        written = fenced ? stock_write_fenced(s, left - 1, token) : stock_write(s, left - 1);
    board->shop[shop].inside = 0;
    if (left == -1 || written == -1)
        board->failed = 1;
    else if (written == 1)
        board->shop[shop].sold++;
    else
        board->shop[shop].refused++;
}

static int run_shop(int shop, int fenced)
{
    pawl_client_options options = {.size = sizeof options, .watchdog_ms = LEASE_MS};
    stock *s = stock_open(url);
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;

    if (!s || pawl_open(&client, url, &options, &err) ||
        pawl_lock_new(&lock, client, "sql_stock", NULL, &err))
        return 1;
    while (!board->stop) {
        if (pawl_lock_acquire(lock, 1000, &err))
            continue;
        sell(shop, s, lock, fenced);
        pawl_lock_release(lock, &err); /* PAWL_ELOST if the process was late; the row refused */
    }
    pawl_lock_free(lock);
    pawl_close(client);
    stock_close(s);
    return 0;
}

/* Stop a process that holds the lock, for longer than the lease. */
static int stop_one(const pid_t *pids, int shops)
{
    for (int i = 0; i < shops; i++)
        if (board->shop[i].inside) {
            kill(pids[i], SIGSTOP);
            nap(LEASE_MS + LEASE_MS / 2);
            kill(pids[i], SIGCONT);
            return 1;
        }
    return 0;
}

/* Returns how many sales were lost, or -1. */
static long round_of(int fenced, long seconds, int shops)
{
    long end = now_ms() + seconds * 1000, sold = 0, refused = 0, stops = 0, left;
    stock *s = stock_open(url);
    pid_t pids[MAX];
    int status, bad = 0;

    if (!s || stock_fill(s, PIECES))
        return -1;
    *board = (struct board){0};
    for (int i = 0; i < shops; i++) {
        pids[i] = fork(); /* each opens its client after the fork */
        if (pids[i] == 0)
            _exit(run_shop(i, fenced));
    }
    while (now_ms() < end) {
        stops += stop_one(pids, shops);
        nap(20);
    }
    board->stop = 1;
    for (int i = 0; i < shops; i++)
        bad |= waitpid(pids[i], &status, 0) < 0 || status;
    for (int i = 0; i < shops; i++) {
        sold += board->shop[i].sold;
        refused += board->shop[i].refused;
    }
    left = (long)stock_read(s);
    stock_close(s);
    printf("%s: %d processes sold %ld, %ld were deducted: %ld lost; %ld refused, %ld stopped\n",
           fenced ? "tokens checked" : "without tokens", shops, sold, PIECES - left,
           sold - (PIECES - left), refused, stops);
    fflush(stdout);
    return bad || board->failed || left < 0 || !sold || !stops ? -1 : sold - (PIECES - left);
}

int main(int argc, char **argv)
{
    long seconds = argc > 2 ? atol(argv[2]) : 5;
    int shops = argc > 3 ? atoi(argv[3]) : 16;

    url = argv[1];
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (argc < 2 || board == MAP_FAILED || shops < 2 || shops > MAX) {
        fprintf(stderr, "usage: %s URL [SECONDS [PROCESSES 2..64]]\n", argv[0]);
        return 64;
    }
    if (round_of(0, seconds, shops) < 0)
        return 1;
    return round_of(1, seconds, shops) == 0 ? 0 : 1;
}
