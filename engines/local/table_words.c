/* SPDX-License-Identifier: Apache-2.0
 *
 * table_words.c - all access to the table: to a mapping, or by pread and pwrite.
 *
 * A mapped word is loaded with acquire and swapped with acquire and release. A word of a table that
 * is not mapped is read and changed under a kernel lock (F_OFD_SETLK) on a byte of its own, far
 * beyond the file's end: shared to read, exclusive to swap. The kernel drops the lock when the
 * process ends, and a swap is one pwrite, so a kill leaves the old word or the new one. Taking and
 * dropping the lock orders the memory, too. A process that is stopped while holding such a lock
 * blocks the others at that word: the others give up after two seconds (ETIMEDOUT).
 *
 * TIME. A malicious member of the group may hold the locks of all words, release them for a moment
 * now and then, or hold so many locks that the kernel needs long for each. So all waits of one call
 * together take two seconds (PATIENCE), and the call as a whole ten (LIMIT). For the two seconds
 * after a call that waited in vain, a call waits only for a moment (SHORT) per word, and takes half
 * a second (HASTE): a client with a thousand waiters must not wait two seconds for each. After the
 * first word that could not be read, a call waits for no other word. At most GAP is counted between
 * two accesses, so that a process that was stopped, or waited for a CPU, does not fail for that
 * reason.
 *
 * A malicious member of the group may truncate the file at any time. pread reports that, and no
 * code here relies on an earlier check of the size. A mapped file can only be truncated by its
 * owner. But a damaged word may name a block beyond the file's end, where an access to the mapping
 * would end the process with SIGBUS: blocks are accessed after a check of the size only.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "local.h"

#define PATIENCE (INT64_C(2000) * PAWL_NS_PER_MS)
#define LIMIT (INT64_C(10000) * PAWL_NS_PER_MS)
#define SHORT (INT64_C(5) * PAWL_NS_PER_MS)
#define HASTE (INT64_C(500) * PAWL_NS_PER_MS)
#define GAP (INT64_C(100) * PAWL_NS_PER_MS)

static local_word *mapped(const local *l, size_t at)
{
    return (local_word *)(void *)(l->map + at);
}

/* ---- the time of a call ---------------------------------------------------------------------- */

/* A clock with a resolution of some ms, which costs nearly nothing. */
static int64_t coarse_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 * PAWL_NS_PER_MS + t.tv_nsec;
}

static void count_time(local *l)
{
    int64_t now = coarse_now(), gap = l->seen ? now - l->seen : 0;

    l->spent += gap < GAP ? gap : GAP;
    l->seen = now;
}

void local_call_begin(local *l)
{
    l->trouble = 0;
    if (l->map)
        return;
    l->seen = coarse_now();
    l->spent = l->seen < l->hasty ? LIMIT - HASTE : 0;
}

void local_call_resume(local *l)
{
    l->seen = 0;
}

bool local_call_in_time(local *l)
{
    if (l->may_map)
        return true;
    count_time(l);
    if (l->spent <= LIMIT)
        return true;
    l->trouble = ETIMEDOUT;
    return false;
}

/* May the call go on waiting for a word for which it waits since `since`? */
static bool may_wait(local *l, int64_t since)
{
    if (l->trouble || (l->spent >= PATIENCE && l->seen - since >= SHORT))
        return false;
    return local_call_in_time(l);
}

/* ---- a table that is not mapped -------------------------------------------------------------- */

/* The first tries only yield: most locks are held for some microseconds. */
static void nap(int tries)
{
    struct timespec time = {.tv_nsec = 20000};

    if (tries < 20)
        sched_yield();
    else
        nanosleep(&time, NULL);
}

static void give_up(local *l)
{
    if (l->trouble)
        return;
    l->trouble = ETIMEDOUT;
    if (l->seen >= l->hasty)
        l->hasty = l->seen + PATIENCE;
}

static bool lock_word(local *l, size_t at, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET,
                         .l_start = LOCAL_LOCK_WORDS + (off_t)(at / 8), .l_len = 1};
    int64_t since;

    if (!local_call_in_time(l))
        return false;
    since = l->seen;
    for (int tries = 0; fcntl(l->fd, F_OFD_SETLK, &lock); tries++) {
        if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
            l->trouble = errno;
            return false;
        }
        if (!may_wait(l, since)) {
            give_up(l);
            return false;
        }
        nap(tries);
    }
    return true;
}

