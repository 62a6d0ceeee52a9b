/* SPDX-License-Identifier: Apache-2.0
 *
 * local.c - locks of one machine, between processes: flock(2), a robust POSIX mutex, a POSIX
 * semaphore and a POSIX read-write lock in a mapped file. The address is a folder. None of them has
 * a lease, and only `flock-token` has a token. Only flock(2) and the mutex survive the death of
 * their holder, as `local:` does.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker.h"

static void *same(const char *folder)
{
    return strdup(folder);
}

static int file_open(const char *folder, const char *name, const char *what, int *made)
{
    char path[512];
    int fd;

    snprintf(path, sizeof path, "%s/%s.%s", folder, name, what);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        die(path, strerror(errno));
    flock(fd, LOCK_EX);
    *made = lseek(fd, 0, SEEK_END) == 0;
    if (ftruncate(fd, 4096))
        die(path, strerror(errno));
    return fd;
}

/* ---- flock ----------------------------------------------------------------------------------- */

struct flocked {
    int fd, operation;
};

static void *flock_lock(void *folder, const char *name, enum kind kind)
{
    int made, fd = file_open(folder, name, "flock", &made);
    struct flocked *lock = malloc(sizeof *lock);

    flock(fd, LOCK_UN);
    if (!lock)
        die("malloc", "failed");
    *lock = (struct flocked){fd, kind == READER ? LOCK_SH : LOCK_EX};
    return kind == PERMIT ? NULL : lock;
}

static void flock_acquire(void *arg)
{
    struct flocked *lock = arg;

    if (flock(lock->fd, lock->operation))
        die("flock", strerror(errno));
}

static void flock_release(void *arg)
{
    if (flock(((struct flocked *)arg)->fd, LOCK_UN))
        die("flock", strerror(errno));
}

/* A lock with a token: the token is a counter in the file. */
static void flock_token_acquire(void *arg)
{
    struct flocked *lock = arg;
    uint64_t token = 0;

    flock_acquire(arg);
    if (pread(lock->fd, &token, sizeof token, 0) != sizeof token)
        die("pread", "failed");
    token++;
    if (pwrite(lock->fd, &token, sizeof token, 0) != sizeof token)
        die("pwrite", "failed");
}

/* ---- in shared memory ------------------------------------------------------------------------ */

static void *mapped(void *folder, const char *name, const char *what, void (*init)(void *))
{
    int made, fd = file_open(folder, name, what, &made);
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (at == MAP_FAILED)
        die("mmap", strerror(errno));
    if (made)
        init(at);
    flock(fd, LOCK_UN); /* the mapping keeps the file open, so close alone would not unlock */
    close(fd);
    return at;
}

static void mutex_init(void *at)
{
    pthread_mutexattr_t attr;

    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(at, &attr);
}

static void *mutex_lock(void *folder, const char *name, enum kind kind)
{
    return kind == EXCLUSIVE ? mapped(folder, name, "mutex", mutex_init) : NULL;
}

static void mutex_acquire(void *at)
{
    int code = pthread_mutex_lock(at);

    if (code == EOWNERDEAD) /* the holder was killed */
        code = pthread_mutex_consistent(at);
    if (code)
        die("pthread_mutex_lock", strerror(code));
}

static void mutex_release(void *at)
{
    pthread_mutex_unlock(at);
}

static void semaphore_init_one(void *at)
{
    sem_init(at, 1, 1);
}

static void semaphore_init(void *at)
{
    sem_init(at, 1, PERMITS);
}

static void *semaphore_lock(void *folder, const char *name, enum kind kind)
{
    return kind == EXCLUSIVE ? mapped(folder, name, "semaphore", semaphore_init_one)
           : kind == PERMIT  ? mapped(folder, name, "permits", semaphore_init)
                             : NULL;
}

static void semaphore_acquire(void *at)
{
    while (sem_wait(at))
        if (errno != EINTR)
            die("sem_wait", strerror(errno));
}

static void semaphore_release(void *at)
{
    sem_post(at);
}

/* ---- read-write ------------------------------------------------------------------------------ */

struct sided {
    pthread_rwlock_t *lock;
    bool reads;
};

static void rwlock_init(void *at)
{
    pthread_rwlockattr_t attr;

    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_rwlock_init(at, &attr);
}

static void *rwlock_lock(void *folder, const char *name, enum kind kind)
{
    struct sided *s = malloc(sizeof *s);

    if (!s)
        die("malloc", "failed");
    *s = (struct sided){mapped(folder, name, "rwlock", rwlock_init), kind == READER};
    return kind == PERMIT ? NULL : s;
}

static void rwlock_acquire(void *arg)
{
    struct sided *s = arg;

    if (s->reads ? pthread_rwlock_rdlock(s->lock) : pthread_rwlock_wrlock(s->lock))
        die("pthread_rwlock", "failed");
}

static void rwlock_release(void *arg)
{
    pthread_rwlock_unlock(((struct sided *)arg)->lock);
}

const struct library library_flock = {.name = "flock", .open = same, .lock = flock_lock,
                                      .acquire = flock_acquire, .release = flock_release,
                                      .close = free};
const struct library library_flock_token = {.name = "flock-token", .open = same,
                                            .lock = flock_lock, .acquire = flock_token_acquire,
                                            .release = flock_release, .close = free};
const struct library library_mutex = {.name = "mutex", .open = same, .lock = mutex_lock,
                                      .acquire = mutex_acquire, .release = mutex_release,
                                      .close = free};
const struct library library_semaphore = {.name = "semaphore", .open = same,
                                          .lock = semaphore_lock, .acquire = semaphore_acquire,
                                          .release = semaphore_release, .close = free};
const struct library library_rwlock = {.name = "rwlock", .open = same, .lock = rwlock_lock,
                                       .acquire = rwlock_acquire, .release = rwlock_release,
                                       .close = free};
