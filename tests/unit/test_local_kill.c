/* SPDX-License-Identifier: Apache-2.0
 *
 * test_local_kill.c - the engine local when a process is killed or stopped: one process at a time,
 * at chosen moments. test_local_hammer.c kills many processes at random.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "local_client.h"

/* ---- a holder -------------------------------------------------------------------------------- */

static _Noreturn void hold(int64_t lease_ms, int say)
{
    struct client c;
    pawl_op op;

    if (client_open(&c))
        _exit(1);
    op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, true);
    op.lease_ms = lease_ms;
    client_start(&c, &op);
    if (client_finish(&c, &op, 20 * SECOND) || write(say, "x", 1) != 1)
        _exit(1);
    for (;;) {
        client_run(&c);
        client_sleep(&c, clock_now() + SECOND);
    }
}

/* Start a process that acquires "x" and waits for its end. Returns when the process has the
 * lock. */
static pid_t holder(int64_t lease_ms)
{
    int pipe_fd[2];
    char byte;
    pid_t pid;

    CHECK(!pipe(pipe_fd));
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        hold(lease_ms, pipe_fd[1]);
    close(pipe_fd[1]);
    CHECK(read(pipe_fd[0], &byte, 1) == 1);
    close(pipe_fd[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* Kill a holder, stopped before or not. Returns the time in ns until this client had the lock. */
static int64_t follow(struct client *c, bool stop_first)
{
    pid_t pid = holder(600000);
    pawl_op op = op_acquire(c, "x", PAWL_MODE_EXCLUSIVE, true);
    int64_t killed, took;

    client_start(c, &op);
    CHECK(!op.arg);
    client_run(c);
    killed = clock_now();
    if (stop_first)
        kill(pid, SIGSTOP);
    kill(pid, SIGKILL);
    CHECK(client_await(c, &op, 10 * SECOND) && op.code == 0);
    took = clock_now() - killed;
    waitpid(pid, NULL, 0);
    CHECK(client_release(c, &op) == 0);
    return took;
}

CASE("a killed holder is followed at once, long before its lease ends")
{
    struct client c;
    int64_t worst = 0;

    CHECK(!client_open(&c));
    for (int i = 0; i < 50; i++) {
        int64_t took = follow(&c, i % 2);

        worst = took > worst ? took : worst;
    }
    check_note("at worst %lld us after kill -9", (long long)worst / 1000);
    client_close(&c);
}

CASE("a dead holder that nobody waited for is no obstacle")
{
    struct client c;
    pawl_op op;

    CHECK(!client_open(&c));
    end(holder(600000));
    op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, false);
    client_start(&c, &op);
    CHECK(op.code == 0 && client_release(&c, &op) == 0);
    client_close(&c);
}

CASE("a stopped holder loses the lock when its lease ends")
{
    struct client c;
    pawl_op op;
    pid_t pid;

    CHECK(!client_open(&c));
    pid = holder(200);
    kill(pid, SIGSTOP);
    op = op_acquire(&c, "x", PAWL_MODE_EXCLUSIVE, true);
    client_start(&c, &op);
    CHECK(client_await(&c, &op, 20 * SECOND) && op.code == 0);
    CHECK(client_release(&c, &op) == 0);
    end(pid);
    client_close(&c);
}

/* ---- a latch --------------------------------------------------------------------------------- */

/* The process that counts down dies before, between or after the change and the notification. */
static void count_down_and_die(void)
{
    pid_t pid = fork();

    CHECK(pid >= 0);
    if (pid == 0) {
        struct client child;

        if (!client_open(&child))
            client_simple(&child, PAWL_OP_LATCH_DOWN, "gate");
        for (;;)
            pause();
    }
    usleep((useconds_t)(random_number() % 900));
    end(pid);
}

CASE("a waiter sees a latch open although who opened it was killed before he could say so")
{
    struct client c;
    pawl_op set, wait_op, look;
    int opened = 0;

    CHECK(!client_open(&c));
    for (int i = 0; i < 400; i++) {
        set = op_of(&c, PAWL_OP_LATCH_SET, "gate");
        set.count = 1;
        client_start(&c, &set);
        wait_op = op_acquire(&c, "gate", PAWL_MODE_LATCH, true);
        client_start(&c, &wait_op);
        CHECK(set.code == 0 && !wait_op.arg);
        count_down_and_die();
        look = op_of(&c, PAWL_OP_COUNT, "gate");
        look.mode = PAWL_MODE_LATCH;
        client_start(&c, &look);
        if (look.value > 0)
            CHECK(client_simple(&c, PAWL_OP_LATCH_DOWN, "gate") == 0);
        else
            opened++;
        CHECK(client_await(&c, &wait_op, 10 * SECOND) && wait_op.code == 0);
    }
    check_note("opened %d of 400 times", opened);
    client_close(&c);
}

int main(int argc, char **argv)
{
    return client_main(argc, argv);
}
