/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - the common parts of server URLs: user and password, addresses, TLS.
 *
 * Values that are read replace earlier values. No error repeats a part of the URL that may be a
 * password: text before an '@' is never shown, and neither is a wrong host, because a password that
 * contains an '@' would end there.
 */
#include "net.h"

#include <stdlib.h>
#include <strings.h>

#include "url.h"

static int no_memory(pawl_error *err)
{
    return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
}

int net_copy(char **ret, const char *text, pawl_error *err)
{
    char *copy = strdup(text);

    if (!copy)
        return no_memory(err);
    free(*ret);
    *ret = copy;
    return 0;
}

int net_decode(char **ret, const char *text, size_t length, const char *what, pawl_error *err)
{
    bool bad = false;
    char *decoded = pawl__url_decode(text, length, &bad);

    if (bad)
        return pawl_error_set(err, PAWL_EINVAL,
                              "the URL's %s has a bad escape; write %%XX with hex digits", what);
    if (!decoded)
        return no_memory(err);
    free(*ret);
    *ret = decoded;
    return 0;
}

/* ---- user and password ----------------------------------------------------------------------- */

int net_read_login(net_login *login, const char *text, size_t length, pawl_error *err)
{
    const char *colon = memchr(text, ':', length);
    size_t user = colon ? (size_t)(colon - text) : length;
    int code = 0;

    if (user)
        code = net_decode(&login->user, text, user, "user", err);
    if (!code && colon && user + 1 < length)
        code = net_decode(&login->password, colon + 1, length - user - 1, "password", err);
    return code;
}

int net_add_login(net_login *login, const pawl_env *env, pawl_error *err)
{
    int code = 0;

    if (!login->user && env->user && env->user[0])
        code = net_copy(&login->user, env->user, err);
    if (!code && !login->password && env->password && env->password[0])
        code = net_copy(&login->password, env->password, err);
    return code;
}

int net_add_login_both(net_login *login, const pawl_env *env, const char *service, pawl_error *err)
{
    int code = net_add_login(login, env, err);

    if (!code && !login->user != !login->password)
        return pawl_error_set(err, PAWL_EINVAL, "%s wants a user and a password, or neither "
                              "(PAWL_USER and PAWL_PASSWORD, or user:password@ in the URL)",
                              service);
    return code;
}

void net_login_free(net_login *login)
{
    if (login->password)
        explicit_bzero(login->password, strlen(login->password));
    free(login->user);
    free(login->password);
    *login = (net_login){0};
}

/* ---- addresses ------------------------------------------------------------------------------- */

static int read_port(uint16_t *ret, const char *text, size_t length, pawl_error *err)
{
    unsigned port = 0;

    for (size_t i = 0; i < length && port <= 65535; i++)
        port = text[i] >= '0' && text[i] <= '9' ? port * 10 + (unsigned)(text[i] - '0') : 65536;
    if (port < 1 || port > 65535)
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host must be followed by ':' and a port "
                              "of 1 to 65535, or by nothing (an IPv6 address goes in [])");
    *ret = (uint16_t)port;
    return 0;
}

int net_read_address(net_address *ret, const char *text, size_t length, uint16_t port,
                     pawl_error *err)
{
    const char *close = length && text[0] == '[' ? memchr(text, ']', length) : NULL;
    const char *host = close ? text + 1 : text, *end = text + length;
    const char *rest = close ? close + 1 : memchr(text, ':', length);
    size_t host_length = (size_t)((close ? close : rest ? rest : end) - host);
    int code;

    ret->port = port;
    if (length && text[0] == '[' && !close)
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host begins with '[' but has no ']'");
    code = host_length ? net_decode(&ret->host, host, host_length, "host", err)
                       : net_copy(&ret->host, "localhost", err);
    if (!code && strlen(ret->host) >= NET_HOST_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host name is longer than %d bytes",
                              NET_HOST_MAX - 1);
    if (!code && rest && rest + 1 < end)
        code = read_port(&ret->port, rest + 1, *rest == ':' ? (size_t)(end - rest - 1) : 0, err);
    else if (!code && rest && rest < end && *rest != ':')
        code = read_port(&ret->port, "", 0, err);
    if (!code)
        snprintf(ret->where, sizeof ret->where, strchr(ret->host, ':') ? "[%s]:%u" : "%s:%u",
                 ret->host, ret->port);
    return code;
}

