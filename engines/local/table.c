/* SPDX-License-Identifier: Apache-2.0
 *
 * table.c - creates, checks and maps the table file.
 *
 * The file is created without a name, filled, and only then linked to its name. link(2) succeeds
 * for exactly one of several processes, and no process ever sees an unfinished table or waits for
 * the creator of the table.
 *
 * BOOTS. Times in the table are of the boot-time clock, and no process of its clients survives a
 * reboot, so each boot begins with an empty table; only the tokens continue. The header says which
 * boot the table belongs to. A process that finds another boot in the header locks all slots at
 * once, which succeeds only if no client lives, and then puts a new table in the place of the old
 * one. A client that had opened the old table notices, after locking its slot, that the file has no
 * name any more, and starts again. If a client lives, the boot is the same, and one of the two
 * processes got a wrong boot id (a container with a boot id of its own): that is an error, never a
 * second table. Without a boot id pawl_open fails.
 *
 * OLDER VERSIONS of Pawl kept their table in the folder itself, as table-<boot>. If such a table is
 * in use, pawl_open fails; else the table is replaced by a file that makes an older version report
 * that it is too old.
 *
 * The file only grows, and bytes are allocated before their first use (local_table_reserve), so a
 * full disk is an error code, never SIGBUS.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fork.h"
#include "local.h"

#define NAME "table"
#define OLD_PREFIX "table-"
#define OLD_SIZE (4096 + 8192 * 4 + 16384 * 8) /* less is "no table" to the first version */
#define AGAIN (-1)

int local_refuse(local *l, int error, const char *what, pawl_error *err)
{
    int code = error == EACCES || error == EPERM ? PAWL_EAUTH : PAWL_EBACKEND;

    pawl_error_set(err, code, "local: %s in %s: %s", what, l->path, strerror(error));
    if (err)
        err->backend = error;
    return code;
}

/* Returns 0 or an errno; ENOENT: there is no boot id. */
static int read_boot(char boot[40])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, boot, 39) : -1;
    int error = n < 0 ? errno : 0;

    if (fd >= 0)
        close(fd);
    boot[n > 0 ? n : 0] = 0;
    boot[strcspn(boot, "\n")] = 0;
    if (error)
        return error == ENOTDIR || error == EACCES || error == EPERM ? ENOENT : error;
    return strlen(boot) == 36 ? 0 : ENOENT;
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

int local_table_reserve(local *l, size_t offset, size_t length)
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
    for (size_t done = 0; done < length; done += sizeof zeroes) {
        size_t rest = length - done < sizeof zeroes ? length - done : sizeof zeroes;

        errno = ENOSPC;
        if (pwrite(l->fd, zeroes, rest, (off_t)(offset + done)) != (ssize_t)rest)
            return errno;
    }
    return 0;
}

/* ---- other clients --------------------------------------------------------------------------- */

static struct flock all_slots(short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = LOCAL_LOCK_BASE,
                          .l_len = LOCAL_SLOTS};
}

bool local_table_in_use(int fd)
{
    struct flock lock = all_slots(F_WRLCK);

    return fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK;
}

static bool is_ours(int fd, local_head *head)
{
    struct stat st;

    return !fstat(fd, &st) && S_ISREG(st.st_mode) &&
           pread(fd, head, sizeof *head, 0) == sizeof *head && head->magic == LOCAL_MAGIC;
}

/* ---- tables of the first version ------------------------------------------------------------- */

/* Check one file of the folder; raises *fence above the tokens in the file. 0 or a code. */
static int pass_old(local *l, const char *name, bool now, uint64_t *fence, pawl_error *err)
{
    int fd = openat(l->outer, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), code = 0;
    local_head head;

    if (fd >= 0 && is_ours(fd, &head) && head.version <= LOCAL_VERSION) {
        if (head.version < LOCAL_VERSION && local_table_in_use(fd)) {
            code = pawl_error_set(err, PAWL_ENOTSUP, "local: %s is used by a program with an older "
                                  "version of Pawl (%s/%s): use the same one everywhere", l->path,
                                  l->path, name);
        } else {
            uint64_t wanted = atomic_load(&head.fence_wanted), next = atomic_load(&head.fence);

            *fence = wanted > *fence ? wanted : *fence;
            *fence = next > *fence ? next : *fence;
            if (!now || head.version < LOCAL_VERSION)
                unlinkat(l->outer, name, 0);
        }
    }
    if (fd >= 0)
        close(fd);
    return code;
}

/* The first version of Pawl opens this file, finds a newer version, and reports that. */
static void bar_old(local *l, const char *name)
{
    local_head head = {.magic = LOCAL_MAGIC, .version = LOCAL_VERSION, .slots = LOCAL_SLOTS};
    int fd = openat(l->outer, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, l->mode);

    if (fd < 0)
        return;
    (void)!fchmod(fd, l->mode);
    (void)!fchown(fd, (uid_t)-1, l->gid);
    if (!ftruncate(fd, OLD_SIZE))
        (void)!pwrite(fd, &head, sizeof head, 0);
    close(fd);
}

