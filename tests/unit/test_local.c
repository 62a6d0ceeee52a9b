/* SPDX-License-Identifier: Apache-2.0
 *
 * test_local.c - the engine local in one process: its folder, its table, and clients that meet
 * there. test_local_kill.c and test_local_hammer.c test processes that are killed.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "local/local.h"
#include "local_client.h"

/* ---- folders --------------------------------------------------------------------------------- */

static int try_open(const char *path, pawl_param *params, size_t nparams, pawl_error *err)
{
    struct client c;
    int code;

    err->text[0] = 0;
    code = client_open_url(&c, path, params, nparams, err);
    client_close(&c);
    return code;
}

CASE("a folder that everybody can write to is refused unless asked for")
{
    char path[192], key[] = "others", value[] = "allow";
    pawl_param allow = {.key = key, .value = value};
    pawl_error err;

    snprintf(path, sizeof path, "%s/open", client_folder());
    CHECK(!mkdir(path, 0777) && !chmod(path, 0777));
    CHECK(try_open(path, NULL, 0, &err) == PAWL_EAUTH && strstr(err.text, "others=allow"));
    CHECK(try_open(path, &allow, 1, &err) == 0 && allow.used);
    value[0] = 'x';
    CHECK(try_open(path, &allow, 1, &err) == PAWL_EINVAL);
}

CASE("what is no folder, or has no folder above it, is refused in words")
{
    char path[192];
    pawl_error err;
    int fd;

    snprintf(path, sizeof path, "%s/file", client_folder());
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0);
    close(fd);
    CHECK(try_open(path, NULL, 0, &err) == PAWL_EINVAL && strstr(err.text, "name a folder"));
    snprintf(path, sizeof path, "%s/no/where", client_folder());
    CHECK(try_open(path, NULL, 0, &err) == PAWL_EINVAL && strstr(err.text, "first"));
    CHECK(try_open("%4", NULL, 0, &err) == PAWL_EINVAL);
}

CASE("a missing folder is made for this user alone, and a file that is no table is refused")
{
    char path[192], inner[192], command[256];
    struct stat st;
    pawl_error err;

    snprintf(path, sizeof path, "%s/my%%20own", client_folder());
    snprintf(inner, sizeof inner, "%s/my own", client_folder());
    CHECK(try_open(path, NULL, 0, &err) == 0);
    CHECK(!stat(inner, &st) && (st.st_mode & 07777) == 0700);
    snprintf(command, sizeof command, ": > '%s/.pawl/table'", inner);
    CHECK(!system(command) && try_open(path, NULL, 0, &err) == PAWL_EBACKEND);
    CHECK(strstr(err.text, "no lock table"));
}

CASE("a folder may have a longer name than a socket")
{
    struct client a, b;
    pawl_op one, two;
    pawl_error err;
    char path[256];

    snprintf(path, sizeof path, "%s/%0120d", client_folder(), 7);
    CHECK(!client_open_url(&a, path, NULL, 0, &err));
    CHECK(!client_open_url(&b, path, NULL, 0, &err));
    one = op_acquire(&a, "x", PAWL_MODE_EXCLUSIVE, false);
    two = op_acquire(&b, "x", PAWL_MODE_EXCLUSIVE, true);
    client_start(&a, &one);
    client_start(&b, &two);
    CHECK(one.code == 0 && !two.arg && client_release(&a, &one) == 0);
    CHECK(client_await(&b, &two, 20 * SECOND) && two.code == 0);
    client_close(&a);
    client_close(&b);
}

/* ---- two clients ----------------------------------------------------------------------------- */

struct pair {
    struct client a, b;
    pawl_op one, two; /* of a, of b */
};

static int count_rows(void *arg, const pawl_info *row)
{
    *(int *)arg += row->role != PAWL_ROLE_SUMMARY;
    return row->role == PAWL_ROLE_HOLDER &&
           (row->pid != getpid() || strcmp(row->label, "test") || row->lease_ms <= 0);
}

static void open_pair(struct pair *p)
{
    CHECK(!client_open(&p->a) && !client_open(&p->b));
}

static void close_pair(struct pair *p)
{
    client_close(&p->a);
    client_close(&p->b);
}

