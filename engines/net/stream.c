/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c - from a host's name to a connection that carries bytes; plain or TLS.
 *
 *     CLOSED --> RESOLVING --> CONNECTING to one address after the other --> [SECURING] --> OPEN
 *
 * The attempt as a whole ends at s->ends. Each address gets an equal share of the time left, so
 * that an address that does not answer can't use up the time of the next one. Between calls of the
 * program the loop may not run at all; the time limit of an attempt that was not run begins anew.
 */
#include "net.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LEFT_ALONE_MS 50 /* a timer that fires later than this: the loop did not run */

static void connect_next(net_stream *s);
static void on_poll(uv_poll_t *poll, int status, int events);

/* ---- closing --------------------------------------------------------------------------------- */

static void poll_closed(uv_handle_t *handle)
{
    free(handle);
}

static void close_socket(net_stream *s)
{
    if (s->poll)
        uv_close((uv_handle_t *)s->poll, poll_closed);
    s->poll = NULL;
    s->events = 0;
    net_tls_free(s->secure);
    s->secure = NULL;
    if (s->fd >= 0) {
        s->env->fork_guard_remove(s->fd);
        close(s->fd);
    }
    s->fd = -1;
}

void net_stream_close(net_stream *s)
{
    if (s->state == NET_CLOSED)
        return;
    s->state = NET_CLOSED;
    close_socket(s);
    net_resolve_cancel(&s->resolve);
    if (s->addresses)
        freeaddrinfo(s->addresses);
    s->addresses = s->next_address = NULL;
    s->env->timer_clear(s->env, &s->timer);
}

static void fail(net_stream *s, int code, const char *words)
{
    net_stream_close(s);
    s->failed(s, code, words);
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int64_t limit_ms(const net_stream *s)
{
    return s->limit_ms ? s->limit_ms : s->env->timeout_ms;
}

static void limit_attempt(net_stream *s)
{
    s->ends = s->env->now(s->env) + limit_ms(s) * PAWL_NS_PER_MS;
    s->env->timer_set(s->env, &s->timer, s->ends);
}

static void secure(net_stream *s)
{
    char words[NET_WORDS] = "closed during the TLS handshake; does this port serve TLS?";
    int result = s->secure ? net_tls_handshake(s->secure, words) : 0;

    if (result == NET_IO_AGAIN) {
        net_stream_watch(s, false);
    } else if (result) {
        fail(s, result == NET_IO_FAILED ? PAWL_EAUTH : PAWL_ECONN, words);
    } else {
        s->state = NET_OPEN;
        s->env->timer_clear(s->env, &s->timer);
        net_stream_watch(s, false);
        s->opened(s);
    }
}

static void connected(net_stream *s)
{
    socklen_t length = sizeof (int);
    int error = 0;

    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
        error = errno;
    if (error) {
        snprintf(s->words, sizeof s->words, "%s", strerror(error));
        close_socket(s);
        connect_next(s);
        return;
    }
    s->state = NET_SECURING;
    s->env->timer_set(s->env, &s->timer, s->ends);
    if (s->tls_context && !(s->secure = net_tls_new(s->tls_context, s->tls, s->fd)))
        fail(s, PAWL_ENOMEM, "can't set up TLS");
    else
        secure(s);
}

/* Returns 0, or an errno. */
static int connect_to(net_stream *s, const struct sockaddr *to, socklen_t length)
{
    int error = net_connect(s->env, to, length, &s->fd, &s->poll);

    if (error)
        return error;
    s->poll->data = s;
    s->state = NET_CONNECTING;
    net_stream_watch(s, true);
    return 0;
}

/* Give each remaining address an equal part of the time left. */
static void limit_address(net_stream *s)
{
    int64_t now = s->env->now(s->env), n = 0;

    for (const struct addrinfo *a = s->next_address; a; a = a->ai_next)
        n++;
    s->env->timer_set(s->env, &s->timer, now + (s->ends - now) / n);
}

static void connect_next(net_stream *s)
{
    while (s->next_address) {
        const struct addrinfo *a = s->next_address;
        int error;

        limit_address(s);
        s->next_address = a->ai_next;
        error = connect_to(s, a->ai_addr, a->ai_addrlen);
        if (!error)
            return;
        snprintf(s->words, sizeof s->words, "%s", strerror(error));
        close_socket(s);
    }
    fail(s, PAWL_ECONN, s->words);
}

static void connect_unix(net_stream *s)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int error;

    snprintf(to.sun_path, sizeof to.sun_path, "%s", s->path);
    error = connect_to(s, (struct sockaddr *)&to, sizeof to);
    if (error)
        fail(s, PAWL_ECONN, strerror(error));
}