/* Check all tables of older versions, raise *fence above their tokens, and bar older versions. */
static int old_tables(local *l, const char *boot, uint64_t *fence, pawl_error *err)
{
    int fd = openat(l->outer, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), code = 0;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    char name[32] = OLD_PREFIX;
    struct dirent *entry;

    for (size_t i = 0, n = strlen(OLD_PREFIX); boot[i] && n < strlen(OLD_PREFIX) + 12; i++)
        if (boot[i] != '-')
            name[n++] = boot[i];
    if (!dir && fd >= 0)
        close(fd);
    while (dir && !code && (entry = readdir(dir)))
        if (!strncmp(entry->d_name, OLD_PREFIX, strlen(OLD_PREFIX)))
            code = pass_old(l, entry->d_name, !strcmp(entry->d_name, name), fence, err);
    if (dir)
        closedir(dir);
    if (!code)
        bar_old(l, name);
    return code;
}

/* ---- making ---------------------------------------------------------------------------------- */

static int fill(local *l, const char *boot, uint64_t fence)
{
    local_head head = {.magic = LOCAL_MAGIC, .version = LOCAL_VERSION, .slots = LOCAL_SLOTS,
                       .buckets = LOCAL_BUCKETS, .blocks = LOCAL_BLOCKS, .shared = l->shared};
    uint64_t clock = (uint64_t)l->env->wall_ms(l->env) * 1000;
    int error = local_table_reserve(l, 0, sizeof(local_map));

    head.time_ns = time_namespace();
    snprintf(head.boot, sizeof head.boot, "%s", boot);
    fence = clock > fence ? clock : fence;
    atomic_store(&head.fence, fence);
    atomic_store(&head.fence_wanted, fence + LOCAL_FENCE_STEP);
    atomic_store(&head.fence_durable, fence + LOCAL_FENCE_STEP);
    if (error)
        return error;
    if (fchmod(l->fd, l->mode))
        return errno;
    (void)!fchown(l->fd, (uid_t)-1, l->gid); /* may be the right one already, or not be allowed */
    errno = ENOSPC;
    if (pwrite(l->fd, &head, sizeof head, 0) != sizeof head || fdatasync(l->fd))
        return errno;
    return 0;
}

/* Create a table and link it to its name. replace: in place of the file with this name. Returns 0
 * or an errno; EEXIST: another process was faster. */
static int make(local *l, const char *boot, uint64_t fence, bool replace)
{
    char temporary[48];
    int error;

    snprintf(temporary, sizeof temporary, "new-%016llx",
             (unsigned long long)l->env->random(l->env));
    l->fd = openat(l->dir, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l->fd < 0)
        return errno;
    error = fill(l, boot, fence);
    if (!error && (replace ? renameat(l->dir, temporary, l->dir, NAME)
                           : linkat(l->dir, temporary, l->dir, NAME, 0)))
        error = errno;
    unlinkat(l->dir, temporary, 0);
    close(l->fd);
    l->fd = -1;
    if (!error)
        fsync(l->dir);
    return error;
}

static int begin(local *l, const char *boot, pawl_error *err)
{
    uint64_t fence = 0;
    int code = old_tables(l, boot, &fence, err), error;

    if (code)
        return code;
    error = make(l, boot, fence, false);
    return error && error != EEXIST ? local_refuse(l, error, "can't make the table", err) : AGAIN;
}

