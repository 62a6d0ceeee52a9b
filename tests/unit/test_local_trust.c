/* SPDX-License-Identifier: Apache-2.0
 *
 * test_local_trust.c - the engine local among other users: whose folders, links and tables it
 * trusts, and what another user can do at the worst moment.
 *
 * The cases run as root. Another user, OTHER, owns files that root must not trust. The other user's
 * actions at one moment are carried out by the wrappers of library functions below.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "check.h"
#include "local/local.h"
#include "local_client.h"

enum { OTHER = 54321, GROUP = 54320 };

/* ---- files ----------------------------------------------------------------------------------- */

/* A path in the folder of this case; the last 8 results are valid. */
static const char *in_folder(const char *name)
{
    static char paths[8][256];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, 256, "%s/%s", client_folder(), name);
    return path;
}

static void need_root(void)
{
    if (geteuid())
        check_skip("needs root, to be several users");
    CHECK(!chmod(client_folder(), 0755));
}

static void make_folder(const char *name, uid_t owner, mode_t mode)
{
    CHECK(!mkdir(in_folder(name), 0700));
    CHECK(!chown(in_folder(name), owner, GROUP) && !chmod(in_folder(name), mode));
}

static void make_link(const char *target, const char *name, uid_t owner)
{
    CHECK(!symlink(target, in_folder(name)));
    CHECK(!lchown(in_folder(name), owner, owner));
}

static int open_path(struct client *c, const char *path, bool others, pawl_error *err)
{
    char key[] = "others", value[] = "allow";
    pawl_param allow = {.key = key, .value = value};

    *err = (pawl_error){0};
    return client_open_url(c, path, &allow, others ? 1 : 0, err);
}

/* Open the path and close it again. Returns the code. */
static int try_path(const char *path, bool others, pawl_error *err)
{
    struct client c;
    int code = open_path(&c, path, others, err);

    client_close(&c);
    return code;
}

/* ---- the way to the folder ------------------------------------------------------------------- */

/* The path is refused, and the text says why. */
static void refused(const char *path, const char *why)
{
    pawl_error err;
    int code = try_path(path, false, &err);

    if (code != PAWL_EAUTH || !strstr(err.text, why))
        check_fail(__FILE__, __LINE__, "%s: code %d, \"%s\", not \"%s\"", path, code, err.text,
                   why);
    CHECK_OK(try_path(path, true, &err));
}

static void accepted(const char *path)
{
    pawl_error err;
    int code = try_path(path, false, &err);

    if (code)
        check_fail(__FILE__, __LINE__, "%s: code %d, %s", path, code, err.text);
}

CASE("a folder of another user, or below one, is refused")
{
    need_root();
    make_folder("theirs", OTHER, 0755);
    make_folder("theirs/mine", 0, 0700);
    refused(in_folder("theirs"), "belongs to user 54321, not to you");
    refused(in_folder("theirs/mine"), "theirs belongs to user 54321, who could");
}

CASE("a folder below one that others can write to is refused, unless that is sticky and root's")
{
    need_root();
    make_folder("open", 0, 0777);
    make_folder("open/mine", 0, 0700);
    make_folder("group", 0, 0770);
    make_folder("group/mine", 0, 0700);
    make_folder("sticky", 0, 01777);
    make_folder("sticky/mine", 0, 0700);
    make_folder("false", OTHER, 01777);
    make_folder("false/mine", 0, 0700);
    refused(in_folder("open/mine"), "others can write to");
    refused(in_folder("group/mine"), "others can write to");
    refused(in_folder("false/mine"), "belongs to user 54321");
    accepted(in_folder("sticky/mine"));
}

CASE("the owner of a group's folder may own what is above it, and its links")
{
    need_root();
    make_folder("theirs", OTHER, 0755);
    make_folder("theirs/shared", OTHER, 02770);
    make_link("theirs/shared", "way", OTHER);
    accepted(in_folder("theirs/shared"));
    accepted(in_folder("way"));
}

CASE("every symbolic link on the way must belong to somebody trusted")
{
    need_root();
    make_folder("mine", 0, 0700);
    make_link("mine", "good", 0);
    make_link("good", "better", 0);
    make_link("mine", "bad", OTHER);
    make_link("bad", "chain", 0);
    accepted(in_folder("better"));
    accepted(in_folder("better/../good/."));
    refused(in_folder("bad"), "bad belongs to user 54321");
    refused(in_folder("chain"), "bad belongs to user 54321");
}

/* The link leads to a trusted folder now, and the other user can change the link at any time. */
CASE("a link in a folder of another user is refused, also behind another link")
{
    need_root();
    make_folder("mine", 0, 0700);
    make_folder("theirs", OTHER, 0755);
    make_link("../mine", "theirs/link", 0);
    make_link("theirs/link", "to-link", 0);
    make_link(in_folder("theirs/link"), "to-whole", 0);
    make_link("theirs/", "to-folder", 0);
    refused(in_folder("theirs/link"), "theirs belongs to user 54321");
    refused(in_folder("to-link"), "theirs belongs to user 54321");
    refused(in_folder("to-whole"), "theirs belongs to user 54321");
    refused(in_folder("to-folder/link"), "theirs belongs to user 54321");
    accepted(in_folder("mine"));
}

