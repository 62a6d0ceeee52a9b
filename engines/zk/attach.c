/* SPDX-License-Identifier: Apache-2.0
 *
 * attach.c - from a connection to a session (GREETING): the client asks to resume its session, or
 * for a new one. The server answers with the session, or that the session has ended.
 *
 * The client leaves a read-only server (one that has lost contact with the ensemble). A server that
 * is behind the zxid this client has seen closes the connection itself.
 *
 * An ensemble that has lost data, or went back to an older snapshot, is behind for good. So the
 * last zxid counts only as long as the session is surely valid. After that time nothing is held any
 * more by this client's own clock. The client then asks for the session with a zxid of 0, and lets
 * the server catch up with the leader (session.c) before any read. Either the ensemble knows the
 * session, and the client checks the session's nodes; or all waiters queue again in a new session.
 */
#include "zk.h"

void zk_link_attach(zk *z)
{
    zk_session *s = &z->session;
    jute_writer w;

    z->link.attached = z->env->now(z->env);
    if (z->link.attached > s->until)
        s->last_zxid = 0;
    w = jute_begin(&z->link.out);
    jute_put_int(&w, 0); /* version of the protocol */
    jute_put_long(&w, s->last_zxid);
    jute_put_int(&w, (int32_t)z->settings.session_ms);
    jute_put_long(&w, s->id);
    jute_put_bytes(&w, s->password, s->id ? s->password_length : sizeof s->password);
    jute_put_bool(&w, false); /* read-only servers are not accepted */
    if (jute_end(&w))
        kit_wire_flush(&z->link.wire);
    else
        zk_link_drop(z, PAWL_ENOMEM, "out of memory");
}

static void introduce(zk *z)
{
    char text[1024];
    int n = snprintf(text, sizeof text, "%s:%s", z->settings.login.user,
                     z->settings.login.password);
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
    s->id = s->last_zxid = 0;
    s->epoch++;
    zk_link_drop(z, PAWL_ECONN, "the session has ended");
    z->link.server = (z->link.server + z->settings.servers.n - 1) % z->settings.servers.n;
    z->link.failures = 0;
    kit_link_hurry(&z->link.kit);
    zk_tasks_expired(z);
    pawl_events_report(&z->events, PAWL_EVENT_LOST, 0);
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
    z->link.fresh = fresh;
    z->link.limit_ms = timeout >= 3 && timeout / 3 < z->env->timeout_ms ? timeout / 3
                                                                      : z->env->timeout_ms;
    kit_link_ready(&z->link.kit);
    return z->link.state == LINK_READY;
}

void zk_link_ready(zk *z)
{
    if (z->settings.login.user)
        introduce(z);
    if (z->link.state == LINK_READY)
        zk_session_ready(z, z->link.fresh, z->link.attached);
}
