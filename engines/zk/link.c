/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - one connection at a time: its life, and calls and answers on it.
 *
 *     PAUSED --timer--> RESOLVING --> CONNECTING --> [SECURING] --> ATTACHING --> READY
 *        ^                  |              |              |             |           |
 *        +------------------+-- drop: anything unexpected, or too long nothing -----+
 *
 * Each attempt goes to the next server; the first round without pauses, then with pauses that grow
 * from 10 ms to 1 s, half of each by chance. Nothing is written before the loop is about to poll
 * (zk.c, prepare), so that what many threads ask for meanwhile leaves in one piece.
 *
 * Whoever drops the link may be inside a task: what was out is answered with ZK_LOST, which only
 * sets flags (task.c).
 */
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "zk.h"

#define PAUSE_MIN_MS 10
#define PAUSE_MAX_MS 1000
#define READ_SIZE 16384
#define READS_MAX 16 /* in a row; then others get their turn */
#define LATE_MS 50   /* a timer that fires so late: nobody turned the loop, so look first */

enum { XID_EVENT = -1, XID_AUTH = -4 };

static void set_timer(zk *z, int64_t ms)
{
    z->env->timer_set(z->env, &z->link.timer, z->env->now(z->env) + ms * PAWL_NS_PER_MS);
}

