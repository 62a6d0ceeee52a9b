/* SPDX-License-Identifier: Apache-2.0
 *
 * test_redis_link.c - the Redis engine and servers that stop answering, hang up or send wrong data
 * at a bad moment. This program replaces the resolver: "one.test" is 127.0.0.2, "two.test" is
 * 127.0.0.1 and then 127.0.0.2.
 */
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "fake_redis.h"
#include "pawl.h"

/* ---- Names ----------------------------------------------------------------------------------- */

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **ret)
{
    bool two = !strcmp(host, "two.test");
    int code;

    if (!two && strcmp(host, "one.test"))
        return __real_getaddrinfo(host, port, hints, ret);
    if (hints->ai_flags & AI_NUMERICHOST)
        return EAI_NONAME;
    code = __real_getaddrinfo(two ? "127.0.0.1" : "127.0.0.2", port, hints, ret);
    return code || !two ? code : __real_getaddrinfo("127.0.0.2", port, hints, &(*ret)->ai_next);
}

/* ---- Parts ----------------------------------------------------------------------------------- */

static event warnings = EVENT_INIT;

static void warned(void *arg, int level, const char *text)
{
    (void)arg;
    (void)level;
    check_note("log: %s", text);
    event_raise(&warnings);
}

static pawl_client *open_client(const char *url, const char *params)
{
    pawl_client_options options = {.size = sizeof options, .log = warned};
    pawl_client *client;
    pawl_error err;
    char text[256];

    snprintf(text, sizeof text, "%s?%s", url, params);
    if (pawl_open(&client, text, &options, &err))
        check_fail(__FILE__, __LINE__, "%s: %s", text, err.text);
    return client;
}

static pawl_lock *new_lock(pawl_client *client)
{
    pawl_lock *lock;

    CHECK_OK(pawl_lock_new(&lock, client, "a", NULL, NULL));
    return lock;
}

/* ---- Answers that never come ----------------------------------------------------------------- */

static bool only_greets(fake *f, const fake_request *q)
{
    fake_greets(f, q);
    return true;
}

CASE("an acquire that was sent and never answered is unknown, and so is the close")
{
    fake f;
    pawl_client *client;
    pawl_lock *lock;

    fake_start(&f, only_greets, -1);
    client = open_client(f.url, "timeout=1000"); /* long enough to connect on a busy machine */
    lock = new_lock(client);
    CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_EUNKNOWN);
    CHECK_EQ(pawl_lock_held(lock), 0);
    event_await(&f.cancels, 1); /* the acquire is cancelled at the server */
    pawl_lock_free(lock);
    CHECK_CODE(pawl_close(client), PAWL_EUNKNOWN);
    fake_stop(&f);
}

static bool never_there(fake *f, const fake_request *q)
{
    (void)f;
    (void)q;
    return false;
}

CASE("an acquire that was never sent is not unknown")
{
    fake f;
    pawl_client *client;
    pawl_lock *lock;

    fake_start(&f, never_there, -1);
    client = open_client(f.url, "timeout=300");
    lock = new_lock(client);
    CHECK_CODE(pawl_lock_acquire(lock, 0, NULL), PAWL_ECONN);
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
    fake_stop(&f);
}

/* The first acquire may have been carried out, but the connection breaks; the second is refused. */
static bool loses_then_refuses(fake *f, const fake_request *q)
{
    int n = event_count(&f->acquires);

    if (fake_greets(f, q))
        return true;
    if (fake_is(q, "acquire") && n == 1)
        return false;
    if (fake_is(q, "acquire") && n == 2)
        fake_send(f, "-MISCONF can't write now\r\n");
    else
        fake_serve(f, q);
    return true;
}

CASE("an acquire whose answer was lost is asked for until the server tells, come what may")
{
    fake f;
    pawl_client *client;
    pawl_lock *lock;

    fake_start(&f, loses_then_refuses, -1);
    client = open_client(f.url, "timeout=20000");
    lock = new_lock(client);
    CHECK_OK(pawl_lock_acquire(lock, 20000, NULL));
    CHECK_EQ(event_count(&f.acquires), 3);
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
    fake_stop(&f);
}

/* The server is a replica at first, and has lost the script. */
static bool refuses_then_forgets(fake *f, const fake_request *q)
{
    if (fake_greets(f, q))
        return true;
    if (q->connection > 1)
        fake_serve(f, q);
    else if (fake_is(q, "acquire"))
        fake_send(f, "-NOSCRIPT what?\r\n");
    else
        fake_send(f, "-READONLY a replica\r\n");
    return true;
}

CASE("a replica is left, also if its last word is that it does not know a script")
{
    fake f;
    pawl_client *client;
    pawl_lock *lock;

    fake_start(&f, refuses_then_forgets, -1);
    client = open_client(f.url, "timeout=20000");
    lock = new_lock(client);
    CHECK_OK(pawl_lock_acquire(lock, 20000, NULL));
    CHECK_OK(pawl_lock_release(lock, NULL));
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
    fake_stop(&f);
}

