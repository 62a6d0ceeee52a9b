/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c - what the URL says.
 *
 *     redis://[[user]:password@]host[:port][/db]     rediss:// the same over TLS
 *     redis+unix://[[user]:password@]/path/of/socket
 *     redis+sentinel://[[user]:password@]host[:port],host[:port]/MASTER[/db]
 *     redis+cluster://[[user]:password@]host[:port],host[:port]
 *
 * Parameters: prefix, db, layout, semaphore, replicas; tls=1 for those that have no scheme of their
 * own with TLS, and for TLS cafile, cert, key, verify; sentinel_user and sentinel_password. User
 * and password may also come from the program's options or the environment (env->user,
 * env->password); the URL's come first. No error repeats a part of the URL that may be a password.
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
static int read_address(redis_address *ret, const char *text, size_t length, int64_t usual_port,
                        pawl_error *err)
{
    const char *close = length && text[0] == '[' ? memchr(text, ']', length) : NULL;
    const char *host = close ? text + 1 : text;
    const char *rest = close ? close + 1 : memchr(text, ':', length);
    size_t host_length = close ? (size_t)(close - host)
                               : rest ? (size_t)(rest - host) : length;
    size_t left = rest ? length - (size_t)(rest - text) : 0;
    char port[8];
    int64_t number = usual_port;
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
    code = host_length ? decode(&ret->host, host, host_length, "host", err)
                       : copy(&ret->host, "localhost", err);
    if (!code && strlen(ret->host) >= REDIS_HOST_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the URL's host name is longer than %d bytes",
                              REDIS_HOST_MAX - 1);
    ret->port = (uint16_t)number;
    return code;
}

/* One address, or several with commas between them. */
static int read_addresses(redis_settings *s, const char *text, size_t length, pawl_error *err)
{
    bool several = s->service != REDIS_ONE;
    size_t n = 1, part;
    int code = 0;

    for (size_t i = 0; several && i < length; i++)
        n += text[i] == ',';
    s->addresses = calloc(n, sizeof *s->addresses);
    if (!s->addresses)
        return no_memory(err);
    for (; s->naddresses < n && !code; text += part + 1, length -= part < length ? part + 1 : 0) {
        const char *comma = several ? memchr(text, ',', length) : NULL;

        part = comma ? (size_t)(comma - text) : length;
        if (several && !part)
            return pawl_error_set(err, PAWL_EINVAL, "the URL's list of hosts has an empty one; "
                                                    "write host:port,host:port");
        code = read_address(&s->addresses[s->naddresses++], text, part,
                            s->service == REDIS_SENTINEL ? 26379 : 6379, err);
    }
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
    int code = read_addresses(s, text, length, err);

    return code || !text[length] ? code : read_db(s, text + length + 1, err);
}

static int read_sentinel(redis_settings *s, const char *text, pawl_error *err)
{
    size_t length = strcspn(text, "/"), name;
    int code = read_addresses(s, text, length, err);

    text += length + (text[length] == '/');
    name = strcspn(text, "/");
    if (!code && !name)
        return pawl_error_set(err, PAWL_EINVAL, "the name of the master is missing: write "
                                                "redis+sentinel://host:26379,host:26379/mymaster");
    if (!code)
        code = decode(&s->master, text, name, "name of the master", err);
    if (!code && strlen(s->master) > REDIS_MASTER_MAX)
        return pawl_error_set(err, PAWL_EINVAL, "the name of the master is longer than %d bytes",
                              REDIS_MASTER_MAX);
    return code || !text[name] ? code : read_db(s, text + name + 1, err);
}

