/* SPDX-License-Identifier: Apache-2.0
 *
 * way.c - the way to the folder of "local:": may another user change where the path leads?
 *
 * The path is resolved here as the kernel resolves it, step by step: a symbolic link is replaced by
 * its target, whose steps are checked in the same way, and ".." leads to the folder above the real
 * one. Every folder in which a name is looked up, and every link, must belong to root, to this user
 * or to the owner of DIR, and nobody else may be able to write to such a folder, unless the folder
 * is sticky and root's, as /tmp is. The steps of a relative path begin with those of the current
 * folder. DIR itself is checked in folder.c, where the rules are different.
 *
 * The folder is open already. At the end the checked path must lead to the same folder.
 */
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "local.h"

#define LINKS_MAX 40 /* the kernel's limit */

struct way {
    local *l;
    uid_t owner; /* of DIR */
    int links;
    char real[PATH_MAX]; /* the folder that is reached: absolute, without links; "" for / */
    char rest[PATH_MAX]; /* what is left of the path */
    pawl_error *err;
};

static int check_owner(struct way *w, const char *path, const struct stat *st)
{
    if (!st->st_uid || st->st_uid == geteuid() || st->st_uid == w->owner)
        return 0;
    return pawl_error_set(w->err, PAWL_EAUTH, "local: %s can't be trusted: %s belongs to user %u, "
                          "who could put another folder there; add ?others=allow if you trust "
                          "them", w->l->path, path, (unsigned)st->st_uid);
}

/* Check the folder in which the next name is looked up. */
static int check_folder(struct way *w)
{
    const char *path = w->real[0] ? w->real : "/";
    struct stat st;
    int code;

    if (lstat(path, &st))
        return local_refuse_path(w->l, errno, w->err);
    code = check_owner(w, path, &st);
    if (code || !(st.st_mode & 022) || ((st.st_mode & S_ISVTX) && !st.st_uid))
        return code;
    return pawl_error_set(w->err, PAWL_EAUTH, "local: %s can't be trusted: others can write to %s "
                          "and put another folder there; chmod go-w it, or add ?others=allow if "
                          "you trust them", w->l->path, path);
}

/* Put `text` in front of the rest of the path. Returns 0 or an errno. */
static int prepend(struct way *w, const char *text)
{
    size_t length = strlen(text), rest = strlen(w->rest);

    if (length + 1 + rest >= sizeof w->rest)
        return ENAMETOOLONG;
    memmove(w->rest + length + 1, w->rest, rest + 1);
    memcpy(w->rest, text, length);
    w->rest[length] = '/';
    return 0;
}

/* The last name of w->real is a link, which is `at` bytes long without that name. */
static int follow(struct way *w, size_t at, const struct stat *st)
{
    char target[PATH_MAX];
    ssize_t n = readlink(w->real, target, sizeof target - 1);
    int error = n < 0 ? errno : ++w->links > LINKS_MAX ? ELOOP : 0;

    if (!error) {
        target[n] = 0;
        error = prepend(w, target);
    }
    if (error)
        return local_refuse_path(w->l, error, w->err);
    if (check_owner(w, w->real, st))
        return PAWL_EAUTH;
    w->real[target[0] == '/' ? 0 : at] = 0;
    return 0;
}

static int step(struct way *w, const char *name, size_t length)
{
    size_t at = strlen(w->real);
    struct stat st;
    int code;

    if (!length || (length == 1 && name[0] == '.'))
        return 0;
    if (length == 2 && !memcmp(name, "..", 2)) {
        char *slash = strrchr(w->real, '/');

        if (slash)
            *slash = 0;
        return 0;
    }
    code = check_folder(w);
    if (code)
        return code;
    if (at + 1 + length >= sizeof w->real)
        return local_refuse_path(w->l, ENAMETOOLONG, w->err);
    w->real[at] = '/';
    memcpy(w->real + at + 1, name, length);
    w->real[at + 1 + length] = 0;
    if (lstat(w->real, &st))
        return local_refuse_path(w->l, errno, w->err);
    return S_ISLNK(st.st_mode) ? follow(w, at, &st) : 0;
}

static int begin(struct way *w)
{
    char here[PATH_MAX];
    int error = 0;

    if (strlen(w->l->path) >= sizeof w->rest)
        return local_refuse_path(w->l, ENAMETOOLONG, w->err);
    strcpy(w->rest, w->l->path);
    if (w->rest[0] == '/')
        return 0;
    if (!getcwd(here, sizeof here))
        error = errno;
    else if (here[0] != '/')
        error = ENOENT; /* not below the root of this process */
    else
        error = prepend(w, here);
    return error ? local_refuse_path(w->l, error, w->err) : 0;
}

int local_way_check(local *l, uid_t owner, pawl_error *err)
{
    struct way w = {.l = l, .owner = owner, .err = err};
    struct stat st, there;
    int code = begin(&w);

    while (!code && w.rest[0]) {
        char name[NAME_MAX + 1];
        size_t length = strcspn(w.rest, "/"), used = length + strspn(w.rest + length, "/");

        if (length > NAME_MAX)
            return local_refuse_path(l, ENAMETOOLONG, err);
        memcpy(name, w.rest, length);
        memmove(w.rest, w.rest + used, strlen(w.rest + used) + 1);
        code = step(&w, name, length);
    }
    if (!code && (stat(w.real[0] ? w.real : "/", &st) || fstat(l->outer, &there) ||
                  st.st_ino != there.st_ino || st.st_dev != there.st_dev))
        code = pawl_error_set(err, PAWL_EAUTH, "local: %s was replaced meanwhile", l->path);
    return code;
}
