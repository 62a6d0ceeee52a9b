/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - what the URL says.
 *
 *     redis://[[user]:password@]host[:port][/db]     rediss:// the same over TLS
 *     redis+unix://[[user]:password@]/path/of/socket
 *
 * Parameters: prefix, db, layout, semaphore, and for TLS cafile, cert, key, verify. User and
 * password may also come from the program's options or the environment (env->user, env->password);
 * the URL's come first. No error repeats a part of the URL that may be a password.
 */
#include <limits.h>
#include <stdlib.h>
#include <sys/un.h>

#include "redis.h"
#include "url.h"

static int no_memory(pawl_error *err)
{
    return pawl_error_set(err, PAWL_ENOMEM, "out of memory");
}

/* Decode text[0..length) into *ret. */
static int decode(char **ret, const char *text, size_t length, const char *what, pawl_error *err)
{
    bool bad = false;

    *ret = pawl__url_decode(text, length, &bad);
    if (*ret)
        return 0;
    return bad ? pawl_error_set(err, PAWL_EINVAL,
                                "the URL's %s has a bad escape; write %%XX with hex digits", what)
               : no_memory(err);
}

static int copy(char **ret, const char *text, pawl_error *err)
{
    *ret = strdup(text);
    return *ret ? 0 : no_memory(err);
}

/* [[user]:password@], or user@. */
static int read_credentials(redis_settings *s, const char *text, size_t length, pawl_error *err)
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

static int read_number(const char *text, int64_t high, int64_t *ret)
{
    char *end;
    long long value = strtoll(text, &end, 10);

    if (*end || end == text || text[0] < '0' || text[0] > '9' || value > high)
        return PAWL_EINVAL;
    *ret = value;
    return 0;
}

/* host, host:port, [v6], [v6]:port; nothing: localhost. */
static int read_address(redis_settings *s, const char *text, size_t length, pawl_error *err)
{
    const char *close = length && text[0] == '[' ? memchr(text, ']', length) : NULL;
    const char *host = close ? text + 1 : text;
    const char *rest = close ? close + 1 : memchr(text, ':', length);
    size_t host_length = close ? (size_t)(close - host)
                               : rest ? (size_t)(rest - host) : length;
    size_t left = rest ? length - (size_t)(rest - text) : 0;
    char port[8];
    int64_t number = 6379;
    int code;

    if (length && text[0] == '[' && !close)
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host begins with '[' but has no ']'");
    if (left && (rest[0] != ':' || left > sizeof port))
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host must be followed by ':' and a port "
                                                "of 1 to 65535 (an IPv6 address goes in [])");
    if (left > 1) {
        memcpy(port, rest + 1, left - 1);
        port[left - 1] = 0;
        if (read_number(port, 65535, &number) || number < 1)
            return pawl_error_set(err, PAWL_EINVAL, "the URL's port must be 1 to 65535");
    }
    code = host_length ? decode(&s->host, host, host_length, "host", err)
                       : copy(&s->host, "localhost", err);
    if (!code && strlen(s->host) > 253)
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host name is longer than 253 bytes");
    s->port = (uint16_t)number;
    return code;
}

static int read_db(redis_settings *s, const char *text, pawl_error *err)
{
    if (!text[0])
        return 0;
    if (read_number(text, INT_MAX, &s->db))
        return pawl_error_set(err, PAWL_EINVAL,
                              "the URL's database must be a number such as 0 (redis://host/0)");
    return 0;
}

static int read_tcp(redis_settings *s, const char *text, pawl_error *err)
{
    size_t length = strcspn(text, "/");
    int code = read_address(s, text, length, err);

    return code || !text[length] ? code : read_db(s, text + length + 1, err);
}

static int read_unix(redis_settings *s, const char *text, pawl_error *err)
{
    int code;

    if (text[0] != '/')
        return pawl_error_set(err, PAWL_EINVAL, "redis+unix: wants the absolute path of a socket: "
                                                "redis+unix:///run/redis/redis.sock");
    code = decode(&s->path, text, strlen(text), "path", err);
    if (!code && strlen(s->path) >= sizeof ((struct sockaddr_un *)0)->sun_path)
        return pawl_error_set(err, PAWL_EINVAL, "the socket's path is longer than %zu bytes",
                              sizeof ((struct sockaddr_un *)0)->sun_path - 1);
    return code;
}

