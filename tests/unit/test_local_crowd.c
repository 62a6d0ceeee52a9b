/* SPDX-License-Identifier: Apache-2.0
 *
 * test_local_crowd.c - the engine local with many clients, and with no room left: a holder can
 * always release its lock, and the room that many clients used is free again when they are gone.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "local/local.h"
#include "local_client.h"

/* ---- many waiters of one name ---------------------------------------------------------------- */

enum { PARTS = 4, EACH = 350 };

/* EACH clients of one process wait for "x" until they are told to end. */
static _Noreturn void crowd(int say, int hear)
{
    struct client *c = calloc(EACH, sizeof *c);
    pawl_op *ops = calloc(EACH, sizeof *ops);
    char byte;
    int good = 0;

    for (int i = 0; c && ops && i < EACH; i++) {
        if (client_open(&c[i]))
            break;
        ops[i] = op_acquire(&c[i], "x", PAWL_MODE_EXCLUSIVE, true);
        client_start(&c[i], &ops[i]);
        good += !ops[i].arg;
    }
    if (write(say, good == EACH ? "y" : "n", 1) != 1 || read(hear, &byte, 1) != 1)
        _exit(1);
    _exit(0); /* as if killed: no lock is released */
}

static void more_files(void)
{
    struct rlimit limit = {.rlim_cur = 8192, .rlim_max = 8192};
    struct rlimit now;

    getrlimit(RLIMIT_NOFILE, &now);
    if (now.rlim_max > limit.rlim_max)
        limit.rlim_max = now.rlim_max;
    CHECK(now.rlim_cur >= limit.rlim_cur || !setrlimit(RLIMIT_NOFILE, &limit));
}

static void crowd_and_release(struct client *c)
{
    int up[2], down[2], good = 0;
    pawl_op op = op_acquire(c, "x", PAWL_MODE_EXCLUSIVE, false);
    pid_t pids[PARTS];
    char byte;

    op.lease_ms = 600000; /* not renewed; on a busy machine the crowd starts slowly */
    client_start(c, &op);
    CHECK(op.code == 0 && !pipe(up) && !pipe(down));
    for (int i = 0; i < PARTS; i++) {
        pids[i] = fork();
        CHECK(pids[i] >= 0);
        if (pids[i] == 0)
            crowd(up[1], down[0]);
        CHECK(read(up[0], &byte, 1) == 1);
        good += byte == 'y';
    }
    check_note("%d of %d processes with %d waiting clients each", good, PARTS, EACH);
    CHECK(good == PARTS);
    CHECK(client_release(c, &op) == 0);
    CHECK(write(down[1], "aaaa", PARTS) == PARTS);
    for (int i = 0; i < PARTS; i++)
        waitpid(pids[i], NULL, 0);
}

CASE("a crowd waits for one name, the holder releases, all is as before when they are gone")
{
    struct client c;
    int64_t begin;
    pawl_op op;

    more_files();
    CHECK(!client_open(&c));
    for (int round = 0; round < 2; round++) {
        crowd_and_release(&c);
        op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, true);
        client_start(&c, &op);
        begin = clock_now();
        CHECK(client_await(&c, &op, 30 * SECOND) && op.code == 0);
        check_note("granted %lld ms after they were gone", (long long)(clock_now() - begin) / MS);
        CHECK(client_release(&c, &op) == 0);
    }
    client_close(&c);
}

CASE("a place among many is found in a few tries")
{
    enum { MANY = 500 };
    static struct client c[MANY];
    uint64_t tries = 0;

    more_files();
    for (int i = 0; i < MANY; i++) {
        CHECK(!client_open(&c[i]));
        tries += ((local *)c[i].self)->probes + 1;
    }
    check_note("%d clients, %d tries", MANY, (int)tries);
    CHECK(tries < 100 * MANY); /* one after the other: 250 */
    for (int i = 0; i < MANY; i++)
        client_close(&c[i]);
}

/* Lock or unlock the bytes of `n` slots, as other clients would. */
static void fill(int fd, short type, uint32_t first, uint32_t n)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET,
                         .l_start = LOCAL_LOCK_BASE + (off_t)first, .l_len = n};

    CHECK(!fcntl(fd, F_OFD_SETLK, &lock));
}

CASE("the last free place is found, wherever it is; when there is none, the client is told so")
{
    static const uint32_t places[] = {1, 63, 64, 65, 2000, LOCAL_SLOTS - 1};
    struct client keep, c;
    char path[256];
    pawl_error err = {0};
    int fd;

    CHECK(!client_open(&keep)); /* in slot 0: the table stays */
    snprintf(path, sizeof path, "%s/" LOCAL_FOLDER "/table", client_folder());
    fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    fill(fd, F_WRLCK, 1, LOCAL_SLOTS - 1);
    CHECK(client_open_url(&c, client_folder(), NULL, 0, &err) == PAWL_EBACKEND);
    CHECK(strstr(err.text, "4096 clients"));
    client_close(&c);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        fill(fd, F_UNLCK, places[i], 1);
        CHECK(!client_open(&c) && ((local *)c.self)->slot == places[i]);
        client_close(&c);
        fill(fd, F_WRLCK, places[i], 1);
    }
    close(fd);
    client_close(&keep);
}

