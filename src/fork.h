/* SPDX-License-Identifier: Apache-2.0
 *
 * fork.h - what must be known about processes and threads.
 */
#ifndef PAWL_FORK_H
#define PAWL_FORK_H

#include <pthread.h>
#include <stdint.h>

struct pawl_client;

/* Rises in the child of every fork(); a client whose number differs belongs to the parent. */
uint64_t pawl__fork_generation(void);

/* A descriptor by which the system sees that this process lives (a held file lock, a socket). In a
 * forked child it is closed at once, so that the parent's death is still seen. */
void pawl__fork_guard_add(int fd);
void pawl__fork_guard_remove(int fd);

/* A mutex of something that all clients of the process share, and that a child's clients will use
 * too: held around fork(), so that a child finds it free. To be called before its first use, again
 * and again if that is simpler; there is room for sixteen. */
void pawl__fork_mutex_add(pthread_mutex_t *mutex);

/* The calling thread's number: unlike a thread id of the system, never used again. The first call
 * also arranges that the thread's end is noticed: pawl__client_thread_gone is called then, for
 * every registered client. 0: out of memory. */
uint64_t pawl__thread_id(void);

void pawl__client_register(struct pawl_client *client);
void pawl__client_unregister(struct pawl_client *client);
void pawl__client_thread_gone(struct pawl_client *client, uint64_t thread);

#endif
