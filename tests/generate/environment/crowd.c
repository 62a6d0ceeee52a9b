/* SPDX-License-Identifier: Apache-2.0
 *
 * crowd.c - crowd URL SEED MS MANY EACH: clients that come, take locks and are killed at any
 * instant.
 *
 * For MS milliseconds, wave after wave, MANY processes open EACH clients, and take and give back
 * locks: of the names m and rw, which others use as well (world.py), and of two names of this
 * crowd.
 * A timer kills each process within some ms. When all of a wave are dead, the next wave comes.
 *
 * If EACH is 1, one more process is not killed: it takes and gives back the two names of the crowd.
 * Whoever stands before it dies soon, so no wait of it takes long: status 3 if one does. (Many
 * clients take long to open, and the timer starts after that.)
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pawl.h"

enum { LOCKS = 8, OWN = 4, LONGEST_US = 60000, WAIT_MS = 20000, BOUND_MS = 8000,
       EACH_MAX = 60 };

static uint64_t chance;
static int crowd_id;

static uint64_t draw(uint64_t n)
{
    uint64_t z = chance += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % n;
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void nap(void)
{
    struct timespec t = {.tv_nsec = (long)draw(3000000)};

    nanosleep(&t, NULL);
}

static void use(pawl_lock *lock)
{
    if (pawl_lock_acquire(lock, (int64_t)draw(3) * 40, NULL))
        return;
    nap();
    if (draw(4))
        pawl_lock_release(lock, NULL);
}

static void told(void *arg, pawl_lock *lock, int code)
{
    (void)arg, (void)lock, (void)code;
}

static pawl_client *enter(const char *url, pawl_lock **locks)
{
    static const uint64_t kinds[OWN] = {PAWL_MUTEX, PAWL_FAIR, PAWL_READ, PAWL_WRITE};
    pawl_client *client;
    char own[2][32];

    if (pawl_open(&client, url, NULL, NULL))
        return NULL;
    for (int i = 0; i < 2; i++)
        snprintf(own[i], sizeof own[i], "crowd%d-%d", crowd_id, i);
    for (int i = 0; i < LOCKS; i++) {
        const char *name = i < OWN ? own[i / 2] : i < OWN + 2 ? "m" : "rw";
        pawl_lock_options o = {.size = sizeof o, .kind = kinds[i % OWN],
                               .owner = PAWL_OWNER_HANDLE};

        if (pawl_lock_new(&locks[i], client, name, &o, NULL))
            return NULL;
    }
    return client;
}

/* SIGALRM ends the process as SIGKILL would. */
static _Noreturn void member(const char *url, int each)
{
    struct itimerval end = {.it_value = {.tv_usec = (suseconds_t)(1 + draw(LONGEST_US))}};
    static pawl_lock *locks[EACH_MAX][LOCKS];
    int n = 0;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGALRM, SIG_DFL);
    for (; n < each && n < EACH_MAX && enter(url, locks[n]); n++)
        if (each > 1 && pawl_lock_acquire_start(locks[n][draw(LOCKS)], PAWL_FOREVER, told, NULL))
            break;
    if (!n)
        _exit(1);
    setitimer(ITIMER_REAL, &end, NULL); /* from here on: at any instant */
    for (;;) {
        use(locks[draw((uint64_t)n)][draw(LOCKS)]);
        nap();
    }
}

static bool is_over(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};

    return poll(&p, 1, 0) != 0;
}

static _Noreturn void observer(const char *url, int over)
{
    pawl_lock *locks[LOCKS];
    pawl_client *client;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    client = enter(url, locks);
    while (client && !is_over(over)) {
        pawl_lock *lock = locks[draw(OWN)];
        int64_t began = now_ms();
        int code = pawl_lock_acquire(lock, WAIT_MS, NULL);

        if (now_ms() - began > BOUND_MS) {
            printf("%s after %lld ms, among clients that live for %d ms\n", pawl_errname(code),
                   (long long)(now_ms() - began), LONGEST_US / 1000);
            exit(3);
        }
        nap();
        if (!code)
            pawl_lock_release(lock, NULL);
    }
    for (int i = 0; client && i < LOCKS; i++)
        pawl_lock_free(locks[i]);
    pawl_close(client);
    exit(0);
}

static pid_t start_observer(const char *url, int *over)
{
    int ends[2];
    pid_t pid;

    if (pipe(ends))
        return -1;
    pid = fork();
    if (pid == 0) {
        close(ends[1]);
        observer(url, ends[0]);
    }
    close(ends[0]);
    *over = ends[1];
    return pid;
}

static void wave(const char *url, int many, int each)
{
    pid_t pids[64];
    int n = 0;

    for (int i = 0; i < many && i < 64; i++) {
        uint64_t seed = draw(UINT64_MAX);
        pid_t pid = fork();

        if (pid == 0) {
            chance = seed;
            member(url, each);
        }
        if (pid > 0)
            pids[n++] = pid;
    }
    while (n > 0)
        waitpid(pids[--n], NULL, 0);
}

int main(int argc, char **argv)
{
    int64_t end;
    int over = -1, status = 0;
    pid_t pid;

    if (argc < 6)
        return 64;
    crowd_id = (int)getpid();
    chance = strtoull(argv[2], NULL, 10);
    end = now_ms() + atoll(argv[3]);
    pid = atoi(argv[5]) == 1 ? start_observer(argv[1], &over) : -1;
    while (now_ms() < end)
        wave(argv[1], atoi(argv[4]), atoi(argv[5]));
    if (pid < 0)
        return 0;
    close(over);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