static int read_cluster(redis_settings *s, const char *text, pawl_error *err)
{
    size_t length = strcspn(text, "/");
    int code = read_addresses(s, text, length, err);

    if (!code && text[length] && text[length + 1])
        return pawl_error_set(err, PAWL_EINVAL, "a cluster has no databases and nothing else after "
                                                "its hosts: redis+cluster://host:6379,host:6379");
    return code;
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
            s->verify = (enum net_verify)i;
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

/* Of those services that have no scheme of their own with TLS. */
static int read_tls_wanted(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *tls = pawl_url_param(url, "tls");

    if (tls && strcmp(tls, "1") && strcmp(tls, "0"))
        return pawl_error_set(err, PAWL_EINVAL, "tls=%.20s: give 1 or 0", tls);
    s->tls = tls && tls[0] == '1';
    return 0;
}

static int read_sentinel_params(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *user = pawl_url_param(url, "sentinel_user");
    const char *password = pawl_url_param(url, "sentinel_password");
    int code = user ? copy(&s->sentinel_user, user, err) : 0;

    if (!code && password)
        code = copy(&s->sentinel_password, password, err);
    if (!code && user && !password)
        return pawl_error_set(err, PAWL_EINVAL, "sentinel_user without sentinel_password");
    return code;
}

static int read_replicas(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *replicas = pawl_url_param(url, "replicas");

    if (replicas && read_number(replicas, 100, &s->replicas))
        return pawl_error_set(err, PAWL_EINVAL, "replicas=%.20s: give how many replicas must have "
                              "a grant before it counts, 0 (the default) to 100", replicas);
    return 0;
}

static int read_params(redis_settings *s, const pawl_url *url, pawl_error *err)
{
    const char *prefix = pawl_url_param(url, "prefix");
    const char *db = s->service == REDIS_CLUSTER ? NULL : pawl_url_param(url, "db");
    int code = read_layout(s, url, err);

    if (!code && s->service != REDIS_ONE)
        code = read_tls_wanted(s, url, err);
    if (!code && s->service == REDIS_SENTINEL)
        code = read_sentinel_params(s, url, err);
    if (!code)
        code = read_replicas(s, url, err);

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

static int read_rest(redis_settings *s, const pawl_url *url, const char *text, pawl_error *err)
{
    if (!strcmp(url->scheme, "redis+unix"))
        return read_unix(s, text, err);
    if (s->service == REDIS_SENTINEL)
        return read_sentinel(s, text, err);
    return s->service == REDIS_CLUSTER ? read_cluster(s, text, err) : read_tcp(s, text, err);
}

int redis_settings_read(redis_settings *s, const pawl_env *env, const pawl_url *url,
                        pawl_error *err)
{
    const char *text = url->rest, *at;
    bool is_unix = !strcmp(url->scheme, "redis+unix");
    int code = 0;

    s->tls = !strcmp(url->scheme, "rediss");
    if (!strcmp(url->scheme, "redis+sentinel"))
        s->service = REDIS_SENTINEL;
    else if (!strcmp(url->scheme, "redis+cluster"))
        s->service = REDIS_CLUSTER;
    if (strncmp(text, "//", 2))
        return pawl_error_set(err, PAWL_EINVAL, "write %s://%s", url->scheme,
                              is_unix ? "/path/of/socket" :
                              s->service == REDIS_SENTINEL ? "host:26379,host:26379/mymaster"
                                                           : "host:6379");
    text += 2;
    at = strrchr(text, '@'); /* a path may hold one, too; a password should have it as %40 */
    if (at && is_unix && text[0] == '/')
        at = NULL;
    if (at) {
        code = read_credentials(s, text, (size_t)(at - text), err);
        text = at + 1;
    }
    if (!code)
        code = read_rest(s, url, text, err);
    if (!code)
        code = read_params(s, url, err);
    if (!code)
        code = add_environment(s, env, err);
    return code;
}

bool redis_is_host(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return false;
    return text[0] != 0;
}

static void free_secret(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void redis_settings_free(redis_settings *s)
{
    for (size_t i = 0; i < s->naddresses; i++)
        free(s->addresses[i].host);
    free(s->addresses);
    free(s->path);
    free(s->master);
    free(s->user);
    free_secret(s->password);
    free(s->sentinel_user);
    free_secret(s->sentinel_password);
    free(s->prefix);
    free(s->cafile);
    free(s->cert);
    free(s->key);
    *s = (redis_settings){0};
}

net_tls_settings redis_tls_settings(const redis_settings *s, const char *host)
{
    return (net_tls_settings){.host = host, .cafile = s->cafile, .cert = s->cert,
                              .key = s->key, .verify = s->verify};
}
