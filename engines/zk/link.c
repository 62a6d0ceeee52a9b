/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - one connection at a time: its life, and calls and answers on it.
 *
 *     PAUSED --timer--> CONNECTING (net/stream.c) --> ATTACHING (attach.c) --> READY
 *        ^                  |                             |                      |
 *        +------------------+-- drop: anything unexpected, or too long nothing --+
 *
 * Each attempt goes to the next server; the first round without pauses, then with pauses that grow
 * from 10 ms to 1 s, half of each by chance. Nothing is written before the loop is about to poll
 * (zk.c, prepare), so that what many threads ask for meanwhile leaves in one piece.
 *
 * Whoever drops the link may be inside a task: what was out is answered with ZK_LOST, which only
 * sets flags (task.c).
 */
#include <sys/socket.h>

#include "zk.h"

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

static void close_attempt(zk *z)
{
    zk_link *link = &z->link;

    net_stream_close(&link->stream);
    jute_buf_free(&link->in);
    jute_buf_free(&link->out);
}

static int64_t pause_ms(zk *z)
{
    uint32_t rounds = z->link.failures / (uint32_t)z->settings.servers.n;

    return rounds ? net_pause_ms(z->env, rounds - 1) : 0;
}

void zk_link_drop(zk *z, int code, const char *format, ...)
{
    zk_link *link = &z->link;
    const net_address *server = &z->settings.servers.list[link->server];
    bool was_ready = link->state == LINK_READY;
    char words[ZK_WORDS];
    va_list args;

    if (link->state == LINK_CLOSED || link->state == LINK_PAUSED)
        return;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    link->last_code = code;
    snprintf(link->words, sizeof link->words, "%.70s: %.140s", server->where, words);
    z->env->log(z->env, PAWL_LOG_WARNING, "%s %s",
                was_ready ? "connection lost:" : "can't connect:", link->words);
    close_attempt(z);
    link->state = LINK_PAUSED;
    link->failures++;
    link->server = (link->server + 1) % z->settings.servers.n;
    set_timer(z, pause_ms(z));
    zk_calls_lost(z);
    if (!was_ready && code != PAWL_ECONN)
        zk_tasks_refused(z, code, link->words);
}

/* ---- reading and writing --------------------------------------------------------------------- */

static void watch(zk_link *link)
{
    net_stream_watch(&link->stream, jute_length(&link->out) > 0);
}

void zk_link_flush(zk *z)
{
    zk_link *link = &z->link;
    char words[ZK_WORDS] = "closed by the server";

    while (link->state >= LINK_ATTACHING && jute_length(&link->out) > 0) {
        ptrdiff_t n = net_stream_write(&link->stream, link->out.data + link->out.begin,
                                       jute_length(&link->out), words);

        if (n == NET_IO_AGAIN)
            break;
        if (n < 0) {
            zk_link_drop(z, PAWL_ECONN, "%s", words);
            return;
        }
        jute_take(&link->out, (size_t)n);
    }
    watch(link);
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
        if (!take_message(z, &body) || link->stream.state != NET_OPEN)
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
        n = net_stream_read(&link->stream, link->in.data + link->in.end, room, words);
        if (n == NET_IO_AGAIN)
            break;
        if (n < 0) {
            /* TLS 1.3: a server refuses our certificate after the handshake, with an alert */
            bool refused = link->stream.secure && link->state == LINK_ATTACHING &&
                           n == NET_IO_FAILED;

            zk_link_drop(z, refused ? PAWL_EAUTH : PAWL_ECONN, "%s%s", words,
                         link->state == LINK_ATTACHING && !link->stream.secure
                             ? "; is this a ZooKeeper server, and a port without TLS (TLS: tls=1)?"
                             : "");
            return;
        }
        link->in.end += (size_t)n;
        if (!take_messages(z))
            return;
        if (!link->stream.secure && (size_t)n < room)
            break;
    }
    watch(link);
}

static void stream_ready(net_stream *s, bool readable, bool writable)
{
    if (writable)
        zk_link_flush(s->arg);
    if (readable && s->state == NET_OPEN)
        receive(s->arg);
}

/* ---- an attempt ------------------------------------------------------------------------------ */

static void attempt(zk *z)
{
    zk_link *link = &z->link;
    const net_address *server = &z->settings.servers.list[link->server];

    link->state = LINK_CONNECTING;
    link->tls = z->settings.tls_settings;
    link->tls.host = server->host;
    link->stream.tls_context = z->tls_context;
    link->stream.limit_ms = zk_patience_ms(z);
    net_stream_open(&link->stream, server->host, server->port);
}

static void stream_opened(net_stream *s)
{
    zk *z = s->arg;

    z->env->timer_set(z->env, &z->link.timer, s->ends);
    zk_link_attach(z);
}

static void stream_failed(net_stream *s, int code, const char *words)
{
    zk_link_drop(s->arg, code, "%s", words);
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
        attempt(z);
        return;
    }
    if (link->state >= LINK_ATTACHING && late > LATE_MS * PAWL_NS_PER_MS)
        receive(z);
    if (link->state == LINK_READY && z->env->now(z->env) < first_limit(z)) {
        if (!list_empty(&link->calls))
            z->env->timer_set(z->env, timer, first_limit(z));
        return;
    }
    if (link->state < LINK_ATTACHING)
        return;
    zk_link_drop(z, PAWL_ECONN, "no answer within %lld ms", (long long)zk_patience_ms(z));
}

void zk_link_open(zk *z)
{
    zk_link *link = &z->link;

    link->stream = (net_stream){.env = z->env, .tls = &link->tls, .arg = z,
        .opened = stream_opened, .failed = stream_failed, .ready = stream_ready};
    link->timer = (pawl_timer){.fire = timer_fired, .arg = z};
    link->server = (size_t)(z->env->random(z->env) % z->settings.servers.n);
    link->state = LINK_PAUSED;
    set_timer(z, 0);
}

/* What is unread when a socket closes makes the system reset the connection, and the server might
 * miss our last words for it. */
static void drain(int fd)
{
    char bytes[4096];

    if (shutdown(fd, SHUT_WR) == 0)
        for (int i = 0; i < 64 && recv(fd, bytes, sizeof bytes, 0) > 0; i++)
            continue;
}

void zk_link_close(zk *z)
{
    if (z->link.state == LINK_READY)
        zk_link_flush(z);
    if (z->link.state == LINK_READY)
        drain(z->link.stream.fd);
    z->link.state = LINK_CLOSED;
    if (z->link.timer.fire)
        z->env->timer_clear(z->env, &z->link.timer);
    close_attempt(z);
    zk_calls_lost(z);
}