static void pass_on(struct pair *p)
{
    pawl_op look;
    int rows = 0;

    p->one = op_acquire(&p->a, "x", PAWL_MODE_EXCLUSIVE, false);
    p->two = op_acquire(&p->b, "x", PAWL_MODE_EXCLUSIVE, true);
    client_start(&p->a, &p->one);
    client_start(&p->b, &p->two);
    CHECK(p->one.arg && p->one.code == 0 && p->one.token && p->one.lease_from && !p->two.arg);
    look = op_of(&p->b, PAWL_OP_INSPECT, "x");
    look.row = count_rows;
    look.row_arg = &rows;
    client_start(&p->b, &look);
    CHECK(look.code == 0 && rows == 2);
    CHECK(client_release(&p->a, &p->one) == 0);
    CHECK(client_release(&p->a, &p->one) == PAWL_ENOTHELD);
    CHECK(client_await(&p->b, &p->two, 20 * SECOND) && p->two.code == 0);
    CHECK(p->two.token > p->one.token);
}

static void break_it(struct pair *p)
{
    pawl_op event = op_of(&p->b, PAWL_OP_EVENT, NULL);

    client_start(&p->b, &event);
    CHECK(client_simple(&p->a, PAWL_OP_BREAK, "x") == 0);
    CHECK(client_simple(&p->a, PAWL_OP_BREAK, "x") == PAWL_ENOTHELD);
    CHECK(client_await(&p->b, &event, 20 * SECOND));
    CHECK(event.code == 0 && event.event == PAWL_EVENT_VERIFY);
    CHECK(client_release(&p->b, &p->two) == PAWL_ENOTHELD);
}

CASE("a lock passes from one client to the one that waits, with a larger token")
{
    struct pair p;

    open_pair(&p);
    pass_on(&p);
    close_pair(&p);
}

CASE("break passes it on and tells the holder")
{
    struct pair p;

    open_pair(&p);
    pass_on(&p);
    break_it(&p);
    close_pair(&p);
}

CASE("a client that is closed leaves nothing that is in the way")
{
    struct pair p;

    open_pair(&p);
    pass_on(&p);
    break_it(&p);
    p.one = op_acquire(&p.a, "x", PAWL_MODE_EXCLUSIVE, false);
    client_start(&p.a, &p.one);
    p.two = op_acquire(&p.b, "x", PAWL_MODE_EXCLUSIVE, true);
    client_start(&p.b, &p.two);
    CHECK(p.one.code == 0 && !p.two.arg);
    client_close(&p.a);
    CHECK(client_await(&p.b, &p.two, 20 * SECOND) && p.two.code == 0);
    CHECK(client_release(&p.b, &p.two) == 0);
    client_close(&p.b);
}

/* A member of the group can put an entry of any owner into the table. */
CASE("an acquire that must not wait does not wait, even if the table has it in the queue")
{
    struct pair p;
    pawl_op same;

    open_pair(&p);
    p.one = op_acquire(&p.a, "x", PAWL_MODE_EXCLUSIVE, false);
    p.two = op_acquire(&p.b, "x", PAWL_MODE_EXCLUSIVE, true);
    client_start(&p.a, &p.one);
    client_start(&p.b, &p.two);
    same = op_acquire(&p.b, "x", PAWL_MODE_EXCLUSIVE, false);
    same.owner = p.two.owner;
    client_start(&p.b, &same);
    CHECK(same.arg && same.code == PAWL_EBUSY && !p.two.arg);
    CHECK(client_release(&p.a, &p.one) == 0);
    CHECK(client_await(&p.b, &p.two, 20 * SECOND) && p.two.code == 0);
    close_pair(&p);
}

/* ---- the table ------------------------------------------------------------------------------- */

enum { NAMES = 3000, READERS = 900 };

static pawl_op ops[NAMES];

static void take_names(struct client *a, struct client *b)
{
    static char names[NAMES][24];
    int held = 0;

    for (int i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof names[i], "name-%d", i);
        ops[i] = op_acquire(a, names[i], PAWL_MODE_EXCLUSIVE, false);
        client_start(a, &ops[i]);
        held += ops[i].arg && ops[i].code == 0;
    }
    CHECK(held == NAMES && client_simple(b, PAWL_OP_BREAK, names[7]) == 0);
    for (int i = 0; i < NAMES; i++)
        held -= client_release(a, &ops[i]) == 0;
    CHECK(held == 1);
}

static void crowd_one_name(struct client *a, struct client *b)
{
    int held = 0;

    for (int i = 0; i < READERS; i++) {
        ops[i] = op_acquire(i % 2 ? a : b, "crowd", PAWL_MODE_SHARED, true);
        client_start(i % 2 ? a : b, &ops[i]);
        held += ops[i].arg && ops[i].code == 0;
    }
    CHECK(held == READERS);
    for (int i = 0; i < READERS; i++)
        held -= client_release(i % 2 ? a : b, &ops[i]) == 0;
    CHECK(held == 0);
}

