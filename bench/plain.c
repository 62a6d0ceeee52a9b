/* SPDX-License-Identifier: Apache-2.0
 *
 * plain.c - see plain.h.
 */
#include "plain.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench_scripts.h"
#include "common.h"

const char *const plain_acquire_sha = pawl__redis_acquire_sha;

static int connect_tcp(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) ||
        connect(fd, (struct sockaddr *)&at, sizeof at))
        bench_die("connect");
    return fd;
}

static int connect_unix(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at))
        bench_die(path);
    return fd;
}

struct plain *plain_open(const struct plain_server *server)
{
    struct plain *c = malloc(sizeof *c);

    if (!c)
        bench_die("malloc");
    c->at = c->end = 0;
    c->fd = server->port ? connect_tcp(server->port) : connect_unix(server->path);
    return c;
}

void plain_close(struct plain *c)
{
    close(c->fd);
    free(c);
}

void plain_send(struct plain *c, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(c->fd, data, len, MSG_NOSIGNAL);

        if (n <= 0)
            bench_die("send");
        data += n;
        len -= (size_t)n;
    }
}

/* ---- replies --------------------------------------------------------------------------------- */

/* The end of the reply that begins at s, or NULL if the reply is not complete yet. */
static const char *reply_end(const char *s, const char *end)
{
    const char *line = s < end ? memchr(s, '\n', (size_t)(end - s)) : NULL;
    long n;

    if (!line)
        return NULL;
    line++;
    if (*s == '*' || *s == '>') {
        for (n = atol(s + 1); n > 0 && line; n--)
            line = reply_end(line, end);
        return line;
    }
    if (*s != '$')
        return line; /* + - : */
    n = atol(s + 1);
    return n < 0 ? line : end - line < n + 2 ? NULL : line + n + 2;
}

static void receive(struct plain *c)
{
    ssize_t n;

    if (c->at && c->at == c->end)
        c->at = c->end = 0;
    if (c->end == sizeof c->in) {
        memmove(c->in, c->in + c->at, c->end - c->at);
        c->end -= c->at;
        c->at = 0;
    }
    n = recv(c->fd, c->in + c->end, sizeof c->in - c->end, 0);
    if (n <= 0)
        bench_die("recv");
    c->end += (size_t)n;
}

const char *plain_reply(struct plain *c, size_t *len)
{
    const char *start, *end;

    while (!(end = reply_end(c->in + c->at, c->in + c->end)))
        receive(c);
    start = c->in + c->at;
    c->at += (size_t)(end - start);
    *len = (size_t)(end - start);
    if (*start == '-') {
        fprintf(stderr, "redis: %.*s", (int)*len, start);
        exit(1);
    }
    return start;
}

