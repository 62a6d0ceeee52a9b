/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_redis.c - see fake_redis.h.
 */
#include "fake_redis.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "redis/redis.h"

/* ---- talking --------------------------------------------------------------------------------- */

void fake_send(fake *f, const char *format, ...)
{
    char *text;
    va_list args;
    int length;

    va_start(args, format);
    length = vasprintf(&text, format, args);
    va_end(args);
    CHECK(length >= 0);
    for (ssize_t done = 0, n; done < length; done += n) {
        n = send(f->fd, text + done, (size_t)(length - done), MSG_NOSIGNAL);
        if (n < 0)
            break; /* the client hung up: the next read reports this */
    }
    free(text);
}

/* Wait for a descriptor, or for the end of the case. */
static bool ready(const fake *f, int fd)
{
    struct pollfd fds[2] = {{fd, POLLIN, 0}, {f->stop[0], POLLIN, 0}};

    poll(fds, 2, -1);
    return !fds[1].revents;
}

static bool read_all(const fake *f, char *data, size_t length)
{
    while (length) {
        ssize_t n = ready(f, f->fd) ? recv(f->fd, data, length, 0) : 0;

        if (n <= 0)
            return false;
        data += n;
        length -= (size_t)n;
    }
    return true;
}

/* Read "*3" or "$11"; -1: the end of the connection. */
static long read_number(const fake *f)
{
    char line[32];
    size_t n = 0;

    do
        if (n + 1 >= sizeof line || !read_all(f, line + n, 1))
            return -1;
    while (line[n++] != '\n');
    line[n] = 0;
    return atol(line + 1);
}

static bool read_request(const fake *f, fake_request *q)
{
    long argc = read_number(f);

    q->argc = 0;
    if (argc < 0)
        return false;
    CHECK(argc <= FAKE_ARGS);
    while (q->argc < argc) {
        long length = read_number(f);
        char *text = length < 0 ? NULL : malloc((size_t)length + 2);

        if (!text)
            return false;
        q->argv[q->argc++] = text;
        if (!read_all(f, text, (size_t)length + 2))
            return false;
        text[length] = 0;
    }
    return true;
}

static void forget(fake_request *q)
{
    while (q->argc > 0)
        free(q->argv[--q->argc]);
}

/* ---- answers --------------------------------------------------------------------------------- */

bool fake_greets(fake *f, const fake_request *q)
{
    const char *word = q->argv[0];

    if (!strcmp(word, "HELLO"))
        fake_send(f, "%%2\r\n+version\r\n+7.0.0\r\n+id\r\n:%d\r\n", q->connection);
    else if (!strcmp(word, "SUBSCRIBE"))
        fake_send(f, ">3\r\n+subscribe\r\n+%s\r\n:1\r\n", q->argv[1]);
    else if (!strcmp(word, "PING"))
        fake_send(f, "+PONG\r\n");
    else if (!strcmp(word, "CLIENT") || !strcmp(word, "PUBLISH"))
        fake_send(f, ":0\r\n");
    else
        return false;
    return true;
}

bool fake_is(const fake_request *q, const char *script)
{
    static const struct {
        const char *name;
        const redis_script *script;
    } known[] = {{"acquire", &redis_script_acquire}, {"cancel", &redis_script_cancel},
                 {"release", &redis_script_release}, {"inspect", &redis_script_inspect}};

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(script, known[i].name))
            return !strcmp(q->argv[0], "EVALSHA") && !strcmp(q->argv[1], known[i].script->sha);
    return false;
}

static long long wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* EVALSHA sha 5 KEYS owner mode lease ... */
void fake_grant(fake *f, const fake_request *q)
{
    fake_send(f, "*6\r\n+GRANTED\r\n+%s\r\n:7\r\n:%s\r\n:%s\r\n:%lld\r\n", q->argv[8], q->argv[12],
              q->argv[10], wall_ms());
}

void fake_serve(fake *f, const fake_request *q)
{
    if (fake_is(q, "acquire"))
        fake_grant(f, q);
    else if (fake_is(q, "cancel") || fake_is(q, "release"))
        fake_send(f, "*3\r\n+%s\r\n+%s\r\n:%lld\r\n", fake_is(q, "cancel") ? "HELD" : "OK",
                  q->argv[8], wall_ms());
    else
        fake_send(f, ":0\r\n");
}

/* ---- life ------------------------------------------------------------------------------------ */

static void count(fake *f, const fake_request *q)
{
    event_raise(&f->asked);
    if (fake_is(q, "acquire"))
        event_raise(&f->acquires);
    else if (fake_is(q, "inspect"))
        event_raise(&f->inspects);
    else if (fake_is(q, "cancel"))
        event_raise(&f->cancels);
}

static void serve(void *arg)
{
    fake *f = arg;
    fake_request q = {0};

    while (ready(f, f->listener)) {
        f->fd = accept(f->listener, NULL, NULL);
        CHECK(f->fd >= 0);
        q.connection++;
        while (read_request(f, &q)) {
            count(f, &q);
            if (!f->answer(f, &q))
                break;
            forget(&q);
        }
        forget(&q);
        close(f->fd);
    }
}

static int listen_in(const char *dir)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", dir);
    CHECK(fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof at) && !listen(fd, 8));
    return fd;
}

void fake_start(fake *f, bool (*answer)(fake *, const fake_request *), int listener)
{
    *f = (fake){.answer = answer, .listener = listener, .fd = -1, .dir = temp_dir()};
    CHECK(f->dir && !pipe(f->stop));
    event_init(&f->asked);
    event_init(&f->acquires);
    event_init(&f->inspects);
    event_init(&f->cancels);
    if (listener < 0) {
        f->listener = listen_in(f->dir);
        snprintf(f->url, sizeof f->url, "redis+unix://%s/socket", f->dir);
    }
    actor_start(&f->thread, serve, f);
}

void fake_stop(fake *f)
{
    CHECK(write(f->stop[1], "", 1) == 1);
    actor_join(&f->thread);
    close(f->listener);
    close(f->stop[0]);
    close(f->stop[1]);
    remove_tree(f->dir);
    free(f->dir);
}
