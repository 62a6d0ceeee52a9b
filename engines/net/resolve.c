/* SPDX-License-Identifier: Apache-2.0
 *
 * resolve.c - resolves names to addresses, without blocking.
 *
 * getaddrinfo may take many seconds and can't be interrupted, so a detached thread calls
 * getaddrinfo. Thread and client share a box with a mutex and two references. The thread puts the
 * result into the box and, if the client still waits, wakes the client; the last of the two frees
 * the box. (libuv's workers would block the loop, and with it pawl_close, until the resolver is
 * done.) Numeric addresses need no thread, and neither does "localhost", which is always the
 * loopback address. So a forked child can use these addresses at once, too; the resolver of the C
 * library may have been locked at the fork by a thread that the child does not have.
 */
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <strings.h>

#include "net.h"

struct resolve_box {
    pthread_mutex_t mutex;
    int refs;
    pawl_wake *wake; /* NULL: the client has left */
    void (*send)(pawl_wake *);
    bool finished;
    int error;
    struct addrinfo *addresses;
    char port[8];
    char host[];
};

static void leave(struct resolve_box *box)
{
    int refs = --box->refs;

    pthread_mutex_unlock(&box->mutex);
    if (refs)
        return;
    if (box->addresses)
        freeaddrinfo(box->addresses);
    pthread_mutex_destroy(&box->mutex);
    free(box);
}

static int look_up(const char *host, const char *port, int flags, struct addrinfo **ret)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};

    *ret = NULL;
    return getaddrinfo(host, port, &hints, ret);
}

static void *resolver(void *arg)
{
    struct resolve_box *box = arg;
    struct addrinfo *addresses;
    int error = look_up(box->host, box->port, AI_ADDRCONFIG, &addresses);

    if (error == EAI_NONAME || error == EAI_ADDRFAMILY) /* for example, only loopback is up */
        error = look_up(box->host, box->port, 0, &addresses);
    pthread_mutex_lock(&box->mutex);
    box->error = error;
    box->addresses = error ? NULL : addresses;
    box->finished = true;
    if (box->wake)
        box->send(box->wake);
    leave(box);
    return NULL;
}

static void woken(pawl_wake *wake)
{
    net_resolve *r = wake->arg;
    struct addrinfo *addresses;
    int error;

    pthread_mutex_lock(&r->box->mutex);
    if (!r->box->finished) {
        pthread_mutex_unlock(&r->box->mutex);
        return;
    }
    error = r->box->error;
    addresses = r->box->addresses;
    r->box->addresses = NULL;
    pthread_mutex_unlock(&r->box->mutex);
    net_resolve_cancel(r);
    r->done(r->arg, error, addresses);
}

/* Resolve a numeric address or "localhost". NULL: other names need the resolver. */
static struct addrinfo *known(const char *host, const char *port)
{
    struct addrinfo *first, *second;

    if (!look_up(host, port, AI_NUMERICHOST, &first))
        return first;
    if (strcasecmp(host, "localhost") || look_up("127.0.0.1", port, AI_NUMERICHOST, &first))
        return NULL;
    if (!look_up("::1", port, AI_NUMERICHOST, &second))
        first->ai_next = second;
    return first;
}

/* The thread blocks all signals: signals belong to the program. */
static int start_thread(struct resolve_box *box)
{
    pthread_attr_t attr;
    sigset_t all, old;
    pthread_t thread;
    int error;

    if (pthread_attr_init(&attr))
        return -1;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    error = pthread_create(&thread, &attr, resolver, box);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return error ? -1 : 0;
}

int net_resolve_start(net_resolve *r, pawl_env *env, const char *host, uint16_t port)
{
    struct resolve_box *box = calloc(1, sizeof *box + strlen(host) + 1);
    struct addrinfo *addresses;

    if (!box)
        return PAWL_ENOMEM;
    strcpy(box->host, host);
    snprintf(box->port, sizeof box->port, "%u", port);
    addresses = known(host, box->port);
    if (addresses) {
        free(box);
        r->done(r->arg, 0, addresses);
        return 0;
    }
    pthread_mutex_init(&box->mutex, NULL);
    box->refs = 2;
    box->wake = &r->wake;
    box->send = env->wake_send;
    r->env = env;
    r->box = box;
    r->wake = (pawl_wake){.fn = woken, .arg = r};
    env->wake_begin(env, &r->wake);
    if (!start_thread(box))
        return 0;
    box->refs = 1;
    net_resolve_cancel(r);
    return PAWL_ENOMEM;
}

void net_resolve_cancel(net_resolve *r)
{
    if (!r->box)
        return;
    pthread_mutex_lock(&r->box->mutex);
    r->box->wake = NULL;
    leave(r->box);
    r->box = NULL;
    r->env->wake_end(r->env, &r->wake);
}
