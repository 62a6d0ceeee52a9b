/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c - the link to ZooKeeper, on top of kit/link.c: tries servers in turn, and reads messages.
 * GREETING is the request for the session (attach.c), and before that the question for the version,
 * if the log shows it (version.c). Attempts and answers time out after a third
 * of the session's length, or earlier.
 *
 * Each attempt goes to the next server; the first round without pauses, then with pauses. Data is
 * written just before the loop polls (zk.c, prepare), so that the requests of many threads leave
 * together. A timer of the link that fires late reads first: an answer may have arrived while no
 * thread ran the loop.
 *
 * The code that drops the link may be inside a task: outstanding calls are answered with ZK_LOST,
 * which only sets flags (task.c).
 */
#include <sys/socket.h>

#include "zk.h"

enum { XID_EVENT = -1, XID_AUTH = -4 };

static zk *zk_of(kit_link *kit)
{
    return list_entry(kit, zk, link.kit);
}

/* ---- the end of a connection ----------------------------------------------------------------- */

static void disconnect(kit_link *kit)
{
    net_probe_end(&zk_of(kit)->link.version);
    kit_wire_close(kit_wire_of(kit));
}

static void fail_call(kit_link *kit, struct list *call, int code, const char *words)
{
    (void)kit;
    (void)code;
    (void)words;
    zk_call_lost(list_entry(call, zk_call, link));
}

static int64_t back_off(kit_link *kit, bool was_ready)
{
    zk *z = zk_of(kit);
    uint32_t rounds = (kit->failures + 1) / (uint32_t)z->settings.servers.n;

    (void)was_ready;
    z->link.server = (z->link.server + 1) % z->settings.servers.n;
    return rounds ? net_pause_ms(z->env, rounds - 1) : 0;
}

static void dropped(kit_link *kit, int refused)
{
    zk *z = zk_of(kit);

    zk_watches_lost(z);
    if (refused)
        zk_tasks_refused(z, refused, kit->words);
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
    zk_link_drop(z, PAWL_EAUTH, "user and password were refused (error %d); check PAWL_USER, "
                 "PAWL_PASSWORD, and that the server allows the scheme digest", error);
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

/* Handle one message. False: the link was dropped. */
static bool take_message(zk *z, jute_reader *body)
{
    int32_t xid;
    int64_t zxid;
    int error;

    if (z->link.state == LINK_GREETING)
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

static bool take_messages(kit_wire *wire)
{
    zk *z = zk_of(&wire->kit);
    jute_reader body;
    size_t size;

    while (kit_buf_length(&wire->in) > 0) {
        enum jute_frame got = jute_frame(wire->in.data + wire->in.begin,
                                         kit_buf_length(&wire->in), &body, &size);

        if (got == JUTE_MORE)
            break;
        if (got == JUTE_MALFORMED)
            return malformed(z);
        if (!take_message(z, &body) || wire->stream.state != NET_OPEN)
            return false;
        kit_buf_take(&wire->in, size);
    }
    return true;
}

static void late(kit_link *kit)
{
    kit_wire_receive(kit_wire_of(kit));
}

/* ---- opening and closing the link ------------------------------------------------------------ */

static void attempt(kit_link *kit)
{
    zk *z = zk_of(kit);
    const net_address *server = &z->settings.servers.list[z->link.server];

    kit->peer = server->where;
    kit_wire_open(&z->link.wire, &z->settings.tls_settings, z->tls_context, server->host,
                  server->port);
}

static void greet(kit_link *kit)
{
    if (kit->env->log_level >= PAWL_LOG_INFO)
        zk_version_ask(zk_of(kit));
    else
        zk_link_attach(zk_of(kit));
}

static void ready(kit_link *kit)
{
    zk_link_ready(zk_of(kit));
}

static int64_t limit(kit_link *kit)
{
    return list_empty(&kit->calls)
               ? PAWL_NEVER : list_entry(kit->calls.next, zk_call, link)->sent +
                              kit->limit_ms * PAWL_NS_PER_MS;
}

void zk_link_open(zk *z)
{
    static const kit_link_type type = {.attempt = attempt, .greet = greet, .take = take_messages,
        .ready = ready, .limit = limit, .late = late, .fail = fail_call, .disconnect = disconnect,
        .back_off = back_off, .dropped = dropped,
        .hint = "; is this a ZooKeeper server, and a port without TLS (TLS: tls=1)?"};

    kit_link_init(&z->link.kit, &type, z->env);
    z->link.quiet = true;
    z->link.server = (size_t)(z->env->random(z->env) % z->settings.servers.n);
    kit_link_open(&z->link.kit);
}

/* If a socket is closed with unread data, the system resets the connection, and the server might
 * miss our last requests. */
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
        kit_wire_flush(&z->link.wire);
    if (z->link.state == LINK_READY)
        drain(z->link.stream.fd);
    kit_link_close(&z->link.kit);
    zk_watches_lost(z);
}
