/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c - the table file: made, checked, mapped.
 *
 * It is made without a name (or under a name of its own), filled, and only then linked to its name:
 * link(2) succeeds for exactly one of those who try, and nobody ever sees an unfinished table or
 * waits for somebody who makes one. The name has the boot id in it: times in the table are of the
 * boot-time clock and its clients' processes are gone after a reboot, so each boot begins with an
 * empty table. Only the tokens go on: the new table starts above what older ones reserved on the
 * disk, and not below the wall clock in microseconds, in case they were lost. Older ones are then
 * removed. So a latch, which has no process, does not survive a reboot either.
 *
 * The file only grows, and what is to be touched is allocated before (local_table_reserve), so a
 * full disk is an error code, never SIGBUS. The whole address range is mapped at once.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local.h"

#define PREFIX "table-"

static int fail(local *l, int error, const char *what, pawl_error *err)
{
    int code = error == EACCES || error == EPERM ? PAWL_EAUTH : PAWL_EBACKEND;

    pawl_error_set(err, code, "local: %s in %s: %s", what, l->path, strerror(error));
    if (err)
        err->backend = error;
    return code;
}

static void table_name(char name[32])
{
    char boot[64] = "0";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    size_t n = 0;

    if (fd >= 0) {
        ssize_t got = read(fd, boot, sizeof boot - 1);

        boot[got > 0 ? got : 0] = 0;
        close(fd);
    }
    strcpy(name, PREFIX);
    for (const char *c = boot; *c && n < 12; c++)
        if (*c != '-' && *c != '\n')
            name[strlen(PREFIX) + n++] = *c;
    name[strlen(PREFIX) + n] = 0;
}

static uint64_t time_namespace(void)
{
    unsigned long long number = 0;
    char text[64];
    ssize_t n = readlink("/proc/self/ns/time", text, sizeof text - 1);

    if (n > 0) {
        text[n] = 0;
        if (sscanf(text, "time:[%llu]", &number) != 1)
            number = 0;
    }
    return number;
}

int local_table_reserve(local *l, size_t offset, size_t length, bool fresh)
{
    static const char zeroes[4096];
    struct rlimit limit;

    /* Beyond the limit the kernel would send SIGXFSZ. */
    if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < offset + length)
        return EFBIG;
    if (!fallocate(l->fd, 0, (off_t)offset, (off_t)length))
        return 0;
    if (errno != EOPNOTSUPP)
        return errno;
    for (size_t done = 0; fresh && done < length; done += sizeof zeroes) {
        errno = ENOSPC;
        if (pwrite(l->fd, zeroes, sizeof zeroes, (off_t)(offset + done)) != sizeof zeroes)
            return errno;
    }
    return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Where tokens must begin, from the tables of earlier boots; or remove those. */
static uint64_t old_tables(local *l, const char *keep, bool remove)
{
    uint64_t first = 0;
    int fd = openat(l->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;
    local_head head;

    if (!dir && fd >= 0)
        close(fd);
    while (dir && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) || !strcmp(entry->d_name, keep))
            continue;
        if (remove) {
            unlinkat(l->dir, entry->d_name, 0);
            continue;
        }
        fd = openat(l->dir, entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0 && read(fd, &head, sizeof head) == sizeof head && head.magic == LOCAL_MAGIC) {
            uint64_t wanted = atomic_load(&head.fence_wanted), fence = atomic_load(&head.fence);

            first = wanted > first ? wanted : first;
            first = fence > first ? fence : first;
        }
        if (fd >= 0)
            close(fd);
    }
    if (dir)
        closedir(dir);
    return first;
}

static int fill(local *l, const char *name)
{
    local_head head = {.magic = LOCAL_MAGIC, .version = LOCAL_VERSION, .slots = LOCAL_SLOTS,
                       .buckets = LOCAL_BUCKETS, .units = LOCAL_UNITS, .unit = LOCAL_UNIT};
    uint64_t fence = (uint64_t)l->env->wall_ms(l->env) * 1000, old = old_tables(l, name, false);
    int error = local_table_reserve(l, 0, offsetof(local_map, slots), true);

    head.time_ns = time_namespace();
    fence = old > fence ? old : fence;
    atomic_store(&head.fence, fence);
    atomic_store(&head.fence_wanted, fence + LOCAL_FENCE_STEP);
    atomic_store(&head.fence_durable, fence + LOCAL_FENCE_STEP);
    if (!error && fallocate(l->fd, 0, 0, 1) && errno == EOPNOTSUPP) /* then the slots at once */
        error = local_table_reserve(l, 0, offsetof(local_map, blocks), true);
    if (error)
        return error;
    if (fchmod(l->fd, l->mode))
        return errno;
    (void)!fchown(l->fd, (uid_t)-1, l->gid); /* may be the right one already, or not be allowed */
    if (pwrite(l->fd, &head, sizeof head, 0) != sizeof head || fdatasync(l->fd))
        return errno ? errno : ENOSPC;
    return 0;
}