static void unlock_word(local *l, size_t at)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET,
                         .l_start = LOCAL_LOCK_WORDS + (off_t)(at / 8), .l_len = 1};

    (void)fcntl(l->fd, F_OFD_SETLK, &lock);
}

static bool read_bytes(local *l, size_t at, void *to, size_t bytes)
{
    ssize_t n;

    do
        n = pread(l->fd, to, bytes, (off_t)at);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)bytes)
        return true;
    l->trouble = n < 0 ? errno : ENODATA; /* truncated */
    return false;
}

static bool write_bytes(local *l, size_t at, const void *from, size_t bytes)
{
    struct rlimit limit;
    ssize_t n;

    /* Beyond the limit the kernel would send SIGXFSZ. */
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < at + bytes) {
        l->trouble = EFBIG;
        return false;
    }
    do
        n = pwrite(l->fd, from, bytes, (off_t)at);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)bytes)
        return true;
    l->trouble = n < 0 ? errno : ENOSPC;
    return false;
}

static uint64_t read_word(local *l, size_t at)
{
    uint64_t value = 0;

    if (!lock_word(l, at, F_RDLCK))
        return 0;
    if (!read_bytes(l, at, &value, sizeof value))
        value = 0;
    unlock_word(l, at);
    return value;
}

static bool swap_word(local *l, size_t at, uint64_t *old, uint64_t value)
{
    uint64_t found = 0;
    bool done = false;

    if (!lock_word(l, at, F_WRLCK))
        return false;
    if (read_bytes(l, at, &found, sizeof found)) {
        if (found == *old)
            done = write_bytes(l, at, &value, sizeof value);
        else
            *old = found;
    }
    unlock_word(l, at);
    return done;
}

/* ---- both ------------------------------------------------------------------------------------ */

uint64_t local_load(local *l, size_t at)
{
    return l->map ? atomic_load_explicit(mapped(l, at), memory_order_acquire) : read_word(l, at);
}

bool local_swap(local *l, size_t at, uint64_t *old, uint64_t value)
{
    if (!l->map)
        return swap_word(l, at, old, value);
    return atomic_compare_exchange_strong_explicit(mapped(l, at), old, value, memory_order_acq_rel,
                                                   memory_order_acquire);
}

enum change { ADD, OR, SET };

static uint64_t change(local *l, size_t at, enum change how, uint64_t n)
{
    uint64_t old = read_word(l, at);

    while (!l->trouble &&
           !swap_word(l, at, &old, how == ADD ? old + n : how == OR ? old | n : n))
        ;
    return old;
}

uint64_t local_add(local *l, size_t at, uint64_t n)
{
    return l->map ? atomic_fetch_add(mapped(l, at), n) : change(l, at, ADD, n);
}

uint64_t local_or(local *l, size_t at, uint64_t bits)
{
    return l->map ? atomic_fetch_or(mapped(l, at), bits) : change(l, at, OR, bits);
}

uint64_t local_exchange(local *l, size_t at, uint64_t value)
{
    return l->map ? atomic_exchange(mapped(l, at), value) : change(l, at, SET, value);
}

void local_raise(local *l, size_t at, uint64_t value)
{
    uint64_t seen = local_load(l, at);

    while (!l->trouble && seen < value && !local_swap(l, at, &seen, value))
        ;
}

/* The file only grows, so a size from earlier may be used. */
bool local_reachable(local *l, size_t end)
{
    struct stat st;

    if (!l->map || end <= l->size)
        return true;
    if (!fstat(l->fd, &st))
        l->size = (size_t)st.st_size;
    return end <= l->size;
}

bool local_get(local *l, size_t at, void *to, size_t bytes)
{
    if (!l->map)
        return read_bytes(l, at, to, bytes);
    if (!local_reachable(l, at + bytes)) {
        l->trouble = ENODATA;
        return false;
    }
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t word = atomic_load_explicit(mapped(l, at) + i, memory_order_relaxed);

        memcpy((char *)to + 8 * i, &word, 8);
    }
    return true;
}

bool local_put(local *l, size_t at, const void *from, size_t bytes)
{
    if (!l->map)
        return write_bytes(l, at, from, bytes);
    if (!local_reachable(l, at + bytes)) {
        l->trouble = ENODATA;
        return false;
    }
    for (size_t i = 0; i < bytes / 8; i++) {
        uint64_t word;

        memcpy(&word, (const char *)from + 8 * i, 8);
        atomic_store_explicit(mapped(l, at) + i, word, memory_order_relaxed);
    }
    return true;
}