/* ---- no room --------------------------------------------------------------------------------- */

/* Acquire names until there is no room. Returns the number of names. */
static int take_all(struct client *c, pawl_op *ops, int n)
{
    static char names[40000][16];
    int held = 0;

    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        ops[i] = op_acquire(c, names[i], PAWL_MODE_EXCLUSIVE, false);
        client_start(c, &ops[i]);
        if (ops[i].code)
            break;
        held++;
    }
    return held;
}

/* A limit on the size of files has the same effect as a full disk. */
CASE("whoever holds locks can release them all although no room is left")
{
    static pawl_op ops[40000];
    struct rlimit limit;
    struct client c, waiter;
    pawl_op wait;
    int held, freed = 0;

    CHECK(!client_open(&c) && !client_open(&waiter) && !getrlimit(RLIMIT_FSIZE, &limit));
    limit.rlim_cur = sizeof(local_map) + 4 * 1024 * 1024;
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
    held = take_all(&c, ops, 40000);
    CHECK(held > 1000 && held < 40000);
    wait = op_acquire(&waiter, "n1", PAWL_MODE_EXCLUSIVE, true);
    client_start(&waiter, &wait);
    for (int i = 0; i < held; i++)
        freed += client_release(&c, &ops[i]) == 0;
    check_note("%d held, %d released; waited: %d", held, freed, wait.code);
    CHECK(freed == held);
    if (!wait.arg || wait.code == 0)
        CHECK(client_await(&waiter, &wait, 20 * SECOND) && wait.code == 0);
    client_close(&waiter);
    client_close(&c);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

static pid_t holder(const char *name)
{
    int fds[2];
    char byte;
    pid_t pid;

    CHECK(!pipe(fds));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct client c;
        pawl_op op;

        if (client_open(&c))
            _exit(1);
        op = op_acquire(&c, name, PAWL_MODE_EXCLUSIVE, true);
        op.lease_ms = 600000;
        client_start(&c, &op);
        if (client_finish(&c, &op, 20 * SECOND) || write(fds[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(fds[1]);
    CHECK(read(fds[0], &byte, 1) == 1);
    close(fds[0]);
    return pid;
}

/* Each death frees a descriptor whose number the next holder's FIFO gets at once. */
CASE("after many deaths the next one is still noticed at once")
{
    struct client c;
    int64_t worst = 0;

    CHECK(!client_open(&c));
    for (int i = 0; i < 120; i++) {
        pid_t pid = holder("x");
        pawl_op op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, true);
        int64_t from, took;

        client_start(&c, &op);
        CHECK(!op.arg);
        client_run(&c);
        from = clock_now();
        kill(pid, SIGKILL);
        CHECK(client_await(&c, &op, 20 * SECOND) && op.code == 0);
        took = clock_now() - from;
        worst = took > worst ? took : worst;
        waitpid(pid, NULL, 0);
        CHECK(client_release(&c, &op) == 0);
    }
    check_note("at worst %lld us", (long long)worst / 1000);
    CHECK(worst < 2 * SECOND);
    client_close(&c);
}

/* The loop sees the end of the process by itself: the timers of the engine don't run here. */
static void kill_and_notice(struct client *c, pid_t pid, const pawl_op *wait)
{
    CHECK(!wait->arg);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
    uv_run(&c->loop, UV_RUN_NOWAIT);
    CHECK(wait->arg && wait->code == 0);
}

/* The engine forgets the dead when there are more than 32. Their FIFOs were closed long ago, and
 * the number of these descriptors belongs to the FIFO of a process that lives. */
CASE("forgetting dead processes does not end the watch on one that lives")
{
    struct client c;
    const local *l;
    pid_t x, y;
    pawl_op a, b;

    CHECK(!client_open(&c));
    l = c.self;
    for (int i = 0; i < 32; i++) {
        x = holder("x");
        a = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, true);
        client_start(&c, &a);
        client_run(&c);
        kill_and_notice(&c, x, &a);
        CHECK(client_release(&c, &a) == 0);
    }
    CHECK(l->peers.idle == 32);
    x = holder("x");
    y = holder("y");
    a = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, true);
    b = op_acquire(&c, "y", PAWL_MODE_EXCLUSIVE, true);
    client_start(&c, &a);
    client_start(&c, &b);
    client_run(&c);
    kill_and_notice(&c, y, &b);
    CHECK(l->peers.idle == 0); /* the dead are forgotten */
    client_run(&c);
    kill_and_notice(&c, x, &a);
    client_close(&c);
}

/* ---- a process that changed its identity ----------------------------------------------------- */

static _Noreturn void change_and_release(int say, int hear, bool jail)
{
    struct client c;
    pawl_op op;
    char byte;

    if (client_open(&c))
        _exit(1);
    for (int i = 0; i < 3; i++) {
        op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, true);
        client_start(&c, &op);
        if (client_finish(&c, &op, 20 * SECOND))
            _exit(2);
        if (i == 0 && (jail ? chroot("/dev") || chdir("/") : setuid(54321)))
            _exit(3);
        if (write(say, "x", 1) != 1 || read(hear, &byte, 1) != 1 || client_release(&c, &op))
            _exit(4);
    }
    _exit(0);
}

