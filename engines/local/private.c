/* SPDX-License-Identifier: Apache-2.0
 *
 * private.c - a private folder, in which new files get the permissions of a group before others can
 * reach them.
 *
 * Another member of the group may rename files between the call that creates a file and the call
 * that opens the file: then this client would give the group's permissions to another file of this
 * user, for example to a private folder that happens to be in the same place. Inside a folder that
 * only this user can enter no name can be replaced. So a new file is created there, gets its
 * permissions, and is then moved to its place.
 *
 * A member may put another private folder of this user in the place of the new one. Then the new
 * file is in that folder for a moment, and nothing else in that folder changes. A process that is
 * killed at the wrong moment leaves its private folder behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "local.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

static void choose_name(local *l, char name[LOCAL_PRIVATE_NAME])
{
    snprintf(name, LOCAL_PRIVATE_NAME, "new-%016llx",
             (unsigned long long)l->env->random(l->env));
}

int local_private_open(local *l, int parent, struct local_private *p)
{
    struct stat st;

    choose_name(l, p->name);
    p->fd = -1;
    if (mkdirat(parent, p->name, 0700))
        return errno;
    p->fd = openat(parent, p->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (p->fd < 0)
        return errno == ELOOP || errno == ENOENT || errno == ENOTDIR ? EPERM : errno;
    if (fstat(p->fd, &st))
        return errno;
    return st.st_uid != geteuid() || (st.st_mode & 077) ? EPERM : 0;
}

void local_private_close(int parent, struct local_private *p)
{
    if (p->fd >= 0)
        close(p->fd);
    (void)unlinkat(parent, p->name, AT_REMOVEDIR); /* fails if the folder is another one */
}

int local_private_link(const struct local_private *p, const char *name, int to)
{
    int error = linkat(p->fd, name, to, name, 0) ? errno : 0;

    (void)unlinkat(p->fd, name, 0);
    return error == EEXIST ? EPERM : error;
}

/* Without RENAME_NOREPLACE an empty folder may be replaced: nothing can be created in the replaced
 * folder any more, so no two clients use different folders. */
static int move(int from, const char *name, int to, const char *final)
{
    if (!syscall(SYS_renameat2, from, name, to, final, RENAME_NOREPLACE))
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    if (!renameat(from, name, to, final))
        return 0;
    return errno == ENOTEMPTY ? EEXIST : errno;
}

/* Create `name` in the private folder, give it its permissions, and move it. */
static int make_folder(local *l, int private, const char *name, int to, const char *final,
                       mode_t mode)
{
    int fd, error;

    if (mkdirat(private, name, 0700))
        return errno;
    fd = openat(private, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    error = fd < 0 ? errno : 0;
    if (fd >= 0) {
        (void)!fchown(fd, (uid_t)-1, l->gid);
        (void)!fchmod(fd, mode);
        close(fd);
        error = move(private, name, to, final);
    }
    if (error)
        (void)unlinkat(private, name, AT_REMOVEDIR);
    return error;
}

int local_private_folder(local *l, int to, const char *final, mode_t mode)
{
    struct local_private p;
    char name[LOCAL_PRIVATE_NAME];
    int error = local_private_open(l, to, &p);

    if (!error) {
        choose_name(l, name);
        error = make_folder(l, p.fd, name, to, final, mode);
    }
    local_private_close(to, &p);
    return error;
}