int64_t zk_patience_ms(const zk *z)
{
    int64_t third = z->session.timeout_ms / 3;

    return third && third < z->env->timeout_ms ? third : z->env->timeout_ms;
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void poll_closed(uv_handle_t *handle)
{
    free(handle);
}

void zk_link_close_socket(zk_link *link)
{
    if (link->poll)
        uv_close((uv_handle_t *)link->poll, poll_closed);
    link->poll = NULL;
    link->events = 0;
    net_tls_free(link->tls);
    link->tls = NULL;
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
}

static void close_attempt(zk *z)
{
    zk_link *link = &z->link;

    if (link->fd >= 0)
        z->env->fork_guard_remove(link->fd);
    zk_link_close_socket(link);
    net_resolve_cancel(&link->resolve);
    if (link->addresses)
        freeaddrinfo(link->addresses);
    link->addresses = link->next_address = NULL;
    jute_buf_free(&link->in);
    jute_buf_free(&link->out);
}

static int64_t pause_ms(zk *z)
{
    uint32_t rounds = z->link.failures / (uint32_t)z->settings.nservers;
    int64_t pause = rounds ? (int64_t)PAUSE_MIN_MS << (rounds < 8 ? rounds - 1 : 7) : 0;

    if (pause > PAUSE_MAX_MS)
        pause = PAUSE_MAX_MS;
    return pause / 2 + (int64_t)(z->env->random(z->env) % (uint64_t)(pause / 2 + 1));
}

void zk_link_drop(zk *z, int code, const char *format, ...)
{
    zk_link *link = &z->link;
    const zk_server *server = &z->settings.servers[link->server];
    bool was_ready = link->state == LINK_READY;
    char words[ZK_WORDS];
    va_list args;

    if (link->state == LINK_CLOSED || link->state == LINK_PAUSED)
        return;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    link->last_code = code;
    snprintf(link->words, sizeof link->words, "%.60s:%u: %.85s", server->host, server->port, words);
    z->env->log(z->env, PAWL_LOG_WARNING, "%s %s",
                was_ready ? "connection lost:" : "can't connect:", link->words);
    close_attempt(z);
    link->state = LINK_PAUSED;
    link->failures++;
    link->server = (link->server + 1) % z->settings.nservers;
    set_timer(z, pause_ms(z));
    zk_calls_lost(z);
    if (!was_ready && code != PAWL_ECONN)
        zk_tasks_refused(z, code, link->words);
}

/* ---- reading and writing --------------------------------------------------------------------- */

static void on_poll(uv_poll_t *poll, int status, int events);

void zk_link_watch(zk *z)
{
    zk_link *link = &z->link;
    bool writes = link->state == LINK_CONNECTING || net_tls_wants_write(link->tls) ||
                  (link->state >= LINK_ATTACHING && jute_length(&link->out) > 0);
    int events = UV_READABLE | (writes ? UV_WRITABLE : 0);

    if (!link->poll || events == link->events)
        return;
    link->events = events;
    z->env->loop_changed(z->env);
    if (uv_poll_start(link->poll, events, on_poll))
        zk_link_drop(z, PAWL_ECONN, "the socket can't be watched");
}

static ptrdiff_t plain_result(ssize_t n, char words[ZK_WORDS])
{
    if (n > 0)
        return n;
    if (n == 0)
        return NET_IO_CLOSED;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return NET_IO_AGAIN;
    snprintf(words, ZK_WORDS, "%s", strerror(errno));
    return NET_IO_FAILED;
}

static ptrdiff_t write_some(zk_link *link, char words[ZK_WORDS])
{
    const char *data = link->out.data + link->out.begin;
    size_t length = jute_length(&link->out);

    return link->tls ? net_tls_write(link->tls, data, length, words)
                     : plain_result(send(link->fd, data, length, MSG_NOSIGNAL), words);
}

static ptrdiff_t read_some(zk_link *link, size_t room, char words[ZK_WORDS])
{
    char *data = link->in.data + link->in.end;

    return link->tls ? net_tls_read(link->tls, data, room, words)
                     : plain_result(recv(link->fd, data, room, 0), words);
}

void zk_link_flush(zk *z)
{
    zk_link *link = &z->link;
    char words[ZK_WORDS] = "closed by the server";

    while (link->state >= LINK_ATTACHING && jute_length(&link->out) > 0) {
        ptrdiff_t n = write_some(link, words);

        if (n == NET_IO_AGAIN)
            break;
        if (n < 0) {
            zk_link_drop(z, PAWL_ECONN, "%s", words);
            return;
        }
        jute_take(&link->out, (size_t)n);
    }
    zk_link_watch(z);
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool malformed(zk *z)
{
    zk_link_drop(z, PAWL_EPROTO, "an answer makes no sense");
    return false;
}

static bool take_event(zk *z, jute_reader *body)
{
    int32_t happened = jute_int(body);
    jute_bytes path;

    jute_int(body); /* the connection's state */
    path = jute_get_bytes(body);
    if (!jute_at_end(body))
        return malformed(z);
    zk_watches_fire(z, path, happened);
    return true;
}

static bool take_auth(zk *z, int error)
{
    if (!error)
        return true;
    zk_link_drop(z, PAWL_EAUTH, "user and password were refused");
    return false;
}

/* The answer to the oldest call. */
static bool take_answer(zk *z, int32_t xid, int error, jute_reader *body)
{
    struct list *l = z->link.calls.next;
    zk_call *call = list_entry(l, zk_call, link);

    if (l == &z->link.calls || call->xid != xid)
        return malformed(z);
    if (error == ZK_SESSION_EXPIRED || error == ZK_SESSION_MOVED || error == ZK_CONNECTION_LOSS) {
        zk_link_drop(z, PAWL_ECONN, "the server has given the session up (%d)", error);
        return false;
    }
    list_remove(l);
    z->link.failures = 0;
    zk_call_done(call, error, body);
    return true;
}

/* One message. False: the link has dropped. */
static bool take_message(zk *z, jute_reader *body)
{
    int32_t xid;
    int64_t zxid;
    int error;

    if (z->link.state == LINK_ATTACHING)
        return zk_link_attached(z, body);
    xid = jute_int(body);
    zxid = jute_long(body);
    error = jute_int(body);
    if (body->bad || error > 0)
        return malformed(z);
    if (zxid > z->session.last_zxid)
        z->session.last_zxid = zxid;
    if (xid == XID_EVENT)
        return take_event(z, body);
    return xid == XID_AUTH ? take_auth(z, error) : take_answer(z, xid, error, body);
}

/* Use what has arrived. False: the link has dropped. */
static bool take_messages(zk *z)
{
    zk_link *link = &z->link;
    jute_reader body;
    size_t size;

    while (jute_length(&link->in) > 0) {
        enum jute_frame got = jute_frame(link->in.data + link->in.begin, jute_length(&link->in),
                                         &body, &size);

        if (got == JUTE_MORE)
            break;
        if (got == JUTE_MALFORMED)
            return malformed(z);
        if (!take_message(z, &body) || link->fd < 0)
            return false;
        jute_take(&link->in, size);
    }
    return true;
}

static void receive(zk *z)
{
    zk_link *link = &z->link;
    char words[ZK_WORDS] = "closed by the server";

    for (int i = 0; i < READS_MAX; i++) {
        size_t room;
        ptrdiff_t n;

        if (!jute_reserve(&link->in, READ_SIZE)) {
            zk_link_drop(z, PAWL_ENOMEM, "out of memory");
            return;
        }
        room = link->in.room - link->in.end;
        n = read_some(link, room, words);
        if (n == NET_IO_AGAIN)
            break;
        if (n < 0) {
            /* TLS 1.3: a server refuses our certificate after the handshake, with an alert */
            bool refused = link->tls && link->state == LINK_ATTACHING && n == NET_IO_FAILED;

            zk_link_drop(z, refused ? PAWL_EAUTH : PAWL_ECONN, "%s", words);
            return;
        }
        link->in.end += (size_t)n;
        if (!take_messages(z))
            return;
        if (!link->tls && (size_t)n < room)
            break;
    }
    zk_link_watch(z);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    zk *z = poll->data;
    zk_link *link = &z->link;

    if (link->poll != poll)
        return;
    if (status < 0) { /* libuv watches no more; reading tells what is wrong */
        link->events = 0;
        events = UV_READABLE;
    }
    if (link->state < LINK_ATTACHING) {
        zk_link_advance(z);
        return;
    }
    if (events & UV_WRITABLE)
        zk_link_flush(z);
    if (link->poll == poll && ((events & UV_READABLE) || net_tls_wants_write(link->tls)))
        receive(z);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* When the oldest call should have been answered. */
static int64_t first_limit(const zk *z)
{
    if (list_empty(&z->link.calls))
        return PAWL_NEVER;
    return list_entry(z->link.calls.next, zk_call, link)->sent +
           zk_patience_ms(z) * PAWL_NS_PER_MS;
}

static void timer_fired(pawl_timer *timer)
{
    zk *z = timer->arg;
    zk_link *link = &z->link;
    int64_t late = z->env->now(z->env) - timer->due;

    if (link->state == LINK_PAUSED) {
        zk_link_attempt(z);
        return;
    }
    if (link->state >= LINK_ATTACHING && late > LATE_MS * PAWL_NS_PER_MS)
        receive(z);
    if (link->state == LINK_READY && z->env->now(z->env) < first_limit(z)) {
        if (!list_empty(&link->calls))
            z->env->timer_set(z->env, timer, first_limit(z));
        return;
    }
    if (link->state <= LINK_PAUSED || (link->state < LINK_READY && zk_link_goes_on(z)))
        return;
    zk_link_drop(z, PAWL_ECONN, "no answer within %lld ms", (long long)zk_patience_ms(z));
}

void zk_link_open(zk *z)
{
    zk_link *link = &z->link;

    link->timer = (pawl_timer){.fire = timer_fired, .arg = z};
    link->server = (size_t)(z->env->random(z->env) % z->settings.nservers);
    link->state = LINK_PAUSED;
    set_timer(z, 0);
}

/* What is unread when a socket closes makes the system reset the connection, and the server might
 * miss our last words for it. */
static void drain(zk_link *link)
{
    char bytes[4096];

    if (link->fd >= 0 && shutdown(link->fd, SHUT_WR) == 0)
        for (int i = 0; i < 64 && recv(link->fd, bytes, sizeof bytes, 0) > 0; i++)
            continue;
}

void zk_link_close(zk *z)
{
    if (z->link.state == LINK_READY)
        zk_link_flush(z);
    if (z->link.state == LINK_READY)
        drain(&z->link);
    z->link.state = LINK_CLOSED;
    if (z->link.timer.fire)
        z->env->timer_clear(z->env, &z->link.timer);
    close_attempt(z);
    zk_calls_lost(z);
}
