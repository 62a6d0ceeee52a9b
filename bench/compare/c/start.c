/* SPDX-License-Identifier: Apache-2.0
 *
 * start.c - how long programs take from their start to their end:
 *
 *     bench_start ROUNDS COMMAND [WORD ...] [-- COMMAND [WORD ...]] ...
 *
 * In each round every command runs once, in turns, with posix_spawn, which costs the same for all.
 * Prints one line for each command: the microseconds of its rounds. A command that fails ends the
 * measurement: a program that gives up at once would look fast.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COMMANDS_MAX = 32, ROUNDS_MAX = 10000, WARM_UP = 2 };

extern char **environ;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int64_t run(char **words)
{
    static posix_spawn_file_actions_t quiet;
    static int made;
    int64_t began;
    int status, code;
    pid_t pid;

    if (!made++) {
        posix_spawn_file_actions_init(&quiet);
        posix_spawn_file_actions_addopen(&quiet, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    }
    began = now_ns();
    code = posix_spawnp(&pid, words[0], &quiet, NULL, words, environ);
    if (code || waitpid(pid, &status, 0) != pid || status) {
        fprintf(stderr, "bench_start: %s: %s\n", words[0], code ? strerror(code) : "it failed");
        exit(1);
    }
    return now_ns() - began;
}

int main(int argc, char **argv)
{
    static int64_t took[COMMANDS_MAX][ROUNDS_MAX];
    char **commands[COMMANDS_MAX];
    int n = 0, rounds = argc > 2 ? atoi(argv[1]) : 0;

    if (rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_start ROUNDS COMMAND [WORD ...] [-- COMMAND ...] ...\n");
        return 64;
    }
    commands[n++] = argv + 2;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--") || n == COMMANDS_MAX)
            continue;
        argv[i] = NULL;
        commands[n++] = argv + i + 1;
    }
    for (int round = -WARM_UP; round < rounds; round++)
        for (int k = 0; k < n; k++) {
            int which = (k + round + WARM_UP) % n; /* no command is always the first */
            int64_t ns = run(commands[which]);

            if (round >= 0)
                took[which][round] = ns;
        }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < rounds; k++)
            printf("%lld%s", (long long)took[i][k] / 1000, k + 1 < rounds ? " " : "\n");
    return 0;
}