/* 0, or an errno; EEXIST: somebody else has made it meanwhile. */
static int make(local *l, const char *name)
{
    char temporary[48], link[64];
    int error;

    snprintf(temporary, sizeof temporary, "new-%016llx",
             (unsigned long long)l->env->random(l->env));
    l->fd = strncmp(l->sockets, "/proc", 5)
                ? -1
                : openat(l->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    snprintf(link, sizeof link, "/proc/self/fd/%d", l->fd);
    if (l->fd >= 0)
        temporary[0] = 0;
    else
        l->fd = openat(l->dir, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (l->fd < 0)
        return errno;
    error = fill(l, name);
    if (!error && (temporary[0] ? linkat(l->dir, temporary, l->dir, name, 0)
                                : linkat(AT_FDCWD, link, l->dir, name, AT_SYMLINK_FOLLOW)))
        error = errno;
    if (temporary[0])
        unlinkat(l->dir, temporary, 0);
    close(l->fd);
    l->fd = -1;
    if (!error) {
        fsync(l->dir);
        old_tables(l, name, true);
    }
    return error;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int check(local *l, const char *name, pawl_error *err)
{
    local_head head = {0};
    uint64_t time_ns = time_namespace();
    struct stat st;

    if (fstat(l->fd, &st))
        return fail(l, errno, "can't read the table", err);
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)offsetof(local_map, slots) ||
        pread(l->fd, &head, sizeof head, 0) != sizeof head || head.magic != LOCAL_MAGIC)
        return pawl_error_set(err, PAWL_EBACKEND,
                              "local: %s/%s is no lock table: stop what uses the folder and remove "
                              "the file",
                              l->path, name);
    if (head.version != LOCAL_VERSION || head.slots != LOCAL_SLOTS ||
        head.buckets != LOCAL_BUCKETS || head.units != LOCAL_UNITS || head.unit != LOCAL_UNIT)
        return pawl_error_set(err, PAWL_ENOTSUP,
                              "local: %s/%s was made by another version of Pawl (layout %llu, this "
                              "is %d): use the same one everywhere",
                              l->path, name, (unsigned long long)head.version, LOCAL_VERSION);
    if (time_ns && head.time_ns && time_ns != head.time_ns)
        return pawl_error_set(err, PAWL_ENOTSUP,
                              "local: %s is used in another time namespace, whose clock differs: "
                              "use a folder of its own here",
                              l->path);
    return 0;
}

/* A file that was cut off behind our back would kill us with SIGBUS. */
static bool whole(local *l)
{
    size_t end = 0;
    struct stat st;

    for (size_t u = 0; u < LOCAL_UNITS; u++)
        if (atomic_load_explicit(&l->map->units[u], memory_order_relaxed) >> 16)
            end = offsetof(local_map, blocks) + (u + 1) * LOCAL_UNIT;
    return !fstat(l->fd, &st) && (size_t)st.st_size >= end;
}

static int map(local *l, pawl_error *err)
{
    void *at = mmap(NULL, sizeof(local_map), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    l->fd, 0);

    if (at == MAP_FAILED)
        return fail(l, errno, "can't map the table", err);
    l->map = at;
    if (!whole(l))
        return pawl_error_set(err, PAWL_EBACKEND,
                              "local: the lock table in %s was cut off: stop what uses the folder "
                              "and remove the file",
                              l->path);
    return 0;
}

int local_table_open(local *l, pawl_error *err)
{
    char name[32];
    int error = EEXIST, code;

    table_name(name);
    for (int tries = 0; error == EEXIST && tries < 16; tries++) {
        l->fd = openat(l->dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        error = l->fd >= 0 ? 0 : errno;
        if (error == ENOENT) {
            error = make(l, name);
            error = error ? error : EEXIST;
        }
    }
    if (error)
        return fail(l, error, "can't make or open the table", err);
    code = check(l, name, err);
    return code ? code : map(l, err);
}

bool local_table_removed(local *l)
{
    struct stat st;

    return !fstat(l->fd, &st) && st.st_nlink == 0;
}
