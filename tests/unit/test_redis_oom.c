/* SPDX-License-Identifier: Apache-2.0
 *
 * test_redis_oom.c - every allocation of the Redis engine fails once, with a private server. As
 * test_oom.c; but here a call may also fail because the connection needs memory and ends. When
 * there is memory again, the server must have no grant left that keeps others out.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors.h"
#include "check.h"
#include "failing_memory.h"
#include "pawl.h"

enum { LEASE = 600000 };

/* ---- The server ------------------------------------------------------------------------------ */

typedef struct server {
    char *dir, path[96];
    const char *layout;
    pid_t pid;
} server;

static bool answers(const server *s)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool yes;

    snprintf(at.sun_path, sizeof at.sun_path, "%s", s->path);
    yes = !connect(fd, (struct sockaddr *)&at, sizeof at);
    close(fd);
    return yes;
}

static void server_start(server *s)
{
    s->dir = temp_dir();
    CHECK(s->dir);
    snprintf(s->path, sizeof s->path, "%s/socket", s->dir);
    s->pid = fork();
    CHECK(s->pid >= 0);
    if (!s->pid) {
        CHECK(freopen("/dev/null", "w", stdout));
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", s->path, "--save", "",
               "--appendonly", "no", "--dir", s->dir, (char *)NULL);
        _exit(127);
    }
    while (!answers(s)) {
        CHECK(waitpid(s->pid, NULL, WNOHANG) == 0);
        pause_ms(10);
    }
}

static void server_stop(server *s)
{
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    remove_tree(s->dir);
    free(s->dir);
}

/* ---- The play -------------------------------------------------------------------------------- */

/* Check that a code is one that a call may return without memory. Other codes are errors: held
 * twice, a bad argument ... */
static int fine(const char *what, int code)
{
    static const int codes[] = {0, PAWL_ENOMEM, PAWL_ECONN, PAWL_EUNKNOWN, PAWL_EBUSY,
                                PAWL_ETIMEDOUT, PAWL_ELOST};

    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (code == codes[i])
            return code;
    check_fail(__FILE__, __LINE__, "%s: %s is %s", memory_words(), what, pawl_errname(code));
}

static int ignore_row(void *arg, const pawl_info *info)
{
    (void)arg;
    (void)info;
    return 0;
}

static void ignore_line(void *arg, int level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

static pawl_client *open_client(const server *s, int timeout_ms)
{
    pawl_client_options options = {.size = sizeof options, .log = ignore_line, .label = "label",
                                   .log_level = PAWL_LOG_DEBUG};
    pawl_client *client = NULL;
    char url[160];

    snprintf(url, sizeof url, "redis+unix://%s?layout=%s&timeout=%d", s->path, s->layout,
             timeout_ms);
    fine("open", pawl_open(&client, url, &options, NULL));
    return client;
}

static pawl_lock *new_lock(pawl_client *client, const char *name, uint64_t kind)
{
    pawl_lock_options options = {.size = sizeof options, .kind = kind, .lease_ms = LEASE};
    pawl_lock *lock = NULL;

    if (client)
        fine("new", pawl_lock_new(&lock, client, name, &options, NULL));
    return lock;
}

static void take_and_give(void *arg)
{
    if (fine("acquire behind", pawl_lock_acquire(arg, 300, NULL)) == 0)
        fine("release behind", pawl_lock_release(arg, NULL));
}

/* One client holds the lock; the other waits, and gets the lock by a hand-over. */
static void play_locks(pawl_lock *mine, pawl_lock *yours)
{
    actor behind;

    if (!mine || !yours || fine("acquire", pawl_lock_acquire(mine, 300, NULL)))
        return;
    actor_start(&behind, take_and_give, yours);
    fine("renew", pawl_lock_renew(mine, LEASE, NULL));
    fine("release", pawl_lock_release(mine, NULL));
    actor_join(&behind);
}

static void play_rest(pawl_client *client, const char *name)
{
    pawl_semaphore_options permits = {.size = sizeof permits, .permits = 3, .lease_ms = LEASE};
    pawl_semaphore *sem = NULL;
    pawl_latch *latch = NULL;
    int64_t n;
    char text[64];

    snprintf(text, sizeof text, "%s-s", name);
    if (!fine("semaphore", pawl_semaphore_new(&sem, client, text, &permits, NULL)) &&
        !fine("permits", pawl_semaphore_acquire(sem, 2, 300, NULL))) {
        fine("available", pawl_semaphore_available(sem, &n, NULL));
        fine("release one", pawl_semaphore_release(sem, 1, NULL));
    }
    snprintf(text, sizeof text, "%s-l", name);
    if (!fine("latch", pawl_latch_new(&latch, client, text, NULL)) &&
        !fine("set", pawl_latch_set(latch, 1, NULL))) {
        fine("wait", pawl_latch_wait(latch, 2, NULL));
        fine("count down", pawl_latch_count_down(latch, NULL));
    }
    fine("inspect", pawl_inspect(client, name, ignore_row, NULL, NULL));
    fine("list", pawl_list(client, "n*", ignore_row, NULL, NULL));
    pawl_semaphore_free(sem);
    pawl_latch_free(latch);
}

static void play(const server *s, const char *name, int timeout_ms)
{
    pawl_client *a = open_client(s, timeout_ms), *b = open_client(s, timeout_ms);
    pawl_lock *mine = new_lock(a, name, PAWL_MUTEX), *yours = new_lock(b, name, PAWL_FAIR);

    play_locks(mine, yours);
    if (a)
        play_rest(a, name);
    pawl_lock_free(yours);
    fine("close b", pawl_close(b));
    fine("close a", pawl_close(a));
    pawl_lock_free(mine);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* No grant is left that keeps others out: its lease would be longer than the case. */
static void check_free(const server *s, const char *name)
{
    pawl_client *client = open_client(s, 20000);
    pawl_lock *lock = new_lock(client, name, PAWL_MUTEX);

    if (pawl_lock_acquire(lock, 20000, NULL))
        check_fail(__FILE__, __LINE__, "%s, and \"%s\" is not free afterwards", memory_words(),
                   name);
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
}

static long round_of(const server *s, long n, bool all_after)
{
    char name[32];
    long asked;

    snprintf(name, sizeof name, "n%ld", n);
    memory_fails(n, all_after);
    play(s, name, all_after ? 30 : 2000);
    asked = memory_is_back();
    if (!all_after)
        check_free(s, name);
    return asked;
}

static void rounds(const char *layout, bool all_after)
{
    server s = {.layout = layout};
    long n = 1;

    server_start(&s);
    play(&s, "n", 2000); /* makes the allocations that stay until the process ends */
    CHECK(round_of(&s, 0, all_after) > 20);
    while (round_of(&s, n, all_after) >= n)
        n++;
    check_note("%ld requests", n - 1);
    server_stop(&s);
}

CASE("pawl: survives that any one request for memory fails, and leaves nothing behind")
{
    rounds("pawl", false);
}

CASE("pawl: survives that all requests for memory fail from any one on")
{
    rounds("pawl", true);
}

CASE("redisson: survives that any one request for memory fails, and leaves nothing behind")
{
    rounds("redisson", false);
}

CASE("redisson: survives that all requests for memory fail from any one on")
{
    rounds("redisson", true);
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
