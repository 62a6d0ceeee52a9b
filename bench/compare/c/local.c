/* SPDX-License-Identifier: Apache-2.0
 *
 * local.c - locks of one machine, between processes: flock(2), a robust POSIX mutex and a POSIX
 * semaphore in a mapped file. The address is a folder. None of them has a lease or a token, and
 * only the mutex survives the death of its holder as `local:` does.
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

static void *flock_lock(void *folder, const char *name)
{
    int made, fd = file_open(folder, name, "flock", &made), *lock = malloc(sizeof *lock);

    flock(fd, LOCK_UN);
    if (!lock)
        die("malloc", "failed");
    *lock = fd;
    return lock;
}

static void flock_acquire(void *lock)
{
    if (flock(*(int *)lock, LOCK_EX))
        die("flock", strerror(errno));
}

static void flock_release(void *lock)
{
    if (flock(*(int *)lock, LOCK_UN))
        die("flock", strerror(errno));
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

static void *mutex_lock(void *folder, const char *name)
{
    return mapped(folder, name, "mutex", mutex_init);
}

static void mutex_acquire(void *at)
{
    if (pthread_mutex_lock(at))
        die("pthread_mutex_lock", "failed");
}

static void mutex_release(void *at)
{
    pthread_mutex_unlock(at);
}

static void semaphore_init(void *at)
{
    sem_init(at, 1, 1);
}

static void *semaphore_lock(void *folder, const char *name)
{
    return mapped(folder, name, "semaphore", semaphore_init);
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

const struct library library_flock = {"flock", same, flock_lock, flock_acquire, flock_release,
                                      free, NULL};
const struct library library_mutex = {"mutex", same, mutex_lock, mutex_acquire, mutex_release,
                                      free, NULL};
const struct library library_semaphore = {"semaphore", same, semaphore_lock, semaphore_acquire,
                                          semaphore_release, free, NULL};
