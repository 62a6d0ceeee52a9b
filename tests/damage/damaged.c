/* SPDX-License-Identifier: Apache-2.0
 *
 * damaged.c - damaged URL ROUNDS SEED: use every call of pawl.h on a service whose answers arrive
 * damaged (damage.py runs the proxy that damages them).
 *
 * Each round opens a client, makes a few random calls with short timeouts, and closes the client.
 * The results do not matter. Three things do: no call crashes, no round takes longer than ROUND_MAX
 * seconds (SIGALRM then ends the program, which counts as a failure), and memory stays bounded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pawl.h"

#define ROUND_MAX 100
#define WAIT_MS 150

static unsigned state;
static uint64_t rows, granted, refused;

static unsigned draw(unsigned n)
{
    state = state * 1103515245u + 12345u;
    return (state >> 16) % n;
}

static int row(void *arg, const pawl_info *info)
{
    (void)arg;
    rows += info->size != 0;
    return 0;
}

static void count(int code)
{
    if (code)
        refused++;
    else
        granted++;
}

static void use_lock(pawl_client *client)
{
    pawl_lock_options options = {.size = sizeof options, .kind = draw(5)};
    pawl_lock *lock;
    pawl_error err;

    options.lease_ms = draw(2) ? 0 : 1000;
    if (pawl_lock_new(&lock, client, draw(2) ? "one" : "two", &options, &err)) {
        refused++;
        return;
    }
    if (!pawl_lock_acquire(lock, WAIT_MS, &err)) {
        granted++;
        count(pawl_lock_renew(lock, 1000, &err));
        if (draw(3))
            count(pawl_lock_release(lock, &err));
    } else {
        refused++;
    }
    if (!draw(4))
        count(pawl_lock_break(lock, &err));
    pawl_lock_free(lock);
}

static void use_semaphore(pawl_client *client)
{
    pawl_semaphore_options options = {.size = sizeof options, .permits = 3, .lease_ms = 1000};
    pawl_semaphore *sem;
    pawl_error err;
    int64_t n;

    if (pawl_semaphore_new(&sem, client, "permits", &options, &err)) {
        refused++;
        return;
    }
    if (!pawl_semaphore_acquire(sem, 2, WAIT_MS, &err)) {
        granted++;
        count(pawl_semaphore_release(sem, 1, &err));
    } else {
        refused++;
    }
    count(pawl_semaphore_available(sem, &n, &err));
    pawl_semaphore_free(sem);
}

static void use_latch(pawl_client *client)
{
    pawl_latch *latch;
    pawl_error err;
    int64_t n;

    if (pawl_latch_new(&latch, client, "latch", &err)) {
        refused++;
        return;
    }
    count(pawl_latch_set(latch, 1, &err));
    count(pawl_latch_count_down(latch, &err));
    count(pawl_latch_count(latch, &n, &err));
    count(pawl_latch_wait(latch, WAIT_MS, &err));
    pawl_latch_free(latch);
}

static void one_round(const char *url)
{
    pawl_client_options options = {.size = sizeof options, .timeout_ms = 400, .label = "damaged"};
    pawl_client *client;
    pawl_error err;

    if (pawl_open(&client, url, &options, &err)) {
        refused++;
        return;
    }
    for (unsigned n = 1 + draw(3); n; n--) {
        switch (draw(6)) {
        case 0: use_semaphore(client); break;
        case 1: use_latch(client); break;
        case 2: count(pawl_inspect(client, "one", row, NULL, &err)); break;
        case 3: count(pawl_list(client, NULL, row, NULL, &err)); break;
        default: use_lock(client); break;
        }
    }
    pawl_close(client);
}

int main(int argc, char **argv)
{
    struct rusage used;
    int rounds;

    if (argc != 4) {
        fprintf(stderr, "usage: damaged URL ROUNDS SEED\n");
        return 64;
    }
    rounds = atoi(argv[2]);
    state = (unsigned)atoi(argv[3]);
    for (int i = 0; i < rounds; i++) {
        alarm(ROUND_MAX);
        one_round(argv[1]);
    }
    getrusage(RUSAGE_SELF, &used);
    printf("rounds=%d granted=%llu refused=%llu rows=%llu rss_kb=%ld\n", rounds,
           (unsigned long long)granted, (unsigned long long)refused, (unsigned long long)rows,
           used.ru_maxrss);
    return 0;
}
