/* SPDX-License-Identifier: Apache-2.0
 *
 * test_local_folder.c - the default folder of the engine local when another user was there first.
 *
 * The cases are root, who makes everything, and a process of a user without an account. They write
 * to the real /run/lock, /run/user and /dev/shm, under names with that user's number, and remove
 * what they made before they look at the outcome.
 */
#include <errno.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "check.h"
#include "local/local.h"
#include "local_client.h"

/* A user without an account. Another user takes the names of the default folder before; the user
 * has /run/user/UID, as after a login. */
struct user {
    uid_t uid, other;
    char usual[2][64], session[64], target[80], folder[80];
};

static struct user new_user(bool session)
{
    struct user u = {.uid = 200000 + (uid_t)getpid(), .other = 199999};

    if (geteuid())
        check_skip("needs root, to be several users");
    snprintf(u.usual[0], 64, "/run/lock/pawl-%u", (unsigned)u.uid);
    snprintf(u.usual[1], 64, "/dev/shm/pawl-%u", (unsigned)u.uid);
    snprintf(u.session, 64, "/run/user/%u", (unsigned)u.uid);
    snprintf(u.target, 80, "%s/target", u.session);
    snprintf(u.folder, 80, "%s/pawl", u.session);
    CHECK(mkdir("/run/user", 0755) == 0 || errno == EEXIST);
    if (session)
        CHECK(!mkdir(u.session, 0700) && !mkdir(u.target, 0700) &&
              !chown(u.session, u.uid, u.uid) && !chown(u.target, u.uid, u.uid));
    return u;
}

/* Take both names where the default folder may be: by a folder, or by a link to one of the user. */
static void squat(const struct user *u, bool link)
{
    for (int i = 0; i < 2; i++) {
        CHECK(link ? !symlink(u->target, u->usual[i]) : !mkdir(u->usual[i], 0777));
        CHECK(!lchown(u->usual[i], u->other, u->other));
        CHECK(link || !chmod(u->usual[i], 0777));
    }
}

static void end_squat(const struct user *u)
{
    for (int i = 0; i < 2; i++)
        remove_tree(u->usual[i]);
}

typedef int then_fn(struct client *c, const struct user *u);

static int holding[2]; /* a pipe: the user's process holds a lock */

/* In a process of the user. 0: opening local: gave the code that is wanted, and `then` gave 0. */
static _Noreturn void open_as(const struct user *u, int wanted, then_fn *then)
{
    struct client c;
    pawl_error err = {0};
    int code;

    if (setgroups(0, NULL) || setgid(u->uid) || setuid(u->uid))
        _exit(2);
    code = client_open_url(&c, "", NULL, 0, &err);
    if (code != wanted)
        check_note("%d, not %d: %s", code, wanted, err.text);
    code = code != wanted || (then && then(&c, u));
    client_close(&c);
    _exit(code);
}

/* The exit status of open_as. The other user gives the names back as soon as a lock is held. */
static int as_user(const struct user *u, int wanted, then_fn *then)
{
    char byte;
    int status;
    pid_t pid;

    CHECK(!pipe(holding));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        open_as(u, wanted, then);
    close(holding[1]);
    if (read(holding[0], &byte, 1) == 1)
        end_squat(u);
    close(holding[0]);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The client is in /run/user/UID/pawl. */
static int in_session(struct client *c, const struct user *u)
{
    char have[96], want[96];
    struct stat st;

    if (pawl_engine_local.identity(c->self, have, sizeof have) < 0)
        return 1;
    snprintf(want, sizeof want, "%s/" LOCAL_FOLDER, u->folder);
    if (stat(want, &st) || st.st_uid != u->uid)
        return 1;
    snprintf(want, sizeof want, "local %llx:%llx", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return strcmp(have, want) != 0;
}

/* While the client holds a lock the other user gives the names back. Nobody may hold that lock
 * in the usual folder as well. */
static int meet(struct client *c, const struct user *u)
{
    pawl_op op = op_acquire(c, "x", PAWL_MODE_EXCLUSIVE, false), second;
    struct client other;
    pawl_error err;
    int code;

    client_start(c, &op);
    if (op.code || in_session(c, u) || write(holding[1], "h", 1) != 1)
        return 1;
    while (!access(u->usual[0], F_OK) || !access(u->usual[1], F_OK))
        usleep(1000);
    if (client_open_url(&other, "", NULL, 0, &err))
        return 1;
    second = op_acquire(&other, "x", PAWL_MODE_EXCLUSIVE, false);
    client_start(&other, &second);
    code = second.code != PAWL_EBUSY || in_session(&other, u);
    client_close(&other);
    return code;
}

/* Cleans up before it looks at the outcome. */
static void session_case(bool link, then_fn *then)
{
    struct user u = new_user(true);
    int bad;

    squat(&u, link);
    bad = as_user(&u, 0, then);
    end_squat(&u);
    remove_tree(u.session);
    CHECK_EQ(bad, 0);
}

CASE("if another user has taken the default folder, the one in /run/user is used")
{
    session_case(false, in_session);
}

CASE("the same if it is another user's link to a folder of one's own")
{
    session_case(true, in_session);
}

CASE("when the other user leaves the default folder, a new client still meets those in /run/user")
{
    session_case(false, meet);
}

CASE("if another user has taken the default folder and there is no /run/user/UID, it is refused")
{
    struct user u = new_user(false);
    int bad[2];

    squat(&u, false);
    bad[0] = as_user(&u, PAWL_EAUTH, NULL);
    end_squat(&u);
    bad[1] = as_user(&u, 0, NULL); /* and is made when the names are free */
    end_squat(&u);
    CHECK_EQ(bad[0], 0);
    CHECK_EQ(bad[1], 0);
}

int main(int argc, char **argv)
{
    return client_main(argc, argv);
}
