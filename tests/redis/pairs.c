/* SPDX-License-Identifier: Apache-2.0
 *
 * pairs.c - pairs URL NAME PROCESSES ROUNDS: processes that acquire one lock, each ROUNDS times.
 *
 * The program prints "ready" when every process is connected, begins when a line arrives, prints
 * "done" with the number of errors, and ends with its input. Between these lines a test can count
 * the server's commands without the commands for connecting and closing. It is an error if two
 * processes hold the lock at once, or if a token is not larger than the last one.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pawl.h"

struct board {
    atomic_int inside, failures;
    atomic_ullong last_token;
};

static struct board *board;

/* Pipes to which nobody writes: the end-of-file is the signal. */
static int connected[2], go[2], finished[2], over[2];

static void failed(const char *what, int code, const char *words)
{
    if (atomic_fetch_add(&board->failures, 1) < 10)
        fprintf(stderr, "pairs: %s: %s %s\n", what, pawl_errname(code), words);
}

static void one_pair(pawl_lock *lock)
{
    pawl_error err = {0};
    uint64_t token;
    int code = pawl_lock_acquire(lock, PAWL_FOREVER, &err);

    if (code) {
        failed("acquire", code, err.text);
        return;
    }
    token = pawl_lock_token(lock);
    if (atomic_fetch_add(&board->inside, 1))
        failed("two are inside", 0, "");
    if (token <= atomic_exchange(&board->last_token, token))
        failed("the token did not rise", 0, "");
    atomic_fetch_sub(&board->inside, 1);
    code = pawl_lock_release(lock, &err);
    if (code)
        failed("release", code, err.text);
}

/* Wait until all processes at the other end have closed the pipe. */
static void await_end(int fd)
{
    char byte;

    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        ;
}

static int ignore_row(void *arg, const pawl_info *info)
{
    (void)arg, (void)info;
    return 0;
}

/* The answer to the inspection proves that the client is connected. */
static void child(const char *url, const char *name, int rounds)
{
    pawl_lock_options fair = {.size = sizeof fair, .kind = PAWL_FAIR};
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (pawl_open(&client, url, NULL, &err) || pawl_lock_new(&lock, client, name, &fair, &err) ||
        pawl_inspect(client, name, ignore_row, NULL, &err)) {
        failed("open", err.code, err.text);
        return;
    }
    close(connected[1]);
    await_end(go[0]);
    for (int i = 0; i < rounds; i++)
        one_pair(lock);
    close(finished[1]);
    await_end(over[0]);
    pawl_lock_free(lock);
    pawl_close(client);
}

static void start(const char *url, const char *name, int processes, int rounds)
{
    for (int i = 0; i < processes; i++) {
        pid_t pid = fork();

        if (pid < 0) {
            perror("pairs: fork");
            exit(1);
        }
        if (pid == 0) {
            close(go[1]);
            close(over[1]);
            child(url, name, rounds);
            _exit(0);
        }
    }
    close(connected[1]);
    close(finished[1]);
}

static int run(const char *url, const char *name, int processes, int rounds)
{
    char line[64];

    start(url, name, processes, rounds);
    await_end(connected[0]);
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    close(go[1]);
    await_end(finished[0]);
    printf("done failures=%d\n", atomic_load(&board->failures));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin))
        ;
    close(over[1]);
    while (wait(NULL) > 0)
        ;
    return atomic_load(&board->failures) ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: pairs URL NAME PROCESSES ROUNDS\n");
        return 64;
    }
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED || pipe(connected) || pipe(go) || pipe(finished) || pipe(over)) {
        perror("pairs");
        return 1;
    }
    return run(argv[1], argv[2], atoi(argv[3]), atoi(argv[4]));
}
