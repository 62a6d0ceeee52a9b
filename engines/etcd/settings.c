/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - what the URL says.
 *
 *     etcd://[user:password@]host[:port][,host[:port]...]
 *
 * Parameters: prefix, session, and tls=1 with cafile, cert, key, verify (each of which implies it).
 * User and password may also come from the program's options or the environment (env->user,
 * env->password); the URL's come first. No error repeats a part of the URL that may be a password.
 */
#include <stdlib.h>

#include "etcd.h"

#define SESSION_MAX_MS (INT64_C(1000) * 3600 * 24)

static int no_memory(pawl_error *err)
{
    return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decode text[0..length) with its %XX into *ret. */
static int decode(char **ret, const char *text, size_t length, const char *what, pawl_error *err)
{
    char *out = malloc(length + 1);
    size_t n = 0;

    if (!out)
        return no_memory(err);
    for (size_t i = 0; i < length; i++) {
        bool escape = text[i] == '%';
        int high = escape && i + 2 < length ? hex(text[i + 1]) : -1;
        int low = high >= 0 ? hex(text[i + 2]) : -1;

        if (escape && (low < 0 || (high == 0 && low == 0))) {
            free(out);
            return pawl_error_set(err, PAWL_EINVAL, "the URL's %s has a bad escape; write %%XX "
                                  "with hex digits", what);
        }
        out[n++] = (char)(escape ? high << 4 | low : text[i]);
        i += escape ? 2 : 0;
    }
    out[n] = 0;
    *ret = out;
    return 0;
}

static int copy(char **ret, const char *text, pawl_error *err)
{
    *ret = strdup(text);
    return *ret ? 0 : no_memory(err);
}

static int read_credentials(etcd_settings *s, const char *text, size_t length, pawl_error *err)
{
    const char *colon = memchr(text, ':', length);
    size_t user = colon ? (size_t)(colon - text) : length;
    int code = 0;

    if (user)
        code = decode(&s->user, text, user, "user", err);
    if (!code && colon && user + 1 < length)
        code = decode(&s->password, colon + 1, length - user - 1, "password", err);
    return code;
}

static int read_port(const char *text, size_t length, uint16_t *ret, pawl_error *err)
{
    unsigned port = 0;

    for (size_t i = 0; i < length && port <= 65535; i++)
        port = text[i] >= '0' && text[i] <= '9' ? port * 10 + (unsigned)(text[i] - '0') : 65536;
    if (port < 1 || port > 65535)
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host must be followed by ':' and a port "
                              "of 1 to 65535 (an IPv6 address goes in [])");
    *ret = (uint16_t)port;
    return 0;
}

/* host, host:port, [v6], [v6]:port. */
static int read_endpoint(etcd_settings *s, const char *text, size_t length, pawl_error *err)
{
    const char *close = length && text[0] == '[' ? memchr(text, ']', length) : NULL;
    const char *host = close ? text + 1 : text, *end = text + length;
    const char *rest = close ? close + 1 : memchr(text, ':', length);
    etcd_endpoint *e = &s->endpoints[s->nendpoints];
    size_t host_length = (size_t)((close ? close : rest ? rest : end) - host);
    int code;

    if (s->nendpoints == ETCD_ENDPOINTS)
        return pawl_error_set(err, PAWL_EINVAL, "the URL has more than %d hosts", ETCD_ENDPOINTS);
    if (!host_length || host_length > 253 || (text[0] == '[' && !close))
        return pawl_error_set(err, PAWL_EINVAL, "write etcd://host:2379 or etcd://h1,h2,h3");
    e->port = 2379;
    if (rest && rest < end) {
        code = rest[0] == ':' ? read_port(rest + 1, (size_t)(end - rest) - 1, &e->port, err)
                              : read_port("", 0, &e->port, err);
        if (code)
            return code;
    }
    code = decode(&e->host, host, host_length, "host", err);
    if (code)
        return code;
    s->nendpoints++;
    snprintf(e->where, sizeof e->where, strchr(e->host, ':') ? "[%s]:%u" : "%s:%u", e->host,
             e->port);
    return 0;
}

