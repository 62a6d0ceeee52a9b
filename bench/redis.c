/* SPDX-License-Identifier: Apache-2.0
 *
 * redis.c - the cost of `redis://`, beside a plain blocking client that sends the same scripts, and
 * beside subscribe-and-retry, the way in which most libraries wait.
 *
 *     bench_redis [-u URL] [-n COUNT] [-s SECONDS] [-f] SOCKET PORT [PART...]
 *
 *   pair      acquire + release without contention
 *   threads   the same by 64 threads at once, each with a lock of its own, all with one client
 *   async     the same for 1000 locks at once through the asynchronous calls
 *   crowd     hand-overs of one lock among 2 to 256 processes
 *   latency   from the release in one process to the return of acquire in another that waits
 *   held      100,000 locks (-n) held for a minute (-s): the cost of renewals   (only if named)
 *   waiters   10,000 waiters (-n) of one lock, served in order                  (only if named)
 *
 * With -u Pawl opens URL instead of the server (any engine can be measured roughly in this way).
 * With -f `held` and `waiters` print names and numbers for compare.py instead of sentences.
 * The server must be private: its keys are flushed.
 */
#include "redis.h"

#include <string.h>
#include <unistd.h>

struct bench_setup setup;

static const struct part {
    const char *name;
    void (*run)(void);
    int usual;
} parts[] = {
    {"pair", bench_pair, 1},       {"threads", bench_threads, 1}, {"async", bench_async, 1},
    {"crowd", bench_crowd, 1},     {"latency", bench_latency, 1}, {"held", bench_held, 0},
    {"waiters", bench_waiters, 0},
};

static void flush(void)
{
    struct plain *c = plain_open(&setup.by_socket);
    const char *const command[] = {"FLUSHALL"};
    size_t len;

    plain_do(c, 1, command, &len);
    plain_locks_load(c);
    plain_close(c);
}

static void run(const struct part *part)
{
    pid_t child;

    flush();
    child = bench_fork();
    if (child == 0) {
        part->run();
        fflush(stdout);
        _exit(0);
    }
    bench_wait(child);
}

static int wanted(const struct part *part, char **names)
{
    if (!*names)
        return part->usual;
    for (; *names; names++)
        if (!strcmp(part->name, *names))
            return 1;
    return 0;
}

static void check_names(char **names)
{
    for (; *names; names++) {
        size_t i = 0, n = sizeof parts / sizeof parts[0];

        while (i < n && strcmp(parts[i].name, *names))
            i++;
        if (i == n) {
            fprintf(stderr, "bench_redis: there is no part '%s'\n", *names);
            exit(64);
        }
    }
}

void bench_figure(const char *name, double value)
{
    if (setup.figures)
        printf("%s %.17g\n", name, value);
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_redis [-u URL] [-n COUNT] [-s SECONDS] [-f] SOCKET PORT "
                    "[PART...]\n");
    return 64;
}

int main(int argc, char **argv)
{
    const char *url = NULL;
    int option;

    while ((option = getopt(argc, argv, "+u:n:s:f")) != -1) {
        if (option == 'u')
            url = optarg;
        else if (option == 'n')
            setup.count = atoi(optarg);
        else if (option == 's')
            setup.seconds = atoi(optarg);
        else if (option == 'f')
            setup.figures = 1;
        else
            return usage();
    }
    argv += optind;
    if (argc - optind < 2)
        return usage();
    check_names(argv + 2);
    setup.by_socket.path = argv[0];
    setup.by_tcp.port = atoi(argv[1]);
    /* With a time-out that a busy machine won't reach: slow figures are better than none. */
    snprintf(setup.tcp, sizeof setup.tcp, "redis://127.0.0.1:%d/?timeout=30000",
             setup.by_tcp.port);
    snprintf(setup.socket, sizeof setup.socket, "redis+unix://%s?timeout=30000", argv[0]);
    if (url) {
        snprintf(setup.tcp, sizeof setup.tcp, "%s", url);
        snprintf(setup.socket, sizeof setup.socket, "%s", url);
    }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (wanted(&parts[i], argv + 2))
            run(&parts[i]);
    return 0;
}
