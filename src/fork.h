/* SPDX-License-Identifier: Apache-2.0
 *
 * fork.h - fork() and the end of threads.
 */
#ifndef PAWL_FORK_H
#define PAWL_FORK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pawl_client;

/* The state behind the inline functions below. Only fork.c changes it. */
struct this_thread {
    uint64_t number; /* 0: none yet */
    bool watched;    /* the end of the thread will be noticed */
};

extern atomic_uint_fast64_t pawl__forks;
extern _Thread_local struct this_thread pawl__this_thread;

/* A number that rises in the child of every fork(). A client with another number belongs to the
 * parent. */
static inline uint64_t pawl__fork_generation(void)
{
    return atomic_load_explicit(&pawl__forks, memory_order_relaxed);
}

/* Register a descriptor by which other processes notice the end of this process (a held file lock,
 * a socket). A forked child closes the descriptor at once, so that it doesn't hide the end of its
 * parent. */
void pawl__fork_guard_add(int fd);
void pawl__fork_guard_remove(int fd);

/* Register a mutex of data that all clients of the process share, and that a child's clients will
 * use, too. The mutex is locked around fork(), so that a child finds the mutex unlocked. Call this
 * before the first use of the mutex; repeated calls are harmless. There is room for sixteen. */
void pawl__fork_mutex_add(pthread_mutex_t *mutex);

/* The calling thread's number, which is never reused, unlike a thread id of the system. After the
 * first call, pawl__client_thread_gone is called for every registered client when the thread ends.
 * 0: out of memory. */
uint64_t pawl__thread_watch(void); /* for pawl__thread_id */
static inline uint64_t pawl__thread_id(void)
{
    return pawl__this_thread.watched ? pawl__this_thread.number : pawl__thread_watch();
}

void pawl__client_register(struct pawl_client *client);
void pawl__client_unregister(struct pawl_client *client);
void pawl__client_thread_gone(struct pawl_client *client, uint64_t thread);

#endif