/* ---- Messages at the wrong time -------------------------------------------------------------- */

/* Notify the first latch waiter before the server got its request. */
static bool opens_too_soon(fake *f, const fake_request *q)
{
    const char *channel = strcmp(q->argv[0], "SUBSCRIBE") ? NULL : q->argv[1];

    if (channel) {
        pause_ms(200); /* by then the waiter waits in the client */
        for (int seq = 1; seq < 8; seq++)
            fake_send(f, ">3\r\n+message\r\n+%s\r\n+o %s:%x 1\r\n", channel,
                      strchr(channel, '@') + 1, seq);
    }
    if (!fake_greets(f, q))
        fake_serve(f, q);
    return true;
}

CASE("a message about a wait that was not sent yet does no harm")
{
    fake f;
    pawl_client *client;
    pawl_latch *latch;

    fake_start(&f, opens_too_soon, -1);
    client = open_client(f.url, "timeout=20000");
    CHECK_OK(pawl_latch_new(&latch, client, "l", NULL));
    CHECK_OK(pawl_latch_wait(latch, 20000, NULL));
    pawl_latch_free(latch);
    CHECK_OK(pawl_close(client));
    fake_stop(&f);
}

/* ---- Servers that can't be reached ----------------------------------------------------------- */

static atomic_int away;

static bool is_away(fake *f, const fake_request *q)
{
    if (away)
        return false;
    if (!fake_greets(f, q))
        fake_serve(f, q);
    return true;
}

static int no_row(void *arg, const pawl_info *info)
{
    (void)arg;
    (void)info;
    return 0;
}

CASE("what was asked about locks while the server was away, and given up, is not asked later")
{
    fake f;
    pawl_client *client;
    pawl_lock *lock;

    away = 1;
    fake_start(&f, is_away, -1);
    client = open_client(f.url, "timeout=50");
    for (int i = 0; i < 5; i++)
        CHECK(pawl_inspect(client, "a", no_row, NULL, NULL) != 0);
    away = 0;
    lock = new_lock(client);
    CHECK_OK(pawl_lock_acquire(lock, 20000, NULL));
    CHECK_EQ(event_count(&f.inspects), 0);
    pawl_lock_free(lock);
    pawl_close(client);
    fake_stop(&f);
}

static int listen_at(const char *host, uint16_t *port, int backlog)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*port)};
    socklen_t length = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    inet_pton(AF_INET, host, &at.sin_addr);
    if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, backlog) ||
        getsockname(fd, (struct sockaddr *)&at, &length)) {
        close(fd);
        return -1;
    }
    *port = ntohs(at.sin_port);
    return fd;
}

static bool serves(fake *f, const fake_request *q)
{
    if (!fake_greets(f, q))
        fake_serve(f, q);
    return true;
}

/* Connecting to a port whose queue is full hangs. */
static void fill(uint16_t port, int fds[4])
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};

    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    for (int i = 0; i < 4; i++) {
        fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)!connect(fds[i], (struct sockaddr *)&at, sizeof at);
    }
}

CASE("an address that does not answer does not keep us from the next one")
{
    uint16_t port = 0;
    int first, second = -1, crowd[4];
    pawl_client *client;
    pawl_lock *lock;
    char url[64];
    fake f;

    do {
        port = 0;
        first = listen_at("127.0.0.1", &port, 0);
        second = listen_at("127.0.0.2", &port, 8);
        if (second < 0)
            close(first);
    } while (second < 0);
    fill(port, crowd);
    fake_start(&f, serves, second);
    snprintf(url, sizeof url, "redis://two.test:%u", port);
    client = open_client(url, "timeout=1000");
    lock = new_lock(client);
    CHECK_OK(pawl_lock_acquire(lock, 30000, NULL));
    pawl_lock_free(lock);
    pawl_close(client);
    fake_stop(&f);
    close(first);
    for (int i = 0; i < 4; i++)
        close(crowd[i]);
}

CASE("a client that was opened and left alone for long connects when it is needed")
{
    uint16_t port = 0;
    pawl_client *client;
    pawl_lock *lock;
    char url[64];
    fake f;

    fake_start(&f, serves, listen_at("127.0.0.2", &port, 8));
    snprintf(url, sizeof url, "redis://one.test:%u", port);
    client = open_client(url, "timeout=3000");
    lock = new_lock(client);
    pause_ms(3300);
    CHECK_OK(pawl_lock_acquire(lock, 0, NULL));
    CHECK_EQ(event_count(&warnings), 0);
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
    fake_stop(&f);
}

/* ---- Answers that are too long --------------------------------------------------------------- */

enum { PAIRS = 400000 };

