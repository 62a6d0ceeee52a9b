/* SPDX-License-Identifier: Apache-2.0
 *
 * test_local_folder.c - the default folder of the engine local when another user was there first.
 *
 * The cases run as root, and start processes of a user without an account. They write to the real
 * /run/lock and /dev/shm, under names with that user's number, and remove these files before they
 * check the results.
 */
#include <glob.h>
#include <grp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "check.h"
#include "local/local.h"
#include "local_client.h"
#include "registry.h"

/* A user without an account. Another user has taken the names of the default folder before. */
struct user {
    uid_t uid, other;
    char usual[2][64], target[64];
};

static struct user new_user(void)
{
    struct user u = {.uid = 200000 + (uid_t)getpid(), .other = 199999};

    if (geteuid())
        check_skip("needs root, to be several users");
    snprintf(u.usual[0], 64, "/run/lock/pawl-%u", (unsigned)u.uid);
    snprintf(u.usual[1], 64, "/dev/shm/pawl-%u", (unsigned)u.uid);
    snprintf(u.target, 64, "/dev/shm/target-%u", (unsigned)u.uid);
    CHECK(!mkdir(u.target, 0700) && !chown(u.target, u.uid, u.uid));
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

/* Remove the files that the user's processes have made. */
static void clean_up(const struct user *u)
{
    char pattern[96];
    glob_t g;

    end_squat(u);
    remove_tree(u->target);
    for (int i = 0; i < 2; i++) {
        snprintf(pattern, sizeof pattern, "%s.*", u->usual[i]);
        if (glob(pattern, 0, NULL, &g))
            continue;
        for (size_t n = 0; n < g.gl_pathc; n++)
            remove_tree(g.gl_pathv[n]);
        globfree(&g);
    }
}

typedef int then_fn(struct client *c, const struct user *u);

static int holding[2]; /* a pipe: the user's process holds a lock */

/* Runs in a process of the user. Exits with 0 if opening local: returned `wanted`, and `then`
 * returned 0. */
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

/* The exit status of open_as. The other user removes its files as soon as a lock is held. */
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

/* The client uses a folder beside the usual one, which only this user can enter. */
static int beside(struct client *c, const struct user *u)
{
    char pattern[96], have[96], want[96];
    bool found = false;
    struct stat st;
    glob_t g;

    if (pawl_engine_local.identity(c->self, have, sizeof have) < 0)
        return 1;
    for (int i = 0; i < 2; i++) {
        snprintf(pattern, sizeof pattern, "%s.*/" LOCAL_FOLDER, u->usual[i]);
        if (glob(pattern, 0, NULL, &g))
            continue;
        for (size_t n = 0; n < g.gl_pathc; n++) {
            if (stat(g.gl_pathv[n], &st) || st.st_uid != u->uid || (st.st_mode & 077))
                continue;
            snprintf(want, sizeof want, "local %llx:%llx", (unsigned long long)st.st_dev,
                     (unsigned long long)st.st_ino);
            found |= !strcmp(have, want);
        }
        globfree(&g);
    }
    return !found;
}

/* While the client holds a lock, the other user removes its files. No client may then hold the same
 * lock in the usual folder. */
static int meet(struct client *c, const struct user *u)
{
    pawl_op op = op_acquire(c, "x", PAWL_MODE_EXCLUSIVE, false), second;
    struct client other;
    pawl_error err;
    int code;

    client_start(c, &op);
    if (op.code || beside(c, u) || write(holding[1], "h", 1) != 1)
        return 1;
    while (!access(u->usual[0], F_OK) || !access(u->usual[1], F_OK))
        usleep(1000);
    if (client_open_url(&other, "", NULL, 0, &err))
        return 1;
    second = op_acquire(&other, "x", PAWL_MODE_EXCLUSIVE, false);
    client_start(&other, &second);
    code = second.code != PAWL_EBUSY || beside(&other, u);
    client_close(&other);
    return code;
}

/* Cleans up before checking the result. */
static void squatted_case(bool link, then_fn *then)
{
    struct user u = new_user();
    int bad;

    squat(&u, link);
    bad = as_user(&u, 0, then);
    clean_up(&u);
    CHECK_EQ(bad, 0);
}

CASE("if another user has taken the default folder, one beside it is used")
{
    squatted_case(false, beside);
}

CASE("the same if it is another user's link to a folder of one's own")
{
    squatted_case(true, beside);
}

CASE("when the other user leaves the default folder, a new client still meets those beside it")
{
    squatted_case(false, meet);
}

/* Folders of the other user beside the usual one are ignored, whatever their names are. */
static void squat_beside(const struct user *u)
{
    char path[96];

    for (int i = 0; i < 2; i++)
        for (int n = 0; n < 50; n++) {
            snprintf(path, sizeof path, "%s.%016x", u->usual[i], (unsigned)n);
            CHECK(n % 2 ? !mkdir(path, 0777) : !symlink(u->target, path));
            CHECK(!lchown(path, u->other, u->other));
        }
}

CASE("folders that another user has made beside the default folder are left alone")
{
    struct user u = new_user();
    int bad;

    squat(&u, false);
    squat_beside(&u);
    bad = as_user(&u, 0, meet);
    clean_up(&u);
    CHECK_EQ(bad, 0);
}

/* A process of the other user makes and removes the names repeatedly, until it is killed. Names
 * that the user has taken meanwhile stay. */
static _Noreturn void come_and_go(const struct user *u)
{
    struct stat st;

    for (;; usleep(200))
        for (int i = 0; i < 2; i++)
            if (lstat(u->usual[i], &st) ? !mkdir(u->usual[i], 0777) : st.st_uid == 0)
                (void)!lchown(u->usual[i], u->other, u->other);
            else if (st.st_uid == u->other)
                rmdir(u->usual[i]);
}

/* CROWD processes start at once and try the lock `x`; the one that gets the lock keeps it until all
 * have tried. Exactly one may get the lock. */
enum { CROWD = 12 };

static _Noreturn void one_of_crowd(const struct user *u, int begin, int report, int end)
{
    pawl_error err = {0};
    struct client c;
    pawl_op op;
    char byte;

    if (setgroups(0, NULL) || setgid(u->uid) || setuid(u->uid) || read(begin, &byte, 1) != 0)
        _exit(2);
    if (client_open_url(&c, "", NULL, 0, &err)) {
        check_note("%s", err.text);
        byte = 'e';
    } else {
        op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, false);
        client_start(&c, &op);
        byte = op.code == 0 ? 'h' : op.code == PAWL_EBUSY ? 'b' : 'e';
    }
    if (write(report, &byte, 1) != 1 || read(end, &byte, 1) != 0)
        _exit(2);
    _exit(0);
}