CASE("the same for a relative path, which begins with the folders above the current one")
{
    need_root();
    make_folder("mine", 0, 0700);
    make_folder("theirs", OTHER, 0755);
    make_folder("theirs/below", 0, 0755);
    make_link("../mine", "theirs/link", 0);
    CHECK(!chdir(client_folder()));
    accepted("mine");
    accepted("./mine/../mine");
    refused("theirs/link", "theirs belongs to user 54321");
    CHECK(!chdir("theirs/below"));
    refused("locks", "theirs belongs to user 54321");
    refused("../../mine", "theirs belongs to user 54321");
}

CASE("links without end are an error")
{
    pawl_error err;

    need_root();
    make_link("two", "one", 0);
    make_link("one", "two", 0);
    CHECK(try_path(in_folder("one"), false, &err) == PAWL_EINVAL);
}

/* ---- the worst moment ------------------------------------------------------------------------ */

static struct {
    void (*at_readlink)(void);
    int folders, fifos, sockets; /* how many that are made next are replaced, by the private one */
} moment;

int __real_mkdirat(int dir, const char *name, mode_t mode);
int __wrap_mkdirat(int dir, const char *name, mode_t mode);
int __real_mkfifoat(int dir, const char *name, mode_t mode);
int __wrap_mkfifoat(int dir, const char *name, mode_t mode);
int __real_bind(int fd, const struct sockaddr *at, socklen_t length);
int __wrap_bind(int fd, const struct sockaddr *at, socklen_t length);
ssize_t __real_readlink(const char *path, char *text, size_t size);
ssize_t __wrap_readlink(const char *path, char *text, size_t size);

/* What a member of the group can do with a new file: put another file of the folder in its place.
 * In a folder of its owner alone the member can do nothing. */
static void replace(int *count, int dir, const char *name, const char *by)
{
    struct stat st;

    if (!*count || fstat(dir, &st) || !(st.st_mode & 020))
        return;
    if (!renameat(dir, name, AT_FDCWD, in_folder("away")) &&
        !renameat(AT_FDCWD, in_folder(by), dir, name))
        --*count;
}

int __wrap_mkdirat(int dir, const char *name, mode_t mode)
{
    int result = __real_mkdirat(dir, name, mode);

    replace(&moment.folders, dir, name, "private");
    return result;
}

int __wrap_mkfifoat(int dir, const char *name, mode_t mode)
{
    int result = __real_mkfifoat(dir, name, mode);

    replace(&moment.fifos, dir, name, "fifo");
    return result;
}

int __wrap_bind(int fd, const struct sockaddr *at, socklen_t length)
{
    const struct sockaddr_un *to = (const void *)at;
    int result = __real_bind(fd, at, length), dir;
    char path[sizeof to->sun_path];
    char *slash;

    if (result || !moment.sockets)
        return result;
    strcpy(path, to->sun_path);
    slash = strrchr(path, '/');
    *slash = 0;
    dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    replace(&moment.sockets, dir, slash + 1, "socket");
    close(dir);
    return 0;
}

ssize_t __wrap_readlink(const char *path, char *text, size_t size)
{
    if (moment.at_readlink)
        moment.at_readlink();
    return __real_readlink(path, text, size);
}

static void move_away(void)
{
    (void)rename(in_folder("mine"), in_folder("away"));
    (void)mkdir(in_folder("mine"), 0700);
}

CASE("a folder that is replaced while the way is checked is refused")
{
    pawl_error err;

    need_root();
    make_folder("mine", 0, 0700);
    make_link("mine", "way", 0);
    moment.at_readlink = move_away;
    CHECK(try_path(in_folder("way"), false, &err) == PAWL_EAUTH);
    CHECK(strstr(err.text, "was replaced meanwhile"));
}

/* A private file of root in the folder of a group. */
struct secret {
    int fd;
    struct stat before;
};

static struct secret keep(const char *name)
{
    struct secret s = {.fd = open(in_folder(name), O_PATH | O_NOFOLLOW | O_CLOEXEC)};

    CHECK(s.fd >= 0 && !fstat(s.fd, &s.before) && !(s.before.st_mode & 077));
    return s;
}

static void unchanged(const struct secret *s)
{
    struct stat now;

    CHECK(!fstat(s->fd, &now));
    CHECK_EQ(now.st_mode, s->before.st_mode);
    CHECK_EQ(now.st_gid, s->before.st_gid);
    CHECK_EQ(now.st_uid, s->before.st_uid);
}

static void group_folder(void)
{
    need_root();
    CHECK(!chown(client_folder(), 0, GROUP) && !chmod(client_folder(), 02770));
}

/* Open and close a client while a member puts private files in the place of new ones. */
static void open_meanwhile(const struct secret *s)
{
    struct client c;
    pawl_error err;

    if (open_path(&c, client_folder(), false, &err))
        check_note("%s", err.text);
    unchanged(s);
    client_close(&c);
    unchanged(s);
}

