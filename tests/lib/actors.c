/* SPDX-License-Identifier: Apache-2.0
 *
 * actors.c - threads, events, peer processes and temporary folders for tests.
 */
#include "actors.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void pause_ms(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    while (nanosleep(&t, &t) && errno == EINTR)
        ;
}

void event_init(event *e)
{
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->cond, NULL);
    e->count = 0;
}

void event_raise(event *e)
{
    pthread_mutex_lock(&e->mutex);
    e->count++;
    pthread_cond_broadcast(&e->cond);
    pthread_mutex_unlock(&e->mutex);
}

void event_await(event *e, int count)
{
    pthread_mutex_lock(&e->mutex);
    while (e->count < count)
        pthread_cond_wait(&e->cond, &e->mutex);
    pthread_mutex_unlock(&e->mutex);
}

int event_count(event *e)
{
    int count;

    pthread_mutex_lock(&e->mutex);
    count = e->count;
    pthread_mutex_unlock(&e->mutex);
    return count;
}

static void *actor_main(void *arg)
{
    actor *a = arg;

    a->run(a->arg);
    return NULL;
}

void actor_start(actor *a, void (*run)(void *arg), void *arg)
{
    a->run = run;
    a->arg = arg;
    CHECK(pthread_create(&a->id, NULL, actor_main, a) == 0);
}

void actor_join(actor *a)
{
    CHECK(pthread_join(a->id, NULL) == 0);
}

void peer_start(peer *p, peer_fn *fn, void *arg)
{
    int ends[2];
    peer parent = {.pid = getpid()};

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    fflush(NULL);
    p->fd = ends[0];
    p->pid = fork();
    CHECK(p->pid >= 0);
    if (p->pid > 0) {
        close(ends[1]);
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[0]);
    parent.fd = ends[1];
    fn(&parent, arg);
    check_run_cleanup();
    exit(EXIT_SUCCESS);
}

void peer_send(peer *p, uint64_t value)
{
    CHECK(send(p->fd, &value, sizeof value, MSG_NOSIGNAL) == sizeof value);
}

uint64_t peer_recv(peer *p)
{
    uint64_t value;
    ssize_t n;

    do
        n = recv(p->fd, &value, sizeof value, 0);
    while (n < 0 && errno == EINTR);
    CHECK(n == sizeof value);
    return value;
}

void peer_signal(peer *p, int number)
{
    CHECK(kill(p->pid, number) == 0);
}

void peer_join(peer *p)
{
    int status;

    CHECK(waitpid(p->pid, &status, 0) == p->pid);
    close(p->fd);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

void peer_kill(peer *p)
{
    int status;

    peer_signal(p, SIGKILL);
    CHECK(waitpid(p->pid, &status, 0) == p->pid);
    close(p->fd);
}

/* _exit: a forked copy of a process with clients must not run its parent's exit handlers. */
int in_child(int (*fn)(void *arg), void *arg)
{
    int status;
    pid_t pid;

    fflush(NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(fn(arg));
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

char *temp_dir(void)
{
    const char *base = getenv("TMPDIR");
    char path[4096];

    snprintf(path, sizeof path, "%s/pawl-test-XXXXXX", base && *base ? base : "/tmp");
    return mkdtemp(path) ? strdup(path) : NULL; /* mkdtemp uses mode 0700 */
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
