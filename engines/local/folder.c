/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.c - the folder of "local:", and its permissions.
 *
 * A user that can write to the folder can change every lock there, so the permissions of the folder
 * decide. An explicit DIR is created if missing (one level, for this user alone); the files inside
 * get the read and write bits and the group of the folder. The members of a group that share a
 * folder trust each other with the locks, and with nothing else (local.h). Other users must not be
 * able to change the path (way.c).
 *
 * THE DEFAULT is a folder of the user in a place that does not depend on the environment and is not
 * removed at logout, so that a login shell, a cron job and a service of one user share their locks:
 * /run/lock/pawl-UID, the usual folder. XDG_RUNTIME_DIR is not used: cron jobs and services don't
 * have this variable, and would use other locks than a shell. All users can write to /run/lock, so
 * another user may have created a file with this name. Then the default is another folder in
 * /run/lock, pawl-UID.RANDOM. No other user can create this folder, because the name is not known
 * before, and every process of the user finds it, because its owner is the user. Folders of other
 * users are ignored.
 *
 * CHOICE. The first choice is a folder with clients, whatever has happened to the usual one; then
 * the usual folder, if the name is free; then the first of the other folders in order; then a new
 * folder. Two processes may choose differently if they start at the same moment, or if another user
 * creates or removes the usual name at that moment. So a process that has taken a slot in a folder
 * searches the other folders for clients once more. Each process takes its slot before this search,
 * so of two processes at least one sees the other, and starts again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "local.h"
#include "url.h"

#define CHOICES_MAX 30 /* candidates for the default folder */

/* File systems to which other machines may write, or whose locks or mappings are not the kernel's
 * own. */
static const struct {
    unsigned long magic;
    const char *name;
} foreign[] = {
    {0x6969, "NFS"},         {0x517b, "SMB"},          {0xff534d42, "CIFS"}, {0xfe534d42, "SMB"},
    {0x01021997, "9p"},      {0x65735546, "FUSE"},     {0x00c36400, "Ceph"}, {0x5346414f, "AFS"},
    {0x7461636f, "OCFS2"},   {0x01161970, "GFS2"},     {0x0bd00bd0, "Lustre"},
    {0x73757245, "Coda"},    {0x786f4256, "vboxsf"},
};

/* 0 or an errno. */
static int unusable(const char *path)
{
    struct stat st;

    if (stat(path, &st))
        return errno;
    if (!S_ISDIR(st.st_mode))
        return ENOTDIR;
    return eaccess(path, W_OK | X_OK) ? errno : 0;
}

static bool in_memory(const char *path)
{
    struct statfs fs;

    return !statfs(path, &fs) && (unsigned long)fs.f_type == 0x01021994; /* tmpfs */
}

/* /run (root) or /run/lock (others) if that folder is in memory, as on most systems; else /dev/shm.
 * On a disk, a write to the mapping may wait for the journal of the file system. If the folder is
 * only read-only in this mount namespace, other processes of this user have the folder: then it is
 * an error to use another one. */
static int usual_path(local *l, pawl_error *err)
{
    unsigned uid = (unsigned)geteuid();
    const char *run = uid ? "/run/lock" : "/run";
    bool shm = !unusable("/dev/shm") && in_memory("/dev/shm");
    int error = unusable(run);

    if (error == EROFS && in_memory(run))
        return pawl_error_set(err, PAWL_EAUTH, "local: the default folder is in %s, which is "
                              "read-only here, as in a service of systemd with "
                              "ProtectSystem=strict: add ReadWritePaths=%s to the service, or name "
                              "a folder in all programs, as in local:DIR", run, run);
    if (!error && (in_memory(run) || !shm))
        snprintf(l->usual, sizeof l->usual, uid ? "/run/lock/pawl-%u" : "/run/pawl", uid);
    else
        snprintf(l->usual, sizeof l->usual, "/dev/shm/pawl-%u", uid);
    return 0;
}

/* Returns 0 if the folder exists, belongs to this user, and no other user can write there; else an
 * errno. */
static int mine(const char *path)
{
    struct stat st;

    if (lstat(path, &st))
        return errno;
    return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022) ? 0 : EPERM;
}