static void wake_after(bool jail)
{
    int up[2], down[2], status;
    struct client c;
    int64_t worst = 0;
    char byte;
    pid_t pid;

    CHECK(!client_open(&c) && !pipe(up) && !pipe(down));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        change_and_release(up[1], down[0], jail);
    for (int i = 0; i < 3; i++) {
        pawl_op op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, true);
        int64_t from, took;

        CHECK(read(up[0], &byte, 1) == 1);
        client_start(&c, &op);
        CHECK(!op.arg);
        client_run(&c);
        from = clock_now();
        CHECK(write(down[1], "x", 1) == 1);
        CHECK(client_await(&c, &op, 20 * SECOND) && op.code == 0);
        took = clock_now() - from;
        worst = took > worst ? took : worst;
        CHECK(client_release(&c, &op) == 0);
    }
    check_note("%s: at worst %lld us", jail ? "chroot" : "setuid", (long long)worst / 1000);
    CHECK(worst < 3 * SECOND);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    client_close(&c);
}

CASE("whoever waits is woken by a holder that changed its user or its root since")
{
    if (geteuid())
        check_skip("only root can change its user and its root");
    wake_after(false);
    wake_after(true);
}

/* ---- a process that is killed between two messages ------------------------------------------- */

/* The waiting clients a and b are readers. The process that has the write lock publishes its
 * release, and notifies no client. Before that, a got a notice about another edit: a must not
 * conclude that the others were notified of this edit, too. */
static _Noreturn void release_in_silence(int say, int hear)
{
    struct client c;
    pawl_op op;
    local *l;
    char byte;

    if (client_open(&c))
        _exit(1);
    op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, true);
    client_start(&c, &op);
    if (client_finish(&c, &op, 20 * SECOND) || write(say, "x", 1) != 1 || read(hear, &byte, 1) != 1)
        _exit(2);
    l = c.self;
    close(l->wake); /* no message is sent */
    l->mute = true; /* and the process does not report that */
    if (client_release(&c, &op))
        _exit(3);
    if (write(say, "x", 1) != 1)
        _exit(4);
    for (;;)
        pause();
}

CASE("a reader that was told of an earlier edit tells the others of the grant that it finds")
{
    int up[2], down[2];
    struct client a, b;
    pawl_op one, two;
    struct shelf_told stale = {0};
    local *l;
    int64_t from;
    char byte;
    pid_t pid;

    CHECK(!client_open(&a) && !client_open(&b) && !pipe(up) && !pipe(down));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        release_in_silence(up[1], down[0]);
    CHECK(read(up[0], &byte, 1) == 1);
    one = op_acquire(&a, "x", PAWL_MODE_SHARED, true);
    two = op_acquire(&b, "x", PAWL_MODE_SHARED, true);
    client_start(&a, &one);
    client_start(&b, &two);
    client_run(&a);
    client_run(&b);
    CHECK(!one.arg && !two.arg && write(down[1], "x", 1) == 1 && read(up[0], &byte, 1) == 1);
    l = a.self;
    stale.bucket = shelf_bucket(&l->engine, "x");
    shelf_told(&l->engine, &stale);
    shelf_check(&l->engine, 0, SHELF_TOLD);
    CHECK(one.arg && one.code == 0);
    from = clock_now();
    CHECK(client_await(&b, &two, 20 * SECOND) && two.code == 0);
    CHECK(clock_now() - from < SECOND);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    client_close(&a);
    client_close(&b);
}

/* ---- nothing arrives ------------------------------------------------------------------------- */

CASE("a release of which no message arrives is found within five seconds")
{
    int up[2], down[2];
    struct client c;
    pawl_op op;
    int64_t from;
    char byte;
    pid_t pid;

    CHECK(!client_open(&c) && !pipe(up) && !pipe(down));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        release_in_silence(up[1], down[0]);
    CHECK(read(up[0], &byte, 1) == 1);
    op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, true);
    client_start(&c, &op);
    client_run(&c);
    CHECK(!op.arg && write(down[1], "x", 1) == 1 && read(up[0], &byte, 1) == 1);
    from = clock_now();
    CHECK(client_await(&c, &op, 20 * SECOND) && op.code == 0);
    check_note("after %lld ms", (long long)(clock_now() - from) / MS);
    CHECK(clock_now() - from < 5 * SECOND);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    client_close(&c);
}

int main(int argc, char **argv)
{
    return client_main(argc, argv);
}
