/* SPDX-License-Identifier: Apache-2.0
 *
 * login.c - the first calls on a connection. With a user: user and password for a token, which goes
 * with every later call of this connection. If the server no longer accepts the token, the link
 * reconnects and so gets a new token. A server without authentication is used without a token. If
 * the log shows it: the server's version.
 */
#include <stdlib.h>

#include "etcd.h"

/* ---- version --------------------------------------------------------------------------------- */

static bool answer_version(etcd_call *call, pb_span message)
{
    etcd_link *link = call->about;
    etcd_status status;

    if (etcd_read_status(message, &status))
        link->env->log(link->env, PAWL_LOG_INFO, "%s: server etcd %s",
                       link->e->settings.endpoints.list[link->endpoint].where, status.version);
    etcd_link_greeted(link);
    return true;
}

/* A server that does not tell its version is used all the same. PAWL_EUNKNOWN, PAWL_ECANCELED,
 * PAWL_ECONN: the link drops or closes. */
static void version_failed(etcd_call *call, int code, const char *words)
{
    (void)words;
    if (code != PAWL_EUNKNOWN && code != PAWL_ECANCELED && code != PAWL_ECONN)
        etcd_link_greeted(call->about);
}

static void ask_version(etcd_link *link)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.Maintenance/Status",
        .optional = true, .answer = answer_version, .failed = version_failed};
    etcd_call *call;

    if (link->env->log_level < PAWL_LOG_INFO) {
        etcd_link_greeted(link);
        return;
    }
    call = etcd_call_new(link->e, &type, link);
    if (!call || !etcd_call_send(call))
        etcd_link_drop(link, PAWL_ENOMEM, "out of memory");
}

/* ---- login ----------------------------------------------------------------------------------- */

static bool answer_login(etcd_call *call, pb_span message)
{
    etcd_link *link = call->about;
    pb_span token;

    if (!etcd_read_token(message, &token) || !token.length || memchr(token.data, 0, token.length))
        return false;
    link->token = strndup((const char *)token.data, token.length);
    if (!link->token)
        etcd_link_drop(link, PAWL_ENOMEM, "out of memory");
    else
        ask_version(link);
    return true;
}

static void login_failed(etcd_call *call, int code, const char *words)
{
    etcd_link *link = call->about;

    if (code == PAWL_EBACKEND && strstr(call->words, "not enabled"))
        ask_version(link);
    else if (code != PAWL_EUNKNOWN && code != PAWL_ECANCELED)
        etcd_link_drop(link, code == ETCD_NO_LEASE ? PAWL_EAUTH : code, "%s", words);
}

void etcd_login(etcd_link *link)
{
    static const etcd_call_type type = {.path = "/etcdserverpb.Auth/Authenticate",
        .answer = answer_login, .failed = login_failed};
    const etcd_settings *s = &link->e->settings;
    etcd_call *call;

    if (!s->login.user) {
        ask_version(link);
        return;
    }
    call = etcd_call_new(link->e, &type, link);
    if (call) {
        etcd_pb_bytes(&call->body, 1, s->login.user, strlen(s->login.user));
        etcd_pb_bytes(&call->body, 2, s->login.password, strlen(s->login.password));
    }
    if (!call || !etcd_call_send(call))
        etcd_link_drop(link, PAWL_ENOMEM, "out of memory");
}
