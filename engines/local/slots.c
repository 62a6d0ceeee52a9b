/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c - a client's place in the table, and by what the others see that it lives.
 *
 * A slot is taken by a lock of the kernel on one byte of the table file. Each client has an open
 * file description of its own, so clients of one process are as strange to each other as processes.
 *
 *     take:   lock the byte -> gen + 1 -> remove the former client's files -> FIFO, socket -> text
 *     leave:  gen + 1 -> remove the files -> close them -> close the table (drops the lock)
 *
 * The generation rises before the files are replaced: who opens a FIFO and then still finds the
 * generation he looks for has not opened a later client's. It rises on leaving so that whatever a
 * client left behind is dead at once. A process that is stopped inside `take` holds an empty slot,
 * and no more.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "fork.h"
#include "local.h"

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

    return !fcntl(l->fd, F_OFD_GETLK, &lock) && lock.l_type == F_UNLCK;
}

void local_text_store(local_word *words, size_t n, const char *text)
{
    size_t length = strlen(text);

    for (size_t i = 0; i < n; i++) {
        uint64_t word = 0;
        size_t rest = length > 8 * i ? length - 8 * i : 0;

        memcpy(&word, text + 8 * i * (rest > 0), rest < 8 ? rest : 8);
        if (i + 1 == n)
            ((char *)&word)[7] = 0;
        atomic_store_explicit(&words[i], word, memory_order_relaxed);
    }
}

void local_text_load(char *text, const local_word *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);

        memcpy(text + 8 * i, &word, 8);
    }
    text[8 * n] = 0;
}

/* Give a file of ours the folder's rights; who has them already may not change the group. */
static void share(local *l, const char *name)
{
    (void)!fchownat(l->dir, name, (uid_t)-1, l->gid, AT_SYMLINK_NOFOLLOW);
    (void)!fchmodat(l->dir, name, l->mode, 0);
}

static int make_life(local *l)
{
    char name[16];

    local_slot_name(name, 'd', l->slot);
    if (unlinkat(l->dir, name, 0) && errno != ENOENT)
        return errno;
    if (mkfifoat(l->dir, name, 0600))
        return errno;
    /* For reading too, else it can't be opened before somebody reads. */
    l->life = openat(l->dir, name, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (l->life < 0)
        return errno;
    pawl__fork_guard_add(l->life);
    share(l, name);
    return 0;
}

static int make_wake(local *l)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char name[16];
    int n;

    local_slot_name(name, 'w', l->slot);
    if (unlinkat(l->dir, name, 0) && errno != ENOENT)
        return errno;
    l->wake = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->wake < 0)
        return errno;
    pawl__fork_guard_add(l->wake);
    n = snprintf(at.sun_path, sizeof at.sun_path, "%s%s", l->sockets, name);
    if (n < 0 || (size_t)n >= sizeof at.sun_path)
        return ENAMETOOLONG;
    if (bind(l->wake, (struct sockaddr *)&at, sizeof at))
        return errno;
    share(l, name);
    return 0;
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

/* The slot is ours; make it usable. 0, or an errno and everything undone but the lock. */
static int settle_in(local *l)
{
    local_slot *slot = &l->map->slots[l->slot];
    size_t page = offsetof(local_map, slots) + l->slot * sizeof *slot / 4096 * 4096;
    int error = local_table_reserve(l, page, 4096, false);

    if (error)
        return error;
    l->gen = atomic_fetch_add(&slot->gen, 1) + 1;
    error = make_life(l);
    if (!error)
        error = make_wake(l);
    if (error) {
        close_files(l);
        return error;
    }
    atomic_store(&slot->hints, 0);
    atomic_store(&slot->pid, (uint32_t)getpid());
    local_text_store(slot->program, 4, program_invocation_short_name);
    local_text_store(slot->label, 8, l->env->label ? l->env->label : "");
    l->seated = true;
    return 0;
}

int local_slot_take(local *l, pawl_error *err)
{
    int error = EAGAIN;

    pawl__fork_guard_add(l->fd);
    for (l->slot = 0; l->slot < LOCAL_SLOTS; l->slot++) {
        struct flock lock = lock_of(l->slot, F_WRLCK), undo = lock_of(l->slot, F_UNLCK);

        if (fcntl(l->fd, F_OFD_SETLK, &lock)) {
            if (errno == EAGAIN || errno == EACCES || errno == EINTR)
                continue;
            error = errno;
            break;
        }
        error = settle_in(l);
        if (!error)
            return 0;
        fcntl(l->fd, F_OFD_SETLK, &undo);
        if (error != EPERM && error != EACCES) /* another user's files in a sticky folder: go on */
            break;
    }
    if (error == EAGAIN)
        return pawl_error_set(err, PAWL_EBACKEND, "local: %s has %d clients already: no more fit",
                              l->path, LOCAL_SLOTS);
    return pawl_error_set(err, error == EPERM || error == EACCES ? PAWL_EAUTH : PAWL_EBACKEND,
                          "local: can't take a place in %s: %s", l->path, strerror(error));
}

void local_slot_leave(local *l)
{
    char name[16];

    if (l->seated) {
        atomic_fetch_add(&l->map->slots[l->slot].gen, 1);
        local_slot_name(name, 'w', l->slot);
        unlinkat(l->dir, name, 0);
        local_slot_name(name, 'd', l->slot);
        unlinkat(l->dir, name, 0);
    }
    l->seated = false;
    close_files(l);
}