static void resolved(void *arg, int error, struct addrinfo *addresses)
{
    net_stream *s = arg;

    if (error) {
        snprintf(s->words, sizeof s->words, "the name can't be resolved: %s", gai_strerror(error));
        fail(s, PAWL_ECONN, s->words);
        return;
    }
    s->addresses = s->next_address = addresses;
    connect_next(s);
}

static void timer_fired(pawl_timer *timer)
{
    net_stream *s = timer->arg;

    if (s->env->now(s->env) - timer->due > LEFT_ALONE_MS * PAWL_NS_PER_MS) {
        limit_attempt(s);
    } else if (s->state == NET_CONNECTING && s->next_address) {
        close_socket(s);
        connect_next(s);
    } else {
        snprintf(s->words, sizeof s->words, "no answer%s within %lld ms%s",
                 s->state == NET_SECURING ? " to the TLS handshake" : "", (long long)limit_ms(s),
                 s->state == NET_SECURING ? "; does this port serve TLS?" : "");
        fail(s, PAWL_ECONN, s->words);
    }
}

void net_stream_open(net_stream *s, const char *host, uint16_t port)
{
    s->state = NET_RESOLVING;
    s->fd = -1;
    s->timer = (pawl_timer){.fire = timer_fired, .arg = s};
    s->resolve.done = resolved;
    s->resolve.arg = s;
    limit_attempt(s);
    if (s->path)
        connect_unix(s);
    else if (net_resolve_start(&s->resolve, s->env, host, port))
        fail(s, PAWL_ECONN, "no thread to resolve the name with");
}

/* ---- reading and writing --------------------------------------------------------------------- */

static bool tls_wants_write(const net_stream *s)
{
    return s->secure && net_tls_wants_write(s->secure);
}

void net_stream_watch(net_stream *s, bool writes)
{
    int events = UV_READABLE | (writes || tls_wants_write(s) ? UV_WRITABLE : 0);

    if (!s->poll || events == s->events)
        return;
    s->events = events;
    s->env->loop_changed(s->env);
    uv_poll_start(s->poll, events, on_poll); /* can't fail for a descriptor in the loop */
}

static ptrdiff_t plain_result(ssize_t n, char words[NET_WORDS])
{
    if (n > 0)
        return n;
    if (n == 0)
        return NET_IO_CLOSED;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return NET_IO_AGAIN;
    snprintf(words, NET_WORDS, "%s", strerror(errno));
    return NET_IO_FAILED;
}

ptrdiff_t net_stream_read(net_stream *s, void *data, size_t room, char words[NET_WORDS])
{
    return s->secure ? net_tls_read(s->secure, data, room, words)
                     : plain_result(recv(s->fd, data, room, 0), words);
}

ptrdiff_t net_stream_write(net_stream *s, const void *data, size_t length, char words[NET_WORDS])
{
    return s->secure ? net_tls_write(s->secure, data, length, words)
                     : plain_result(send(s->fd, data, length, MSG_NOSIGNAL), words);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    net_stream *s = poll->data;

    if (s->poll != poll)
        return;
    if (status < 0) { /* libuv has stopped watching; a read shows the error */
        s->events = 0;
        events = UV_READABLE;
    }
    if (s->state == NET_CONNECTING)
        connected(s);
    else if (s->state == NET_SECURING)
        secure(s);
    else
        s->ready(s, (events & UV_READABLE) || tls_wants_write(s), events & UV_WRITABLE);
}