int plain_ready(struct plain *c, int timeout_ms)
{
    struct pollfd p = {c->fd, POLLIN, 0};

    for (;;) {
        if (reply_end(c->in + c->at, c->in + c->end))
            return 1;
        if (poll(&p, 1, timeout_ms) != 1)
            return 0;
        receive(c);
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

void plain_begin(struct plain_request *r, int args)
{
    r->number = 0;
    r->len = (size_t)snprintf(r->data, sizeof r->data, "*%d\r\n", args);
}

void plain_arg(struct plain_request *r, const char *arg)
{
    r->len += (size_t)snprintf(r->data + r->len, sizeof r->data - r->len, "$%zu\r\n%s\r\n",
                               strlen(arg), arg);
    if (r->len >= sizeof r->data) {
        fprintf(stderr, "a request is too long\n");
        exit(1);
    }
}

void plain_command(struct plain_request *r, int args, const char *const *arg)
{
    plain_begin(r, args);
    for (int i = 0; i < args; i++)
        plain_arg(r, arg[i]);
}

const char *plain_do(struct plain *c, int args, const char *const *arg, size_t *len)
{
    char head[40];

    plain_send(c, head, (size_t)snprintf(head, sizeof head, "*%d\r\n", args));
    for (int i = 0; i < args; i++) {
        plain_send(c, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", strlen(arg[i])));
        plain_send(c, arg[i], strlen(arg[i]));
        plain_send(c, "\r\n", 2);
    }
    return plain_reply(c, len);
}

void plain_script(struct plain *c, const char *script, char digest[41])
{
    const char *const args[] = {"SCRIPT", "LOAD", script};
    size_t len;
    const char *reply = plain_do(c, 3, args, &len);

    snprintf(digest, 41, "%s", reply + strlen("$40\r\n"));
}

double plain_info(struct plain *c, const char *section, const char *field)
{
    const char *const args[] = {"INFO", section};
    size_t len, n = strlen(field);
    const char *text = plain_do(c, 2, args, &len), *end = text + len;

    while ((text = memchr(text, '\n', (size_t)(end - text))) && ++text < end)
        if ((size_t)(end - text) > n && !memcmp(text, field, n))
            return atof(text + n);
    return 0;
}

uint64_t plain_scripts_run(struct plain *c)
{
    return (uint64_t)(plain_info(c, "commandstats", "cmdstat_evalsha:calls=") +
                      plain_info(c, "commandstats", "cmdstat_eval:calls="));
}

/* ---- the lock's scripts ---------------------------------------------------------------------- */

void plain_keys(struct plain_request *r, const char *name)
{
    static const char *const helpers[] = {":fence", ":queue", ":rec", ":hold"};
    char key[300];

    snprintf(key, sizeof key, "pawl:%s", name);
    plain_arg(r, key);
    for (size_t i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "{pawl:%s}%s", name, helpers[i]);
        plain_arg(r, key);
    }
}

/* "CLIENT:SEQ", with a number of 8 digits to be filled in. */
static void owner(struct plain_request *r, uint64_t client)
{
    char text[40];

    snprintf(text, sizeof text, "%016llx:00000000", (unsigned long long)client);
    plain_arg(r, text);
    r->number = r->len - 2 - 8;
}

void plain_lock_init(struct plain_lock *lock, const char *name, uint64_t client, int wait_ms)
{
    struct plain_request *a = &lock->acquire, *b = &lock->release;
    char channel[40], wait[16];

    snprintf(channel, sizeof channel, "ppawl:@%016llx", (unsigned long long)client);
    snprintf(wait, sizeof wait, "%d", wait_ms);
    lock->number = 0;
    plain_begin(a, 3 + 5 + 12);
    plain_arg(a, "EVALSHA");
    plain_arg(a, pawl__redis_acquire_sha);
    plain_arg(a, "5");
    plain_keys(a, name);
    owner(a, client);
    for (const char *const *p = (const char *const[]){"x", "30000", wait, "1", channel, "0", "0",
                                                      "", "0", "", PLAIN_SECRET, NULL}; *p; p++)
        plain_arg(a, *p);
    plain_begin(b, 3 + 5 + 3);
    plain_arg(b, "EVALSHA");
    plain_arg(b, pawl__redis_release_sha);
    plain_arg(b, "5");
    plain_keys(b, name);
    owner(b, client);
    plain_arg(b, "0");
    plain_arg(b, "0");
}

void plain_lock_next(struct plain_lock *lock)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t n = ++lock->number;

    for (size_t i = 8; i-- > 0; n >>= 4)
        lock->acquire.data[lock->acquire.number + i] = digits[n & 15];
    memcpy(lock->release.data + lock->release.number,
           lock->acquire.data + lock->acquire.number, 8);
}

void plain_locks_load(struct plain *c)
{
    char digest[41];

    plain_script(c, pawl__redis_acquire, digest);
    plain_script(c, pawl__redis_release, digest);
}

static void expect(struct plain *c, const char *start)
{
    size_t len, n = strlen(start);
    const char *reply = plain_reply(c, &len);

    if (len < n || memcmp(reply, start, n)) {
        fprintf(stderr, "redis: not granted or not held:\n%.*s", (int)len, reply);
        exit(1);
    }
}

void plain_granted(struct plain *c)
{
    expect(c, "*6\r\n$7\r\nGRANTED\r\n");
}

void plain_released(struct plain *c)
{
    expect(c, "*3\r\n$2\r\nOK\r\n");
}