static bool has_clients(const char *path)
{
    char table[96];
    bool result;
    int fd;

    snprintf(table, sizeof table, "%s/" LOCAL_FOLDER "/table", path);
    fd = mine(path) ? -1 : open(table, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    result = fd >= 0 && local_table_in_use(fd);
    if (fd >= 0)
        close(fd);
    return result;
}

/* Find the first, in order, of this user's folders "USUAL.*", except `except`. busy: only folders
 * with clients. Sets found to "" if there is none. */
static void find_beside(const char *usual, bool busy, const char *except, char found[64])
{
    const char *base = strrchr(usual, '/') + 1;
    char parent[64], path[64];
    size_t length = strlen(base);
    struct dirent *e;
    DIR *dir;

    snprintf(parent, sizeof parent, "%.*s", (int)(base - usual), usual);
    found[0] = 0;
    dir = opendir(parent);
    while (dir && (e = readdir(dir))) {
        if (strncmp(e->d_name, base, length) || e->d_name[length] != '.' ||
            strlen(e->d_name) != length + 17)
            continue;
        snprintf(path, sizeof path, "%s.%.16s", usual, e->d_name + length + 1);
        if (strcmp(path, except) && !mine(path) && (!busy || has_clients(path)) &&
            (!found[0] || strcmp(path, found) < 0))
            strcpy(found, path);
    }
    if (dir)
        closedir(dir);
}

static char *default_path(local *l)
{
    char path[64];

    if (has_clients(l->usual))
        return strdup(l->usual);
    find_beside(l->usual, true, "", path);
    if (!path[0] && mine(l->usual) != EPERM)
        return strdup(l->usual);
    if (!path[0])
        find_beside(l->usual, false, "", path);
    if (!path[0])
        snprintf(path, sizeof path, "%.46s.%016llx", l->usual,
                 (unsigned long long)l->env->random(l->env));
    return strdup(path);
}

int local_refuse_path(local *l, int error, pawl_error *err)
{
    int code = PAWL_EINVAL;
    const char *advice = "";

    if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC || error == EIO ||
        error == EINTR)
        code = PAWL_EBACKEND; /* nothing is wrong with the path */
    else if (error == ENOENT)
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

/* ---- permissions ----------------------------------------------------------------------------- */

static int check_owner(local *l, const struct stat *st, bool by_default, pawl_error *err)
{
    if (st->st_uid == geteuid() || (!by_default && (l->others || (st->st_mode & 020))))
        return 0;
    if (!by_default && st->st_uid == 0)
        return 0;
    return pawl_error_set(err, PAWL_EAUTH,
                          "local: %s belongs to user %u, not to you: %s name a folder of your own, "
                          "as in local:DIR", l->path, (unsigned)st->st_uid,
                          by_default ? "remove it or" : "add ?others=allow if you trust them, or");
}

static int check_rights(local *l, const pawl_url *url, bool by_default, pawl_error *err)
{
    const char *others = pawl_url_param(url, "others");
    struct stat st;
    int code;

    if (others && strcmp(others, "allow"))
        return pawl_error_set(err, PAWL_EINVAL, "local: others can only be \"allow\", not \"%s\"",
                              others);
    l->others = others != NULL;
    if (fstat(l->outer, &st))
        return local_refuse_path(l, errno, err);
    if ((st.st_mode & S_IWOTH) && (st.st_mode & S_ISVTX) && !others)
        return pawl_error_set(err, PAWL_EAUTH,
                              "local: everybody can write to %s: name a folder below it, as in "
                              "local:%s/locks, or add ?others=allow if you trust all users",
                              l->path, strcmp(l->path, "/") ? l->path : "");
    if ((st.st_mode & S_IWOTH) && !others)
        return pawl_error_set(err, PAWL_EAUTH,
                              "local: everybody can write to %s: chmod o-w it, or add "
                              "?others=allow if you trust all users", l->path);
    code = check_owner(l, &st, by_default, err);
    if (!code && !others)
        code = local_way_check(l, st.st_uid, err);
    if (code)
        return code;
    if (faccessat(l->outer, ".", W_OK | X_OK, AT_EACCESS))
        return local_refuse_path(l, errno, err);
    l->mode = (st.st_mode & 0666) | 0600;
    l->shared = (st.st_mode & 022) || (st.st_uid && st.st_uid != geteuid());
    l->gid = st.st_gid;
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int check_system(local *l, pawl_error *err)
{
    struct statfs fs;

    if (fstatfs(l->outer, &fs))
        return local_refuse_path(l, errno, err);
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++)
        if (foreign[i].magic == ((unsigned long)fs.f_type & 0xffffffffu))
            return pawl_error_set(err, PAWL_ENOTSUP,
                                  "local: %s is on %s, which is no file system of this machine "
                                  "alone: name a folder on a local disk or in /dev/shm",
                                  l->path, foreign[i].name);
    return 0;
}

/* Create the sub-folder, with the permissions of the folder. Returns 0 or an errno. */
static int make_inner(local *l)
{
    mode_t mode = 0700 | (l->mode & 044) >> 2;
    struct stat st;

    if (!fstatat(l->outer, LOCAL_FOLDER, &st, AT_SYMLINK_NOFOLLOW))
        return EEXIST;
    if (l->shared)
        mode |= l->mode | S_ISGID;
    return local_private_folder(l, l->outer, LOCAL_FOLDER, mode);
}

/* Open or create the sub-folder. */
static int open_inner(local *l, pawl_error *err)
{
    struct stat st;
    int error = make_inner(l);

    if (error && error != EEXIST)
        return local_refuse_path(l, error, err);
    l->dir = openat(l->outer, LOCAL_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (l->dir < 0 || fstat(l->dir, &st))
        return local_refuse(l, errno, "can't open the sub-folder " LOCAL_FOLDER, err);
    if (!l->shared && !l->others && (st.st_uid != geteuid() || (st.st_mode & 022)))
        return pawl_error_set(err, PAWL_EAUTH, "local: others can write to %s/" LOCAL_FOLDER ": "
                              "remove it when nothing uses it", l->path);
    snprintf(l->sockets, sizeof l->sockets, "/proc/self/fd/%d/", l->dir);
    return 0;
}

bool local_folder_elsewhere(local *l)
{
    if (!l->usual[0])
        return false;
    strcpy(l->other, l->usual);
    if (!strcmp(l->path, l->usual) || !has_clients(l->usual))
        find_beside(l->usual, true, l->path, l->other);
    return l->other[0];
}

static int open_outer(local *l, const pawl_url *url, bool by_default, pawl_error *err)
{
    l->outer = open(l->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (by_default ? O_NOFOLLOW : 0));
    return l->outer < 0 ? local_refuse_path(l, errno, err) : check_rights(l, url, by_default, err);
}

/* Another user may create or remove the usual name between the choice and the opening. */
static int open_default(local *l, const pawl_url *url, pawl_error *err)
{
    for (int tries = 0;; tries++) {
        int code = usual_path(l, err);

        if (code)
            return code;
        l->path = default_path(l);
        if (!l->path)
            return pawl_error_set(err, PAWL_ENOMEM, "local: out of memory");
        if (mkdir(l->path, 0700) && errno != EEXIST)
            return local_refuse_path(l, errno, err);
        code = open_outer(l, url, true, err);
        if (!code || !mine(l->path) || tries == CHOICES_MAX)
            return code;
        if (l->outer >= 0)
            close(l->outer);
        l->outer = -1;
        free(l->path);
        l->path = NULL;
    }
}

static int open_named(local *l, const pawl_url *url, pawl_error *err)
{
    bool bad = false;

    l->path = pawl__url_decode(url->rest, strlen(url->rest), &bad);
    if (!l->path && !bad)
        return pawl_error_set(err, PAWL_ENOMEM, "local: out of memory");
    if (!l->path)
        return pawl_error_set(err, PAWL_EINVAL, "local: a bad escape in the folder's name; write "
                              "%%XX with hex digits");
    if (mkdir(l->path, 0700) && errno != EEXIST)
        return local_refuse_path(l, errno, err);
    return open_outer(l, url, false, err);
}

int local_folder_open(local *l, const pawl_url *url, pawl_error *err)
{
    int code = url->rest && *url->rest ? open_named(l, url, err) : open_default(l, url, err);

    if (!code)
        code = check_system(l, err);
    return code ? code : open_inner(l, err);
}
