/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h - the locks that the worker in C can measure. Each function ends the process with a
 * message if anything goes wrong: a figure without the work behind it would be worse than none.
 */
#ifndef PAWL_COMPARE_WORKER_H
#define PAWL_COMPARE_WORKER_H

struct library {
    const char *name;
    /* A client of the service at `address`; contenders of one process may share the client. */
    void *(*open)(const char *address);
    /* A lock of that client. */
    void *(*lock)(void *client, const char *name);
    void (*acquire)(void *lock);
    void (*release)(void *lock);
    /* After the last release. NULL: the end of the process does it. */
    void (*close)(void *client);
    /* Once for each measurement, before the contenders open their clients. NULL: nothing to do. */
    void (*prepare)(const char *address);
};

extern const struct library library_pawl;
extern const struct library library_plain;                     /* libraries of Redis */
extern const struct library library_flock, library_mutex, library_semaphore;
extern const struct library library_pg_advisory, library_pg_row, library_pg_poll;
extern const struct library library_get_lock, library_my_row, library_my_poll;

_Noreturn void die(const char *what, const char *why);

#endif
