/* SPDX-License-Identifier: Apache-2.0
 *
 * schedules.c - runs programs (programs.h) under schedules, seed after seed, each in a process of
 * its own.
 *
 *     schedules [--first SEED] [--count N] [--for SECONDS] [--free] [--keep-on]
 *     schedules [--first SEED] [--count N] [--for SECONDS] --exec PROGRAM [ARGUMENT ...]
 *
 * --free runs the programs without the scheduler, to compare. --exec runs another program, linked
 * with the scheduler, with PAWL_SCHEDULE_SEED in its environment. The run ends with the first seed
 * that fails, unless --keep-on is given. --first SEED --count 1 replays a seed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "programs.h"

#define LIMIT 120     /* seconds of real time that one seed may take */
#define LIMIT_FREE 30 /* without the scheduler */

struct result {
    uint64_t hash, steps, strays;
};

static struct {
    uint64_t first, count;
    int64_t seconds;
    bool free, keep_on;
    char **exec;
} args = {1, UINT64_MAX, 0, false, false, NULL};
static struct result *result; /* of the child, in shared memory */

static int64_t seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static _Noreturn void child(uint64_t seed)
{
    struct sched_options o = {.jumps = program_is_wild(seed / SCHEDULES) ? 0 : -1};
    char text[32];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (args.exec) {
        dup2(STDERR_FILENO, STDOUT_FILENO); /* its TAP is not that of this run */
        snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
        setenv("PAWL_SCHEDULE_SEED", text, 1);
        execv(args.exec[0], args.exec);
        _exit(127);
    }
    if (!args.free)
        sched_start(seed, &o);
    program_run(seed / SCHEDULES);
    *result = (struct result){sched_hash(), sched_steps(), sched_strays()};
    sched_stop();
    exit(0); /* not _exit: a leak checker reports here */
}

/* Run one seed. True: the program succeeded. */
static bool run(uint64_t seed)
{
    int64_t end = seconds() + (args.free ? LIMIT_FREE : LIMIT);
    int status = 0;
    pid_t pid;

    fflush(NULL);
    *result = (struct result){0};
    pid = fork();
    if (pid == 0)
        child(seed);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        usleep(300);
        if (seconds() < end)
            continue;
        printf("# seed %llu does not end\n", (unsigned long long)seed);
        kill(pid, SIGABRT);
        waitpid(pid, &status, 0);
        return false;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    printf("# seed %llu: %s %d\n", (unsigned long long)seed,
           WIFSIGNALED(status) ? "signal" : "exit status",
           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return false;
}

static uint64_t run_all(uint64_t *ran)
{
    int64_t end = args.seconds ? seconds() + args.seconds : INT64_MAX;
    uint64_t failed = 0, steps = 0, strays = 0;

    for (*ran = 0; *ran < args.count && seconds() < end && (!failed || args.keep_on); ++*ran) {
        failed += !run(args.first + *ran);
        steps += result->steps;
        strays += result->strays;
    }
    if (!args.exec)
        printf("# seeds %llu to %llu, %llu points, %llu threads stuck in the kernel\n",
               (unsigned long long)args.first, (unsigned long long)(args.first + *ran - 1),
               (unsigned long long)steps, (unsigned long long)strays);
    return failed;
}

/* Run the first seeds once more: the decisions must be the same, point by point. */
static bool replays(void)
{
    for (uint64_t seed = args.first; seed < args.first + 16; seed++) {
        struct result before;

        if (!run(seed))
            return false;
        before = *result;
        if (!run(seed))
            return false;
        if (!before.strays && !result->strays && memcmp(&before, result, sizeof before)) {
            printf("# seed %llu: %llu and %llu steps\n", (unsigned long long)seed,
                   (unsigned long long)before.steps, (unsigned long long)result->steps);
            return false;
        }
    }
    return true;
}

static void take_args(char **argv)
{
    for (char **a = argv + 1; *a; a++) {
        if (!strcmp(*a, "--free")) {
            args.free = true;
        } else if (!strcmp(*a, "--keep-on")) {
            args.keep_on = true;
        } else if (!strcmp(*a, "--exec") && a[1]) {
            args.exec = a + 1;
            return;
        } else if (!strcmp(*a, "--first") && a[1]) {
            args.first = strtoull(*++a, NULL, 10);
        } else if (!strcmp(*a, "--count") && a[1]) {
            args.count = strtoull(*++a, NULL, 10);
        } else if (!strcmp(*a, "--for") && a[1]) {
            args.seconds = atoll(*++a);
        } else {
            fprintf(stderr, "schedules: %s? The head of schedules.c says what there is.\n", *a);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    bool both, same = true;
    uint64_t failed, ran;

    (void)argc;
    take_args(argv);
    both = !args.free && !args.exec && args.count != 1;
    result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    failed = run_all(&ran);
    printf("%s 1 - %llu programs%s: no crash, no deadlock, every done once, one owner at a time\n",
           failed ? "not ok" : "ok", (unsigned long long)ran, args.free ? "" : " under schedules");
    if (both) {
        same = replays();
        printf("%s 2 - a seed replays its schedule\n", same ? "ok" : "not ok");
    }
    printf("1..%d\n", both ? 2 : 1);
    return failed || !same;
}
