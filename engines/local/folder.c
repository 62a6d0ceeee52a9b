/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.c - where the folder of "local:" is, and who may use it.
 *
 * Who can write to the folder can change every lock in it, so the folder's permissions decide. The
 * default is the user's own folder, in one place that does not depend on the environment, so that a
 * login shell, a cron job and a service of one user meet. An explicit DIR is made if it is missing
 * (one level, for this user alone); the files in it get its read and write bits and its group.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "local.h"
#include "url.h"

/* File systems on which other machines may write, or locks or mappings are not the kernel's own. */
static const struct {
    unsigned long magic;
    const char *name;
} foreign[] = {
    {0x6969, "NFS"},         {0x517b, "SMB"},          {0xff534d42, "CIFS"}, {0xfe534d42, "SMB"},
    {0x01021997, "9p"},      {0x65735546, "FUSE"},     {0x00c36400, "Ceph"}, {0x5346414f, "AFS"},
    {0x7461636f, "OCFS2"},   {0x01161970, "GFS2"},     {0x0bd00bd0, "Lustre"},
    {0x73757245, "Coda"},    {0x786f4256, "vboxsf"},
};

static bool usable(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode) && !eaccess(path, W_OK | X_OK);
}

static bool in_memory(const char *path)
{
    struct statfs fs;

    return !statfs(path, &fs) && (unsigned long)fs.f_type == 0x01021994; /* tmpfs */
}

/* /run (root) or /run/lock (others), where that is in memory, as it is on most systems; else
 * /dev/shm: on a disk, a write to the mapping may wait for the file system's journal. */
static char *default_path(void)
{
    unsigned uid = (unsigned)geteuid();
    const char *run = uid ? "/run/lock" : "/run";
    bool shm = usable("/dev/shm") && in_memory("/dev/shm");
    char path[64];

    if (usable(run) && (in_memory(run) || !shm))
        snprintf(path, sizeof path, uid ? "/run/lock/pawl-%u" : "/run/pawl", uid);
    else
        snprintf(path, sizeof path, "/dev/shm/pawl-%u", uid);
    return strdup(path);
}

static int refuse_path(local *l, int error, pawl_error *err)
{
    int code = PAWL_EINVAL;
    const char *advice = "";

    if (error == ENOENT)
        advice = ": make the folder above it first";
    else if (error == ENOTDIR || error == EEXIST)
        advice = ": name a folder";
    else if (error == ELOOP)
        advice = ": the default folder must not be a symbolic link; remove it";
    else if (error == EACCES || error == EPERM || error == EROFS)
        code = PAWL_EAUTH, advice = ": choose a folder that you can write to, as in local:DIR";
    pawl_error_set(err, code, "local: can't open %s: %s%s", l->path, strerror(error), advice);
    if (err)
        err->backend = error;
    return code;
}

static int check_rights(local *l, const pawl_url *url, bool by_default, pawl_error *err)
{
    const char *others = pawl_url_param(url, "others");
    struct stat st;

    if (others && strcmp(others, "allow"))
        return pawl_error_set(err, PAWL_EINVAL, "local: others can only be \"allow\", not \"%s\"",
                              others);
    if (fstat(l->dir, &st))
        return refuse_path(l, errno, err);
    if (by_default && st.st_uid != geteuid())
        return pawl_error_set(err, PAWL_EAUTH,
                              "local: %s belongs to user %u, not to you: remove it or name a "
                              "folder of your own, as in local:DIR",
                              l->path, (unsigned)st.st_uid);
    if ((st.st_mode & S_IWOTH) && !others)
        return pawl_error_set(err, PAWL_EAUTH,
                              "local: everybody can write to %s: name a folder below it, as in "
                              "local:%s/locks, or add ?others=allow if you trust all users",
                              l->path, strcmp(l->path, "/") ? l->path : "");
    if (faccessat(l->dir, ".", W_OK | X_OK, AT_EACCESS))
        return refuse_path(l, errno, err);
    l->mode = (st.st_mode & 0666) | 0600;
    l->gid = st.st_gid;
    return 0;
}

static int check_system(local *l, pawl_error *err)
{
    struct statfs fs;

    if (fstatfs(l->dir, &fs))
        return refuse_path(l, errno, err);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (foreign[i].magic == ((unsigned long)fs.f_type & 0xffffffffu))
            return pawl_error_set(err, PAWL_ENOTSUP,
                                  "local: %s is on %s, which is no file system of this machine "
                                  "alone: name a folder on a local disk or in /dev/shm",
                                  l->path, foreign[i].name);
    return 0;
}

/* Socket names are limited to 107 bytes, folder names are not: go through the descriptor. */
static int find_sockets(local *l, pawl_error *err)
{
    char *real;
    int n = snprintf(l->sockets, sizeof l->sockets, "/proc/self/fd/%d/", l->dir);

    if (n > 0 && !access(l->sockets, X_OK))
        return 0;
    real = realpath(l->path, NULL);
    n = real ? snprintf(l->sockets, sizeof l->sockets, "%s/", real) : -1;
    free(real);
    if (n < 0 || n > 90)
        return pawl_error_set(err, PAWL_EINVAL, "local: the name of %s is too long where /proc is "
                              "not mounted", l->path);
    return 0;
}

int local_folder_open(local *l, const pawl_url *url, pawl_error *err)
{
    bool by_default = !url->rest || !*url->rest, bad = false;
    int code;

    l->path = by_default ? default_path() : pawl__url_decode(url->rest, strlen(url->rest), &bad);
    if (!l->path && !bad)
        return pawl_error_set(err, PAWL_ENOMEM, "local: out of memory");
    if (!l->path)
        return pawl_error_set(err, PAWL_EINVAL, "local: a bad escape in the folder's name; write "
                              "%%XX with hex digits");
    if (mkdir(l->path, 0700) && errno != EEXIST)
        return refuse_path(l, errno, err);
    l->dir = open(l->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (by_default ? O_NOFOLLOW : 0));
    if (l->dir < 0)
        return refuse_path(l, errno, err);
    code = check_rights(l, url, by_default, err);
    if (!code)
        code = check_system(l, err);
    return code ? code : find_sockets(l, err);
}
