/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c - a client's slot in the table, and the files that show that the client lives.
 *
 * A client takes a slot by a kernel lock on one byte of the table file. Each client has an open
 * file description of its own, so two clients of one process are as separate as two processes.
 *
 *     take:   lock the byte -> gen + 1 -> remove the former client's files -> FIFO, socket -> text
 *     leave:  gen + 1 -> remove the files -> close them -> close the table (drops the lock)
 *
 * The generation rises before the files are replaced: a client that opens a FIFO and then still
 * finds the expected generation has not opened the FIFO of a later client. The generation also
 * rises on leaving, so that entries which the client left behind count as dead at once. A process
 * that is stopped inside `take` holds an empty slot, and nothing else.
 *
 * In a folder of a group another member may put anything in the place of a file. So files are
 * created in a private folder (private.c), and moved when they have their permissions. Permissions
 * are set by descriptor, never by name. Only FIFOs and sockets are removed. A slot where a file of
 * another user is in the way is skipped.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fork.h"
#include "local.h"

#define NEAR 64 /* slots that are tried first */

void local_slot_name(char name[16], char kind, uint32_t slot)
{
    snprintf(name, 16, "%c%u", kind, slot % LOCAL_SLOTS);
}

static struct flock lock_of(uint32_t slot, short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET,
                          .l_start = LOCAL_LOCK_BASE + (off_t)slot, .l_len = 1};
}