int net_read_addresses(net_addresses *ret, const char *text, size_t length, uint16_t port,
                       pawl_error *err)
{
    size_t n = 1, part;
    int code = 0;

    for (size_t i = 0; i < length; i++)
        n += text[i] == ',';
    if (n > NET_ADDRESSES_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the URL has more than %d hosts",
                              NET_ADDRESSES_MAX);
    ret->list = calloc(n, sizeof *ret->list);
    if (!ret->list)
        return no_memory(err);
    for (const char *end = text + length; !code && ret->n < n; text += part + 1) {
        const char *comma = memchr(text, ',', (size_t)(end - text));

        part = (size_t)((comma ? comma : end) - text);
        code = part ? net_read_address(&ret->list[ret->n++], text, part, port, err)
                    : pawl_error_set(err, PAWL_EINVAL, "the URL's list of hosts has an empty one; "
                                     "write host:port,host:port");
    }
    return code;
}

void net_addresses_free(net_addresses *addresses)
{
    for (size_t i = 0; i < addresses->n; i++)
        free(addresses->list[i].host);
    free(addresses->list);
    *addresses = (net_addresses){0};
}

static const char *usual_host(const char *host)
{
    return !strcmp(host, "127.0.0.1") || !strcmp(host, "::1") ? "localhost" : host;
}

static int by_place(const void *a, const void *b)
{
    const net_address *x = *(const net_address *const *)a, *y = *(const net_address *const *)b;
    int by_host = strcasecmp(usual_host(x->host), usual_host(y->host));

    return by_host ? by_host : (int)x->port - (int)y->port;
}

int net_identity(char *ret, size_t size, const char *service, const net_addresses *at,
                 const char *more)
{
    const net_address *sorted[NET_ADDRESSES_MAX];
    char hosts[4096] = "";
    size_t used = 0;

    for (size_t i = 0; i < at->n; i++)
        sorted[i] = &at->list[i];
    qsort(sorted, at->n, sizeof sorted[0], by_place);
    for (size_t i = 0; i < at->n && used < sizeof hosts; i++)
        used += (size_t)snprintf(hosts + used, sizeof hosts - used, " %s:%u",
                                 usual_host(sorted[i]->host), sorted[i]->port);
    for (char *c = hosts; *c; c++)
        *c = *c >= 'A' && *c <= 'Z' ? (char)(*c + 'a' - 'A') : *c;
    return snprintf(ret, size, "%s%s %s", service, hosts, more);
}

/* ---- TLS ------------------------------------------------------------------------------------- */

int net_read_tls_wanted(bool *ret, const pawl_url *url, pawl_error *err)
{
    const char *tls = pawl_url_param(url, "tls");

    *ret = tls && (!strcmp(tls, "1") || !strcmp(tls, "on"));
    if (tls && !*ret && strcmp(tls, "0") && strcmp(tls, "off"))
        return pawl_error_set(err, PAWL_EINVAL, "tls=%.20s: give 1 or 0 (or on, off)", tls);
    return 0;
}

static int read_verify(enum net_verify *ret, const char *text, pawl_error *err)
{
    static const char *const values[] = {"full", "chain", "none"};

    for (int i = 0; text && i < 3; i++)
        if (!strcmp(text, values[i])) {
            *ret = (enum net_verify)i;
            return 0;
        }
    return !text ? 0 : pawl_error_set(err, PAWL_EINVAL, "verify=%.20s: give full (the default: "
                                      "chain and host name), chain, or none", text);
}

int net_read_tls(net_tls_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *cafile = pawl_url_param(url, "cafile"), *cert = pawl_url_param(url, "cert");
    const char *key = pawl_url_param(url, "key");
    int code = read_verify(&s->verify, pawl_url_param(url, "verify"), err);

    if (!code && !cert != !key)
        code = pawl_error_set(err, PAWL_EINVAL, "cert and key go together: give both files");
    if (!code && cafile)
        code = net_copy(&s->cafile, cafile, err);
    if (!code && cert)
        code = net_copy(&s->cert, cert, err);
    if (!code && key)
        code = net_copy(&s->key, key, err);
    return code;
}

void net_tls_settings_free(net_tls_settings *s)
{
    free(s->cafile);
    free(s->cert);
    free(s->key);
    *s = (net_tls_settings){0};
}
