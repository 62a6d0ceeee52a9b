/* SPDX-License-Identifier: Apache-2.0
 *
 * shelf.c - the bytes of a shelf: walking, finding, making and closing room.
 *
 * A lock pointer stays valid while entries of the same lock are added and removed, because only
 * bytes behind the pointer move. The removal of an earlier record makes the pointer invalid. Every
 * size is a multiple of 8.
 */
#include "lockstate.h"

static size_t name_room(size_t name_len)
{
    return (name_len + 8) & ~(size_t)7; /* at least one NUL */
}

static size_t nentries(const lockstate_lock *lock)
{
    return (size_t)lock->holders + lock->waiters;
}

/* Check the numbers with which the rules compute: none may overflow. */
static bool good_entries(const lockstate_lock *lock)
{
    const lockstate_entry *e = lockstate_entries(lock);

    for (size_t i = 0, n = nentries(lock); i < n; i++)
        if (e[i].mode > PAWL_MODE_LATCH || e[i].since < 0 || e[i].expires < 0 || e[i].lease_ms < 0)
            return false;
    return lock->value >= 0;
}

bool lockstate_check(const unsigned char *bytes, size_t used)
{
    size_t at = 0;

    while (at < used) {
        const lockstate_lock *lock = (const void *)(bytes + at);
        size_t head;

        if (used - at < sizeof *lock)
            return false;
        head = sizeof *lock + name_room(lock->name_len);
        if (lock->bytes > used - at || lock->bytes < head || lock->type > PAWL_TYPE_LATCH ||
            lock->bytes - head != nentries(lock) * sizeof(lockstate_entry) ||
            lock->name_len > PAWL_NAME_MAX || lockstate_name(lock)[lock->name_len] ||
            !good_entries(lock))
            return false;
        at += lock->bytes;
    }
    return at == used;
}

static lockstate_lock *record_at(const lockstate_shelf *shelf, size_t at)
{
    return at < shelf->used ? (lockstate_lock *)(void *)(shelf->bytes + at) : NULL;
}

static size_t offset(const lockstate_shelf *shelf, const void *p)
{
    return (size_t)((const unsigned char *)p - shelf->bytes);
}

lockstate_lock *lockstate_first(const lockstate_shelf *shelf)
{
    return record_at(shelf, 0);
}

lockstate_lock *lockstate_next(const lockstate_shelf *shelf, const lockstate_lock *lock)
{
    return record_at(shelf, offset(shelf, lock) + lock->bytes);
}

const char *lockstate_name(const lockstate_lock *lock)
{
    return (const char *)(lock + 1);
}

lockstate_entry *lockstate_entries(const lockstate_lock *lock)
{
    return (lockstate_entry *)(void *)((char *)(uintptr_t)(lock + 1) + name_room(lock->name_len));
}

lockstate_lock *lockstate_find(const lockstate_shelf *shelf, const char *name, size_t name_len)
{
    for (lockstate_lock *l = lockstate_first(shelf); l; l = lockstate_next(shelf, l))
        if (l->name_len == name_len && !memcmp(lockstate_name(l), name, name_len))
            return l;
    return NULL;
}

int64_t lockstate_index(const lockstate_lock *lock, uint64_t client, uint64_t seq)
{
    const lockstate_entry *e = lockstate_entries(lock);

    for (size_t i = 0, n = nentries(lock); i < n; i++)
        if (e[i].seq == seq && e[i].client == client &&
            !(e[i].flags & (LOCKSTATE_LINGER | LOCKSTATE_RECEIPT)))
            return (int64_t)i;
    return -1;
}

lockstate_lock *lockstate_create(lockstate_shelf *shelf, const char *name, size_t name_len,
                                 uint8_t type)
{
    size_t bytes = sizeof(lockstate_lock) + name_room(name_len);
    lockstate_lock *lock = (void *)(shelf->bytes + shelf->used);

    if (name_len > PAWL_NAME_MAX || shelf->cap - shelf->used < bytes)
        return NULL;
    memset(lock, 0, bytes);
    lock->bytes = (uint32_t)bytes;
    lock->name_len = (uint16_t)name_len;
    lock->type = type;
    memcpy(lock + 1, name, name_len);
    shelf->used += bytes;
    return lock;
}

/* The caller adjusts `holders` or `waiters`. */
lockstate_entry *lockstate_insert(lockstate_shelf *shelf, lockstate_lock *lock, size_t index)
{
    lockstate_entry *e = lockstate_entries(lock) + index;

    if (shelf->cap - shelf->used < sizeof *e)
        return NULL;
    memmove(e + 1, e, shelf->used - offset(shelf, e));
    memset(e, 0, sizeof *e);
    lock->bytes += (uint32_t)sizeof *e;
    shelf->used += sizeof *e;
    return e;
}

void lockstate_remove(lockstate_shelf *shelf, lockstate_lock *lock, size_t index)
{
    lockstate_entry *e = lockstate_entries(lock) + index;

    memmove(e, e + 1, shelf->used - offset(shelf, e + 1));
    lock->bytes -= (uint32_t)sizeof *e;
    shelf->used -= sizeof *e;
    if (index < lock->holders)
        lock->holders--;
    else
        lock->waiters--;
}

void lockstate_drop(lockstate_shelf *shelf, lockstate_lock *lock)
{
    size_t bytes = lock->bytes;
    unsigned char *at = (unsigned char *)lock;

    memmove(at, at + bytes, shelf->used - offset(shelf, at) - bytes);
    shelf->used -= bytes;
}