static void private_folder(void)
{
    CHECK(!mkdir(in_folder("private"), 0700) && !chown(in_folder("private"), 0, 0));
    CHECK(!chmod(in_folder("private"), 0700) && !mkdir(in_folder("private/d0"), 0700));
}

CASE("a private folder that takes the place of the new sub-folder keeps its rights")
{
    struct secret s;

    group_folder();
    private_folder();
    s = keep("private");
    moment.folders = 1;
    open_meanwhile(&s);
    CHECK_EQ(moment.folders, 0);
}

CASE("a private folder that takes the place of a folder in the sub-folder keeps its rights")
{
    struct secret s;
    pawl_error err;

    group_folder();
    CHECK_OK(try_path(client_folder(), false, &err));
    private_folder();
    s = keep("private");
    moment.folders = 1;
    open_meanwhile(&s);
}

CASE("a private FIFO that takes the place of the new one keeps its rights")
{
    struct secret s;

    group_folder();
    CHECK(!mkfifo(in_folder("fifo"), 0600) && !chown(in_folder("fifo"), 0, 0));
    s = keep("fifo");
    moment.fifos = 1;
    open_meanwhile(&s);
}

CASE("a private socket that takes the place of the new one keeps its rights")
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct secret s;

    group_folder();
    strcpy(at.sun_path, in_folder("socket"));
    CHECK(fd >= 0 && !__real_bind(fd, (struct sockaddr *)&at, sizeof at));
    CHECK(!chown(in_folder("socket"), 0, 0) && !chmod(in_folder("socket"), 0600));
    s = keep("socket");
    moment.sockets = 1;
    open_meanwhile(&s);
}

/* ---- tables of others ------------------------------------------------------------------------ */

/* In a process of its own: open the folder, truncate its table, and use it. Exits with the code of
 * opening. */
static int use_truncated(void *arg)
{
    pawl_error err;
    struct client c;
    int code = open_path(&c, arg, true, &err);

    if (code == PAWL_EAUTH)
        return 77;
    if (!code && !truncate(in_folder("theirs/.pawl/table"), 0)) {
        pawl_op op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, false);

        client_start(&c, &op);
    }
    client_close(&c);
    return 0;
}

/* A table that says that it is mapped. */
static char *private_table(void)
{
    static char path[256];
    pawl_error err;

    need_root();
    strcpy(path, in_folder("theirs"));
    make_folder("theirs", 0, 0700);
    CHECK_OK(try_path(path, false, &err));
    return path;
}

CASE("another user's table is not mapped, whatever it says: the owner could truncate it")
{
    char *path = private_table();

    CHECK(!chown(in_folder("theirs/.pawl/table"), OTHER, OTHER));
    CHECK(!chown(in_folder("theirs/.pawl"), OTHER, OTHER) && !chown(path, OTHER, OTHER));
    CHECK(!chmod(path, 0777) && !chmod(in_folder("theirs/.pawl"), 0777));
    CHECK(!chmod(in_folder("theirs/.pawl/table"), 0666));
    CHECK_EQ(in_child(use_truncated, path), 77);
}

CASE("a table of one's own that others can write is not mapped, whatever it says")
{
    char *path = private_table();

    CHECK(!chmod(path, 0777) && !chmod(in_folder("theirs/.pawl"), 0777));
    CHECK(!chmod(in_folder("theirs/.pawl/table"), 0666));
    CHECK_EQ(in_child(use_truncated, path), 77);
}

CASE("a table that is made in another user's folder is not mapped")
{
    pawl_error err;
    local_head head;
    int fd;

    need_root();
    make_folder("theirs", OTHER, 0755);
    CHECK_OK(try_path(in_folder("theirs"), true, &err));
    fd = open(in_folder("theirs/.pawl/table"), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && pread(fd, &head, sizeof head, 0) == sizeof head);
    CHECK(head.shared);
    close(fd);
}

/* ---- the default folder ---------------------------------------------------------------------- */

/* Returns the code of opening the default folder, whose parent is a new file system. */
static int open_default(void *arg)
{
    const unsigned long *flags = arg;
    pawl_error err;
    int code;

    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/run/lock", "tmpfs", 0, "mode=1777") ||
        (*flags && mount("tmpfs", "/run/lock", NULL, *flags, "mode=1777")))
        return 100;
    if (setuid(200000 + (uid_t)getpid()))
        return 101;
    code = try_path("", false, &err);
    if (code)
        check_note("%s", err.text);
    return code == PAWL_EAUTH && strstr(err.text, "read-only here") ? 77 : code ? 1 : 0;
}

/* Another process of the user, which can write there, would use other locks. */
CASE("the default folder is not moved if its place is only read-only for this process")
{
    unsigned long flags = 0;
    int code;

    need_root();
    code = in_child(open_default, &flags);
    if (code == 100)
        check_skip("no file system can be mounted here");
    CHECK_EQ(code, 0);
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY;
    CHECK_EQ(in_child(open_default, &flags), 77);
}

int main(int argc, char **argv)
{
    return client_main(argc, argv);
}
