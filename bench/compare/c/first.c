/* SPDX-License-Identifier: Apache-2.0
 *
 * first.c - acquire and release one lock in a new process: bench_first LIBRARY ADDRESS [PAIRS].
 *
 * This program is apart from the worker, because the worker also loads the libraries of PostgreSQL
 * and MariaDB, whose start would be measured, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker.h"

static const struct library *const libraries[] = {
    &library_pawl, &library_plain, &library_scripts, &library_flock, &library_flock_token,
    &library_mutex, &library_semaphore, NULL,
};

int main(int argc, char **argv)
{
    const struct library *const *l = libraries;
    long pairs = argc > 3 ? atol(argv[3]) : 1;
    void *client, *lock;

    while (argc > 2 && *l && strcmp((*l)->name, argv[1]))
        l++;
    if (argc < 3 || !*l) {
        fprintf(stderr, "usage: bench_first LIBRARY ADDRESS [PAIRS]\n");
        return 64;
    }
    if ((*l)->prepare)
        (*l)->prepare(argv[2]);
    client = (*l)->open(argv[2]);
    lock = (*l)->lock(client, "bench-0", EXCLUSIVE);
    for (long i = 0; i < pairs; i++) {
        (*l)->acquire(lock);
        (*l)->release(lock);
    }
    if ((*l)->close)
        (*l)->close(client);
    return 0;
}
