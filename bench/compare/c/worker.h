/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h - the locks that the worker in C can measure. Each function ends the process with a
 * message if anything goes wrong: a figure without the work behind it would be worse than none.
 */
#ifndef PAWL_COMPARE_WORKER_H
#define PAWL_COMPARE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

/* What a handle asks for. PERMIT is one of PERMITS permits of a semaphore. */
enum kind { EXCLUSIVE, READER, WRITER, PERMIT };
enum { PERMITS = 10 };

struct flight;

struct library {
    const char *name;
    /* A client of the service at `address`; contenders of one process may share the client. */
    void *(*open)(const char *address);
    /* A lock of that client; NULL if the library has no lock of that kind. */
    void *(*lock)(void *client, const char *name, enum kind kind);
    void (*acquire)(void *lock);
    void (*release)(void *lock);
    /* After the last release. NULL: the end of the process does it. */
    void (*close)(void *client);
    /* Once for each measurement, before the contenders open their clients. NULL: nothing to do. */
    void (*prepare)(const char *address);
    /* Many locks in flight from one thread (flight.h). NULL: the library can't do that. */
    void (*fly)(const char *address, struct flight *flight);
    /* A client serves one thread only, so that threads of one process open a client each. */
    bool one_thread;
};

extern const struct library library_pawl;
extern const struct library library_plain, library_plain_many, library_scripts, library_ping;
extern const struct library library_flock, library_flock_token, library_mutex;
extern const struct library library_semaphore, library_rwlock;
extern const struct library library_pg_advisory, library_pg_row, library_pg_poll;
extern const struct library library_get_lock, library_my_row, library_my_poll;

_Noreturn void die(const char *what, const char *why);
int64_t now_ns(void);
void nap_us(int64_t us);

#endif
