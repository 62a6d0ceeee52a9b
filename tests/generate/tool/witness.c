/* SPDX-License-Identifier: Apache-2.0
 *
 * witness.c - the command that the tool generator runs under a lock. The records of the command
 * prove when the command was alive. This program shares no code with Pawl.
 *
 *     witness LOG RUN MS [KEY=VALUE ...]
 *
 * The command and its children append lines "NS PID RUN KIND VALUE" to LOG. NS is CLOCK_BOOTTIME,
 * read before the line is written: at that moment the process was alive. Each line is one write(2)
 * with O_APPEND, so lines of different processes never mix.
 *
 *     S token   the command began            K parent  a child began
 *     B 0       the command is alive         k parent  the child is alive
 *     T signal  the command got a signal     X status  the command is about to exit
 *
 * The command lives for MS milliseconds. Keys:
 *     exit=N     status of the exit             kids=N      children in the same process group
 *     term=exit  SIGTERM: record, exit with 40  kidterm=ignore  the children ignore SIGTERM
 *     term=ignore                               stay=MS     how long a child outlives the command
 *     (else SIGTERM kills, as by default)       out=1       write a byte to stdout now and then
 *     daemon=MS  a child that leaves the process group, lives for MS and makes no records
 *
 *     pager [MS]
 *
 * Under the name `pager` this program reads the command's output: the pager drains its standard
 * input and looks for keys on the terminal, as less does, until the input ends or MS milliseconds
 * are over.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_NS 4000000

static int log_fd;
static const char *run_id;
static volatile sig_atomic_t signals_seen[65];

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void record(char kind, long long value)
{
    char line[128];
    int n = snprintf(line, sizeof line, "%lld %d %s %c %lld\n", (long long)now(), (int)getpid(),
                     run_id, kind, value);

    if (write(log_fd, line, (size_t)n) != n)
        _exit(99);
}

static void seen(int number)
{
    signals_seen[number] = 1;
}

static void nap(void)
{
    struct timespec t = {.tv_nsec = PAUSE_NS};

    nanosleep(&t, NULL);
}

static const char *text_of(int argc, char **argv, const char *key, const char *none)
{
    size_t len = strlen(key);

    for (int i = 4; i < argc; i++)
        if (!strncmp(argv[i], key, len) && argv[i][len] == '=')
            return argv[i] + len + 1;
    return none;
}

static int64_t number_of(int argc, char **argv, const char *key)
{
    return atoll(text_of(argc, argv, key, "0"));
}

/* The child lives as long as its parent, and `stay` longer. */
static void be_child(pid_t parent, int64_t stay)
{
    int64_t until = 0;

    record('K', parent);
    while (!until || now() < until) {
        if (!until && getppid() != parent)
            until = now() + stay * 1000000;
        record('k', parent);
        nap();
    }
    _exit(0);
}

static void start_children(int argc, char **argv)
{
    int64_t daemon = number_of(argc, argv, "daemon"), stay = number_of(argc, argv, "stay");
    pid_t parent = getpid();

    for (int64_t i = number_of(argc, argv, "kids"); i > 0; i--)
        if (fork() == 0) {
            if (!strcmp(text_of(argc, argv, "kidterm", ""), "ignore"))
                signal(SIGTERM, SIG_IGN);
            be_child(parent, stay);
        }
    if (daemon && fork() == 0) {
        struct timespec t = {.tv_sec = daemon / 1000, .tv_nsec = daemon % 1000 * 1000000};

        setsid();
        nanosleep(&t, NULL);
        _exit(0);
    }
}

static void take_signals(void)
{
    static const int numbers[] = {SIGUSR1, SIGUSR2, SIGTERM};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (signals_seen[numbers[i]]) {
            signals_seen[numbers[i]] = 0;
            record('T', numbers[i]);
            if (numbers[i] == SIGTERM) {
                record('X', 40);
                _exit(40);
            }
        }
}

static void prepare_signals(const char *term)
{
    struct sigaction action = {.sa_handler = seen};

    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    if (!strcmp(term, "exit"))
        sigaction(SIGTERM, &action, NULL);
    if (!strcmp(term, "ignore"))
        signal(SIGTERM, SIG_IGN);
}

/* The kernel stops a background process that reads the terminal, whether or not a key waits. */
static int be_pager(int64_t ms)
{
    int tty = open("/dev/tty", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    int64_t until = now() + ms * 1000000;
    struct pollfd in = {STDIN_FILENO, POLLIN, 0};
    char bytes[4096];

    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    while (!ms || now() < until) {
        if (tty >= 0 && read(tty, bytes, sizeof bytes) == 0) {
            close(tty); /* hung up */
            tty = -1;
        }
        if (poll(&in, 1, 10) > 0 && read(STDIN_FILENO, bytes, sizeof bytes) <= 0)
            break;
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/'), *token = getenv("PAWL_TOKEN");
    int64_t until, status = number_of(argc, argv, "exit"), out = number_of(argc, argv, "out");

    if (!strcmp(slash ? slash + 1 : argv[0], "pager"))
        return be_pager(argc > 1 ? atoll(argv[1]) : 0);
    if (argc < 4 || (log_fd = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) < 0)
        return 98;
    run_id = argv[2];
    prepare_signals(text_of(argc, argv, "term", ""));
    record('S', token ? atoll(token) : 0);
    start_children(argc, argv);
    for (until = now() + atoll(argv[3]) * 1000000; now() < until; nap()) {
        take_signals();
        record('B', 0);
        if (out && write(STDOUT_FILENO, ".", 1) < 0)
            out = 0;
    }
    take_signals();
    record('X', status);
    _exit((int)status); /* at once; a signal may still come before the exit */
}
