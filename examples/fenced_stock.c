/* SPDX-License-Identifier: Apache-2.0
 *
 * fenced_stock.c - never sell more than the stock, not even after a pause.
 *
 * The lock makes "read how many are left, write one less" one step. But the lock has a lease: a
 * shop that is stopped between read and write (here by SIGSTOP; a swapping or suspended machine
 * does the same) wakes up after its lease has ended. Others have sold meanwhile, and the shop's
 * next instruction writes an outdated number. No lock can prevent such a write, but the stock can:
 * every grant has a token that is larger than all tokens before, each access sends the token, and
 * the stock refuses a token that is smaller than the largest one so far. The script below is this
 * check; the Redis server that stores the stock runs the script. A read must raise the token, too,
 * else an old write could come between the read and the write of a newer holder.
 *
 *     fenced_stock [URL [SERVER]]
 *
 * URL is the service of the lock, any engine; by default $PAWL_URL or redis://localhost. SERVER
 * stores the stock: host:port or the path of a socket, without a password; by default
 * localhost:6379. The program uses one key there, which is deleted at the end.
 */
#include <netdb.h>
#include <pawl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SHOPS = 3, PIECES = 12, FAILED = 100 };

/* KEYS: the stock. ARGV: a token, and the new number of pieces if there is one to write. Returns
 * the number of pieces, or -1: refused, because an owner with a larger token was there before. */
static const char script[] =
    "local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0') "
    "if tonumber(ARGV[1]) < seen then return -1 end "
    "redis.call('HSET', KEYS[1], 'token', ARGV[1]) "
    "if ARGV[2] then redis.call('HSET', KEYS[1], 'left', ARGV[2]) end "
    "return tonumber(redis.call('HGET', KEYS[1], 'left') or '0')";

static char stock[40]; /* its key */

static int connect_to(const char *server)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
    const char *colon = strrchr(server, ':');
    char host[256] = "";
    int fd = -1;

    if (server[0] == '/') {
        snprintf(path.sun_path, sizeof path.sun_path, "%s", server);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        return fd < 0 || connect(fd, (struct sockaddr *)&path, sizeof path) ? -1 : fd;
    }
    snprintf(host, sizeof host, "%.*s", colon ? (int)(colon - server) : 255, server);
    if (getaddrinfo(host, colon ? colon + 1 : "6379", &hints, &list))
        return -1;
    for (a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    return fd;
}

/* Sends one command of n words; returns the answer, which is a number, or FAILED. */
static long ask(int fd, const char *const words[], int n)
{
    char reply[512];
    size_t length = 0;

    dprintf(fd, "*%d\r\n", n);
    for (int i = 0; i < n; i++)
        dprintf(fd, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
    while (length < sizeof reply - 1 && (length == 0 || reply[length - 1] != '\n')) {
        ssize_t got = read(fd, reply + length, sizeof reply - 1 - length);

        if (got <= 0)
            return FAILED;
        length += (size_t)got;
    }
    reply[length] = 0;
    if (reply[0] != ':')
        fprintf(stderr, "fenced_stock: the stock's server says %s", reply + 1);
    return reply[0] == ':' ? atol(reply + 1) : FAILED;
}

/* Returns how many are left, for the holder of this token; -1: refused. write < 0: only reads. */
static long access_stock(int fd, uint64_t token, long write)
{
    char first[24], second[24];
    const char *const words[] = {"EVAL", script, "1", stock, first, second};

    snprintf(first, sizeof first, "%llu", (unsigned long long)token);
    snprintf(second, sizeof second, "%ld", write);
    return ask(fd, words, write < 0 ? 5 : 6);
}

/* Sells one piece under the lock: 1, 0 if none is left, -1 if the stock refused, or FAILED. */
static long sell(pawl_lock *lock, int fd, int falls_asleep)
{
    pawl_error err;
    uint64_t token;
    long left, result;

    if (pawl_lock_acquire(lock, 30000, &err)) {
        fprintf(stderr, "fenced_stock: %s\n", err.text);
        return FAILED;
    }
    token = pawl_lock_token(lock);
    left = access_stock(fd, token, -1);
    if (falls_asleep)
        raise(SIGSTOP); /* until the parent sends SIGCONT */
    if (left > 0 && left != FAILED) {
        left = access_stock(fd, token, left - 1);
        result = left < 0 || left == FAILED ? left : 1;
    } else {
        result = left;
    }
    if (falls_asleep)
        printf("the shop that slept comes with token %llu and %s\n", (unsigned long long)token,
               result < 0 ? "is refused" : "is not refused");
    pawl_lock_release(lock, &err); /* PAWL_ELOST if the lock was lost; the stock has refused then */
    return result;
}

/* One process: sells all it can, or one piece with a pause. Returns how many pieces it sold. */
static int run_shop(const char *url, const char *server, int falls_asleep)
{
    pawl_client_options options = {.size = sizeof options, .watchdog_ms = 1000};
    pawl_client *client;
    pawl_lock *lock;
    pawl_error err;
    int fd = connect_to(server), sold = 0;
    long result;

    if (fd < 0) {
        fprintf(stderr, "fenced_stock: can't connect to %s\n", server);
        return FAILED;
    }
    if (pawl_open(&client, url, &options, &err) ||
        pawl_lock_new(&lock, client, "fenced_stock", NULL, &err)) {
        fprintf(stderr, "fenced_stock: %s\n", err.text);
        return FAILED;
    }
    do {
        result = sell(lock, fd, falls_asleep);
        sold += result == 1;
    } while (result && result != FAILED && !falls_asleep);
    pawl_lock_free(lock);
    pawl_close(client);
    fflush(stdout);
    return result == FAILED ? FAILED : sold;
}

static pid_t start_shop(const char *url, const char *server, int falls_asleep)
{
    pid_t pid = fork(); /* each opens its client after the fork */

    if (pid == 0)
        _exit(run_shop(url, server, falls_asleep));
    return pid;
}

/* One shop is stopped with the lock, the others sell out, the shop wakes. Returns the sum sold */
static int open_shops(const char *url, const char *server)
{
    pid_t sleeper = start_shop(url, server, 1);
    int status = 0, shops = 0, sold = 0;

    if (sleeper < 0 || waitpid(sleeper, &status, WUNTRACED) < 0 || !WIFSTOPPED(status))
        return FAILED;
    while (shops < SHOPS && start_shop(url, server, 0) > 0)
        shops++;
    for (; shops > 0 && wait(&status) > 0; shops--)
        sold += WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
    kill(sleeper, SIGCONT);
    if (waitpid(sleeper, &status, 0) > 0)
        sold += WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
    return sold;
}

int main(int argc, char **argv)
{
    const char *other = getenv("PAWL_URL") ? getenv("PAWL_URL") : "redis://localhost";
    const char *url = argc > 1 ? argv[1] : other;
    const char *server = argc > 2 ? argv[2] : "localhost:6379";
    const char *const forget[] = {"DEL", stock};
    int fd = connect_to(server), sold;
    long left;

    snprintf(stock, sizeof stock, "fenced_stock:%ld", (long)getpid());
    if (fd < 0 || access_stock(fd, 0, PIECES) != PIECES) {
        fprintf(stderr, "fenced_stock: no stock at %s\n", server);
        return 1;
    }
    sold = open_shops(url, server);
    left = access_stock(fd, UINT64_C(1) << 53, -1);
    ask(fd, forget, 2);
    if (sold >= FAILED)
        return 1;
    printf("%d of %d pieces sold, %ld are left\n", sold, PIECES, left);
    return sold == PIECES && left == 0 ? 0 : 1;
}