static bool greets_at_length(fake *f, const fake_request *q)
{
    if (strcmp(q->argv[0], "HELLO"))
        return serves(f, q);
    fake_send(f, "%%%d\r\n", PAIRS + 1);
    for (int i = 0; i < PAIRS; i += 1000)
        for (int j = 0; j < 1000; j++)
            fake_send(f, "+k\r\n:1\r\n");
    fake_send(f, "+version\r\n+7.0.0\r\n");
    return true;
}

CASE("reading a long answer takes a time in proportion to its length")
{
    pawl_client *client;
    pawl_lock *lock;
    fake f;

    fake_start(&f, greets_at_length, -1);
    client = open_client(f.url, "timeout=50000");
    lock = new_lock(client);
    CHECK_OK(pawl_lock_acquire(lock, 50000, NULL));
    pawl_lock_free(lock);
    CHECK_OK(pawl_close(client));
    fake_stop(&f);
}

/* ---- replicas= ------------------------------------------------------------------------------- */

enum { OTHERS = 16, IN_TIME_MS = 90 }; /* the engine waits 100 ms for the answer to its cancel */

/* No replica has the grant of "a", so the engine releases the grant by a cancel. The server refuses
 * this cancel once the user has cancelled as well; then other calls begin. */
static event wanted = EVENT_INIT, leaves = EVENT_INIT, cancelled = EVENT_INIT,
             refused = EVENT_INIT, begun = EVENT_INIT, done = EVENT_INIT;
static int64_t told; /* the earliest time at which the engine knew that it must cancel */

static void until_read(const fake *f)
{
    int left = 1;

    while (!ioctl(f->fd, SIOCOUTQ, &left) && left)
        pause_ms(1);
}

static bool meets_the_user(fake *f, const fake_request *q)
{
    if (fake_greets(f, q))
        return true;
    if (!strcmp(q->argv[0], "WAIT")) {
        told = now_ms();
        fake_send(f, event_count(&wanted) ? ":0\r\n" : ":1\r\n");
    } else if (fake_is(q, "cancel") && event_count(&f->cancels) == 1) {
        event_raise(&leaves);
        event_await(&cancelled, 1);
        fake_send(f, "-MISCONF can't write now\r\n");
        until_read(f);
        event_raise(&refused);
        event_await(&begun, 1);
    } else {
        fake_serve(f, q);
    }
    return true;
}

static void count_done(void *arg, pawl_lock *lock, int code)
{
    (void)lock;
    *(int *)arg = code;
    event_raise(&done);
}

static void hold_others(pawl_client *client, pawl_lock *others[OTHERS])
{
    char name[16];

    for (int i = 0; i < OTHERS; i++) {
        snprintf(name, sizeof name, "other %d", i);
        CHECK_OK(pawl_lock_new(&others[i], client, name, NULL, NULL));
        CHECK_OK(pawl_lock_acquire(others[i], PAWL_FOREVER, NULL));
    }
}

/* Returns whether both cancels came at the same time. */
static bool both_cancel(pawl_client *client, pawl_lock *others[OTHERS], int codes[OTHERS])
{
    pawl_lock *lock = new_lock(client);
    bool met;
    int code;

    event_raise(&wanted);
    CHECK_OK(pawl_lock_acquire_start(lock, PAWL_FOREVER, count_done, &code));
    event_await(&leaves, 1);
    pawl_lock_cancel(lock);
    met = now_ms() - told < IN_TIME_MS;
    event_raise(&cancelled);
    event_await(&refused, 1);
    for (int i = 0; i < OTHERS; i++)
        CHECK_OK(pawl_lock_release_start(others[i], count_done, &codes[i]));
    event_raise(&begun);
    event_await(&done, 1 + OTHERS);
    CHECK_CODE(code, PAWL_EBACKEND);
    pawl_lock_free(lock);
    return met;
}

static bool user_and_engine_cancel(void)
{
    event *all[] = {&wanted, &leaves, &cancelled, &refused, &begun, &done};
    pawl_lock *others[OTHERS];
    pawl_client *client;
    int codes[OTHERS];
    bool met;
    fake f;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        event_init(all[i]);
    fake_start(&f, meets_the_user, -1);
    client = open_client(f.url, "replicas=1&timeout=5000");
    hold_others(client, others);
    met = both_cancel(client, others, codes);
    for (int i = 0; i < OTHERS; i++) {
        CHECK_CODE(codes[i], 0);
        pawl_lock_free(others[i]);
    }
    CHECK_OK(pawl_close(client));
    fake_stop(&f);
    return met;
}

CASE("the user cancels while the engine gives a grant back by itself: other calls are answered")
{
    int met = 0;

    for (int i = 0; met < 2; i++) {
        CHECK(i < 20); /* else the machine is too slow for the two to meet */
        met += user_and_engine_cancel();
    }
}

int main(int argc, char **argv)
{
    return check_main(argc, argv);
}