static int read_verify(redis_settings *s, const char *text, pawl_error *err)
{
    static const char *const words[] = {"full", "chain", "none"};

    for (int i = 0; text && i < 3; i++)
        if (!strcmp(text, words[i])) {
            s->verify = (enum redis_verify)i;
            return 0;
        }
    return !text ? 0 : pawl_error_set(err, PAWL_EINVAL, "verify=%.20s: give full (the default: "
                                      "chain and host name), chain, or none", text);
}

static int read_tls(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *cafile = pawl_url_param(url, "cafile"), *cert = pawl_url_param(url, "cert");
    const char *key = pawl_url_param(url, "key");
    int code = read_verify(s, pawl_url_param(url, "verify"), err);

    if (!code && !cert != !key)
        code = pawl_error_set(err, PAWL_EINVAL, "cert and key go together: give both files");
    if (!code && cafile)
        code = copy(&s->cafile, cafile, err);
    if (!code && cert)
        code = copy(&s->cert, cert, err);
    if (!code && key)
        code = copy(&s->key, key, err);
    return code;
}

static int read_layout(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *layout = pawl_url_param(url, "layout");
    const char *semaphore;

    s->redisson = layout && !strcmp(layout, "redisson");
    if (layout && !s->redisson && strcmp(layout, "pawl"))
        return pawl_error_set(err, PAWL_EINVAL, "layout=%.20s: give pawl (the default) or redisson",
                              layout);
    semaphore = s->redisson ? pawl_url_param(url, "semaphore") : NULL;
    s->plain_semaphore = semaphore && !strcmp(semaphore, "plain");
    if (semaphore && !s->plain_semaphore && strcmp(semaphore, "leased"))
        return pawl_error_set(err, PAWL_EINVAL, "semaphore=%.20s: give leased (the default: "
                              "RPermitExpirableSemaphore) or plain (RSemaphore)", semaphore);
    return 0;
}

static int read_params(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *prefix = pawl_url_param(url, "prefix"), *db = pawl_url_param(url, "db");
    int code = read_layout(s, url, err);

    if (!code)
        code = copy(&s->prefix, prefix ? prefix : s->redisson ? "" : "pawl:", err);
    if (!code && strlen(s->prefix) > REDIS_PREFIX_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the prefix is longer than %d bytes",
                              REDIS_PREFIX_MAX);
    if (!code && db)
        code = read_db(s, db, err);
    if (!code && s->tls)
        code = read_tls(s, url, err);
    return code;
}

static int add_environment(redis_settings *s, const pawl_env *env, pawl_error *err)
{
    int code = 0;

    if (!s->user && env->user && env->user[0])
        code = copy(&s->user, env->user, err);
    if (!code && !s->password && env->password && env->password[0])
        code = copy(&s->password, env->password, err);
    if (!code && s->user && !s->password)
        return pawl_error_set(err, PAWL_EINVAL, "a user without a password; put that in "
                                                "PAWL_PASSWORD or in the URL (user:password@)");
    return code;
}

int redis_settings_read(redis_settings *s, const pawl_env *env, const pawl_url *url,
                        pawl_error *err)
{
    const char *text = url->rest, *at;
    bool is_unix = !strcmp(url->scheme, "redis+unix");
    int code = 0;

    s->tls = !strcmp(url->scheme, "rediss");
    if (strncmp(text, "//", 2))
        return pawl_error_set(err, PAWL_EINVAL, "write %s://%s", url->scheme,
                              is_unix ? "/path/of/socket" : "host:6379");
    text += 2;
    at = strrchr(text, '@'); /* a path may hold one, too; a password should have it as %40 */
    if (at && is_unix && text[0] == '/')
        at = NULL;
    if (at) {
        code = read_credentials(s, text, (size_t)(at - text), err);
        text = at + 1;
    }
    if (!code)
        code = is_unix ? read_unix(s, text, err) : read_tcp(s, text, err);
    if (!code)
        code = read_params(s, url, err);
    if (!code)
        code = add_environment(s, env, err);
    if (is_unix)
        snprintf(s->where, sizeof s->where, "%.107s", s->path ? s->path : "");
    else
        snprintf(s->where, sizeof s->where, "%.253s:%u", s->host ? s->host : "", s->port);
    return code;
}

void redis_settings_free(redis_settings *s)
{
    if (s->password)
        explicit_bzero(s->password, strlen(s->password));
    free(s->host);
    free(s->path);
    free(s->user);
    free(s->password);
    free(s->prefix);
    free(s->cafile);
    free(s->cert);
    free(s->key);
    *s = (redis_settings){0};
}