bool local_slot_empty(local *l, uint32_t slot)
{
    struct flock lock = lock_of(slot, F_WRLCK);

    return local_call_in_time(l) && !fcntl(l->fd, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK;
}

static void store_text(local *l, size_t at, size_t words, const char *text)
{
    char bytes[64] = {0};

    snprintf(bytes, 8 * words, "%s", text);
    (void)local_put(l, at, bytes, 8 * words);
}

void local_text_load(local *l, char *text, size_t at, size_t words)
{
    if (!local_get(l, at, text, 8 * words))
        text[0] = 0;
    text[8 * words] = 0;
}

/* Remove a file of an earlier client; EPERM if the file has another type. */
static int remove_old(local *l, const char *name, mode_t type)
{
    struct stat st;

    if (fstatat(l->dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : errno;
    if ((st.st_mode & S_IFMT) != type)
        return EPERM;
    return unlinkat(l->dir, name, 0) && errno != ENOENT ? errno : 0;
}

/* Give a file of this client the folder's permissions. A user with these permissions already may
 * not be allowed to change the group. */
static int share(local *l, int fd, mode_t type)
{
    char path[32];
    struct stat st;

    if (fstat(fd, &st))
        return errno;
    if ((st.st_mode & S_IFMT) != type || st.st_uid != geteuid() || st.st_nlink != 1)
        return EPERM; /* created by another user */
    (void)!fchownat(fd, "", (uid_t)-1, l->gid, AT_EMPTY_PATH);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd); /* fchmod refuses O_PATH */
    (void)!chmod(path, l->mode);
    return 0;
}

/* A file with the new name is there already: of another user. */
static int taken(int error)
{
    return error == EEXIST || error == EADDRINUSE ? EPERM : error;
}

/* The file has been created in the private folder: move it to its place, or remove it. */
static int publish(local *l, const struct local_private *p, const char *name, int error)
{
    if (p->fd == l->dir)
        return error;
    if (!error)
        return local_private_link(p, name, l->dir);
    (void)unlinkat(p->fd, name, 0);
    return error;
}

static int make_life(local *l, const struct local_private *p)
{
    char name[16];
    int error;

    local_slot_name(name, 'd', l->slot);
    error = remove_old(l, name, S_IFIFO);
    if (error)
        return error;
    if (mkfifoat(p->fd, name, 0600))
        return taken(errno);
    /* Open for reading, too: otherwise open() fails as long as there is no reader. */
    l->life = openat(p->fd, name, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (l->life < 0)
        return publish(l, p, name, errno);
    pawl__fork_guard_add(l->life);
    return publish(l, p, name, share(l, l->life, S_IFIFO));
}

static int make_wake(local *l, const struct local_private *p)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char name[16];
    int error, fd;

    local_slot_name(name, 'w', l->slot);
    error = remove_old(l, name, S_IFSOCK);
    if (error)
        return error;
    l->wake = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->wake < 0)
        return errno;
    pawl__fork_guard_add(l->wake);
    /* Socket names are limited to 107 bytes, folder names are not: go through the descriptor. */
    snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/%s", p->fd, name);
    if (bind(l->wake, (struct sockaddr *)&at, sizeof at))
        return taken(errno);
    fd = openat(p->fd, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    error = fd >= 0 ? share(l, fd, S_IFSOCK) : errno;
    if (fd >= 0)
        close(fd);
    return publish(l, p, name, error);
}

/* In a folder of this user alone no private folder is needed. */
static int make_files(local *l)
{
    struct local_private p = {.fd = l->dir};
    int error = l->shared ? local_private_open(l, l->dir, &p) : 0;

    if (!error)
        error = make_life(l, &p);
    if (!error)
        error = make_wake(l, &p);
    if (l->shared)
        local_private_close(l->dir, &p);
    return error;
}

static void close_files(local *l)
{
    if (l->life >= 0) {
        pawl__fork_guard_remove(l->life);
        close(l->life);
    }
    if (l->wake >= 0) {
        pawl__fork_guard_remove(l->wake);
        close(l->wake);
    }
    l->life = l->wake = -1;
}

/* Choose the slot to try. The first slots are tried in order, so that a few clients use the same
 * few files again and again. Then the other slots are tried from a random one on: the kernel goes
 * through all locks of the file at each try, so a crowd that tried all taken slots in order would
 * need cubic time. */
static uint32_t probe(local *l)
{
    if (l->probes < NEAR)
        return l->probes;
    if (l->probes == NEAR)
        l->start = (uint32_t)(l->env->random(l->env) % (LOCAL_SLOTS - NEAR));
    return NEAR + (l->start + l->probes) % (LOCAL_SLOTS - NEAR);
}

/* Take the next free slot. Returns 0 (the slot is locked), EAGAIN, or another errno. */
int local_slot_take(local *l)
{
    for (; l->probes < LOCAL_SLOTS; l->probes++) {
        struct flock lock;

        if (!local_call_in_time(l))
            return l->trouble;
        l->slot = probe(l);
        lock = lock_of(l->slot, F_WRLCK);
        if (!fcntl(l->fd, F_OFD_SETLK, &lock))
            return 0;
        if (errno != EAGAIN && errno != EACCES && errno != EINTR)
            return errno;
    }
    return EAGAIN;
}

static void remove_files(local *l)
{
    char name[16];

    local_slot_name(name, 'w', l->slot);
    (void)remove_old(l, name, S_IFSOCK);
    local_slot_name(name, 'd', l->slot);
    (void)remove_old(l, name, S_IFIFO);
}

/* The slot is locked; create its files. If that fails, no files of this client are left. */
static int enter(local *l)
{
    int error;

    l->gen = (uint32_t)(local_add(l, LOCAL_AT_SLOT(l->slot, gen), 1) + 1);
    error = l->trouble ? l->trouble : make_files(l);
    if (error) {
        if (error != EPERM && error != EACCES)
            remove_files(l);
        close_files(l);
        return error;
    }
    (void)local_exchange(l, LOCAL_AT_SLOT(l->slot, hints), 0);
    (void)local_exchange(l, LOCAL_AT_SLOT(l->slot, breaker), 0);
    (void)local_exchange(l, LOCAL_AT_SLOT(l->slot, pid), (uint32_t)getpid());
    store_text(l, LOCAL_AT_SLOT(l->slot, program), 4, l->env->program);
    store_text(l, LOCAL_AT_SLOT(l->slot, label), 8, l->env->label);
    l->has_slot = !l->trouble;
    return l->trouble;
}

int local_slot_enter(local *l, pawl_error *err)
{
    int error = enter(l);

    while (error == EPERM || error == EACCES) { /* files of another user: try the next slot */
        struct flock undo = lock_of(l->slot, F_UNLCK);

        l->probes++;
        fcntl(l->fd, F_OFD_SETLK, &undo);
        error = local_slot_take(l);
        if (!error)
            error = enter(l);
    }
    if (error == EAGAIN)
        return pawl_error_set(err, PAWL_EBACKEND, "local: %s has no free place for one more client "
                              "(of %d)", l->path, LOCAL_SLOTS);
    if (error == ETIMEDOUT)
        return local_troubled(l, false, err);
    return error ? local_refuse(l, error, "can't take a place", err) : 0;
}

void local_slot_leave(local *l)
{
    if (l->has_slot) {
        (void)local_add(l, LOCAL_AT_SLOT(l->slot, gen), 1);
        remove_files(l);
    }
    l->has_slot = false;
    close_files(l);
}