static int read_endpoints(etcd_settings *s, const char *text, pawl_error *err)
{
    size_t length = strcspn(text, "/");
    int code = 0;

    if (text[length] && text[length + 1])
        return pawl_error_set(err, PAWL_EINVAL, "an etcd URL ends with its hosts; what the keys "
                              "begin with is the parameter prefix");
    for (size_t at = 0, n; !code && at <= length; at += n + 1) {
        n = strcspn(text + at, ",/");
        code = read_endpoint(s, text + at, n, err);
    }
    return code;
}

static int read_verify(etcd_settings *s, const char *text, pawl_error *err)
{
    static const char *const words[] = {"full", "chain", "none"};

    for (int i = 0; text && i < 3; i++)
        if (!strcmp(text, words[i])) {
            s->verify = (enum net_verify)i;
            return 0;
        }
    return !text ? 0 : pawl_error_set(err, PAWL_EINVAL, "verify=%.20s: give full (the default: "
                                      "chain and host name), chain, or none", text);
}

static int read_tls(etcd_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *cafile = pawl_url_param(url, "cafile"), *cert = pawl_url_param(url, "cert");
    const char *key = pawl_url_param(url, "key"), *verify = pawl_url_param(url, "verify");
    const char *tls = pawl_url_param(url, "tls");
    int code = read_verify(s, verify, err);

    if (!code && tls && strcmp(tls, "0") && strcmp(tls, "1"))
        code = pawl_error_set(err, PAWL_EINVAL, "tls=%.20s: give 1 or 0", tls);
    if (!code && !cert != !key)
        code = pawl_error_set(err, PAWL_EINVAL, "cert and key go together: give both files");
    s->tls = tls ? tls[0] == '1' : cafile || cert || verify;
    if (!code && !s->tls && (cafile || cert || verify))
        code = pawl_error_set(err, PAWL_EINVAL, "cafile, cert, key and verify are for tls=1");
    if (!code && cafile)
        code = copy(&s->cafile, cafile, err);
    if (!code && cert)
        code = copy(&s->cert, cert, err);
    if (!code && key)
        code = copy(&s->key, key, err);
    return code;
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

static int add_environment(etcd_settings *s, const pawl_env *env, pawl_error *err)
{
    int code = 0;

    if (!s->user && env->user && env->user[0])
        code = copy(&s->user, env->user, err);
    if (!code && !s->password && env->password && env->password[0])
        code = copy(&s->password, env->password, err);
    if (!code && !s->user != !s->password)
        return pawl_error_set(err, PAWL_EINVAL, "etcd wants a user and a password, or neither "
                              "(PAWL_USER and PAWL_PASSWORD, or user:password@ in the URL)");
    return code;
}

int etcd_settings_read(etcd_settings *s, const pawl_env *env, const pawl_url *url, pawl_error *err)
{
    const char *text = url->rest, *at, *prefix = pawl_url_param(url, "prefix");
    int code;

    if (strncmp(text, "//", 2))
        return pawl_error_set(err, PAWL_EINVAL, "write etcd://host:2379 or etcd://h1,h2,h3");
    text += 2;
    at = strrchr(text, '@');
    code = at ? read_credentials(s, text, (size_t)(at - text), err) : 0;
    if (!code)
        code = read_endpoints(s, at ? at + 1 : text, err);
    if (!code)
        code = copy(&s->prefix, prefix ? prefix : "pawl/", err);
    if (!code && strlen(s->prefix) > ETCD_PREFIX_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the prefix is longer than %d bytes",
                              ETCD_PREFIX_MAX);
    if (!code)
        code = read_session(s, pawl_url_param(url, "session"), err);
    if (!code)
        code = read_tls(s, url, err);
    return code ? code : add_environment(s, env, err);
}

void etcd_settings_free(etcd_settings *s)
{
    if (s->password)
        explicit_bzero(s->password, strlen(s->password));
    for (size_t i = 0; i < s->nendpoints; i++)
        free(s->endpoints[i].host);
    free(s->user);
    free(s->password);
    free(s->prefix);
    free(s->cafile);
    free(s->cert);
    free(s->key);
    *s = (etcd_settings){0};
}
