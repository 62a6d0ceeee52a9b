/* SPDX-License-Identifier: Apache-2.0
 *
 * examine.c - EXAMINE: the folder. pawl_open refuses an unusable folder (another machine's file
 * system, permissions, no boot id). The findings here are about folders that work today and may
 * fail later.
 */
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "local.h"

#define SPACE_MB 16 /* the table begins with 1.1 MB, and grows */

static void found(local *l, pawl_op *op, uint64_t level, const char *id, const char *what,
                  const char *why, const char *remedy)
{
    pawl_op_found(op, level, id, l->path, what, why, remedy);
}

static void look_at_rights(local *l, pawl_op *op)
{
    struct stat st;

    if (fstat(l->outer, &st) || !(st.st_mode & S_IWOTH))
        return;
    found(l, op, PAWL_FINDING_WARNING, "local-others", "every user can write to the folder",
          "Every user of this machine can take, break and damage these locks.",
          "chmod o-w the folder; for several users, make it a group's (docs/security.md, section "
          "4).");
}

static void look_at_space(local *l, pawl_op *op)
{
    struct statvfs fs;
    char what[120];
    unsigned long long mb;

    if (fstatvfs(l->outer, &fs))
        return;
    mb = (unsigned long long)fs.f_bavail * fs.f_frsize >> 20;
    if (mb >= SPACE_MB && (fs.f_favail > 100 || !fs.f_files))
        return;
    snprintf(what, sizeof what, "the file system has %llu MB and %llu files left", mb,
             (unsigned long long)fs.f_favail);
    found(l, op, PAWL_FINDING_WARNING, "local-space", what,
          "The table of locks needs room to grow: on a full file system locks can't be taken.",
          "Free some space, or use a folder on another file system.");
}

/* systemd-tmpfiles and similar programs remove old files from these places, even if they are in
 * use. */
static void look_at_place(local *l, pawl_op *op)
{
    char real[PATH_MAX];

    if (!realpath(l->path, real) ||
        (strncmp(real, "/tmp/", 5) && strncmp(real, "/var/tmp/", 9)))
        return;
    found(l, op, PAWL_FINDING_WARNING, "local-tmp", "the folder is below /tmp or /var/tmp",
          "Most systems remove old files there. A table that is removed while a lock is held is "
          "made anew, and the lock is granted again.",
          "Use a folder that nobody cleans, such as /var/lib/NAME, or local: without a folder.");
}

/* Check the client's own socket and FIFO. */
static void look_at_files(local *l, pawl_op *op)
{
    struct stat st;
    char wake[16], life[16];

    local_slot_name(wake, 'w', l->slot);
    local_slot_name(life, 'd', l->slot);
    if (!fstatat(l->dir, wake, &st, 0) && !fstatat(l->dir, life, &st, 0) && !local_table_removed(l))
        return;
    found(l, op, PAWL_FINDING_DANGER, "local-files", "files in the folder were removed",
          "Clients that lack their files are not told of a free lock, and clients of a removed "
          "table don't see the locks of new clients.",
          "Find out who removes files there; then restart the programs that use the folder.");
}

void local_examine(local *l, pawl_op *op)
{
    char what[120];

    snprintf(what, sizeof what, "a folder of this machine, for %s",
             l->shared ? "several users" : "one user");
    pawl_op_fact(op, "server", l->path, what, 0);
    look_at_rights(l, op);
    look_at_space(l, op);
    look_at_place(l, op);
    look_at_files(l, op);
    pawl_op_finish(op, 0);
}
