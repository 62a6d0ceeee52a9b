/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.c - from a server's name to a connection with a session: RESOLVING, then CONNECTING to
 * one address after the other, then SECURING (TLS), then ATTACHING: the session we have, or a new
 * one, is asked for. The answer is the session, or that it has ended.
 *
 * An attempt as a whole has the time of one exchange, and each address its share of what is left of
 * it. A server that can only be read from (it has lost its ensemble) is left again; so is one that
 * is behind what this client has seen, which that server itself sees to.
 */
#include <errno.h>
#include <netdb.h>
#include <sys/socket.h>

#include "zk.h"

static void connect_next(zk *z);

static const zk_server *server_of(const zk *z)
{
    return &z->settings.servers[z->link.server];
}

/* ---- the session ----------------------------------------------------------------------------- */

static void attach(zk *z)
{
    zk_session *s = &z->session;
    jute_writer w;

    z->link.state = LINK_ATTACHING;
    z->link.attached = z->env->now(z->env);
    w = jute_begin(&z->link.out);
    jute_put_int(&w, 0); /* version of the protocol */
    jute_put_long(&w, s->last_zxid);
    jute_put_int(&w, (int32_t)z->settings.session_ms);
    jute_put_long(&w, s->id);
    jute_put_bytes(&w, s->password, s->id ? s->password_length : sizeof s->password);
    jute_put_bool(&w, false); /* a server that can only be read from won't do */
    if (jute_end(&w))
        zk_link_flush(z);
    else
        zk_link_drop(z, PAWL_ENOMEM, "out of memory");
}

static void introduce(zk *z)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%s:%s", z->settings.user, z->settings.password);
    jute_writer w = jute_begin(&z->link.out);

    jute_put_int(&w, -4);
    jute_put_int(&w, ZK_AUTH);
    jute_put_int(&w, 0);
    jute_put_text(&w, "digest");
    jute_put_bytes(&w, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    if (!jute_end(&w))
        zk_link_drop(z, PAWL_ENOMEM, "out of memory");
    explicit_bzero(text, sizeof text);
}

static bool session_ended(zk *z)
{
    zk_session *s = &z->session;

    if (!s->id) {
        zk_link_drop(z, PAWL_EPROTO, "the server gives no session");
        return false;
    }
    s->id = 0;
    s->epoch++;
    zk_link_drop(z, PAWL_ECONN, "the session has ended");
    z->link.server = (z->link.server + z->settings.nservers - 1) % z->settings.nservers;
    z->link.failures = 0;
    z->env->timer_set(z->env, &z->link.timer, z->env->now(z->env));
    zk_tasks_expired(z);
    zk_event(z, PAWL_EVENT_LOST);
    return false;
}

