/* SPDX-License-Identifier: Apache-2.0
 *
 * fork.c - forks and ending threads.
 *
 * Order of locking: `clients_mutex`, a client's mutex, `guards_mutex`. The first and the last are
 * process-wide and are locked around fork(), so that a child finds consistent lists. The mutexes
 * that were registered by pawl__fork_mutex_add are locked around fork(), too; a thread that holds a
 * registered mutex locks no other mutex. A client's mutex may be held by a thread that does not
 * exist in the child. That is harmless, because in the child every call on the client fails at the
 * generation check.
 */
#include "fork.h"

#include <stdlib.h>
#include <unistd.h>

#include "core.h"

static pthread_mutex_t clients_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t guards_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool have_key;
static atomic_uint_fast64_t last_thread;
static struct list clients = {&clients, &clients};
static int *guarded;
static size_t nguarded, room;
static pthread_mutex_t *mutexes[16]; /* under guards_mutex */
static size_t nmutexes;

atomic_uint_fast64_t pawl__forks = 1;
_Thread_local struct this_thread pawl__this_thread;

static void before_fork(void)
{
    pthread_mutex_lock(&clients_mutex);
    pthread_mutex_lock(&guards_mutex);
    for (size_t i = 0; i < nmutexes; i++)
        pthread_mutex_lock(mutexes[i]);
}

static void in_parent(void)
{
    for (size_t i = nmutexes; i-- > 0;)
        pthread_mutex_unlock(mutexes[i]);
    pthread_mutex_unlock(&guards_mutex);
    pthread_mutex_unlock(&clients_mutex);
}

static void in_child(void)
{
    atomic_fetch_add(&pawl__forks, 1);
    for (size_t i = 0; i < nguarded; i++)
        close(guarded[i]);
    nguarded = 0;
    list_init(&clients);
    in_parent();
}

/* Runs in the ending thread. A destructor of the program that runs later may still acquire a lock:
 * the thread then keeps its number, is watched again, and thread_ends runs once more. (POSIX lets
 * the system stop after PTHREAD_DESTRUCTOR_ITERATIONS rounds, at least 4.) */
static void thread_ends(void *value)
{
    uint64_t thread = *(uint64_t *)value;

    free(value);
    pawl__this_thread.watched = false;
    pthread_mutex_lock(&clients_mutex);
    for (struct list *l = clients.next; l != &clients; l = l->next)
        pawl__client_thread_gone(list_entry(l, struct pawl_client, registered), thread);
    pthread_mutex_unlock(&clients_mutex);
}

static void prepare(void)
{
    have_key = pthread_key_create(&thread_key, thread_ends) == 0;
    pthread_atfork(before_fork, in_parent, in_child);
}

/* Give the thread a number, and watch for the end of the thread. */
uint64_t pawl__thread_watch(void)
{
    struct this_thread *me = &pawl__this_thread;
    uint64_t *value;

    pthread_once(&once, prepare);
    value = malloc(sizeof *value);
    if (!value)
        return 0;
    *value = me->number ? me->number : atomic_fetch_add(&last_thread, 1) + 1;
    if (!have_key || pthread_setspecific(thread_key, value)) {
        free(value);
        return 0;
    }
    me->number = *value;
    me->watched = true;
    return me->number;
}

void pawl__client_register(struct pawl_client *client)
{
    pthread_once(&once, prepare);
    pthread_mutex_lock(&clients_mutex);
    list_append(&clients, &client->registered);
    pthread_mutex_unlock(&clients_mutex);
}

void pawl__client_unregister(struct pawl_client *client)
{
    pthread_mutex_lock(&clients_mutex);
    list_remove(&client->registered);
    pthread_mutex_unlock(&clients_mutex);
}

void pawl__fork_mutex_add(pthread_mutex_t *mutex)
{
    size_t i = 0;

    pthread_once(&once, prepare);
    pthread_mutex_lock(&guards_mutex);
    while (i < nmutexes && mutexes[i] != mutex)
        i++;
    if (i == nmutexes && i < sizeof mutexes / sizeof mutexes[0])
        mutexes[nmutexes++] = mutex;
    pthread_mutex_unlock(&guards_mutex);
}

void pawl__fork_guard_add(int fd)
{
    pthread_once(&once, prepare);
    pthread_mutex_lock(&guards_mutex);
    if (nguarded == room) {
        size_t more = room ? 2 * room : 16;
        int *grown = realloc(guarded, more * sizeof *grown);

        if (grown) {
            guarded = grown;
            room = more;
        }
    }
    if (nguarded < room) /* if full: a forked child may delay the notice of our death, no more */
        guarded[nguarded++] = fd;
    pthread_mutex_unlock(&guards_mutex);
}

void pawl__fork_guard_remove(int fd)
{
    pthread_mutex_lock(&guards_mutex);
    for (size_t i = 0; i < nguarded; i++)
        if (guarded[i] == fd) {
            guarded[i] = guarded[--nguarded];
            break;
        }
    pthread_mutex_unlock(&guards_mutex);
}