/* Run the processes, and add their reports (h: held, b: busy, e: error) to the counts. */
static void crowd(const struct user *u, int count[256])
{
    int begin[2], report[2], end[2];
    unsigned char said;

    CHECK(!pipe(begin) && !pipe(report) && !pipe(end));
    for (int i = 0; i < CROWD; i++)
        if (fork() == 0) {
            close(begin[1]);
            close(end[1]);
            one_of_crowd(u, begin[0], report[1], end[0]);
        }
    close(begin[1]);
    for (int i = 0; i < CROWD; i++) {
        CHECK(read(report[0], &said, 1) == 1);
        count[said]++;
    }
    close(end[1]);
    for (int i = 0; i < CROWD; i++)
        CHECK(wait(NULL) > 0);
    close(begin[0]);
    close(report[0]);
    close(report[1]);
    close(end[0]);
}

CASE("of many processes that begin at once one has the lock, also if the name comes and goes")
{
    struct user u = new_user();
    int count[256] = {0}, rounds = 60;
    pid_t other = fork();

    if (other == 0)
        come_and_go(&u);
    for (int i = 0; i < rounds; i++)
        crowd(&u, count);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    clean_up(&u);
    CHECK_EQ(count['h'], rounds);
    CHECK_EQ(count['b'], rounds * (CROWD - 1));
}

int main(int argc, char **argv)
{
    return client_main(argc, argv);
}