CASE("thousands of names, and hundreds of owners of one, fit")
{
    struct pair p;

    open_pair(&p);
    take_names(&p.a, &p.b);
    crowd_one_name(&p.a, &p.b);
    close_pair(&p);
}

static uint64_t one_token(void)
{
    struct client c;
    pawl_op op;

    if (client_open(&c))
        return 0;
    op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, false);
    client_start(&c, &op);
    client_close(&c);
    return op.code ? 0 : op.token;
}

/* Write to the table as if this were another boot. */
static void change_boot(void)
{
    char path[192];
    int fd;

    snprintf(path, sizeof path, "%s/.pawl/table", client_folder());
    fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, "0", 1, offsetof(local_head, boot)) == 1);
    CHECK(pwrite(fd, "x", 1, offsetof(local_head, boot) + 1) == 1);
    close(fd);
}

CASE("tokens go on from the table of an earlier boot, which is then replaced")
{
    uint64_t before = one_token(), after;

    change_boot();
    after = one_token();
    CHECK(before && after > before + 1000000);
}

CASE("a table with a client that sees another boot is never replaced")
{
    struct client a, b;
    pawl_error err = {0};
    pawl_op op;

    CHECK(!client_open(&a));
    op = op_acquire(&a, "x", PAWL_MODE_EXCLUSIVE, false);
    client_start(&a, &op);
    CHECK(op.code == 0);
    change_boot();
    CHECK(client_open_url(&b, client_folder(), NULL, 0, &err) == PAWL_ENOTSUP);
    CHECK(strstr(err.text, "another boot id"));
    client_close(&b);
    CHECK(client_release(&a, &op) == 0);
    client_close(&a);
    CHECK(one_token());
}

CASE("without a boot id nothing is opened")
{
    pawl_error err = {0};
    struct client c;
    int status;
    pid_t pid;

    if (geteuid())
        check_skip("only root can change its root");
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (chroot(client_folder()) || chdir("/"))
            _exit(2);
        _exit(client_open_url(&c, "/locks", NULL, 0, &err) == PAWL_ENOTSUP &&
              strstr(err.text, "boot_id") ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

CASE("only files of Pawl's own are removed")
{
    char command[512];
    const char *folder = client_folder();

    snprintf(command, sizeof command, "cd %s && echo a > table-mine && echo b > d0 && echo c > w0",
             folder);
    CHECK(!system(command) && one_token() && one_token());
    snprintf(command, sizeof command, "cd %s && test -s table-mine && test -s d0 && test -s w0",
             folder);
    CHECK(!system(command));
}

CASE("a program with an older version is told so, and its table in use is an error")
{
    char path[256], boot[40] = "", name[16] = "";
    const char *folder = client_folder();
    local_head head = {.magic = LOCAL_MAGIC, .version = 1};
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCAL_LOCK_BASE,
                         .l_len = 1};
    pawl_error err = {0};
    size_t n = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY);

    CHECK(fd >= 0 && read(fd, boot, 36) == 36);
    close(fd);
    for (size_t i = 0; n < 12; i++)
        if (boot[i] != '-')
            name[n++] = boot[i];
    snprintf(path, sizeof path, "%s/table-%s", folder, name);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && pwrite(fd, &head, sizeof head, 0) == sizeof head);
    CHECK(!fcntl(fd, F_OFD_SETLK, &lock));
    CHECK(try_open(folder, NULL, 0, &err) == PAWL_ENOTSUP && strstr(err.text, "older version"));
    close(fd);
    CHECK(try_open(folder, NULL, 0, &err) == 0);
    fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, &head, sizeof head) == sizeof head);
    CHECK(head.magic == LOCAL_MAGIC && head.version == LOCAL_VERSION);
    close(fd);
}

CASE("a client whose table was removed by hand says that all is lost")
{
    struct client c;
    pawl_op op, event, renew;
    pawl_renewal item = {.name = "x", .lease_ms = 30000};
    char command[192];

    CHECK(!client_open(&c));
    op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, false);
    event = op_of(&c, PAWL_OP_EVENT, NULL);
    renew = op_of(&c, PAWL_OP_RENEW, NULL);
    client_start(&c, &op);
    client_start(&c, &event);
    snprintf(command, sizeof command, "rm %s/.pawl/table", client_folder());
    CHECK(op.code == 0 && !event.arg && !system(command));
    item.owner = op.owner;
    renew.batch = &item;
    renew.batch_len = 1;
    client_start(&c, &renew);
    CHECK(renew.arg && renew.code == 0 && item.code == PAWL_ENOTHELD);
    CHECK(event.arg && event.event == PAWL_EVENT_LOST);
    client_close(&c);
}

int main(int argc, char **argv)
{
    return client_main(argc, argv);
}