/* The table is of another boot. A client that still uses the table is an error. */
static int succeed(local *l, const char *boot, pawl_error *err)
{
    struct flock lock = all_slots(F_WRLCK);
    int old = l->fd, error = 0;
    local_head head;
    struct stat st;
    uint64_t fence;

    l->fd = -1;
    if (fcntl(old, F_OFD_SETLK, &lock)) {
        error = errno;
        close(old);
        if (error != EAGAIN && error != EACCES)
            return local_refuse(l, error, "can't lock an earlier boot's table", err);
        return pawl_error_set(err, PAWL_ENOTSUP,
                              "local: %s is in use by programs that see another boot id than this "
                              "one (%s): mount the same /proc/sys/kernel/random/boot_id in all "
                              "containers that share the folder", l->path, boot);
    }
    if (!fstat(old, &st) && st.st_nlink && is_ours(old, &head)) {
        fence = atomic_load(&head.fence_wanted);
        fence = atomic_load(&head.fence) > fence ? atomic_load(&head.fence) : fence;
        error = make(l, boot, fence, true);
    }
    close(old);
    return error ? local_refuse(l, error, "can't replace an earlier boot's table", err) : AGAIN;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Is the header valid, and do owner and mode of the file allow the access that the header names?
 * The header of a file that others can write may be forged. So a file is mapped only if it belongs
 * to this user, and nobody else can write it: not even ?others=allow maps another user's file. */
static int check_file(local *l, const local_head *head, pawl_error *err)
{
    uint64_t time_ns = time_namespace();
    struct stat st;

    if (head->version != LOCAL_VERSION || head->slots != LOCAL_SLOTS ||
        head->buckets != LOCAL_BUCKETS || head->blocks != LOCAL_BLOCKS)
        return pawl_error_set(err, PAWL_ENOTSUP,
                              "local: the table in %s was made by another version of Pawl (layout "
                              "%llu, this is %d): use the same one everywhere",
                              l->path, (unsigned long long)head->version, LOCAL_VERSION);
    if (time_ns && head->time_ns && time_ns != head->time_ns)
        return pawl_error_set(err, PAWL_ENOTSUP,
                              "local: %s is used in another time namespace, whose clock differs: "
                              "use a folder of its own here",
                              l->path);
    if (fstat(l->fd, &st))
        return local_refuse(l, errno, "can't read the table", err);
    if (!head->shared && (st.st_uid != geteuid() || (st.st_mode & 022)))
        return pawl_error_set(err, PAWL_EAUTH,
                              "local: the table in %s was made for user %u alone: to share the "
                              "folder, stop what uses it and remove its sub-folder " LOCAL_FOLDER,
                              l->path, (unsigned)st.st_uid);
    l->may_map = !head->shared;
    l->shared |= head->shared;
    return 0;
}

static int check(local *l, const char *boot, pawl_error *err)
{
    local_head head = {0};
    struct stat st;

    if (!is_ours(l->fd, &head) || fstat(l->fd, &st) || st.st_size < (off_t)sizeof(local_map))
        return pawl_error_set(err, PAWL_EBACKEND,
                              "local: %s/" LOCAL_FOLDER "/" NAME " is no lock table, or was cut "
                              "off: stop what uses the folder and remove the file",
                              l->path);
    head.boot[sizeof head.boot - 1] = 0;
    if (head.version == LOCAL_VERSION && strcmp(head.boot, boot))
        return succeed(l, boot, err);
    return check_file(l, &head, err);
}

static int map(local *l, pawl_error *err)
{
    size_t length = local_block_at(LOCAL_BLOCKS - 1) + LOCAL_LARGEST;
    struct stat st;
    void *at;

    if (!l->may_map)
        return 0;
    if (fstat(l->fd, &st) || st.st_size < (off_t)sizeof(local_map))
        return local_refuse(l, EIO, "can't map the table", err);
    l->size = (size_t)st.st_size;
    at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, l->fd, 0);
    if (at == MAP_FAILED)
        return local_refuse(l, errno, "can't map the table", err);
    l->map = at;
    return 0;
}

/* 0, AGAIN, or a code. */
static int attempt(local *l, const char *boot, pawl_error *err)
{
    int code;

    l->fd = openat(l->dir, NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (l->fd < 0 && errno == ENOENT)
        return begin(l, boot, err);
    if (l->fd < 0)
        return local_refuse(l, errno, "can't open the table", err);
    code = check(l, boot, err);
    if (code)
        return code;
    pawl__fork_guard_add(l->fd);
    code = local_slot_take(l);
    if (!code && !local_table_removed(l))
        return map(l, err);
    pawl__fork_guard_remove(l->fd);
    close(l->fd);
    l->fd = -1;
    if (code && code != EAGAIN)
        return local_refuse(l, code, "can't take a place", err);
    return code ? pawl_error_set(err, PAWL_EBACKEND, "local: %s has %d clients already: no more "
                                 "fit", l->path, LOCAL_SLOTS) : AGAIN;
}

int local_table_open(local *l, pawl_error *err)
{
    struct timespec nap = {.tv_nsec = 5000000};
    int code = AGAIN;
    char boot[40];
    int error = read_boot(boot);

    if (error && error != ENOENT)
        return local_refuse(l, error, "can't read the boot id, without which no table is opened",
                            err);
    if (error)
        return pawl_error_set(err, PAWL_ENOTSUP,
                              "local: can't tell which boot this is, so locks in %s could be held "
                              "twice: mount /proc (can't read /proc/sys/kernel/random/boot_id)",
                              l->path);
    for (int tries = 0; code == AGAIN && tries < 200; tries++) {
        if (tries > 8)
            nanosleep(&nap, NULL);
        code = attempt(l, boot, err);
        if (code && l->fd >= 0) {
            close(l->fd);
            l->fd = -1;
        }
    }
    return code == AGAIN ? local_refuse(l, EBUSY, "the table is replaced again and again", err)
                         : code;
}

bool local_table_removed(local *l)
{
    struct stat st;

    return fstat(l->fd, &st) || st.st_nlink == 0 || st.st_size < (off_t)sizeof(local_map);
}