bool zk_link_attached(zk *z, jute_reader *body)
{
    zk_session *s = &z->session;
    bool fresh = !s->id, read_only = false;
    int32_t timeout;
    int64_t id;
    jute_bytes password;

    jute_int(body); /* version */
    timeout = jute_int(body);
    id = jute_long(body);
    password = jute_get_bytes(body);
    if (body->at < body->end)
        read_only = jute_bool(body);
    if (!jute_at_end(body) || password.length > sizeof s->password) {
        zk_link_drop(z, PAWL_EPROTO, "this is not a ZooKeeper server");
        return false;
    }
    if (timeout <= 0 || !id)
        return session_ended(z);
    if (read_only || (!fresh && id != s->id)) {
        zk_link_drop(z, PAWL_ECONN, read_only ? "the server can only be read from"
                                              : "the server answers for another session");
        return false;
    }
    s->id = id;
    s->timeout_ms = timeout;
    s->password_length = password.length;
    if (password.length)
        memcpy(s->password, password.data, password.length);
    z->link.state = LINK_READY;
    z->link.last_code = 0;
    z->env->timer_clear(z->env, &z->link.timer);
    if (z->settings.user)
        introduce(z);
    if (z->link.state == LINK_READY)
        zk_session_ready(z, fresh, z->link.attached);
    return z->link.state == LINK_READY;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static net_tls_settings tls_of(const zk *z)
{
    const zk_settings *s = &z->settings;

    return (net_tls_settings){.host = server_of(z)->host, .cafile = s->cafile, .cert = s->cert,
                              .key = s->key, .verify = s->verify};
}

/* A connection that failed, or one that was made: the next address, or the next state. */
void zk_link_advance(zk *z)
{
    zk_link *link = &z->link;
    char words[ZK_WORDS] = "closed by the server";
    socklen_t length = sizeof (int);
    int error = 0, result;

    if (link->state == LINK_CONNECTING) {
        if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
            error = errno;
        if (error) {
            snprintf(link->words, sizeof link->words, "%s", strerror(error));
            z->env->fork_guard_remove(link->fd);
            zk_link_close_socket(link);
            connect_next(z);
            return;
        }
        link->state = LINK_SECURING;
        if (z->settings.tls) {
            net_tls_settings s = tls_of(z);

            link->tls = net_tls_new(z->tls_context, &s, link->fd);
            if (!link->tls) {
                zk_link_drop(z, PAWL_ENOMEM, "can't set up TLS");
                return;
            }
        }
    }
    result = link->tls ? net_tls_handshake(link->tls, words) : 0;
    if (result == NET_IO_AGAIN)
        zk_link_watch(z);
    else if (result)
        zk_link_drop(z, result == NET_IO_FAILED ? PAWL_EAUTH : PAWL_ECONN, "%s", words);
    else
        attach(z);
}

/* 0, or an errno. */
static int connect_to(zk *z, const struct addrinfo *to)
{
    zk_link *link = &z->link;
    int error = net_connect(z->env, to->ai_addr, to->ai_addrlen, &link->fd, &link->poll);

    if (error)
        return error;
    link->poll->data = z;
    link->state = LINK_CONNECTING;
    zk_link_watch(z);
    return 0;
}

/* An equal part of the time for each address that is left. */
static void limit_address(zk *z)
{
    int64_t n = 0;

    for (const struct addrinfo *a = z->link.next_address; a; a = a->ai_next)
        n++;
    z->env->timer_set(z->env, &z->link.timer,
                      z->env->now(z->env) + zk_patience_ms(z) * PAWL_NS_PER_MS / (n ? n : 1));
}

static void connect_next(zk *z)
{
    zk_link *link = &z->link;

    while (link->next_address) {
        struct addrinfo *a = link->next_address;
        int error;

        limit_address(z);
        link->next_address = a->ai_next;
        error = connect_to(z, a);
        if (!error)
            return;
        snprintf(link->words, sizeof link->words, "%s", strerror(error));
        if (link->fd >= 0)
            z->env->fork_guard_remove(link->fd);
        zk_link_close_socket(link);
    }
    zk_link_drop(z, PAWL_ECONN, "%.80s", link->words);
}

static void resolved(void *arg, int error, struct addrinfo *addresses)
{
    zk *z = arg;

    if (error) {
        zk_link_drop(z, PAWL_ECONN, "the name can't be resolved: %s", gai_strerror(error));
        return;
    }
    z->link.addresses = z->link.next_address = addresses;
    connect_next(z);
}

void zk_link_attempt(zk *z)
{
    zk_link *link = &z->link;

    link->state = LINK_RESOLVING;
    z->env->timer_set(z->env, &link->timer,
                      z->env->now(z->env) + zk_patience_ms(z) * PAWL_NS_PER_MS);
    link->resolve.done = resolved;
    link->resolve.arg = z;
    if (net_resolve_start(&link->resolve, z->env, server_of(z)->host, server_of(z)->port))
        zk_link_drop(z, PAWL_ECONN, "no thread to resolve the name with");
}

bool zk_link_goes_on(zk *z)
{
    if (z->link.state != LINK_CONNECTING || !z->link.next_address)
        return false;
    z->env->fork_guard_remove(z->link.fd);
    zk_link_close_socket(&z->link);
    connect_next(z);
    return true;
}
