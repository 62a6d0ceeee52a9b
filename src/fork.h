/* SPDX-License-Identifier: Apache-2.0
 *
 * fork.h - fork() and the end of threads.
 */
#ifndef PAWL_FORK_H
#define PAWL_FORK_H

#include <pthread.h>
#include <stdint.h>

struct pawl_client;

/* A number that rises in the child of every fork(). A client with another number belongs to the
 * parent. */
uint64_t pawl__fork_generation(void);

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
uint64_t pawl__thread_id(void);

void pawl__client_register(struct pawl_client *client);
void pawl__client_unregister(struct pawl_client *client);
void pawl__client_thread_gone(struct pawl_client *client, uint64_t thread);

#endif
