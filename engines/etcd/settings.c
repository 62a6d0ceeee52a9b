/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - reads the URL.
 *
 *     etcd://[user:password@]host[:port][,host[:port]...]
 *
 * Parameters: prefix, session, and tls=1 with cafile, cert, key, verify (cafile, cert and verify
 * imply tls=1). User and password may also come from the program's options or the environment
 * (env->user, env->password); the URL takes precedence. No error repeats a part of the URL that may
 * be a password.
 */
#include <stdlib.h>

#include "etcd.h"

#define SESSION_MAX_MS (INT64_C(1000) * 3600 * 24)

static int read_endpoints(etcd_settings *s, const char *text, pawl_error *err)
{
    size_t length = strcspn(text, "/");

    if (text[length] && text[length + 1])
        return pawl_error_set(err, PAWL_EINVAL, "an etcd URL ends with its hosts; what the keys "
                              "begin with is the parameter prefix");
    return net_read_addresses(&s->endpoints, text, length, 2379, err);
}

static int read_session(etcd_settings *s, const char *text, pawl_error *err)
{
    char *end;
    long long ms;

    if (!text)
        return 0;
    ms = strtoll(text, &end, 10);
    if (*end || end == text || ms < 1000 || ms > SESSION_MAX_MS)
        return pawl_error_set(err, PAWL_EINVAL, "session=%.20s: give milliseconds, from 1000 to a "
                              "day; etcd counts in seconds", text);
    s->session_ms = ms;
    return 0;
}

static int read_tls(etcd_settings *s, const pawl_url *url, pawl_error *err)
{
    bool implied = pawl_url_param(url, "cafile") || pawl_url_param(url, "cert") ||
                   pawl_url_param(url, "verify");
    int code = net_read_tls_wanted(&s->tls, url, err);

    if (!code && implied && !s->tls && pawl_url_param(url, "tls"))
        code = pawl_error_set(err, PAWL_EINVAL, "cafile, cert, key and verify are for tls=1");
    s->tls = s->tls || implied;
    return code ? code : net_read_tls(&s->tls_settings, url, err);
}

int etcd_settings_read(etcd_settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err)
{
    const char *text = url->rest, *at, *prefix = pawl_url_param(url, "prefix");
    int code;

    if (strncmp(text, "//", 2))
        return pawl_error_set(err, PAWL_EINVAL, "write etcd://host:2379 or etcd://h1,h2,h3");
    text += 2;
    at = strrchr(text, '@');
    code = at ? net_read_login(&s->login, text, (size_t)(at - text), err) : 0;
    if (!code)
        code = read_endpoints(s, at ? at + 1 : text, err);
    if (!code)
        code = net_copy(&s->prefix, prefix ? prefix : "pawl/", err);
    if (!code && strlen(s->prefix) > ETCD_PREFIX_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the prefix is longer than %d bytes",
                              ETCD_PREFIX_MAX);
    if (!code)
        code = read_session(s, pawl_url_param(url, "session"), err);
    if (!code)
        code = read_tls(s, url, err);
    return code ? code : net_add_login_both(&s->login, env, "etcd", err);
}

void etcd_settings_free(etcd_settings *s)
{
    net_addresses_free(&s->endpoints);
    net_login_free(&s->login);
    net_tls_settings_free(&s->tls_settings);
    free(s->prefix);
    *s = (etcd_settings){0};
}
